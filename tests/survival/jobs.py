"""What the forked processes do: a run, perhaps with a guard taken away, with somebody else's draws, with a signal."""

import os
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.data.loader import Loader
from seqloom.durable import failing
from seqloom.training import loop
from seqloom.training.devices import choose_device
from seqloom.training.front import train_run
from seqloom.training.reports import Begun, Ended, Report
from survival.cases import resolved
from survival.twins import TWINS


def train(
    data: str,
    out: str,
    case: str,
    *,
    fail: str = "",
    twin: str = "",
    workers: int = 2,
    prefetch: int = 4,
    draws: bool = False,
    signals: tuple[int, ...] = (),
    after: int = 30,
    seconds: float = 0.0,
    settings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """How a run ended that goes on where it was; the ids of each step are appended to OUT.order while it goes."""
    os.environ["SEQLOOM_FAIL"] = fail
    failing._asked.cache_clear()
    if twin:
        TWINS[twin]()
    Loader.__init__.__kwdefaults__["prefetch"] = prefetch  # type: ignore[attr-defined]
    _recorded(Path(f"{out}.order"), signals, after, seconds)
    reports: list[Report] = []
    found = resolved(case, Path(data), **(settings or {}))
    for report in train_run(Path(out), found, device=choose_device("cpu"), workers=workers):
        reports.append(report)
        if draws:
            random.random(), np.random.rand(), torch.rand(())
    begun, ended = reports[0], reports[-1]
    assert isinstance(begun, Begun) and isinstance(ended, Ended)
    return {"begun": begun.step, "step": ended.step, "why": ended.why, "code": ended.exit_code}


def _recorded(path: Path, signals: tuple[int, ...], after: int, seconds: float) -> None:
    """Let every step be written down before it counts, and signals come behind one of them."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    take = loop._Loop._take

    def recorded(self: Any, step: Any) -> None:
        take(self, step)
        os.write(handle, f"{self.standing.step} {' '.join(step.batch.ids)}\n".encode())
        if signals and self.standing.step == after:
            os.kill(os.getpid(), signals[0])
            for number in signals[1:]:
                threading.Timer(seconds, os.kill, (os.getpid(), number)).start()

    loop._Loop._take = recorded  # type: ignore[method-assign]


