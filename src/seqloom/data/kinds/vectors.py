"""Vectors, one after another: frames of sound, measurements over time, columns of numbers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.config.inputs import AnyInput, VectorsConfig
from seqloom.data.kinds.kind import Columns, InputKind, Likeness, filled, padded
from seqloom.data.kinds.text import cut_short
from seqloom.data.values import Content, Read, Remarks, Unfit, floats_of, number_of, remark_rounding, to_float32
from seqloom.text.ragged import Ragged
from seqloom.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from seqloom.data.roles import Roles


SHOWN_STEPS = 4


class VectorsInput(InputKind):
    """Column "input": vectors [T,D]. In a batch: Padded [B,T,D] of float32."""

    name = "vectors"
    wanted = "vectors"
    usual = (("vectors",), ("frames",))
    has_steps = True
    of_numbers = True

    def holds(self, name: str, content: Content) -> bool:
        return content in ("vectors", "number")

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """What takes the vectors of a row, or the one whose numbers stand in a column each."""
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

    def matches(self, value: Any) -> bool:
        """Numbers of one axis or two."""
        return np.ndim(value) in (1, 2) and np.asarray(value).dtype.kind in "iufb"

    def whole(self, value: Any) -> Any:
        """A row of numbers is a sequence of one step."""
        return np.asarray(np.atleast_2d(value), np.float32)

    def likeness(self, value: Any) -> Likeness | None:
        return "array.width", value.shape[1:]

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        return {"steps of an input": np.array(list(map(len, values)), np.int32)}

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
        raise Unfit(column, "array.shape", "expected a list of vectors of one size, all numbers") from None
    if numbers.ndim == 1:
        numbers = numbers[:, None]
    if numbers.ndim != 2:
        raise Unfit(column, "array.shape", f"expected vectors [steps, size], found {numbers.ndim} axes")
    if not numbers.size:
        raise Unfit(column, "row.empty_text", "the sequence is empty", "fill it in, or --bad-rows skip")
    return numbers
