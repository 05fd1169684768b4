"""A race ends with a model that all verbs take, whatever stops it, and never reads the test set."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
from typer.testing import CliRunner

import auto_common
import seqloom
from auto_common import MODELS, SHORT, TRIED, fixed_race, table, ticking
from seqloom.cli import app
from seqloom.errors import ConfigError
from seqloom.experiments import workers
from seqloom.experiments.auto import race, record, runs
from seqloom.experiments.auto.plan import (
    AutoEvent,
    AutoPlan,
    AutoStarted,
    CandidateEnded,
    CandidateStarted,
    Entry,
    RungStarted,
)
from seqloom.experiments.auto.results import Leaderboard
from seqloom.training.devices import OutOfMemoryError
from seqloom.training.resolve import Resolved

pytestmark = pytest.mark.slow
TIMES = ("seconds", "latency")  # what differs between two races on the same machine


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return table(tmp_path / "a.csv", 120, 0), table(tmp_path / "d.csv", 60, 1)


class Finished(NamedTuple):
    """A race that has ended: its files, its leaderboard and its events."""

    files: tuple[Path, Path]
    test: Path
    out: Path
    board: Leaderboard
    told: list[AutoEvent]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A race that several tests look at."""
    place = tmp_path_factory.mktemp("race")
    files, test = (table(place / "a.csv", 120, 0), table(place / "d.csv", 60, 1)), table(place / "t.csv", 40, 2)
    return Finished(files, test, place / "out", *fixed_race(*files, place / "out", test=test))


def timeless(board: Any) -> Any:
    """A leaderboard without times."""
    if isinstance(board, dict):
        return {name: timeless(value) for name, value in board.items() if name not in (*TIMES, "folder", "commands")}
    return [timeless(value) for value in board] if isinstance(board, list) else board


def test_the_better_half_goes_on_with_more_steps_and_one_is_left(finished: Finished) -> None:
    board, told = finished.board, finished.told
    rungs = [event for event in told if isinstance(event, RungStarted)]
    assert [len(rung.entries) for rung in rungs] == [3, 2, 1]
    assert [len(rung.dropped) for rung in rungs] == [0, 1, 1]
    steps = [[entry.steps or 0 for entry in rung.entries] for rung in rungs]
    assert all(1.5 * max(one) <= min(other) for one, other in pairwise(steps))
    ended = [event for event in told if isinstance(event, CandidateEnded)]
    assert ended[0].entry.candidate.name == "linear" and len(ended) == 7
    dropped = {name for rung in rungs for name in rung.dropped}
    assert {row.name for row in board.rows if row.state == "dropped"} == dropped - {board.winner.name}


def test_the_winner_is_left_where_every_verb_finds_it(finished: Finished) -> None:
    files, out, board = finished.files, finished.out, finished.board
    model, scores = seqloom.load(out), [row.score.value for row in board.rows if row.score is not None]
    assert scores == sorted(scores, reverse=True) and board.winner.score is not None
    assert model.evaluate(split="dev").metrics["accuracy"] == pytest.approx(board.winner.score.value)
    assert model.evaluate(split="test").rows == 40
    for verb in (["predict", str(out), str(files[1])], ["doctor", str(out)], ["evaluate", str(out)]):
        shown = CliRunner().invoke(app, verb)
        assert shown.exit_code == 0, shown.output
    with_weights = [path.parent.name for path in (out / "runs").glob("*/model")]
    assert with_weights == [board.winner.runs[0]]
    assert "Leaderboard" in (out / "leaderboard.html").read_text()
    assert {row.name for row in board.rows} == {"linear", *MODELS}


def test_a_finished_race_is_shown_again_without_training(finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is trained")

    monkeypatch.setattr(workers, "train_run", never)
    monkeypatch.setattr(auto_common, "fixed_probe", never)
    again, told = fixed_race(*finished.files, finished.out, test=finished.test)
    assert again == finished.board and len(told) == 2 and isinstance(told[0], AutoStarted)


def racing(files: tuple[Path, Path], out: Path, kind: str, tick: float, fail: str = "") -> int:
    """A race with variants in a process of its own; `fail` says where it is killed."""
    given = [sys.executable, str(Path(auto_common.__file__)), *map(str, files), str(out), kind, str(tick)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "SEQLOOM_FAIL": fail}
    return subprocess.run(given, env=environment, capture_output=True, check=False, timeout=300).returncode


@pytest.mark.parametrize(
    ("kind", "variants", "steps"),
    [("longer", {"gru-longer"}, (58, 20)), ("changed", {"bag-lr-3x", "gru-lr-3x"}, (50, 40))],
)
def test_a_race_that_is_killed_twice_ends_with_the_same_leaderboard(
    kind: str, variants: set[str], steps: tuple[int, int], files: tuple[Path, Path], tmp_path: Path
) -> None:
    whole, killed, tick = tmp_path / "whole", tmp_path / "killed", 0.01
    board, _ = fixed_race(*files, whole, clock=ticking(tick), **TRIED[kind])
    assert variants <= {row.name for row in board.rows}
    # in the last run of the first rung, then in a variant, while the machine is slower and slower
    assert racing(files, killed, kind, tick, f"between-update-and-count:kill:{steps[0]}") == -signal.SIGKILL
    decided = json.loads((killed / "auto.json").read_text())
    assert len(decided["rungs"]) == 1 and not decided["variants"]
    assert len(list((killed / "evaluations").iterdir())) == len(decided["rungs"][0]["entries"])
    assert seqloom.load(killed).predict(["elm oak"])[0].label in ("yes", "no")  # the best model so far
    shutil.copytree(killed, tmp_path / "once")
    assert racing(files, killed, kind, 2 * tick, f"between-update-and-count:kill:{steps[1]}") == -signal.SIGKILL
    assert json.loads((killed / "auto.json").read_text())["variants"]
    assert racing(files, killed, kind, 3 * tick) == 0
    boards = [json.loads((place / "leaderboard.json").read_text()) for place in (whole, killed)]
    assert timeless(boards[0]) == timeless(boards[1])
    assert (whole / "auto.json").read_bytes() == (killed / "auto.json").read_bytes()
    weights = [(place / "model" / "model.safetensors").read_bytes() for place in (whole, killed)]
    assert weights[0] == weights[1]
    decisions_are_not_made_again(files, tmp_path / "once", kind)


def decisions_are_not_made_again(files: tuple[Path, Path], out: Path, kind: str) -> None:
    """A killed race keeps its decisions, although the speeds that led to them have changed since."""
    before = json.loads((out / "auto.json").read_text())
    slower = {name: probe | {"step_seconds": 99.0} for name, probe in before["probes"].items()}
    (out / "auto.json").write_text(json.dumps(before | {"probes": slower}))
    _, told = fixed_race(*files, out, **TRIED[kind])
    first = next(event for event in told if isinstance(event, RungStarted))
    decided = [(one["candidate"]["name"], one["steps"]) for one in before["rungs"][0]["entries"]]
    assert [(entry.candidate.name, entry.steps) for entry in first.entries] == decided


def test_a_run_that_is_stopped_at_the_overtime_is_stopped_at_the_same_step_after_a_kill(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out, evaluate = tmp_path / "whole", tmp_path / "out", runs._evaluate
    given: dict[str, Any] = {"models": ("gru",), "minutes": 0.5}

    def over(place: Path) -> Callable[[], float]:  # the overtime of this race of 30 seconds is 5
        return lambda: 35.1 if (place / "runs" / "gru-tiny-rung-1" / "model").is_dir() else 0.0

    def killed(plan: AutoPlan, entry: Entry, *given: Any) -> Any:
        if entry.candidate.name == "gru-tiny":
            shutil.rmtree(out / "runs" / entry.name / "checkpoints")  # it starts again, and its clock is over at once
            raise KeyboardInterrupt
        return evaluate(plan, entry, *given)

    board, _ = fixed_race(*files, whole, clock=over(whole), **given)
    with monkeypatch.context() as patched:
        patched.setattr(runs, "_evaluate", killed)
        with pytest.raises(KeyboardInterrupt):
            fixed_race(*files, out, clock=over(out), **given)
    assert json.loads((out / "auto.json").read_text())["cuts"] == {"gru-tiny-rung-1": 20}
    again, _ = fixed_race(*files, out, **given)
    found = [next(row for row in one.rows if row.name == "gru-tiny") for one in (board, again)]
    assert [row.steps for row in found] == [20, 20] and found[0].score == found[1].score
    assert all("took too long" in row.why or row.state == "winner" for row in found)


@pytest.mark.parametrize(("evaluation", "is_cut"), [(2.0, True), (0.0, False)])
def test_the_overtime_of_a_run_leaves_room_for_its_evaluation(
    evaluation: float, is_cut: bool, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe, runs = auto_common.fixed_probe, tmp_path / "out" / "runs"

    def probed(*given: Any) -> Any:
        return msgspec.structs.replace(probe(*given), validation_seconds=evaluation)

    def clock() -> float:  # the overtime of this race of 30 seconds is 5
        return 33.1 if list(runs.glob("gru*/model")) else 0.0

    monkeypatch.setattr(auto_common, "fixed_probe", probed)
    fixed_race(*files, tmp_path / "out", models=("gru",), minutes=0.5, clock=clock)
    assert bool(json.loads((tmp_path / "out" / "auto.json").read_text())["cuts"]) == is_cut


def test_the_evaluation_of_a_run_never_shortens_the_time_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "now", lambda: 29.9)
    opened = record.RaceRecord(tmp_path, record.RaceDecisions(settings={}, seconds=30.0), 0.0)
    assert not opened.is_over(1000.0)


@pytest.mark.parametrize(("seconds", "pace"), [(24.0, 1.0), (40.0, 2.71)])
def test_the_pace_is_corrected_only_if_the_clock_is_far_from_the_plan(
    seconds: float, pace: float, files: tuple[Path, Path], tmp_path: Path
) -> None:
    def clock() -> float:  # each run takes so long; the plan gives about 15 to each of the first rung
        return seconds * len(list((tmp_path / "out" / "evaluations").glob("*")))

    given: dict[str, Any] = {"models": ("bag", "gru"), "minutes": 2.0, "drift": 0.25}
    fixed_race(*files, tmp_path / "out", clock=clock, **given)
    assert json.loads((tmp_path / "out" / "auto.json").read_text())["pace"] == pytest.approx(pace, abs=0.01)


def test_the_time_to_read_the_data_counts(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time, resolve = [0.0], race.resolve

    def slow(*given: Any, **how: Any) -> Any:
        time[0] += 7.0
        return resolve(*given, **how)

    monkeypatch.setattr(race, "resolve", slow)
    _, told = fixed_race(*files, tmp_path / "out", models=("bag",), clock=lambda: time[0])
    assert isinstance(told[0], AutoStarted) and told[0].spent == 7.0


def test_a_race_without_any_time_still_has_a_model(files: tuple[Path, Path], tmp_path: Path) -> None:
    board, _ = fixed_race(*files, tmp_path / "out", models=("bag",), minutes=1e-9, clock=ticking(10.0))
    assert board.winner.name == "linear" and seqloom.load(tmp_path / "out").predict(["elm oak"])


def test_the_test_set_is_never_read(files: tuple[Path, Path], tmp_path: Path) -> None:
    test = tmp_path / "test.csv"
    test.write_bytes(b"\xff\xfe not a table \x00")
    board, _ = fixed_race(*files, tmp_path / "out", test=test, models=("bag",))
    assert isinstance(board, Leaderboard) and not (tmp_path / "out" / "test_evaluations.jsonl").exists()
    assert any("--split test" in command for command in board.commands)


def test_no_row_of_a_drawn_test_set_reaches_a_candidate(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, train_run = list[int](), workers.train_run

    def watched(folder: Path, resolved: Any, **how: Any) -> Any:
        seen.append(len(resolved.prepared.splits["test"]))
        return train_run(folder, resolved, **how)

    monkeypatch.setattr(workers, "train_run", watched)
    fixed_race(files[0], None, tmp_path / "out", dev_size=0.2, test_size=0.2, models=("bag",))
    assert len(seen) > 1 and not any(seen)


def test_variants_use_the_time_that_is_left_and_more_minutes_go_on(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    first, _ = fixed_race(*files, out, models=("bag",))
    assert {row.name for row in first.rows} == {"linear", "bag"}
    more, told = fixed_race(*files, out, models=("bag",), minutes=3.0, parents=1)
    tried = [event.entry.candidate.name for event in told if isinstance(event, CandidateStarted)]
    assert "bag-lr-3x" in tried and "bag" not in tried and "linear" not in tried
    variant = next(row for row in more.rows if row.name == "bag-lr-3x")
    assert variant.score is not None and "x its learning rate (" in variant.why
    lines = [(out / "runs" / name / "config.toml").read_text() for name in ("bag-rung-1", "bag-lr-3x")]
    rates = [float(next(line for line in text.splitlines() if line.startswith("lr = "))[5:]) for text in lines]
    assert rates[1] == pytest.approx(3 * rates[0])  # both have as many steps
    with pytest.raises(ConfigError, match=r"contains a race of 3 minutes, and minutes is 1\.1"):
        fixed_race(*files, out, models=("bag",))


def test_an_encoder_is_one_more_candidate(files: tuple[Path, Path], tmp_path: Path) -> None:
    run = seqloom.train(
        files[0], dev=files[1], model="cnn", size="nano", epochs=2, out=tmp_path / "first", device="cpu"
    )
    board, _ = fixed_race(*files, tmp_path / "out", models=("bag",), init=run.folder)
    found = next(row for row in board.rows if row.name == "init")
    assert found.score is not None and "init" in (tmp_path / "out" / "runs" / found.runs[0] / "config.toml").read_text()


@pytest.mark.parametrize("error", [OutOfMemoryError("out of memory, with one row"), torch.OutOfMemoryError("no room")])
@pytest.mark.parametrize("place", ["probe", "run"])
def test_a_candidate_that_runs_out_of_memory_is_told_and_the_others_go_on(
    error: Exception, place: str, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe, train_run = auto_common.fixed_probe, workers.train_run

    def probed(resolved: Resolved, *given: Any) -> Any:
        if place == "probe" and "gru" in str(resolved.config.model).lower():
            raise error
        return probe(resolved, *given)

    def trained(folder: Path, resolved: Resolved, **how: Any) -> Any:
        if place == "run" and "gru" in str(resolved.config.model).lower():
            raise error
        return train_run(folder, resolved, **how)

    monkeypatch.setattr(auto_common, "fixed_probe", probed)
    monkeypatch.setattr(workers, "train_run", trained)
    for _ in range(2):  # a race that is shown again does not try it again
        board, _ = fixed_race(*files, tmp_path / "out", **SHORT)
        failed = next(row for row in board.rows if row.name.startswith("gru"))
        assert failed.state == "failed" and str(error).rstrip(".") in failed.why and len(board.rows) == 3
    assert seqloom.load(tmp_path / "out").predict(["elm oak"])


def test_an_error_of_our_own_still_ends_the_race(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(auto_common, "fixed_probe", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        fixed_race(*files, tmp_path / "out", **SHORT)


def test_if_no_candidate_can_be_trained_the_error_has_one_fix(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise ConfigError("too wide", fix="use a smaller one")

    monkeypatch.setattr(workers, "train_run", never)
    with pytest.raises(ConfigError) as raised:
        fixed_race(*files, tmp_path / "out", models=("bag",))
    assert str(raised.value) == "no candidate was trained: too wide. Fix: use a smaller one."
    monkeypatch.setattr(race.Race, "_runs", lambda *_: iter(()))
    with pytest.raises(ConfigError, match=r"trained: the time was too short\. Fix: give more minutes\.$"):
        fixed_race(*files, tmp_path / "other", models=("bag",))


def test_a_candidate_that_fails_is_told_and_the_others_go_on(files: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "out" / "runs").mkdir(parents=True)
    (tmp_path / "out" / "runs" / "cnn-rung-1").write_text("no folder")
    board, _ = fixed_race(*files, tmp_path / "out", models=("bag", "cnn"))
    failed = next(row for row in board.rows if row.name == "cnn")
    assert failed.state == "failed" and "is a file" in failed.why and board.winner.name != "cnn"


def test_when_the_time_is_up_the_best_so_far_wins(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record.RaceRecord, "left", property(lambda _: -10.0))
    board, told = fixed_race(*files, tmp_path / "out")
    ended = [event.entry.candidate.name for event in told if isinstance(event, CandidateEnded)]
    assert ended == ["linear"] and board.winner.name == "linear"
    assert {(row.name, row.why) for row in board.rows[1:]} == {(name, "not run: the time was up") for name in MODELS}
