"""A race that continues with more minutes makes the decisions again that were caused by lack of time."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import auto_common
import seqloom
from auto_common import fixed_race, table
from seqloom.errors import ConfigError
from seqloom.experiments.auto import latency, race
from seqloom.experiments.auto.budget import Probe
from seqloom.experiments.auto.latency import LATENCY
from seqloom.experiments.auto.plan import CandidateStarted, Entry, Probed
from seqloom.experiments.auto.record import NOT_MEASURED, NOT_VALIDATED, SPENT
from seqloom.training.devices import Device
from seqloom.training.resolve import Resolved

pytestmark = pytest.mark.slow
MODELS = ("bag", "gru")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return table(tmp_path / "a.csv", 120, 0), table(tmp_path / "d.csv", 60, 1)


@pytest.fixture(autouse=True)
def fewest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The speeds of these races are made for rungs that begin with 30 steps."""
    monkeypatch.setattr(auto_common, "FEWEST", 30)


def slow_gru(monkeypatch: pytest.MonkeyPatch, step_seconds: float) -> None:
    """Let the gru in its usual size need this long for a step; all other probes are as fast as ever."""

    def probed(resolved: Resolved, device: Device, seconds: float) -> Probe:
        model = resolved.config.model
        is_gru = "gru" in str(model).lower() and model.parameters() > 80_000
        step = step_seconds if is_gru else 0.18
        return Probe(step_seconds=step, validation_seconds=0.0, overhead_seconds=0.0, steps=60, validations=2)

    monkeypatch.setattr(auto_common, "fixed_probe", probed)


def started(told: list[Any]) -> list[str]:
    return [event.entry.name for event in told if isinstance(event, CandidateStarted)]


def test_a_candidate_that_was_too_slow_runs(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_gru(monkeypatch, 3.0)
    monkeypatch.setattr(race, "FEW", 1)
    board, told = fixed_race(*files, tmp_path / "out", models=MODELS)
    row = next(row for row in board.rows if row.name == "gru")
    assert row.state == "not run" and "too slow" in row.why and started(told) == ["linear", "bag-rung-1"]
    still, told = fixed_race(
        *files, tmp_path / "out", models=MODELS, minutes=1.5
    )  # still too slow, and no endless race
    assert next(row for row in still.rows if row.name == "gru").state == "not run" and started(told) == []
    more, told = fixed_race(*files, tmp_path / "out", models=MODELS, minutes=10.0)
    assert started(told) == ["gru-rung-2"]
    assert next(row for row in more.rows if row.name == "gru").score is not None
    again, told = fixed_race(*files, tmp_path / "out", models=MODELS, minutes=10.0)
    assert started(told) == [] and again == more


@pytest.mark.soak
def test_a_candidate_that_raced_in_its_smallest_size_runs_in_its_usual_size(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_gru(monkeypatch, 1.0)
    _, told = fixed_race(*files, tmp_path / "out", models=MODELS)
    assert started(told) == ["linear", "bag-rung-1", "gru-tiny-rung-1"]
    more, told = fixed_race(*files, tmp_path / "out", models=MODELS, minutes=5.0)
    assert started(told) == ["gru-rung-2"]
    assert {row.name for row in more.rows if row.score is not None} == {"linear", "bag", "gru-tiny", "gru"}


def test_speeds_are_measured_for_half_of_the_time_and_those_of_the_default_recipe_always(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time, probe = [0.0], auto_common.fixed_probe

    def slow(*given: Any) -> Probe:
        time[0] += 40.0  # of 66 seconds
        return probe(*given)

    given: dict[str, Any] = {"models": ("bag", "gru", "cnn"), "clock": lambda: time[0]}
    monkeypatch.setattr(auto_common, "fixed_probe", slow)
    board, told = fixed_race(*files, tmp_path / "out", **given)
    names = [event.candidate for event in told if isinstance(event, Probed)]
    assert names == ["bag", "cnn"]  # which is the default
    assert next(row for row in board.rows if row.name == "gru").why == NOT_MEASURED
    monkeypatch.setattr(auto_common, "fixed_probe", probe)
    more, told = fixed_race(*files, tmp_path / "out", minutes=10.0, **given)
    assert "gru" in [event.candidate for event in told if isinstance(event, Probed)]
    assert next(row for row in more.rows if row.name == "gru").score is not None


def test_a_candidate_whose_default_training_is_far_too_long_races_in_its_smallest_size(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probed(
        resolved: Resolved, device: Device, seconds: float
    ) -> Probe:  # 150 steps fit, of 700: 4.7 times the time
        step = 0.4 if resolved.config.model.parameters() > 80_000 else 1.0
        return Probe(step_seconds=step, validation_seconds=0.0, overhead_seconds=0.0, steps=700, validations=1)

    monkeypatch.setattr(auto_common, "fixed_probe", probed)
    _, told = fixed_race(*files, tmp_path / "out", models=("gru",))
    assert started(told) == ["linear", "gru-tiny-rung-1"]


def test_a_run_whose_time_was_up_before_its_first_validation_runs_again(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = race.run

    def cut(plan: Any, entry: Entry, record: Any, **how: bool) -> Iterator[Any]:
        if entry.candidate.name == "gru":
            raise ConfigError(NOT_VALIDATED, fix="give more --minutes")
        yield from run(plan, entry, record, **how)

    with monkeypatch.context() as patched:
        patched.setattr(race, "run", cut)
        board, _ = fixed_race(*files, tmp_path / "out", models=MODELS)
    assert next(row for row in board.rows if row.name == "gru").state == "failed"
    more, told = fixed_race(*files, tmp_path / "out", models=MODELS, minutes=2.0)
    assert started(told)[0] == "gru-rung-1"
    assert next(row for row in more.rows if row.name == "gru").score is not None


def test_a_candidate_that_failed_for_another_reason_stays_out(files: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "out" / "runs").mkdir(parents=True)
    (tmp_path / "out" / "runs" / "gru-rung-1").write_text("no folder")
    fixed_race(*files, tmp_path / "out", models=MODELS)
    more, told = fixed_race(*files, tmp_path / "out", models=MODELS, minutes=5.0)
    assert not any(name.startswith("gru") for name in started(told))
    assert next(row for row in more.rows if row.name == "gru").state == "failed"


def test_a_finished_race_with_ties_continues_and_the_least_computation_still_wins(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probed(resolved: Resolved, device: Device, seconds: float) -> Probe:
        step = 3.0 if resolved.config.model.parameters() > 100_000 else 0.18  # no time beside the cnn in a minute
        return Probe(step_seconds=step, validation_seconds=0.0, overhead_seconds=0.0, steps=30, validations=1)

    monkeypatch.setattr(auto_common, "fixed_probe", probed)
    monkeypatch.setattr(race, "FEW", 1)
    out, models = tmp_path / "out", ("bag", "cnn")
    board, _ = fixed_race(*files, out, models=models)
    before = json.loads((out / LATENCY).read_text())
    more, told = fixed_race(*files, out, models=models, minutes=10.0)
    scored = [row for row in more.rows if row.score is not None]
    tied = [row for row in scored if row.score == scored[0].score]
    assert started(told) == ["bag-rung-2"] and len(tied) > 1  # one word decides, so candidates make no mistake
    costs = [row.parameters * row.steps for row in tied]
    assert costs == sorted(costs) and more.winner == tied[0]
    assert {row.name: row.score for row in board.rows if row.score}.items() <= {r.name: r.score for r in scored}.items()
    assert seqloom.load(out).evaluate(split="dev").metrics["accuracy"] == scored[0].score.value  # type: ignore[union-attr]
    assert [path.parent.name for path in (out / "runs").glob("*/model")] == [more.winner.runs[0]]
    after = json.loads((out / LATENCY).read_text())
    assert before.items() <= after.items() and all(row.latency == after[row.runs[0]] for row in scored)


def test_a_latency_is_measured_once_and_recorded(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(1, 100))
    monkeypatch.setattr(latency, "measure_latency", lambda *_: float(next(times)))
    board, _ = fixed_race(*files, tmp_path / "out", models=("bag",))
    assert sorted(row.latency or 0 for row in board.rows) == [1.0, 2.0]
    assert "latency" in board.text() and "2 ms" in board.text()
    (tmp_path / "out" / "leaderboard.json").unlink()  # as if it was killed before it wrote the leaderboard
    again, _ = fixed_race(*files, tmp_path / "out", models=("bag",))
    assert again.rows == board.rows and next(times) == 3


def test_a_race_that_is_killed_while_latencies_are_measured_has_its_leaderboard(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(latency, "measure_latency", killed)
        with pytest.raises(KeyboardInterrupt):
            fixed_race(*files, tmp_path / "out", models=("bag",))
    before = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert (tmp_path / "out" / "leaderboard.html").is_file()
    board, told = fixed_race(*files, tmp_path / "out", models=("bag",))
    assert started(told) == [] and all(row.latency for row in board.rows)
    assert [row["latency"] for row in before["rows"]] == [None, None]
    assert [row["name"] for row in before["rows"]] == [row.name for row in board.rows]


def test_no_latency_is_measured_after_the_race_has_taken_too_long(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = [0.0]

    def slow(*_: Any) -> float:
        time[0] += 100.0  # of a race of 66 seconds
        return 9.0

    monkeypatch.setattr(latency, "measure_latency", slow)
    board, _ = fixed_race(*files, tmp_path / "out", models=("bag",), clock=lambda: time[0])
    assert [row.latency for row in board.rows] == [9.0, None] and board.seconds == 100.0
    assert json.loads((tmp_path / "out" / SPENT).read_text())["seconds"] == 100.0
