"""From records to examples: each value checked against what its column is for.

What is wrong with one row spoils that row only: it goes to the ledger with its place and is left out.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from seqloom.data.examples import Example, Input, Target, TextPair, Words
from seqloom.data.problems import Ledger, Place, escaped
from seqloom.data.roles import Roles, parse_number
from seqloom.data.tables import Record, Table

MOST_CHARACTERS = 40  # of a value that a message shows


class Unfit(Exception):  # noqa: N818  # a signal inside this module, turned into a bad row
    """A value that cannot be used: the column it stands in, the code and the words."""

    def __init__(self, column: int, code: str, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.column, self.code, self.text, self.fix = column, code, text, fix


class Made(NamedTuple):
    """An example, and the record it was made of, for what only the record knows (its part)."""

    example: Example
    record: Record


def make_examples(table: Table, roles: Roles, ledger: Ledger) -> Iterator[Made]:
    """The examples of a table; rows that cannot be used are counted in the ledger and left out."""
    read_input = _INPUTS[roles.schema.input](roles)
    read_target = _TARGETS[roles.schema.target](roles)
    identity, locate = roles.id, table.locate
    for record in table.records:
        values = record.values
        try:
            given, wanted = read_input(values), read_target(values)
            if roles.schema.target == "tags":
                _require_one_each(given, wanted, roles)
        except Unfit as unfit:
            ledger.rows -= 1  # the reader has counted it as a good one
            ledger.bad_row(unfit.code, unfit.text, locate(record, unfit.column), unfit.fix)
            continue
        name = "" if identity is None else str(values[identity])
        yield Made(Example(given, wanted, name, Place(record.path, record.line)), record)


def shown(value: Any) -> str:
    """A value in a message: short, in quotes, on one line."""
    text = str(value)
    return f"'{escaped(text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + '...')}'"


def _kind_name(value: Any) -> str:
    names = {str: "text", bool: "true or false", int: "number", float: "number", list: "list", dict: "object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def _text(value: Any, column: int) -> str:
    if type(value) is not str:
        raise Unfit(column, "type.text", f"expected a string, got {_kind_name(value)}", "is this the right column?")
    if not value or value.isspace():
        raise Unfit(column, "row.empty_text", "the text is empty", "fill it in, or --bad-rows skip")
    return value


def _read_text(roles: Roles) -> Callable[[tuple[Any, ...]], Input]:
    (column,) = roles.input
    return lambda values: _text(values[column], column)


def _read_pair(roles: Roles) -> Callable[[tuple[Any, ...]], Input]:
    first, second = roles.input
    return lambda values: TextPair(_text(values[first], first), _text(values[second], second))


def _read_words(roles: Roles) -> Callable[[tuple[Any, ...]], Input]:
    (column,) = roles.input

    def read(values: tuple[Any, ...]) -> Words:
        words = values[column]
        if isinstance(words, str):  # a cell of tokens with spaces between them
            words = [word for word in words.split(" ") if word]
        if not isinstance(words, list | tuple):
            raise Unfit(column, "type.tokens", f"expected a list of words, got {_kind_name(words)}")
        if not words:
            raise Unfit(column, "row.empty_text", "there are no words", "fill them in, or --bad-rows skip")
        for word in words:
            if type(word) is not str or not word:
                raise Unfit(column, "type.tokens", f"expected words of text, got {shown(word)}")
        return Words.join(words, None if roles.spaces is None else values[roles.spaces])

    return read


def _read_vectors(roles: Roles) -> Callable[[tuple[Any, ...]], Input]:
    width: list[int] = []  # of the first row; the others must agree

    def read(values: tuple[Any, ...]) -> np.ndarray:
        if len(roles.input) > 1 or not isinstance(values[roles.input[0]], list | tuple | np.ndarray):
            vectors = np.array([[_number(values[column], column) for column in roles.input]], np.float32)
        else:
            vectors = _vectors(values[roles.input[0]], roles.input[0])
        width.append(vectors.shape[1]) if not width else None
        if vectors.shape[1] != width[0]:
            raise Unfit(
                roles.input[0], "array.width", f"vectors of {vectors.shape[1]} numbers; the first row has {width[0]}"
            )
        return vectors

    return read


def _vectors(value: Any, column: int) -> np.ndarray:
    """[T,D] float32, from nested lists, a flat list (one number a step) or an array."""
    try:
        with np.errstate(over="ignore"):  # what is too large becomes infinite and is refused below
            vectors = np.asarray(value, np.float32)
    except (ValueError, TypeError, OverflowError):
        raise Unfit(column, "array.shape", "expected a list of vectors of one size, all numbers") from None
    if vectors.ndim == 1:
        vectors = vectors[:, None]
    if vectors.ndim != 2:
        raise Unfit(column, "array.shape", f"expected vectors [steps, size], found {vectors.ndim} axes")
    if not vectors.size:
        raise Unfit(column, "row.empty_text", "the sequence is empty", "fill it in, or --bad-rows skip")
    if not np.isfinite(vectors).all():
        raise Unfit(column, "array.nonfinite", "a number is NaN, infinite or too large for float32")
    return vectors


def _read_picture(roles: Roles) -> Callable[[tuple[Any, ...]], Input]:
    (column,) = roles.input
    shape: list[tuple[int, ...]] = []

    def read(values: tuple[Any, ...]) -> np.ndarray:
        picture = values[column]
        if not isinstance(picture, np.ndarray) or picture.ndim != 3:
            raise Unfit(column, "type.picture", f"expected a picture [height, width, channels], got {shown(picture)}")
        shape.append(picture.shape) if not shape else None
        if picture.shape != shape[0]:
            raise Unfit(column, "picture.size", f"a picture of {picture.shape}; the first one is {shape[0]}")
        return picture

    return read


def _label(value: Any, column: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if value is None or (type(value) is str and (not value or value.isspace())):
        raise Unfit(column, "row.empty_label", "the label is empty", "fill it in, or --bad-rows skip")
    if type(value) is not str:
        raise Unfit(column, "type.label", f"expected a label, got {_kind_name(value)}")
    return value


def _number(value: Any, column: int) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not np.isfinite(value):
            raise Unfit(column, "type.number", f"{value} is not a finite number")
        return float(value)
    number = parse_number(value) if type(value) is str else None
    if number is None:
        comma = type(value) is str and parse_number(value.replace(",", ".")) is not None
        fix = "write a decimal point, not a comma" if comma else "is this the right column?"
        raise Unfit(column, "type.number", f"expected a number, got {shown(value)}", fix)
    return number


def _read_label(roles: Roles) -> Callable[[tuple[Any, ...]], Target]:
    (column,) = roles.target
    return lambda values: _label(values[column], column)


def _read_labels(roles: Roles) -> Callable[[tuple[Any, ...]], Target]:
    (column,) = roles.target

    def read(values: tuple[Any, ...]) -> Target:
        value = values[column]
        if type(value) is str:  # an empty cell has no label, which is an answer
            value = [part for part in value.split(roles.label_separator) if part] if roles.label_separator else [value]
        if not isinstance(value, list | tuple):
            raise Unfit(column, "type.label", f"expected a list of labels, got {_kind_name(value)}")
        return tuple(dict.fromkeys(_label(label, column) for label in value))

    return read


def _read_numbers(roles: Roles) -> Callable[[tuple[Any, ...]], Target]:
    first = roles.target[0]

    def read(values: tuple[Any, ...]) -> Target:
        if len(roles.target) == 1 and isinstance(values[first], list | tuple | np.ndarray):
            return tuple(_number(float(number), first) for number in np.ravel(np.asarray(values[first])))
        return tuple(_number(values[column], column) for column in roles.target)

    return read


def _read_tags(roles: Roles) -> Callable[[tuple[Any, ...]], Target]:
    (column,) = roles.target

    def read(values: tuple[Any, ...]) -> Target:
        value = values[column]
        if isinstance(value, str):
            value = [tag for tag in value.split(" ") if tag]
        if not isinstance(value, list | tuple | np.ndarray):
            raise Unfit(column, "type.tags", f"expected a list of tags, got {_kind_name(value)}")
        return tuple(_label(tag if isinstance(tag, str) else _plain(tag), column) for tag in value)

    return read


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _require_one_each(given: Any, tags: Any, roles: Roles) -> None:
    count = len(given.spans) if isinstance(given, Words) else len(given)
    if count != len(tags):
        raise Unfit(roles.target[0], "tags.length", f"{count} tokens, {len(tags)} tags", "give each token one tag")


def _read_target_text(roles: Roles) -> Callable[[tuple[Any, ...]], Target]:
    (column,) = roles.target
    return lambda values: _text(values[column], column)


def _read_nothing(_roles: Roles) -> Callable[[tuple[Any, ...]], Target]:
    return lambda _values: None


_INPUTS: dict[str, Callable[[Roles], Callable[[tuple[Any, ...]], Input]]] = {
    "text": _read_text,
    "pair": _read_pair,
    "words": _read_words,
    "vectors": _read_vectors,
    "picture": _read_picture,
}
_TARGETS: dict[str, Callable[[Roles], Callable[[tuple[Any, ...]], Target]]] = {
    "label": _read_label,
    "labels": _read_labels,
    "numbers": _read_numbers,
    "tags": _read_tags,
    "text": _read_target_text,
    "nothing": _read_nothing,
}
