"""R10: a run that is asked to stop saves and ends, asked twice it ends at once; either way it goes on as ever."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from seqloom.training.checkpoint import steps
from seqloom.training.session import SIGNALS
from survival.following import JOB, Whole, differences, unverified, whole
from survival.forking import Runs
from survival.jobs import SIGNALED

pytestmark = pytest.mark.slow
STOPPED = SIGNALED + 1  # the step in which all ranks hear of it
HOW: dict[str, Any] = {"case": "gru", "steps": 50}


@pytest.fixture(scope="module")
def unstopped(runs: Runs, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return whole(runs, data, tmp_path_factory.mktemp("unstopped") / "run", **HOW)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", SIGNALS)
def test_a_run_that_is_asked_to_stop_saves_and_goes_on_later(
    runs: Runs, data: Path, unstopped: Whole, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "run"
    asked = {"data": str(data), "out": str(out), **HOW}
    (outcome,) = runs.run(JOB, 1, {**asked, "signals": [number]})
    assert outcome.answer == {"begun": 0, "step": STOPPED, "why": "stopped", "code": 128 + number}
    assert outcome.seconds < 10 + unstopped.seconds
    assert steps(out / "checkpoints")[-1].name.endswith(f"{STOPPED}") and unverified(out) == []
    assert runs.answers(JOB, 1, asked)[0]["begun"] == STOPPED
    assert differences(out, unstopped) == []


@pytest.mark.parametrize("while_saving", [False, True])
def test_asked_twice_a_run_ends_at_once_and_leaves_only_whole_checkpoints(
    runs: Runs, data: Path, unstopped: Whole, tmp_path: Path, while_saving: bool
) -> None:
    out = tmp_path / "run"
    asked = {"data": str(data), "out": str(out), **HOW}
    signals = [signal.SIGINT, signal.SIGTERM]
    (outcome,) = runs.run(JOB, 1, {**asked, "signals": signals, "while_saving": while_saving})
    assert outcome.code == 128 + signal.SIGTERM
    assert steps(out / "checkpoints")[-1].name.endswith("28") and unverified(out) == []
    runs.answers(JOB, 1, asked)
    assert differences(out, unstopped) == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("steps", "twin"), [(33, ""), (36, ""), (33, "in between counts")])
def test_stopping_changes_the_mean_of_checkpoints_only_if_those_in_between_count(
    runs: Runs, data: Path, tmp_path: Path, steps: int, twin: str
) -> None:
    """The one in between lies behind the last one that is due, or before it."""
    how = {**HOW, "steps": steps, "ema": 0.0, "average_checkpoints": 3, "twin": twin}
    unstopped = whole(runs, data, tmp_path / "whole", **how)
    asked = {"data": str(data), "out": str(tmp_path / "run"), **how}
    assert runs.run(JOB, 1, {**asked, "signals": [signal.SIGTERM]})[0].answer["why"] == "stopped"
    runs.answers(JOB, 1, asked)
    assert bool(differences(tmp_path / "run", unstopped)) == bool(twin)


def test_without_the_handler_a_signal_loses_steps(runs: Runs, data: Path, tmp_path: Path) -> None:
    asked = {"data": str(data), "out": str(tmp_path / "run"), **HOW, "twin": "deaf"}
    (outcome,) = runs.run(JOB, 1, {**asked, "signals": [signal.SIGTERM]})
    assert outcome.code == -signal.SIGTERM and steps(tmp_path / "run" / "checkpoints")[-1].name.endswith("28")


def test_a_handler_that_only_remembers_does_not_end_at_the_second_signal(
    runs: Runs, data: Path, tmp_path: Path
) -> None:
    asked = {"data": str(data), "out": str(tmp_path / "run"), **HOW, "twin": "patient"}
    (outcome,) = runs.run(JOB, 1, {**asked, "signals": [signal.SIGINT, signal.SIGTERM]})
    assert outcome.code == 0 and outcome.answer["why"] == "stopped"


def test_the_command_ends_with_the_code_of_the_signal_and_goes_on(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = [
        "--split-column",
        "split",
        "--model",
        "gru",
        "--size",
        "nano",
        "--steps",
        "100000",
        "--batch-tokens",
        "17",
    ]
    command = [sys.executable, "-m", "seqloom", "train", str(data / "labels.csv"), "--out", str(out), *options]
    command += ["--save-every", "5", "--validate-every", "50", "--device", "cpu"]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "SEQLOOM_CACHE": str(tmp_path / "cache")}
    process = subprocess.Popen(command, env=surroundings, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while not list(out.glob("checkpoints/step-*")) and time.monotonic() < until and process.poll() is None:
        time.sleep(0.02)
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    said, errors = process.communicate(timeout=20)
    assert process.returncode == 143 and time.monotonic() - sent < 10, errors
    assert "run the same command again to resume" in said and unverified(out) == []
    last = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()][-1]
    assert last["reason"] == "stopped" and steps(out / "checkpoints")[-1].name.endswith(str(last["step"]))
