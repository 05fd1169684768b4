"""From the values of a row to its target: a label, several, numbers, a tag or numbers per step, a text, or nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np

from seqloom.data.examples import Target
from seqloom.data.roles import Roles
from seqloom.data.schema import TargetKind
from seqloom.data.values import (
    EXACT,
    Read,
    Remark,
    Remarks,
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
