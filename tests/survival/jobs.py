"""What the forked processes do: a run, perhaps with a guard taken away, with somebody else's draws, with a signal."""

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.config.training import ByLengthConfig, StepsConfig
from seqloom.data.loader import Loader
from seqloom.files import disk, folders
from seqloom.training import events as log
from seqloom.training import loop, verification
from seqloom.training.devices import choose_device
from seqloom.training.events import Ended, Report, Started
from seqloom.training.run import train_run
from survival.cases import resolved
from survival.twins import TWINS

SIGNALED = 30  # the step behind which signals come


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
    while_saving: bool = False,
    steps: int = 0,
    budget: int = 0,
    cache: str = "",
    eager: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """How a run ended that goes on where it was; the ids of each step are appended to OUT.order while it goes.

    The second of two signals comes at once, or while the checkpoint is written that the first one asked for. An eager
    journal syncs every line, so that a kill leaves many that belong to steps which will be taken again.
    """
    _prepared(fail, twin)
    if eager:
        log.BETWEEN_SYNCS = 0.0
    Loader.__init__.__kwdefaults__["prefetch"] = prefetch
    _recorded(Path(f"{out}.order"), signals, while_saving)
    reports: list[Report] = []
    if steps:
        settings["duration"] = StepsConfig(steps=steps)
    if budget:
        settings["batching"] = ByLengthConfig(batch_tokens=budget)
    found = resolved(case, Path(data), Path(cache or f"{data}/cache"), **settings)
    for report in train_run(Path(out), found, device=choose_device("cpu"), workers=workers):
        reports.append(report)
        if draws:
            random.random(), np.random.rand(), torch.rand(())
    begun, ended = reports[0], reports[-1]
    assert isinstance(begun, Started) and isinstance(ended, Ended)
    return {"begun": begun.step, "step": ended.step, "why": ended.reason, "code": ended.exit_code}


def short(config: str, out: str, fail: str = "", twin: str = "") -> int:
    """The exit code of one of the runs that `seqloom verify resume` compares."""
    _prepared(fail, twin)
    return verification.short_run(Path(config), Path(out), "cpu", 2)


def _prepared(fail: str, twin: str) -> None:
    os.environ["SEQLOOM_FAIL"] = fail
    disk._asked.cache_clear()
    if twin:
        TWINS[twin]()


def _recorded(path: Path, signals: tuple[int, ...], while_saving: bool) -> None:
    """Let every step be written down before anything else happens, and signals come behind one of them."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    take = loop._Loop._take

    def recorded(self: Any, step: Any) -> None:
        take(self, step)
        ids = step.batch.ids if step.batch is not None else ()
        os.write(handle, f"{self.run_state.step} {' '.join(ids)}\n".encode())
        if signals and self.run_state.step == SIGNALED:
            _send(signals, while_saving)

    loop._Loop._take = recorded  # type: ignore[method-assign]


def _send(signals: tuple[int, ...], while_saving: bool) -> None:
    os.kill(os.getpid(), signals[0])
    for number in signals[1:]:
        if while_saving:
            folders.reached = lambda _: os.kill(os.getpid(), number)  # noqa: B023
        else:
            os.kill(os.getpid(), number)
