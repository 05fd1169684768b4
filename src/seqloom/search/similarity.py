"""What finding duplicates asks of a measure: the pairs that are similar, and how similar two texts are.

A measure never compares every text with every other and keeps the result: it gives some pairs of each text, in blocks,
so memory grows with the texts and not with their square.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from seqloom.data.problems import counted
from seqloom.events import Progress
from seqloom.report.figures.bars import Bars

LEAST = 0.5  # similarity below which pairs are not kept: no threshold lies there


class Pairs(NamedTuple):
    """Pairs of texts by their numbers, and their similarities."""

    ones: np.ndarray  # [n] int64
    others: np.ndarray  # [n] int64
    similarities: np.ndarray  # [n] float32

    def above(self, least: float) -> "Pairs":
        """Those that are at least so similar."""
        return Pairs(*(part[self.similarities >= least] for part in self))


class Measure(Protocol):
    """How similar texts are to one another, from 0 to 1."""

    usual: float  # a threshold that is good for most texts

    def pairs(self, least: float) -> Iterator[Progress | Pairs]:
        """Pairs that are at least so similar, in blocks, and how far it is; a pair may come twice."""

    def bridges(self, near: Pairs, least: float) -> Iterator[Progress | Pairs]:
        """Further pairs that are at least so similar and join clusters of those found, and how far it is."""

    def between(self, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
        """[n] float32: how similar the n-th of the ones and the n-th of the others are."""

    def representative(self, members: np.ndarray) -> int:
        """The one of these texts that stands for all."""


def joined(blocks: list[Pairs]) -> Pairs:
    """All pairs of several blocks."""
    empty = Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    return Pairs(*map(np.concatenate, zip(empty, *blocks, strict=True)))


# -----------------------------------------------------------------------------
# A threshold from a picture: the histogram of similarities has a hill of duplicates, a hill of all else, and a valley.
#
# For each row the similarity of the row most like it is counted. Duplicates lie near 1, rows that only speak of the
# same things lie lower. The threshold that is suggested is the middle of the deepest place between two hills; a place
# is deep only if chance does not explain it: it lies two standard deviations of its counts below both hills.
#
# Rows that are equal make a peak at 1, with a valley before it wherever there are many. Small changes are to be found
# too, and they make a hill below the peak; so the peak counts as a hill only where there is no other valley.
# -----------------------------------------------------------------------------

STEP = 0.02  # of similarity, for each bar
SMOOTHED = np.array([1, 2, 1]) / 4
SURE = 2.0  # standard deviations
NEARLY = 0.95  # of the greatest depth: a wide valley has no one deepest place


class Histogram(NamedTuple):
    """How many rows have their most similar row at each similarity: counts from 0.5 to 1 in steps of 0.02."""

    counts: tuple[int, ...]
    apart: int  # rows to which no other is similar

    @classmethod
    def of(cls, nearest: np.ndarray) -> "Histogram":
        """The histogram of the similarity that each row has to the one most like it."""
        edges = np.linspace(LEAST, 1, round((1 - LEAST) / STEP) + 1)
        counts, _ = np.histogram(np.clip(nearest[nearest >= LEAST], None, 1), edges)
        return cls(tuple(counts.tolist()), int((nearest < LEAST).sum()))

    def valley(self) -> float | None:
        """The threshold in the deepest valley between two hills; None where there are no two hills.

        Rows that are like no other are part of the lower hill, although nobody measured how little they are.

        >>> Histogram((9, 30, 60, 30, 9, 2, 2, 1, 2, 20, 70, 40, 900), 0).valley()
        0.64
        >>> Histogram((40, 60, 30, 9, 0, 0, 0, 0, 0, 0, 20), 0).valley()
        0.64
        """
        found = _deepest((self.apart, *self.counts[:-1]))
        if found is None:
            found = _deepest((self.apart, *self.counts))
        return None if found is None else round(LEAST + STEP * (found - 1), 4)

    def figure(self, threshold: float) -> Bars:
        """The picture of it, with the threshold marked."""
        starts = [LEAST + STEP * bar for bar in range(len(self.counts))]
        marked = max((bar for bar, start in enumerate(starts) if start <= threshold + 1e-9), default=0)
        labels = [f"{start:.2f}{' threshold' if bar == marked else ''}" for bar, start in enumerate(starts)]
        return Bars(
            title="How similar the most similar row is",
            labels=labels,
            values=list(self.counts),
            x_label="rows",
            caption=f"not shown: {counted(self.apart, 'row')} whose most similar row is below {LEAST}",
        )


def _deepest(given: Sequence[int]) -> int | None:
    """The number of the deepest count between two hills, of several the middle one."""
    counts = np.convolve(np.pad(np.array(given, float), 1, mode="edge"), SMOOTHED, mode="valid")
    lower = np.minimum(np.maximum.accumulate(counts), np.maximum.accumulate(counts[::-1])[::-1])  # of both hills
    depths = lower - counts
    deep = np.flatnonzero((depths > SURE * np.sqrt(lower + counts)) & (depths >= NEARLY * depths.max()))
    return int(deep[len(deep) // 2]) if len(deep) else None
