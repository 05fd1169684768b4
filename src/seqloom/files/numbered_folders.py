"""Numbered folders of one run, `step-000010`, `step-000020`: the newest that verifies, and how many are kept.

Newer means a larger number in the name. Times of files are never asked: clocks are set back and copies get new ones.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from seqloom.errors import DurableError
from seqloom.files.disk import REAL_FILES, FileLayer, disk_errors
from seqloom.files.folders import Manifest, read_manifest, remove_folder, require_own_name, verify_folder


@dataclass(frozen=True)
class NumberedFolder:
    """A numbered folder that verified."""

    number: int
    path: Path
    manifest: Manifest


@dataclass(frozen=True)
class Skipped:
    """A folder that was passed over, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Newest:
    """The newest folder that verifies, if there is one, and all that were newer or misnamed."""

    step: NumberedFolder | None
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True)
class Pruned:
    """What retention kept, newest first, what it removed, and what it left alone because it is not whole."""

    kept: tuple[NumberedFolder, ...]
    removed: tuple[Path, ...]
    skipped: tuple[Skipped, ...]


def newest_verified(parent: Path, prefix: str = "step-") -> Newest:
    """The newest folder whose every byte is as committed, with what was skipped on the way to it."""
    listed, passed = numbered(parent, prefix)
    skipped = list(passed)
    return Newest(next(_verified(listed, skipped), None), tuple(skipped))


def prune(
    parent: Path, keep: int, prefix: str = "step-", *, protect: Collection[int] = (), files: FileLayer = REAL_FILES
) -> Pruned:
    """What was kept and removed: the `keep` newest folders that verify stay, and those of protected numbers; others go.

    Damaged folders are not counted, so they cannot push out a good one. Older folders go only if they carry our
    manifest under their own name; anything else is somebody else's and stays. Each call reads what it keeps.
    """
    if keep < 1:
        raise DurableError(f"asked to keep {keep} folders in {parent}", fix="keep at least 1")
    listed, passed = numbered(parent, prefix)
    skipped = list(passed)
    kept = tuple(islice(_verified(listed, skipped), keep))
    removed = []
    for number, path in listed:
        if len(kept) == keep and (number, path) < (kept[-1].number, kept[-1].path) and number not in protect:
            try:
                require_own_name(path, read_manifest(path))
            except DurableError as error:
                skipped.append(Skipped(path, str(error)))
                continue
            remove_folder(path, files=files)
            removed.append(path)
    return Pruned(kept, tuple(removed), tuple(skipped))


def numbered(parent: Path, prefix: str = "step-") -> tuple[list[tuple[int, Path]], tuple[Skipped, ...]]:
    """The numbered folders, newest first, not looked into, and those that look like ours but are not."""
    found: list[tuple[int, Path]] = []
    skipped: list[Skipped] = []
    with disk_errors("list", parent):
        for path in sorted(parent.iterdir()) if parent.exists() else []:
            if re.fullmatch(re.escape(prefix) + "[0-9]{1,18}", path.name) and path.is_dir() and not path.is_symlink():
                found.append((int(path.name[len(prefix) :]), path))
            elif path.name.startswith(f".{prefix}"):
                skipped.append(Skipped(path, "left by an interrupted write"))
            elif path.name.startswith(prefix):
                skipped.append(Skipped(path, f"not a folder named {prefix} and a number"))
    return sorted(found, reverse=True), tuple(skipped)


def _verified(listed: list[tuple[int, Path]], skipped: list[Skipped]) -> Iterator[NumberedFolder]:
    for number, path in listed:
        try:
            manifest = verify_folder(path)
            require_own_name(path, manifest)
        except DurableError as error:
            skipped.append(Skipped(path, str(error)))
        else:
            yield NumberedFolder(number, path, manifest)
