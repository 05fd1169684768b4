"""Pictures, all of one size: nothing is scaled or cropped.

A picture file becomes uint8 [H,W,C] with C = 1 (gray) or 3 (RGB). Transparent pixels are put on white, and pictures are
rotated by their EXIF orientation; a note reports each.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.config.inputs import AnyInput, FiltersConfig
from seqloom.data.kinds.kind import Columns, CommonShape, InputKind, even, tensor
from seqloom.data.problems import Ledger, Place
from seqloom.data.values import BadValue, Content, Read, Remarks, shown, to_float32
from seqloom.errors import needing
from seqloom.text.ragged import Ragged
from seqloom.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from PIL.Image import Image

    from seqloom.data.roles import Roles


FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".gif": "GIF"}
CAMERA = {"MPO": "JPEG"}  # a JPEG followed by a second one, which is not read
PIXELS = 89_478_485  # pillow's own limit, 256 MiB in color; it only warns
CHANNELS = {"1": "L", "L": "L", "LA": "L", "RGB": "RGB", "RGBA": "RGB", "P": "RGB", "PA": "RGB"}  # by mode
ORIENTATION = 0x0112  # the EXIF tag: 1 is upright
LEAST_FOR_TWO = 8  # pixels of the shorter side that are enough for two convolutions


class PictureInput(InputKind):
    """Column "input": rows of pixels [H,W,C]. In a batch: [B,H,W,C] of float32, bytes scaled to 0..1."""

    name = "picture"
    noun = "pictures"
    column_names = (("picture",), ("image",))
    fixed_size = True
    suffixes = tuple(FORMATS)
    libraries = ("pillow",)

    def holds(self, name: str, content: Content) -> bool:
        """Arrays with three axes, or file names in a column called picture or image."""
        return content == "picture" or (content == "text" and (name,) in self.column_names)

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """A function that reads the picture of a row."""
        (column,) = roles.input
        first: tuple[Any, ...] = ()  # shape and type of the first picture; all must have the same

        def read(values: tuple[Any, ...]) -> np.ndarray:
            nonlocal first
            picture = _picture(values[column], column)
            found = (*picture.shape, picture.dtype.name)
            first = first or found
            if found != first:
                raise BadValue(
                    column, "picture.size", f"a picture of {_sized(found)}; the first one has {_sized(first)}"
                )
            return picture

        return read

    def decode(self, path: Path, place: Place, ledger: Ledger) -> np.ndarray:
        """The picture in a file, uint8 [H,W,C]."""
        with needing("pictures"):
            from PIL import Image, ImageOps
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # pillow's warnings are rejected below, or harmless
                with Image.open(path, formats=sorted(set(FORMATS.values()))) as image:
                    _require_header(image, path)
                    image.load()
                    upright = image if image.getexif().get(ORIENTATION, 1) == 1 else ImageOps.exif_transpose(image)
                    if upright is not image:
                        ledger.note("picture.turned", "rotated by its EXIF orientation", place)
                    return _pixels(upright, place, ledger)
        except Image.DecompressionBombError:
            raise _bomb() from None
        except (BadValue, PermissionError):
            raise
        except Exception as error:  # a decoder may raise anything
            reason = " ".join(str(error).replace(str(path), "the file").split())[:200] or type(error).__name__
            raise BadValue(0, "picture.damaged", f"the picture cannot be decoded: {reason}", "copy it again") from None

    def require_same_shape(self, value: np.ndarray, first: np.ndarray) -> None:
        if value.shape != first.shape:
            found, expected = (
                f"{width} x {height} pixels in {'gray' if channels == 1 else 'color'}"
                for height, width, channels in (value.shape, first.shape)
            )
            text = f"{found}; the first picture has {expected}"
            raise BadValue(0, "picture.size", text, "convert all pictures to one size and color mode")

    def matches(self, value: Any) -> bool:
        return np.ndim(value) == 3 and np.asarray(value).dtype.kind in "iufb"

    def whole(self, value: Any) -> Any:
        """Adds the channel axis if it is missing."""
        array = np.asarray(value)
        return array[:, :, None] if array.ndim == 2 else array

    def common_shape(self, value: Any) -> CommonShape | None:
        """The shape and the type of the pixels."""
        return "picture.size", (*value.shape, value.dtype.name)

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        return {"pixels per picture": np.array([value.shape[0] * value.shape[1] for value in values])}

    def encode(self, values: Sequence[Any], tokenizer: Tokenizer | None) -> dict[str, Ragged]:
        return {"input": Ragged.of(values, values[0].dtype)}

    def cut(self, columns: Columns, most: int, *, framed: bool) -> dict[str, Ragged]:
        return dict(columns)  # pictures are never truncated

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
    """[H,W,C] of bytes, which are scaled to 0..1 in a batch, or of float32, which are not."""
    if not isinstance(value, np.ndarray) or value.ndim != 3 or value.dtype.kind not in "iuf":
        raise BadValue(column, "type.picture", f"expected a picture [height, width, channels], found {shown(value)}")
    picture = value if value.dtype == np.uint8 else to_float32(value)
    if picture is None:
        raise BadValue(column, "array.nonfinite", "a number is NaN, infinite or too large for float32")
    return picture


def _sized(found: tuple[Any, ...]) -> str:
    return f"{' x '.join(map(str, found[:-1]))} of {found[-1]}"


def _bomb() -> BadValue:
    return BadValue(0, "picture.bomb", f"more than {PIXELS:,} pixels", "scale it down")


def _require_header(image: "Image", path: Path) -> None:
    """Raise BadValue by the header if the picture is too large or of another format than its extension."""
    if image.width * image.height > PIXELS:
        raise _bomb()
    found, expected = CAMERA.get(str(image.format), str(image.format)), FORMATS.get(path.suffix.lower())
    if expected is not None and found != expected:
        text = f"the extension is {path.suffix}, but the content is {found}"
        raise BadValue(0, "picture.magic", text, "rename the file")
    if found != "JPEG" and getattr(image, "n_frames", 1) > 1:
        raise BadValue(0, "picture.frames", "this is an animation", "save one frame of it")
    if image.mode not in CHANNELS:
        text = f"the color mode is {image.mode}; expected 8 bits of gray or RGB"
        raise BadValue(0, "picture.mode", text, "convert it to 8-bit gray or RGB")


def _pixels(image: "Image", place: Place, ledger: Ledger) -> np.ndarray:
    """The picture as an array, with transparent pixels put on white."""
    mode = CHANNELS[image.mode]
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema() != (255, 255):
            ledger.note("picture.alpha", "transparent pixels were put on white", place)
            white = image.copy()
            white.paste((255, 255, 255, 255), (0, 0, *image.size))
            white.alpha_composite(image)
            image = white
    pixels = np.asarray(image.convert(mode), np.uint8)
    return pixels if pixels.ndim == 3 else pixels[..., None]
