"""Long curves in blocks: the mean for what there is, the maximum for whether there is anything."""

from typing import NamedTuple

import numpy as np


class Blocks(NamedTuple):
    """A curve [N] of which each `size` neighbours have become one point."""

    size: int
    starts: list[float]
    mean: list[float]
    maximum: list[float]


def blocks_of(values: np.ndarray, most: int) -> Blocks:
    """At most `most` points of a curve.

    >>> blocks_of(np.array([1.0, 3.0, 5.0, 9.0, 2.0]), 3)
    Blocks(size=2, starts=[0.0, 2.0, 4.0], mean=[2.0, 7.0, 2.0], maximum=[3.0, 9.0, 2.0])
    """
    size = max(1, -(-len(values) // most))
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    starts = [float(start) for start in range(0, len(values), size)]
    return Blocks(size, starts, [float(part.mean()) for part in parts], [float(part.max()) for part in parts])
