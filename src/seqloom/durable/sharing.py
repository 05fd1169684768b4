"""A folder that several processes fill and one commits: each writes files of its own, process 0 seals and renames.

    process 0    begin_shared ──▶ its files ──┐                  ┌──▶ seal_shared: manifest, sync, rename, sync
    process 1       (told the name) files ────┴─ (all told: sums) ┘

The processes tell each other names and sums by their own means; a folder is sealed when all of them are done. When one
fails or dies the folder keeps its hidden name, and nobody takes it for a saved one.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from seqloom.durable.disk import REAL_FILES, Contents, FileLayer, disk_errors, put
from seqloom.durable.folders import FileEntry, Manifest, begin, delete, require_name, seal
from seqloom.durable.replacing import require_replaceable, take_name


def begin_shared(path: Path, *, files: FileLayer = REAL_FILES) -> Path:
    """The hidden folder in which the files of `path` are collected."""
    require_replaceable(path)
    return begin(path, files)


def put_shared(
    partial: Path, contents: Mapping[str, Contents], *, files: FileLayer = REAL_FILES
) -> dict[str, FileEntry]:
    """Size and sum of each file that this process put into the hidden folder; synced, but for their names."""
    for name in contents:
        require_name(name, partial)
    with disk_errors("write into", partial):
        return {name: FileEntry(*put(partial / name, data, 0o666, files)) for name, data in contents.items()}


def seal_shared(
    partial: Path, path: Path, entries: Mapping[str, FileEntry], *, files: FileLayer = REAL_FILES
) -> Manifest:
    """The manifest of the folder, which now has its name for good; one of ours that had it before is replaced."""
    with disk_errors("commit the folder", path):
        manifest = seal(partial, path.name, entries, files)
    take_name(partial, path, files)
    return manifest


def drop_shared(partial: Path, *, files: FileLayer = REAL_FILES) -> None:
    """Nothing; the hidden folder is gone, as far as the disk lets it go."""
    with suppress(OSError):
        delete(partial, files)
