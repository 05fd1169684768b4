"""The rows of a file of inputs in their order, the bad ones in their places, in windows that are always the same.

A file is read twice: first all of it is checked and counted, so that nothing is embedded before every row is known to
be good; then its rows come in windows. A window depends on the file alone, so work that was stopped goes on with the
very batches that it would have had.
"""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from seqloom.config.data import ReadingConfig
from seqloom.data.checks.blocks import weight
from seqloom.data.inputs import InputColumns, arriving, read_inputs
from seqloom.data.kinds.kind import InputKind
from seqloom.data.problems import Ledger, Place, Problem
from seqloom.data.readers.files import fingerprint, require_regular
from seqloom.data.schema import Example
from seqloom.errors import ConfigError
from seqloom.inference.prediction import PredictionNote

ROWS, CHARACTERS = 2_048, 2_000_000  # of a window, whichever comes first
LINED = {".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl"}  # files in which a bad line spoils itself alone

Row = Example | Problem  # an input, or what is wrong with one


class CheckedSource(NamedTuple):
    """What is known of a file that was read once: its rows, how many of them are bad, and what was noticed."""

    rows: int
    bad: int
    sha256: str  # of its bytes, and of what is read of them
    notes: tuple[str, ...]


class InputSource(NamedTuple):
    """A file of inputs, and how it is read."""

    path: Path
    columns: InputColumns = InputColumns()
    reading: ReadingConfig = ReadingConfig()
    skip: bool = False  # whether bad rows are read over
    stream: str = ""  # what messages call it, if the file is the copy of a stream of lines

    def checked(self, kind: InputKind) -> CheckedSource:
        """What the file holds; RejectedError that names its bad rows, if they are not read over."""
        if kind.in_files:
            raise ConfigError("files of pictures have no rows to embed", fix="seqloom.load(MODEL).embed(pictures)")
        ledger = PredictionNote() if self.skip else Ledger()
        if not self.stream:
            require_regular(self.path, ledger)
        bad = rows = 0
        for row in self._rows(kind, ledger):
            rows, bad = rows + 1, bad + isinstance(row, Problem)
        ledger.close()
        if not rows:
            place = Place(self.stream or str(self.path))
            ledger.bad_file("data.empty", "there are no rows to embed", place, "give another file")
        notes = tuple(_note(count, samples[0]) for _, count, samples in ledger.warnings())
        return CheckedSource(rows, bad, self._sha256(), notes)

    def _sha256(self) -> str:
        read = (fingerprint(self.path).sha256, self.columns, self.reading, self.skip, bool(self.stream))
        return hashlib.sha256(msgspec.json.encode(read)).hexdigest()

    def windows(self, kind: InputKind) -> Iterator[list[Row]]:
        """The rows, some at a time."""
        return windows_of(self._rows(kind, PredictionNote() if self.skip else Ledger()))

    def _rows(self, kind: InputKind, ledger: Ledger) -> Iterator[Row]:
        """The rows in the order of their lines. When an example comes, all that is wrong before it has been told."""
        kept = ledger.kept if isinstance(ledger, PredictionNote) else []
        for example in self._examples(kind, ledger):
            kept.sort(key=_line_of)
            while kept and _line_of(kept[0]) < (example.place.line or 0):
                yield kept.pop(0)[1]
            yield example
        yield from (problem for _, problem in sorted(kept, key=_line_of))
        kept.clear()

    def _examples(self, kind: InputKind, ledger: Ledger) -> Iterator[Example]:
        lined = self.reading.format or LINED.get(self.path.suffix.lower())
        alone = self.skip and lined in ("text", "jsonl") and self.reading == ReadingConfig(format=self.reading.format)
        if not self.stream and not alone:
            yield from read_inputs(self.path, kind, ledger, columns=self.columns, reading=self.reading)
            return
        format_ = cast(Any, self.reading.format if self.stream else lined)
        with self.path.open("rb") as stream:
            name = self.stream or str(self.path)
            yield from chain.from_iterable(arriving(stream, kind, ledger, format_, self.columns, name))


def _line_of(told: tuple[int, Problem]) -> int:
    return told[1].place.line or 0


def _note(count: int, problem: Problem) -> str:
    return f"{problem} ({count:,} times)" if count > 1 else str(problem)


def windows_of(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows, a window at a time."""
    window: list[Row] = []
    size = 0
    for row in rows:
        window.append(row)
        size += weight(row) if isinstance(row, Example) else 0
        if len(window) == ROWS or size >= CHARACTERS:
            yield window
            window, size = [], 0
    if window:
        yield window
