"""One number or several: of each example, or of each word or step of the input."""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from seqloom.config.data import Task
from seqloom.data.kinds.kind import Coding, Columns, Likeness, TargetKind, even, filled, tensor
from seqloom.data.values import EXACT, Read, Remarks, Unfit, floats_of, number_of, remark_rounding, shown, to_float32
from seqloom.text.ragged import Ragged

if TYPE_CHECKING:
    from torch import Tensor

    from seqloom.data.roles import Roles


class NumbersTarget(TargetKind):
    """Column "target": the numbers. In a batch: [B,K]."""

    name = "numbers"
    task: ClassVar[Task] = "regress"
    usual: ClassVar[tuple[str, ...]] = ("score", "rating", "similarity", "number", "numbers", "value", "series")
    measured = True

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """What takes the numbers of a row: a column each, or a list, or what all steps of a sequence share."""
        first, count = roles.target[0], 0  # numbers in the first row; the others must agree

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
                raise Unfit(first, "type.number", f"a list of {len(numbers)}; the first row has {count}")
            if max(map(abs, numbers)) > EXACT:
                remark_rounding(np.array(numbers), first, remarks)
            return numbers

        return read

    def likeness(self, value: Any) -> Likeness | None:
        return "type.number", (len(value),)

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        return {"target": np.array(list(chain.from_iterable(values)))}

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        return {"target": Ragged.of(values, np.float32)}

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        return inputs, tensor(even(columns["target"], "rows of numbers").astype(np.float32))

    def count(self, column: Ragged) -> int:
        """As many as the first row has."""
        return int(column.lengths[0])


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
    _require_float32(numbers, column)
    return tuple(numbers.tolist())


def _require_float32(numbers: np.ndarray, column: int) -> None:
    if to_float32(numbers) is None:
        raise Unfit(column, "type.number", "a number is NaN, infinite or too large for float32", "leave the row out")


class SeriesTarget(TargetKind):
    """Column "target": numbers [T,K]. In a batch: [B,W,K] or [B,T,K], 0 in the padding."""

    name = "series"
    task = "regress"
    usual = ("series",)
    thing = "answer"
    of_steps = True
    length_code = "series.length"
    measured = True

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """What takes the numbers of a row: a list for each step, or one number each."""
        (column,), count = roles.target, 0  # numbers of a step of the first row; the others must agree

        def read(values: tuple[Any, ...]) -> tuple[tuple[float, ...], ...]:
            nonlocal count
            numbers = _series(values[column], column)
            count = count or numbers.shape[1]
            if numbers.shape[1] != count:
                text = f"{numbers.shape[1]} numbers for each step; the first row has {count}"
                raise Unfit(column, "type.number", text)
            remark_rounding(numbers, column, remarks)
            return tuple(map(tuple, numbers.tolist()))

        return read

    def likeness(self, value: Any) -> Likeness | None:
        """How many numbers a step has."""
        return "type.number", (len(value[0]),)

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        return {"target of a step": np.array(list(chain.from_iterable(chain.from_iterable(values))))}

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        return {"target": Ragged.of([np.array(value, np.float32) for value in values], np.float32)}

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """The numbers of each word or step."""
        return inputs, tensor(filled(columns["target"], np.float32))

    def count(self, column: Ragged) -> int:
        """As many as a step has."""
        return int(column.values.shape[1])


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
    _require_float32(numbers, column)
    return numbers
