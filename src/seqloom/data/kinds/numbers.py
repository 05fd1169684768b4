"""Numbers as targets: one or several per example, or per word or step of the input."""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from seqloom.config.data import Task
from seqloom.data.kinds.kind import Coding, Columns, CommonShape, TargetKind, even, filled, tensor
from seqloom.data.values import EXACT, BadValue, Read, Remarks, floats_of, number_of, remark_rounding, shown, to_float32
from seqloom.text.ragged import Ragged

if TYPE_CHECKING:
    from torch import Tensor

    from seqloom.data.roles import Roles


class NumbersTarget(TargetKind):
    """Column "target": the numbers. In a batch: [B,K]."""

    name = "numbers"
    task: ClassVar[Task] = "regress"
    column_names: ClassVar[tuple[str, ...]] = ("score", "rating", "similarity", "number", "numbers", "value", "series")
    measured = True

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """A function that reads the numbers of a row: from columns, a list, or the steps of a sequence."""
        first, count = roles.target[0], 0  # numbers in the first row; all rows must have as many

        def read(values: tuple[Any, ...]) -> tuple[float, ...]:
            nonlocal count
            if roles.stepped:
                numbers = _shared_numbers(values[first], first)
            elif len(roles.target) == 1 and isinstance(values[first], list | tuple | np.ndarray):
                numbers = _listed_numbers(values[first], first)
            else:
                numbers = tuple(number_of(values[column], column) for column in roles.target)
            count = count or len(numbers)
            if len(numbers) != count:
                raise BadValue(first, "type.number", f"{len(numbers)} numbers; the first row has {count}")
            if max(map(abs, numbers)) > EXACT:
                remark_rounding(np.array(numbers), first, remarks)
            return numbers

        return read

    def common_shape(self, value: Any) -> CommonShape | None:
        return "type.number", (len(value),)

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        return {"target": np.array(list(chain.from_iterable(values)))}

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        return {"target": Ragged.of(values, np.float32)}

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        return inputs, tensor(even(columns["target"], "rows of numbers").astype(np.float32))

    def count(self, column: Ragged) -> int:
        """The numbers of the first row."""
        return int(column.lengths[0])


def _shared_numbers(steps: tuple[tuple[float, ...], ...], column: int) -> tuple[float, ...]:
    """The numbers that all steps of a sequence share."""
    for other in steps:
        if other != steps[0]:
            text = f"expected one value per sequence, as in the first sequences, found {steps[0]} and {other}"
            raise BadValue(
                column, "sequence.target", text, "for a number per step, the first sequences must have them too"
            )
    return steps[0]


def _listed_numbers(value: Any, column: int) -> tuple[float, ...]:
    try:
        numbers = floats_of(value)
    except ValueError:
        raise BadValue(column, "type.number", f"expected a list of numbers, found {shown(value)}") from None
    if numbers.ndim != 1 or not numbers.size:
        raise BadValue(column, "type.number", f"expected a flat list of numbers, found {shown(value)}")
    _require_float32(numbers, column)
    return tuple(numbers.tolist())


def _require_float32(numbers: np.ndarray, column: int) -> None:
    if to_float32(numbers) is None:
        raise BadValue(column, "type.number", "a number is NaN, infinite or too large for float32", "remove the row")


class SeriesTarget(TargetKind):
    """Column "target": numbers [T,K]. In a batch: [B,W,K] or [B,T,K], 0 in the padding."""

    name = "series"
    task = "regress"
    column_names = ("series",)
    noun = "answer"
    of_steps = True
    length_code = "series.length"
    measured = True

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """A function that reads the numbers of a row: a list or a number for each step."""
        (column,), count = roles.target, 0  # numbers per step in the first row; all rows must have as many

        def read(values: tuple[Any, ...]) -> tuple[tuple[float, ...], ...]:
            nonlocal count
            numbers = _series(values[column], column)
            count = count or numbers.shape[1]
            if numbers.shape[1] != count:
                text = f"{numbers.shape[1]} numbers per step; the first row has {count}"
                raise BadValue(column, "type.number", text)
            remark_rounding(numbers, column, remarks)
            return tuple(map(tuple, numbers.tolist()))

        return read

    def common_shape(self, value: Any) -> CommonShape | None:
        """The numbers per step."""
        return "type.number", (len(value[0]),)

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        return {"target per step": np.array(list(chain.from_iterable(chain.from_iterable(values))))}

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        return {"target": Ragged.of([np.array(value, np.float32) for value in values], np.float32)}

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """The numbers of each word or step."""
        return inputs, tensor(filled(columns["target"], np.float32))

    def count(self, column: Ragged) -> int:
        """The numbers per step."""
        return int(column.values.shape[1])


def _series(value: Any, column: int) -> np.ndarray:
    """[T,K] the numbers of each step, from nested lists, or from a flat list with one number per step."""
    try:
        numbers = floats_of(value) if isinstance(value, list | tuple | np.ndarray) else np.empty(0)
    except ValueError:
        numbers = np.empty(0)
    if numbers.ndim == 1:
        numbers = numbers[:, None]
    if numbers.ndim != 2 or not numbers.size:
        raise BadValue(column, "type.number", f"expected equally many numbers for each step, found {shown(value)}")
    _require_float32(numbers, column)
    return numbers
