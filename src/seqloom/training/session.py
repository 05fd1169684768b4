"""A training session: everything that is fixed before the first step; signals, and the clock."""

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
from seqloom.training.events import Speed
from seqloom.training.run_folder import RunFolder

# Signals that stop a run: after the first one, the loop saves and ends; the second one ends the process immediately.
#
#     SIGINT   Ctrl-C                 exit 130
#     SIGTERM  kill, a job scheduler  exit 143
#     SIGHUP   the terminal closed    exit 129; stays ignored under nohup
#
# The second one loses nothing: saved checkpoints are complete, and an unfinished one has no final name yet.

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """A context that remembers signals: `signal` is the number of the first one, or None.

    Only the main thread can handle signals; in another thread this does nothing.

    >>> with StopSignals() as stopping:
    ...     os.kill(os.getpid(), signal.SIGTERM)
    ...     stopping.signal
    15
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._handle) for number in handled}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            # None: a handler that was not set from Python and cannot be set from here
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            os._exit(128 + number)  # without cleanup, which may be what hangs
        self.signal = number
        reached("signal")


class Session(NamedTuple):
    """A run folder, a configuration, data without its test set, and the device."""

    folder: RunFolder
    config: RunConfig
    prepared: Prepared
    task: Task
    model: nn.Module  # with its initial weights, on the device
    ranks: Ranks
    device: Device
    stopping: StopSignals
    workers: int = 2
    messages: tuple[str, ...] = ()


# Speed: seconds, tokens per second, the share of time spent waiting for data, memory, and the time left.


class Clock:
    """Measures a run; `before` are the seconds of earlier sessions.

    Decisions may depend on `agreed` only, the seconds of process 0 when all processes last synchronized: clocks differ,
    and all processes must use the same learning rate and stop at the same step.
    """

    def __init__(self, before: float, device: torch.device) -> None:
        self.before = self.agreed = before
        self.device = device
        self.started = self.marked = time.monotonic()
        self.first: tuple[float, float] | None = None  # share and time when the speed was first measured
        self.tokens = 0  # since the last pace
        self.waiting = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of training, without the time between a stop and its resume."""
        return self.before + time.monotonic() - self.started

    def agree(self, ranks: Ranks) -> None:
        """Set `agreed` to the seconds of process 0. All processes must call it."""
        mine = self.seconds if ranks.rank == 0 else 0.0
        self.agreed = mine if ranks.count == 1 else float(ranks.sum(torch.tensor(mine, dtype=torch.float64)))

    @contextmanager
    def data(self) -> Iterator[None]:
        """A context that measures waiting for data."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.waiting += time.monotonic() - began

    @contextmanager
    def aside(self) -> Iterator[None]:
        """A context whose time does not count as training steps: a validation, a checkpoint."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.marked += time.monotonic() - began

    def speed(self, share: float) -> Speed:
        """The speed of the steps since the last call."""
        pace = self.now(share)
        self.marked, self.tokens, self.waiting = time.monotonic(), 0, 0.0
        return pace

    def now(self, share: float) -> Speed:
        """The same without a reset."""
        passed = max(time.monotonic() - self.marked, 1e-9)
        return Speed(
            seconds=self.seconds,
            tokens_per_second=self.tokens / passed,
            data_wait=min(1.0, self.waiting / passed),
            memory=peak_memory(self.device),
            remaining=self._remaining(share),
        )

    def _remaining(self, share: float) -> float | None:
        if self.first is None:
            self.first = share, time.monotonic()
            return None
        done, passed = share - self.first[0], time.monotonic() - self.first[1]
        return passed * (1 - share) / done if done > 0 else None


def peak_memory(device: torch.device) -> int:
    """The peak memory in bytes: of the GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
