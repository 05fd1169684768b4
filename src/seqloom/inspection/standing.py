"""How a model stands: its weights, who listens inside it, and what was put in the place of its parts.

before = standing_of(model)
...
standing_of(model) == before        nobody has trained it, and no edit has begun or ended since
"""

from typing import Any, NamedTuple

from torch import Tensor, nn

from seqloom.mixers.recurrent import Recurrent
from seqloom.operators.recurrence import Cell
from seqloom.taps import taps


class Standing(NamedTuple):
    """What tells one standing of a model from another; equal for the same one."""

    weights: tuple[tuple[int, int], ...]  # which tensor, and how often it was changed in place
    heard: tuple[Any, ...]  # whoever listens to taps
    hooks: tuple[Any, ...]
    cells: tuple[Cell, ...]  # of recurrences


def standing_of(model: nn.Module) -> Standing:
    """How a model stands now."""
    return Standing(
        tuple((id(weight), _version(weight)) for weight in model.parameters()),
        tuple(one for tap in taps(model).values() for one in tap._listeners),
        tuple(hook for module in model.modules() for hook in _hooks(module)),
        tuple(module.cell for module in model.modules() if isinstance(module, Recurrent)),
    )


def _hooks(module: nn.Module) -> tuple[Any, ...]:
    return *module._forward_pre_hooks.values(), *module._forward_hooks.values()


def _version(weight: Tensor) -> int:
    return 0 if weight.is_inference() else weight._version
