"""What occurs twice: an id, an input with two labels, an input in two parts; and rows that repeat others nearly.

`RepeatCheck` is cheap and runs before every training. It compares 64-bit hashes, kept as arrays and sorted once at the
end: two different inputs among a million meet by chance about three times in a hundred million readings. Of a very
large part only the first rows are kept, so that memory has an end; a note says so. An id names one row of its part and
of its file. Files of different parts may count their rows alike.

`DuplicateSearch` is for the data report. *Exact* means the same text but for white space, case and Unicode form; every
row is compared, by a 64-bit digest. *Near* means in one group of `minhash`; of a part with more rows than MOST_COMPARED
a sample, drawn by a fixed seed, is compared, and of a long text its beginning. Rows that are nearly in another part are
a finding, `leak.near`, when they are more than one in a hundred.
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

MOST_ROWS = {"train": 2**21}  # of a part that are compared, about 30 bytes each
MOST_OTHERS = 2**19


class _RepeatPart:
    def __init__(self) -> None:
        self.left_out = 0
        self.places = BlockPlaces()
        self._keys: list[np.ndarray] = []
        self.targets: list[np.ndarray] = []
        self._ids: list[np.ndarray] = []

    def add(self, block: ExampleBlock, with_targets: bool) -> None:
        self.places.add(block.examples)
        self._keys.append(block.keys)
        ids = [example.id for example in block.examples]
        self._ids.append(hashes(ids) if all(ids) else np.empty(0, np.int64))
        if with_targets:
            self.targets.append(hashes(example.target for example in block.examples))

    @property
    def keys(self) -> np.ndarray:
        return np.concatenate(self._keys)

    @property
    def ids(self) -> np.ndarray:
        ids = np.concatenate(self._ids)
        return ids if len(ids) == self.places.rows else ids[:0]  # rows without ids cannot repeat one


class RepeatCheck:
    """Finds id.duplicate, label.conflict and leak.overlap."""

    def __init__(self, schema: Schema) -> None:
        self._labelled = schema.target.has_labels and not schema.target.of_steps
        self._parts: dict[str, _RepeatPart] = {}

    def see(self, block: ExampleBlock) -> None:
        """Keep the hashes of further rows."""
        part = self._parts.setdefault(block.part, _RepeatPart())
        if part.places.rows < MOST_ROWS.get(block.part, MOST_OTHERS):
            part.add(block, self._labelled)
        else:
            part.left_out += len(block.examples)

    def finish(self, ledger: Ledger) -> None:
        """Write what occurs twice; a repeated id is refused."""
        self._parts = in_order(self._parts)
        for name, part in self._parts.items():
            if part.left_out:
                text = f"repeats were looked for in the first {part.places.rows:,} rows of {name} only"
                ledger.note("repeats.some", text, part.places[0], count=part.left_out)
        if self._labelled and self._parts:
            self._find_conflicts(ledger)
        for (first, one), (second, other) in combinations(self._parts.items(), 2):
            _find_overlap(ledger, first, one, second, other)
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
            text = f"the input is the same as {beside(place, _place_in(parts, earlier))}, and its label is another one"
            ledger.warn("label.conflict", text, place, "decide on one label, or drop both rows")
        if len(pairs) > SAMPLES:
            ledger.warn("label.conflict", "further rows", _place_in(parts, pairs[-1][0]), count=len(pairs) - SAMPLES)


def _place_in(parts: list[_RepeatPart], row: int) -> Place:
    """The place of a row, counted over all these parts."""
    for part in parts:
        if row < part.places.rows:
            return part.places[row]
        row -= part.places.rows
    raise IndexError(row)


def _find_overlap(ledger: Ledger, first: str, one: _RepeatPart, second: str, other: _RepeatPart) -> None:
    hits = np.flatnonzero(np.isin(other.keys, one.keys))
    if not len(hits):
        return
    rows, place = other.places.rows, other.places[int(hits[0])]
    twin = one.places[int(np.flatnonzero(one.keys == other.keys[hits[0]])[0])]
    text = (
        f"{len(hits):,} of {rows:,} rows of {second} ({share(len(hits), rows)}) have an input that {first} has too; "
        f"the first is the same as {beside(place, twin)}"
    )
    fix = f"take these rows out of {first}, else scores on {second} come out too good"
    ledger.warn("leak.overlap", text, place, fix, count=len(hits))


def _refuse_repeated_ids(ledger: Ledger, parts: list[_RepeatPart], keys: list[np.ndarray]) -> None:
    """Refuse equal keys among the rows of some parts."""
    ids = np.concatenate([np.empty(0, np.int64), *keys])
    order = np.argsort(ids, kind="stable")
    repeats = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    if not len(repeats):
        return
    at = repeats[np.argmin(order[repeats + 1])]
    earlier, later = (_place_in(parts, int(order[row])) for row in (at, at + 1))
    more = f"; {len(repeats):,} rows repeat an id in all" if len(repeats) > 1 else ""
    text = f"the id is the same as {beside(later, earlier)}{more}"
    ledger.bad_file("id.duplicate", text, later, "give every row an id of its own, or --id '' to use none")


def beside(place: Place, other: Place) -> str:
    """How to name the other place to somebody who looks at this one."""
    return f"in line {other.line}" if place.path == other.path and other.line else f"at {other}"


MOST_COMPARED = 50_000  # of each part, for near duplicates
LONGEST = 1_000  # characters of a text that are compared, for near duplicates
MANY_NEAR = 0.01  # of the rows that were compared: more of them are told of
MOST_LOOKS = 12  # at texts of a large group, for a good sample
SEED = 0


class Repeats(NamedTuple):
    """How many rows of a part repeat an earlier one, and how many have a near twin among those that were compared."""

    part: str
    rows: int
    exact: int
    near: int
    compared: int


class Twins(NamedTuple):
    """Two texts of a group of equal or near ones."""

    group: int  # samples with one number are of one group
    rows: int  # of the group
    similarity: float
    places: tuple[Place, Place]
    texts: tuple[str, str]


class Leak(NamedTuple):
    """How many rows of the second part are in the first, exactly, and nearly among those that were compared."""

    first: str
    second: str
    rows: int  # of the second
    exact: int
    near: int
    compared: int  # of the second
    samples: tuple[Twins, ...]  # the first text in the first part, the second in the second; near ones come first


class DuplicateRows(NamedTuple):
    """Everything that occurs more than once."""

    repeats: tuple[Repeats, ...]
    leaks: tuple[Leak, ...]
    exact: tuple[Twins, ...]  # the largest groups
    near: tuple[Twins, ...]

    def tell(self, ledger: Ledger) -> None:
        """Warn of parts that are nearly in one another, with the place of the first near row."""
        for first, second, _, _, near, compared, samples in self.leaks:
            if near > MANY_NEAR * compared:
                twin, place = samples[0].places
                text = (
                    f"{near:,} of {compared:,} rows of {second} ({share(near, compared)}) "
                    f"{'is' if near == 1 else 'are'} nearly the same as a row of {first}; "
                    f"the first is like the one {beside(place, twin)}"
                )
                fix = f"if they are copies, take them out of {first}, else scores on {second} come out too good"
                ledger.warn("leak.near", text, place, fix, count=near)


def folded(text: str) -> str:
    """The text as it is compared: composed, in lower case, with single spaces.

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


class _Row(NamedTuple):
    """What is kept of a row: some two kilobytes, whatever the row holds."""

    text: str | None  # as it is compared; none of vectors and pictures
    shown: str
    place: Place

    @classmethod
    def of(cls, kind: InputKind, example: Example) -> "_Row":
        if texts := kind.texts(example.input):
            return cls(_compared(texts)[:LONGEST], " | ".join(texts)[:LONGEST], example.place)
        return cls(None, f"array {' x '.join(map(str, np.shape(example.input)))}", example.place)


class _DuplicatePart:
    """The digests of all rows, and a reservoir of the rows that are compared nearly."""

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
    """Is fed all parts block by block, and says at the end what occurs more than once."""

    def __init__(self, kind: InputKind, most_rows: int = MOST_COMPARED) -> None:
        self._kind = kind
        self._draw = np.random.default_rng(SEED)
        self._most_rows = most_rows
        self._parts: dict[str, _DuplicatePart] = {}

    def see(self, part: str, examples: Sequence[Example]) -> None:
        """Keep the digests of further rows, and some of the rows."""
        self._parts.setdefault(part, _DuplicatePart(self._kind, self._draw, self._most_rows)).add(examples)

    def finish(self) -> DuplicateRows:
        """All that was found."""
        self._parts = in_order(self._parts)
        kept = _KeptRows({name: part.kept for name, part in self._parts.items()})
        exact = np.concatenate([part.digests for part in self._parts.values()] or [np.empty(0, np.uint64)])
        return DuplicateRows(
            tuple(self._repeats(name, part, kept) for name, part in self._parts.items()),
            tuple(self._leak(first, second, kept) for first, second in combinations(self._parts, 2)),
            tuple(kept.exact_samples(exact)),
            tuple(kept.near_samples()),
        )

    def _repeats(self, name: str, part: _DuplicatePart, kept: "_KeptRows") -> Repeats:
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
    """The rows that are compared nearly: where each digest stands, and the near ones around it."""

    def __init__(self, parts: dict[str, list[tuple[int, _Row]]]) -> None:
        self.rows: dict[int, list[tuple[str, _Row]]] = {}  # by digest
        for name, rows in parts.items():
            for key, row in rows:
                self.rows.setdefault(key, []).append((name, row))
        texts = {key: text for key, found in self.rows.items() if (text := found[0][1].text) is not None}
        keys = list(texts)
        self.groups = [[keys[number] for number in group] for group in near_groups(list(texts.values()))]
        self._group = {key: group for group in self.groups for key in group}
        self._standing: dict[tuple[int, str], list[int]] = {}  # the digests of a group that stand in a part
        for first, key in ((group[0], key) for group in self.groups for key in group):
            for name in {name for name, _ in self.rows[key]}:
                self._standing.setdefault((first, name), []).append(key)
        self._numbers: dict[int, int] = {}  # of the groups that are shown

    def others(self, key: int, part: str) -> list[int]:
        """The first few other digests of the same group that stand in the part, if there are any."""
        standing = self._standing.get((self._leader(key), part), [])
        return [other for other in standing[: MOST_LOOKS + 1] if other != key]

    def _leader(self, key: int) -> int:
        return self._group[key][0] if key in self._group else key

    def exact_samples(self, digests: np.ndarray) -> list[Twins]:
        """Samples of the digests that occur most often."""
        keys, counts = np.unique(digests, return_counts=True)
        largest = np.argsort(-counts, kind="stable")[: 4 * SAMPLES]
        wanted = {int(keys[at]): int(counts[at]) for at in largest if counts[at] > 1}
        known = [key for key in wanted if len(self.rows.get(key, ())) > 1]
        rows = {key: [row for _, row in self.rows[key]] for key in self._one_of_each(known)}
        return [self._sample(key, wanted[key], [(some[0], some[1])]) for key, some in rows.items()]

    def near_samples(self) -> list[Twins]:
        """Samples of the largest groups of texts that are near one another."""
        largest = sorted(self.groups, key=lambda group: -self._size(group[0]))[:SAMPLES]
        return [self._sample(first, self._size(first), self._pairs([first], more)) for first, *more in largest]

    def leaking_samples(self, first: str, second: str, keys: Iterable[int]) -> list[Twins]:
        """Samples of these digests of the second part, each beside itself or the nearest in the first."""
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
            [next(row for name, row in self.rows[key] if part in (None, name)) for key in keys[:MOST_LOOKS]]
            for keys, part in zip((ones, others), parts, strict=True)
        )
        return list(product(first, second))

    def _sample(self, key: int, rows: int, pairs: list[tuple[_Row, _Row]]) -> Twins:
        """The most similar of the pairs."""
        number = self._numbers.setdefault(self._leader(key), len(self._numbers))
        similarities = [jaccard(shingles(one.text or ""), shingles(other.text or "")) for one, other in pairs]
        likest = int(np.argmax(similarities))
        one, other = pairs[likest]
        return Twins(number, rows, similarities[likest], (one.place, other.place), (one.shown, other.shown))
