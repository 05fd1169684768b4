"""What the lots of an index hold together: which documents are there, and which of them fulfil conditions."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from seqloom.search.bm25 import Keywords
from seqloom.search.conditions import Condition, require_columns
from seqloom.search.lots import Header, KeptLot
from seqloom.search.vectors import Exact

KEPT = 16  # different sets of conditions whose documents are remembered


class Allowed(NamedTuple):
    """What may be found: documents [D], their passages [P], and how many documents."""

    documents: np.ndarray
    passages: np.ndarray
    total: int


class State:
    """What the lots hold together, in memory."""

    def __init__(self, numbers: Sequence[int], lots: list[KeptLot]) -> None:
        self.numbers, (self.lots, vectors) = tuple(numbers), _together(lots)
        self.there = _there(self.lots)  # [D] of all lots, one behind the other
        self.offsets = [0, *accumulate(len(lot.header.ids) for lot in self.lots)]
        self.ids = [name for lot in self.lots for name in lot.header.ids]  # [D]
        self.rows = {self.ids[number]: number for number in np.flatnonzero(self.there).tolist()}
        owners = [lot.passages[:, 0] + start for lot, start in zip(self.lots, self.offsets, strict=False)]
        self.owners = np.concatenate([np.empty(0, np.int64), *owners])  # [P] the document of each passage
        self.exact = Exact(vectors)
        self._asked: dict[tuple[Condition, ...], Allowed] = {}

    @property
    def is_joined(self) -> bool:
        """Whether nothing is gone, and no lot came after the last join."""
        return bool(self.there.all()) and all(lot.header.join is not None for lot in self.lots)

    def kept(self) -> list[np.ndarray]:
        """The rows of each lot that are there."""
        return [np.flatnonzero(some) for some in np.split(self.there, self.offsets[1:-1])] if self.lots else []

    @cached_property
    def keywords(self) -> Keywords:
        """The words of the documents that are there."""
        return Keywords([lot.postings for lot in self.lots], self.there)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(dict.fromkeys(name for lot in self.lots for name in lot.header.columns))

    def place(self, number: int) -> tuple[int, int]:
        """The lot of a document, and its row there."""
        lot = bisect_right(self.offsets, number) - 1
        return lot, number - self.offsets[lot]

    def allowed(self, where: Sequence[Condition]) -> Allowed:
        """Which documents are there and fulfil all conditions; kept, for the same ones are asked again and again."""
        asked = tuple(where)
        if asked not in self._asked:
            require_columns(asked, self.columns)
            found = np.logical_and.reduce([self.there, *map(self._fulfilled, asked)])
            if len(self._asked) == KEPT:
                self._asked.clear()
            self._asked[asked] = Allowed(found, found[self.owners], int(found.sum()))
        return self._asked[asked]

    def _fulfilled(self, condition: Condition) -> np.ndarray:
        values = (value for lot in self.lots for value in _values(lot.header, condition.column))
        return np.fromiter(map(condition.holds, values), bool, len(self.there))


def _values(header: Header, column: str) -> Iterable[object]:
    return header.columns.get(column) or [None] * len(header.ids)


def _together(lots: list[KeptLot]) -> tuple[tuple[KeptLot, ...], np.ndarray]:
    """The lots, and all their vectors [P,W] one behind the other, of which those of each lot are a part.

    They leave the list one by one, so that hardly more than one lot is in memory twice.
    """
    width = lots[0].vectors.shape[1] if lots else 0
    vectors, start, found = np.empty((sum(len(lot.vectors) for lot in lots), width), np.float32), 0, list[KeptLot]()
    lots.reverse()
    while lots:
        lot = lots.pop()
        part = vectors[start : start + len(lot.vectors)]
        part[:] = lot.vectors
        found.append(lot._replace(vectors=part))
        start += len(part)
    return tuple(found), vectors


def _there(lots: Sequence[KeptLot]) -> np.ndarray:
    """[D] which documents no later lot replaces or removes."""
    later: set[str] = set()
    found: list[list[bool]] = []
    for lot in reversed(lots):
        found.append([name not in later for name in lot.header.ids])
        later.update(lot.header.ids, lot.header.removed)
    return np.array([one for rows in reversed(found) for one in rows], bool)
