"""Several processes on this machine that work on one plan: what comparing and tuning share.

A worker gets texts and answers with texts, through a pipe: nothing of the process that started it is in it. It hears of
a stop by SIGTERM alone, saves and leaves. A worker that dies takes its work with it for now: whatever it trained is a
run folder, which goes on with the next start.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from seqloom.experiments.plan import Why
from seqloom.training.launcher import end
from seqloom.training.session import Stopping

POLL = 0.3  # seconds between looks whether somebody asked to stop
STOPPED, DISK = 128, 4  # exit codes; the number of a signal is added to the first

Work = Callable[..., Iterator[bytes]]  # (receive, what was given): what it yields is what the worker says


class Interrupted(Exception):  # noqa: N818  # no error: the work goes on another time
    """A run stopped before its end, for a reason that concerns all the others too."""

    def __init__(self, why: Why, exit_code: int) -> None:
        self.why, self.exit_code = why, exit_code


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

    def has_full_disk(self) -> bool:
        """Whether one of them ended because the disk refused."""
        return any(worker.process.exitcode == DISK for worker in self.all)


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
