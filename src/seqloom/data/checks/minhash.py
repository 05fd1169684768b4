"""Near duplicates among texts: MinHash signatures, banding, and an exact comparison of every candidate (Broder 1997).

A text is represented by its set of *shingles*, all runs of five characters. Two texts are near duplicates if the
Jaccard similarity |A ∩ B| / |A ∪ B| of their sets is at least 0.8. In a random order of all shingles, A and B have the
same first shingle with that probability. A signature holds the first shingles in 84 orders. Pairs that agree in all six
orders of some band are candidates: this finds nearly all pairs with similarity 0.9, and 98 % of those with 0.8.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

# Clusters: connected components of pairs, by union-find. Every member points to an earlier one of its cluster, and
# finally to the first. Paths are halved while they are followed, so joining a pair is cheap (Tarjan 1975).


class Clusters:
    """Clusters of the numbers 0 ... count - 1; at first each number is its own cluster."""

    def __init__(self, count: int) -> None:
        self._earlier = list(range(count))

    def leader(self, row: int) -> int:
        """The first member of a row's cluster."""
        earlier = self._earlier
        while earlier[row] != row:
            earlier[row] = row = earlier[earlier[row]]  # halves the path for the next time
        return row

    def join(self, one: int, other: int) -> None:
        """Merge the clusters of the two."""
        first, second = self.leader(one), self.leader(other)
        self._earlier[max(first, second)] = min(first, second)

    def leaders(self) -> np.ndarray:
        """[count] int64: for each row the first member of its cluster."""
        return np.array([self.leader(row) for row in range(len(self._earlier))], np.int64)


def clusters(count: int, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[count] int64: the first member of each number's cluster after all pairs are joined.

    >>> clusters(5, np.array([3, 4]), np.array([1, 3])).tolist()
    [0, 1, 2, 1, 1]
    """
    found = Clusters(count)
    for one, other in zip(ones.tolist(), others.tolist(), strict=True):
        found.join(one, other)
    return found.leaders()


def members(leaders: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the members of each cluster of two or more, ordered by their first members.

    >>> [group.tolist() for group in members(np.array([0, 1, 2, 1, 1]))]
    [[1, 3, 4]]
    """
    order = np.argsort(leaders, kind="stable")
    starts = np.flatnonzero(np.diff(leaders[order], prepend=-1))
    return (group for group in np.split(order, starts[1:]) if len(group) > 1)


SHINGLE = 5  # characters
NEAR = 0.8
BANDS, BAND_ROWS = 14, 6
PROMISING = 0.66  # pairs whose signatures agree less are not compared exactly: three deviations below NEAR
NEIGHBORS = 8  # each text of a bucket is compared with its most similar neighbors; chains connect a large group
DEPTH = 12  # more bands by which a crowded bucket is ordered
SLICE = 1 << 20  # characters hashed together
TOGETHER = 1 << 15  # pairs whose signatures are compared together
SEED = 0x5E91_00B


class Candidates(NamedTuple):
    """Pairs of texts by their numbers, and the share of their signatures that agrees: an estimate of similarity."""

    ones: np.ndarray
    others: np.ndarray
    agreement: np.ndarray


def shingles(text: str) -> frozenset[str]:
    """All runs of five characters; a shorter text is one shingle."""
    return frozenset(text[at : at + SHINGLE] for at in range(max(1, len(text) - SHINGLE + 1)))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """The Jaccard similarity of two sets of shingles."""
    common = len(one & other)
    return common / (len(one) + len(other) - common)


def near_groups(texts: Sequence[str]) -> list[list[int]]:
    """Groups of near duplicates by their numbers: texts connected by pairs whose similarity is at least 0.8.

    >>> near_groups(["the cat sat on the mat, and that was that", "something else",
    ...              "the cat sat on the mat, and that was that!"])
    [[0, 2]]
    """
    found = Clusters(len(texts))
    kept = lru_cache(maxsize=16_384)(lambda row: shingles(texts[row]))
    blocks = (zip(ones.tolist(), others.tolist(), strict=True) for ones, others, _ in candidates(signatures(texts)))
    for one, other in chain.from_iterable(blocks):
        if found.leader(one) != found.leader(other) and jaccard(kept(one), kept(other)) >= NEAR:
            found.join(one, other)
    return [group.tolist() for group in members(found.leaders())]


def signatures(texts: Sequence[str]) -> np.ndarray:
    """[texts, 84] uint32: the smallest hash of a text's shingles in each of 84 orders."""
    found = [smallest(*_hashed_shingles(some), BANDS * BAND_ROWS) for some in _slices(texts)]
    return np.concatenate(found) if found else np.empty((0, BANDS * BAND_ROWS), np.uint32)


def _slices(texts: Sequence[str]) -> Iterator[list[str]]:
    some: list[str] = []
    size = 0
    for text in texts:
        some.append(text.ljust(SHINGLE, "\0"))  # a short text is one shingle
        size += len(some[-1])
        if size > SLICE:
            yield some
            some, size = [], 0
    if some:
        yield some


def smallest(hashes: np.ndarray, starts: np.ndarray, orders: int) -> np.ndarray:
    """[texts, orders] uint32: the smallest of each text's hashes in each order; `starts` says where texts begin."""
    draw = np.random.default_rng(SEED)
    result = np.empty((len(starts), orders), np.uint32)
    for order in range(orders):
        factor, offset = draw.integers(0, 1 << 32, 2, np.uint32)
        # An odd factor makes this a permutation of all 32-bit numbers.
        result[:, order] = np.minimum.reduceat(hashes * (factor | np.uint32(1)) + offset, starts)
    return result


def _hashed_shingles(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """32-bit hashes of the shingles of all texts, concatenated, and the start of each text."""
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    count = len(codes) - SHINGLE + 1
    mixed = np.zeros(count, np.uint64)
    for at in range(SHINGLE):
        mixed = (mixed ^ codes[at : at + count]) * np.uint64(0x9E37_79B9_7F4A_7C15)
        mixed ^= mixed >> np.uint64(29)
    ends = np.cumsum([len(text) for text in texts])
    inside = np.ones(count, bool)
    for back in range(1, SHINGLE):  # a run that begins less than five before an end reaches into the next text
        inside[ends[:-1] - back] = False
    starts = np.concatenate([[0], ends[:-1]]) - np.arange(len(texts)) * (SHINGLE - 1)
    return (mixed[inside] >> np.uint64(32)).astype(np.uint32), starts


def candidates(
    signed: np.ndarray, band_rows: int = BAND_ROWS, promising: float = PROMISING, neighbors: int = NEIGHBORS
) -> Iterator[Candidates]:
    """Yield blocks of pairs that agree in a band and in most of their signatures, each pair once."""
    rows, orders = signed.shape
    pairs = np.empty(0, np.int64)
    bands = [_band_keys(signed[:, start : start + band_rows]) for start in range(0, orders, band_rows)]
    draw = np.random.default_rng(SEED)
    for band, keys in enumerate(bands):
        further = [bands[other] for other in draw.permutation(len(bands)) if other != band]
        ones, others = _band_pairs(keys, further[:DEPTH], neighbors)
        pairs = _merged(pairs, np.minimum(ones, others) * rows + np.maximum(ones, others))
    for start in range(0, len(pairs), TOGETHER):
        ones, others = np.divmod(pairs[start : start + TOGETHER], rows)
        agreement = np.count_nonzero(signed[ones] == signed[others], axis=1) / orders
        near = agreement >= promising
        yield Candidates(ones[near], others[near], agreement[near])


def _merged(pairs: np.ndarray, more: np.ndarray) -> np.ndarray:
    """The sorted union of both; the first is already sorted, which a stable sort makes use of."""
    both = np.concatenate([pairs, np.sort(more)])
    both.sort(kind="stable")
    return np.asarray(both[np.append(True, both[1:] != both[:-1])[: len(both)]])


def _band_keys(band: np.ndarray) -> np.ndarray:
    """[rows] uint64, equal where the band is equal; rare collisions are sorted out by the exact comparison."""
    keys = np.zeros(len(band), np.uint64)
    for column in band.T:
        keys = (keys ^ column) * np.uint64(0x9E37_79B9_7F4A_7C15)
        keys ^= keys >> np.uint64(31)
    return keys


def _band_pairs(keys: np.ndarray, further: Sequence[np.ndarray], neighbors: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of rows in one bucket: all pairs of a small bucket; neighbors of a large one, sorted by more bands.

    After sorting, rows that agree in many bands are neighbors, at any distance in the file.
    """
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
    sizes = np.diff(starts, append=len(ordered))
    crowded = np.repeat(sizes > neighbors + 1, sizes)
    rows = order[crowded]
    order[crowded] = rows[np.lexsort([*(band[rows] for band in reversed(further)), keys[rows]])]
    same = [(apart, ordered[apart:] == ordered[:-apart]) for apart in range(1, neighbors + 1)]
    ones = [order[apart:][equal] for apart, equal in same]
    others = [order[:-apart][equal] for apart, equal in same]
    return np.concatenate(ones), np.concatenate(others)
