"""Whether a served folder has changed, found without reading its files."""

from collections.abc import Iterator
from pathlib import Path

from seqloom.files.folders import MANIFEST
from seqloom.files.layouts import RunFile

PARTS = ("lot-", "graph-")  # the parts of an index
Mark = tuple[tuple[str, int, int, int], ...]  # path, inode, time and size of each file


def is_index(path: Path) -> bool:
    """Whether a folder is an index of documents."""
    return path.is_dir() and any(entry.name.startswith(PARTS[0]) for entry in path.iterdir())


def mark_of(path: Path) -> Mark | None:
    """A value that changes when any file does; None if the folder is not there, or not complete at this moment."""
    try:
        if is_index(path):
            parts = sorted(entry for entry in path.iterdir() if entry.name.startswith(PARTS))
        else:
            parts = [path / RunFile.MODEL if (path / RunFile.CONFIG).is_file() else path]
        return tuple(found for part in parts for found in _of_files(part))
    except OSError:
        return None


def version_of(mark: Mark) -> Mark:
    """The part of a mark that names a version: its manifests."""
    return tuple(one for one in mark if one[0].endswith(MANIFEST))


def _of_files(folder: Path) -> Iterator[tuple[str, int, int, int]]:
    for file in [folder / MANIFEST, *sorted(file for file in folder.rglob("*") if file.name != MANIFEST)]:
        found = file.stat()
        if not file.is_dir():
            yield f"{folder.name}/{file.relative_to(folder)}", found.st_ino, found.st_mtime_ns, found.st_size
