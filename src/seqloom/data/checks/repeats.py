"""What occurs twice: an id, an input with two labels, an input in two parts.

Rows are compared by 64-bit hashes, kept as arrays and sorted once at the end. Two different inputs among a million meet
by chance about three times in a hundred million readings. Of a very large part only the first rows are kept, so that
memory has an end; a note says so.

An id names one row of its part and of its file. Files of different parts may count their rows alike.
"""

from itertools import combinations

import numpy as np

from seqloom.data.checks.blocks import BlockPlaces, ExampleBlock, hashes
from seqloom.data.problems import SAMPLES, Ledger, Place
from seqloom.data.schema import Schema, in_order
from seqloom.report.numbers import share

MOST_ROWS = {"train": 2**21}  # of a part that are compared, about 30 bytes each
MOST_OTHERS = 2**19


class _RepeatPart:
    def __init__(self) -> None:
        self.left_out = 0
        self.places = BlockPlaces()
        self._keys: list[np.ndarray] = []
        self._targets: list[np.ndarray] = []
        self._ids: list[np.ndarray] = []

    def add(self, block: ExampleBlock, with_targets: bool) -> None:
        self.places.add(block.examples)
        self._keys.append(block.keys)
        ids = [example.id for example in block.examples]
        self._ids.append(hashes(ids) if all(ids) else np.empty(0, np.int64))
        if with_targets:
            self._targets.append(hashes(example.target for example in block.examples))

    @property
    def keys(self) -> np.ndarray:
        return np.concatenate(self._keys)

    @property
    def targets(self) -> np.ndarray:
        return np.concatenate(self._targets)

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
        targets = np.concatenate([part.targets for part in parts])
        order = np.argsort(keys, kind="stable")
        same = keys[order][1:] == keys[order][:-1]
        differs = np.flatnonzero(same & (targets[order][1:] != targets[order][:-1]))
        if not len(differs):
            return
        group = np.cumsum(np.concatenate([[True], ~same]))  # of equal inputs
        _, firsts = np.unique(group[differs], return_index=True)  # one finding for each input
        pairs = sorted((int(order[at + 1]), int(order[at])) for at in differs[firsts])
        for later, earlier in pairs[:SAMPLES]:
            where = beside(self._place(later), self._place(earlier))
            text = f"the input is the same as {where}, and its label is another one"
            ledger.warn("label.conflict", text, self._place(later), "decide on one label, or drop both rows")
        if len(pairs) > SAMPLES:
            ledger.warn("label.conflict", "further rows", self._place(pairs[-1][0]), count=len(pairs) - SAMPLES)

    def _place(self, row: int) -> Place:
        return _place_in(list(self._parts.values()), row)


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
