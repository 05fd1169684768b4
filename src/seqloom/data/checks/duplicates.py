"""Rows that repeat others, exactly or nearly, inside a part and between parts.

*Exact* means the same text but for white space, case and Unicode form; every row is compared, by a 64-bit digest.
*Near* means in one group of `minhash`; of a part with more rows than MOST_ROWS a sample, drawn by a fixed seed, is
compared, and of a long text its beginning.
"""

import hashlib
import unicodedata
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from seqloom.data.checks.minhash import jaccard, near_groups, shingles
from seqloom.data.examples import Example, Input, TextPair, Words
from seqloom.data.problems import Place
from seqloom.data.schema import in_order

MOST_ROWS = 50_000  # of each part, for near duplicates
LONGEST = 1_000  # characters of a text that are compared, for near duplicates
SAMPLES = 5
MOST_LOOKS = 12  # at texts of a large group, for a good sample
SEED = 0


class Repeats(NamedTuple):
    """How many rows of a part repeat an earlier one, and how many have a near twin among those that were compared."""

    part: str
    rows: int
    exact: int
    near: int
    compared: int


class Leak(NamedTuple):
    """How many rows of the second part are in the first, exactly, and nearly among those that were compared."""

    first: str
    second: str
    rows: int  # of the second
    exact: int
    near: int
    compared: int  # of the second


class Twins(NamedTuple):
    """Two texts of a group of equal or near ones."""

    rows: int  # of the group
    similarity: float
    places: tuple[Place, Place]
    texts: tuple[str, str]


class Duplicates(NamedTuple):
    """Everything that occurs more than once."""

    repeats: tuple[Repeats, ...]
    leaks: tuple[Leak, ...]
    exact: tuple[Twins, ...]  # the largest groups
    near: tuple[Twins, ...]
    leaking: tuple[Twins, ...]  # the first text in the first part, the second in the second


def folded(text: str) -> str:
    """The text as it is compared: composed, in lower case, with single spaces.

    >>> folded("  Stra\\u00dfe \\t CAFE\\u0301")
    'strasse café'
    """
    composed = text if text.isascii() else unicodedata.normalize("NFC", text)
    return " ".join(composed.casefold().split())


def compared(value: Input) -> str:
    """The text of an input as it is compared; none for vectors and pictures."""
    if isinstance(value, str):
        return folded(value)
    if isinstance(value, Words):
        return folded(value.text)
    return f"{folded(value.first)}\x1f{folded(value.second)}" if isinstance(value, TextPair) else ""


def digest(value: Input) -> int:
    """64 bits that are equal for exact duplicates."""
    if isinstance(value, np.ndarray):
        content = repr((value.shape, value.dtype.str)).encode() + value.tobytes()
    else:
        content = compared(value).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())


class _Part:
    """The digests of all rows, and a reservoir of the rows that are compared nearly."""

    def __init__(self, draw: np.random.Generator, most_rows: int) -> None:
        self.rows = 0
        self.kept: list[tuple[int, Example]] = []  # digest and row
        self._draw, self._most = draw, most_rows
        self._digests: list[np.ndarray] = []

    def add(self, examples: Sequence[Example]) -> None:
        digests = [digest(example.input) for example in examples]
        self._digests.append(np.array(digests, np.uint64))
        places = self._draw.random(len(examples))
        for number, row in enumerate(zip(digests, examples, strict=True)):
            self.rows += 1
            if len(self.kept) < self._most:
                self.kept.append(row)
            elif (at := int(places[number] * self.rows)) < self._most:  # row n stays with probability most / n
                self.kept[at] = row

    @property
    def digests(self) -> np.ndarray:
        return np.concatenate(self._digests) if self._digests else np.empty(0, np.uint64)


class DuplicateSearch:
    """Is fed all parts block by block, and says at the end what occurs more than once."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self._draw = np.random.default_rng(SEED)
        self._most_rows = most_rows
        self._parts: dict[str, _Part] = {}

    def see(self, part: str, examples: Sequence[Example]) -> None:
        """Keep the digests of further rows, and some of the rows."""
        self._parts.setdefault(part, _Part(self._draw, self._most_rows)).add(examples)

    def finish(self) -> Duplicates:
        """All that was found."""
        self._parts = in_order(self._parts)
        kept = _Kept({name: part.kept for name, part in self._parts.items()})
        pairs = list(combinations(self._parts, 2))
        exact = np.concatenate([part.digests for part in self._parts.values()] or [np.empty(0, np.uint64)])
        return Duplicates(
            tuple(self._repeats(name, part, kept) for name, part in self._parts.items()),
            tuple(self._leak(first, second, kept) for first, second in pairs),
            tuple(kept.exact_samples(exact)),
            tuple(kept.near_samples()),
            tuple(sample for first, second in pairs for sample in kept.leaking_samples(first, second)),
        )

    def _repeats(self, name: str, part: _Part, kept: "_Kept") -> Repeats:
        exact = part.rows - len(np.unique(part.digests))
        near = sum(len(kept.others(key, name)) > 0 for key, _ in part.kept)
        return Repeats(name, part.rows, exact, near, len(part.kept))

    def _leak(self, first: str, second: str, kept: "_Kept") -> Leak:
        one, other = self._parts[first], self._parts[second]
        exact = set(other.digests[np.isin(other.digests, one.digests)].tolist())
        rows = int(np.isin(other.digests, one.digests).sum())
        near = sum(key not in exact and len(kept.others(key, first)) > 0 for key, _ in other.kept)
        return Leak(first, second, other.rows, rows, near, len(other.kept))


class _Kept:
    """The rows that are compared nearly: where each digest stands, and the near ones around it."""

    def __init__(self, parts: dict[str, list[tuple[int, Example]]]) -> None:
        self.rows: dict[int, list[tuple[str, Example]]] = {}  # by digest
        for name, rows in parts.items():
            for key, example in rows:
                self.rows.setdefault(key, []).append((name, example))
        keys = [key for key, found in self.rows.items() if not isinstance(found[0][1].input, np.ndarray)]
        texts = [compared(self.rows[key][0][1].input)[:LONGEST] for key in keys]
        self.groups = [[keys[number] for number in group] for group in near_groups(texts)]
        # For each digest of a group and each part, up to two digests of the group that stand in the part.
        self._in_part: dict[int, dict[str, list[int]]] = {}
        for group in self.groups:
            found: dict[str, list[int]] = {}
            for key in group:
                for name in {name for name, _ in self.rows[key]}:
                    found.setdefault(name, []).append(key)
            few = {name: keys[:2] for name, keys in found.items()}
            self._in_part |= dict.fromkeys(group, few)

    def others(self, key: int, part: str) -> list[int]:
        """Other digests of the same group that stand in the part, if there are any."""
        return [other for other in self._in_part.get(key, {}).get(part, []) if other != key]

    def exact_samples(self, digests: np.ndarray) -> list[Twins]:
        keys, counts = np.unique(digests, return_counts=True)
        largest = np.argsort(-counts, kind="stable")[: 4 * SAMPLES]
        wanted = [(int(keys[at]), int(counts[at])) for at in largest if counts[at] > 1]
        known = [(self.rows[key], count) for key, count in wanted if len(self.rows.get(key, ())) > 1]
        return [_twins(count, rows[0][1], rows[1][1]) for rows, count in known[:SAMPLES]]

    def near_samples(self) -> list[Twins]:
        sized = [(sum(len(self.rows[key]) for key in group), group) for group in self.groups]
        largest = sorted(sized, key=lambda entry: -entry[0])[:SAMPLES]
        return [self._nearest(size, group[:1], group[1:]) for size, group in largest]

    def leaking_samples(self, first: str, second: str) -> list[Twins]:
        """Near pairs before exact ones: these say more."""
        found = []
        for group in [*self.groups, *([key] for key in self.rows)]:
            ones, others = self._of_part(first, group), self._of_part(second, group)
            if ones and others:
                found.append(self._nearest(sum(len(self.rows[key]) for key in group), ones, others, (first, second)))
            if len(found) == SAMPLES:
                break
        return found

    def _of_part(self, part: str, keys: list[int]) -> list[int]:
        return [key for key in keys if any(name == part for name, _ in self.rows[key])]

    def _nearest(self, size: int, ones: list[int], others: list[int], parts: tuple[str, str] | None = None) -> Twins:
        """The most similar pair among the first few of both."""
        examples = [
            [self._example(key, parts and parts[side]) for key in keys[:MOST_LOOKS]]
            for side, keys in enumerate((ones, others))
        ]
        pairs = [_twins(size, one, other) for one in examples[0] for other in examples[1]]
        return max(pairs, key=lambda twins: twins.similarity)

    def _example(self, key: int, part: str | None) -> Example:
        return next(example for name, example in self.rows[key] if part in (None, name))


def _twins(rows: int, one: Example, other: Example) -> Twins:
    texts = compared(one.input)[:LONGEST], compared(other.input)[:LONGEST]
    similarity = jaccard(shingles(texts[0]), shingles(texts[1]))
    return Twins(rows, similarity, (one.place, other.place), (shown(one.input), shown(other.input)))


def shown(value: Input) -> str:
    """The text of an input for people, or what an array is."""
    if isinstance(value, np.ndarray):
        return f"array {' x '.join(map(str, value.shape))}"
    if isinstance(value, TextPair):
        return f"{value.first} | {value.second}"
    return value if isinstance(value, str) else value.text
