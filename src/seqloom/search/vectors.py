"""The passages nearest to a question: all compared, or found along a graph.

`Exact` multiplies the question with every vector: 100,000 passages take some hundredths of a second, and nothing is
missed. `Graph` walks a graph of neighbours (HNSW: Malkov and Yashunin 2016; the library usearch), which looks at a few
thousand however many there are, and may miss one. Both give the exact similarity of what they find, and both look only
at passages that are allowed: those of documents that are there and fulfil the conditions.

The graph is walked in half precision, and what may be among the nearest is measured again in full. Passages that came
after it was made are compared one by one, and so are all of them where few are allowed: a walk would pass by too many
that are not.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from seqloom.errors import DataError, needing

GRAPH_FROM = 100_000  # passages
# Passages that a walk keeps in hand. usearch's own are 64; measured again in full precision, 48 find as many of the
# nearest (benchmarks/searching.py), and sooner.
LEAST_WALK = 48
HALF = 2**-9  # twice what half precision, 11 bits, may be off by in a product of two vectors of length 1: 2 * 2**-11
STEP = 1024  # passages that are linked between two words about how far it is
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
    if len(scores) > 2 * count + LEAST_WALK:  # fewer are sorted sooner than parted
        least = np.partition(scores, -count)[-count]
        numbers, scores = numbers[scores >= least], scores[scores >= least]
    order = np.lexsort((numbers, -scores))[:count]
    return Near(numbers.take(order), scores.take(order))


class Exact:
    """Every passage is compared: all vectors [N,W] are in memory, one behind the other."""

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors

    def nearest(self, question: np.ndarray, allowed: np.ndarray, count: int) -> Near:
        """The nearest of all that are allowed."""
        numbers = np.flatnonzero(allowed)
        return best(numbers, (self.vectors @ question)[numbers], count)


class Graph:
    """The first passages are found along a graph, later ones are compared one by one."""

    def __init__(self, walk: Any, exact: Exact) -> None:
        self.walk, self.exact = walk, exact
        self.covered = len(walk)

    def nearest(self, question: np.ndarray, allowed: np.ndarray, count: int) -> Near:
        """The nearest of those that a walk meets; of all, if it does not meet enough that are allowed."""
        found = self._walked(question, allowed, count)
        if found is None:
            return self.exact.nearest(question, allowed, count)
        scores = self.exact.vectors.take(found, 0).dot(question)
        if self.covered < len(allowed):
            later = np.flatnonzero(allowed[self.covered :])
            scores = np.concatenate([scores, (self.exact.vectors[self.covered :] @ question)[later]])
            found = np.concatenate([found, later + self.covered])
        return best(found, scores, count)

    def _walked(self, question: np.ndarray, allowed: np.ndarray, count: int) -> np.ndarray | None:
        """The allowed passages that a walk meets and that may be among the nearest; None if it meets too few."""
        wide = max(LEAST_WALK, 2 * count)
        for _ in range(TRIES):
            if 4 * wide > self.covered:
                break
            met = self.walk.search(question, wide, threads=1)  # it keeps no fewer in hand than are asked for
            numbers, distances = met.keys.view(np.int64), met.distances
            near = _perhaps(numbers, distances, count)
            if count <= len(near) == np.count_nonzero(allowed.take(near)):  # as a rule: the others are not looked at
                return near
            here = allowed.take(numbers)
            numbers, distances = numbers[here], distances[here]
            if len(numbers) < count:  # perhaps there are no more
                count = min(count, int(np.count_nonzero(allowed[: self.covered])))
            if len(numbers) >= count:
                return _perhaps(numbers, distances, count)
            wide *= 4
        return None


def _perhaps(numbers: np.ndarray, distances: np.ndarray, count: int) -> np.ndarray:
    """Those of the numbers, nearest first, that exact distances may put among the first `count`."""
    if not 0 < count <= len(numbers):
        return numbers[:0]
    return numbers[: distances.searchsorted(distances[count - 1] + HALF, "right")]


def grown(kept: bytes | None, vectors: np.ndarray) -> Iterator[tuple[int, Any]]:
    """How many passages a graph holds while it grows over the vectors, and the graph; `kept` is one to begin with.

    One thread, in the order of the passages: the same vectors give the same bytes.
    """
    walk = opened(kept) if kept is not None else _new(vectors.shape[1])
    for start in range(len(walk), len(vectors), STEP):
        some = vectors[start : start + STEP]
        walk.add(np.arange(start, start + len(some)), some, threads=1)
        yield len(walk), walk


def _new(width: int) -> Any:
    with needing("search"):
        from usearch.index import Index
    return Index(ndim=width, metric="ip", dtype="f16", expansion_search=LEAST_WALK)


def opened(kept: bytes) -> Any:
    """The graph of these bytes, as `saved` gave them."""
    with needing("search"):
        from usearch.index import Index
    walk: Any = Index.restore(kept)
    if walk is None:
        raise DataError("these bytes are no graph of usearch", fix="make the index again")
    walk.expansion_search = LEAST_WALK  # the bytes do not hold it
    return walk


def saved(walk: Any) -> bytes:
    """The bytes of a graph."""
    return bytes(walk.save())
