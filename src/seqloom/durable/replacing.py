"""A folder that takes the place of another: at every moment the old one or the new one is there, or can be put back.

    .model.partial-93ab/   whole, synced
    model/ ── rename ──▶ .model.old-51c7/        between the two renames nobody is called `model`:
    .model.partial-93ab/ ── rename ──▶ model/      `recover` gives the old one its name back
    sync the parent: only now it is saved; then the old one is deleted

A system has no rename that exchanges two folders everywhere; so the old one steps aside instead of being deleted first.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from seqloom.durable.disk import REAL_FILES, Contents, FileLayer, beside, disk_errors
from seqloom.durable.failing import reached
from seqloom.durable.folders import (
    MANIFEST,
    Manifest,
    delete,
    fill,
    require_name,
    sweep,
    unfinished,
)
from seqloom.errors import DurableError

_OLD = re.compile(r"\.(?P<name>.+)\.old-[0-9a-f]{16}")


def replace_folder(path: Path, contents: Mapping[str, Contents], *, files: FileLayer = REAL_FILES) -> Manifest:
    """The manifest of the folder that is now at `path`, whether or not there was one of ours before.

    When it returns, a power cut cannot bring the old one back. A failure leaves the old one; what is no committed
    folder is refused. A crash may leave the old one aside: `recover` its parent before the next look.
    """
    for name in contents:
        require_name(name, path)
    require_replaceable(path)
    with unfinished(path, files) as partial:
        manifest = fill(partial, path, contents, files)
        take_name(partial, path, files)
    return manifest


def require_replaceable(path: Path) -> None:
    """Raise DurableError for what is there and was not committed by us."""
    with disk_errors("replace", path):
        ours = (path / MANIFEST).is_file() and not path.is_symlink()
        if not ours and (path.exists() or path.is_symlink()):
            raise DurableError(
                f"{path} is there and has no {MANIFEST}, so it is not ours to replace", fix="move it elsewhere"
            )


def take_name(partial: Path, path: Path, files: FileLayer) -> None:
    """Nothing; the sealed folder has its name for good, and what had it before is gone."""
    old = beside(path, "old")
    with disk_errors("replace", path):
        reached("before-rename")
        replaces = path.exists()
        if replaces:
            files.rename(path, old)
        try:
            files.rename(partial, path)
        except BaseException:
            with suppress(OSError):
                files.rename(old, path)
            raise
        reached("after-rename")
        files.sync_folder(path.parent)  # before the first piece of the old one goes
        if replaces:
            with suppress(OSError):  # the new one is saved; what is left of the old one is swept at the next start
                delete(old, files)


def recover(parent: Path, *, files: FileLayer = REAL_FILES) -> tuple[Path, ...]:
    """The folders that got their names back after a crash; all other leftovers of interrupted writes are gone.

    Only for the one who may write there.
    """
    back = []
    with disk_errors("recover", parent):
        for old in sorted(entry for entry in parent.iterdir() if _OLD.fullmatch(entry.name)):
            path = parent / _OLD.sub(r"\g<name>", old.name)
            if path.exists():
                delete(old, files)
            else:
                files.rename(old, path)
                back.append(path)
        if back:
            files.sync_folder(parent)
    sweep(parent, files=files)
    return tuple(back)
