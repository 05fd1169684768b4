"""How similar texts are, by their letters or by their meaning: the pairs that are, and a threshold from their picture.

A measure never compares every text with every other and keeps the result: it gives some pairs of each text, so memory
grows with the texts and not with their square.

*By letters.* A text is the set of the three-letter runs of its words, each word with a mark on both sides, as
PostgreSQL's pg_trgm has it; the similarity of two texts is the Jaccard similarity |A ∩ B| / |A ∪ B| of their sets.

    "A small dog!"   ──▶   ␣a␣   ␣sm sma mal all ll␣   ␣do dog og␣

Case, punctuation and the order of the words change nothing; a letter changes three runs, a word as many as it has
letters. MinHash finds candidates, and every candidate is compared exactly. Of pairs at 0.7 all but one in a hundred are
candidates (28 bands of five, see `seqloom.data.checks.minhash`) unless most texts share a template: then a text is
compared with those that seem likest in each band, and a pair that is hardly more similar than any other may be passed
by.

*By meaning.* The cosine of the vectors that a model makes of them. Up to 100,000 texts every one is compared with every
other, some at a time; more are found along a graph (see `vectors`). Of each text the nearest few are kept. Those that
have more above the threshold are then compared with one another, so that clusters are those of all pairs however large
they are.

*The threshold.* For each row the similarity of the row most like it is counted. Duplicates lie near 1, rows that only
speak of the same things lie lower, and a valley lies between the two hills. What is suggested is the middle of its
deepest place; a place is deep only if chance does not explain it: it lies two standard deviations of its counts below
both hills. Rows that are equal make a peak at 1, with a valley before it wherever there are many. Small changes are to
be found too, and they make a hill below the peak; so the peak counts as a hill only where there is no other valley.
"""

import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np

from seqloom.data.checks.minhash import Candidates, candidates, clusters, smallest
from seqloom.events import Progress, Work
from seqloom.report.figures.bars import Bars
from seqloom.report.numbers import counted
from seqloom.search.bm25 import runs_of
from seqloom.search.vectors import GRAPH_FROM, MakesVectors, embedding, grown

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

    def pairs(self, least: float) -> Work[Pairs]:
        """Pairs that are at least so similar; a pair may come twice."""

    def bridges(self, near: Pairs, least: float) -> Work[Pairs]:
        """Further pairs that are at least so similar and join clusters of those found."""

    def between(self, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
        """[n] float32: how similar the n-th of the ones and the n-th of the others are."""

    def representative(self, members: np.ndarray) -> int:
        """The one of these texts that stands for all."""


def joined(blocks: list[Pairs]) -> Pairs:
    """All pairs of several blocks."""
    empty = Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    return Pairs(*map(np.concatenate, zip(empty, *blocks, strict=True)))


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


BANDS, BAND_ROWS = 28, 5
DEVIATIONS = 3  # of the estimate, below the least similarity, at which an exact look is in vain
BAND_NEIGHBOURS = 3  # a text is compared with so many others of each crowded band, of which there are many
MOST = 16  # pairs of a text that are compared exactly
TEXTS, PAIRS = 8_192, 8_192  # looked at together


@lru_cache(maxsize=1 << 16)
def _runs(word: str) -> tuple[int, ...]:
    """Numbers of the runs of three letters of a marked word; the same in every process."""
    marked = f" {word} "
    return tuple(zlib.crc32(marked[at : at + 3].encode("utf-8", "surrogatepass")) for at in range(len(word)))


def features(text: str) -> set[int]:
    """The numbers of the runs of a text; a text without words is one run.

    >>> features("A small dog!") == features("small, a DOG"), len(features("a dog"))
    (True, 4)
    """
    return set().union(*map(_runs, runs_of(text))) or {zlib.crc32(text.encode("utf-8", "surrogatepass"))}


class ByText:
    """Texts compared by their letters; what is kept of each is its set of runs, and 140 numbers for the candidates."""

    usual = 0.75

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.runs, self.starts = np.empty(0, np.uint32), np.zeros(1, np.int64)
        self.signed = np.empty((0, BANDS * BAND_ROWS), np.uint32)
        self.left_out = 0  # candidates that were not compared

    def pairs(self, least: float) -> Work[Pairs]:
        """Pairs that are at least so similar, each once."""
        self.signed, self.left_out = np.empty((len(self.texts), BANDS * BAND_ROWS), np.uint32), 0
        yield from self._read(self.signed)
        found = list[Pairs]()
        for some in self._candidates(least):
            ones, others = _nearest(some)
            self.left_out += len(some.ones) - len(ones)
            found.append(Pairs(ones, others, self.between(ones, others)).above(least))
            yield Progress("texts compared", int(ones.max(initial=0)) + 1, len(self.texts))
        return joined(found)

    def _candidates(self, least: float) -> Iterator[Candidates]:
        promising = least - DEVIATIONS * (least * (1 - least) / (BANDS * BAND_ROWS)) ** 0.5
        return candidates(self.signed, BAND_ROWS, promising, BAND_NEIGHBOURS)

    def bridges(self, near: Pairs, least: float) -> Work[Pairs]:
        """Pairs between clusters, of candidates that were not among the likest of a text with many."""
        leaders, found = clusters(len(self.texts), near.ones, near.others), list[Pairs]()
        for some in self._candidates(least) if self.left_out else ():
            apart = leaders[some.ones] != leaders[some.others]
            ones, others = some.ones[apart], some.others[apart]
            found.append(Pairs(ones, others, self.between(ones, others)).above(least))
            yield Progress("texts compared again", int(some.ones.max(initial=0)) + 1, len(self.texts))
        return joined(found)

    def _read(self, signed: np.ndarray) -> Work[None]:
        """Keep the sets of all texts, one behind the other in one array, and fill in their signatures."""
        sets, sizes = [np.empty(0, np.uint32)], [np.zeros(1, np.int64)]
        for some in _slices(len(self.texts), TEXTS):
            found = list(map(features, self.texts[some]))
            sizes.append(np.array(list(map(len, found)), np.int64))
            sets.append(np.fromiter(chain.from_iterable(found), np.uint32, int(sizes[-1].sum())))
            signed[some] = smallest(sets[-1], np.cumsum(sizes[-1]) - sizes[-1], signed.shape[1])
            yield Progress("texts read", some.stop, len(self.texts))
        self.runs, self.starts = np.concatenate(sets), np.cumsum(np.concatenate(sizes))

    def between(self, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
        """[n] float32: the Jaccard similarities of pairs of texts."""
        blocks = [self._between(ones[some], others[some]) for some in _slices(len(ones), PAIRS)]
        return np.concatenate([np.empty(0, np.float32), *blocks])

    def _between(self, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
        keys = np.sort(np.concatenate([self._keys(ones), self._keys(others)]))
        twice = keys[:-1][keys[1:] == keys[:-1]] >> np.uint64(32)  # the pair of each run that both texts have
        common = np.bincount(twice.astype(np.int64), minlength=len(ones))
        either = self._sizes(ones) + self._sizes(others) - common
        return np.asarray(common / either, np.float32)

    def _keys(self, rows: np.ndarray) -> np.ndarray:
        """Numbers of the runs of some texts; which of the texts it is stands in the upper half."""
        sizes = self._sizes(rows)
        which = np.repeat(np.arange(len(rows)), sizes)
        inside = np.arange(len(which)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        found = self.runs[self.starts[rows][which] + inside]
        return np.asarray((which.astype(np.uint64) << np.uint64(32)) | found)

    def _sizes(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self.starts[rows + 1] - self.starts[rows])

    def representative(self, members: np.ndarray) -> int:
        """The longest of these texts, the first of several: it lacks least."""
        return int(max(members, key=lambda member: (len(self.texts[member]), -member)))


def _nearest(pairs: Candidates) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of each text with those that seem most like it: in a crowd of like texts, chains are enough."""
    order = np.lexsort((-pairs.agreement, pairs.ones))
    ones = pairs.ones[order]
    first = np.flatnonzero(np.diff(ones, prepend=-1))  # where the pairs of a text begin
    rank = np.arange(len(ones)) - np.repeat(first, np.diff(first, append=len(ones)))
    kept = order[rank < MOST]
    return pairs.ones[kept], pairs.others[kept]


def _slices(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


NEIGHBOURS = 8  # of a text, whose pairs are kept
TOGETHER = 1_024  # texts that are looked up in a graph at a time
PRODUCTS = 1 << 24  # similarities that are in memory at a time


class ByMeaning:
    """Texts compared by the vectors that a model makes of them; what is kept of each is its vector."""

    usual = 0.9

    def __init__(self, texts: Sequence[str], model: MakesVectors, graph_from: int = GRAPH_FROM) -> None:
        self.texts, self.model, self.graph_from = texts, model, graph_from
        self.vectors = np.empty((0, 0), np.float32)

    def pairs(self, least: float) -> Work[Pairs]:
        """Pairs of each text with its nearest ones that are at least so similar."""
        self.vectors = yield from embedding(self.texts, self.model)
        search = self._along_graph if len(self.texts) > self.graph_from else self._compared
        return joined((yield from search(least)))

    def _compared(self, least: float) -> Work[list[Pairs]]:
        """Every text with every other."""
        count, found = len(self.vectors), list[Pairs]()
        most, some = min(NEIGHBOURS, count - 1), max(1, PRODUCTS // max(1, count))
        for start in range(0, count if most else 0, some):
            rows = np.arange(start, min(start + some, count))
            products = self.vectors[rows] @ self.vectors.T
            products[np.arange(len(rows)), rows] = -2  # no text is its own neighbour
            near = np.argpartition(products, -most, axis=1)[:, -most:]
            found.append(_pairs_of(rows, near, np.take_along_axis(products, near, axis=1)).above(least))
            yield Progress("texts compared", int(rows[-1]) + 1, count)
        return found

    def _along_graph(self, least: float) -> Work[list[Pairs]]:
        """Every text with those that a walk along a graph of all meets."""
        walk, found = (yield from grown(None, self.vectors, "texts in the graph")), list[Pairs]()
        for start in range(0, len(self.vectors), TOGETHER):
            rows = np.arange(start, min(start + TOGETHER, len(self.vectors)))
            near = walk.search(self.vectors[rows], NEIGHBOURS + 1, threads=1).keys.astype(np.int64)
            similarities = np.einsum("nw,nkw->nk", self.vectors[rows], self.vectors[near])
            found.append(_pairs_of(rows, near, np.where(near == rows[:, None], -2, similarities)).above(least))
            yield Progress("texts compared", int(rows[-1]) + 1, len(self.vectors))
        return found

    def bridges(self, near: Pairs, least: float) -> Work[Pairs]:
        """Pairs between clusters, one for each two: both texts have more neighbours than are kept."""
        crowded = np.flatnonzero(np.bincount(near.ones, minlength=len(self.vectors)) >= NEIGHBOURS)
        leaders = clusters(len(self.vectors), near.ones, near.others)[crowded]
        vectors, some = self.vectors[crowded], max(1, PRODUCTS // 4 // max(1, len(crowded)))
        found = list[Pairs]()
        for start in range(0, len(crowded), some):
            if (leaders == leaders[0]).all():
                break
            inside = slice(start, start + some)
            apart = leaders[inside, None] != leaders
            ones, others = np.nonzero((vectors[inside] @ vectors.T >= least) & apart)
            ones = ones + start
            # the first pair between each two clusters
            two = leaders[ones] * (leaders.max() + 1) + leaders[others]
            first = np.unique(two, return_index=True)[1]
            ones, others = ones[first], others[first]
            leaders = clusters(len(self.vectors), leaders[ones], leaders[others])[leaders] if len(ones) else leaders
            found.append(Pairs(crowded[ones], crowded[others], self.between(crowded[ones], crowded[others])))
            yield Progress("crowded texts compared", min(start + some, len(crowded)), len(crowded))
        return joined(found)

    def between(self, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
        """[n] float32: the cosines of pairs of texts."""
        parts = ((self.vectors[ones[some]], self.vectors[others[some]]) for some in _slices(len(ones), TOGETHER))
        found = [np.einsum("nw,nw->n", *both) for both in parts]
        return np.concatenate([np.empty(0, np.float32), *found]).clip(-1, 1)

    def representative(self, members: np.ndarray) -> int:
        """The text nearest to the centre of these."""
        vectors = self.vectors[members]
        return int(members[np.argmax(vectors @ vectors.mean(axis=0))])


def _pairs_of(rows: np.ndarray, near: np.ndarray, similarities: np.ndarray) -> Pairs:
    """The pairs of texts [n] and the neighbours [n,k] of each."""
    ones = np.repeat(rows, near.shape[1])
    return Pairs(ones, near.ravel(), np.asarray(similarities, np.float32).ravel().clip(-2, 1))
