"""`seqloom evaluate`: metrics with their intervals; no look at the test set without a line about it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bundle_common import make_reviews
from seqloom.cli import app
from seqloom.config.data import DataConfig
from seqloom.config.training import StepsConfig
from seqloom.errors import ConfigError
from seqloom.files.jsonl import read_lines
from seqloom.inference.model import LoadedModel, load
from seqloom.tasks.evaluation import Evaluation
from seqloom.training.devices import choose_device
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve
from seqloom.training.run import train_run
from training_common import BASE


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    """The files of a small set, and a whole run on them: two steps are enough to be judged."""
    place = tmp_path_factory.mktemp("reviews")
    request = RunRequest(model="bag", size="nano", training=BASE | {"duration": StepsConfig(steps=2)})
    resolved = resolve(DataConfig(**make_reviews(place)), request, cache=place / "cache")
    for _ in train_run(place / "run", resolved, device=choose_device("cpu", "float32"), workers=0):
        pass
    return place


@pytest.fixture
def run(shelf, tmp_path) -> Path:
    return shutil.copytree(shelf / "run", tmp_path / "run")


def evaluate(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["evaluate", *map(str, arguments), "--device", "cpu"], env={"COLUMNS": "200"})
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.mark.slow
def test_dev_is_what_is_looked_at(run) -> None:
    shown = evaluate(run)
    assert "3 examples of the dev set" in shown and "accuracy" in shown and "95 % interval" in shown
    assert not (run / "test_evaluations.jsonl").exists()


@pytest.mark.slow
def test_an_evaluation_on_test_is_recorded_and_counted(run) -> None:
    assert "This model has been evaluated on the test set 1 time." in evaluate(run, "--split", "test")
    assert "This model has been evaluated on the test set 2 times." in evaluate(run, "--split", "test")
    assert len(read_lines(run / "test_evaluations.jsonl").records) == 2


@pytest.mark.slow
def test_the_report_and_the_card_tell_of_a_look_at_test_and_stay_as_they_are_after_one_at_dev(run) -> None:
    pages = [run / "report.html", run / "card.md"]
    before = [page.read_bytes() for page in pages]
    evaluate(run)
    assert [page.read_bytes() for page in pages] == before
    evaluate(run, "--split", "test")
    assert all(page.read_bytes() != old for page, old in zip(pages, before, strict=True))
    assert "has not been evaluated on the test set" in before[1].decode()
    assert "Evaluated on the test set once" in pages[1].read_text()


@pytest.mark.slow
@pytest.mark.parametrize("accuracy", [0.5, 1.0])
def test_the_interval_of_a_perfect_score_is_explained_under_the_table(run, monkeypatch, accuracy) -> None:
    known = LoadedModel.evaluate

    def evaluated(model: LoadedModel, *data: Any, **settings: Any) -> Evaluation:
        found = known(model, *data, **settings)
        return found._replace(metrics=found.metrics | {"accuracy": accuracy})

    monkeypatch.setattr(LoadedModel, "evaluate", evaluated)
    explained = (
        "\nThe accuracy of all rows is 1, so the bootstrap shows no variation. The interval uses the rule of three"
    )
    assert (explained in evaluate(run)) == (accuracy == 1.0)


def test_json_has_the_same_numbers(run) -> None:
    found = json.loads(evaluate(run, "--split", "test", "--json"))
    (record,) = read_lines(run / "test_evaluations.jsonl").records
    assert (found["split"], found["rows"], found["test_evaluations"]) == ("test", 2, 1)
    assert found["metrics"] == record["metrics"] and found["intervals"] == record["intervals"]
    low, high = found["intervals"]["accuracy"]
    assert low <= found["metrics"]["accuracy"] <= high


def test_each_label_and_every_confusion_are_told_in_tables_and_in_json(run) -> None:
    found, shown = json.loads(evaluate(run, "--json")), evaluate(run)
    model = load(run)
    evaluation = model.evaluate()
    assert found["per_class"] == model.task.by_label(evaluation.statistics)
    assert found["confusion"] == [one._asdict() for one in evaluation.confusion]
    assert sum(one["rows"] for one in found["confusion"]) == 3
    assert ["precision", "recall", "f1", "support"] in [
        line.split()[1:] for line in shown.split("\n")
    ] and "expected \\ predicted" in shown


def test_a_file_without_targets_is_refused_with_what_evaluate_can_be_told(run, tmp_path) -> None:
    (tmp_path / "new.csv").write_text("id,text\n1,good\n")
    with pytest.raises(
        ConfigError, match=r"new\.csv: there is no column 'label'; found id, text\. Fix: .*--target.* predict"
    ) as caught:
        evaluate(run, tmp_path / "new.csv")
    assert "--task" not in str(caught.value)


def test_data_of_ones_own_is_named_and_its_columns_can_be_said(run, tmp_path) -> None:
    (tmp_path / "own.csv").write_text("said,meant\ngood,good\nbad,bad\n")
    shown = evaluate(run, tmp_path / "own.csv", "--input", "said", "--target", "meant")
    assert f"2 examples of {tmp_path / 'own.csv'}" in shown


def test_the_test_file_needs_the_flag(run, shelf) -> None:
    with pytest.raises(ConfigError, match=r"test\.csv is the test set of this run\. .*--split test"):
        evaluate(run, shelf / "test.csv")
    assert "2 examples" in evaluate(run, shelf / "test.csv", "--split", "test")
    assert len(read_lines(run / "test_evaluations.jsonl").records) == 1
