"""Runs of several processes end to end: equal to one process, and equal to themselves whatever happens on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from distributed.forking import TESTS, Forks
from distributed.runs import sums, write_data
from seqloom.training.launching import launch

pytestmark = pytest.mark.slow
RUN = "distributed.runs:run"
PLACES = [
    ("file-50", 0),
    ("before-rename", 0),
    ("before-manifest", 0),
    ("after-model", 0),
    ("between-update-and-count", 1),
    ("validation", 1),
    ("last-batch", 0),
    ("metrics-half", 0),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "colours.csv"
    write_data(path)
    return str(path)


@pytest.fixture(scope="module")
def clean(forks: Forks, data: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The sums of a run of two processes that nothing happened to."""
    out = tmp_path_factory.mktemp("clean") / "run"
    forks.answers(RUN, 2, {"data": data, "out": str(out)})
    return sums(out)


def test_two_processes_read_the_same_examples_and_lose_the_same_as_one(forks: Forks, data: str, tmp_path: Path) -> None:
    settings = {"data": data, "steps": 100, "dropout": 0.0}
    one, *_ = forks.answers(RUN, 1, {**settings, "out": str(tmp_path / "one")})
    two = forks.answers(RUN, 2, {**settings, "out": str(tmp_path / "two")})
    assert two[0]["losses"] == two[1]["losses"] and len(one["losses"]) == 100
    np.testing.assert_allclose(two[0]["losses"], one["losses"], rtol=1e-5)
    pairs = [zip_longest(*step) for step in zip(two[0]["seen"], two[1]["seen"], strict=True)]
    assert [[id_ for pair in step for id_ in pair if id_ is not None] for step in pairs] == one["seen"]


@pytest.mark.parametrize(("place", "who"), PLACES)
def test_two_processes_killed_at_a_place_end_with_the_same_bytes(
    forks: Forks, data: str, clean: dict[str, str], tmp_path: Path, place: str, who: int
) -> None:
    settings = {"data": data, "out": str(tmp_path / "run")}
    outcomes = forks.run(RUN, 2, {**settings, "place": place, "who": who})
    assert [outcome.code for outcome in outcomes] == ([-9, 1] if who == 0 else [1, -9])
    assert "has ended before the run was over" in outcomes[1 - who].stderr
    assert max(outcome.seconds for outcome in outcomes) < 15
    forks.answers(RUN, 2, settings)
    assert sums(tmp_path / "run") == clean


@pytest.mark.parametrize("others", [1, 3])
def test_another_number_of_processes_goes_on_with_sharded_weights(
    forks: Forks, data: str, tmp_path: Path, others: int
) -> None:
    settings = {"data": data, "dropout": 0.0}
    whole = forks.answers(RUN, 1, {**settings, "out": str(tmp_path / "whole")})[0]["losses"]
    sharded = {**settings, "out": str(tmp_path / "run")}
    forks.run(RUN, 2, {**sharded, "sharded": True, "place": "validation"})
    assert list(tmp_path.glob("run/checkpoints/*/model-00002-of-00002.safetensors"))
    rest = forks.answers(RUN, others, {**sharded, "sharded": others > 1})[0]["losses"]
    assert 0 < len(rest) < len(whole)
    np.testing.assert_allclose(rest, whole[-len(rest) :], rtol=1e-5)


def launched(data: str, out: Path, failures: dict[str, list[object]], **settings: object) -> list[str]:
    return [json.dumps({"data": data, "out": str(out), "failures": failures, **settings})]


SURROUNDINGS = {"PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1"}


def test_ranks_that_die_three_times_are_started_again_and_end_with_the_same_bytes(
    data: str, clean: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    failures: dict[str, list[object]] = {"0": [0, "killed"], "1": [1, "raises"], "2": [1, "killed"]}
    arguments = launched(data, tmp_path / "run", failures)
    assert launch(arguments, 2, max_restarts=3, module="distributed.runs", environment=SURROUNDINGS) == 0
    assert sums(tmp_path / "run") == clean
    assert "ValueError: something else" in capfd.readouterr().err


def test_a_stopped_rank_is_started_again_and_ends_with_the_same_bytes(
    data: str, clean: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = launched(data, tmp_path / "run", {"0": [1, "stopped"]}, timeout=3.0)
    assert launch(arguments, 2, max_restarts=1, module="distributed.runs", environment=SURROUNDINGS) == 0
    assert sums(tmp_path / "run") == clean
    said = capfd.readouterr().err
    assert "rank 1 was stopped" in said and "Current thread" in said


def test_without_restarts_the_exit_code_is_that_of_the_rank_and_one_line_names_it(
    data: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = launched(data, tmp_path / "run", {"0": [1, "exits"]})
    assert launch(arguments, 2, module="distributed.runs", environment=SURROUNDINGS) == 5
    said = capfd.readouterr().err.splitlines()
    assert said[-1].startswith("error: rank 1 of 2 (process ") and said[-1].endswith(") ended with code 5")
    assert len(said) <= 2


def test_ranks_whose_launcher_is_killed_save_and_end(data: str, tmp_path: Path) -> None:
    """The launcher that is killed is the agent, the parent of the ranks."""
    out = tmp_path / "run"
    program = "import sys; from seqloom.training.launching import launch; " + (
        "sys.exit(launch(sys.argv[1:], 2, module='distributed.runs'))"
    )
    arguments = launched(data, out, {}, steps=100_000)
    front = subprocess.Popen([sys.executable, "-c", program, *arguments], env={**os.environ, **SURROUNDINGS})
    until = time.monotonic() + 60
    while not list(out.glob("checkpoints/step-*")) and time.monotonic() < until:
        time.sleep(0.05)
    (agent,) = children(front.pid)
    ranks = children(agent)
    assert len(ranks) == 2
    os.kill(agent, signal.SIGKILL)
    killed = time.monotonic()
    assert front.wait(timeout=15) == 128 + 9
    while any(Path(f"/proc/{rank}").exists() for rank in ranks):
        assert time.monotonic() - killed < 15
        time.sleep(0.05)


def children(process: int) -> list[int]:
    """The processes that a process has started; of Linux."""
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
