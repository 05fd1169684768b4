"""From records to examples: each value checked against what its column is for.

What is wrong with one row spoils that row only: it goes to the ledger with its place and is left out. What can be used
but not quite as it stands - a whole number that float32 rounds, a label written in two ways - is told as a warning.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from seqloom.data.examples import Example, TextPair, TextTriple, Words
from seqloom.data.problems import Ledger, Place
from seqloom.data.roles import Roles
from seqloom.data.schema import InputKind
from seqloom.data.tables import Record, Table
from seqloom.data.targets import TARGETS
from seqloom.data.values import (
    Read,
    Remarks,
    Unfit,
    floats_of,
    kind_name,
    number_of,
    remark_rounding,
    shown,
    text_of,
    to_float32,
)


class Made(NamedTuple):
    """An example, and the record it was made of, for what only the record knows (its part)."""

    example: Example
    record: Record


def make_examples(table: Table, roles: Roles, ledger: Ledger) -> Iterator[Made]:
    """The examples of a table; rows that cannot be used are counted in the ledger and left out."""
    remarks: Remarks = []
    read_input = _INPUTS[roles.schema.input](roles, remarks)
    read_target = TARGETS[roles.schema.target](roles, remarks)
    identity, locate = roles.id, table.locate
    for record in table.records:
        values = record.values
        try:
            given, wanted = read_input(values), read_target(values)
            if roles.schema.target in ("tags", "series"):
                _require_one_each(given, wanted, roles)
        except Unfit as unfit:
            remarks.clear()
            ledger.rows -= 1  # the reader has counted it as a good one
            ledger.bad_row(unfit.code, unfit.text, locate(record, unfit.column), unfit.fix)
            continue
        if remarks:
            _tell(remarks, record, table, ledger)
        name = "" if identity is None else str(values[identity])
        yield Made(Example(given, wanted, name, Place(record.path, record.line)), record)


def _tell(remarks: Remarks, record: Record, table: Table, ledger: Ledger) -> None:
    for column, code, text, fix, times in remarks:
        ledger.warn(code, text, table.locate(record, column), fix, times)
    remarks.clear()


def _read_text(roles: Roles, _: Remarks) -> Read:
    (column,) = roles.input
    return lambda values: text_of(values[column], column)


def _read_pair(roles: Roles, _: Remarks) -> Read:
    first, second = roles.input
    return lambda values: TextPair(text_of(values[first], first), text_of(values[second], second))


def _read_triple(roles: Roles, _: Remarks) -> Read:
    columns = roles.input
    return lambda values: TextTriple(*(text_of(values[column], column) for column in columns))


def _read_words(roles: Roles, _: Remarks) -> Read:
    (column,) = roles.input

    def read(values: tuple[Any, ...]) -> Words:
        words = values[column]
        whole = Words.cut(words) if isinstance(words, str) else None  # a cell of tokens with spaces between them
        if whole is not None:
            words = whole.words()
        if not isinstance(words, list | tuple):
            raise Unfit(column, "type.tokens", f"expected a list of words, got {kind_name(words)}")
        if not words:
            raise Unfit(column, "row.empty_text", "there are no words", "fill them in, or --bad-rows skip")
        for word in words:
            if type(word) is not str or not word:
                raise Unfit(column, "type.tokens", f"expected words of text, got {shown(word)}")
        if roles.spaces is not None:
            return Words.join(words, _spaces(values[roles.spaces], words, roles.spaces))
        return whole or Words.join(words)

    return read


def _spaces(value: Any, words: list[str] | tuple[str, ...], column: int) -> list[bool] | tuple[bool, ...]:
    """Whether a space follows each word."""
    if not isinstance(value, list | tuple) or len(value) != len(words) or not {bool}.issuperset(map(type, value)):
        text = f"expected true or false for each of {len(words)} words, got {shown(value)}"
        raise Unfit(column, "type.tokens", text, "rename the column if it says something else")
    return value


def _read_vectors(roles: Roles, remarks: Remarks) -> Read:
    width = 0  # of the first row; the others must agree
    first = roles.input[0]

    def read(values: tuple[Any, ...]) -> np.ndarray:
        nonlocal width
        if len(roles.input) > 1 or not isinstance(values[first], list | tuple | np.ndarray):
            numbers = np.array([[number_of(values[column], column) for column in roles.input]])
        else:
            numbers = _steps(values[first], first)
        vectors = to_float32(numbers)
        if vectors is None:
            raise Unfit(first, "array.nonfinite", "a number is NaN, infinite or too large for float32")
        width = width or vectors.shape[1]
        if vectors.shape[1] != width:
            raise Unfit(first, "array.width", f"vectors of {vectors.shape[1]} numbers; the first row has {width}")
        remark_rounding(numbers, first, remarks)
        return vectors

    return read


def _steps(value: Any, column: int) -> np.ndarray:
    """[T,D] numbers, from nested lists, a flat list (one number a step) or an array."""
    try:
        numbers = floats_of(value)
    except ValueError:
        raise Unfit(column, "array.shape", "expected a list of vectors of one size, all numbers") from None
    if numbers.ndim == 1:
        numbers = numbers[:, None]
    if numbers.ndim != 2:
        raise Unfit(column, "array.shape", f"expected vectors [steps, size], found {numbers.ndim} axes")
    if not numbers.size:
        raise Unfit(column, "row.empty_text", "the sequence is empty", "fill it in, or --bad-rows skip")
    return numbers


def _read_picture(roles: Roles, _: Remarks) -> Read:
    (column,) = roles.input
    first: tuple[Any, ...] = ()  # the shape and the kind of number of the first one

    def read(values: tuple[Any, ...]) -> np.ndarray:
        nonlocal first
        picture = _picture(values[column], column)
        found = (*picture.shape, picture.dtype.name)
        first = first or found
        if found != first:
            raise Unfit(column, "picture.size", f"a picture {_sized(found)}; the first one is {_sized(first)}")
        return picture

    return read


def _picture(value: Any, column: int) -> np.ndarray:
    """[H,W,C] of bytes, which are scaled when they are used, or of float32, which are not."""
    if not isinstance(value, np.ndarray) or value.ndim != 3 or value.dtype.kind not in "iuf":
        raise Unfit(column, "type.picture", f"expected a picture [height, width, channels], got {shown(value)}")
    picture = value if value.dtype == np.uint8 else to_float32(value)
    if picture is None:
        raise Unfit(column, "array.nonfinite", "a number is NaN, infinite or too large for float32")
    return picture


def _sized(found: tuple[Any, ...]) -> str:
    return f"{' x '.join(map(str, found[:-1]))} of {found[-1]}"


def _require_one_each(given: Any, answers: Any, roles: Roles) -> None:
    count = len(given.spans) if isinstance(given, Words) else len(given)
    if count != len(answers):
        code, thing = ("tags.length", "tag") if roles.schema.target == "tags" else ("series.length", "answer")
        raise Unfit(roles.target[0], code, f"{count} tokens, {len(answers)} {thing}s", f"give each token one {thing}")


_INPUTS: dict[InputKind, Callable[[Roles, Remarks], Read]] = {
    "text": _read_text,
    "pair": _read_pair,
    "triple": _read_triple,
    "words": _read_words,
    "vectors": _read_vectors,
    "picture": _read_picture,
}
