"""From records to examples: each value checked against what its column is for.

What is wrong with one row spoils that row only: it goes to the ledger with its place and is left out. What can be used
but not quite as it stands - a whole number that float32 rounds, a label written in two ways - is told as a warning.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from seqloom.data.problems import Ledger, Place
from seqloom.data.roles import Roles
from seqloom.data.schema import Example, InputKind, Target, TargetKind, TextPair, TextTriple, Words
from seqloom.data.values import (
    EXACT,
    Read,
    Record,
    Remark,
    Remarks,
    Table,
    Unfit,
    floats_of,
    kind_name,
    label_of,
    number_of,
    remark_rounding,
    shown,
    text_of,
    to_float32,
)

# -----------------------------------------------------------------------------
# From the values of a row to its target: a label, several, numbers, a tag or numbers per step, a text, or nothing.
# -----------------------------------------------------------------------------

MOST_LABELS = 2**17  # whose types are remembered: classes are fewer, and memory has an end


class _Labels:
    """Names labels, and tells of values of different types, `true` and "true", which can only be one label."""

    def __init__(self, roles: Roles, remarks: Remarks) -> None:
        (self.column,) = roles.target
        self.whole, self.remarks = roles.whole, remarks
        self.types: dict[str, type] = {}  # in which each label was first written

    def __call__(self, value: Any) -> str:
        label = label_of(value, self.column, whole=self.whole)
        before = self.types.get(label)
        if before is not type(value):
            if before is not None:
                text = f"label {shown(label)} is {_TYPES[type(value)]} here and {_TYPES[before]} before; both are one"
                self.remarks.append(Remark(self.column, "label.types", text, "write it in one way in all rows"))
            elif len(self.types) < MOST_LABELS:
                self.types[label] = type(value)
        return label


_TYPES = {str: "a text", bool: "true or false", int: "a whole number", float: "a number with a point"}


def _read_label(roles: Roles, remarks: Remarks) -> Read:
    (column,), name = roles.target, _Labels(roles, remarks)
    return lambda values: name(values[column])


def _read_labels(roles: Roles, remarks: Remarks) -> Read:
    (column,), name = roles.target, _Labels(roles, remarks)

    def read(values: tuple[Any, ...]) -> Target:
        value = values[column]
        if type(value) is str:  # an empty cell has no label, which is an answer
            value = [part for part in value.split(roles.label_separator) if part] if roles.label_separator else [value]
        if not isinstance(value, list | tuple):
            raise Unfit(column, "type.label", f"expected a list of labels, got {kind_name(value)}")
        return tuple(dict.fromkeys(map(name, value)))

    return read


def _read_numbers(roles: Roles, remarks: Remarks) -> Read:
    first, count = roles.target[0], 0  # numbers in the first row; the others must agree

    def read(values: tuple[Any, ...]) -> Target:
        nonlocal count
        if roles.stepped:
            numbers = _shared_numbers(values[first], first)
        elif len(roles.target) == 1 and isinstance(values[first], list | tuple | np.ndarray):
            numbers = _listed_numbers(values[first], first)
        else:
            numbers = tuple(number_of(values[column], column) for column in roles.target)
        count = count or len(numbers)
        if len(numbers) != count:
            raise Unfit(first, "type.number", f"a list of {len(numbers)}; the first row has {count}")
        if max(map(abs, numbers)) > EXACT:
            remark_rounding(np.array(numbers), first, remarks)
        return numbers

    return read


def _read_series(roles: Roles, remarks: Remarks) -> Read:
    (column,), count = roles.target, 0  # numbers of a step of the first row; the others must agree

    def read(values: tuple[Any, ...]) -> Target:
        nonlocal count
        numbers = _series(values[column], column)
        count = count or numbers.shape[1]
        if numbers.shape[1] != count:
            raise Unfit(column, "type.number", f"{numbers.shape[1]} numbers for each step; the first row has {count}")
        remark_rounding(numbers, column, remarks)
        return tuple(map(tuple, numbers.tolist()))

    return read


def _series(value: Any, column: int) -> np.ndarray:
    """[T,K] the numbers of each step, from a list of lists or, of one number a step, a flat one."""
    try:
        numbers = floats_of(value) if isinstance(value, list | tuple | np.ndarray) else np.empty(0)
    except ValueError:
        numbers = np.empty(0)
    if numbers.ndim == 1:
        numbers = numbers[:, None]
    if numbers.ndim != 2 or not numbers.size:
        raise Unfit(column, "type.number", f"expected numbers for each step, as many for each, got {shown(value)}")
    if to_float32(numbers) is None:
        raise Unfit(column, "type.number", "a number is NaN, infinite or too large for float32", "leave the row out")
    return numbers


def _shared_numbers(steps: tuple[tuple[float, ...], ...], column: int) -> tuple[float, ...]:
    """The numbers that all steps of a sequence have."""
    for other in steps:
        if other != steps[0]:
            text = f"a sequence has one value here, as the first ones have, and this one has {steps[0]} and {other}"
            raise Unfit(column, "sequence.target", text, "numbers that differ must do so in the first sequences")
    return steps[0]


def _listed_numbers(value: Any, column: int) -> tuple[float, ...]:
    try:
        numbers = floats_of(value)
    except ValueError:
        raise Unfit(column, "type.number", f"expected a list of numbers, got {shown(value)}") from None
    if numbers.ndim != 1 or not numbers.size:
        raise Unfit(column, "type.number", f"expected a flat list of numbers, got {shown(value)}")
    if to_float32(numbers) is None:
        raise Unfit(column, "type.number", "a number is NaN, infinite or too large for float32", "leave the row out")
    return tuple(numbers.tolist())


def _read_tags(roles: Roles, remarks: Remarks) -> Read:
    (column,), name = roles.target, _Labels(roles, remarks)

    def read(values: tuple[Any, ...]) -> Target:
        value = values[column]
        if isinstance(value, str):
            value = [tag for tag in value.split(" ") if tag]
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if not isinstance(value, list | tuple):
            raise Unfit(column, "type.tags", f"expected a list of tags, got {kind_name(value)}")
        return tuple(map(name, value))

    return read


def _read_target_text(roles: Roles, _: Remarks) -> Read:
    (column,) = roles.target
    return lambda values: text_of(values[column], column)


def _read_nothing(_roles: Roles, _: Remarks) -> Read:
    return lambda _values: None


TARGETS: dict[TargetKind, Callable[[Roles, Remarks], Read]] = {
    "label": _read_label,
    "labels": _read_labels,
    "numbers": _read_numbers,
    "tags": _read_tags,
    "series": _read_series,
    "text": _read_target_text,
    "nothing": _read_nothing,
    "masked": _read_nothing,
    "related": _read_nothing,
    "similarity": _read_numbers,
}


class MadeExample(NamedTuple):
    """An example, and the record it was made of, for what only the record knows (its part)."""

    example: Example
    record: Record


def make_examples(table: Table, roles: Roles, ledger: Ledger) -> Iterator[MadeExample]:
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
        yield MadeExample(Example(given, wanted, name, Place(record.path, record.line)), record)


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
