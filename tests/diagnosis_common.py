"""What the tests of the doctor share: lines of runs written by hand, and a task for bare models."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import nn

from seqloom.nn.types import Batch, Loss
from seqloom.tasks.task import Division

STEPS = 400


def steps(
    loss: Callable[[float], float], *, every: int = 10, noise: float = 0.01, seed: int = 0, **fields: Any
) -> list[dict[str, Any]]:
    """The step records of a run whose loss is a function of the share of the run, with noise of its own seed."""
    draws = np.random.default_rng(seed).normal(size=STEPS // every).tolist()
    usual = {"epoch": 0, "lr": 1e-3, "grad_norm": 0.5, "max_grad_norm": 1.0, "clipped": 0.1, "skipped": 0, "tokens": 0}
    usual |= {"padding": 0.05}
    scale = noise * math.sqrt(10 / every)
    records = []
    for number, draw in enumerate(draws, start=1):
        share = number * every / STEPS
        value = loss(share) * (1 + scale * draw)
        given = {name: field(share) if callable(field) else field for name, field in fields.items()}
        records.append({"kind": "step", "step": number * every, "progress": share, "loss": value} | usual | given)
    return records


def looks(losses: Sequence[float]) -> list[dict[str, Any]]:
    """Validations at even distances."""
    every = STEPS // len(losses)
    return [
        {"kind": "validation", "step": every * at, "epoch": at, "metrics": {"loss": loss}, "best": False, "samples": []}
        for at, loss in enumerate(losses, start=1)
    ]


def constant(value: float) -> Callable[[float], float]:
    """The same at every share of a run."""
    return lambda _: value


def falling(share: float) -> float:
    """A healthy loss: fast at first, then slowly, to a tenth."""
    return 2.0 * (0.1 + 0.9 * math.exp(-8 * share))


class BareTask:
    """As much of a task as is needed to look into a model that has a loss."""

    def divided(self, model: nn.Module, pieces: int) -> Division:
        return Division(self, pieces)

    def loss(self, model: nn.Module, batch: Batch[Any, Any], state: Any) -> tuple[Loss, Any]:
        return model.loss(batch), None
