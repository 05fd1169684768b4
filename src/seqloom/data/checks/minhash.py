"""Near duplicates among texts: MinHash signatures, banding, and an exact look at every candidate (Broder 1997).

A text is its set of *shingles*, all runs of five characters. Two texts are near when their sets have a Jaccard
similarity |A ∩ B| / |A ∪ B| of at least 0.8. For a random order of all shingles, the first one of A is the first one
of B with that probability. A signature holds the firsts for 84 orders, and pairs that agree in all six of some band
are candidates: of pairs at 0.9 nearly all are found, at 0.8 all but two in a hundred.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

SHINGLE = 5  # characters
NEAR = 0.8
BANDS, BAND_ROWS = 14, 6
PROMISING = 0.66  # agreement of signatures below which an exact look is in vain: three deviations below NEAR
NEIGHBOURS = 8  # a text is compared with so many others of its bucket: chains hold a large group together
SLICE = 1 << 20  # characters hashed together
SEED = 0x5E91_00B


def shingles(text: str) -> frozenset[str]:
    """All runs of five characters; of a shorter text, itself."""
    return frozenset(text[at : at + SHINGLE] for at in range(max(1, len(text) - SHINGLE + 1)))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of common shingles among those of both."""
    common = len(one & other)
    return common / (len(one) + len(other) - common)


def near_groups(texts: Sequence[str]) -> list[list[int]]:
    """Groups of near texts by their numbers, two or more in each: chains of pairs whose similarity is at least 0.8.

    >>> near_groups(["the cat sat on the mat, and that was that", "something else",
    ...              "the cat sat on the mat, and that was that!"])
    [[0, 2]]
    """
    leaders = list(range(len(texts)))
    kept = lru_cache(maxsize=16_384)(lambda row: shingles(texts[row]))
    for one, other in _candidates(signatures(texts)):
        first, second = _leader(leaders, one), _leader(leaders, other)
        if first != second and jaccard(kept(one), kept(other)) >= NEAR:
            leaders[max(first, second)] = min(first, second)
    groups: dict[int, list[int]] = {}
    for row in range(len(texts)):
        groups.setdefault(_leader(leaders, row), []).append(row)
    return [group for group in groups.values() if len(group) > 1]


def _leader(leaders: list[int], row: int) -> int:
    while leaders[row] != row:
        leaders[row] = row = leaders[leaders[row]]  # halves the way for the next time
    return row


def signatures(texts: Sequence[str]) -> np.ndarray:
    """[texts, 84] uint32: the smallest hash of a text's shingles in each of 84 orders."""
    found = [_signatures(some) for some in _slices(texts)]
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


def _signatures(texts: list[str]) -> np.ndarray:
    hashes, starts = _hashed_shingles(texts)
    draw = np.random.default_rng(SEED)
    result = np.empty((len(texts), BANDS * BAND_ROWS), np.uint32)
    for order in range(result.shape[1]):
        factor, offset = draw.integers(0, 1 << 32, 2, np.uint32)
        # An odd factor makes this a permutation of all 32-bit numbers.
        result[:, order] = np.minimum.reduceat(hashes * (factor | np.uint32(1)) + offset, starts)
    return result


def _hashed_shingles(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """32-bit hashes of the shingles of all texts, one text after the other, and where each text begins."""
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


def _candidates(signed: np.ndarray) -> Iterator[tuple[int, int]]:
    """Pairs that agree in a band and in most of their signatures."""
    rows = len(signed)
    found = [np.empty(0, np.int64)]
    for band in range(BANDS):
        one, other = _band_pairs(_band_keys(signed[:, band * BAND_ROWS : (band + 1) * BAND_ROWS]))
        found.append(np.minimum(one, other) * rows + np.maximum(one, other))
    pairs = np.unique(np.concatenate(found))
    for some in np.array_split(pairs, len(pairs) // SLICE + 1):
        one, other = np.divmod(some, max(1, rows))
        agreement = np.zeros(len(some), np.int16)
        for column in signed.T:
            agreement += column[one] == column[other]
        promising = agreement >= PROMISING * signed.shape[1]
        yield from zip(one[promising].tolist(), other[promising].tolist(), strict=True)


def _band_keys(band: np.ndarray) -> np.ndarray:
    """[rows] uint64, equal where the band is; others meet so rarely that the exact look may sort them out."""
    keys = np.zeros(len(band), np.uint64)
    for column in band.T:
        keys = (keys ^ column) * np.uint64(0x9E37_79B9_7F4A_7C15)
        keys ^= keys >> np.uint64(31)
    return keys


def _band_pairs(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of rows in one bucket: all of a small one, neighbours of a large one."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    same = [(apart, ordered[apart:] == ordered[:-apart]) for apart in range(1, NEIGHBOURS + 1)]
    ones = [order[apart:][equal] for apart, equal in same]
    others = [order[:-apart][equal] for apart, equal in same]
    return np.concatenate(ones), np.concatenate(others)
