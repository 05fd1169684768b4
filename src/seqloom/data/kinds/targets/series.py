"""One number or several of each word or step of the input."""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.data.kinds.kind import Coding, Columns, Likeness, TargetKind
from seqloom.data.values import Read, Remarks, Unfit, floats_of, remark_rounding, shown, to_float32
from seqloom.text.ragged import Ragged

if TYPE_CHECKING:
    from torch import Tensor

    from seqloom.data.roles import Roles


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
        """The numbers of all steps."""
        return {"target of a step": np.array(list(chain.from_iterable(chain.from_iterable(values))))}

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        """The numbers."""
        return {"target": Ragged.of([np.array(value, np.float32) for value in values], np.float32)}

    def cut(self, columns: Columns, most: int) -> dict[str, Ragged]:
        """Those of each word or step that is left."""
        return {"target": columns["target"].shorten(columns.get("firsts", columns["input"]).lengths)}

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """The numbers of each word or step."""
        from torch import from_numpy

        from seqloom.data.kinds import tensors

        return inputs, from_numpy(tensors.filled(columns["target"], np.float32))

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
    if to_float32(numbers) is None:
        raise Unfit(column, "type.number", "a number is NaN, infinite or too large for float32", "leave the row out")
    return numbers
