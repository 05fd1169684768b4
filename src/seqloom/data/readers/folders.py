"""Folders of texts or pictures by class: FOLDER/CLASS/FILE, or FOLDER/SPLIT/CLASS/FILE with train, dev and test.

    reviews/                     reviews/                                flowers/
      neg/ 1.txt 2.txt.gz          train/ neg/ 1.txt   pos/ 2.txt          daisy/ 01.png
      pos/ 1.txt                   test/  neg/ 7.txt   pos/ 9.txt          tulip/ 02.jpg

Files are sorted by name. Skipped files are reported: hidden files, files next to the class folders, files of another
type. A link must stay inside the folder.

This works for any kind of input whose values are files (`suffixes` and `decode` of `InputKind`), such as pictures. A
column of a table may name these files, relative to the folder of the table and inside it.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.config.data import ReadingConfig, SplitName
from seqloom.data.kinds.kind import InputKind
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.files import is_file, is_folder, known_format, require_regular
from seqloom.data.readers.text import whole_text
from seqloom.data.schema import INPUT_KINDS
from seqloom.data.values import BadValue, Record, Table
from seqloom.report.numbers import counted

DEV_NAMES: dict[str, SplitName] = {"dev": "dev", "valid": "dev", "validation": "dev", "val": "dev"}
SPLIT_NAMES: dict[str, SplitName] = {"train": "train", **DEV_NAMES, "test": "test"}
TEXT_SUFFIXES = (".txt", ".txt.gz", ".txt.xz")


class ClassFile(NamedTuple):
    """A file, its class, and its split if the folder has splits."""

    path: Path
    label: str
    part: str | None


def read(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table of a folder: a column of texts or pictures, label, and split if there are splits."""
    (root,) = paths
    kind = _kind_inside(root, ledger)
    files = class_files(root, TEXT_SUFFIXES if kind is None else kind.suffixes, ledger)
    if not files:
        text = f"no {'text files' if kind is None else kind.noun} in the class folders"
        fix = f"name them {'.txt' if kind is None else ', '.join(kind.suffixes)}"
        ledger.bad_file("data.empty", text, Place(str(root)), fix)
    columns = (
        "text" if kind is None else kind.column_names[0][0],
        "label",
        *(() if files[0].part is None else ("split",)),
    )

    def records() -> Iterator[Record]:
        texts = ((file, whole_text(file.path, reading, ledger)) for file in files)
        for file, value in texts if kind is None else _decoded(files, kind, ledger):
            ledger.rows += 1
            yield Record((value, file.label, *(() if file.part is None else (file.part,))), str(file.path), 1)

    return Table(columns, records())


def _kind_inside(root: Path, ledger: Ledger) -> InputKind | None:
    """The kind of files in the class folders; None for texts. Raises RejectedError for a mixture."""
    if not is_folder(root):
        require_regular(root, ledger)
        text = "--format folder was given, but this is a file"
        ledger.bad_file("file.format", text, Place(str(root)), "give a folder, or another --format")
    inside = [path for path in root.iterdir() if not path.name.startswith(".")]
    classes = [path for path in inside if path.is_dir()]
    if not classes:
        files = [path for path in inside if known_format(path) and is_file(path)]
        if len(files) == 1:  # it may be meant
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
    kinds = [kind for kind in INPUT_KINDS.values() if endings & set(kind.suffixes)]
    found = [*(["texts"] if ".txt" in endings else []), *(kind.noun for kind in kinds)]
    if len(found) > 1:
        text = f"the class folders contain both {' and '.join(found)}"
        ledger.bad_file("folder.mixed", text, Place(str(root)), "put them into separate folders")
    return kinds[0] if kinds else None


def _decoded(files: list[ClassFile], kind: InputKind, ledger: Ledger) -> Iterator[tuple[ClassFile, Any]]:
    """Yield the files that can be decoded and have the shape of the first."""
    first: Any = None
    for file in files:
        value = read_file(file.path, kind, ledger)
        if value is None:
            continue
        first = value if first is None else first
        try:
            kind.require_same_shape(value, first)
        except BadValue as bad:
            ledger.bad_row(bad.code, bad.text, Place(str(file.path)), bad.fix)
        else:
            yield file, value


def class_files(root: Path, suffixes: tuple[str, ...], ledger: Ledger) -> list[ClassFile]:
    """All files with one of the suffixes in the class folders, sorted; skipped files are reported."""
    scan = FolderScan(root, ledger)
    top = scan.folders(root)
    names = {folder.name.lower() for folder in top}
    # Splits, not classes: train, dev and test, with folders in each.
    parted = "train" in names and names <= set(SPLIT_NAMES)
    if not parted or not all(any(path.is_dir() for path in folder.iterdir()) for folder in top):
        return [file for folder in top for file in scan.files(folder, suffixes, None)]
    classes = [(folder, SPLIT_NAMES[part.name.lower()]) for part in top for folder in scan.folders(part)]
    return [file for folder, part in classes for file in scan.files(folder, suffixes, part)]


class FolderScan:
    """Lists folders sorted by name, and reports skipped files to the ledger."""

    def __init__(self, root: Path, ledger: Ledger) -> None:
        self.root, self.ledger = root, ledger

    def folders(self, parent: Path) -> list[Path]:
        """The folders in a folder; files next to them are noted."""
        entries = self._visible(parent)
        if loose := [path for path in entries if not path.is_dir()]:
            text = f"{counted(len(loose), 'file')} next to the class folders, skipped"
            self.ledger.note("folder.loose", text, Place(str(loose[0])), count=len(loose))
        return [path for path in entries if path.is_dir()]

    def files(self, folder: Path, suffixes: tuple[str, ...], part: str | None) -> list[ClassFile]:
        """The files of one class; an empty class gives a warning."""
        entries = self._visible(folder)
        found = [path for path in entries if path.name.lower().endswith(suffixes) and not path.is_dir()]
        if other := sorted(set(entries) - set(found)):
            files = counted(len(other), "file")
            text = f"{files} without the extension {suffixes[0]} in class '{folder.name}', skipped"
            self.ledger.warn("folder.other", text, Place(str(other[0])), count=len(other))
        if not found:
            text = f"the class '{folder.name}' has no files"
            self.ledger.warn("folder.empty_class", text, Place(str(folder)), "add files or remove the folder")
        return [ClassFile(path, folder.name, part) for path in found]

    def _visible(self, folder: Path) -> list[Path]:
        try:
            names = sorted(path.name for path in folder.iterdir())
        except PermissionError:
            self.ledger.bad_file("file.permission", "no permission to read this", Place(str(folder)), "chmod u+rx")
        if hidden := [name for name in names if name.startswith(".")]:
            text = f"{counted(len(hidden), 'hidden file')}, skipped"
            self.ledger.note("folder.hidden", text, Place(str(folder / hidden[0])), count=len(hidden))
        paths = [folder / name for name in names if not name.startswith(".")]
        for path in paths:
            if path.is_symlink() and not path.resolve().is_relative_to(self.root.resolve()):
                text = f"this link leads out of the folder {self.root}"
                self.ledger.bad_file("file.escape", text, Place(str(path)), "copy what it points to into the folder")
        return paths


def load_column(table: Table, column: int, kind: InputKind, ledger: Ledger) -> Table:
    """The table with the contents of the files that this column names; rows with unreadable files are bad rows."""

    def records() -> Iterator[Record]:
        for record in table.records:
            name = record.values[column]
            if not isinstance(name, str):  # the table contains the values themselves
                yield record
                continue
            folder, place = Path(record.path).parent, table.locate(record, column)
            try:
                inside = (folder / name).resolve().is_relative_to(folder.resolve())
            except (OSError, RuntimeError, ValueError):  # a loop of links, a name too long
                value = None
                ledger.bad_row("file.missing", f"there is no {kind} file of this name", place, "check the path")
            else:
                value = read_file(folder / name, kind, ledger, place) if inside else None
                if not inside:
                    fix = f"copy the {kind} into the folder"
                    ledger.bad_row("file.escape", f"this path leads out of the folder {folder}", place, fix)
            if value is None:
                ledger.rows -= 1  # the reader has counted it as a good row
            else:
                yield record._replace(values=(*record.values[:column], value, *record.values[column + 1 :]))

    return table._replace(records=records(), blocks=None)


def read_file(path: Path, kind: InputKind, ledger: Ledger, place: Place | None = None) -> Any:
    """Return the value in a file, or None after counting a bad row at `place`."""
    place = place or Place(str(path))
    if not is_file(path):
        ledger.bad_row("file.missing", f"there is no {kind} file {path}", place, "check the path")
        return None
    try:
        return kind.decode(path, place, ledger)
    except BadValue as bad:
        ledger.bad_row(bad.code, bad.text, place, bad.fix)
    except PermissionError:
        ledger.bad_row("file.permission", f"no permission to read {path}", place, "change the permissions: chmod u+r")
    return None
