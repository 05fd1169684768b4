"""Pictures: a folder with one folder for each class, a column that names files, and the decoding of one file.

    flowers/daisy/01.png      ->  picture: uint8 [H,W,C], C = 1 (grey) or 3 (red, green, blue);  label: "daisy"
    flowers/tulip/02.jpg

    flowers.csv               ->  the same; paths count from the folder of the table and stay inside it
      picture,label
      daisy/01.png,daisy

Files come in the order of their names. All pictures have one size: nothing is scaled or cut. What is transparent is
laid on white, and a camera's remark that a picture lies on its side is obeyed; a note tells of each.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seqloom.config.data import ReadingConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.files import is_file
from seqloom.data.readers.folders import ClassFile, class_files
from seqloom.data.values import Record, Table
from seqloom.errors import needing

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".gif": "GIF"}
CAMERA = {"MPO": "JPEG"}  # a JPEG with a second one behind it, which is not read
PIXELS = 89_478_485  # pillow's own limit, 256 MiB in colour; it only warns
CHANNELS = {"1": "L", "L": "L", "LA": "L", "RGB": "RGB", "RGBA": "RGB", "P": "RGB", "PA": "RGB"}  # by mode
ORIENTATION = 0x0112  # the EXIF tag: 1 is upright


class PictureError(Exception):
    """Why a file is no picture that we read."""

    def __init__(self, code: str, text: str, fix: str) -> None:
        super().__init__(code, text)
        self.code, self.text, self.fix = code, text, fix


def read(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:  # noqa: ARG001  # as all readers
    """The table of a folder of pictures: the columns picture and label, and split where there are parts."""
    (root,) = paths
    files = class_files(root, tuple(FORMATS), ledger)
    if not files:
        fix = f"name them {', '.join(FORMATS)}"
        ledger.bad_file("data.empty", "no pictures in the class folders", Place(str(root)), fix)
    columns = ("picture", "label") if files[0].part is None else ("picture", "label", "split")
    return Table(columns, _records(files, ledger))


def _records(files: list[ClassFile], ledger: Ledger) -> Iterator[Record]:
    first: np.ndarray | None = None
    for file in files:
        picture = read_picture(file.path, ledger)
        if picture is None:
            continue
        first = picture if first is None else first
        if picture.shape != first.shape:
            text = f"{_size(picture)}; the first picture has {_size(first)}"
            ledger.bad_row("picture.size", text, Place(str(file.path)), "bring all pictures to one size and kind")
            continue
        ledger.rows += 1
        part = () if file.part is None else (file.part,)
        yield Record((picture, file.label, *part), str(file.path), 1)


def load_column(table: Table, column: int, ledger: Ledger) -> Table:
    """The table with pictures where this column names their files; rows whose picture cannot be read are left out."""

    def records() -> Iterator[Record]:
        for record in table.records:
            value = record.values[column]
            if not isinstance(value, str):  # a format that holds the pictures themselves
                yield record
            elif (picture := _load(record, value, table.locate(record, column), ledger)) is not None:
                values = (*record.values[:column], picture, *record.values[column + 1 :])
                yield record._replace(values=values)
            else:
                ledger.rows -= 1  # the reader has counted it as a good one

    return table._replace(records=records())


def _load(record: Record, name: str, place: Place, ledger: Ledger) -> np.ndarray | None:
    folder = Path(record.path).parent
    try:
        inside = (folder / name).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # links in a circle, a name too long
        ledger.bad_row("file.missing", "there is no picture file of this name", place, "check the path")
        return None
    if inside:
        return read_picture(folder / name, ledger, place)
    ledger.bad_row("file.escape", f"this path leaves the folder {folder}", place, "copy the picture into the folder")
    return None


def _size(picture: np.ndarray) -> str:
    height, width, channels = picture.shape
    return f"{width} x {height} pixels in {'grey' if channels == 1 else 'colour'}"


def read_picture(path: Path, ledger: Ledger, place: Place | None = None) -> np.ndarray | None:
    """The picture in a file, uint8 [H,W,C]; None after a bad row, at `place` if a table names the file there."""
    place = place or Place(str(path))
    if not is_file(path):
        ledger.bad_row("file.missing", f"there is no picture file {path}", place, "check the path")
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what pillow only warns of is refused below, or harmless
            return _decoded(path, place, ledger)
    except PictureError as error:
        ledger.bad_row(error.code, error.text, place, error.fix)
    except PermissionError:
        ledger.bad_row("file.permission", f"no permission to read {path}", place, "change its rights: chmod u+r")
    return None


def _decoded(path: Path, place: Place, ledger: Ledger) -> np.ndarray:
    with needing("pictures"):
        from PIL import Image, ImageOps
    try:
        with Image.open(path, formats=sorted(set(FORMATS.values()))) as image:
            _require_header(image, path)
            image.load()
            upright = image if image.getexif().get(ORIENTATION, 1) == 1 else ImageOps.exif_transpose(image)
            if upright is not image:
                ledger.note("picture.turned", "turned upright, as the camera says", place)
            return _pixels(upright, place, ledger)
    except Image.DecompressionBombError:
        raise _bomb() from None
    except (PictureError, PermissionError):
        raise
    except Exception as error:  # whatever it is that a decoder of foreign bytes raises
        reason = " ".join(str(error).replace(str(path), "the file").split())[:200] or type(error).__name__
        raise PictureError("picture.damaged", f"this cannot be decoded: {reason}", "copy it again") from None


def _bomb() -> PictureError:
    return PictureError("picture.bomb", f"more than {PIXELS:,} pixels", "scale it down")


def _require_header(image: "Image", path: Path) -> None:
    """Refuse by its header what would be too large, or is another kind of picture than its name says."""
    if image.width * image.height > PIXELS:
        raise _bomb()
    found, expected = CAMERA.get(str(image.format), str(image.format)), FORMATS.get(path.suffix.lower())
    if expected is not None and found != expected:
        text = f"named {path.suffix}, but the content is {found}"
        raise PictureError("picture.magic", text, "give the file its right ending")
    if found != "JPEG" and getattr(image, "n_frames", 1) > 1:
        raise PictureError("picture.frames", "this is a moving picture", "save one frame of it")
    if image.mode not in CHANNELS:
        text = f"pixels of the kind {image.mode}; expected 8 bits of grey or colour"
        raise PictureError("picture.mode", text, "convert it")


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
