"""How similar texts are by their meaning: the cosine of the vectors that a model makes of them.

Up to 100,000 texts every one is compared with every other, some at a time; more are found along a graph (see
`vectors`). Of each text the nearest few are kept. Those that have more above the threshold are then compared with one
another, so that clusters are those of all pairs however large they are.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from seqloom.data.checks.minhash import clusters
from seqloom.events import Progress
from seqloom.search.similarity import Pairs
from seqloom.search.vectors import GRAPH_FROM, grown, unit

NEIGHBOURS = 8  # of a text, whose pairs are kept
TOGETHER = 1_024  # texts that are embedded, or looked up in a graph, at a time
PRODUCTS = 1 << 24  # similarities that are in memory at a time


class MakesVectors(Protocol):
    """A model that makes vectors of texts: a loaded one, or anything else that does."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[N,W] the vectors of the texts, in their order."""


def embedding(texts: Sequence[str], model: MakesVectors) -> Iterator[Progress | np.ndarray]:
    """How far the embedding is, and in the end the vectors [N,W] float32, of length 1."""
    vectors = np.empty((0, 0), np.float32)
    for start in range(0, len(texts), TOGETHER):
        made = unit(model.embed(texts[start : start + TOGETHER]))
        if not start:
            vectors = np.empty((len(texts), made.shape[1]), np.float32)
        vectors[start : start + TOGETHER] = made
        yield Progress("texts embedded", start + len(made), len(texts))
    yield vectors


class ByMeaning:
    """Texts compared by the vectors that a model makes of them; what is kept of each is its vector."""

    usual = 0.9

    def __init__(self, texts: Sequence[str], model: MakesVectors, graph_from: int = GRAPH_FROM) -> None:
        self.texts, self.model, self.graph_from = texts, model, graph_from
        self.vectors = np.empty((0, 0), np.float32)

    def pairs(self, least: float) -> Iterator[Progress | Pairs]:
        """Pairs of each text with its nearest ones that are at least so similar."""
        for step in embedding(self.texts, self.model):
            if isinstance(step, Progress):
                yield step
            else:
                self.vectors = step
        search = self._along_graph if len(self.texts) > self.graph_from else self._compared
        for found in search():
            yield found.above(least) if isinstance(found, Pairs) else found

    def _compared(self) -> Iterator[Progress | Pairs]:
        """Every text with every other."""
        count = len(self.vectors)
        most, some = min(NEIGHBOURS, count - 1), max(1, PRODUCTS // max(1, count))
        for start in range(0, count if most else 0, some):
            rows = np.arange(start, min(start + some, count))
            products = self.vectors[rows] @ self.vectors.T
            products[np.arange(len(rows)), rows] = -2  # no text is its own neighbour
            near = np.argpartition(products, -most, axis=1)[:, -most:]
            yield _pairs_of(rows, near, np.take_along_axis(products, near, axis=1))
            yield Progress("texts compared", int(rows[-1]) + 1, count)

    def _along_graph(self) -> Iterator[Progress | Pairs]:
        """Every text with those that a walk along a graph of all meets."""
        walk: Any = None
        for done, walk in grown(None, self.vectors):  # noqa: B007  # the last one has all
            yield Progress("texts in the graph", done, len(self.vectors))
        for start in range(0, len(self.vectors), TOGETHER):
            rows = np.arange(start, min(start + TOGETHER, len(self.vectors)))
            near = walk.search(self.vectors[rows], NEIGHBOURS + 1, threads=1).keys.astype(np.int64)
            similarities = np.einsum("nw,nkw->nk", self.vectors[rows], self.vectors[near])
            yield _pairs_of(rows, near, np.where(near == rows[:, None], -2, similarities))
            yield Progress("texts compared", int(rows[-1]) + 1, len(self.vectors))

    def bridges(self, near: Pairs, least: float) -> Iterator[Progress | Pairs]:
        """Pairs between clusters, one for each two: both texts have more neighbours than are kept."""
        crowded = np.flatnonzero(np.bincount(near.ones, minlength=len(self.vectors)) >= NEIGHBOURS)
        leaders = clusters(len(self.vectors), near.ones, near.others)[crowded]
        vectors, some = self.vectors[crowded], max(1, PRODUCTS // 4 // max(1, len(crowded)))
        for start in range(0, len(crowded), some):
            if (leaders == leaders[0]).all():
                return
            inside = slice(start, start + some)
            apart = leaders[inside, None] != leaders
            ones, others = np.nonzero((vectors[inside] @ vectors.T >= least) & apart)
            ones, others = _one_for_each_two(leaders, ones + start, others)
            leaders = clusters(len(self.vectors), leaders[ones], leaders[others])[leaders] if len(ones) else leaders
            yield Pairs(crowded[ones], crowded[others], self.between(crowded[ones], crowded[others]))
            yield Progress("crowded texts compared", min(start + some, len(crowded)), len(crowded))

    def between(self, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
        """[n] float32: the cosines of pairs of texts."""
        starts = range(0, len(ones), TOGETHER)
        parts = [(ones[at : at + TOGETHER], others[at : at + TOGETHER]) for at in starts]
        found = [np.einsum("nw,nw->n", self.vectors[one], self.vectors[other]) for one, other in parts]
        return np.concatenate([np.empty(0, np.float32), *found]).clip(-1, 1)

    def representative(self, members: np.ndarray) -> int:
        """The text nearest to the centre of these."""
        vectors = self.vectors[members]
        return int(members[np.argmax(vectors @ vectors.mean(axis=0))])


def _one_for_each_two(leaders: np.ndarray, ones: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first pair between each two clusters."""
    two = leaders[ones] * (leaders.max() + 1) + leaders[others]
    first = np.unique(two, return_index=True)[1]
    return ones[first], others[first]


def _pairs_of(rows: np.ndarray, near: np.ndarray, similarities: np.ndarray) -> Pairs:
    """The pairs of texts [n] and the neighbours [n,k] of each."""
    ones = np.repeat(rows, near.shape[1])
    return Pairs(ones, near.ravel(), np.asarray(similarities, np.float32).ravel().clip(-2, 1))
