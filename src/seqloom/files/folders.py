"""Write-once folders: committed by one rename, believed only if every file has the sum in the manifest.

{
  "format": 1,
  "folder": "step-000020",                          the name it was committed under
  "files": {"model.safetensors": {"size": 1234, "sha256": "9f86..."}},
  "check": "60303a..."                              sha256 of this text with an empty check
}
"""

import errno
import hashlib
import io
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec

from seqloom.errors import DamagedError, DurableError
from seqloom.files import disk
from seqloom.files.disk import REAL_FILES, Chunk, Contents, FileLayer, beside, disk_errors, pieces, put, reached

FORMAT = 1
MANIFEST = "manifest.json"
MANIFEST_LIMIT = 8 << 20  # checked before reading, so that a planted manifest cannot fill the memory
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
_LEFTOVER = re.compile(r"\.(?P<name>.+)\.(tmp|partial|trash)-[0-9a-f]{16}")
_RESTORE = "use an older folder, or restore this one from a copy"

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest promises about one file."""

    size: Annotated[int, msgspec.Meta(ge=0)]
    sha256: Sha256


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a committed folder holds; a folder without one was never committed."""

    format: int
    folder: str
    files: dict[str, FileEntry]
    check: Sha256

    def text(self) -> bytes:
        """The one spelling of this manifest; any other spelling on disk counts as damage."""
        return (json.dumps(msgspec.to_builtins(self), indent=2) + "\n").encode()


def sealed(folder: str, files: Mapping[str, FileEntry]) -> Manifest:
    """The manifest of these files, its own sum filled in."""
    blank = Manifest(FORMAT, folder, dict(sorted(files.items())), check="")
    return msgspec.structs.replace(blank, check=hashlib.sha256(blank.text()).hexdigest())


class _FolderVersion(msgspec.Struct, frozen=True):
    format: int  # asked before the rest, whose form it decides


def commit_folder(path: Path, contents: Mapping[str, Contents], *, files: FileLayer = REAL_FILES) -> Manifest:
    """The manifest of a new folder; when it returns, a power cut cannot take the folder back.

    Names are relative, with `/` between parts of letters, digits, `_`, `-` and `.`. A big file is given as an iterable
    of byte chunks, which is read once. Whatever exists at `path` is refused: `remove_folder` it first.
    """
    for name in contents:
        require_name(name, path)
    with committing(path, files) as partial:
        return fill(partial, path, contents, files)


def fill(partial: Path, path: Path, contents: Mapping[str, Contents], files: FileLayer) -> Manifest:
    """The manifest of a folder that is whole and synced but for its name, which will be `path`."""
    with disk_errors("commit the folder", path):
        for folder in _folders_of(contents):
            files.make_folder(partial / folder)
        entries = {file: FileEntry(*put(partial / file, data, 0o666, files)) for file, data in contents.items()}
        return seal(partial, path.name, entries, files)


@contextmanager
def committing(path: Path, files: FileLayer) -> Iterator[Path]:
    """A new folder beside `path`, which takes that name when the block ends well and is deleted when it does not."""
    with disk_errors("commit the folder", path):
        if path.exists() or path.is_symlink():
            raise DurableError(
                f"{path} already exists, and folders are never overwritten", fix="choose another name or remove it"
            )
    with unfinished(path, files) as partial:
        yield partial
        with disk_errors("commit the folder", path):
            reached("before-rename")
            files.rename(partial, path)  # refused by the system if a folder with files appeared meanwhile
    with disk_errors("commit the folder", path):
        reached("after-rename")
        files.sync_folder(path.parent)


@contextmanager
def unfinished(path: Path, files: FileLayer) -> Iterator[Path]:
    """A new folder beside `path` under a hidden name, deleted if the block does not end well."""
    partial = begin(path, files)
    try:
        yield partial
    except BaseException:
        with suppress(OSError):
            delete(partial, files)
        raise


def begin(path: Path, files: FileLayer) -> Path:
    """A new folder beside `path` under a hidden name."""
    if not path.name.isprintable():  # also refuses names that are not UTF-8, which a manifest could not hold
        raise DurableError(f"{path.name!r} cannot be the name of a folder", fix="use printable characters")
    partial = beside(path, "partial")
    with disk_errors("commit the folder", path):
        files.make_folder(partial)
    return partial


def seal(partial: Path, name: str, entries: Mapping[str, FileEntry], files: FileLayer) -> Manifest:
    """The manifest, written last, of files that are written and synced; then every list of names is synced."""
    manifest = sealed(name, entries)
    if len(manifest.text()) > MANIFEST_LIMIT:
        raise DurableError(f"{len(entries)} files are too many for one folder", fix="join small files into larger ones")
    reached("before-manifest")
    put(partial / MANIFEST, disk.cut(memoryview(manifest.text()), disk.MANIFEST), 0o666, files)
    reached("after-manifest")
    for folder in [*reversed(_folders_of(entries)), ""]:
        files.sync_folder(partial / folder)
    return manifest


def require_name(name: str, path: Path) -> None:
    """Raise DurableError for what cannot be the name of a file in a committed folder."""
    if not _is_name(name):
        raise DurableError(
            f"{name!r} cannot be the name of a file in {path}",
            fix=f"use letters, digits, '_', '-', '.', no leading dot, parts joined by '/', and not '{MANIFEST}'",
        )


def _folders_of(names: Collection[str]) -> list[str]:
    """The folders inside the folder, parents before children."""
    return sorted({str(parent) for name in names for parent in PurePosixPath(name).parents} - {"."})


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name != MANIFEST


def verify_folder(path: Path) -> Manifest:
    """The manifest of a folder whose every byte is as committed; otherwise DamagedError naming file and sums."""
    manifest = read_manifest(path)
    with disk_errors("list", path):
        _refuse_strays(path, manifest.files)
    for name, promised in manifest.files.items():
        with _open(path / name) as (handle, size):
            _compare(path / name, promised, size, hashlib.file_digest(handle, "sha256").hexdigest())
    return manifest


def read_file_of(folder: Path, name: str) -> bytes:
    """The bytes of one file of a committed folder: the very bytes that were summed, not a second reading."""
    manifest = read_manifest(folder)
    if name not in manifest.files:
        raise DurableError(f"{folder} has no file {name!r}", fix=f"choose from {', '.join(sorted(manifest.files))}")
    return _summed_bytes(folder, name, manifest.files[name])


def read_folder(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of every file of a committed folder, verified as `verify_folder` does while they are read."""
    manifest = read_manifest(path)
    require_own_name(path, manifest)
    with disk_errors("list", path):
        _refuse_strays(path, manifest.files)
    for name, promised in manifest.files.items():
        yield name, _summed_bytes(path, name, promised)


def require_own_name(path: Path, manifest: Manifest) -> None:
    """Raise DamagedError for a folder that was committed under another name."""
    if manifest.folder != path.name:
        raise DamagedError(
            f"{path}: expected the folder name {manifest.folder[:80]!r}, found another name", fix="rename it back"
        )


def _summed_bytes(folder: Path, name: str, promised: FileEntry) -> bytes:
    with _open(folder / name) as (handle, size):
        if size != promised.size:  # before a file that grew is read into memory
            _compare(folder / name, promised, size, hashlib.file_digest(handle, "sha256").hexdigest())
        data = handle.read(size)
    _compare(folder / name, promised, len(data), hashlib.sha256(data).hexdigest())
    return data


def read_manifest(path: Path) -> Manifest:
    """The manifest of a folder, its form and its own sum checked; the files are not looked at."""
    with disk_errors("read", path):
        if not path.is_dir():
            raise DurableError(f"there is no folder {path}", fix="check the path")
    place = path / MANIFEST
    with _open(place) as (handle, size):
        if size > MANIFEST_LIMIT:
            raise DamagedError(f"{place}: expected at most {MANIFEST_LIMIT} bytes, found {size}", fix=_RESTORE)
        text = handle.read(size)
    try:
        version = msgspec.json.decode(text, type=_FolderVersion).format
        if version != FORMAT:
            raise DamagedError(
                f"{place}: expected format {FORMAT}, found {version}", fix="use the version of Seqloom that wrote it"
            )
        manifest = msgspec.json.decode(text, type=Manifest)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{place}: expected a manifest, found something else ({error})", fix=_RESTORE) from error
    found = sealed(manifest.folder, manifest.files)
    if text != found.text():
        raise DamagedError(f"{place}: expected the checksum {manifest.check}, found {found.check}", fix=_RESTORE)
    for name in manifest.files:
        if not _is_name(name):
            raise DamagedError(f"{place}: expected names of files inside the folder, found {name[:80]!r}", fix=_RESTORE)
    return manifest


@contextmanager
def _open(path: Path) -> Iterator[tuple[io.BufferedReader, int]]:
    """A plain file opened for read(), with its size. No mmap: a page lost from under one kills the process."""
    try:
        # O_NONBLOCK: a named pipe must not make us wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise DamagedError(f"{path}: expected a plain file, found something else", fix=_RESTORE)
            with open(descriptor, "rb", closefd=False) as handle:
                yield handle, status.st_size
        finally:
            os.close(descriptor)
    except OSError as error:
        known = {errno.ENOENT: "nothing there", errno.ELOOP: "a symbolic link"}
        found = known.get(error.errno or 0, f"a file that cannot be read: {error.strerror}")
        raise DamagedError(f"{path}: expected a file, found {found}", fix=_RESTORE) from error


def _compare(path: Path, promised: FileEntry, size: int, digest: str) -> None:
    if (size, digest) != (promised.size, promised.sha256):
        raise DamagedError(
            f"{path}: expected {promised.size} bytes, sha256 {promised.sha256}; found {size} bytes, sha256 {digest}",
            fix=_RESTORE,
        )


def _refuse_strays(root: Path, names: Collection[str]) -> None:
    folders = set(_folders_of(names))
    waiting = [root]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            name = path.relative_to(root).as_posix()
            if name in folders and path.is_dir() and not path.is_symlink():
                waiting.append(path)
            elif name not in names and name != MANIFEST:
                raise DamagedError(
                    f"{path}: expected no file or folder of this name, found one", fix="move it elsewhere"
                )


def remove_folder(path: Path, *, files: FileLayer = REAL_FILES) -> None:
    """Remove the folder. It leaves its name first, so that a crash never leaves half of it there."""
    trash = beside(path, "trash")
    with disk_errors("remove", path):
        files.rename(path, trash)
        files.sync_folder(path.parent)  # before the first piece goes, or the old name could return to a part
        with suppress(FileNotFoundError):  # others may sweep it meanwhile
            for entry in sorted(trash.iterdir()) if not trash.is_symlink() else []:
                delete(entry, files)
                reached("retention-half")
        delete(trash, files)


def sweep(parent: Path, *, name: str | None = None, files: FileLayer = REAL_FILES) -> tuple[Path, ...]:
    """The leftovers of interrupted writes that were removed, of all names or one; only for the one who may write it."""
    with disk_errors("sweep", parent):
        found = [(entry, _LEFTOVER.fullmatch(entry.name)) for entry in sorted(parent.iterdir())]
        leftovers = [entry for entry, match in found if match and name in (None, match["name"])]
        for leftover in leftovers:
            delete(leftover, files)
    return tuple(leftovers)


def delete(path: Path, files: FileLayer) -> None:
    """Remove what stands at the path piece by piece, under a name that nobody reads."""
    with suppress(FileNotFoundError):  # others may sweep the same leftover
        if not path.is_dir() or path.is_symlink():
            files.remove_file(path)
            return
        for entry in sorted(path.iterdir()):
            delete(entry, files)
        files.remove_folder(path)


# A folder whose files grow side by side, chunk by chunk, and that is committed like any other: for data beyond memory.
#
# `commit_folder` writes one file after the other, which suits what is at hand. Columns of data come a few rows at a
# time, all columns at once; so here all files stay open, each with its running sum, and memory holds one chunk.


class _GrowingFile:
    """An open file, and the size and sum of what it holds."""

    def __init__(self, path: Path, files: FileLayer) -> None:
        self.files, self.size, self.digest = files, 0, hashlib.sha256()
        self.handle = files.create(path, 0o666)

    def append(self, chunk: Chunk) -> None:
        for piece in pieces(chunk):
            self.files.write(self.handle, piece)
            self.digest.update(piece)
            self.size += len(piece)

    def entry(self) -> FileEntry:
        return FileEntry(self.size, self.digest.hexdigest())


class GrowingFolder:
    """The files of a folder that is not committed yet."""

    def __init__(self, path: Path, partial: Path, files: FileLayer) -> None:
        self._path, self._partial, self._layer = path, partial, files
        self._files: dict[str, _GrowingFile] = {}

    def append(self, name: str, chunk: Chunk) -> None:
        """Append these bytes to the file of this name, a new one if there is none."""
        require_name(name, self._path)
        if "/" in name:
            raise DurableError(f"{name!r} cannot be extended in {self._path}", fix="name files without '/' here")
        with disk_errors("grow the folder", self._path):
            if name not in self._files:
                self._files[name] = _GrowingFile(self._partial / name, self._layer)
            self._files[name].append(chunk)
            reached("index-half")

    def _seal(self) -> Manifest:
        with disk_errors("commit the folder", self._path):
            for file in self._files.values():
                self._layer.sync(file.handle)
            self._close()
            entries = {name: file.entry() for name, file in self._files.items()}
            return seal(self._partial, self._path.name, entries, self._layer)

    def _close(self) -> None:
        """Close every file, also when closing one of them fails: the first failure is told."""
        failure = None
        for file in self._files.values():
            handle, file.handle = file.handle, -1
            try:
                if handle >= 0:
                    self._layer.close(handle)
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise failure


@contextmanager
def grow_folder(path: Path, *, files: FileLayer = REAL_FILES) -> Iterator[GrowingFolder]:
    """A folder to append to; it is committed when the block ends, and then a power cut cannot take it back.

    If the block raises, nothing is left. Whatever exists at `path` is refused, as `commit_folder` does.

    >>> import tempfile
    >>> from seqloom.files.folders import read_file_of
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     with grow_folder(Path(parent, "store")) as folder:
    ...         for number in range(3):
    ...             folder.append("numbers", b"%d " % number)
    ...             folder.append("squares", b"%d " % number**2)
    ...     read_file_of(Path(parent, "store"), "squares")
    b'0 1 4 '
    """
    with committing(path, files) as partial:
        folder = GrowingFolder(path, partial, files)
        try:
            yield folder
            folder._seal()
        finally:
            with suppress(OSError):  # when all went well they are closed by now
                folder._close()


# A folder that takes the place of another: at every moment the old one or the new one is there, or can be put back.
#
#     .model.partial-93ab/   whole, synced
#     model/ ── rename ──▶ .model.old-51c7/        between the two renames nobody is called `model`:
#     .model.partial-93ab/ ── rename ──▶ model/      `recover` gives the old one its name back
#     sync the parent: only now it is saved; then the old one is deleted
#
# A system has no rename that exchanges two folders everywhere; so the old one steps aside instead of being deleted
# first.

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
                f"{path} exists and has no {MANIFEST}, so Seqloom did not write it and does not replace it",
                fix="move it elsewhere",
            )


def take_name(partial: Path, path: Path, files: FileLayer) -> None:
    """Give the sealed folder its name for good, in the place of what had it before."""
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


# A folder that several processes fill and one commits: each writes files of its own, process 0 seals and renames.
#
#     process 0    begin_shared ──▶ its files ──┐                  ┌──▶ seal_shared: manifest, sync, rename, sync
#     process 1       (told the name) files ────┴─ (all told: sums) ┘
#
# The processes tell each other names and sums by their own means; a folder is sealed when all of them are done. When
# one fails or dies the folder keeps its hidden name, and nobody takes it for a saved one.


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
    """Remove the hidden folder, as far as the disk lets it go."""
    with suppress(OSError):
        delete(partial, files)


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
        raise DurableError(f"cannot keep {keep} folders in {parent}", fix="keep at least 1")
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
