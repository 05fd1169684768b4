"""Single values of a table: what they are, and what they become as a number, an array or a label.

Numbers are kept as float32. So a number that would become infinite there is refused, and a whole number that float32
has to round is told of. Inside lists only numbers are numbers: `true`, "1_0" and "٣" are not, whatever Python thinks.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np

from seqloom.data.problems import Place, escaped

MOST_CHARACTERS = 40  # of a value that a message shows
LARGEST = 2.0**128 - 2.0**103  # a number from here on rounds to an infinite float32
EXACT, WHOLE = 2**24, 2**53  # up to here float32, and float64, have every whole number
LISTS: frozenset[type] = frozenset({list, tuple})
COUNTS = 2**64  # a larger number was measured, not counted

Content = Literal["text", "number", "texts", "vectors", "picture", "nothing"]


class Unfit(Exception):  # noqa: N818  # a signal, turned into a bad row where the row is known
    """A value that cannot be used: the column it stands in, the code and the words."""

    def __init__(self, column: int, code: str, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.column, self.code, self.text, self.fix = column, code, text, fix


class Remark(NamedTuple):
    """Something about a value that is used all the same; the row that it stands in makes a warning of it."""

    column: int
    code: str
    text: str
    fix: str
    times: int = 1


Remarks = list[Remark]  # of the row that is being read
Read = Callable[[tuple[Any, ...]], Any]  # from the values of a row to its input or target


def content_of(value: Any) -> Content:
    """What one value is.

    >>> content_of("a"), content_of(["a"]), content_of([[1.0, 2.0]]), content_of(3), content_of(None)
    ('text', 'texts', 'vectors', 'number', 'nothing')
    """
    if isinstance(value, str):
        return "text"
    if isinstance(value, np.ndarray):
        return "picture" if value.ndim == 3 else "vectors"
    if isinstance(value, bool):
        return "text"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, list | tuple) and value:
        inner = content_of(value[0])
        return "texts" if inner == "text" else "vectors" if inner in ("number", "vectors") else "nothing"
    return "nothing"


def plain(value: Any) -> Any:
    """A value from Python as a file would give it: texts and numbers of a subclass or of numpy's become Python's own.

    >>> plain(np.str_("a")), plain(np.int64(3)), plain(np.array(["a", "b"])), plain((np.str_("a"), "b"))
    ('a', 3, ['a', 'b'], ('a', 'b'))
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "UOT":  # texts, or objects
        value = value.tolist()
    if type(value) in LISTS and value and isinstance(value[0], str):
        return type(value)(map(plain, value))
    return value


def shown(value: Any) -> str:
    """A value in a message: short, in quotes, on one line."""
    text = str(value)
    return f"'{escaped(text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + '...')}'"


def kind_name(value: Any) -> str:
    """What a value is, in words."""
    names = {str: "text", bool: "true or false", int: "number", float: "number", list: "list", dict: "object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def text_of(value: Any, column: int) -> str:
    """The text that a value is, if there is something in it."""
    if type(value) is not str:
        raise Unfit(column, "type.text", f"expected a string, got {kind_name(value)}", "is this the right column?")
    if not value or value.isspace():
        raise Unfit(column, "row.empty_text", "the text is empty", "fill it in, or --bad-rows skip")
    return value


def is_number(value: Any) -> bool:
    """Whether a value is a number or spells one in ASCII digits; a whole one of hundreds of digits is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return isinstance(value, float) or abs(value) < 2**1023
    return isinstance(value, str) and parse_number(value) is not None


def parse_number(cell: str) -> float | None:
    """The finite number that a cell spells, or None; `int('٣')` and `float('1_0')` would be read by Python.

    >>> parse_number(" 0.5"), parse_number("0,5"), parse_number("1_0"), parse_number("inf"), parse_number("٣")
    (0.5, None, None, None, None)
    """
    if not cell.isascii() or "_" in cell:
        return None
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def number_of(value: Any, column: int) -> float:
    """The number that a value is or spells, which float32 can hold; Unfit for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        number: float | None = value
    else:
        number = parse_number(value) if type(value) is str else None
    if number is None:
        comma = type(value) is str and parse_number(value.replace(",", ".")) is not None
        fix = "write a decimal point, not a comma" if comma else "is this the right column?"
        raise Unfit(column, "type.number", f"expected a number, got {shown(value)}", fix)
    if not -LARGEST < number < LARGEST:
        raise Unfit(column, "type.number", f"{shown(value)} is not a finite number in float32", "leave the row out")
    return float(number)


def floats_of(value: Any) -> np.ndarray:
    """The numbers of an array or of lists within lists; ValueError where there is anything else or they are ragged.

    >>> floats_of([[1, 2], [3, 4.5]]).tolist()
    [[1.0, 2.0], [3.0, 4.5]]
    """
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "iuf":
            raise ValueError(f"numbers were expected, found {value.dtype}")
        return value if value.dtype.kind == "f" else value.astype(np.float64)
    for kind in _kinds_in(value):
        if kind is bool or not issubclass(kind, int | float | np.integer | np.floating):
            raise ValueError(f"numbers were expected, found {kind.__name__}")
    try:
        return np.asarray(value, np.float64)
    except OverflowError:  # a whole number of hundreds of digits
        return np.full(1, np.inf)


def _kinds_in(value: Any) -> set[type]:
    """The types of all that stands in lists within lists, found at the speed of C."""
    kinds = set(map(type, value))
    if kinds.isdisjoint(LISTS):
        return kinds
    lists = value if kinds <= LISTS else [one for one in value if type(one) in LISTS]
    return (kinds - LISTS) | _kinds_in(list(chain.from_iterable(lists)))


def to_float32(numbers: np.ndarray) -> np.ndarray | None:
    """The same numbers in float32; None if one is not finite there."""
    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32, copy=False)
    return narrow if np.isfinite(narrow).all() else None


def rounded(numbers: np.ndarray) -> int:
    """How many of these are whole numbers that float32 does not have.

    >>> rounded(np.array([16777216.0, 16777217.0, 0.1]))
    1
    """
    large = np.abs(numbers)
    if not numbers.size or large.max() <= EXACT:
        return 0
    whole = (large > EXACT) & (large < COUNTS) & (numbers == np.rint(numbers))
    return int((whole & (numbers.astype(np.float32).astype(np.float64) != numbers)).sum())


def remark_rounding(numbers: np.ndarray, column: int, remarks: Remarks) -> None:
    """Tell of whole numbers that float32 has to round."""
    if count := rounded(numbers):
        text = f"{count:,} whole number{'s' * (count > 1)} beyond 16,777,216, which float32 rounds"
        remarks.append(Remark(column, "number.rounded", text, "divide the column by some power of ten", count))


def label_of(value: Any, column: int, *, whole: bool = False) -> str:
    """The label that a value is: a text as it stands, a number as it is spelt, so that 1 and 1.0 stay two labels.

    A column of whole numbers in which one is missing comes out of many programs as floats. So where `whole` says that
    the column has no other numbers (`whole_floats`), 1.0 is the label 1.

    >>> label_of(1000001.0, 0), label_of(1000001.0, 0, whole=True), label_of(1, 0), label_of(True, 0)
    ('1000001.0', '1000001', '1', 'true')
    """
    if type(value) is str and value and not value.isspace():
        return value
    if value is None or type(value) is str:
        raise Unfit(column, "row.empty_label", "the label is empty", "fill it in, or --bad-rows skip")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if whole and value.is_integer() and abs(value) < WHOLE else repr(value)
    if not isinstance(value, int):
        raise Unfit(column, "type.label", f"expected a label, got {kind_name(value)}")
    return str(value)


def whole_floats(values: Iterable[Any]) -> bool:
    """Whether there are numbers, also in lists, and all of them are floats without a fraction.

    >>> whole_floats([1.0, None, 2.0]), whole_floats([1.0, 2]), whole_floats(["1.0"])
    (True, False, False)
    """
    numbers = [one for one in _flat(values) if isinstance(one, int | float) and not isinstance(one, bool)]
    return bool(numbers) and all(isinstance(one, float) and one.is_integer() for one in numbers)


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield from value if isinstance(value, list | tuple) else (value,)


# What every reader gives: a table of records, whatever the format was.
#
# A column holds values of one kind: text (a csv cell), a list of texts (the tokens of a sentence), a number, or an
# array (a sequence of vectors, a picture). So tasks, columns and splits are found in one way for all formats.


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
