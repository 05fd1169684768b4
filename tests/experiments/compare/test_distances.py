"""The same comparison at several dependency distances."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from comparing_common import World, judged
from seqloom.cli import app
from seqloom.config.data import DataConfig
from seqloom.data.check import load_data
from seqloom.errors import ConfigError
from seqloom.experiments.compare.distances import Distances, _written, far_set, run_distances
from seqloom.experiments.compare.plan import Budget, ComparisonPlan, RunStarted
from seqloom.experiments.compare.results import Cost, Spread
from seqloom.report.figures.line import Line


def plan(out: Path, name: str = "copy", **changes: Any) -> ComparisonPlan:
    given: dict[str, Any] = {
        "data": DataConfig(train=(name,)),
        "out": str(out),
        "models": ("bag",),
        "budget": Budget(kind="tokens", amount=600),
        "seeds": 1,
        "size": "nano",
        "device": "cpu",
    }
    return ComparisonPlan(**(given | changes))


@pytest.mark.parametrize("name", ["reviews", "data.csv"])
def test_data_without_a_distance_is_refused_with_the_sets_that_have_one(name: str) -> None:
    with pytest.raises(ConfigError, match=r"has no distance parameter") as caught:
        far_set(DataConfig(train=(name,)))
    assert caught.value.fix == "use copy or copy_memory"


@pytest.mark.parametrize(("name", "kinds"), [("copy", ("text", "label")), ("copy_memory", ("words", "tags"))])
def test_a_set_at_a_distance_is_written_as_it_is_drawn(tmp_path: Path, name: str, kinds: tuple[str, str]) -> None:
    source, parameter = far_set(DataConfig(train=(name,)))
    data = _written(source, {parameter: 12}, tmp_path, rows=40)
    prepared = load_data(data.train[0], dev=data.dev[0], task=data.task)
    assert (prepared.schema.input.name, prepared.schema.target.name) == kinds
    drawn = len(list(source.examples("train", count=40, **{parameter: 12})))
    assert (len(prepared.splits["train"]), len(prepared.splits["dev"])) == (drawn, 4)
    steps = {"copy": 13, "copy_memory": 32}[name]
    assert set(prepared.columns["input"].lengths.tolist()) == {steps}


def test_files_with_another_number_of_rows_are_not_taken_for_what_was_asked(tmp_path: Path) -> None:
    source, parameter = far_set(DataConfig(train=("copy",)))
    _written(source, {parameter: 12}, tmp_path, rows=40)
    assert _written(source, {parameter: 12}, tmp_path, rows=40).train
    with pytest.raises(ConfigError, match=r"train\.jsonl has 40 rows, but 400 are requested"):
        _written(source, {parameter: 12}, tmp_path, rows=400)


@pytest.mark.slow
def test_the_time_for_each_token_is_that_of_the_tokens_that_were_read() -> None:
    """The inputs of copy_memory are 20 tokens longer than its delay: the same time for each is a flat line."""
    draws, cost = np.random.default_rng(0), Spread.of([1.0])
    comparisons = []
    for length in (30, 120):
        first, second = World(rows=50).answers(draws)
        found = judged({"bag": first, "lstm": second}, lengths=np.full(50, length))
        timed = Cost(latency=Spread.of([length * 0.5]), throughput=cost, memory=1, disk=1)
        models = tuple(msgspec.structs.replace(one, cost=timed) for one in found.models)
        comparisons.append(msgspec.structs.replace(found, models=models))
    _, times = Distances("copy_memory", (10, 100), tuple(comparisons)).figures()
    assert isinstance(times, Line)
    assert [tuple(series.y) for series in times.series] == [(500.0, 500.0)] * 2


@pytest.mark.parametrize("text", ["", "ten", "10;20", "1.5"])
def test_distances_that_are_no_whole_numbers_are_refused(tmp_path: Path, text: str) -> None:
    given = ["compare", "copy", "--models", "bag", "--out", str(tmp_path / "out"), "--distances", text]
    assert "--distances" in str(CliRunner().invoke(app, given).exception)


@pytest.mark.slow
def test_each_distance_is_a_comparison_and_all_are_one_page(tmp_path: Path) -> None:
    made = plan(tmp_path / "out")
    *_, found = run_distances(made, [12, 8], rows=60)
    assert isinstance(found, Distances)
    assert found.distances == (8, 12)
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(f"distance {far}" in page for far in (8, 12)) and "<script" not in page
    assert [figure.kind for figure in found.figures()] == ["line", "line"]
    assert "distance 8: " in found.text() and "distances" in found.to_json()
    *again, same = run_distances(made, [8, 12], rows=60)
    assert same == found and not [one for one in again if isinstance(one, RunStarted)]
