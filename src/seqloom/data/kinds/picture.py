"""A picture: rows of pixels, all pictures of one size."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.config.inputs import AnyInput, FiltersConfig
from seqloom.data.kinds.kind import Columns, InputKind, Likeness, even, tensor
from seqloom.data.values import Content, Read, Remarks, Unfit, shown, to_float32
from seqloom.text.ragged import Ragged
from seqloom.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from seqloom.data.roles import Roles


LEAST_FOR_TWO = 8  # pixels of the shorter side: two layers of filters fit


class PictureInput(InputKind):
    """Column "input": rows of pixels [H,W,C]. In a batch: [B,H,W,C] of float32, bytes scaled to 0..1."""

    name = "picture"
    wanted = "pictures"
    usual = (("picture",), ("image",))
    fixed_size = True
    in_files = True
    libraries = ("pillow",)

    def holds(self, name: str, content: Content) -> bool:
        """Arrays of three axes, and names of files where the column is called so."""
        return content == "picture" or (content == "text" and (name,) in self.usual)

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """What takes the picture of a row."""
        (column,) = roles.input
        first: tuple[Any, ...] = ()  # the size and the kind of number of the first one; the others must agree

        def read(values: tuple[Any, ...]) -> np.ndarray:
            nonlocal first
            picture = _picture(values[column], column)
            found = (*picture.shape, picture.dtype.name)
            first = first or found
            if found != first:
                raise Unfit(column, "picture.size", f"a picture {_sized(found)}; the first one is {_sized(first)}")
            return picture

        return read

    def matches(self, value: Any) -> bool:
        return np.ndim(value) == 3 and np.asarray(value).dtype.kind in "iufb"

    def whole(self, value: Any) -> Any:
        """A picture without channels has one."""
        array = np.asarray(value)
        return array[:, :, None] if array.ndim == 2 else array

    def likeness(self, value: Any) -> Likeness | None:
        """The size, and whether pixels are bytes."""
        return "picture.size", (*value.shape, value.dtype.name)

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        return {"pixels of a picture": np.array([value.shape[0] * value.shape[1] for value in values])}

    def encode(self, values: Sequence[Any], tokenizer: Tokenizer | None) -> dict[str, Ragged]:
        return {"input": Ragged.of(values, values[0].dtype)}

    def cut(self, columns: Columns, most: int, *, framed: bool) -> dict[str, Ragged]:
        return dict(columns)  # pictures are never cut

    def collate(self, columns: Columns) -> Any:
        pixels = even(columns["input"], "pictures")
        floats = pixels.astype(np.float32)
        return tensor(floats / np.float32(255) if pixels.dtype == np.uint8 else floats)

    def layer(self, sizes: tuple[int, ...], tokenizer: Tokenizer | None) -> AnyInput:
        height, width, channels = sizes
        filters = (32, 64) if min(height, width) >= LEAST_FOR_TWO else (64,)
        return FiltersConfig(height=height, width=width, channels=channels, filters=filters)

    def show(self, columns: Columns, row: int, tokenizer: Tokenizer | None) -> str:
        column = columns["input"]
        return " x ".join(map(str, (int(column.lengths[row]), *column.values.shape[1:])))


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
