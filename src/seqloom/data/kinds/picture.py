"""A picture: rows of pixels, all pictures of one size: nothing is scaled or cut.

From a file it is uint8 [H,W,C], C = 1 (grey) or 3 (red, green, blue). What is transparent is laid on white, and a
camera's remark that a picture lies on its side is obeyed; a note tells of each.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.config.inputs import AnyInput, FiltersConfig
from seqloom.data.kinds.kind import Columns, InputKind, Likeness, even, tensor
from seqloom.data.problems import Ledger, Place
from seqloom.data.values import Content, Read, Remarks, Unfit, shown, to_float32
from seqloom.errors import needing
from seqloom.text.ragged import Ragged
from seqloom.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from PIL.Image import Image

    from seqloom.data.roles import Roles


FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".gif": "GIF"}
CAMERA = {"MPO": "JPEG"}  # a JPEG with a second one behind it, which is not read
PIXELS = 89_478_485  # pillow's own limit, 256 MiB in colour; it only warns
CHANNELS = {"1": "L", "L": "L", "LA": "L", "RGB": "RGB", "RGBA": "RGB", "P": "RGB", "PA": "RGB"}  # by mode
ORIENTATION = 0x0112  # the EXIF tag: 1 is upright
LEAST_FOR_TWO = 8  # pixels of the shorter side: two layers of filters fit


class PictureInput(InputKind):
    """Column "input": rows of pixels [H,W,C]. In a batch: [B,H,W,C] of float32, bytes scaled to 0..1."""

    name = "picture"
    wanted = "pictures"
    usual = (("picture",), ("image",))
    fixed_size = True
    suffixes = tuple(FORMATS)
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

    def decode(self, path: Path, place: Place, ledger: Ledger) -> np.ndarray:
        """The picture in a file, uint8 [H,W,C]."""
        with needing("pictures"):
            from PIL import Image, ImageOps
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what pillow only warns of is refused, or harmless
                with Image.open(path, formats=sorted(set(FORMATS.values()))) as image:
                    _require_header(image, path)
                    image.load()
                    upright = image if image.getexif().get(ORIENTATION, 1) == 1 else ImageOps.exif_transpose(image)
                    if upright is not image:
                        ledger.note("picture.turned", "turned upright, as the camera says", place)
                    return _pixels(upright, place, ledger)
        except Image.DecompressionBombError:
            raise _bomb() from None
        except (Unfit, PermissionError):
            raise
        except Exception as error:  # whatever it is that a decoder of foreign bytes raises
            reason = " ".join(str(error).replace(str(path), "the file").split())[:200] or type(error).__name__
            raise Unfit(0, "picture.damaged", f"this cannot be decoded: {reason}", "copy it again") from None

    def require_alike(self, value: np.ndarray, first: np.ndarray) -> None:
        if value.shape != first.shape:
            said, expected = (
                f"{width} x {height} pixels in {'grey' if channels == 1 else 'colour'}"
                for height, width, channels in (value.shape, first.shape)
            )
            text = f"{said}; the first picture has {expected}"
            raise Unfit(0, "picture.size", text, "bring all pictures to one size and kind")

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


def _bomb() -> Unfit:
    return Unfit(0, "picture.bomb", f"more than {PIXELS:,} pixels", "scale it down")


def _require_header(image: "Image", path: Path) -> None:
    """Refuse by its header what would be too large, or is another kind of picture than its name says."""
    if image.width * image.height > PIXELS:
        raise _bomb()
    found, expected = CAMERA.get(str(image.format), str(image.format)), FORMATS.get(path.suffix.lower())
    if expected is not None and found != expected:
        text = f"named {path.suffix}, but the content is {found}"
        raise Unfit(0, "picture.magic", text, "give the file its right ending")
    if found != "JPEG" and getattr(image, "n_frames", 1) > 1:
        raise Unfit(0, "picture.frames", "this is a moving picture", "save one frame of it")
    if image.mode not in CHANNELS:
        text = f"pixels of the kind {image.mode}; expected 8 bits of grey or colour"
        raise Unfit(0, "picture.mode", text, "convert it")


def _pixels(image: "Image", place: Place, ledger: Ledger) -> np.ndarray:
    """The picture as an array, laid on white where it is transparent."""
    mode = CHANNELS[image.mode]
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema() != (255, 255):
            ledger.note("picture.alpha", "transparent pixels were laid on white", place)
            white = image.copy()
            white.paste((255, 255, 255, 255), (0, 0, *image.size))
            white.alpha_composite(image)
            image = white
    pixels = np.asarray(image.convert(mode), np.uint8)
    return pixels if pixels.ndim == 3 else pixels[..., None]
