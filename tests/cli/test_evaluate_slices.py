"""`seqloom evaluate --by` and `--errors`: by any column, the worst first; labels that training never saw are said."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

import seqloom
from bundle_common import make_reviews, make_run
from seqloom.cli import app
from seqloom.config.data import RandomSplit
from seqloom.errors import ConfigError
from seqloom.inference.evaluation import OWN
from seqloom.inference.model import LoadedModel
from seqloom.tasks.evaluation import Unseen
from seqloom.tasks.tables import unseen_text

ROWS = [
    ("good film", "good", "web", 3),
    ("a bad film", "bad", "web", 1),
    ("bad", "bad", "print", 2),
    ("good good a film", "good", "print", 5),
    ("a film", "awful", "web", 4),
    ('said "good", twice', "good", "", 6),
]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("reviews")
    make_run(place / "run", **make_reviews(place))
    with (place / "more.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "text", "label", "source", "stars")])
        csv.writer(file).writerows((f"r{number}", *row) for number, row in enumerate(ROWS))
    return place


def evaluate(*arguments: object) -> Result:
    done = CliRunner().invoke(app, ["evaluate", *map(str, arguments), "--device", "cpu"], env={"COLUMNS": "200"})
    if done.exception is not None:
        raise done.exception
    return done


def test_each_value_has_its_rows_metrics_and_intervals(shelf: Path) -> None:
    found = json.loads(evaluate(shelf / "run", shelf / "more.csv", "--by", "source", "--by", "stars", "--json").stdout)
    sources = found["slices"]["source"]
    assert {name: part["rows"] for name, part in sources.items()} == {"web": 3, "print": 2, "(missing)": 1}
    assert list(found["slices"]["stars"]) == ["1", "2", "3", "4", "5", "6"]
    assert sources["web"].keys() == {"rows", "metrics", "intervals"}
    right = sum(part["rows"] * part["metrics"]["accuracy"] for part in sources.values())
    assert right == pytest.approx(found["rows"] * found["metrics"]["accuracy"])
    low, high = sources["web"]["intervals"]["accuracy"]
    assert low <= sources["web"]["metrics"]["accuracy"] <= high


def test_the_table_of_slices_stands_under_the_metrics(shelf: Path) -> None:
    shown = evaluate(shelf / "run", shelf / "more.csv", "--by", "source").stdout
    heads, first = (line.split() for line in shown[shown.index("by source") :].split("\n")[1:3])
    assert heads == ["rows", "accuracy", "95", "%", "interval"] and first[:2] == ["web", "3"]


def test_one_row_has_no_interval_in_the_table_nor_in_json(shelf: Path) -> None:
    asked = (shelf / "run", shelf / "more.csv", "--by", "stars")
    found = json.loads(evaluate(*asked, "--json").stdout)["slices"]["stars"]["3"]
    assert found["rows"] == 1 and set(found["intervals"].values()) == {None}
    assert evaluate(*asked).stdout.count("no interval: there is only one row") == len(ROWS)


def test_a_slice_without_labels_has_no_f1(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,labels,kind\na,x|y,some\nb,y,some\nc,,none\nd,,none\n")
    files = {
        "train": (str(tmp_path / "train.csv"),),
        "split": RandomSplit(dev_size=0.0, test_size=0.0),
        "label_separator": "|",
    }
    run = make_run(tmp_path / "run", "linear", target=("labels",), **files)
    asked = (run, tmp_path / "train.csv", "--target", "labels", "--label-separator", "|", "--by", "kind")
    found = json.loads(evaluate(*asked, "--json").stdout)["slices"]["kind"]
    assert found["none"]["undefined"]["f1"] == "no labels" and "undefined" not in found["some"]
    assert (found["none"]["metrics"]["f1"], found["none"]["intervals"]["f1"]) == (None, None)
    assert ["none", "2", "-", "no", "labels"] in [line.split() for line in evaluate(*asked).stdout.split("\n")]


def test_a_column_of_the_runs_own_part_can_be_named_too(shelf: Path) -> None:
    found = seqloom.load(shelf / "run").evaluate(by="label").slices
    assert {(one.value, one.evaluation.rows) for one in found} == {("good", 2), ("bad", 1)}


KINDS = {
    "text": ("bag", lambda size: {"text": "a " * size, "label": "ab"[size % 2]}),
    "pair": ("bag", lambda size: {"text1": "a " * size, "text2": "b", "label": "ab"[size % 2]}),
    "words": ("bilstm", lambda size: {"tokens": ["a"] * size, "tags": ["O", "B-X"] * (size // 2) + ["O"] * (size % 2)}),
    "vectors": ("gru", lambda size: {"vectors": [[1.0, size / 2]] * size, "score": size / 3}),
    "lm": ("lstm", lambda size: {"text": "a " * size}),
    "translate": ("seq2seq-dot", lambda size: {"source": "a " * size, "target": "b " * size}),
}


@pytest.fixture(params=KINDS)
def any_kind(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A run on nine examples, the n-th one n long."""
    recipe, made = KINDS[request.param]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(made(size)) + "\n" for size in range(1, 10)))
    task = {"task": "lm"} if request.param == "lm" else {}
    files = {part: (str(tmp_path / "a.jsonl"),) for part in ("train",)}
    return make_run(tmp_path / "run", recipe, split=RandomSplit(dev_size=0.0, test_size=0.0), **task, **files)


def test_every_kind_of_input_has_a_length_and_an_error_file(any_kind: Path, tmp_path: Path) -> None:
    model = seqloom.load(any_kind)
    found = model.evaluate(split="train", by=["length"], errors=tmp_path / "worst.csv")
    assert sum(one.evaluation.rows for one in found.slices) == found.rows
    lengths = [float(one.value.partition(" to ")[0]) for one in found.slices]
    assert lengths == sorted(lengths) and len(lengths) == 5
    assert sorted(int(line["line"]) for line in lines_of(tmp_path / "worst.csv")) == list(range(1, 10))


def test_arrays_have_slices_by_a_further_array(tmp_path: Path) -> None:
    arrays = {"x": np.arange(16.0).reshape(4, 2, 2), "y": [0, 1, 0, 1], "group": ["a", "b", "b", "b"]}
    np.savez(tmp_path / "a.npz", **{name: np.asarray(array) for name, array in arrays.items()})
    run = make_run(
        tmp_path / "run", "gru", train=(str(tmp_path / "a.npz"),), split=RandomSplit(dev_size=0.0, test_size=0.0)
    )
    found = seqloom.load(run).evaluate(tmp_path / "a.npz", by="group").slices
    assert [(one.value, one.evaluation.rows) for one in found] == [("b", 3), ("a", 1)]


def test_a_column_that_is_not_there_is_refused_before_any_work(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoadedModel, "_batches", lambda *_: pytest.fail("it was judged"))
    with pytest.raises(ConfigError, match=r"--by sourse: the data has no such column\. Did you mean 'source'\?"):
        evaluate(shelf / "run", shelf / "more.csv", "--by", "sourse")


# --- the worst answers -----------------------------------------------------------------------------------------------


def lines_of(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("ending", [".jsonl", ".csv"])
def test_the_error_file_has_the_whole_input_and_its_place_the_worst_first(
    shelf: Path, tmp_path: Path, ending: str
) -> None:
    done = evaluate(shelf / "run", shelf / "more.csv", "--errors", tmp_path / f"worst{ending}")
    lines = lines_of(tmp_path / f"worst{ending}")
    assert "6 predictions, 3 of them correct, the worst first, written to" in done.stderr
    assert [{name: str(line[name]) for name in ("id", "input", "line")} for line in sorted(lines, key=_id)] == [
        {"id": f"r{number}", "input": row[0], "line": str(number + 2)} for number, row in enumerate(ROWS)
    ]
    wrong = [str(line["correct"]).lower() == "false" for line in lines]
    assert wrong == sorted(wrong, reverse=True)
    assert all((line["predicted"] == line["expected"]) != no for line, no in zip(lines, wrong, strict=True))
    losses = [
        float(line["loss"]) for line, no in zip(lines, wrong, strict=True) if no and line["loss"] not in ("", None)
    ]
    assert losses == sorted(losses, reverse=True)


def test_an_error_names_the_label_that_training_never_saw_and_the_probability_of_what_was_said(
    shelf: Path, tmp_path: Path
) -> None:
    evaluate(shelf / "run", shelf / "more.csv", "--errors", tmp_path / "worst.jsonl")
    (line,) = [line for line in lines_of(tmp_path / "worst.jsonl") if line["input"] == "a film"]
    assert line["expected"] == "awful" and line["loss"] is None
    (answer,) = seqloom.load(shelf / "run").predict(["a film"])
    assert line["probability"] == float(f"{answer.to_json()['scores'][line['predicted']]:.6g}")
    assert line.keys() == {*OWN, "probability"}


def test_a_row_that_the_data_does_not_name_has_a_place_and_no_id(shelf: Path, tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text("text,label\ngood film,bad\na bad film,good\n")
    evaluate(shelf / "run", tmp_path / "plain.csv", "--errors", tmp_path / "worst.jsonl")
    lines = lines_of(tmp_path / "worst.jsonl")
    assert sorted((line["id"], line["line"]) for line in lines) == [(None, 2), (None, 3)]


def test_where_no_answer_is_wrong_none_is_called_the_worst(shelf: Path, tmp_path: Path) -> None:
    (answer,) = seqloom.load(shelf / "run").predict(["a film"])
    (tmp_path / "right.csv").write_text(f"text,label\na film,{answer.to_json()['label']}\n")
    done = evaluate(shelf / "run", tmp_path / "right.csv", "--errors", tmp_path / "worst.csv")
    assert "\nno prediction is wrong: 1 correct one, the least likely first, written to" in done.stderr


def _id(line: dict[str, Any]) -> str:
    return str(line["id"])


def test_there_are_so_many_and_no_more(shelf: Path, tmp_path: Path) -> None:
    evaluate(shelf / "run", shelf / "more.csv", "--errors", tmp_path / "worst.jsonl", "--max-errors", "2")
    assert len(lines_of(tmp_path / "worst.jsonl")) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--errors", "worst.txt"),
            r"--errors worst\.txt: unknown file extension\. Fix: name it worst\.jsonl or \.csv",
        ),
        (("--errors", "no/worst.csv"), r"--errors worst\.csv: the folder no does not exist\. "),
        (("--errors", "a.csv", "--max-errors", "0"), r"--max-errors 0\. Fix: use at least 1"),
        (("--max-errors", "3"), r"--max-errors needs --errors\. Fix: add --errors FILE"),
    ],
)
def test_an_error_file_that_cannot_be_is_refused_before_any_work(
    shelf: Path, options: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoadedModel, "_batches", lambda *_: pytest.fail("it was judged"))
    with pytest.raises(ConfigError, match=said):
        evaluate(shelf / "run", *options)


def test_vectors_are_shown_and_no_number_is_called_right(tmp_path: Path) -> None:
    rows = [{"vectors": [[0.5, 1.0], [2.0, float(number)]], "score": number / 2} for number in range(8)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {part: (str(tmp_path / "a.jsonl"),) for part in ("train",)}
    run = make_run(tmp_path / "run", "gru", split=RandomSplit(dev_size=0.0, test_size=0.0), **files)
    seqloom.load(run).evaluate(split="train", errors=tmp_path / "worst.jsonl", max_errors=5)
    lines = lines_of(tmp_path / "worst.jsonl")
    assert len(lines) == 5 and {line["correct"] for line in lines} == {None}
    assert all(line["input"].startswith("(0.5, 1); (2, ") for line in lines)
    assert [line["mse"] for line in lines] == sorted((line["mse"] for line in lines), reverse=True)


# --- labels that training never saw ----------------------------------------------------------------------------------


def test_labels_that_training_never_saw_are_counted_and_named(shelf: Path) -> None:
    said = "1 example has a label that the training set does not have, and counts as an error: awful (1)"
    assert said in evaluate(shelf / "run", shelf / "more.csv").stdout
    found = json.loads(evaluate(shelf / "run", shelf / "more.csv", "--json").stdout)
    assert found["unseen"] == {"rows": 1, "labels": {"awful": 1}}


def test_several_of_them_are_told_as_several() -> None:
    said = unseen_text(Unseen(2, (("odd", 1), ("strange", 1))))
    assert (
        said == "2 examples have labels that the training set does not have, and count as errors: odd (1), strange (1)"
    )


def test_nothing_is_said_where_all_labels_are_known(shelf: Path) -> None:
    assert "never saw" not in evaluate(shelf / "run").stdout
    assert "unseen" not in json.loads(evaluate(shelf / "run", "--json").stdout)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["evaluate", "predict"])
def test_deterministic_refuses_kernels_while_it_works_and_leaves_torch_as_it_was(
    shelf: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    seen = []
    known = LoadedModel._batches if verb == "evaluate" else LoadedModel._answer
    monkeypatch.setattr(
        LoadedModel,
        known.__name__,
        lambda *given: (seen.append(torch.are_deterministic_algorithms_enabled()), known(*given))[1],
    )
    for options in ((), ("--deterministic",)):
        more = (shelf / "more.csv",)
        done = CliRunner().invoke(app, [verb, *map(str, (shelf / "run", *more)), "--device", "cpu", *options])
        assert done.exit_code == 0, done.output
    assert seen == [False, True] and not torch.are_deterministic_algorithms_enabled()
