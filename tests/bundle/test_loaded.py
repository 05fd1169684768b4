"""A loaded model answers in order, the same in any company, and no look at its test set goes unseen."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import seqloom
from bundle_common import TEST, make_reviews, make_run
from seqloom.config.data import ColumnSplit, RandomSplit
from seqloom.errors import ConfigError, DurableError, RejectedError
from seqloom.files.jsonl import read_lines
from seqloom.inference import evaluation
from seqloom.inference.model import LoadedModel
from seqloom.inference.prediction import batches


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("reviews")
    make_run(place / "run", "gru", **make_reviews(place))
    return place


@pytest.fixture(scope="module")
def model(shelf) -> LoadedModel:
    return seqloom.load(shelf / "run")


@pytest.fixture
def run(shelf, tmp_path) -> Path:
    """A run of its own for whoever leaves something in it."""
    return shutil.copytree(shelf / "run", tmp_path / "run")


TEXTS = ["good", "a bad film", "bad bad bad film a good film", "something else", "a"]


def test_answers_come_in_the_order_of_the_inputs(model) -> None:
    alone = [model.predict([text])[0].to_json()["scores"] for text in TEXTS]
    together = [one.to_json()["scores"] for one in model.predict(TEXTS)]
    assert together == [pytest.approx(one, abs=1e-6) for one in alone]
    assert len({one["bad"] for one in alone}) > 3


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(st.sampled_from(TEXTS), max_size=12), st.integers(1, 64))
def test_the_answer_is_the_same_whatever_the_batch(model, texts, batch_tokens) -> None:
    found = [one.to_json()["scores"]["bad"] for one in model.predict(texts, batch_tokens=batch_tokens)]
    wanted = {text: one.to_json()["scores"]["bad"] for text, one in zip(TEXTS, model.predict(TEXTS), strict=True)}
    assert found == pytest.approx([wanted[text] for text in texts], abs=1e-6)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 100))
def test_every_row_is_in_one_batch_of_at_most_the_budget(lengths, batch_tokens) -> None:
    found = batches(np.array(lengths), batch_tokens)
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))
    assert all(len(rows) == 1 or len(rows) * max(lengths[row] for row in rows) <= batch_tokens for rows in found)


class Named(str):
    __slots__ = ()


@pytest.mark.parametrize("kind", [np.array, lambda texts: np.array(texts, object), lambda texts: map(np.str_, texts)])
def test_texts_of_numpy_are_answered_as_those_of_python(model, kind) -> None:
    wanted = [one.to_json() for one in model.predict(TEXTS)]
    assert [one.to_json() for one in model.predict(kind(TEXTS))] == wanted
    assert [one.to_json() for one in model.predict(map(Named, TEXTS))] == wanted
    np.testing.assert_array_equal(model.embed(kind(TEXTS)), model.embed(TEXTS))
    assert model.inspect(np.str_(TEXTS[1])).reading.given == TEXTS[1]


def test_predicting_draws_nothing_and_leaves_no_gradient(model) -> None:
    before = torch.get_rng_state()
    model.predict(TEXTS)
    assert torch.equal(before, torch.get_rng_state())
    assert all(weight.grad is None for weight in model.model.parameters())


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (["good", ""], "inputs:2: row.empty_text"),
        (["good", 7], "inputs:2: type.text: expected text, found number"),
        ([None], "inputs:1: type.text: expected text, found null"),
        ([["good"]], "inputs:1: type.text: expected text, found list"),
    ],
)
def test_a_bad_input_is_named_before_any_work(model, inputs, said, monkeypatch) -> None:
    monkeypatch.setattr(model.task, "predict", lambda *_: pytest.fail("it was asked"))
    with pytest.raises(RejectedError, match=re.escape(said)):
        model.predict(inputs)


def test_one_text_is_answered_alone_and_not_taken_for_a_list_of_letters(model) -> None:
    assert model.predict("good") == model.predict(["good"])[0]


def test_no_inputs_have_no_answers(model) -> None:
    assert model.predict([]) == []


def test_the_model_tells_what_it_is(model) -> None:
    assert re.fullmatch(r"LoadedModel\(classify: text to label, 2 labels, \d+ tokens, .*; .*model\)", repr(model))


def test_a_run_and_its_model_folder_are_the_same_model(shelf, model) -> None:
    other = seqloom.load(shelf / "run" / "model")
    assert other.predict(TEXTS) == model.predict(TEXTS) and other.run == model.run


def test_dev_and_test_are_the_parts_of_the_run(run) -> None:
    model = seqloom.load(run)
    assert [model.evaluate(split=part).rows for part in ("dev", "test", "train")] == [3, 2, 4]


def test_evaluating_dev_opens_neither_train_nor_test(run, shelf) -> None:
    moved = [(shelf / f"{part}.csv", shelf / f"{part}.away") for part in ("train", "test")]
    try:
        for path, away in moved:
            path.rename(away)
        assert seqloom.load(run).evaluate().rows == 3
    finally:
        for path, away in moved:
            away.rename(path)


def test_the_accuracy_is_that_of_the_predictions(run, shelf) -> None:
    model = seqloom.load(run)
    rows = [line.rsplit(",", 1) for line in (shelf / "dev.csv").read_text().splitlines()[1:]]
    said = model.predict([text for text, _ in rows])
    right = [one.to_json()["label"] == label for one, (_, label) in zip(said, rows, strict=True)]
    assert model.evaluate().metrics["accuracy"] == pytest.approx(np.mean(right))


def test_every_look_at_the_test_part_is_written_down(run) -> None:
    model = seqloom.load(run)
    found = model.evaluate(split="test")
    model.evaluate(split="dev")
    seqloom.load(run / "model").evaluate(split="test")
    records = read_lines(run / "test_evaluations.jsonl").records
    assert len(records) == len(model.test_evaluations) == 2
    assert (
        records[0]["metrics"] == pytest.approx(found.metrics) and records[0]["intervals"].keys() == found.metrics.keys()
    )
    assert re.fullmatch("[0-9a-f]{64}", records[0]["model_sha256"]) and records[0]["when"].endswith("+00:00")


def test_a_look_that_cannot_be_written_down_is_not_had(run) -> None:
    (run / "test_evaluations.jsonl").mkdir()
    with pytest.raises(DurableError, match=r"test_evaluations\.jsonl"):
        seqloom.load(run).evaluate(split="test")


def test_without_the_record_the_look_goes_unseen(run, monkeypatch) -> None:
    monkeypatch.setattr(evaluation.TestEvaluations, "record", lambda *_, **__: None)
    seqloom.load(run).evaluate(split="test")
    assert not (run / "test_evaluations.jsonl").exists()


def test_the_test_evaluations_of_a_model_without_a_run_lie_beside_it(run, tmp_path, shelf) -> None:
    alone = shutil.copytree(run / "model", tmp_path / "mine")
    seqloom.load(alone).evaluate(shelf / "test.csv", split="test")
    assert len(read_lines(tmp_path / "mine.test_evaluations.jsonl").records) == 1
    assert seqloom.load(alone).test_evaluations  # and the folder is still whole


def test_the_test_file_by_another_name_is_still_sealed(run, shelf, tmp_path) -> None:
    link = tmp_path / "innocent.csv"
    link.symlink_to(shelf / "test.csv")
    for path in (shelf / "test.csv", link):
        with pytest.raises(ConfigError, match=r'is the test set of this run\. .*split="test"'):
            seqloom.load(run).evaluate(path)


ROWS = [f"{'good' if n % 2 else 'bad'} {n},{'good' if n % 2 else 'bad'}" for n in range(60)]
MARKED = [f"{row},{('train', 'train', 'train', 'dev', 'dev', 'test', 'test')[n % 7]}" for n, row in enumerate(ROWS)]


@pytest.mark.parametrize(
    ("header", "rows", "split"),
    [
        ("text,label", ROWS, RandomSplit()),
        ("text,label", ROWS, RandomSplit(dev_size=0.3, test_size=0.2, split_seed=1)),
        ("text,label,split", MARKED, ColumnSplit(split_column="split")),
    ],
)
def test_a_file_with_test_rows_inside_cannot_be_judged_unseen(header, rows, split, tmp_path) -> None:
    (tmp_path / "all.csv").write_text("\n".join([header, *rows, ""]))
    run = make_run(tmp_path / "run", train=(str(tmp_path / "all.csv"),), split=split)
    model = seqloom.load(run)
    with pytest.raises(
        ConfigError,
        match=r'all\.csv is data of this run, and some of its rows are the test set\. Fix: .* by split="test"',
    ):
        model.evaluate(tmp_path / "all.csv")
    assert not model.test_evaluations
    model.evaluate(tmp_path / "all.csv", split="test")
    assert len(model.test_evaluations) == 1


def test_a_training_file_without_test_rows_may_be_judged(tmp_path) -> None:
    (tmp_path / "all.csv").write_text("\n".join(["text,label", *ROWS, ""]))
    split = RandomSplit(test_size=0.0)
    model = seqloom.load(make_run(tmp_path / "run", train=(str(tmp_path / "all.csv"),), split=split))
    assert model.evaluate(tmp_path / "all.csv").rows == len(ROWS)


def test_a_part_of_a_folder_with_test_rows_is_as_sealed_as_the_folder() -> None:
    for path, other, together in (("/a/b", "/a", True), ("/a", "/a/b", True), ("/a/b", "/a/c", False)):
        assert evaluation._overlap(Path(path), Path(other)) == together


def test_without_the_guard_the_test_file_is_looked_at_unseen(run, shelf, monkeypatch) -> None:
    monkeypatch.setattr(evaluation, "_require_unsealed", lambda *_: None)
    assert seqloom.load(run).evaluate(shelf / "test.csv").rows == 2
    assert not (run / "test_evaluations.jsonl").exists()


def test_a_file_is_judged_on_every_row(run, tmp_path) -> None:
    (tmp_path / "own.csv").write_text(TEST + "film,good\n")
    assert seqloom.load(run).evaluate(tmp_path / "own.csv").rows == 3


def test_labels_that_training_never_saw_count_as_errors(run, tmp_path) -> None:
    (tmp_path / "own.csv").write_text("text,label\ngood,great\nbad,awful\n")
    assert seqloom.load(run).evaluate(tmp_path / "own.csv").metrics["accuracy"] == 0


def test_a_single_label_can_be_judged_though_not_learned(run, tmp_path) -> None:
    (tmp_path / "own.csv").write_text("text,label\ngood,good\n")
    assert seqloom.load(run).evaluate(tmp_path / "own.csv").rows == 1


def test_unseen_labels_are_missed_where_there_are_several(tmp_path) -> None:
    (tmp_path / "train.csv").write_text("text,label\na b,x|y\nb,x\na,y\nb b,x\n")
    (tmp_path / "dev.csv").write_text("text,label\na b,x\n")
    (tmp_path / "own.csv").write_text("text,label\na b,z\nb,z|w\n")
    files = {part: (str(tmp_path / f"{part}.csv"),) for part in ("train", "dev")}
    run = make_run(tmp_path / "run", label_separator="|", **files)
    found = seqloom.load(run).evaluate(tmp_path / "own.csv")
    assert found.metrics["recall"] == found.metrics["accuracy"] == 0


def test_data_of_another_kind_is_refused(run, tmp_path) -> None:
    (tmp_path / "own.csv").write_text("premise,hypothesis,label\na,b,good\n")
    with pytest.raises(ConfigError, match="reads text and predicts label, but the data has pair and label"):
        seqloom.load(run).evaluate(tmp_path / "own.csv")


def test_a_model_without_a_run_needs_data(run, tmp_path) -> None:
    alone = shutil.copytree(run / "model", tmp_path / "mine")
    with pytest.raises(ConfigError, match="a model folder contains no data"):
        seqloom.load(alone).evaluate()


def test_settings_without_data_are_refused(run) -> None:
    with pytest.raises(ConfigError, match="'target' is for reading data, but no data is given"):
        seqloom.load(run).evaluate(target="label")


def test_a_run_without_a_model_says_what_is_missing(run) -> None:
    shutil.rmtree(run / "model")
    with pytest.raises(ConfigError, match="has no model yet"):
        seqloom.load(run)


def test_parts_that_were_drawn_are_the_same_again(tmp_path) -> None:
    rows = [f"{'good' if n % 2 else 'bad'} {n},{'good' if n % 2 else 'bad'}" for n in range(60)]
    (tmp_path / "all.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    run = make_run(tmp_path / "run", train=(str(tmp_path / "all.csv"),))
    model = seqloom.load(run)
    found = {part: model.evaluate(split=part, keep=60) for part in ("dev", "test")}
    assert all(4 <= one.rows <= 8 for one in found.values())
    assert not {one.id for one in found["dev"].examples} & {one.id for one in found["test"].examples}


def test_vectors_of_another_width_are_refused(tmp_path) -> None:
    rows = [{"vectors": [[1.0 * n, 2.0]], "label": "x" if n % 2 else "y"} for n in range(4)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {part: (str(tmp_path / f"{part}.jsonl"),) for part in ("train", "dev")}
    model = seqloom.load(make_run(tmp_path / "run", "gru", **files))
    assert len(model.predict([np.ones((3, 2)), [[1, 2]], torch.ones(1, 2)])) == 3
    with pytest.raises(seqloom.SeqloomError, match="the model reads vectors of size 2, found 3"):
        model.predict([np.ones((3, 3))])


def test_tags_quote_the_words_they_mark(tmp_path) -> None:
    rows = [{"tokens": ["Ada", "went", "home"], "tags": ["B-PER", "O", "O"]}, {"tokens": ["Bo"], "tags": ["B-PER"]}]
    for part in ("train", "dev"):
        (tmp_path / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {part: (str(tmp_path / f"{part}.jsonl"),) for part in ("train", "dev")}
    model = seqloom.load(make_run(tmp_path / "run", "gru", **files))
    said = [one.to_json() for one in model.predict([["Ada", "met", "Bo"], "Bo left"])]
    assert [len(one["tags"]) for one in said] == [3, 2]
    assert all(span["text"] in "Ada met Bo Bo left" for one in said for span in one["entities"])
