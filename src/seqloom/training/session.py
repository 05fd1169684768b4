"""What a run works with: everything that is fixed before its first step."""

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import nn

from seqloom.config.training import RunConfig
from seqloom.data.prepared import Prepared
from seqloom.files.disk import reached
from seqloom.tasks.task import Task
from seqloom.training.devices import Device, Ranks
from seqloom.training.events import Pace
from seqloom.training.run_folder import RunFolder

# Signals that ask a run to stop: the first is remembered, and the loop saves and ends; the second ends at once.
#
#     SIGINT   Ctrl-C                 exit 130
#     SIGTERM  kill, a job scheduler  exit 143
#     SIGHUP   the terminal is gone   exit 129; one that is ignored (nohup) stays so
#
# Nothing is lost by the second: what is saved is whole, and a save that is under way has no name yet.

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopping:
    """A block in which signals are remembered; `signal` is the number of the first, None as long as there is none.

    Only the main thread hears of signals; in another one the block changes nothing.

    >>> with Stopping() as stopping:
    ...     os.kill(os.getpid(), signal.SIGTERM)
    ...     stopping.signal
    15
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._heard) for number in heard}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            # None: a handler that was not set from Python and cannot be set from here
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            os._exit(128 + number)  # no clean-up: it may be what hangs
        self.signal = number
        reached("signal")


class Session(NamedTuple):
    """A run folder, a configuration, data without its test part, and where to compute."""

    folder: RunFolder
    config: RunConfig
    prepared: Prepared
    task: Task
    model: nn.Module  # fresh, or with the weights it starts from; on the device
    ranks: Ranks
    device: Device
    stopping: Stopping
    workers: int = 2
    said: tuple[str, ...] = ()


# How fast a run goes: seconds, symbols per second, the share of waiting for data, memory, and what remains.


class Clock:
    """Measures a run from now on; `before` are the seconds of earlier starts.

    What a run does may depend on `agreed` only, the seconds of process 0 when all last agreed: no two clocks are alike,
    and processes that take another rate, or end at another step, do not train one model any more.
    """

    def __init__(self, before: float, device: torch.device) -> None:
        self.before = self.agreed = before
        self.device = device
        self.started = self.marked = time.monotonic()
        self.begun_share: float | None = None
        self.symbols = 0  # since the last pace
        self.waiting = 0.0

    @property
    def seconds(self) -> float:
        """Of training since the run began, stops not counted."""
        return self.before + time.monotonic() - self.started

    def agree(self, ranks: Ranks) -> None:
        """Set `agreed` to what process 0 has now. All must come here."""
        mine = self.seconds if ranks.rank == 0 else 0.0
        self.agreed = mine if ranks.count == 1 else float(ranks.sum(torch.tensor(mine, dtype=torch.float64)))

    @contextmanager
    def data(self) -> Iterator[None]:
        """A block in which a step waits for its data."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.waiting += time.monotonic() - began

    @contextmanager
    def aside(self) -> Iterator[None]:
        """A block whose time is not that of steps: a look at the dev part, a checkpoint."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.marked += time.monotonic() - began

    def pace(self, share: float) -> Pace:
        """The pace of the steps since it was last asked for."""
        pace = self.now(share)
        self.marked, self.symbols, self.waiting = time.monotonic(), 0, 0.0
        return pace

    def now(self, share: float) -> Pace:
        """The same, and the measure goes on."""
        passed = max(time.monotonic() - self.marked, 1e-9)
        return Pace(
            seconds=self.seconds,
            symbols_per_second=self.symbols / passed,
            waited=min(1.0, self.waiting / passed),
            memory=peak_memory(self.device),
            remaining=self._remaining(share),
        )

    def _remaining(self, share: float) -> float | None:
        if self.begun_share is None:
            self.begun_share = share
            return None
        done = share - self.begun_share
        return (time.monotonic() - self.started) * (1 - share) / done if done > 0 else None


def peak_memory(device: torch.device) -> int:
    """Bytes: the peak of the GPU's memory, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
