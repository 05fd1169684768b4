"""What comparing and tuning share: a plan of many runs, the training of one, and several processes at work on a plan.

A worker gets texts and answers with texts, through a pipe: nothing of the process that started it is in it. It hears of
a stop by SIGTERM alone, saves and leaves. A worker that dies takes its work with it for now: whatever it trained is a
run folder, which goes on with the next start.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.config.training import TrainingConfig
from seqloom.errors import ConfigError
from seqloom.files.disk import write_file
from seqloom.report.document import Shown
from seqloom.training.devices import AnyPrecision, Device, choose_device
from seqloom.training.events import Ended, Report
from seqloom.training.launcher import end
from seqloom.training.resolve import Resolved
from seqloom.training.run import train_run
from seqloom.training.session import Stopping

MOST_JOBS = 256
POLL = 0.3  # seconds between looks whether somebody asked to stop
STOPPED, DISK = 128, 4  # exit codes; the number of a signal is added to the first

Why = Literal["done", "seconds", "stopped", "disk"]  # many runs ended: all that were wanted; time, a signal, the disk
Work = Callable[..., Iterator[bytes]]  # (receive, what was given): what it yields is what the worker says


class Interrupted(Exception):  # noqa: N818  # no error: the work goes on another time
    """A run stopped before its end, for a reason that concerns all the others too."""

    def __init__(self, why: Why, exit_code: int) -> None:
        self.why, self.exit_code = why, exit_code


class RunsPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which data, read how, trained where, and kept in which folder; workers get it as JSON."""

    data: DataConfig  # as people gave it; runs open it sealed, as all training does
    out: str
    settings: dict[str, Any] = {}  # of `TrainingConfig`, as plain values: the same in every run
    encoding: EncodingConfig | None = None
    device: str = "auto"
    workers: int = 0  # processes that load data, for each run

    @property
    def folder(self) -> Path:
        """Where runs and results lie."""
        return Path(self.out)

    @property
    def cache(self) -> Path:
        """Where prepared data is kept between runs: beside them, so that it is read once."""
        return self.folder / "prepared"

    @property
    def shared(self) -> dict[str, Any]:
        """The settings that all runs share, as what they are."""
        config = TrainingConfig(**self.settings)
        return {name: getattr(config, name) for name in self.settings}

    def asked(self, first: Resolved) -> dict[str, Any]:
        """What makes two plans the same experiment; where files lie may differ between machines."""
        return {
            "task": first.config.task,
            "data": sorted(str(one) for one in first.facts.fingerprints.values()),
            "split": first.facts.split,
            "encoding": first.config.encoding,
            "settings": self.settings,
        }

    def chosen_device(self, precision: AnyPrecision = "auto") -> Device:
        """Where runs are trained and answer."""
        return choose_device(self.device, precision)  # type: ignore[arg-type]  # one that there is not is refused

    def trained(self, folder: Path, resolved: Resolved) -> Iterator[Report]:
        """The reports of a run, which may have ended before; Interrupted where it is to go on later."""
        device = self.chosen_device(resolved.config.training.precision)
        with closing(train_run(folder, resolved, device=device, workers=self.workers)) as reports:  # type: ignore[type-var]
            for report in reports:
                yield report
                if isinstance(report, Ended) and report.why in ("stopped", "disk"):
                    raise Interrupted(report.why, report.exit_code)

    def write(self, found: Shown) -> None:
        """Write what came out, for programs and as a page."""
        write_file(self.folder / "results.json", msgspec.json.format(msgspec.json.encode(found), indent=2))
        write_file(self.folder / "report.html", found.html())


def require_jobs(jobs: int) -> None:
    """Refuse a number of runs at the same time that cannot be meant."""
    if not 1 <= jobs <= MOST_JOBS:
        raise ConfigError(f"{jobs} jobs", fix=f"take 1 to {MOST_JOBS}")


class Worker(NamedTuple):
    """A process, and our end of the pipe to it."""

    process: BaseProcess
    pipe: Connection

    def give(self, text: bytes) -> None:
        """Send it something to do."""
        with suppress(OSError):  # it died; the end of its pipe says so
            self.pipe.send_bytes(text)

    def lost(self) -> str:
        """Why it ended before its time; empty if it did not, or if the disk is to blame."""
        code = self.process.exitcode or 0
        if code in (0, DISK):
            return ""
        number = -code if code < 0 else code - STOPPED
        named = signal.Signals(number).name if number in signal.valid_signals() else f"an error, exit code {code}"
        return f"a worker was ended by {named}"


class Workers:
    """`count` processes; each calls `work` with a function that waits for a text, and with what else is given."""

    def __init__(self, count: int, work: Work, *given: object) -> None:
        self._count, self._work, self._given = count, work, given
        self.all: list[Worker] = []
        self.stopped: int | None = None  # by this signal

    def said(self) -> Iterator[tuple[Worker, bytes] | None]:
        """What the workers say, and None at least every `POLL` seconds, until all of them have left."""
        context = multiprocessing.get_context("spawn")
        with Stopping() as stopping:
            try:
                for _ in range(self._count):
                    ours, theirs = context.Pipe()
                    process = context.Process(target=_work, args=(theirs, self._count, self._work, self._given))
                    process.start()
                    theirs.close()  # so that the end of the process is the end of the pipe
                    self.all.append(Worker(process, ours))
                open_pipes = {worker.pipe: worker for worker in self.all}
                while open_pipes:
                    yield None
                    for ready in wait(list(open_pipes), timeout=POLL):
                        worker = open_pipes[ready]  # type: ignore[index]
                        try:
                            text = worker.pipe.recv_bytes()
                        except (EOFError, OSError):
                            del open_pipes[worker.pipe]
                            continue
                        yield worker, text
                    if stopping.signal is not None:
                        self.stopped = stopping.signal
                        end([worker.process for worker in self.all])
            except BaseException:
                end([worker.process for worker in self.all])
                raise
            for worker in self.all:
                worker.process.join()
            self.stopped = stopping.signal

    def interruption(self) -> Interrupted | None:
        """What ended all of them before their work was done, if something did: a signal, or a disk that refused."""
        if self.stopped is not None:
            return Interrupted("stopped", STOPPED + self.stopped)
        return Interrupted("disk", DISK) if any(worker.process.exitcode == DISK for worker in self.all) else None


def _work(pipe: Connection, count: int, work: Work, given: tuple[object, ...]) -> None:
    """Say all that comes of the work; the exit code tells why it ended."""
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to all; who started it says it by SIGTERM
        signal.signal(number, signal.SIG_IGN)
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // count))
    try:
        for text in work(pipe.recv_bytes, *given):
            pipe.send_bytes(text)
    except Interrupted as interruption:
        raise SystemExit(interruption.exit_code) from None
    except (EOFError, BrokenPipeError):  # whoever started it is gone
        raise SystemExit(1) from None
