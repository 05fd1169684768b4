"""Whether a served folder has changed, found without reading it: a bundle and a segment are replaced as a whole."""

from pathlib import Path

from seqloom.files.folders import MANIFEST
from seqloom.files.layouts import RunFile

PARTS = ("lot-", "graph-")  # the parts of an index
Mark = tuple[tuple[str, int, int, int], ...]  # name, inode, time and size of each manifest


def is_index(path: Path) -> bool:
    """Whether a folder is an index of documents."""
    return path.is_dir() and any(entry.name.startswith(PARTS[0]) for entry in path.iterdir())


def mark_of(path: Path) -> Mark | None:
    """A value that changes when the folder is replaced; None if it is not there, or not at this moment."""
    try:
        if is_index(path):
            parts = sorted(entry for entry in path.iterdir() if entry.name.startswith(PARTS))
            return tuple(_of_manifest(part) for part in parts)
        run = (path / RunFile.CONFIG).is_file()
        return (_of_manifest(path / RunFile.MODEL if run else path),)
    except OSError:
        return None


def _of_manifest(folder: Path) -> tuple[str, int, int, int]:
    found = (folder / MANIFEST).stat()
    return folder.name, found.st_ino, found.st_mtime_ns, found.st_size
