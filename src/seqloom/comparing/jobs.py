"""Several runs at the same time on this machine: processes with the same plan, each given one run after the other.

The one who started them hands out the runs, one to each that is free, and hears of every beginning and end through
a pipe. A worker that dies takes its run with it for now: the run folder goes on with the next start.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from typing import NamedTuple

import msgspec

from seqloom.comparing.plan import Entry, Plan
from seqloom.comparing.reports import RunBegun, RunEnded
from seqloom.comparing.running import Interrupted, run
from seqloom.errors import RepeatError, SeqloomError
from seqloom.training.signals import Stopping
from seqloom.training.workers import end

POLL = 0.5  # seconds between looks whether somebody asked to stop
STOPPED, DISK = 128, 4


class _Worker(NamedTuple):
    """A process, and our end of the pipe to it."""

    process: BaseProcess
    pipe: Connection

    @classmethod
    def started(cls, context: SpawnContext, plan: str, jobs: int) -> "_Worker":
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, plan, jobs), daemon=False)
        process.start()
        theirs.close()  # so that the end of the process is the end of the pipe
        return cls(process, ours)

    def give(self, entry: Entry | None) -> None:
        """Hand out a run; None: there is nothing more to do."""
        with suppress(OSError):  # it died; the end of its pipe says so
            self.pipe.send_bytes(msgspec.json.encode(entry))


def one_by_one(plan: Plan, entries: list[Entry]) -> Iterator[RunBegun | RunEnded]:
    """The reports of runs in this process."""
    for entry in entries:
        yield from run(plan, entry)


def together(plan: Plan, entries: list[Entry], jobs: int) -> Iterator[RunBegun | RunEnded]:
    """The reports of runs in `jobs` processes; RepeatError if one of them ended before its time."""
    context = multiprocessing.get_context("spawn")  # nothing of this process is in them but the text of the plan
    waiting, text = list(entries), msgspec.json.encode(plan).decode()
    with Stopping() as stopping:
        count = min(jobs, len(entries))
        workers = [_Worker.started(context, text, count) for _ in range(count)]
        for worker in workers:
            worker.give(waiting.pop(0))
        try:
            yield from _reports(workers, waiting, stopping)
        except BaseException:
            end([worker.process for worker in workers])
            raise
        for worker in workers:
            worker.process.join()
    codes = [worker.process.exitcode or 0 for worker in workers]
    if stopping.signal is not None:
        raise Interrupted("stopped", STOPPED + stopping.signal)
    if DISK in codes:
        raise Interrupted("disk", DISK)
    if lost := [code for code in codes if code]:
        raise RepeatError(f"a worker ended with exit code {lost[0]}", fix="the same command goes on")


def _reports(workers: list[_Worker], entries: list[Entry], stopping: Stopping) -> Iterator[RunBegun | RunEnded]:
    """What the workers tell, until all of them have left."""
    open_pipes = {worker.pipe: worker for worker in workers}
    while open_pipes:
        for ready in wait(list(open_pipes), timeout=POLL):
            worker = open_pipes[ready]  # type: ignore[index]
            try:
                report = _decoded(worker.pipe.recv_bytes())
            except (EOFError, OSError):
                del open_pipes[worker.pipe]
                continue
            yield report
            if isinstance(report, RunEnded):
                worker.give(entries.pop(0) if entries else None)
        if stopping.signal is not None:
            entries.clear()
            end([worker.process for worker in workers])


def _decoded(text: bytes) -> RunBegun | RunEnded:
    kind, fields = msgspec.json.decode(text)
    entry = Entry(*fields.pop(0))
    return RunBegun(entry, *fields) if kind == "begun" else RunEnded(entry, *fields)


def _work(pipe: Connection, plan: str, jobs: int) -> None:
    """Runs until None comes; the exit code says why it ended."""
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to all; who hands out says it by SIGTERM
        signal.signal(number, signal.SIG_IGN)
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))
    whole = msgspec.json.decode(plan, type=Plan)
    try:
        while (entry := msgspec.json.decode(pipe.recv_bytes(), type=Entry | None)) is not None:
            for report in run(whole, entry, jobs):
                kind = "begun" if isinstance(report, RunBegun) else "ended"
                pipe.send_bytes(msgspec.json.encode((kind, tuple(report))))
    except Interrupted as interruption:
        raise SystemExit(interruption.exit_code) from None
    except (EOFError, BrokenPipeError):  # whoever started it is gone
        raise SystemExit(1) from None
    except SeqloomError as error:
        with suppress(OSError):
            pipe.send_bytes(msgspec.json.encode(("ended", (entry, None, 0.0, str(error)))))
        raise SystemExit(1) from None
    raise SystemExit(0)
