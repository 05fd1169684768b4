"""Checks at the edge: what a caller hands to a figure becomes tuples of text and finite numbers, or a `DataError`."""

import math
from collections.abc import Iterable, Sized
from typing import TypeVar

from seqloom.errors import DataError
from seqloom.report.figures.labels import fit, visible

LARGEST = 1e100  # beyond it the difference of two values may overflow

Row = tuple[float | None, ...]
Item = TypeVar("Item")


def quoted(label: str) -> str:
    """The label as it may stand in a message: made visible, cut short, between quotes."""
    return f"'{fit(visible(label), 40)}'"


def text(value: object, what: str) -> str:
    """The value, if it is text."""
    if isinstance(value, str):
        return value
    raise DataError(f"{what} must be text, found {type(value).__name__}", fix="convert it with str()")


def labels(values: Iterable[object], what: str) -> tuple[str, ...]:
    """The labels as a tuple of text."""
    if isinstance(values, str):
        raise DataError(f"{what} must be a list of labels, found one string {quoted(values)}", fix="put it in a list")
    return tuple(text(value, f"{what}[{index}]") for index, value in enumerate(each(values, what)))


def number(value: object, what: str) -> float | None:
    """The value as a float; None and NaN both mean that there is no value."""
    if value is None:
        return None
    real = _float(value, what)
    if math.isnan(real):
        return None
    if abs(real) > LARGEST:
        found = f"{real}" if math.isinf(real) else f"{real:g}, beyond {LARGEST:g}"
        raise DataError(f"{what} is {found}", fix="draw finite values; None or NaN leaves a gap")
    return real


def _float(value: object, what: str) -> float:
    try:
        if not isinstance(value, str | bytes | bytearray):  # float() would read those
            return float(value)  # type: ignore[arg-type]
    except OverflowError:  # an int of more than 308 digits
        return math.inf
    except (TypeError, ValueError, RuntimeError):  # no number at all, or an array of several
        pass
    raise DataError(f"{what} must be a number, found {type(value).__name__}", fix="pass plain numbers")


def numbers(values: Iterable[object], what: str) -> Row:
    """The values as a tuple of floats, None where there is no value."""
    return tuple(
        value if type(value) is float and -LARGEST <= value <= LARGEST else number(value, f"{what}[{index}]")
        for index, value in enumerate(each(values, what))
    )


def every_number(values: Iterable[object], what: str) -> tuple[float, ...]:
    """The values as a tuple of floats, none of which may be missing."""
    found = numbers(values, what)
    if None in found:
        raise DataError(f"{what}[{found.index(None)}] is missing", fix="give a number at each place")
    return tuple(value for value in found if value is not None)


def grid(values: Iterable[Iterable[object]], *, largest: int, fix: str) -> tuple[Row, ...]:
    """The rows as tuples of equal length, at least one cell and at most `largest`."""
    rows = [tuple(each(row, f"values[{index}]")) for index, row in enumerate(each(values, "values"))]
    if not rows or not rows[0]:
        raise DataError(f"values has {len(rows)} rows and no cell", fix="give at least one row with one value")
    for index, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise DataError(
                f"values[{index}] has {len(row)} cells, values[0] has {len(rows[0])}",
                fix="make all rows equally long; None or NaN marks a cell without a value",
            )
    if len(rows) * len(rows[0]) > largest:
        raise DataError(f"values has {len(rows)} x {len(rows[0])} cells, more than {largest:,}", fix=fix)
    return tuple(numbers(row, f"values[{index}]") for index, row in enumerate(rows))


def some(values: Sized, what: str, *, largest: int) -> None:
    """Require between one and `largest` values."""
    if not len(values):
        raise DataError(f"{what} is empty", fix="give at least one")
    if len(values) > largest:
        raise DataError(f"{what} has {len(values):,} entries, more than {largest:,}", fix="draw a part of them")


def same_count(values: Sized, what: str, others: Sized, other: str) -> None:
    """Require as many entries of both."""
    if len(values) != len(others):
        raise DataError(f"{what} has {len(values)} entries, {other} has {len(others)}", fix="give one for each")


def span(value: Iterable[object] | None, rows: Iterable[Row]) -> tuple[float, float] | None:
    """The two ends of a colour scale, if they are in order and every value lies between them."""
    if value is None:
        return None
    ends = every_number(value, "span")
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise DataError(f"span is {ends}", fix="give two different numbers, the lower first")
    for row_index, row in enumerate(rows):
        for index, entry in enumerate(row):
            if entry is not None and not ends[0] <= entry <= ends[1]:
                where = f"row {row_index}, column {index}"
                raise DataError(f"value {entry:g} at {where} lies outside span {ends}", fix="widen the span")
    return ends[0], ends[1]


def instances(values: Iterable[object], kind: type[Item], what: str) -> tuple[Item, ...]:
    """The values as a tuple, if each is of this kind."""
    found = tuple(each(values, what))
    for index, value in enumerate(found):
        if not isinstance(value, kind):
            name = type(value).__name__
            raise DataError(
                f"{what}[{index}] must be a {kind.__name__}, found {name}", fix=f"make a {kind.__name__} of it"
            )
    return tuple(value for value in found if isinstance(value, kind))


def each(values: Iterable[Item], what: str) -> Iterable[Item]:
    """The values, if they can be gone through one by one."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise DataError(f"{what} must be a sequence, found {type(values).__name__}", fix="pass a list")
    return values
