"""Claims about the files for TensorBoard: TensorBoard itself reads back what a run said."""

import itertools
import math
import struct
from pathlib import Path

import pytest

from seqloom.errors import DurableError
from seqloom.training import tensorboard as module
from seqloom.training.events import Ended, Pace, Report, Stepped, Validated
from seqloom.training.tensorboard import Events, crc32c, record

PACE = Pace(1.0, 100.0, 0.0, 1, None)


def stepped(step: int, loss: float) -> Stepped:
    return Stepped(step, 0, 0.5, loss, 1e-3, 1.0, 2.0, 0.0, 0, step, 0.25, PACE)


def run() -> list[Report]:
    reports: list[Report] = []
    for step in range(1, 301):
        reports.append(stepped(step, 1 / step))
        if step % 100 == 0:
            reports.append(Validated(step, 0, {"accuracy": step / 1_000, "loss": math.nan}, True, True, (), PACE))
    return [*reports, stepped(301, 1e300), Ended(301, "done", 300, 300, {}, PACE, 0)]


def written(folder: Path) -> list[Path]:
    clock = itertools.count(1_000)
    events = Events(folder, clock=lambda: float(next(clock)))
    for report in run():
        events.take(report)
    return sorted(folder.iterdir())


def test_tensorboard_reads_back_every_point(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert len(written(tmp_path / "events")) == 4
    found = accumulator.EventAccumulator(str(tmp_path / "events"))
    found.Reload()
    losses = {point.step: point.value for point in found.Scalars("train/loss")}
    assert losses == {step: struct.unpack("<f", struct.pack("<f", 1 / step))[0] for step in range(1, 301)}
    assert [point.step for point in found.Scalars("dev/accuracy")] == [100, 200, 300]
    assert "dev/loss" not in found.Tags()["scalars"]


def test_every_record_holds_its_length_and_sums(tmp_path: Path) -> None:
    for path in written(tmp_path / "events"):
        data, records = path.read_bytes(), 0
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            assert data[: 16 + length] == record(data[12 : 12 + length])
            data, records = data[16 + length :], records + 1
        assert records > 1


def test_a_changed_byte_has_another_sum() -> None:
    assert len({crc32c(bytes([byte, 0, 7])) for byte in range(256)}) == 256


def test_a_full_disk_stops_no_run_and_the_points_come_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise DurableError("the disk is full")

    events = Events(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(module, "write_file", full)
        for report in run()[:101]:
            events.take(report)
    assert list(tmp_path.iterdir()) == []
    events.take(Ended(100, "done", 100, 100, {}, PACE, 0))
    (path,) = tmp_path.iterdir()
    assert path.read_bytes().count(b"train/loss") == 100
