"""Units that do nothing any more: dead ones are zero whatever comes, saturated ones stand at an end of their range.

dead        max(0, z) with z < 0 for every element: no gradient ever comes back to it
saturated   tanh(z) near -1 or 1, s(z) near 0 or 1 for nearly every element: what comes back is nearly nothing
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.diagnosis.flow import still
from seqloom.operators.recurrence import Gates
from seqloom.taps import listening, taps
from seqloom.tasks.contract import Task
from seqloom.types import Batch

END = 0.02  # so near to the end of its range a unit gives back a twenty-fifth of the gradient
NEARLY_ALWAYS = 0.95  # of the elements
LISTENED = (".hidden", ".maps", ".gates")


class Units(NamedTuple):
    """The units at one tap, or behind one gate: how many, and which share of them does nothing."""

    name: str
    width: int
    elements: int  # that were looked at
    dead: float
    saturated: float


class _Part(NamedTuple):
    """What is heard at one tap, or of one gate."""

    name: str
    is_gate: bool  # a gate at 0 is at an end of its range too


def units(task: Task, model: nn.Module, batches: Iterable[Batch[Any, Any]]) -> tuple[Units, ...]:
    """The units of a model as they are over these batches."""
    seen: dict[_Part, list[Tensor]] = {}

    def hear(name: str, value: Any) -> None:
        if name.endswith(LISTENED):
            for part, values in _parts(name, value):
                seen.setdefault(part, []).append(values.detach().flatten(0, -2).float().cpu())

    if taps(model):
        with torch.no_grad(), still(model), listening(model, "*", hear):
            for batch in batches:
                task.loss(model, batch, None)
    return tuple(_measured(part, torch.cat(values)) for part, values in seen.items())


def _parts(name: str, value: Any) -> list[tuple[_Part, Tensor]]:
    """What a tap tells: each gate by itself, or the one value that passes."""
    if isinstance(value, Gates):
        return [(_Part(f"{name}.{gate}", True), value.values[:, :, at]) for at, gate in enumerate(value.names)]
    return [(_Part(name, False), value)]


def _measured(part: _Part, values: Tensor) -> Units:
    """The shares among units [N,units]; rows of zeros are padding."""
    values = values[values.abs().sum(dim=1) > 0] if bool(values.any()) else values
    dead = (values == 0).all(dim=0)
    ends = values.abs() >= 1 - END
    if part.is_gate and float(values.min()) >= 0:
        ends |= values <= END
    within = float(values.abs().max()) <= 1  # what has no bounds has no ends
    saturated = (ends.float().mean(dim=0) >= NEARLY_ALWAYS) & within
    return Units(part.name, values.shape[1], len(values), float(dead.float().mean()), float(saturated.float().mean()))
