"""Units that do nothing any more: dead ones are zero whatever comes, saturated ones stand at an end of their range.

dead        max(0, z) with z < 0 for every element: no gradient ever comes back to it
saturated   tanh(z) near -1 or 1, s(z) near 0 or 1 for nearly every element: what comes back is nearly nothing
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.inspection.flow import still
from seqloom.operators.recurrence import Gates
from seqloom.taps import listening, taps
from seqloom.tasks.contract import Task
from seqloom.types import Batch

END = 0.02  # so near to the end of its range a unit gives back a twenty-fifth of the gradient
NEARLY_ALWAYS = 0.95  # of the elements
LISTENED = (".hidden", ".maps", ".gates")
MAPS_OF_PICTURES = ".maps."  # and the number of the layer: [B,filters,Y,X]


class Units(NamedTuple):
    """The units at one tap, or behind one gate: how many, and which share of them does nothing."""

    name: str
    width: int
    elements: int  # that were looked at
    dead: float
    saturated: float


class Part(NamedTuple):
    """What is heard at one tap, or of one gate."""

    name: str
    is_gate: bool  # a gate at 0 is at an end of its range too


def units(task: Task, model: nn.Module, batches: Iterable[Batch[Any, Any]]) -> tuple[Units, ...]:
    """The units of a model as they are over these batches."""

    def run() -> None:
        for batch in batches:
            task.loss(model, batch, None)

    return units_while(model, run)


def units_while(model: nn.Module, run: Callable[[], object]) -> tuple[Units, ...]:
    """The same as they are while `run` calls the model."""
    seen: dict[Part, list[Tensor]] = {}

    def hear(name: str, value: Any) -> None:
        if listened(name):
            for part, values in parts_of(name, value):
                seen.setdefault(part, []).append(values)

    if taps(model):
        with torch.no_grad(), still(model), listening(model, "*", hear):
            run()
    return tuple(measured_units(part, torch.cat(values)) for part, values in seen.items())


def listened(name: str) -> bool:
    """Whether a tap tells of units with a nonlinearity."""
    return name.endswith(LISTENED) or MAPS_OF_PICTURES in name


def parts_of(name: str, value: Any) -> list[tuple[Part, Tensor]]:
    """What a tap tells, [N,units]: each gate by itself, or the one value that passes."""
    if isinstance(value, Gates):
        return [(Part(f"{name}.{gate}", True), _flat(value.values[:, :, at])) for at, gate in enumerate(value.names)]
    return [(Part(name, False), _flat(value.movedim(1, -1) if MAPS_OF_PICTURES in name else value))]


def _flat(values: Tensor) -> Tensor:
    return values.detach().flatten(0, -2).float().cpu()


def measured_units(part: Part, values: Tensor) -> Units:
    """The shares among units [N,units]; rows of zeros are padding."""
    values = values[values.abs().sum(dim=1) > 0] if bool(values.any()) else values
    dead = (values == 0).all(dim=0)
    ends = values.abs() >= 1 - END
    if part.is_gate and float(values.min()) >= 0:
        ends |= values <= END
    within = float(values.abs().max()) <= 1  # what has no bounds has no ends
    saturated = (ends.float().mean(dim=0) >= NEARLY_ALWAYS) & within
    return Units(part.name, values.shape[1], len(values), float(dead.float().mean()), float(saturated.float().mean()))
