"""Folders of files by class: FOLDER/CLASS/FILE, or FOLDER/PART/CLASS/FILE with the parts train, dev and test.

    reviews/                     reviews/
      neg/ 1.txt 2.txt.gz          train/ neg/ 1.txt   pos/ 2.txt
      pos/ 1.txt                   test/  neg/ 7.txt   pos/ 9.txt

The order is that of the names, whatever the disk says. What is passed over is told: hidden files, files beside the
class folders, files of another kind. A link may point anywhere inside the folder, never out of it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from seqloom.config.data import ReadingConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.text import whole_text
from seqloom.data.values import Record, Table
from seqloom.report.numbers import counted

PARTS = {"train": "train", "dev": "dev", "valid": "dev", "validation": "dev", "val": "dev", "test": "test"}
TEXT_SUFFIXES = (".txt", ".txt.gz", ".txt.xz")


class ClassFile(NamedTuple):
    """One file, the class whose folder it lies in, and the part if the folders have parts."""

    path: Path
    label: str
    part: str | None


def read(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table of a folder of text files: the columns text and label, and split where there are parts."""
    (root,) = paths
    files = class_files(root, TEXT_SUFFIXES, ledger)
    if not files:
        ledger.bad_file("data.empty", "no text files in the class folders", Place(str(root)), "name them .txt")
    has_parts = files[0].part is not None
    return Table(("text", "label", "split") if has_parts else ("text", "label"), _records(files, reading, ledger))


def _records(files: list[ClassFile], reading: ReadingConfig, ledger: Ledger) -> Iterator[Record]:
    for file in files:
        text = whole_text(file.path, reading, ledger)
        values = (text, file.label) if file.part is None else (text, file.label, file.part)
        ledger.rows += 1
        yield Record(values, str(file.path), 1)


def class_files(root: Path, suffixes: tuple[str, ...], ledger: Ledger) -> list[ClassFile]:
    """All files with one of the suffixes in the class folders below, sorted; what is left out is told."""
    scan = FolderScan(root, ledger)
    top = scan.folders(root)
    if not has_parts(top):
        return [file for folder in top for file in scan.files(folder, suffixes, None)]
    classes = [(folder, PARTS[part.name.lower()]) for part in top for folder in scan.folders(part)]
    return [file for folder, part in classes for file in scan.files(folder, suffixes, part)]


def has_parts(folders: list[Path]) -> bool:
    """Whether these are parts of a set, not classes: train and others of that kind, with folders in each."""
    names = {folder.name.lower() for folder in folders}
    if "train" not in names or not names <= set(PARTS):
        return False
    return all(any(path.is_dir() for path in folder.iterdir()) for folder in folders)


class FolderScan:
    """Lists folders in the order of names, and tells the ledger what it passes over."""

    def __init__(self, root: Path, ledger: Ledger) -> None:
        self.root, self.ledger = root, ledger
        self.real_root = root.resolve()

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
            self._require_inside(path)
        return paths

    def _require_inside(self, path: Path) -> None:
        if path.is_symlink() and not path.resolve().is_relative_to(self.real_root):
            text = f"this link leaves the folder {self.root}"
            self.ledger.bad_file("file.escape", text, Place(str(path)), "copy what it points to into the folder")
