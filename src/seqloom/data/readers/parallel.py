"""Parallel text: line n of one file is the translation of line n of the other. Both are streamed at once.

Both sides are always read to the end, so that different counts are told as two numbers. Equal counts prove nothing
about the alignment; that is looked at elsewhere.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from seqloom.config.data import ReadingConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.files import require_regular
from seqloom.data.readers.passages import lines_of
from seqloom.data.values import Record, Table
from seqloom.report.numbers import counted

SIDES = ("source", "target")


def read(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table of two files with the columns source and target; a record's path is that of the source."""
    source, target = paths
    for path in paths:
        require_regular(path, ledger)
    if source.samefile(target):
        _refuse_same("both sides are one file", target, ledger)

    def locate(record: Record, column: int) -> Place:
        return Place(str(paths[column]), record.line, 1)

    return Table(SIDES, _pairs(source, target, reading, ledger), locate)


def _pairs(source: Path, target: Path, reading: ReadingConfig, ledger: Ledger) -> Iterator[Record]:
    name, counts, differ = str(source), [0, 0], False
    for one, other in itertools.zip_longest(lines_of(source, reading, ledger), lines_of(target, reading, ledger)):
        if one is None or other is None:
            counts[int(one is None)] += 1  # of the longer side alone
            continue
        (number, first), (_, second) = one, other
        differ = differ or first != second
        counts = [number, number]
        if first and second and not first.isspace() and not second.isspace():
            ledger.rows += 1
            yield Record((first, second), name, number)
        else:
            _refuse_blank(first, second, number, (source, target), ledger)
    _require_equal(counts, (source, target), ledger)
    if not differ:
        _refuse_same("every line is the same on both sides", target, ledger)


def _refuse_blank(first: str, second: str, number: int, paths: tuple[Path, Path], ledger: Ledger) -> None:
    blank = [not side.strip() for side in (first, second)]
    text = "a blank line on both sides" if all(blank) else f"a blank {SIDES[blank.index(True)]} line"
    ledger.bad_row("par.blank", text, Place(str(paths[blank.index(True)]), number), "remove the line from both files")


def _require_equal(counts: list[int], paths: tuple[Path, Path], ledger: Ledger) -> None:
    if counts == [0, 0]:
        ledger.bad_file("data.empty", "there are no lines in either file", Place(str(paths[0])), "give files with text")
    if counts[0] != counts[1]:
        text = f"{counted(counts[0], 'line')}, but {counts[1]:,} in {paths[1]}"
        fix = "line n of one file must be the translation of line n of the other"
        ledger.bad_file("par.count", text, Place(str(paths[0]), min(counts) + 1), fix)


def _refuse_same(text: str, path: Path, ledger: Ledger) -> NoReturn:
    ledger.bad_file("par.same_file", text, Place(str(path)), "give the source and its translation")
