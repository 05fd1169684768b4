"""Long curves in blocks: the mean for what there is, the maximum for whether there is anything.

Points without a value, which are NaN, do not count; a block of them alone is a gap.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Blocks(NamedTuple):
    """A curve [N] of which each `size` neighbours have become one point."""

    size: int
    starts: list[float]
    mean: list[float]
    maximum: list[float]


def blocks_of(values: np.ndarray, most: int) -> Blocks:
    """At most `most` points of a curve; NaN where it has no value.

    >>> blocks_of(np.array([1.0, 3.0, 5.0, 9.0, 2.0]), 3)
    Blocks(size=2, starts=[0.0, 2.0, 4.0], mean=[2.0, 7.0, 2.0], maximum=[3.0, 9.0, 2.0])
    """
    size = max(1, -(-len(values) // most))
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    starts = [float(start) for start in range(0, len(values), size)]
    return Blocks(
        size, starts, [_of_known(part, np.mean) for part in parts], [_of_known(part, np.max) for part in parts]
    )


def _of_known(values: np.ndarray, reduced: Callable[[np.ndarray], np.floating]) -> float:
    known = values[~np.isnan(values)]
    return float(reduced(known)) if known.size else math.nan
