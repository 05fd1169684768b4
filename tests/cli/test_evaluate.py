"""`seqloom evaluate`: metrics with their intervals; no look at the test set without a line about it."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bundle_common import make_reviews, make_run
from seqloom.cli import app
from seqloom.durable import read_lines
from seqloom.errors import ConfigError


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("reviews")
    make_run(place / "run", **make_reviews(place))
    return place


@pytest.fixture
def run(shelf, tmp_path) -> Path:
    return shutil.copytree(shelf / "run", tmp_path / "run")


def evaluate(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["evaluate", *map(str, arguments), "--device", "cpu"], env={"COLUMNS": "200"})
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_dev_is_what_is_looked_at(run) -> None:
    shown = evaluate(run)
    assert "3 examples of the dev part" in shown and "accuracy" in shown and "95 % between" in shown
    assert not (run / "looks.jsonl").exists()


def test_a_look_at_test_is_on_the_disk_and_counted_aloud(run) -> None:
    assert "The test set was looked at 1 time with this model." in evaluate(run, "--test")
    assert "The test set was looked at 2 times with this model." in evaluate(run, "--test")
    assert len(read_lines(run / "looks.jsonl").records) == 2


def test_json_has_the_same_numbers(run) -> None:
    found = json.loads(evaluate(run, "--test", "--json"))
    (record,) = read_lines(run / "looks.jsonl").records
    assert (found["part"], found["rows"], found["looks"]) == ("test", 2, 1)
    assert found["metrics"] == record["metrics"] and found["intervals"] == record["intervals"]
    low, high = found["intervals"]["accuracy"]
    assert low <= found["metrics"]["accuracy"] <= high


def test_data_of_ones_own_is_named_and_its_columns_can_be_said(run, tmp_path) -> None:
    (tmp_path / "own.csv").write_text("said,meant\ngood,good\nbad,bad\n")
    shown = evaluate(run, tmp_path / "own.csv", "--input", "said", "--target", "meant")
    assert f"2 examples of {tmp_path / 'own.csv'}" in shown


def test_the_test_file_needs_the_flag(run, shelf) -> None:
    with pytest.raises(ConfigError, match=r"is the test set of this run\. Fix: --test"):
        evaluate(run, shelf / "test.csv")
    assert "2 examples" in evaluate(run, shelf / "test.csv", "--test")
    assert len(read_lines(run / "looks.jsonl").records) == 1
