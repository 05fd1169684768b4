"""RUN/model and a disk that refuses: a run goes on, says so, and the best weights are shipped in the end."""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.bundle import read_bundle
from seqloom.config.training import StepsConfig
from seqloom.errors import DamagedError, DurableError
from seqloom.files import disk
from seqloom.training import checkpoint, loop, validation
from seqloom.training.devices import Alone
from seqloom.training.events import Notice, Report, Saved, Validated
from seqloom.training.run import train_run
from training_common import ended, only, resolved, write_data
from training_common import run as run_with

PAGES = re.compile(r"\.html|\.md")  # they are written when the run is over, by whoever reads its reports
SHORT: dict[str, Any] = {"duration": StepsConfig(steps=6), "validate_every": 2, "log_every": 2}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path)


class Disk:
    """A disk that refuses to create files whose path says so, from the moment on that a test decides."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refuses: Callable[[Path], bool] = lambda _: False
        create, append = disk.RealFiles.create, disk.RealFiles.open_to_append

        def refused(path: Path) -> None:
            if self.refuses(path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

        monkeypatch.setattr(disk.RealFiles, "create", lambda it, path, mode: refused(path) or create(it, path, mode))
        monkeypatch.setattr(disk.RealFiles, "open_to_append", lambda it, path: refused(path) or append(it, path))


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def of_model(path: Path) -> bool:
    return ".model." in str(path)


def notices(reports: list[Report]) -> list[str]:
    return [one.code for one in only(reports, Notice)]


def shipped(out: Path) -> dict[str, torch.Tensor]:
    return read_bundle(out / "model").weights


def kept(out: Path, step: int) -> dict[str, torch.Tensor]:
    """The weights of a checkpoint that are shipped: averages where it has them."""
    tensors = checkpoint.read(out / "checkpoints" / f"step-{step:08d}", Alone()).tensors
    return tensors["model"] | tensors.get("ema", {})


def same(some: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(others[name], tensor) for name, tensor in some.items())


def going(out: Path, data: Path, **settings: Any) -> Iterator[Report]:
    return train_run(out, resolved(data, **(SHORT | settings)), workers=0)


def run(out: Path, data: Path, **settings: Any) -> list[Report]:
    return run_with(out, data, **(SHORT | settings))


@pytest.mark.slow
def test_a_disk_that_refuses_the_model_for_a_while_is_told_and_the_best_weights_are_shipped_in_the_end(
    tmp_path: Path, data: Path, full: Disk
) -> None:
    full.refuses = of_model
    reports = []
    for report in going(tmp_path / "run", data, keep_checkpoints=9):
        reports.append(report)
        if isinstance(report, Saved) and report.step == 4:
            full.refuses = lambda _: False
    last = ended(reports)
    assert (last.reason, last.exit_code) == ("done", 0) and "disk.model" in notices(reports)
    assert same(shipped(tmp_path / "run"), kept(tmp_path / "run", last.best_step))


@pytest.mark.slow
@pytest.mark.parametrize("average", [0.0, 0.9])
def test_a_disk_that_refuses_the_model_to_the_end_ends_with_code_4_and_the_next_start_ships_it(
    tmp_path: Path, data: Path, full: Disk, average: float
) -> None:
    full.refuses = of_model
    reports = run(tmp_path / "run", data, ema=average)
    assert (ended(reports).reason, ended(reports).exit_code) == ("disk", 4)
    assert not (tmp_path / "run" / "model").exists() and not any(one.problem for one in only(reports, Saved))
    full.refuses = lambda _: False
    again = run(tmp_path / "run", data, ema=average)
    assert (ended(again).reason, ended(again).exit_code) == ("done", 0) and not only(again, Validated)
    assert same(shipped(tmp_path / "run"), kept(tmp_path / "run", ended(again).best_step))


@pytest.mark.slow
def test_a_disk_that_is_full_for_good_lets_three_saves_fail_and_ends_the_run_with_code_4(
    tmp_path: Path, data: Path, full: Disk
) -> None:
    reports: list[Report] = []
    for report in going(tmp_path / "run", data, duration=StepsConfig(steps=100)):
        reports.append(report)
        if isinstance(report, Saved) and report.step == 2:
            full.refuses = lambda path: (
                tmp_path / "run" in path.parents and ".html" not in path.name and ".md" not in path.name
            )
    assert [bool(one.problem) for one in only(reports, Saved)] == [False, True, True, True]
    assert (ended(reports).reason, ended(reports).exit_code, ended(reports).step) == ("disk", 4, 8)
    found, skipped = checkpoint.newest(tmp_path / "run" / "checkpoints", Alone())
    assert found is not None and found.run_state.step == 2 and not skipped
    assert same(shipped(tmp_path / "run"), kept(tmp_path / "run", 2))


@pytest.mark.slow
def test_without_the_guard_a_full_disk_ends_the_run_at_its_first_model(
    tmp_path: Path, data: Path, full: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "agreed", lambda _, work: (work(), ""))
    full.refuses = of_model
    with pytest.raises(DurableError, match="No space left"):
        run(tmp_path / "run", data)


@pytest.mark.slow
def test_a_last_checkpoint_that_cannot_be_written_is_no_success(tmp_path: Path, data: Path, full: Disk) -> None:
    full.refuses = lambda path: ".step-00000006" in str(path)
    assert (ended(run(tmp_path / "run", data)).reason, ended(run(tmp_path / "run", data)).exit_code) == ("disk", 4)
    full.refuses = lambda _: False
    assert ended(run(tmp_path / "run", data)).reason == "done"


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["removed", "damaged"])
@pytest.mark.parametrize("settings", [{}, {"average_checkpoints": 3, "keep_checkpoints": 3}], ids=["best", "mean"])
def test_a_finished_run_makes_a_model_that_is_gone_or_damaged_anew(
    tmp_path: Path, data: Path, harm: str, settings: dict[str, Any]
) -> None:
    run(tmp_path / "run", data, **settings)
    model, log = tmp_path / "run" / "model", (tmp_path / "run" / "metrics.jsonl").read_bytes()
    before = {path.name: path.read_bytes() for path in model.iterdir() if path.suffix == ".safetensors"}
    if harm == "removed":
        shutil.rmtree(model)
    else:
        (model / "model.safetensors").write_bytes(b"\0" * 9)
    again = run(tmp_path / "run", data, **settings)
    assert notices(again) == ["model.repaired"] and ended(again).exit_code == 0
    assert {name: (model / name).read_bytes() for name in before} == before
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == log


@pytest.mark.slow
def test_where_the_best_step_was_not_kept_the_last_weights_are_better_than_no_model(tmp_path: Path, data: Path) -> None:
    first = run(tmp_path / "run", data, validate_every=2, save_every=6, lr=0.0)
    assert ended(first).best_step == 2
    shutil.rmtree(tmp_path / "run" / "model")
    again = run(tmp_path / "run", data, validate_every=2, save_every=6, lr=0.0)
    assert notices(again) == ["model.other"] and ended(again).exit_code == 0
    assert same(shipped(tmp_path / "run"), kept(tmp_path / "run", 6))


@pytest.mark.slow
def test_without_mending_a_finished_run_leaves_no_model(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "run", data)
    shutil.rmtree(tmp_path / "run" / "model")
    monkeypatch.setattr(loop, "repaired_model", lambda *_: None)
    assert ended(run(tmp_path / "run", data)).exit_code == 0
    assert not (tmp_path / "run" / "model").exists()


class Harmed:
    """A checkpoint loses some of its bytes as soon as the run has saved another one."""

    def __init__(self, reports: Iterator[Report], folder: Path, step: int, after: int) -> None:
        self.reports: list[Report] = []
        for report in reports:
            self.reports.append(report)
            if isinstance(report, Saved) and report.step == after:
                (folder / "checkpoints" / f"step-{step:08d}" / "model.safetensors").write_bytes(b"")


AVERAGED: dict[str, Any] = {
    "average_checkpoints": 3,
    "keep_checkpoints": 9,
    "save_every": 2,
    "validate_every": 100,
    "duration": StepsConfig(steps=7),
}


@pytest.mark.slow
def test_a_damaged_checkpoint_is_left_out_of_the_mean_and_named(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    means: list[int] = []
    mean_of = loop.mean_of
    monkeypatch.setattr(loop, "mean_of", lambda weights: means.append(len(weights)) or mean_of(weights))
    out = tmp_path / "run"
    reports = Harmed(going(out, data, **AVERAGED), out, step=4, after=6).reports
    assert ended(reports).exit_code == 0 and means == [2]
    (notice,) = [one for one in only(reports, Notice) if one.code == "average.damaged"]
    assert "step-00000004" in notice.text


@pytest.mark.slow
def test_without_the_guard_a_damaged_checkpoint_makes_the_run_unfinishable(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "agreed", lambda _, work: (work(), ""))
    with pytest.raises(DamagedError, match="step-00000004"):
        Harmed(going(tmp_path / "run", data, **AVERAGED), tmp_path / "run", step=4, after=6)
