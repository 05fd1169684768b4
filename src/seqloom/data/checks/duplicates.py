"""Duplicates: repeated ids, one input with two labels, inputs in two splits, and near duplicates.

`RepeatCheck` is cheap and runs before every training. It compares 64-bit hashes, kept as arrays and sorted once at the
end; among a million inputs the chance of a false match is about three in a hundred million. Of a very large split only
the first rows are compared, to limit memory, and a note says so. An id must be unique within its split and its file;
files of different splits may use the same ids.

`DuplicateSearch` is for the data report. *Exact* means the same text up to white space, case and Unicode form; every
row is compared, by a 64-bit digest. *Near* means in one group of `minhash`. Of a split with over MOST_COMPARED rows a
random sample with a fixed seed is compared, and of a long text its beginning. More than 1 % of rows with a near
duplicate in another split give the warning `leak.near`.
"""

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from seqloom.data.checks.check import BlockPlaces, ExampleBlock, hashes
from seqloom.data.checks.minhash import jaccard, near_groups, shingles
from seqloom.data.kinds.kind import InputKind
from seqloom.data.problems import SAMPLES, Ledger, Place
from seqloom.data.schema import Example, Input, Schema, in_order
from seqloom.report.numbers import share

MOST_ROWS = {"train": 2**21}  # of a split that are compared, about 30 bytes each
MOST_OTHERS = 2**19


class _SplitHashes:
    def __init__(self) -> None:
        self.left_out = 0
        self.places = BlockPlaces()
        self._keys: list[np.ndarray] = []
        self.targets: list[np.ndarray] = []
        self._ids: list[np.ndarray] = []

    def add(self, block: ExampleBlock) -> None:
        self.places.add(block.examples)
        self._keys.append(block.keys)
        ids = block.examples.ids
        self._ids.append(hashes(ids) if all(ids) else np.empty(0, np.int64))
        self.targets.append(hashes(block.examples.targets))

    @property
    def keys(self) -> np.ndarray:
        return np.concatenate(self._keys)

    @property
    def pairs(self) -> np.ndarray:
        """[rows] int64, equal for equal inputs with equal targets."""
        found: np.ndarray = self.keys * 31 + np.concatenate(self.targets)
        return found

    @property
    def ids(self) -> np.ndarray:
        ids = np.concatenate(self._ids)
        return ids if len(ids) == self.places.rows else ids[:0]  # some rows have no id: nothing to compare


class RepeatCheck:
    """Finds id.duplicate, label.conflict and leak.overlap."""

    def __init__(self, schema: Schema) -> None:
        self._labeled = schema.target.has_labels and not schema.target.of_steps
        self._parts: dict[str, _SplitHashes] = {}

    def update(self, block: ExampleBlock) -> None:
        """Add the hashes of more rows."""
        part = self._parts.setdefault(block.split, _SplitHashes())
        if part.places.rows < MOST_ROWS.get(block.split, MOST_OTHERS):
            part.add(block)
        else:
            part.left_out += len(block.examples)

    def finish(self, ledger: Ledger) -> None:
        """Write all duplicates to the ledger; a repeated id raises RejectedError."""
        self._parts = in_order(self._parts)
        for name, part in self._parts.items():
            if part.left_out:
                text = f"only the first {part.places.rows:,} rows of {name} were checked for duplicates"
                ledger.note("repeats.some", text, part.places[0], count=part.left_out)
        if self._labeled and self._parts:
            self._find_conflicts(ledger)
        for (first, one), (second, other) in combinations(self._parts.items(), 2):
            _find_overlap(ledger, (first, one), (second, other))
        for part in self._parts.values():
            _refuse_repeated_ids(ledger, [part], [part.ids])
        named = [part for part in self._parts.values() if len(part.ids)]
        _refuse_repeated_ids(ledger, named, [part.ids ^ part.places.file_keys() for part in named])

    def _find_conflicts(self, ledger: Ledger) -> None:
        parts = list(self._parts.values())
        keys = np.concatenate([part.keys for part in parts])
        targets = np.concatenate([some for part in parts for some in part.targets])
        order = np.argsort(keys, kind="stable")
        same = keys[order][1:] == keys[order][:-1]
        differs = np.flatnonzero(same & (targets[order][1:] != targets[order][:-1]))
        if not len(differs):
            return
        group = np.cumsum(np.concatenate([[True], ~same]))  # of equal inputs
        _, firsts = np.unique(group[differs], return_index=True)  # one finding for each input
        pairs = sorted((int(order[at + 1]), int(order[at])) for at in differs[firsts])
        for later, earlier in pairs[:SAMPLES]:
            place = _place_in(parts, later)
            text = f"the same input as {beside(place, _place_in(parts, earlier))}, but with another label"
            fix = ledger.or_clean("choose one label, or remove both rows", place.path, "--conflicts drop")
            ledger.warn("label.conflict", text, place, fix)
        if len(pairs) > SAMPLES:
            ledger.warn("label.conflict", "more rows", _place_in(parts, pairs[-1][0]), count=len(pairs) - SAMPLES)


def _place_in(parts: list[_SplitHashes], row: int) -> Place:
    """The place of a row, counted over all these splits."""
    for part in parts:
        if row < part.places.rows:
            return part.places[row]
        row -= part.places.rows
    raise IndexError(row)


def _find_overlap(ledger: Ledger, split: tuple[str, _SplitHashes], later: tuple[str, _SplitHashes]) -> None:
    (first, one), (second, other) = split, later
    keys, others = one.keys, other.keys
    hits = np.flatnonzero(_are_in(others, keys))
    if not len(hits):
        return
    rows, place = other.places.rows, other.places[int(hits[0])]
    twin = one.places[int(np.flatnonzero(keys == others[hits[0]])[0])]
    have = "has an input that is identical to one" if len(hits) == 1 else "have inputs that are identical to some"
    repeats = int(_are_in(other.pairs[hits], one.pairs).sum())  # cleaning drops these, not other targets of an input
    targets = "" if repeats == len(hits) else f", {repeats or 'none'} with the same target"
    text = (
        f"{len(hits):,} of {rows:,} rows in {second} ({share(len(hits), rows)}) {have} in {first}{targets}; "
        f"the first is the same as {beside(place, twin)}"
    )
    removed = f"remove these rows from {first}"
    if place.path == twin.path:  # it may be split at random, and cleaning reads one file
        removed = "keep one of these rows in the file"
        removed = ledger.or_clean(removed, place.path, words=True) if repeats else removed
    fix = f"{removed}; otherwise scores on {second} are too optimistic"
    ledger.warn("leak.overlap", text, place, fix, count=len(hits))


def _are_in(keys: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Whether each key is one of the others; a fifth of the time of `np.isin` if these are many more."""
    known = np.sort(others)
    found: np.ndarray = np.searchsorted(known, keys, side="right") > np.searchsorted(known, keys)
    return found


def _refuse_repeated_ids(ledger: Ledger, parts: list[_SplitHashes], keys: list[np.ndarray]) -> None:
    """Raise RejectedError if two rows of these splits have the same key."""
    ids = np.concatenate([np.empty(0, np.int64), *keys])
    order = np.argsort(ids, kind="stable")
    repeats = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    if not len(repeats):
        return
    at = repeats[np.argmin(order[repeats + 1])]
    earlier, later = (_place_in(parts, int(order[row])) for row in (at, at + 1))
    more = f"; {len(repeats):,} rows repeat an id" if len(repeats) > 1 else ""
    text = f"the same id as {beside(later, earlier)}{more}"
    ledger.bad_file("id.duplicate", text, later, "give every row its own id, or use no ids with --id ''")


def beside(place: Place, other: Place) -> str:
    """The other place as a reader of this one would call it: "in line 3", or "at other.csv:3"."""
    return f"in line {other.line}" if place.path == other.path and other.line else f"at {other}"


MOST_COMPARED = 50_000  # rows of each split, for near duplicates
LONGEST = 1_000  # characters of a text that are compared, for near duplicates
MANY_NEAR = 0.01  # share of the compared rows from which near duplicates are a warning
MOST_CANDIDATES = 12  # texts of a large group that are compared to find a good sample
SEED = 0


class Repeats(NamedTuple):
    """Duplicates within a split: exact ones among all rows, near ones among those that were compared."""

    split: str
    rows: int
    exact: int
    near: int
    compared: int


class DuplicatePair(NamedTuple):
    """Two texts of a group of exact or near duplicates."""

    group: int  # equal for samples of the same group
    rows: int  # of the group
    similarity: float
    places: tuple[Place, Place]
    texts: tuple[str, str]


class Leak(NamedTuple):
    """Duplicates between two splits: rows of `second` that are also in `first`."""

    first: str
    second: str
    rows: int  # of `second`
    exact: int
    near: int  # among the compared rows
    compared: int  # rows of `second`
    samples: tuple[DuplicatePair, ...]  # texts of the first and the second split; near duplicates come first


class DuplicateRows(NamedTuple):
    """All duplicates of a dataset, with samples."""

    within: tuple[Repeats, ...]  # one for each split
    between: tuple[Leak, ...]  # one for each pair of splits
    exact: tuple[DuplicatePair, ...]  # the largest groups
    near: tuple[DuplicatePair, ...]

    def warn(self, ledger: Ledger) -> None:
        """Warn of near duplicates between splits, with the place of the first one."""
        for first, second, _, _, near, compared, samples in self.between:
            if near > MANY_NEAR * compared:
                twin, place = samples[0].places
                text = (
                    f"{near:,} of {compared:,} rows in {second} ({share(near, compared)}) "
                    f"{'is' if near == 1 else 'are'} nearly the same as a row in {first}; "
                    f"the first is similar to the one {beside(place, twin)}"
                )
                removed = f"if they are copies, remove them from {first}"
                if place.path == twin.path:  # it may be split at random, and cleaning reads one file
                    kept = "if they are copies, keep one of them in the file"
                    removed = ledger.or_clean(kept, place.path, "--repeats near")
                fix = f"{removed}; otherwise scores on {second} are too optimistic"
                ledger.warn("leak.near", text, place, fix, count=near)


def folded(text: str) -> str:
    """The text as it is compared: in NFC, lowercased, with single spaces.

    >>> folded("  Stra\\u00dfe \\t CAFE\\u0301")
    'strasse café'
    """
    composed = text if text.isascii() else unicodedata.normalize("NFC", text)
    return " ".join(composed.casefold().split())


def digest(kind: InputKind, value: Input) -> int:
    """64 bits that are equal for exact duplicates."""
    if texts := kind.texts(value):
        content = _compared(texts).encode("utf-8", "surrogatepass")
    else:
        array = np.asarray(value)
        content = repr((array.shape, array.dtype.str)).encode() + array.tobytes()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())


def _compared(texts: Iterable[str]) -> str:
    """The texts of an input as they are compared."""
    return "\x1f".join(map(folded, texts))


def compared_texts(texts: Iterable[str]) -> str:
    """The same as far as near duplicates are compared."""
    return _compared(texts)[:LONGEST]


class _Row(NamedTuple):
    """The stored part of a row: about two kilobytes for any size."""

    text: str | None  # as it is compared; None for vectors and pictures
    shown: str
    place: Place

    @classmethod
    def of(cls, kind: InputKind, example: Example) -> "_Row":
        if texts := kind.texts(example.input):
            return cls(compared_texts(texts), " | ".join(texts)[:LONGEST], example.place)
        return cls(None, f"array {' x '.join(map(str, np.shape(example.input)))}", example.place)


class _SplitRows:
    """The digests of all rows of a split, and a random sample of the rows to search for near duplicates."""

    def __init__(self, kind: InputKind, draw: np.random.Generator, most_rows: int) -> None:
        self.kind, self.rows = kind, 0
        self.kept: list[tuple[int, _Row]] = []  # with their digests
        self._draw, self._most = draw, most_rows
        self._digests: list[np.ndarray] = []

    def add(self, examples: Sequence[Example]) -> None:
        digests = [digest(self.kind, example.input) for example in examples]
        self._digests.append(np.array(digests, np.uint64))
        places = self._draw.random(len(examples))
        for key, example, place in zip(digests, examples, places, strict=True):
            self.rows += 1
            if len(self.kept) < self._most:
                self.kept.append((key, _Row.of(self.kind, example)))
            elif (at := int(place * self.rows)) < self._most:  # row n stays with probability most / n
                self.kept[at] = key, _Row.of(self.kind, example)

    @property
    def digests(self) -> np.ndarray:
        return np.concatenate(self._digests) if self._digests else np.empty(0, np.uint64)


class DuplicateSearch:
    """Finds exact and near duplicates; it is updated with all splits, block by block."""

    def __init__(self, kind: InputKind, most_rows: int = MOST_COMPARED) -> None:
        self._kind = kind
        self._draw = np.random.default_rng(SEED)
        self._most_rows = most_rows
        self._parts: dict[str, _SplitRows] = {}

    def update(self, split: str, examples: Sequence[Example]) -> None:
        """Add the digests of more rows, and a sample of the rows."""
        self._parts.setdefault(split, _SplitRows(self._kind, self._draw, self._most_rows)).add(examples)

    def finish(self) -> DuplicateRows:
        """Return all duplicates."""
        self._parts = in_order(self._parts)
        kept = _KeptRows({name: part.kept for name, part in self._parts.items()})
        exact = np.concatenate([part.digests for part in self._parts.values()] or [np.empty(0, np.uint64)])
        return DuplicateRows(
            tuple(self._repeats(name, part, kept) for name, part in self._parts.items()),
            tuple(self._leak(first, second, kept) for first, second in combinations(self._parts, 2)),
            tuple(kept.exact_samples(exact)),
            tuple(kept.near_samples()),
        )

    def _repeats(self, name: str, part: _SplitRows, kept: "_KeptRows") -> Repeats:
        exact = part.rows - len(np.unique(part.digests))
        near = sum(len(kept.others(key, name)) > 0 for key, _ in part.kept)
        return Repeats(name, part.rows, exact, near, len(part.kept))

    def _leak(self, first: str, second: str, kept: "_KeptRows") -> Leak:
        one, other = self._parts[first], self._parts[second]
        inside = np.isin(other.digests, one.digests)
        exact = set(other.digests[inside].tolist())
        near = [key for key, _ in other.kept if key not in exact and kept.others(key, first)]
        samples = kept.leaking_samples(first, second, [*near, *(key for key, _ in other.kept if key in exact)])
        return Leak(first, second, other.rows, int(inside.sum()), len(near), len(other.kept), tuple(samples))


class _KeptRows:
    """The sampled rows by digest, and the groups of near duplicates among them."""

    def __init__(self, parts: dict[str, list[tuple[int, _Row]]]) -> None:
        self.rows: dict[int, list[tuple[str, _Row]]] = {}  # by digest
        for name, rows in parts.items():
            for key, row in rows:
                self.rows.setdefault(key, []).append((name, row))
        texts = {key: text for key, found in self.rows.items() if (text := found[0][1].text) is not None}
        keys = list(texts)
        self.groups = [[keys[number] for number in group] for group in near_groups(list(texts.values()))]
        self._group = {key: group for group in self.groups for key in group}
        self._members: dict[tuple[int, str], list[int]] = {}  # the digests of a group in a split
        for first, key in ((group[0], key) for group in self.groups for key in group):
            for name in {name for name, _ in self.rows[key]}:
                self._members.setdefault((first, name), []).append(key)
        self._numbers: dict[int, int] = {}  # of the groups that are shown

    def others(self, key: int, part: str) -> list[int]:
        """The first few other digests of the same group in a split."""
        members = self._members.get((self._leader(key), part), [])
        return [other for other in members[: MOST_CANDIDATES + 1] if other != key]

    def _leader(self, key: int) -> int:
        return self._group[key][0] if key in self._group else key

    def exact_samples(self, digests: np.ndarray) -> list[DuplicatePair]:
        """Samples of the digests that occur most often."""
        keys, counts = np.unique(digests, return_counts=True)
        largest = np.argsort(-counts, kind="stable")[: 4 * SAMPLES]
        wanted = {int(keys[at]): int(counts[at]) for at in largest if counts[at] > 1}
        known = [key for key in wanted if len(self.rows.get(key, ())) > 1]
        rows = {key: [row for _, row in self.rows[key]] for key in self._one_of_each(known)}
        return [self._sample(key, wanted[key], [(some[0], some[1])]) for key, some in rows.items()]

    def near_samples(self) -> list[DuplicatePair]:
        """Samples of the largest groups of near duplicates."""
        largest = sorted(self.groups, key=lambda group: -self._size(group[0]))[:SAMPLES]
        return [self._sample(first, self._size(first), self._pairs([first], more)) for first, *more in largest]

    def leaking_samples(self, first: str, second: str, keys: Iterable[int]) -> list[DuplicatePair]:
        """Samples of these digests of the second split, each with its exact or nearest duplicate in the first."""
        twins = {
            key: [key] if any(name == first for name, _ in self.rows[key]) else self.others(key, first) for key in keys
        }
        known = self._one_of_each([key for key, ones in twins.items() if ones])
        return [self._sample(key, self._size(key), self._pairs(twins[key], [key], (first, second))) for key in known]

    def _one_of_each(self, keys: list[int]) -> list[int]:
        """The first of each group, for as many groups as are shown."""
        firsts: dict[int, int] = {}
        for key in keys:
            firsts.setdefault(self._leader(key), key)
        return list(firsts.values())[:SAMPLES]

    def _size(self, key: int) -> int:
        return sum(len(self.rows[one]) for one in self._group.get(key, [key]))

    def _pairs(
        self, ones: list[int], others: list[int], parts: tuple[str | None, str | None] = (None, None)
    ) -> list[tuple[_Row, _Row]]:
        first, second = (
            [next(row for name, row in self.rows[key] if part in (None, name)) for key in keys[:MOST_CANDIDATES]]
            for keys, part in zip((ones, others), parts, strict=True)
        )
        return list(product(first, second))

    def _sample(self, key: int, rows: int, pairs: list[tuple[_Row, _Row]]) -> DuplicatePair:
        """The most similar of the pairs."""
        number = self._numbers.setdefault(self._leader(key), len(self._numbers))
        similarities = [jaccard(shingles(one.text or ""), shingles(other.text or "")) for one, other in pairs]
        best = int(np.argmax(similarities))
        one, other = pairs[best]
        return DuplicatePair(number, rows, similarities[best], (one.place, other.place), (one.shown, other.shown))
