"""Single values of a table, and their conversion to a number, an array or a label.

Numbers are stored as float32. A number that overflows float32 is rejected, and an integer that float32 rounds gives a
warning. In lists only numbers count as numbers: `true`, "1_0" and "٣" do not, although Python would accept them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, Literal, NamedTuple, overload

import numpy as np

from seqloom.data.problems import EMPTY_FIX, Place, escaped

MOST_CHARACTERS = 40  # of a value in a message
LARGEST = 2.0**128 - 2.0**103  # larger numbers round to infinity in float32
EXACT, WHOLE = 2**24, 2**53  # up to here float32, and float64, represent every integer
LISTS: frozenset[type] = frozenset({list, tuple})
COUNTS = 2**64  # larger integers are taken as measurements

Content = Literal["text", "number", "texts", "vectors", "picture", "nothing"]


class BadValue(Exception):  # noqa: N818  # a signal, turned into a bad row where the row is known
    """A value that cannot be used: its column, the code of the problem, a text and a fix."""

    def __init__(self, column: int, code: str, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.column, self.code, self.text, self.fix = column, code, text, fix


class Remark(NamedTuple):
    """A remark on a value that is used all the same; it becomes a warning with the place of its row."""

    column: int
    code: str
    text: str
    fix: str
    times: int = 1


Remarks = list[Remark]  # on the current row
Columns = Sequence[Sequence[Any]]  # of a table: the values of several rows in each
Read = Callable[[tuple[Any, ...]], Any]  # maps the values of a row to its input or target
ReadMany = Callable[[Columns], list[Any] | None]  # of several rows; None: read them one by one


def content_of(value: Any) -> Content:
    """The kind of content of one value.

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
    """Convert a Python value to the form that a file would give: a plain text, number or list of them.

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
    """A value for a message: short, in quotes, on one line."""
    text = str(value)
    return f"'{escaped(text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + '...')}'"


def kind_name(value: Any) -> str:
    """The type of a value for a message."""
    names = {str: "text", bool: "true or false", int: "number", float: "number", list: "list", dict: "object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def text_of(value: Any, column: int) -> str:
    """Return the value if it is a text that is not blank; raise BadValue otherwise."""
    if type(value) is not str:
        raise BadValue(column, "type.text", f"expected text, found {kind_name(value)}", "check the column")
    if not value or value.isspace():
        raise BadValue(column, "row.empty_text", "the text is empty", EMPTY_FIX)
    return value


def texts_of(values: list[Any]) -> list[str] | None:
    """The same values if `text_of` would return each of them, else None.

    >>> texts_of(["a", "b c"]), texts_of(["a", " "]), texts_of(["a", 1])
    (['a', 'b c'], None, None)
    """
    sound = set(map(type, values)) == {str} and all(values) and not any(map(str.isspace, values))
    return values if sound else None


def is_number(value: Any) -> bool:
    """Whether a value is a number, or text that spells one in ASCII digits; not integers of hundreds of digits."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return isinstance(value, float) or abs(value) < 2**1023
    return isinstance(value, str) and parse_number(value) is not None


def parse_number(cell: str) -> float | None:
    """The finite number that a cell spells, or None. Stricter than Python, which accepts '٣' and '1_0'.

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
    """Return the number that a value is or spells; raise BadValue if there is none or it overflows float32."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        number: float | None = value
    else:
        number = parse_number(value) if type(value) is str else None
    if number is None:
        comma = type(value) is str and parse_number(value.replace(",", ".")) is not None
        fix = "write a decimal point, not a comma" if comma else "check the column"
        raise BadValue(column, "type.number", f"expected a number, found {shown(value)}", fix)
    if not -LARGEST < number < LARGEST:
        raise BadValue(column, "type.number", f"{shown(value)} is not a finite number in float32", "remove the row")
    return float(number)


def floats_of(value: Any) -> np.ndarray:
    """The numbers of an array or of nested lists; raise ValueError for other values and for ragged lists.

    >>> floats_of([[1, 2], [3, 4.5]]).tolist()
    [[1.0, 2.0], [3.0, 4.5]]
    """
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "iuf":
            raise ValueError(f"expected numbers, found {value.dtype}")
        return value if value.dtype.kind == "f" else value.astype(np.float64)
    for kind in _kinds_in(value):
        if kind is bool or not issubclass(kind, int | float | np.integer | np.floating):
            raise ValueError(f"expected numbers, found {kind.__name__}")
    try:
        return np.asarray(value, np.float64)
    except OverflowError:  # an integer of hundreds of digits
        return np.full(1, np.inf)


def _kinds_in(value: Any) -> set[type]:
    """The types of all values in nested lists."""
    kinds = set(map(type, value))
    if kinds.isdisjoint(LISTS):
        return kinds
    lists = value if kinds <= LISTS else [one for one in value if type(one) in LISTS]
    return (kinds - LISTS) | _kinds_in(list(chain.from_iterable(lists)))


def to_float32(numbers: np.ndarray) -> np.ndarray | None:
    """The same numbers in float32; None if one is not finite."""
    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32, copy=False)
    return narrow if np.isfinite(narrow).all() else None


def rounded(numbers: np.ndarray) -> int:
    """How many of these are integers that float32 cannot represent.

    >>> rounded(np.array([16777216.0, 16777217.0, 0.1]))
    1
    """
    large = np.abs(numbers)
    if not numbers.size or large.max() <= EXACT:
        return 0
    whole = (large > EXACT) & (large < COUNTS) & (numbers == np.rint(numbers))
    return int((whole & (numbers.astype(np.float32).astype(np.float64) != numbers)).sum())


def remark_rounding(numbers: np.ndarray, column: int, remarks: Remarks) -> None:
    """Add a remark on integers that float32 rounds."""
    if count := rounded(numbers):
        text = f"float32 rounds {count:,} integer{'s' * (count > 1)} beyond 16,777,216"
        remarks.append(Remark(column, "number.rounded", text, "divide the column by a power of ten", count))


def label_of(value: Any, column: int, *, whole: bool = False) -> str:
    """Return the label of a value: a text unchanged, a number as it is written, so that 1 and 1.0 are two labels.

    Many programs write a column of integers with missing values as floats. So with `whole`, if all numbers of the
    column are integers (`whole_floats`), 1.0 is the label 1.

    >>> label_of(1000001.0, 0), label_of(1000001.0, 0, whole=True), label_of(1, 0), label_of(True, 0)
    ('1000001.0', '1000001', '1', 'true')
    """
    if type(value) is str and value and not value.isspace():
        return value
    if value is None or type(value) is str:
        raise BadValue(column, "row.empty_label", "the label is empty", EMPTY_FIX)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if whole and value.is_integer() and abs(value) < WHOLE else repr(value)
    if not isinstance(value, int):
        raise BadValue(column, "type.label", f"expected a label, found {kind_name(value)}")
    return str(value)


def whole_floats(values: Iterable[Any]) -> bool:
    """Whether there are numbers, also in lists, and all of them are floats with integer values.

    >>> whole_floats([1.0, None, 2.0]), whole_floats([1.0, 2]), whole_floats(["1.0"])
    (True, False, False)
    """
    numbers = [one for one in _flat(values) if isinstance(one, int | float) and not isinstance(one, bool)]
    return bool(numbers) and all(isinstance(one, float) and one.is_integer() for one in numbers)


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield from value if isinstance(value, list | tuple) else (value,)


# Every reader returns a table of records, for every format.
#
# A column holds values of one kind: text (a csv cell), a list of texts (the tokens of a sentence), a number, or an
# array (a sequence of vectors, a picture). So tasks, columns and splits are inferred in the same way for all formats.


class Record(NamedTuple):
    """One row: its values in the order of the table's columns, and its place."""

    values: tuple[Any, ...]
    path: str
    line: int  # first line, from 1; the row number in formats without lines
    raw: Any = None  # for `Table.locate`: what the reader needs to find the place of a value


class Records(Sequence[Record]):
    """Rows of one file by columns; a row becomes a `Record` only when it is asked for."""

    __slots__ = ("columns", "lines", "path", "raws")

    def __init__(self, columns: Columns, path: str, lines: Sequence[int], raws: Sequence[Any]) -> None:
        self.columns, self.path, self.lines, self.raws = columns, path, lines, raws

    def __len__(self) -> int:
        return len(self.lines)

    @overload
    def __getitem__(self, row: int) -> Record: ...

    @overload
    def __getitem__(self, row: slice) -> "Records": ...

    def __getitem__(self, row: int | slice) -> "Record | Records":
        if isinstance(row, slice):
            columns = [column[row] for column in self.columns]
            return Records(columns, self.path, self.lines[row], self.raws[row])
        values = tuple(column[row] for column in self.columns)
        return Record(values, self.path, self.lines[row], self.raws[row])

    def __iter__(self) -> Iterator[Record]:
        return map(Record, zip(*self.columns, strict=True), repeat(self.path), self.lines, self.raws)


def _line_only(record: Record, _: int) -> Place:
    return Place(record.path, record.line)


class Table(NamedTuple):
    """Named columns and a stream of records, which can be read once."""

    columns: tuple[str, ...]
    records: Iterator[Record]
    locate: Callable[[Record, int], Place] = _line_only  # the place of the n-th value of a record
    named: bool = True  # false for a file without a header, whose columns are numbered
    blocks: Iterator[Sequence[Record]] | None = None  # the same records: read these, or `records`

    def in_blocks(self) -> Iterator[Sequence[Record]]:
        """The records in blocks: `Records`, between which the reader reports nothing, or single ones."""
        return ([record] for record in self.records) if self.blocks is None else self.blocks
