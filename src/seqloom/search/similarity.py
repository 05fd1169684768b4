"""Similar pairs of texts, by text or by meaning, and a threshold from the histogram of their similarities.

A measure returns a few pairs per text instead of all pairs, so memory grows linearly with the number of texts.

*By text.* A text is the set of the character trigrams of its words, with a space on both sides of each word, as in
PostgreSQL's pg_trgm. The similarity of two texts is the Jaccard similarity |A ∩ B| / |A ∪ B| of their sets.

    "A small dog!"   ──▶   ␣a␣   ␣sm sma mal all ll␣   ␣do dog og␣

Case, punctuation and word order do not matter. A changed letter changes three trigrams; a changed word as many as it
has letters. MinHash finds candidates, and every candidate is compared exactly. At a similarity of 0.7, 99 of 100 pairs
become candidates (28 bands of five, see `seqloom.data.checks.minhash`). If most texts share a template, only the most
promising candidates of each band are compared, so a pair that is barely more similar than the others may be missed.

*By meaning.* The cosine of the vectors of a model. Up to 100,000 texts, all are compared in blocks; above that, a graph
finds neighbors (see `vectors`). The nearest few pairs of each text are kept. Texts with more neighbors above the
threshold are then compared with each other, so that large clusters are not split.

*The threshold.* The histogram counts, for each row, the similarity of its most similar row. Duplicates form a peak near
1, unrelated rows a peak further left, and the threshold is the middle of the deepest part of the valley between them. A
valley counts only if it is two standard deviations of its counts below both peaks. Equal rows make a peak at exactly 1
with a valley before it. Small changes, which should be found too, make a peak just below; so the bin at 1 counts as a
peak only if there is no other valley.
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
from seqloom.search.vectors import GRAPH_FROM, SupportsEmbed, embed_texts, grow_graph

MIN_SIMILARITY = 0.5  # pairs below this similarity are not kept, and no threshold can be lower


class Pairs(NamedTuple):
    """Pairs of texts by number, and their similarities."""

    ones: np.ndarray  # [n] int64
    others: np.ndarray  # [n] int64
    similarities: np.ndarray  # [n] float32

    def above(self, min_similarity: float) -> "Pairs":
        """Return the pairs that are at least this similar."""
        return Pairs(*(part[self.similarities >= min_similarity] for part in self))


class Measure(Protocol):
    """A similarity of texts, from 0 to 1."""

    default_threshold: float  # for most texts

    def pairs(self, min_similarity: float) -> Work[Pairs]:
        """Return pairs that are at least this similar; a pair may come twice."""

    def bridges(self, near: Pairs, min_similarity: float) -> Work[Pairs]:
        """Return more pairs that are at least this similar and connect clusters."""

    def between(self, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
        """[n] float32: the similarity of each pair."""

    def representative(self, members: np.ndarray) -> int:
        """Return the text that represents a cluster."""


def concatenate_pairs(blocks: list[Pairs]) -> Pairs:
    """Return all pairs of several blocks."""
    empty = Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    return Pairs(*map(np.concatenate, zip(empty, *blocks, strict=True)))


STEP = 0.02  # width of a bin
SMOOTHED = np.array([1, 2, 1]) / 4
SURE = 2.0  # standard deviations
NEARLY = 0.95  # of the greatest depth: a wide valley has several deepest bins


class Histogram(NamedTuple):
    """The number of rows by the similarity of their most similar row, from 0.5 to 1 in steps of 0.02."""

    counts: tuple[int, ...]
    apart: int  # rows without a similar row

    @classmethod
    def of(cls, nearest: np.ndarray) -> "Histogram":
        """Count the similarities of each row to its most similar row."""
        edges = np.linspace(MIN_SIMILARITY, 1, round((1 - MIN_SIMILARITY) / STEP) + 1)
        counts, _ = np.histogram(np.clip(nearest[nearest >= MIN_SIMILARITY], None, 1), edges)
        return cls(tuple(counts.tolist()), int((nearest < MIN_SIMILARITY).sum()))

    def valley(self) -> float | None:
        """Return the threshold in the deepest valley between two peaks; None if there are no two peaks.

        Rows without a similar row belong to the lower peak.

        >>> Histogram((9, 30, 60, 30, 9, 2, 2, 1, 2, 20, 70, 40, 900), 0).valley()
        0.64
        >>> Histogram((40, 60, 30, 9, 0, 0, 0, 0, 0, 0, 20), 0).valley()
        0.64
        """
        found = _deepest((self.apart, *self.counts[:-1]))
        if found is None:
            found = _deepest((self.apart, *self.counts))
        return None if found is None else round(MIN_SIMILARITY + STEP * (found - 1), 4)

    def figure(self, threshold: float) -> Bars:
        """Return a bar chart with the threshold marked, without the empty bins at both ends."""
        starts = [MIN_SIMILARITY + STEP * bar for bar in range(len(self.counts))]
        marked = max((bar for bar, start in enumerate(starts) if start <= threshold + 1e-9), default=0)
        filled = [marked, *(bar for bar, count in enumerate(self.counts) if count)]
        shown = slice(min(filled), max(filled) + 1)
        labels = [f"{start:.2f}{' threshold' if bar == marked else ''}" for bar, start in enumerate(starts)]
        return Bars(
            title="Similarity of each row to its most similar row",
            labels=labels[shown],
            values=list(self.counts[shown]),
            x_label="rows",
            caption=f"not shown: {counted(self.apart, 'row')} without a similar row (below {MIN_SIMILARITY})"
            if self.apart
            else "",
        )


def _deepest(given: Sequence[int]) -> int | None:
    """Return the bin with the lowest count between two peaks; the middle one of several."""
    counts = np.convolve(np.pad(np.array(given, float), 1, mode="edge"), SMOOTHED, mode="valid")
    lower = np.minimum(np.maximum.accumulate(counts), np.maximum.accumulate(counts[::-1])[::-1])  # of both peaks
    depths = lower - counts
    deep = np.flatnonzero((depths > SURE * np.sqrt(lower + counts)) & (depths >= NEARLY * depths.max()))
    return int(deep[len(deep) // 2]) if len(deep) else None


BANDS, BAND_ROWS = 28, 5
DEVIATIONS = 3  # below the minimum by this many standard deviations of the estimate, a pair is not worth comparing
BAND_NEIGHBORS = 3  # others in each crowded band that a text is compared with
MOST = 16  # exact comparisons per text
TEXTS, PAIRS = 8_192, 8_192  # block sizes


@lru_cache(maxsize=1 << 16)
def _runs(word: str) -> tuple[int, ...]:
    """Hash the trigrams of a word; the same in every process."""
    marked = f" {word} "
    return tuple(zlib.crc32(marked[at : at + 3].encode("utf-8", "surrogatepass")) for at in range(len(word)))


def features(text: str) -> set[int]:
    """Return the hashes of the trigrams of a text; a text without words counts as one trigram.

    >>> features("A small dog!") == features("small, a DOG"), len(features("a dog"))
    (True, 4)
    """
    return set().union(*map(_runs, runs_of(text))) or {zlib.crc32(text.encode("utf-8", "surrogatepass"))}


class ByText:
    """Compares texts by character trigrams; keeps the set of trigrams and 140 MinHash values per text."""

    default_threshold = 0.75

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.runs, self.starts = np.empty(0, np.uint32), np.zeros(1, np.int64)
        self.signed = np.empty((0, BANDS * BAND_ROWS), np.uint32)
        self.left_out = 0  # candidates that were not compared

    def pairs(self, min_similarity: float) -> Work[Pairs]:
        """Return pairs that are at least this similar, each once."""
        self.signed, self.left_out = np.empty((len(self.texts), BANDS * BAND_ROWS), np.uint32), 0
        yield from self._read(self.signed)
        found = list[Pairs]()
        for some in self._candidates(min_similarity):
            ones, others = _nearest(some)
            self.left_out += len(some.ones) - len(ones)
            found.append(Pairs(ones, others, self.between(ones, others)).above(min_similarity))
            yield Progress("texts compared", int(ones.max(initial=0)) + 1, len(self.texts))
        return concatenate_pairs(found)

    def _candidates(self, min_similarity: float) -> Iterator[Candidates]:
        promising = min_similarity - DEVIATIONS * (min_similarity * (1 - min_similarity) / (BANDS * BAND_ROWS)) ** 0.5
        return candidates(self.signed, BAND_ROWS, promising, BAND_NEIGHBORS)

    def bridges(self, near: Pairs, min_similarity: float) -> Work[Pairs]:
        """Return pairs between clusters, from candidates that were left out before."""
        leaders, found = clusters(len(self.texts), near.ones, near.others), list[Pairs]()
        for some in self._candidates(min_similarity) if self.left_out else ():
            apart = leaders[some.ones] != leaders[some.others]
            ones, others = some.ones[apart], some.others[apart]
            found.append(Pairs(ones, others, self.between(ones, others)).above(min_similarity))
            yield Progress("texts compared again", int(some.ones.max(initial=0)) + 1, len(self.texts))
        return concatenate_pairs(found)

    def _read(self, signed: np.ndarray) -> Work[None]:
        """Fill in the trigrams of all texts, concatenated, and their MinHash signatures."""
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
        twice = keys[:-1][keys[1:] == keys[:-1]] >> np.uint64(32)  # the pair of each trigram that both texts have
        common = np.bincount(twice.astype(np.int64), minlength=len(ones))
        either = self._sizes(ones) + self._sizes(others) - common
        return np.asarray(common / either, np.float32)

    def _keys(self, rows: np.ndarray) -> np.ndarray:
        """Return the trigrams of some texts, with the number of the text in the upper 32 bits."""
        sizes = self._sizes(rows)
        which = np.repeat(np.arange(len(rows)), sizes)
        inside = np.arange(len(which)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        found = self.runs[self.starts[rows][which] + inside]
        return np.asarray((which.astype(np.uint64) << np.uint64(32)) | found)

    def _sizes(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self.starts[rows + 1] - self.starts[rows])

    def representative(self, members: np.ndarray) -> int:
        """Return the longest of these texts, the first of several."""
        return int(max(members, key=lambda member: (len(self.texts[member]), -member)))


def _nearest(pairs: Candidates) -> tuple[np.ndarray, np.ndarray]:
    """Return the most promising pairs of each text; among many similar texts, chains are enough."""
    order = np.lexsort((-pairs.agreement, pairs.ones))
    ones = pairs.ones[order]
    first = np.flatnonzero(np.diff(ones, prepend=-1))  # where the pairs of a text begin
    rank = np.arange(len(ones)) - np.repeat(first, np.diff(first, append=len(ones)))
    kept = order[rank < MOST]
    return pairs.ones[kept], pairs.others[kept]


def _slices(count: int, size: int) -> Iterator[slice]:
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


NEIGHBORS = 8  # nearest neighbors that are kept per text
BATCH_SIZE = 1_024  # texts looked up in the graph at a time
PRODUCTS = 1 << 24  # similarities in memory at a time


class ByMeaning:
    """Compares texts by the vectors of a model; keeps one vector per text."""

    default_threshold = 0.9

    def __init__(self, texts: Sequence[str], model: SupportsEmbed, graph_from: int = GRAPH_FROM) -> None:
        self.texts, self.model, self.graph_from = texts, model, graph_from
        self.vectors = np.empty((0, 0), np.float32)

    def pairs(self, min_similarity: float) -> Work[Pairs]:
        """Return pairs of each text with its nearest texts that are at least this similar."""
        self.vectors = yield from embed_texts(self.texts, self.model)
        search = self._along_graph if len(self.texts) > self.graph_from else self._compared
        return concatenate_pairs((yield from search(min_similarity)))

    def _compared(self, min_similarity: float) -> Work[list[Pairs]]:
        """Compare every text with every other."""
        count, found = len(self.vectors), list[Pairs]()
        most, some = min(NEIGHBORS, count - 1), max(1, PRODUCTS // max(1, count))
        for start in range(0, count if most else 0, some):
            rows = np.arange(start, min(start + some, count))
            products = self.vectors[rows] @ self.vectors.T
            products[np.arange(len(rows)), rows] = -2  # a text is not its own neighbor
            near = np.argpartition(products, -most, axis=1)[:, -most:]
            found.append(_pairs_of(rows, near, np.take_along_axis(products, near, axis=1)).above(min_similarity))
            yield Progress("texts compared", int(rows[-1]) + 1, count)
        return found

    def _along_graph(self, min_similarity: float) -> Work[list[Pairs]]:
        """Find the neighbors of every text with a graph."""
        walk, found = (yield from grow_graph(None, self.vectors, "texts in the graph")), list[Pairs]()
        for start in range(0, len(self.vectors), BATCH_SIZE):
            rows = np.arange(start, min(start + BATCH_SIZE, len(self.vectors)))
            near = walk.search(self.vectors[rows], NEIGHBORS + 1, threads=1).keys.astype(np.int64)
            similarities = np.einsum("nw,nkw->nk", self.vectors[rows], self.vectors[near])
            found.append(_pairs_of(rows, near, np.where(near == rows[:, None], -2, similarities)).above(min_similarity))
            yield Progress("texts compared", int(rows[-1]) + 1, len(self.vectors))
        return found

    def bridges(self, near: Pairs, min_similarity: float) -> Work[Pairs]:
        """Return one pair for each two clusters that are connected; such texts have more neighbors than are kept."""
        crowded = np.flatnonzero(np.bincount(near.ones, minlength=len(self.vectors)) >= NEIGHBORS)
        leaders = clusters(len(self.vectors), near.ones, near.others)[crowded]
        vectors, some = self.vectors[crowded], max(1, PRODUCTS // 4 // max(1, len(crowded)))
        found = list[Pairs]()
        for start in range(0, len(crowded), some):
            if (leaders == leaders[0]).all():
                break
            inside = slice(start, start + some)
            apart = leaders[inside, None] != leaders
            ones, others = np.nonzero((vectors[inside] @ vectors.T >= min_similarity) & apart)
            ones = ones + start
            # the first pair for each two clusters
            two = leaders[ones] * (leaders.max() + 1) + leaders[others]
            first = np.unique(two, return_index=True)[1]
            ones, others = ones[first], others[first]
            leaders = clusters(len(self.vectors), leaders[ones], leaders[others])[leaders] if len(ones) else leaders
            found.append(Pairs(crowded[ones], crowded[others], self.between(crowded[ones], crowded[others])))
            yield Progress("crowded texts compared", min(start + some, len(crowded)), len(crowded))
        return concatenate_pairs(found)

    def between(self, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
        """[n] float32: the cosines of pairs of texts."""
        parts = ((self.vectors[ones[some]], self.vectors[others[some]]) for some in _slices(len(ones), BATCH_SIZE))
        found = [np.einsum("nw,nw->n", *both) for both in parts]
        return np.concatenate([np.empty(0, np.float32), *found]).clip(-1, 1)

    def representative(self, members: np.ndarray) -> int:
        """Return the text nearest to the center of a cluster."""
        vectors = self.vectors[members]
        return int(members[np.argmax(vectors @ vectors.mean(axis=0))])


def _pairs_of(rows: np.ndarray, near: np.ndarray, similarities: np.ndarray) -> Pairs:
    """Return the pairs of texts [n] with their neighbors [n,k]."""
    ones = np.repeat(rows, near.shape[1])
    return Pairs(ones, near.ravel(), np.asarray(similarities, np.float32).ravel().clip(-2, 1))
