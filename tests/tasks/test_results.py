"""Results in Python and notebooks: short when printed, complete when asked, and as tables of pandas."""

import copy
import pkgutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix

import seqloom
from pages_common import Elements
from seqloom.data.kinds.words import Words
from seqloom.errors import ConfigError, MissingExtraError
from seqloom.experiments.auto.results import Leaderboard, LeaderboardRow
from seqloom.experiments.compare.results import Comparison, Cost, Interval, ModelResult, Spread
from seqloom.experiments.tune.results import Results, TrialResult
from seqloom.inference.predictions import Predictions
from seqloom.metrics.classification import NO_SPAN
from seqloom.tasks import evaluation as evaluations
from seqloom.tasks.classify import LabelPrediction
from seqloom.tasks.embed import VectorPrediction
from seqloom.tasks.evaluation import ConfusionCount, Evaluation, evaluate
from seqloom.tasks.masked import FilledPrediction, MaskCandidate
from seqloom.tasks.tag import TagsPrediction
from seqloom.tasks.task import TASKS, Prediction, TextPrediction, brief
from seqloom.training.run import TrainedRun
from training_common import run, write_data

Find = Callable[[str], Any]
HOSTILE = "</style><script>alert(1)</script>"


class Frame:
    """What a test sees of a DataFrame: its arguments, which must be what makes a column of each name.

    pandas takes a list of dicts, or a dict of columns as long as the index. In rows of other types, such as tuples,
    the columns would be called 0, 1, ...
    """

    def __init__(self, rows: Any, index: Any = None) -> None:
        if isinstance(rows, dict):
            names = [*rows]
            assert {len(column) for column in rows.values()} == {len(index)}
        else:
            names = [name for row in rows for name in row]
            assert type(rows) is list and {*map(type, rows)} <= {dict} and index is None
        assert {*map(type, names)} <= {str}
        self.rows, self.index = rows, index


@pytest.fixture
def pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("pandas")
    module.__spec__ = ModuleSpec("pandas", None)  # torch looks for it
    module.DataFrame = Frame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", module)


# Evaluations


def test_an_evaluation_prints_as_one_line_with_the_main_metric_and_its_interval_first(small: Find) -> None:
    found = small("csv")
    evaluation = evaluate(found.task, found.model("bag"), found.batches())
    low, high = evaluation.intervals(found.task)["accuracy"]
    shown = repr(evaluation)
    assert shown.startswith(f"Evaluation(classify, {evaluation.rows} rows: accuracy ") and "\n" not in shown
    assert f"(95%: {low:.4g} to {high:.4g}), macro_f1 " in shown and len(shown) < 200
    assert evaluation.intervals() == evaluation.intervals(found.task)


def test_a_large_evaluation_prints_without_computing_its_interval(small: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    found = small("csv")
    evaluation = evaluate(found.task, found.model("bag"), found.batches())
    monkeypatch.setattr(evaluations, "SLOW_ROWS", 1)
    monkeypatch.setattr(evaluations.bootstrap, "intervals", lambda *_, **__: pytest.fail("computed"))
    assert "95%" not in repr(evaluation)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "labels", "numbers", "conll", "text", "parallel"])
def test_the_report_of_every_task_has_each_metric(small: Find, kind: str) -> None:
    found = small(kind)
    evaluation = evaluate(found.task, found.model(), found.batches())
    report, page = evaluation.report(), evaluation._repr_html_()
    assert all(name in report and name in page for name in evaluation.metrics) and page.startswith("<iframe sandbox")
    assert all(label[:20] in report for label in found.task.by_label(evaluation.statistics))
    assert evaluation.to_json()["metrics"].keys() == evaluation.metrics.keys()
    assert repr(evaluation).startswith(f"Evaluation({evaluation.task}, ")


def test_an_evaluation_that_does_not_know_its_task_still_prints() -> None:
    evaluation = Evaluation("classify", {"accuracy": 0.5}, 2, np.zeros((2, 5)), ())
    assert repr(evaluation) == "Evaluation(classify, 2 rows: accuracy 0.5)"
    with pytest.raises(ConfigError, match="pass the task"):
        evaluation.report()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:A single label")
@given(st.lists(st.tuples(*[st.sampled_from(["b", "a", "z y", "Ä", HOSTILE])] * 2), min_size=1))
def test_the_confusion_matrix_is_that_of_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    counts = tuple(ConfusionCount(*pair, count) for pair, count in Counter(pairs).most_common())
    found = Evaluation("classify", {}, len(pairs), np.zeros((len(pairs), 5)), (), counts).confusion_matrix()
    expected, predicted = zip(*pairs, strict=True)
    np.testing.assert_array_equal(found, confusion_matrix(expected, predicted))
    assert found.labels == tuple(sorted({*expected, *predicted}))
    assert "script" not in Elements(found.document().html()).names
    assert "expected \\ predicted" in repr(found)
    labels, array = found
    assert len(repr(found).splitlines()) >= len(labels) + 2 and array.sum() == len(pairs)


def test_the_confusion_matrix_of_a_tagger_has_the_types_of_its_spans(small: Find) -> None:
    found = small("conll")
    evaluation = evaluate(found.task, found.model(), found.batches())
    matrix, scores = evaluation.confusion_matrix(), found.task.by_label(evaluation.statistics)
    assert {*matrix.labels} <= {*scores, NO_SPAN} and NO_SPAN in matrix.labels
    for label, row in zip(matrix.labels, matrix.counts, strict=True):
        assert label == NO_SPAN or row.sum() == scores[label]["support"]
    assert "expected \\ predicted" in repr(matrix) and "expected \\ predicted" in evaluation.report()


def test_a_confusion_matrix_of_eight_labels_fits_a_terminal(small: Find) -> None:
    names = ("billing", "delivery", "login problem", "refund", "repair", "returns", "shipping cost", "warranty")
    pairs = Counter({(one, other): 1_000 * (one == other) + 3 for one in names for other in names})
    counts = tuple(ConfusionCount(*pair, count) for pair, count in pairs.most_common())
    matrix = Evaluation("classify", {}, 1, np.zeros((1, 5)), (), counts).confusion_matrix()
    table = matrix.document().text(80).splitlines()[2:]
    assert len(table) == 1 + len(names) and all(len(line) <= 80 for line in table)  # a line for each label
    assert table[0].split() == ["expected", "\\", "predicted", *map(str, range(1, 9))]
    assert [line.split()[0] for line in table[1:]] == [str(at) for at in range(1, 9)]
    assert all(name in line for name, line in zip(names, table[1:], strict=True))


def test_slices_are_undefined_by_their_own_evaluator(small: Find) -> None:
    found = small("csv")
    evaluation = evaluate(found.task, found.model("bag"), found.batches())
    other = copy.copy(found.task)
    other.undefined = lambda _: {"accuracy": "no reason"}
    sliced = evaluation._replace(slices=evaluations.sliced(other, evaluation, "side", ["a"] * evaluation.rows))
    shown = sliced.to_json()
    part = shown["slices"]["side"]["a"]
    assert (part["undefined"], part["metrics"]["accuracy"], part["intervals"]["accuracy"]) == (
        {"accuracy": "no reason"}, None, None,
    )  # fmt: skip
    assert "undefined" not in shown and shown["metrics"]["accuracy"] is not None


def test_a_task_without_single_labels_has_no_confusion_matrix(small: Find) -> None:
    found = small("numbers")
    with pytest.raises(ConfigError, match=r"regress has no confusion matrix.* or tags that mark spans"):
        evaluate(found.task, found.model(), found.batches()).confusion_matrix()


def test_an_evaluation_as_a_table_has_a_row_for_each_metric_and_slice(small: Find, pandas: None) -> None:
    found = small("csv")
    evaluation = evaluate(found.task, found.model("bag"), found.batches())
    rows = evaluation.to_pandas().rows
    assert [row["metric"] for row in rows] == list(evaluation.metrics)
    assert all(row["low"] <= row["score"] <= row["high"] for row in rows)
    values = ["odd" if at % 2 else "even" for at in range(evaluation.rows)]
    sliced = evaluation._replace(slices=evaluations.sliced(found.task, evaluation, "side", values))
    rows = sliced.to_pandas().rows
    assert len(rows) == 3 * len(evaluation.metrics)
    assert {(row["column"], row["value"]) for row in rows} == {("", ""), ("side", "odd"), ("side", "even")}
    matrix = evaluation.confusion_matrix()
    frame = matrix.to_pandas()
    assert frame.index == matrix.labels and [*zip(*frame.rows.values(), strict=True)] == [*map(tuple, matrix.counts)]


def test_without_pandas_the_error_names_what_to_install(small: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'seqloom\[pandas\]'"):
        Predictions([("b", TextPrediction("a"))]).to_pandas()


# Predictions


def test_a_prediction_prints_short_with_the_largest_scores_first() -> None:
    likely = {f"label {number}": 0.001 for number in range(1000)} | {"best": 0.123456}
    shown = repr(LabelPrediction("best", likely))
    assert shown.startswith("LabelPrediction(label='best', scores={'best': 0.1235, ") and "1,001 in all" in shown
    for long in (
        TextPrediction("a word " * 1000),
        VectorPrediction(np.ones(512, np.float32)),
        TagsPrediction(tuple(f"B-{number}" for number in range(500))),
    ):
        assert len(repr(long)) < 200 and repr(long).startswith(f"{type(long).__name__}(")
        assert "script" not in Elements(long._repr_html_()).names


def test_a_prediction_prints_what_its_attributes_are() -> None:
    found = TagsPrediction.of(("B-PER", "O"), in_scheme=True, confidences=(0.98765,))
    named = found.with_input(Words.cut("Ada sings"))
    entity = "PredictedEntity(text='Ada', label='PER', start=0, end=3, confidence=0.9877)"
    assert f"entities=[{entity}]" in repr(named) and "words=Words(text='Ada sings', " in repr(named)
    assert "confidence" not in repr(TagsPrediction.of(("B-PER",), in_scheme=True)), "it was not computed"
    filled = FilledPrediction(((MaskCandidate("film", 0.51234),),), "a film")
    assert repr(filled) == "FilledPrediction(text='a film', masks=[[MaskCandidate(text='film', probability=0.5123)]])"


def test_an_attribute_of_one_prediction_is_not_one_of_all_and_the_error_says_so() -> None:
    found = Predictions([("a", LabelPrediction("b", {"b": 1.0}))])
    with pytest.raises(AttributeError, match=r"no attribute 'label', but each prediction has: predictions\[0\]\.label"):
        found.label  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'entities'$"):
        found.entities  # type: ignore[attr-defined]  # noqa: B018
    assert copy.copy(found) == found


@pytest.mark.slow
def test_predictions_are_a_sequence_that_prints_a_few_and_shows_all_beside_their_inputs(pandas: None) -> None:
    many = Predictions([(HOSTILE, LabelPrediction(HOSTILE, {HOSTILE: 1.0}))] * 300)
    assert isinstance(many, Sequence) and len(many) == 300 and many == list(many)
    assert len(repr(many).splitlines()) == 6 and repr(many).endswith("300 predictions in all]")
    assert "script" not in Elements(many.html()).names and many.html().count("<tr>") == 101
    assert many.to_pandas().rows[0] == {"input": HOSTILE, "label": HOSTILE, f"scores.{HOSTILE}": 1.0}
    arrays = Predictions([(None, TextPrediction("a caption"))])
    assert arrays.to_pandas().rows == [{"text": "a caption"}] and "a caption" in arrays.report()
    assert repr(Predictions([])) == "[]"


def test_predictions_stay_with_their_inputs() -> None:
    found = Predictions((str(at), TextPrediction(f"answer {at}")) for at in range(5))
    for change in ("append", "sort", "pop", "reverse", "__setitem__", "__delitem__", "__iadd__"):
        assert not hasattr(found, change)
    part = found[::-2]
    assert part.inputs == ["4", "2", "0"] and [one.to_text() for one in part] == ["answer 4", "answer 2", "answer 0"]
    assert part == list(part) and list(part) == part and part != found and found != "answer"


def test_a_subclass_of_prediction_may_print_as_it_likes() -> None:
    @dataclass(frozen=True, repr=False)
    class Own(TextPrediction):
        def __repr__(self) -> str:
            return f"<{self.text}>"

    assert repr(Own("a")) == "<a>"


def test_all_predictions_print_their_fields_shortened() -> None:
    def every(kind: type) -> list[type]:
        return [kind, *(other for one in kind.__subclasses__() for other in every(one))]

    for path in TASKS.values():  # so that its predictions are defined
        pkgutil.resolve_name(path)
    for kind in every(Prediction):
        if kind.__module__.startswith("seqloom."):
            assert kind.__repr__ is Prediction.__repr__, kind


@pytest.mark.slow
def test_a_run_and_its_model_read_well(tmp_path: Path, pandas: None) -> None:
    reports = run(tmp_path / "run", write_data(tmp_path), model="bag")
    trained = TrainedRun(tmp_path / "run", reports[-1])  # type: ignore[arg-type]
    shown = repr(trained)
    assert shown.startswith("TrainedRun(dev accuracy ") and "(95%: " in shown and "done after 30 steps" in shown
    assert "\n" not in shown and trained._repr_html_().startswith("<iframe sandbox")
    assert "Scores on the dev set" in trained.report()
    assert [row["step"] for row in trained.to_pandas().rows] == [10, 20, 30]
    model = seqloom.load(tmp_path / "run")
    found = model.predict(["red up", "old down"])
    assert found.inputs == ["red up", "old down"] and "red up" in found.report()
    (tmp_path / "run").rename(tmp_path / "moved")
    assert repr(trained).startswith("TrainedRun(dev accuracy ") and "95%" not in repr(trained)


# Comparisons, races and searches


def test_comparisons_races_and_searches_print_in_a_few_lines_and_are_tables(pandas: None) -> None:
    score = Interval(0.9, 0.8, 0.95)
    models = tuple(
        ModelResult(name=name, score=score, seeds=(0.9,), metrics={"loss": 0.1}, parameters=9, tokens=5, seconds=1.0,
                    cost=Cost(latency=Spread(2, 1, 3), throughput=Spread(50, 40, 60), memory=7, disk=8))
        for name in ("bag", "cnn")
    )  # fmt: skip
    compared = Comparison(
        data="films.csv", task="classify", metric="accuracy", higher_is_better=True, split="dev", rows=50,
        budget="1,000 tokens", seeds=1, baseline="bag", margin=0.01, mean_length=5.0, models=models, pairs=(),
    )  # fmt: skip
    assert repr(compared).splitlines() == [
        "Comparison(films.csv, 1 seed)",
        "  bag: accuracy 0.9 (95%: 0.8 to 0.95)",
        "  cnn: accuracy 0.9 (95%: 0.8 to 0.95)",
    ]
    assert [(row["model"], row["accuracy"], row["loss"]) for row in compared.to_pandas().rows] == [
        ("bag", 0.9, 0.1),
        ("cnn", 0.9, 0.1),
    ]
    assert compared.to_pandas().rows[0].items() >= {"latency": 2, "throughput": 50, "memory": 7, "disk": 8}.items()
    board = Leaderboard(
        data="films.csv", task="classify", metric="accuracy", higher_is_better=True, dev_rows=50, folder="best",
        minutes=1.0, seconds=50.0, commands=(),
        rows=(
            LeaderboardRow(name="bag", state="winner", why="", score=score, latency=2.5),
            LeaderboardRow(name="cnn", state="failed", why="memory"),
        ),
    )  # fmt: skip
    assert repr(board).startswith("Leaderboard(films.csv, 2 candidates)\n  The best model is bag: accuracy 0.9")
    assert [(row["model"], row["accuracy"]) for row in board.to_pandas().rows] == [("bag", 0.9), ("cnn", None)]
    assert [row["latency"] for row in board.to_pandas().rows] == [2.5, None]
    trial = TrialResult(number=3, state="done", value=0.8, params={"lr": 0.1}, seconds=2.0)
    results = Results(study="films", metric="accuracy", higher_is_better=True, trials=(trial,), importances={})
    assert repr(results) == "Results(films, 1 trial)\n  Best dev accuracy: 0.8 in trial 3"
    assert results.to_pandas().rows == [{"trial": 3, "state": "done", "accuracy": 0.8, "seconds": 2.0, "lr": 0.1}]


def test_an_entity_is_printed_with_all_its_fields() -> None:
    entity = {"text": "John Smith", "label": "PER", "start": 10, "end": 20, "confidence": 0.9}
    assert brief([entity]) == "[{'text': 'John Smith', 'label': 'PER', 'start': 10, 'end': 20, 'confidence': 0.9}]"
    assert brief(dict.fromkeys("abcde", 0.2)).endswith("…; 5 in all}")
