"""What finding duplicates asks of a measure: the pairs that are similar, and how similar two texts are.

A measure never compares every text with every other and keeps the result: it gives some pairs of each text, in blocks,
so memory grows with the texts and not with their square.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

LEAST = 0.5  # similarity below which pairs are not kept: no threshold lies there


class Pairs(NamedTuple):
    """Pairs of texts by their numbers, and their similarities."""

    ones: np.ndarray  # [n] int64
    others: np.ndarray  # [n] int64
    similarities: np.ndarray  # [n] float32

    def above(self, least: float) -> "Pairs":
        """Those that are at least so similar."""
        return Pairs(*(part[self.similarities >= least] for part in self))


class Compared(NamedTuple):
    """How far the comparing is: what is being done, how much of it, and of how much."""

    doing: str
    done: int
    total: int


class Measure(Protocol):
    """How similar texts are to one another, from 0 to 1."""

    usual: float  # a threshold that is good for most texts

    def pairs(self, least: float) -> Iterator[Compared | Pairs]:
        """Pairs that are at least so similar, in blocks, and how far it is; a pair may come twice."""

    def bridges(self, near: Pairs, least: float) -> Iterator[Compared | Pairs]:
        """Further pairs that are at least so similar and join clusters of those found, and how far it is."""

    def between(self, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
        """[n] float32: how similar the n-th of the ones and the n-th of the others are."""

    def representative(self, members: np.ndarray) -> int:
        """The one of these texts that stands for all."""


def joined(blocks: list[Pairs]) -> Pairs:
    """All pairs of several blocks."""
    empty = Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    return Pairs(*map(np.concatenate, zip(empty, *blocks, strict=True)))
