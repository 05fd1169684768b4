"""How fast a run goes: seconds, symbols per second, the share of waiting for data, memory, and what remains."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from seqloom.training.distributed import Ranks
from seqloom.training.events import Pace


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
        """Nothing; `agreed` is what process 0 has now. All must come here."""
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
