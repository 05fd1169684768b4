"""Folders of files by class, texts or pictures: FOLDER/CLASS/FILE, or FOLDER/PART/CLASS/FILE with train, dev and test.

    reviews/                     reviews/                                flowers/
      neg/ 1.txt 2.txt.gz          train/ neg/ 1.txt   pos/ 2.txt          daisy/ 01.png
      pos/ 1.txt                   test/  neg/ 7.txt   pos/ 9.txt          tulip/ 02.jpg

The order is that of the names, whatever the disk says. What is passed over is told: hidden files, files beside the
class folders, files of another kind. A link may point anywhere inside the folder, never out of it.

A picture is uint8 [H,W,C], C = 1 (grey) or 3 (red, green, blue). A column of a table may name pictures: they count from
the folder of the table and stay inside it. All pictures have one size: nothing is scaled or cut. What is
transparent is laid on white, and a camera's remark that a picture lies on its side is obeyed; a note tells of each.
"""

import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from seqloom.config.data import Part, ReadingConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.files import is_file, is_folder, known_format, require_regular
from seqloom.data.readers.text import whole_text
from seqloom.data.values import Record, Table
from seqloom.errors import needing
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from PIL.Image import Image

DEV_NAMES: dict[str, Part] = {"dev": "dev", "valid": "dev", "validation": "dev", "val": "dev"}
PART_NAMES: dict[str, Part] = {"train": "train", **DEV_NAMES, "test": "test"}
TEXT_SUFFIXES = (".txt", ".txt.gz", ".txt.xz")
FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".gif": "GIF"}
CAMERA = {"MPO": "JPEG"}  # a JPEG with a second one behind it, which is not read
PIXELS = 89_478_485  # pillow's own limit, 256 MiB in colour; it only warns
CHANNELS = {"1": "L", "L": "L", "LA": "L", "RGB": "RGB", "RGBA": "RGB", "P": "RGB", "PA": "RGB"}  # by mode
ORIENTATION = 0x0112  # the EXIF tag: 1 is upright


class ClassFile(NamedTuple):
    """One file, the class whose folder it lies in, and the part if the folders have parts."""

    path: Path
    label: str
    part: str | None


def read(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table of a folder: the columns text or picture, label, and split where there are parts."""
    (root,) = paths
    pictures = _holds_pictures(root, ledger)
    files = class_files(root, tuple(FORMATS) if pictures else TEXT_SUFFIXES, ledger)
    if not files:
        text = f"no {'pictures' if pictures else 'text files'} in the class folders"
        fix = f"name them {', '.join(FORMATS) if pictures else '.txt'}"
        ledger.bad_file("data.empty", text, Place(str(root)), fix)
    texts = ((file, whole_text(file.path, reading, ledger)) for file in files)
    columns = ("picture" if pictures else "text", "label", *(() if files[0].part is None else ("split",)))
    return Table(columns, _records(_pictures(files, ledger) if pictures else texts, ledger))


def _records(values: Iterable[tuple[ClassFile, str | np.ndarray]], ledger: Ledger) -> Iterator[Record]:
    for file, value in values:
        ledger.rows += 1
        yield Record((value, file.label, *(() if file.part is None else (file.part,))), str(file.path), 1)


def _pictures(files: list[ClassFile], ledger: Ledger) -> Iterator[tuple[ClassFile, np.ndarray]]:
    """The pictures that can be read and have the size of the first."""
    first: np.ndarray | None = None
    for file in files:
        picture = read_picture(file.path, ledger)
        if picture is None:
            continue
        first = picture if first is None else first
        if picture.shape == first.shape:
            yield file, picture
            continue
        said, expected = (
            f"{width} x {height} pixels in {'grey' if channels == 1 else 'colour'}"
            for height, width, channels in (picture.shape, first.shape)
        )
        text = f"{said}; the first picture has {expected}"
        ledger.bad_row("picture.size", text, Place(str(file.path)), "bring all pictures to one size and kind")


def _holds_pictures(root: Path, ledger: Ledger) -> bool:
    """Whether the files in a folder of classes are pictures, not texts; both together are refused."""
    if not is_folder(root):
        require_regular(root, ledger)
        ledger.bad_file("file.format", "the format folder was asked for, this is a file", Place(str(root)), "--format")
    inside = [path for path in root.iterdir() if not path.name.startswith(".")]
    classes = [path for path in inside if path.is_dir()]
    if not classes:
        files = [path for path in inside if known_format(path) and is_file(path)]
        if len(files) == 1:  # that may be what is meant
            text = "this is a folder without class folders"
            ledger.bad_file("file.is_dir", text, Place(str(root)), f"give the file in it: {files[0]}")
        require_regular(root, ledger)
    endings = set()
    for folder in classes:
        for where, below, names in os.walk(folder):  # the files one and two folders below
            visible = (name.lower() for name in names if not name.startswith("."))
            endings |= {Path(name.removesuffix(".gz").removesuffix(".xz")).suffix for name in visible}
            if Path(where) != folder:
                below.clear()
    if ".txt" in endings and endings & set(FORMATS):
        fix = "keep each kind in a folder of its own"
        ledger.bad_file("folder.mixed", "both texts and pictures are in the class folders", Place(str(root)), fix)
    return bool(endings & set(FORMATS))


def class_files(root: Path, suffixes: tuple[str, ...], ledger: Ledger) -> list[ClassFile]:
    """All files with one of the suffixes in the class folders below, sorted; what is left out is told."""
    scan = FolderScan(root, ledger)
    top = scan.folders(root)
    names = {folder.name.lower() for folder in top}
    # Parts of a set, not classes: train and others of that kind, with folders in each.
    parted = "train" in names and names <= set(PART_NAMES)
    if not parted or not all(any(path.is_dir() for path in folder.iterdir()) for folder in top):
        return [file for folder in top for file in scan.files(folder, suffixes, None)]
    classes = [(folder, PART_NAMES[part.name.lower()]) for part in top for folder in scan.folders(part)]
    return [file for folder, part in classes for file in scan.files(folder, suffixes, part)]


class FolderScan:
    """Lists folders in the order of names, and tells the ledger what it passes over."""

    def __init__(self, root: Path, ledger: Ledger) -> None:
        self.root, self.ledger = root, ledger

    def folders(self, parent: Path) -> list[Path]:
        """The folders in a folder; files beside them are noted."""
        entries = self._visible(parent)
        if loose := [path for path in entries if not path.is_dir()]:
            text = f"{counted(len(loose), 'file')} beside the class folders, passed over"
            self.ledger.note("folder.loose", text, Place(str(loose[0])), count=len(loose))
        return [path for path in entries if path.is_dir()]

    def files(self, folder: Path, suffixes: tuple[str, ...], part: str | None) -> list[ClassFile]:
        """The files of one class; a class without any is warned about."""
        entries = self._visible(folder)
        found = [path for path in entries if path.name.lower().endswith(suffixes) and not path.is_dir()]
        if other := sorted(set(entries) - set(found)):
            kind = f"no {suffixes[0]} file{'s' if len(other) > 1 else ''}"
            text = f"{len(other):,} in class '{folder.name}' {'are' if len(other) > 1 else 'is'} {kind}, passed over"
            self.ledger.warn("folder.other", text, Place(str(other[0])), count=len(other))
        if not found:
            text = f"the class '{folder.name}' has no files"
            self.ledger.warn("folder.empty_class", text, Place(str(folder)), "fill it or remove it")
        return [ClassFile(path, folder.name, part) for path in found]

    def _visible(self, folder: Path) -> list[Path]:
        try:
            names = sorted(path.name for path in folder.iterdir())
        except PermissionError:
            self.ledger.bad_file("file.permission", "no permission to read this", Place(str(folder)), "chmod u+rx")
        if hidden := [name for name in names if name.startswith(".")]:
            text = f"{counted(len(hidden), 'hidden file')}, passed over"
            self.ledger.note("folder.hidden", text, Place(str(folder / hidden[0])), count=len(hidden))
        paths = [folder / name for name in names if not name.startswith(".")]
        for path in paths:
            if path.is_symlink() and not path.resolve().is_relative_to(self.root.resolve()):
                text = f"this link leaves the folder {self.root}"
                self.ledger.bad_file("file.escape", text, Place(str(path)), "copy what it points to into the folder")
        return paths


class PictureError(Exception):
    """Why a file is no picture that we read."""

    def __init__(self, code: str, text: str, fix: str) -> None:
        super().__init__(code, text)
        self.code, self.text, self.fix = code, text, fix


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
