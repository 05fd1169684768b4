"""How similar texts are by their letters: MinHash finds candidates, and every candidate is compared exactly.

A text is the set of the three-letter runs of its words, each word with a mark on both sides, as PostgreSQL's pg_trgm
has it; the similarity of two texts is the Jaccard similarity |A ∩ B| / |A ∪ B| of their sets.

    "A small dog!"   ──▶   ␣a␣   ␣sm sma mal all ll␣   ␣do dog og␣

Case, punctuation and the order of the words change nothing; a letter changes three runs, a word as many as it has
letters. Of pairs at 0.7 all but one in a hundred are candidates (28 bands of five, see `seqloom.data.checks.minhash`)
unless most texts share a template: then a text is compared with those that seem likest in each band, and a pair that is
hardly more similar than any other may be passed by.
"""

import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np

from seqloom.data.checks.minhash import Candidates, candidates, clusters, smallest
from seqloom.events import Progress
from seqloom.search.bm25 import runs_of
from seqloom.search.similarity import Pairs

BANDS, BAND_ROWS = 28, 5
DEVIATIONS = 3  # of the estimate, below the least similarity, at which an exact look is in vain
NEIGHBOURS = 3  # a text is compared with so many others of each crowded band, of which there are many
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

    def pairs(self, least: float) -> Iterator[Progress | Pairs]:
        """Pairs that are at least so similar, each once."""
        self.signed, self.left_out = np.empty((len(self.texts), BANDS * BAND_ROWS), np.uint32), 0
        yield from self._read(self.signed)
        for some in self._candidates(least):
            ones, others = _nearest(some)
            self.left_out += len(some.ones) - len(ones)
            yield Pairs(ones, others, self.between(ones, others)).above(least)
            yield Progress("texts compared", int(ones.max(initial=0)) + 1, len(self.texts))

    def _candidates(self, least: float) -> Iterator[Candidates]:
        promising = least - DEVIATIONS * (least * (1 - least) / (BANDS * BAND_ROWS)) ** 0.5
        return candidates(self.signed, BAND_ROWS, promising, NEIGHBOURS)

    def bridges(self, near: Pairs, least: float) -> Iterator[Progress | Pairs]:
        """Pairs between clusters, of candidates that were not among the likest of a text with many."""
        if not self.left_out:
            return
        leaders = clusters(len(self.texts), near.ones, near.others)
        for some in self._candidates(least):
            apart = leaders[some.ones] != leaders[some.others]
            ones, others = some.ones[apart], some.others[apart]
            yield Pairs(ones, others, self.between(ones, others)).above(least)

    def _read(self, signed: np.ndarray) -> Iterator[Progress]:
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
