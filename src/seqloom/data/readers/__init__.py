"""Readers, one for each format; all of them give a `Table`.

    .csv .tsv           delimited     .conll .bio .iob   conll      .npz       arrays
    .jsonl .ndjson      jsonl         .conllu            conllu     .parquet   parquet
    .txt                text          two files          parallel   a folder   folders, pictures

A text format may be packed: .gz or .xz behind its extension. The extension decides, or `reading.format`; the content is
never guessed, only refused when it does not fit. A reader is loaded when it is needed.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import msgspec

from seqloom.config.data import Format, ReadingConfig
from seqloom.data.files import PACKED, is_folder, require_magic, require_regular
from seqloom.data.problems import Ledger, Place
from seqloom.data.tables import Table
from seqloom.errors import ConfigError

Reader = Callable[[tuple[Path, ...], ReadingConfig, Ledger], Table]

EXTENSIONS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".conll": "conll",
    ".bio": "conll",
    ".iob": "conll",
    ".conllu": "conllu",
    ".txt": "text",
    ".npz": "npz",
}
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")


def read_table(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table in a file, in two parallel files, or in a folder of classes."""
    paths = tuple(Path(path) for path in paths)
    format = _format(paths, reading, ledger)  # noqa: A001
    needed = 2 if format == "parallel" else 1
    if len(paths) != needed:
        asked = "two files, source and target" if needed == 2 else "one path"
        raise ConfigError(f"the format {format} is read from {asked}, found {len(paths)}", fix=f"give {asked}")
    pictures = format == "folder" and _holds_pictures(paths[0], ledger)
    for path in paths if format != "folder" else ():
        require_regular(path, ledger)
        require_magic(path, format, ledger)
    return _reader(format, pictures)(paths, msgspec.structs.replace(reading, format=format), ledger)


def _reader(format: Format, pictures: bool) -> Reader:  # noqa: A002
    """The reader of a format; only that one is imported, because some need packages that are optional."""
    if format in ("csv", "tsv"):
        from seqloom.data.readers.delimited import read
    elif format == "jsonl":
        from seqloom.data.readers.jsonl import read
    elif format == "parquet":
        from seqloom.data.readers.parquet import read
    elif format == "conll":
        from seqloom.data.readers.conll import read
    elif format == "conllu":
        from seqloom.data.readers.conllu import read
    elif format == "text":
        from seqloom.data.readers.text import read
    elif format == "parallel":
        from seqloom.data.readers.parallel import read
    elif format == "npz":
        from seqloom.data.readers.arrays import read
    elif pictures:
        from seqloom.data.readers.pictures import read
    else:
        from seqloom.data.readers.folders import read
    return read


def _format(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Format:
    if reading.format is not None:
        return reading.format
    if len(paths) != 1:
        return "parallel"
    return "folder" if is_folder(paths[0]) else format_of(paths[0], ledger)


def format_of(path: Path, ledger: Ledger) -> Format:
    """The format that the extension stands for; anything else is refused."""
    bare = path.with_suffix("") if path.suffix.lower() in PACKED else path
    found = EXTENSIONS.get(bare.suffix.lower())
    if found is None or (bare is not path and found in ("parquet", "npz")):
        require_regular(path, ledger)
        require_magic(path, "text", ledger)
        text = f"no format has the extension '{''.join(path.suffixes[-2:])}'"
        ledger.bad_file("file.format", text, Place(str(path)), f"--format, one of {', '.join(get_args(Format))}")
    return found


def _holds_pictures(root: Path, ledger: Ledger) -> bool:
    """Whether the files in a folder of classes are pictures, not texts; both together are refused."""
    if not is_folder(root):
        require_regular(root, ledger)
        ledger.bad_file("file.format", "the format folder was asked for, this is a file", Place(str(root)), "--format")
    endings = {
        Path(name.lower().removesuffix(".gz").removesuffix(".xz")).suffix for name in _names_inside(root, ledger)
    }
    if ".txt" in endings and endings & set(PICTURES):
        fix = "keep each kind in a folder of its own"
        ledger.bad_file("folder.mixed", "both texts and pictures are in the class folders", Place(str(root)), fix)
    return bool(endings & set(PICTURES))


def _names_inside(root: Path, ledger: Ledger) -> Iterator[str]:
    """The names of the files one and two folders below; a folder without folders is refused."""
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not folders:
        require_regular(root, ledger)
    for folder in folders:
        for where, inner, names in os.walk(folder):
            yield from (name for name in names if not name.startswith("."))
            if Path(where) != folder:
                inner.clear()
