"""Sequences of vectors: audio frames, measurements over time, columns of numbers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.config.inputs import AnyInput, VectorsConfig
from seqloom.data.kinds.kind import Columns, CommonShape, InputKind, filled, padded
from seqloom.data.kinds.text import cut_short
from seqloom.data.problems import EMPTY_FIX
from seqloom.data.values import (
    BadValue,
    Content,
    Read,
    Remarks,
    floats_of,
    number_of,
    remark_rounding,
    to_float32,
)
from seqloom.text.ragged import Ragged
from seqloom.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from seqloom.data.roles import Roles


SHOWN_STEPS = 4


class VectorsInput(InputKind):
    """Column "input": vectors [T,D]. In a batch: Padded [B,T,D] of float32."""

    name = "vectors"
    noun = "vectors"
    column_names = (("vectors",), ("frames",))
    has_steps = True
    of_numbers = True

    def holds(self, name: str, content: Content) -> bool:
        return content in ("vectors", "number")

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """A function that reads the vectors of a row, or one vector from several columns of numbers."""
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
                raise BadValue(first, "array.nonfinite", "a number is NaN, infinite or too large for float32")
            width = width or vectors.shape[1]
            if vectors.shape[1] != width:
                raise BadValue(
                    first, "array.width", f"vectors of {vectors.shape[1]} numbers; the first row has {width}"
                )
            remark_rounding(numbers, first, remarks)
            return vectors

        return read

    def matches(self, value: Any) -> bool:
        """Numbers with one or two axes."""
        return np.ndim(value) in (1, 2) and np.asarray(value).dtype.kind in "iufb"

    def whole(self, value: Any) -> Any:
        """A row of numbers is a sequence of one step."""
        return np.asarray(np.atleast_2d(value), np.float32)

    def common_shape(self, value: Any) -> CommonShape | None:
        return "array.width", value.shape[1:]

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        return {"steps per input": np.array(list(map(len, values)), np.int32)}

    def encode(self, values: Sequence[Any], tokenizer: Tokenizer | None) -> dict[str, Ragged]:
        return {"input": Ragged.of(values, values[0].dtype)}

    def collate(self, columns: Columns) -> Any:
        return padded(filled(columns["input"], np.float32), columns["input"].lengths)

    def layer(self, sizes: tuple[int, ...], tokenizer: Tokenizer | None) -> AnyInput:
        return VectorsConfig(size=sizes[0])

    def show(self, columns: Columns, row: int, tokenizer: Tokenizer | None) -> str:
        """The first vectors, and how many there are."""
        vectors = columns["input"].row(row)
        steps = [", ".join(f"{number:.3g}" for number in step) for step in vectors[:SHOWN_STEPS]]
        more = f" ... {len(vectors)} steps" if len(vectors) > SHOWN_STEPS else ""
        return cut_short("; ".join(f"({step})" for step in steps) + more)


def _steps(value: Any, column: int) -> np.ndarray:
    """[T,D] numbers, from nested lists, a flat list (one number a step) or an array."""
    try:
        numbers = floats_of(value)
    except ValueError:
        raise BadValue(column, "array.shape", "expected a list of vectors of numbers, all of one size") from None
    if numbers.ndim == 1:
        numbers = numbers[:, None]
    if numbers.ndim != 2:
        raise BadValue(column, "array.shape", f"expected vectors [steps, size], found {numbers.ndim} axes")
    if not numbers.size:
        raise BadValue(column, "row.empty_text", "the sequence is empty", EMPTY_FIX)
    return numbers
