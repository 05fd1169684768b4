"""Values as JSON has them: arrays as lists, NaN and infinity as None, results as objects.

A file of numbers is for programs, and no program wants twelve megabytes for one picture: an array of very many numbers
is told by blocks, each with its mean, its largest and its smallest number, and what was told so is listed by name. The
whole of it is told where it is asked for.

    {"shape": [512, 512], "block": [8, 4], "mean": [[...], ...], "maximum": [[...], ...], "minimum": [[...], ...]}
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

MOST_NUMBERS = 2**16  # of an array that is told number by number
MOST_BLOCKS = 2**13  # of one that is not
DIGITS = 6  # of the numbers of blocks


class Teller(ABC):
    """What says itself which values are told of it."""

    @abstractmethod
    def told_values(self, *, whole: bool) -> Mapping[str, Any]:
        """The values by name, as they are; `whole`: nothing shall be made smaller."""


def plain(value: Any) -> Any:
    """A value as JSON has it, all of it."""
    return Telling(whole=True).of(value)


class Telling:
    """Values that are told one after another; `in_blocks` is what of them was told by blocks, with its shape."""

    def __init__(self, *, whole: bool) -> None:
        self.whole = whole
        self.in_blocks: dict[str, list[int]] = {}

    def of(self, value: Any, name: str = "") -> Any:
        """A value as JSON has it; `name` is what it is called where it is told by blocks."""
        if isinstance(value, np.ndarray):
            return self._array(value, name)
        if isinstance(value, float | np.floating):
            return float(value) if math.isfinite(value) else None
        if isinstance(value, np.integer | np.bool_):
            return value.item()
        if isinstance(value, Teller):
            return self._named(value.told_values(whole=self.whole), name)
        if hasattr(value, "_asdict"):
            return self._named(value._asdict(), name)
        if isinstance(value, Mapping):
            return self._named(value, name)
        if isinstance(value, tuple | list):
            return [self.of(part, f"{name}.{at}") for at, part in enumerate(value)]
        if is_dataclass(value) and not isinstance(value, type):
            return self._named({field.name: getattr(value, field.name) for field in fields(value)}, name)
        return value

    def _named(self, values: Mapping[Any, Any], name: str) -> dict[str, Any]:
        return {str(key): self.of(part, f"{name}.{key}".lstrip(".")) for key, part in values.items()}

    def _array(self, values: np.ndarray, name: str) -> Any:
        if self.whole or values.size <= MOST_NUMBERS or values.dtype.kind not in "fiub":
            return self._listed(values.tolist())
        self.in_blocks[name] = list(values.shape)
        return blocks(values)

    def _listed(self, values: Any) -> Any:
        if isinstance(values, list):
            return [self._listed(part) for part in values]
        return None if isinstance(values, float) and not math.isfinite(values) else values


def blocks(values: np.ndarray) -> dict[str, Any]:
    """An array by blocks: their mean, largest and smallest number of those that there are, None where there is none.

    >>> blocks(np.arange(4 * MOST_BLOCKS))["block"]
    [4]
    """
    sides = [1] * values.ndim
    while (
        math.prod(counts := [-(-length // side) for length, side in zip(values.shape, sides, strict=True)])
        > MOST_BLOCKS
    ):
        sides[counts.index(max(counts))] *= 2
    known = np.where(np.isfinite(values), values, np.nan).astype(float)
    count = _reduced(np.add, (~np.isnan(known)).astype(float), sides)
    total = _reduced(np.add, np.nan_to_num(known), sides)
    mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    found = {"mean": mean, "maximum": _reduced(np.fmax, known, sides), "minimum": _reduced(np.fmin, known, sides)}
    return {"shape": list(values.shape), "block": sides, **{name: _brief(each) for name, each in found.items()}}


def _reduced(reduce: np.ufunc, values: np.ndarray, sides: list[int]) -> np.ndarray:
    for axis, side in enumerate(sides):
        values = reduce.reduceat(values, np.arange(0, values.shape[axis], side), axis=axis)
    return values


def _brief(values: np.ndarray) -> Any:
    if values.ndim > 1:
        return [_brief(part) for part in values]
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in values.tolist()]
