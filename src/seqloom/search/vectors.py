"""The passages nearest to a question: all compared, or found along a graph.

`Exact` multiplies the question with every vector: 100,000 passages take some hundredths of a second, and nothing is
missed. `Graph` walks a graph of neighbours (HNSW: Malkov and Yashunin 2016; the library usearch), which looks at a few
thousand however many there are, and may miss one. Both give the exact similarity of what they find, and both look only
at passages that are allowed: those of documents that are there and fulfil the conditions.

The graph is walked in half precision and its finds are measured again in full. Passages that came after it was made are
compared one by one, and so are all of them where few are allowed: a walk would pass by too many that are not.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from seqloom.errors import DataError, needing

GRAPH_FROM = 100_000  # passages
LEAST_WALK = 64  # passages that a walk keeps in hand: usearch's own
TRIES = 4  # times that a walk goes four times as far, before all are compared


class Near(NamedTuple):
    """Passages by their numbers, the nearest first, and their similarities."""

    passages: np.ndarray  # [n] int64
    scores: np.ndarray  # [n] float32


class Nearest(Protocol):
    """What finds the nearest passages."""

    def nearest(self, question: np.ndarray, allowed: np.ndarray, count: int) -> Near:
        """The `count` nearest of the passages that are allowed [N], or all if there are fewer."""


def unit(vectors: np.ndarray) -> np.ndarray:
    """The vectors [N,W] with length 1, so that products are cosines; a vector of zeros stays one."""
    found = np.asarray(vectors, np.float32)
    if not np.isfinite(found).all():
        raise DataError("the model gives vectors that are not finite", fix="train it again, or take another one")
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return np.asarray(found / np.where(lengths > 0, lengths, 1))


def best(numbers: np.ndarray, scores: np.ndarray, count: int) -> Near:
    """The `count` of the highest score, the highest first; of equal ones, the smaller number.

    >>> best(np.array([5, 6, 7]), np.array([0.5, 0.9, 0.5]), 2).passages.tolist()
    [6, 5]
    """
    if len(scores) > count:
        least = np.partition(scores, -count)[-count]
        numbers, scores = numbers[scores >= least], scores[scores >= least]
    order = np.lexsort((numbers, -scores))[:count]
    return Near(numbers[order], scores[order])


class Exact:
    """Every passage is compared; the vectors come in blocks, as they are stored."""

    def __init__(self, blocks: Sequence[np.ndarray]) -> None:
        self.blocks = [block for block in blocks if len(block)]
        self.starts = np.cumsum([0, *(len(block) for block in self.blocks)])[:-1]

    def nearest(self, question: np.ndarray, allowed: np.ndarray, count: int) -> Near:
        """The nearest of all that are allowed."""
        numbers = np.flatnonzero(allowed)
        return best(numbers, self.scores(question)[numbers], count)

    def scores(self, question: np.ndarray, first: int = 0) -> np.ndarray:
        """The similarities of all passages from the `first` on."""
        rests = (block[max(0, first - start) :] for block, start in zip(self.blocks, self.starts.tolist(), strict=True))
        return np.concatenate([np.empty(0, np.float32), *(rest @ question for rest in rests)])

    def measured(self, question: np.ndarray, passages: np.ndarray) -> np.ndarray:
        """The similarities of some passages, few enough that their rows are picked one by one."""
        owners = np.searchsorted(self.starts, passages, side="right") - 1
        rows = zip(owners.tolist(), (passages - self.starts[owners]).tolist(), strict=True)
        picked = [self.blocks[block][row] for block, row in rows]
        return np.asarray(np.array(picked) @ question) if picked else np.empty(0, np.float32)


class Graph:
    """The first passages are found along a graph, later ones are compared one by one."""

    def __init__(self, walk: Any, exact: Exact) -> None:
        self.walk, self.exact = walk, exact
        self.covered = len(walk)

    def nearest(self, question: np.ndarray, allowed: np.ndarray, count: int) -> Near:
        """The nearest of those that a walk meets; of all, if it does not meet enough that are allowed."""
        found = self._walked(question, allowed, min(count, int(np.count_nonzero(allowed[: self.covered]))))
        if found is None:
            return self.exact.nearest(question, allowed, count)
        measured, later = self.exact.measured(question, found), np.flatnonzero(allowed[self.covered :])
        if len(later):
            measured = np.concatenate([measured, self.exact.scores(question, self.covered)[later]])
            found = np.concatenate([found, later + self.covered])
        return best(found, measured, count)

    def _walked(self, question: np.ndarray, allowed: np.ndarray, count: int) -> np.ndarray | None:
        """The nearest allowed passages that a walk meets, twice as many as asked if it does; None if it meets too few.

        Half precision may confuse neighbours in the order, and hardly ever moves one farther than that.
        """
        wide = max(LEAST_WALK, 2 * count)
        for _ in range(TRIES):
            if 4 * wide > self.covered:
                break
            self.walk.expansion_search = wide
            met = self.walk.search(question, wide, threads=1).keys.astype(np.int64)
            met = met[allowed[met]]
            if len(met) >= count:
                return np.asarray(met[: 2 * count])
            wide *= 4
        return None


def grown(kept: bytes | None, blocks: Sequence[np.ndarray], width: int) -> Iterator[tuple[int, Any]]:
    """How many passages a graph holds while it grows over the blocks, and the graph; `kept` is one to begin with.

    One thread, in the order of the passages: the same vectors give the same bytes.
    """
    walk = opened(kept) if kept is not None else _new(width)
    before = 0
    for block in blocks:
        rest = block[max(0, len(walk) - before) :]
        before += len(block)
        for start in range(0, len(rest), 1024):
            some = rest[start : start + 1024]
            walk.add(np.arange(len(walk), len(walk) + len(some)), some, threads=1)
            yield len(walk), walk


def _new(width: int) -> Any:
    with needing("search"):
        from usearch.index import Index
    return Index(ndim=width, metric="ip", dtype="f16")


def opened(kept: bytes) -> Any:
    """The graph of these bytes, as `saved` gave them."""
    with needing("search"):
        from usearch.index import Index
    walk = Index.restore(kept)
    if walk is None:
        raise DataError("these bytes are no graph of usearch", fix="make the index again")
    return walk


def saved(walk: Any) -> bytes:
    """The bytes of a graph."""
    return bytes(walk.save())
