"""What every reader gives: a table of records, whatever the format was.

A column holds values of one kind: text (a csv cell), a list of texts (the tokens of a sentence), a number, or an array
(a sequence of vectors, a picture). So tasks, columns and splits are found in one way for all formats.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from seqloom.data.problems import Place


class Record(NamedTuple):
    """One row as it was read: its values in the order of the table's columns, and where it stands."""

    values: tuple[Any, ...]
    path: str
    line: int  # where it begins, from 1; the number of the row where a format has no lines
    raw: Any = None  # what the reader needs to find a column again, when a problem must be located


def _line_only(record: Record, _: int) -> Place:
    return Place(record.path, record.line)


class Table(NamedTuple):
    """Named columns and a stream of records; it is read once, and the file is opened again for another reading."""

    columns: tuple[str, ...]
    records: Iterator[Record]
    locate: Callable[[Record, int], Place] = _line_only  # the place of the n-th value of a record
    named: bool = True  # false where the columns are only numbered: a file without a header
