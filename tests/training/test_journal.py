"""Claims about the journal of a run: equal runs leave equal bytes, and no crash or full disk loses a line."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqloom import files
from seqloom.errors import DamagedError, DurableError
from seqloom.files.layouts import RunFile
from seqloom.training import events as journal_module
from seqloom.training.events import Ended, Notice, Report, RunLog, Sample, Saved, Speed, Started, Stepped, Validated
from seqloom.training.state import Environment

ENVIRONMENT = Environment(
    seqloom="0", torch="2", python="3", device="cpu", capability="AVX2", threads=1, ranks=1, sharded=False
)


def pace(seconds: float) -> Speed:
    return Speed(seconds, 100.0 / seconds, 0.1, 1_000, None)


def stepped(step: int, loss: float = 0.5, seconds: float = 1.0) -> Stepped:
    return Stepped(step, 0, step / 100, loss / step, 1e-3, 1.0, 2.0, 0.5, 0, step * 64, 0.1, pace(seconds))


def run(first: int, last: int, seconds: float) -> Iterator[Report]:
    """The reports of the steps first..last, with a validation after each tenth; `seconds` is the pace."""
    yield Started(Path("run"), first - 1, 10, 10, last, 100, ENVIRONMENT, ("device cpu",))
    for step in range(first, last + 1):
        yield stepped(step, seconds=seconds)
        if step % 10 == 0:
            samples = (Sample("3 may", "05-03", "05-03", True),)
            yield Validated(step, 0, {"accuracy": step / 100}, True, True, samples, pace(seconds))
            yield Saved(step, Path("checkpoints"))
    yield Ended(last, "done", last, last, {"accuracy": 0.9}, pace(seconds), 0)


def kept(folder: Path, reports: Iterator[Report], lines: int = 0) -> RunLog:
    journal = RunLog(folder, lines)
    for report in reports:
        journal.take(report)
    journal.flush()
    return journal


def kinds(path: Path) -> list[str]:
    return [record["kind"] for record in files.read_lines(path).records]


def test_equal_runs_on_machines_of_different_speed_leave_equal_metrics(tmp_path: Path) -> None:
    for name, seconds in (("slow", 9.0), ("fast", 0.1)):
        (tmp_path / name).mkdir()
        kept(tmp_path / name, run(1, 30, seconds))
    slow, fast = ((tmp_path / name / RunFile.METRICS).read_bytes() for name in ("slow", "fast"))
    assert slow == fast and slow.count(b"\n") == 34
    assert (tmp_path / "slow" / RunFile.EVENTS).read_bytes() != (tmp_path / "fast" / RunFile.EVENTS).read_bytes()


@pytest.mark.parametrize("stopped_at", [11, 15, 20])
def test_a_run_that_goes_on_from_a_checkpoint_leaves_the_bytes_of_one_that_never_stopped(
    tmp_path: Path, stopped_at: int
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    kept(whole, run(1, 30, 1.0))
    kept(broken, run(1, stopped_at, 2.0))  # with its end line, as after Ctrl-C
    journal = kept(broken, run(11, 30, 3.0), lines=11)
    assert (broken / RunFile.METRICS).read_bytes() == (whole / RunFile.METRICS).read_bytes()
    assert journal.lines == 34


def test_without_dropping_the_later_lines_a_resumed_run_would_tell_steps_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_keep", lambda *_: None)
    kept(tmp_path, run(1, 15, 1.0))
    kept(tmp_path, run(11, 30, 1.0), lines=11)
    steps = [
        record["step"] for record in files.read_lines(tmp_path / RunFile.METRICS).records if record["kind"] == "step"
    ]
    assert steps.count(12) == 2


def test_a_line_that_a_crash_tore_is_dropped(tmp_path: Path) -> None:
    kept(tmp_path, run(1, 10, 1.0))
    path = tmp_path / RunFile.METRICS
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    journal = kept(tmp_path, iter([stepped(11)]), lines=10)
    assert journal.lines == 11
    assert not files.read_lines(path).torn


def test_each_kind_of_report_goes_to_its_file(tmp_path: Path) -> None:
    notice = Notice(10, "memory.halved", "half the rows", "--accumulate 2")
    kept(tmp_path, iter([*run(10, 10, 1.0), notice]))
    assert kinds(tmp_path / RunFile.METRICS) == ["step", "validation", "end"]
    assert kinds(tmp_path / RunFile.EVENTS) == ["start", "speed", "speed", "checkpoint", "end", "notice"]
    begun, *_, last = files.read_lines(tmp_path / RunFile.EVENTS).records
    assert begun["environment"]["device"] == "cpu" and begun["when"].startswith("20")
    assert (last["code"], last["fix"]) == ("memory.halved", "--accumulate 2")
    step = files.read_lines(tmp_path / RunFile.METRICS).records[0]
    assert list(step)[:5] == ["kind", "step", "epoch", "progress", "loss"]
    assert not {"speed", "when", "seconds"} & set(step)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_null(tmp_path: Path, value: float) -> None:
    kept(tmp_path, iter([stepped(1, loss=value), Validated(1, 0, {"loss": value}, False, False, (), pace(1.0))]))
    step, validation = (json.loads(line) for line in (tmp_path / RunFile.METRICS).read_text().splitlines())
    assert step["loss"] is None and validation["metrics"] == {"loss": None}


def test_a_sample_of_a_million_characters_or_of_half_a_character_is_still_a_line(tmp_path: Path) -> None:
    samples = (Sample("x" * 1_000_000, "\ud800", "y", False),)
    kept(tmp_path, iter([Validated(1, 0, {}, False, False, samples, pace(1.0))]))
    (sample,) = files.read_lines(tmp_path / RunFile.METRICS).records[0]["samples"]
    assert len(sample["input"]) == 500 and sample["predicted"] == "?"


@pytest.mark.slow
def test_a_thousand_steps_in_a_second_are_synced_together_and_before_a_checkpoint(tmp_path: Path) -> None:
    hour = [100.0]
    journal = RunLog(tmp_path, 0, clock=lambda: hour[0])
    journal.take(stepped(1))
    for step in range(2, 1_000):
        hour[0] += 0.001
        journal.take(stepped(step))
    assert len(files.read_lines(tmp_path / RunFile.METRICS).records) == 1 and journal.lines == 999
    hour[0] -= 3_600  # a clock that is set back holds nothing up
    journal.take(stepped(1_000))
    assert len(files.read_lines(tmp_path / RunFile.METRICS).records) == 1_000
    journal.take(stepped(1_001))
    journal.flush()
    assert len(files.read_lines(tmp_path / RunFile.METRICS).records) == 1_001


def test_a_full_disk_stops_no_step_is_told_at_the_checkpoint_and_loses_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DurableError("the disk is full")

    journal = RunLog(tmp_path, 0)
    with monkeypatch.context() as broken:
        broken.setattr(journal_module, "append_lines", full)
        journal.take(stepped(1))
        with pytest.raises(DurableError, match="full"):
            journal.flush()
    journal.take(stepped(2))
    journal.flush()
    assert [record["step"] for record in files.read_lines(tmp_path / RunFile.METRICS).records] == [1, 2]


def test_a_log_shorter_than_its_checkpoint_knew_is_refused(tmp_path: Path) -> None:
    kept(tmp_path, run(1, 3, 1.0))
    with pytest.raises(DamagedError, match="has 4 lines; the checkpoint expects 9") as caught:
        RunLog(tmp_path, 9)
    assert "new folder" in caught.value.fix
