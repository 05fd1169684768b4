"""What vectors lose by being kept in fewer bits, or computed in whole numbers: measured on rows of the very file.

cosine   the mean of |cos(a, b) - cos(a', b')| over random pairs of the sample; a' is what is kept of a
recall   how many of the 10 nearest of a row in the sample are still among its 10 nearest; equal ones count as one
"""

from typing import NamedTuple

import numpy as np

SAMPLE = 1_000  # rows, spread over the file
PAIRS = 10_000
NEAREST = 10


class Loss(NamedTuple):
    """What was lost, on so many rows."""

    rows: int
    cosine: float
    recall: float


def sampled(rows: int, start: int, stop: int) -> np.ndarray:
    """The numbers from `start` to before `stop` that are in the sample of all rows, evenly spread.

    >>> sampled(5, 0, 3).tolist(), sampled(3_000, 0, 10).tolist()
    ([0, 1, 2], [0, 3, 6, 9])
    """
    count = min(rows, SAMPLE)
    chosen = np.arange(count) * rows // max(1, count)
    return chosen[(chosen >= start) & (chosen < stop)]


def measured(exact: np.ndarray, kept: np.ndarray) -> Loss | None:
    """What vectors [N,D] lose, given what is kept of each [N,D]; None for fewer than two vectors."""
    there = np.isfinite(exact).all(axis=1)
    exact, kept = _unit(exact[there]), _unit(kept[there])
    if len(exact) < 2:
        return None
    true, found = exact @ exact.T, kept @ kept.T
    draws = np.random.Generator(np.random.PCG64(0))
    first = draws.integers(0, len(exact), PAIRS)
    second = (first + draws.integers(1, len(exact), PAIRS)) % len(exact)  # never itself
    cosine = float(np.abs(true[first, second] - found[first, second]).mean())
    return Loss(len(exact), cosine, _recall(true, found))


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length one in float64; what is not finite, and what has no length, is zero."""
    finite = np.nan_to_num(vectors.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    lengths = np.linalg.norm(finite, axis=1, keepdims=True)
    return finite / np.where(lengths > 0, lengths, 1)


def _recall(true: np.ndarray, found: np.ndarray) -> float:
    """The share of the nearest by one matrix of cosines that are so by another; a row is not its own neighbour."""
    count = min(NEAREST, len(true) - 1)
    for cosines in (true, found):
        np.fill_diagonal(cosines, -np.inf)
    chosen = np.argpartition(-found, count - 1, axis=1)[:, :count]
    least = -np.partition(-true, count - 1, axis=1)[:, count - 1 : count]
    return float((np.take_along_axis(true, chosen, axis=1) >= least - 1e-9).mean())
