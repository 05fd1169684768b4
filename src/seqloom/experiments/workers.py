"""Shared by comparing and tuning: a plan of many runs, the training of one, and worker processes.

A worker communicates in texts through a pipe. It stops on SIGTERM only: it saves and exits. If a worker dies, its run
is a run folder, which the next start resumes.
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

from seqloom.config.data import AskedEncoding, DataConfig
from seqloom.config.training import TrainingConfig
from seqloom.errors import ConfigError, DataError, HeldError, KernelError, SeqloomError
from seqloom.files.disk import make_folder, write_file
from seqloom.files.folders import remove_folder
from seqloom.files.layouts import RunFile
from seqloom.files.lock import hold
from seqloom.report.document import Shown
from seqloom.training.devices import AnyPrecision, Device, OutOfMemoryError, choose_device, ran_out
from seqloom.training.events import Ended, Report
from seqloom.training.launcher import end
from seqloom.training.resolve import Resolved
from seqloom.training.run import train_run
from seqloom.training.session import StopSignals

MOST_JOBS = 256
POLL = 0.3  # seconds between checks for a stop
STOPPED, DISK = 128, 4  # exit codes; the number of a signal is added to the first

# What may fail in one run while others go on. Memory that runs out may be any of the last three.
FAILURES = (ConfigError, DataError, KernelError, OutOfMemoryError, MemoryError, RuntimeError)

Why = Literal["done", "seconds", "stopped", "disk"]  # why it ended: all done, time is up, a signal, the disk
Work = Callable[..., Iterator[bytes]]  # (receive, arguments): yields the messages of the worker


class Interrupted(Exception):  # noqa: N818  # not an error: the work is resumed later
    """A run was stopped, for a reason that stops all others too."""

    def __init__(self, why: Why, exit_code: int) -> None:
        self.why, self.exit_code = why, exit_code


def reason_of(error: BaseException) -> str:
    """Why a run failed, in one line; an error that is none of its own is raised again."""
    if isinstance(error, SeqloomError):
        return error.in_brief
    if not ran_out(error):
        raise error
    return f"out of memory ({str(error).partition(chr(10))[0] or type(error).__name__})"


class RunsPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Data, settings, device and folder of many runs; workers get it as JSON."""

    data: DataConfig  # as given; training does not read its test set
    out: str
    settings: dict[str, Any] = {}  # of `TrainingConfig`, as plain data: the same in every run
    encoding: AskedEncoding | None = None
    device: str = "auto"
    workers: int = 0  # processes that load data, for each run

    @property
    def folder(self) -> Path:
        return Path(self.out)

    @property
    def results_folder(self) -> Path:
        """The folder of results.json and report.html."""
        return self.folder

    @property
    def cache(self) -> Path:
        """The cache of prepared data, so that data is read once."""
        return self.folder / "prepared"

    @property
    def shared(self) -> dict[str, Any]:
        """The settings that all runs share."""
        config = TrainingConfig(**self.settings)
        return {name: getattr(config, name) for name in self.settings}

    def asked(self, first: Resolved) -> dict[str, Any]:
        """Return the settings that identify an experiment; paths may differ between machines."""
        return {
            "task": first.config.task,
            "data": sorted(str(one) for one in first.facts.fingerprints.values()),
            "split": first.facts.split,
            "encoding": first.config.encoding,
            "settings": self.settings,
        }

    def chosen_device(self, precision: AnyPrecision = "auto") -> Device:
        """The device of all runs."""
        return choose_device(self.device, precision)  # type: ignore[arg-type]  # an unavailable device is rejected

    def trained(self, folder: Path, resolved: Resolved) -> Iterator[Report]:
        """The events of a run, which may have ended before; Interrupted if it is to be resumed later."""
        device = self.chosen_device(resolved.config.training.precision)
        with closing(train_run(folder, resolved, device=device, workers=self.workers)) as reports:  # type: ignore[type-var]
            for report in reports:
                yield report
                if isinstance(report, Ended) and report.reason in ("stopped", "disk"):
                    raise Interrupted(report.reason, report.exit_code)

    def write(self, found: Shown) -> None:
        """Write results.json and report.html."""
        make_folder(self.results_folder)
        write_file(self.results_folder / "results.json", msgspec.json.format(msgspec.json.encode(found), indent=2))
        write_file(self.results_folder / "report.html", found.html())


def remove_weights(run: Path) -> bool:
    """Remove the weights of a run; returns whether there were any."""
    found = [run / name for name in (RunFile.CHECKPOINTS, RunFile.MODEL) if (run / name).is_dir()]
    if not found:
        return False
    with suppress(HeldError), hold(run):  # its worker may still be running; then they are removed later
        for folder in found:
            remove_folder(folder)
        return True
    return False


def require_jobs(jobs: int) -> None:
    """Raise ConfigError for an impossible number of jobs."""
    if not 1 <= jobs <= MOST_JOBS:
        raise ConfigError(f"--jobs {jobs}", fix=f"give 1 to {MOST_JOBS}")


class Worker(NamedTuple):
    """A process, and our end of the pipe to it."""

    process: BaseProcess
    pipe: Connection

    def give(self, text: bytes) -> None:
        """Send it a message."""
        with suppress(OSError):  # it has died; its closed pipe shows it
            self.pipe.send_bytes(text)

    def lost(self) -> str:
        """Why it died; empty if it did not, or because of the disk."""
        code = self.process.exitcode or 0
        if code in (0, DISK):
            return ""
        number = -code if code < 0 else code - STOPPED
        named = signal.Signals(number).name if number in signal.valid_signals() else f"an error, exit code {code}"
        return f"a worker was stopped by {named}"


class Workers:
    """`count` processes; each calls `work` with a function that receives a text, and the given arguments."""

    def __init__(self, count: int, work: Work, *given: object) -> None:
        self._count, self._work, self._given = count, work, given
        self.all: list[Worker] = []
        self.stopped: int | None = None  # by this signal

    def messages(self) -> Iterator[tuple[Worker, bytes] | None]:
        """The messages of the workers, and None at least every `POLL` seconds, until all have exited."""
        context = multiprocessing.get_context("spawn")
        with StopSignals() as stopping:
            try:
                for _ in range(self._count):
                    ours, theirs = context.Pipe()
                    process = context.Process(target=_work, args=(theirs, self._count, self._work, self._given))
                    process.start()
                    theirs.close()  # so that the pipe closes with the process
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
        """What stopped all workers early, if anything: a signal, or a disk error."""
        if self.stopped is not None:
            return Interrupted("stopped", STOPPED + self.stopped)
        return Interrupted("disk", DISK) if any(worker.process.exitcode == DISK for worker in self.all) else None


def _work(pipe: Connection, count: int, work: Work, given: tuple[object, ...]) -> None:
    """Send all messages of the work; the exit code says why it ended."""
    for number in (
        signal.SIGINT,
        signal.SIGHUP,
    ):  # the terminal sends them to all processes; the parent stops workers by SIGTERM
        signal.signal(number, signal.SIG_IGN)
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // count))
    try:
        for text in work(pipe.recv_bytes, *given):
            pipe.send_bytes(text)
    except Interrupted as interruption:
        raise SystemExit(interruption.exit_code) from None
    except (EOFError, BrokenPipeError):  # the parent is gone
        raise SystemExit(1) from None
