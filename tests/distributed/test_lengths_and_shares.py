"""What several processes must agree on: the time, the mean of checkpoints, the scores of all rows, and a full disk."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from distributed.forking import Forks
from distributed.runs import write_data
from seqloom.config.training import ByLengthConfig, SecondsConfig, StepsConfig
from seqloom.data.check import data_config
from seqloom.files import disk
from seqloom.training import loop, session
from seqloom.training import loop as saving
from seqloom.training.devices import choose_device
from seqloom.training.distributed import joined
from seqloom.training.events import Ended, Notice, Saved, Stepped, Validated
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve
from seqloom.training.run import train_run
from seqloom.training.run_summary import RunScores, read_scores

JOB = "distributed.test_lengths_and_shares:job"
pytestmark = pytest.mark.slow


def job(
    data: str, out: str, sharded: bool = False, seconds: float = 0.0, prepare: tuple[str, ...] = (), **settings: Any
) -> dict[str, Any]:
    """What a run of this process came to; `prepare` are functions of this file that break something first."""
    for name in prepare:
        globals()[name]()
    base = {"batching": ByLengthConfig(batch_tokens=160), "validate_every": 4, "log_every": 1, "patience": 0}
    length = SecondsConfig(seconds=seconds) if seconds else StepsConfig(steps=10)
    request = RunRequest(model="gru", size="nano", dropout=0.0, training=base | {"duration": length} | settings)
    resolved = resolve(data_config((data,), {}), request, cache=Path(data).parent / "cache")
    with joined(sharded=sharded, timeout=20) as ranks:
        reports = list(train_run(Path(out), resolved, ranks=ranks, device=choose_device("cpu"), workers=0))
    last = reports[-1]
    assert isinstance(last, Ended)
    return {
        "end": [last.reason, last.exit_code, last.step],
        "rates": [report.lr for report in reports if isinstance(report, Stepped)],
        "metrics": [report.metrics for report in reports if isinstance(report, Validated)],
        "saved": [not report.problem for report in reports if isinstance(report, Saved)],
        "notices": [report.code for report in reports if isinstance(report, Notice)],
    }


def fast() -> None:
    """The clock of every process but the first runs ahead, and no step takes no time."""
    now = session.Clock.seconds.fget
    assert now is not None
    ahead = 1.0 + float(os.environ["RANK"])
    session.Clock.seconds = property(lambda self: ahead * now(self))  # type: ignore[assignment]


def unagreed() -> None:
    """Every process goes by its own clock."""
    session.Clock.agree = lambda self, _: setattr(self, "agreed", self.seconds)  # type: ignore[method-assign]


def full() -> None:
    """The disk has no room for the model behind the first one, and for no file at all behind the third checkpoint."""
    create, append, made = disk.RealFiles.create, disk.RealFiles.open_to_append, {"models": 0, "manifests": 0}

    def refuse(path: Path) -> None:
        of_model, pages = ".model." in str(path.parent), ".html" in path.name or ".md" in path.name
        made["models"] += of_model and path.name == "manifest.json"
        made["manifests"] += ".step-" in str(path.parent) and path.name == "manifest.json"
        if (of_model and made["models"] > 1) or (made["manifests"] > 3 and not pages):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    disk.RealFiles.create = lambda it, path, mode: refuse(path) or create(it, path, mode)  # type: ignore
    disk.RealFiles.open_to_append = lambda it, path: refuse(path) or append(it, path)  # type: ignore


def unguarded() -> None:
    """What fails on one process is not told to the others."""

    def alone(_: Any, work: Any) -> Any:
        try:
            return work(), ""
        except disk.DurableError as error:
            return None, str(error)

    loop.agreed = saving.agreed = alone  # type: ignore[assignment]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "colors.csv"
    write_data(path)
    return str(path)


def test_a_run_of_some_seconds_goes_by_one_clock(forks: Forks, data: str, tmp_path: Path) -> None:
    asked = {"data": data, "out": str(tmp_path / "run"), "seconds": 0.6, "prepare": ["fast"]}
    first, second = forks.answers(JOB, 2, asked)
    assert first == second and first["end"][:2] == ["done", 0] and len(set(first["rates"])) > 2


def test_processes_that_go_by_their_own_clocks_do_not_train_one_model(forks: Forks, data: str, tmp_path: Path) -> None:
    asked = {"data": data, "out": str(tmp_path / "run"), "seconds": 0.6, "prepare": ["fast", "unagreed"]}
    outcomes = forks.run(JOB, 2, asked)
    assert any(outcome.code for outcome in outcomes) or outcomes[0].answer != outcomes[1].answer


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sharded", [False, True])
def test_the_mean_of_the_last_checkpoints_is_that_of_one_process(
    forks: Forks, data: str, tmp_path: Path, sharded: bool
) -> None:
    asked = {"data": data, "average_checkpoints": 3, "keep_checkpoints": 4, "save_every": 2}
    (one,) = forks.answers(JOB, 1, {**asked, "out": str(tmp_path / "one")})
    two = forks.answers(JOB, 2, {**asked, "out": str(tmp_path / "two"), "sharded": sharded})
    assert two[0]["end"] == one["end"] == ["done", 0, 10] and two[0]["metrics"] == two[1]["metrics"]
    assert len(one["metrics"]) == len(two[0]["metrics"]) == 4  # the last one is that of the mean
    assert two[0]["metrics"][-1] == pytest.approx(one["metrics"][-1], rel=1e-4)


def scores(out: Path) -> RunScores:
    found = read_scores(out / "model")
    assert found is not None
    return found


def test_intervals_and_confusion_are_those_of_all_rows(forks: Forks, data: str, tmp_path: Path) -> None:
    forks.answers(JOB, 1, {"data": data, "out": str(tmp_path / "one")})
    forks.answers(JOB, 2, {"data": data, "out": str(tmp_path / "two")})
    one, two = scores(tmp_path / "one"), scores(tmp_path / "two")
    assert sum(pair.count for pair in two.confusion) == two.dev_rows == one.dev_rows
    assert two.confusion == one.confusion and two.step == one.step
    for name, (low, high) in one.intervals.items():
        assert two.intervals[name] == pytest.approx((low, high), abs=0.25 * abs(high - low) + 1e-3)


def test_a_full_disk_is_the_same_for_all_processes(forks: Forks, data: str, tmp_path: Path) -> None:
    asked = {"data": data, "out": str(tmp_path / "run"), "prepare": ["full"], "save_every": 1}
    first, second = forks.answers(JOB, 2, asked)
    assert first == second and first["end"] == ["disk", 4, 6]
    assert first["saved"] == [True] * 3 + [False] * 3


@pytest.mark.soak
def test_a_full_disk_that_only_one_process_knows_of_ends_in_confusion(forks: Forks, data: str, tmp_path: Path) -> None:
    asked = {"data": data, "out": str(tmp_path / "run"), "prepare": ["full", "unguarded"], "save_every": 1}
    outcomes = forks.run(JOB, 2, asked, limit=8.0)
    assert any(outcome.code for outcome in outcomes)
