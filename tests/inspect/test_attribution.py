"""Attributions are taken at vectors, add up where they say so, and agree with plain code."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from inspection_common import make_paths_differ, subject_of, subject_with, task_on
from seqloom.config.tokenizers import BpeConfig
from seqloom.data.check import load_data
from seqloom.errors import ConfigError, DataError
from seqloom.events import Progress
from seqloom.inspect.attribution import goals as ground
from seqloom.inspect.attribution import gradients, methods, pairs, tables
from seqloom.inspect.attribution.attribution import (
    AttributionView,
    attribute_file,
    attribution,
    merged,
    ngram_contributions,
)
from seqloom.inspect.attribution.goals import chosen_goal, every_goal
from seqloom.inspect.attribution.methods import METHODS
from seqloom.inspect.attribution.pairs import similarity_pairs
from seqloom.inspect.attribution.tables import attribution_table, attributions_compared
from seqloom.inspect.lattice import lattice
from seqloom.inspect.readings import read, scores
from seqloom.inspect.subject import Subject
from seqloom.nn.models import SequenceModel
from seqloom.nn.ops.attention import weights
from seqloom.nn.taps import recording
from seqloom.nn.types import Padded
from seqloom.tasks.task import HeadSettings, ModelSpec, task_of
from seqloom.text.special_tokens import UNKNOWN

GIVEN: dict[str, Any] = {
    "classify": "the cat ran to a mat",
    "tag": ["the", "big", "dog"],
    "lm": "the cat sat on",
    "translate": "a big cat",
    "embed": ("the cat", "a dog ran to"),
}
SOME = [("classify", "lstm"), ("lm", "gpt"), ("translate", "seq2seq-dot"), ("embed", "bag")]

ATTENDING = [
    ("classify", "encoder"),
    ("lm", "gpt"),
    ("translate", "transformer"),
    ("translate", "seq2seq-dot"),
    ("embed", "window"),
]


def values_of(view: AttributionView) -> np.ndarray:
    return np.concatenate([part.values for part in view.parts])


def complete(subject: Subject, given: Any) -> None:
    view = attribution(subject, read(subject, given))
    assert view.error is not None and view.error < 0.01
    assert view.total == pytest.approx(view.rise, rel=0.01)


@pytest.mark.parametrize(("name", "recipe"), SOME)
def test_integrated_gradients_add_up_to_the_difference_of_the_scores(tmp_path: Path, name: str, recipe: str) -> None:
    complete(subject_of(task_on(tmp_path, name), recipe), GIVEN[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", list(GIVEN))
def test_integrated_gradients_add_up_in_every_family(tmp_path: Path, name: str) -> None:
    task = task_on(tmp_path, name)
    for recipe in task.recipes():
        complete(subject_of(task, recipe), GIVEN[name])


@pytest.mark.slow
@pytest.mark.parametrize("baseline", ["zero", "mean", "unknown", "mask", "pad"])
def test_integrated_gradients_add_up_from_every_baseline(tmp_path: Path, baseline: str) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "gru")
    view = attribution(subject, read(subject, GIVEN["classify"]), baseline=baseline)
    assert view.error is not None and view.error < 0.01
    assert f"baseline ({baseline})" in view.sentences()[0]


def linear_bag(folder: Path) -> Subject:
    """The mean of the vectors, and a linear head: nothing else."""
    task = task_on(folder, "classify")
    config = task.model("mlp", "nano", HeadSettings())
    return subject_with(task, msgspec.structs.replace(config, hidden=()))


@pytest.mark.parametrize("method", ["gradient_x_input", "integrated_gradients", "occlusion"])
def test_three_methods_equal_the_closed_form_of_a_linear_bag(tmp_path: Path, method: str) -> None:
    """s = b + 1/T sum_t w . e(x_t): the part of a token is w . e(x_t) / T."""
    subject = linear_bag(tmp_path)
    reading = read(subject, GIVEN["classify"])
    view = attribution(subject, reading, method=method, answer="yes")
    model = subject.model
    assert isinstance(model, SequenceModel)
    vectors = model.encoder.input.table[reading.inputs.values[0]].detach()
    weight = model.head.linear.weight[subject.column("yes")].detach()  # type: ignore[union-attr]
    np.testing.assert_allclose(values_of(view), (vectors @ weight / len(vectors)).numpy(), atol=1e-6)
    assert view.error is not None and view.error < 1e-4


@pytest.mark.slow
def test_a_contrast_is_the_difference_of_the_attributions_of_its_two_answers(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "transformer")
    reading = read(subject, GIVEN["classify"])
    yes, no = (values_of(attribution(subject, reading, answer=each, steps=8)) for each in ("yes", "no"))
    both = values_of(attribution(subject, reading, answer="yes", against="no", steps=8))
    np.testing.assert_allclose(both, yes - no, atol=1e-5)


def test_what_stands_in_every_input_is_not_moved_and_has_no_value(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "lm"), "gru")
    reading = read(subject, "the cat sat")
    for method in ("integrated_gradients", "gradient_x_input", "occlusion"):
        values = attribution(subject, reading, method=method).parts[0].values
        assert np.isnan(values).tolist() == [True, False, False, False], f"BEGIN alone, by {method}"


def test_what_was_said_is_explained_and_not_what_the_model_would_say(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), "seq2seq")
    reading = read(subject, "the cat sat", target="le chat assis")
    table = attribution_table(subject, reading, method="gradient_x_input")
    assert table.rows == ("le", "chat", "assis", "<end>")
    found = scores(subject, reading.inputs).detach()[0]
    assert reading.targets is not None
    assert table.score == pytest.approx([float(found[row, said]) for row, said in enumerate(reading.targets)])
    running = subject_of(task_on(tmp_path, "lm"), "gru")
    after = attribution(running, read(running, "the cat sat"), method="gradient", at=1)
    assert after.answer == "“cat” after “the” (1)"


@torch.no_grad()
def test_leave_one_out_is_the_score_less_that_of_the_shorter_text(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "lstm")
    text = "the cat ran to"
    view = attribution(subject, read(subject, text), method="leave_one_out", answer="no")
    words = text.split()
    shorter = [" ".join(words[:at] + words[at + 1 :]) for at in range(len(words))]
    whole, *rest = (scores(subject, read(subject, one).inputs)[0, 0, subject.column("no")] for one in [text, *shorter])
    np.testing.assert_allclose(values_of(view), [float(whole - one) for one in rest], atol=1e-6)


@torch.no_grad()
def test_occlusion_by_a_token_is_the_score_less_that_with_the_token_in_its_place(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "tag"), "transformer")
    reading = read(subject, ["the", "big", "dog"])
    view = attribution(subject, reading, method="occlusion", baseline="unknown", at="big", answer="B-X")
    column, found = subject.column("B-X"), []
    for at in range(3):
        tokens = reading.inputs.pieces.values.clone()
        tokens[0, at] = UNKNOWN
        found.append(float(scores(subject, reading.inputs._replace(pieces=Padded.of(tokens)))[0, 1, column]))
    whole = float(scores(subject, reading.inputs)[0, 1, column])
    np.testing.assert_allclose(values_of(view), [whole - one for one in found], atol=1e-5)


@torch.no_grad()
def test_rollout_equals_the_product_of_whole_matrices(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "tag"), "transformer")
    reading = read(subject, ["the", "big", "dog", "ran"])
    with recording(subject.model, "*.mixer.weights") as heard:
        scores(subject, reading.inputs)
    product = torch.eye(4)
    for (request,) in heard.values():
        product = (0.5 * torch.eye(4) + 0.5 * weights(request)[0].mean(dim=0)) @ product
    view = attribution(subject, reading, method="rollout", at=2)
    np.testing.assert_allclose(values_of(view), product[2].numpy(), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "recipe"), ATTENDING)
def test_rollout_shares_out_one(tmp_path: Path, name: str, recipe: str) -> None:
    subject = subject_of(task_on(tmp_path, name), recipe)
    view = attribution(subject, read(subject, GIVEN[name]), method="rollout")
    found = values_of(view)
    assert (found >= 0).all() and found.sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
def test_a_row_of_a_table_is_the_attribution_of_its_answer(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), "transformer")
    reading = read(subject, "the cat sat", target="le chat assis")
    table = attribution_table(subject, reading, method="gradient_x_input")
    assert [part.name for part in table.parts] == ["source", "target"]
    assert table.parts[1].columns == ("<begin>", "le", "chat", "assis")
    for row in range(4):
        alone = attribution(subject, reading, method="gradient_x_input", at=row)
        np.testing.assert_allclose(table.parts[0].values[row], alone.parts[0].values, atol=1e-6)
        np.testing.assert_allclose(
            table.parts[1].values[row, 1 : row + 1], alone.parts[1].values[1 : row + 1], atol=1e-6
        )
        assert np.isnan(table.parts[1].values[row, row + 1 :]).all(), "what comes later has no value"
        np.testing.assert_allclose(np.nan_to_num(alone.parts[1].values[row + 1 :]), 0, atol=1e-7)


@pytest.mark.slow
def test_rows_of_a_table_add_up_each_to_its_own_score(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), "seq2seq-additive")
    table = attribution_table(subject, read(subject, "the cat sat", target="le chat assis"))
    assert table.error is not None and max(table.error) < 0.01
    assert attribution_table(subject, read(subject, "the cat", target="le chat"), rows=(1, 2)).first_row == 1


@pytest.mark.slow
def test_words_get_what_their_pieces_get_together(tmp_path: Path) -> None:
    task = task_of(ModelSpec.of(_subword_data(tmp_path)))
    subject = subject_of(task, "gru")
    reading = read(subject, "unhappiness matters")
    pieces = attribution(subject, reading, steps=8).parts[0]
    words = attribution(subject, reading, steps=8, words=True).parts[0]
    assert len(pieces.tokens) > 4 and "unhappiness" in words.texts and "matters" in words.texts
    assert words.values.sum() == pytest.approx(pieces.values.sum())
    _, starts = merged(pieces.tokens)  # a space belongs to the word after it
    assert words.values == pytest.approx(np.add.reduceat(pieces.values, starts))


def _subword_data(folder: Path) -> Any:
    path = folder / "a.csv"
    path.write_text("text,label\n" + "the cat sat,yes\na dog ran,no\n" * 12)
    return load_data(path, tokenizer=BpeConfig(vocab_size=300))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["integrated_gradients", "occlusion"])
def test_pairs_of_tokens_are_transposed_with_the_texts(tmp_path: Path, method: str) -> None:
    subject = subject_of(task_on(tmp_path, "embed"), "gru")
    there = similarity_pairs(subject, read(subject, ("the cat sat", "a dog")), method=method)
    back = similarity_pairs(subject, read(subject, ("a dog", "the cat sat")), method=method)
    assert there.values.shape == (3, 2)
    np.testing.assert_allclose(there.values, back.values.T, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["bag", "gru", "transformer"])
def test_pairs_of_tokens_add_up(tmp_path: Path, recipe: str) -> None:
    subject = subject_of(task_on(tmp_path, "embed"), recipe)
    reading = read(subject, ("the cat sat", "a dog ran"))
    view = similarity_pairs(subject, reading)
    assert view.error is not None and view.error < 0.01
    assert view.similarity == pytest.approx(float(scores(subject, reading.inputs).detach()), abs=1e-5)


def test_ngrams_of_a_linear_model_and_its_bias_are_the_score(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "linear")
    with torch.no_grad():
        subject.model.encoder.input.table.normal_(generator=torch.Generator().manual_seed(0))  # type: ignore[union-attr,operator]
    reading = read(subject, "the cat sat on")
    view = ngram_contributions(subject, reading, answer="yes")
    assert view.bias + sum(each.value for each in view.ngrams) == pytest.approx(view.score, abs=1e-5)
    assert {each.text for each in view.ngrams} >= {"the", "cat", "the cat", "sat on"}
    by_token = attribution(subject, reading, method="gradient_x_input", answer="yes").parts[0].values
    ending = [sum(each.value for each in view.ngrams if each.stop == at + 1) for at in range(4)]
    np.testing.assert_allclose(by_token, ending, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["cnn", "lstm", "transformer"])
def test_steps_of_vectors_are_attributed_as_they_are(tmp_path: Path, recipe: str) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"vectors": [[0.5, 1.0], [1.0, 0.0], [2.0, 1.0]], "label": label} for label in ("yes", "no")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows * 12))
    subject = subject_of(task_of(ModelSpec.of(load_data(path))), recipe)
    reading = read(subject, np.array([[0.5, 1.0], [1.0, 0.0], [2.0, 1.0], [0.1, 0.2]], dtype=np.float32))
    view = attribution(subject, reading)
    assert view.error is not None and view.error < 0.01
    assert view.parts[0].texts == ("0", "1", "2", "3")
    with pytest.raises(ConfigError, match="needs tokens"):
        attribution(subject, reading, baseline="unknown")


@pytest.mark.slow
@pytest.mark.parametrize("method", ["integrated_gradients", "occlusion", "gradient"])
def test_pixels_of_pictures_are_attributed_as_they_are(tmp_path: Path, method: str) -> None:
    draws = np.random.default_rng(0)
    pictures = draws.integers(0, 255, size=(24, 8, 8, 3)).astype(np.uint8)
    np.savez(tmp_path / "a.npz", pictures=pictures, labels=np.array(["yes", "no"] * 12))
    subject = subject_of(task_of(ModelSpec.of(load_data(tmp_path / "a.npz"))))
    view = attribution(subject, read(subject, pictures[0]), method=method)
    assert view.parts[0].shape == (8, 8) and not np.isnan(view.parts[0].values).any()
    assert method != "integrated_gradients" or (view.error is not None and view.error < 0.01)
    assert [figure.kind for figure in view.figures()] == ["heat_map"]


@pytest.mark.slow
def test_nothing_of_the_model_is_changed(tmp_path: Path) -> None:
    task = task_on(tmp_path, "classify")
    subject = subject_with(task, msgspec.structs.replace(task.model("bilstm", "nano", HeadSettings()), dropout=0.5))
    reading = read(subject, GIVEN["classify"])
    before, settled = scores(subject, reading.inputs).detach(), attribution(subject, reading, steps=4)
    subject.model.train()
    attributions_compared(subject, reading)
    np.testing.assert_array_equal(values_of(attribution(subject, reading, steps=4)), values_of(settled))
    assert all(module.training for module in subject.model.modules())
    assert all(weight.grad is None for weight in subject.model.parameters())
    assert not any(module._forward_hooks for module in subject.model.modules())
    subject.model.eval()
    assert torch.equal(before, scores(subject, reading.inputs).detach())


@pytest.mark.slow
def test_methods_agree_wholly_with_themselves_and_missing_ones_are_named(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "gru")
    view = attributions_compared(subject, read(subject, GIVEN["classify"]))
    assert [each.method for each in view.views] == [name for name in METHODS if name != "rollout"]
    assert view.left_out == ("attention rollout",)
    np.testing.assert_allclose(np.diag(view.tau), 1)
    np.testing.assert_allclose(view.tau, view.tau.T)
    np.testing.assert_allclose(np.diag(view.overlap), 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "integrate"}, "no attribution method 'integrate'"),
        ({"baseline": "nought"}, "no baseline 'nought'"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": 8, "method": "gradient"}, "steps is only for integrated"),
        ({"method": "rollout"}, "no attention"),
        ({"method": "leave_one_out"}, "no token can be deleted: each prediction belongs to a token"),
        ({"answer": "B-Y"}, "no answer 'B-Y'"),
        ({"answer": 99}, "no answer 99"),
        ({"answer": "B-X", "against": "B-X"}, "answer and against are both"),
        ({"at": "cow"}, "no token is 'cow'"),
        ({"at": 7}, "no token 7"),
    ],
)
def test_what_there_is_not_is_refused_by_name(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    subject = subject_of(task_on(tmp_path, "tag"), "bilstm")
    with pytest.raises((ConfigError, DataError), match=said):
        attribution(subject, read(subject, GIVEN["tag"]), **options)


def test_views_for_other_models_are_refused(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "embed"), "bag")
    with pytest.raises(DataError, match="not one answer"):
        attribution(subject, read(subject, "the cat"))
    with pytest.raises(DataError, match="two texts"):
        similarity_pairs(subject, read(subject, "the cat"))
    with pytest.raises(ConfigError, match="no method 'rollout' for pairs"):
        similarity_pairs(subject, read(subject, GIVEN["embed"]), method="rollout")
    with pytest.raises(ConfigError, match="only a linear model"):
        ngram_contributions(subject, read(subject, GIVEN["embed"]))
    with pytest.raises(ConfigError, match="not inside the 1 predictions"):
        attribution_table(subject, read(subject, GIVEN["embed"]), rows=(0, 2))


@pytest.mark.slow
def test_a_file_has_a_line_for_each_input(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "cnn")
    texts, done = ["the cat sat", "a <b>dog</b> ran", "שלום cat"], list[Progress]()
    assert attribute_file(subject, iter(texts), tmp_path / "out.jsonl", total=3, show=done.append) == 3
    assert list(map(str, done)) == ["1 of 3 rows", "2 of 3 rows", "3 of 3 rows"]
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    for number, (line, text) in enumerate(zip(lines, texts, strict=True)):
        assert line["row"] == number and line["error"] < 0.01
        assert line["label"] in subject.task.spec.schema.labels and line["answer"] == f"“{line['label']}”"
        side = line["sides"][0]
        assert [text[start:stop] for start, stop in side["offsets"]] == side["tokens"]
        assert sum(side["scores"]) == pytest.approx(line["score"] - line["baseline_scores"][0], rel=0.01)


def test_a_file_that_fails_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "bag")
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    with pytest.raises(DataError, match="row 1: "):
        attribute_file(subject, ["the cat", 17], out)
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir() if "tmp" in path.name] == []


@pytest.mark.parametrize("kind", ["crf", "class"])
def test_the_tags_that_are_explained_are_those_of_the_best_path(tmp_path: Path, kind: str) -> None:
    subject = subject_of(task_on(tmp_path, "tag"), "bilstm", kind=kind)
    make_paths_differ(subject)
    reading = read(subject, ["the", "big", "dog", "sat"])
    best = lattice(subject, reading).paths[0].tags
    assert best != tuple(scores(subject, reading.inputs)[0].argmax(dim=-1).tolist()), "else nothing is tried"
    assert tuple(answer.column for answer in chosen_goal(subject, reading).answers) == best
    assert tuple(goal.answers[0].column for goal in every_goal(subject, reading, range(4))) == best
    assert chosen_goal(subject, reading, at="big").answers[0].column == best[1]


def test_slopes_of_many_answers_are_held_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = subject_of(task_on(tmp_path, "tag"), "rnn")
    stacked: list[int] = []
    stack = torch.stack
    monkeypatch.setattr(
        gradients.torch,
        "stack",
        lambda each, *rest, **named: stacked.append(each[0].dim()) or stack(each, *rest, **named),
    )
    attribution_table(subject, read(subject, GIVEN["tag"]), steps=2)
    assert max(stacked) == 2, "[N,E] of each answer, never [N,E,D]"


def test_a_table_that_would_take_many_minutes_is_refused_with_the_rows_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_of(task_on(tmp_path, "tag"), "rnn")
    reading = read(subject, ["the", "big", "dog", "sat"])
    monkeypatch.setattr(gradients, "MOST_BACK", 2 * 4 * gradients.FEWEST_STEPS)
    with pytest.raises(ConfigError, match=r"4 answers x 4 tokens.*at most 2 answers"):
        attribution_table(subject, reading)
    assert len(attribution_table(subject, reading, rows=(1, 3)).rows) == 2
    assert len(attribution_table(subject, reading, method="gradient_x_input").rows) == 4


@pytest.mark.slow
def test_pairs_are_the_same_in_passes_of_any_size_and_long_texts_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_of(task_on(tmp_path, "embed"), "bag")
    reading = read(subject, ("the cat sat", "a dog ran"))
    whole = [
        similarity_pairs(subject, reading, method=method).values for method in ("integrated_gradients", "occlusion")
    ]
    rows: list[int] = []
    units = pairs._units
    monkeypatch.setattr(ground, "MOST_ELEMENTS", 6)
    monkeypatch.setattr(
        pairs, "_units", lambda given, place, values: rows.append(len(values)) or units(given, place, values)
    )
    for method, expected in zip(("integrated_gradients", "occlusion"), whole, strict=True):
        np.testing.assert_allclose(similarity_pairs(subject, reading, method=method).values, expected, atol=1e-6)
    assert sorted(rows)[len(rows) // 2] == 1, "one token at a time, not all of them"
    long = read(subject, ("cat " * 300, "a dog"))
    with pytest.raises(DataError, match=r"more than 256 tokens.*occlusion"):
        similarity_pairs(subject, long)


def test_one_word_cannot_be_left_out_and_the_reason_is_that_one_alone(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "lstm")
    with pytest.raises(ConfigError, match="the input has only one token") as refused:
        attribution(subject, read(subject, "cat"), method="leave_one_out")
    assert "answer" not in refused.value.problem


def test_all_elements_at_once_cannot_be_left_out(tmp_path: Path) -> None:
    """A word of several pieces without a frame: a row would be empty."""
    subject = subject_of(task_on(tmp_path, "classify"), "lstm")
    found = ground.ground_of(subject, read(subject, "the cat"))
    goals = [chosen_goal(subject, found.reading)]
    assert np.isfinite(methods.leave_one_out(found, goals, methods.groups_of(found, words=False)).values[0]).all()
    with pytest.raises(ConfigError, match="only one token"):
        methods.leave_one_out(found, goals, methods.Groups(([np.arange(2)],), 2))


def test_a_table_of_many_answers_has_the_first_of_them_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = subject_of(task_on(tmp_path, "tag"), "bilstm")
    reading = read(subject, ["the", "big", "dog", "sat"])
    monkeypatch.setattr(tables, "USUAL_CELLS", 8)
    few, every = attribution_table(subject, reading), attribution_table(subject, reading, rows=(0, 4))
    assert (len(few.rows), len(every.rows)) == (2, 4)
    np.testing.assert_allclose(few.parts[0].values, every.parts[0].values[:2], atol=1e-3)
    assert any("Predictions 0 to 1 of 4" in sentence for sentence in few.sentences())
    assert not any("of 4: rows=" in sentence for sentence in every.sentences())
    assert len(attribution_table(subject, reading, method="gradient").rows) == 4


def test_steps_stand_where_the_way_bends_and_the_sums_are_those_of_many_steps() -> None:
    """A rise that lies in the first thousandth of the way, as behind a normalization, beside one that is straight."""

    def value(shares: Any) -> np.ndarray:
        u = np.asarray(shares, dtype=float)[:, None]
        return np.concatenate([u / np.sqrt(u**2 + 1e-7), 3 * u], axis=1)

    def slope(shares: np.ndarray) -> np.ndarray:
        bent = 1e-7 / (shares**2 + 1e-7) ** 1.5
        return np.stack([bent, np.full_like(shares, 3.0)], axis=1)[:, None]

    way = gradients.AttributionPath(slope, value, lambda missing: (np.abs(missing) / 0.005).max(axis=1))
    found, steps = gradients.completed(way, 1024)
    np.testing.assert_allclose(found[0], value([1.0])[0], atol=0.005)
    assert steps < 60 and abs(gradients.told(way, 60)[0, 0] - 1) > 0.005  # as many, but not where it bends
    known = {share: value([share])[0] for share in gradients.SHARES}
    kept = gradients.edges(known, 99)
    assert kept[0] == 0 and kept[-1] == 1 and kept[1] < 0.001 and kept == sorted(kept)
    assert gradients.edges({share: each[1:] for share, each in known.items()}, 99) == [
        0,
        1,
    ]  # a straight way is one part
    assert len(gradients.edges(known, 1)) == 2
