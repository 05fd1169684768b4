"""Claims about the files for TensorBoard: TensorBoard itself reads back what a run said."""

import builtins
import math
import struct
from pathlib import Path
from typing import Any

import pytest

from seqloom.errors import DurableError, MissingExtraError
from seqloom.training import events as log
from seqloom.training.events import Ended, Report, Speed, Started, Stepped, Validated, drawn, require_tensorboard
from seqloom.training.state import Environment

PACE = Speed(1.0, 100.0, 0.0, 1, None)


def begun(step: int) -> Started:
    here = Environment(seqloom="", torch="", python="", device="cpu", capability="", threads=1, ranks=1, sharded=False)
    return Started(Path("run"), step, 1, 1, None, 0, here, ())


def stepped(step: int, loss: float) -> Stepped:
    return Stepped(step, 0, 0.5, loss, 1e-3, 1.0, 2.0, 0.0, 0, step, 0.25, PACE)


def validated(step: int) -> Validated:
    return Validated(step, 0, {"accuracy": step / 1_000, "loss": math.nan}, True, True, (), PACE)


def run() -> list[Report]:
    reports: list[Report] = [begun(0)]
    for step in range(1, 301):
        reports += [stepped(step, 1 / step), *([validated(step)] if step % 100 == 0 else [])]
    return [*reports, stepped(301, 1e300), Ended(301, "done", 300, 300, {}, PACE, 0)]


def read(folder: Path) -> Any:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder))
    found.Reload()
    return found


def as_float(value: float) -> float:
    (found,) = struct.unpack("<f", struct.pack("<f", value))
    return float(found)


@pytest.mark.slow
def test_tensorboard_reads_back_every_point_and_the_reports_go_on(tmp_path: Path) -> None:
    assert list(drawn(iter(run()), tmp_path / "events")) == run()
    assert len(list((tmp_path / "events").iterdir())) == 4
    found = read(tmp_path / "events")
    losses = {point.step: point.value for point in found.Scalars("train/loss")}
    assert losses == {step: as_float(1 / step) for step in range(1, 301)}
    assert [point.step for point in found.Scalars("dev/accuracy")] == [100, 200, 300]
    assert "dev/loss" not in found.Tags()["scalars"]
    assert len(found.Scalars("speed/tokens per second")) == 301


def test_a_run_that_goes_on_replaces_the_points_after_its_checkpoint(tmp_path: Path) -> None:
    first = [begun(0), *(stepped(step, 1.0) for step in range(1, 11)), validated(10)]  # and then it is killed
    second = [begun(6), *(stepped(step, 2.0) for step in range(7, 13)), validated(12)]
    for reports in (first, second):
        list(drawn(iter(reports), tmp_path))
    points = [(point.step, point.value) for point in read(tmp_path).Scalars("train/loss")]
    assert points == [*((step, 1.0) for step in range(1, 7)), *((step, 2.0) for step in range(7, 13))]
    assert [point.step for point in read(tmp_path).Scalars("dev/accuracy")] == [12]


@pytest.mark.slow
def test_points_of_many_validations_within_a_second_are_read_in_their_order(tmp_path: Path) -> None:
    reports = [report for step in range(1, 25) for report in (stepped(step, 1.0), validated(step))]
    list(drawn(iter(reports), tmp_path))
    assert [point.step for point in read(tmp_path).Scalars("dev/accuracy")] == [*range(1, 25)]


def test_a_disk_that_is_full_half_way_leaves_no_torn_file_and_the_points_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise DurableError("the disk is full")

    reports = drawn(iter(run()), tmp_path / "events")
    with monkeypatch.context() as patched:
        patched.setattr(log, "write_file", full)
        for report in reports:
            if isinstance(report, Validated):
                break
    assert isinstance(list(reports)[-1], Ended)
    assert [point.step for point in read(tmp_path / "events").Scalars("train/loss")] == [*range(1, 301)]


@pytest.mark.slow
def test_a_disk_that_refuses_stops_no_run_and_the_points_come_later(tmp_path: Path) -> None:
    (tmp_path / "events").write_text("in the way")
    reports = drawn(iter(run()), tmp_path / "events")
    for report in reports:
        if isinstance(report, Validated):
            break
    (tmp_path / "events").unlink()
    assert isinstance(list(reports)[-1], Ended)
    assert [point.step for point in read(tmp_path / "events").Scalars("train/loss")] == [*range(1, 301)]


def test_without_tensorboard_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("tensorboard"):
            raise ModuleNotFoundError("No module named 'tensorboard'", name="tensorboard")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"tensorboard is not installed.*pip install 'seqloom\[tensorboard\]'"):
        require_tensorboard()
