"""Rows of a table as a csv file holds them: what readers read, written."""

import csv
import io
from collections.abc import Iterable
from typing import Any

import msgspec


def cell(value: Any) -> Any:
    """A value as a cell of a table: nothing as an empty one; true and false, lists and objects as JSON.

    >>> cell(None), cell(True), cell(["a", "b"]), cell(0.5)
    ('', 'true', '["a","b"]', 0.5)
    """
    if isinstance(value, bool | list | tuple | dict):
        return msgspec.json.encode(value).decode()
    return "" if value is None else value


def row(values: Iterable[Any]) -> bytes:
    r"""The line of these values.

    >>> row(["a, b", None, 3])
    b'"a, b",,3\n'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([cell(value) for value in values])
    return text.getvalue().encode()
