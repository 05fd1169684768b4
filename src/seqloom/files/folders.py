"""Write-once folders: committed by one rename, and accepted only if every file matches the manifest's checksums.

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
MANIFEST_LIMIT = 8 << 20  # checked before reading, so that a planted manifest cannot exhaust memory
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
_LEFTOVER = re.compile(r"\.(?P<name>.+)\.(tmp|partial|trash)-[0-9a-f]{16}")
_RESTORE = "use an older folder, or restore this one from a copy"

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The manifest's entry for one file."""

    size: Annotated[int, msgspec.Meta(ge=0)]
    sha256: Sha256


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The list of files in a committed folder; a folder without a manifest was never committed."""

    format: int
    folder: str
    files: dict[str, FileEntry]
    check: Sha256

    def text(self) -> bytes:
        """Return the canonical bytes of the manifest; any other bytes on disk count as damage."""
        return (json.dumps(msgspec.to_builtins(self), indent=2) + "\n").encode()


def sealed(folder: str, files: Mapping[str, FileEntry]) -> Manifest:
    """Return the manifest of these files, including its own checksum."""
    blank = Manifest(FORMAT, folder, dict(sorted(files.items())), check="")
    return msgspec.structs.replace(blank, check=hashlib.sha256(blank.text()).hexdigest())


class _FolderVersion(msgspec.Struct, frozen=True):
    format: int  # decoded first, because it determines the layout of the rest


def commit_folder(path: Path, contents: Mapping[str, Contents], *, files: FileLayer = REAL_FILES) -> Manifest:
    """Write a new folder durably and return its manifest; when the function returns, it survives a power cut.

    Names are relative paths; their parts consist of letters, digits, `_`, `-` and `.`. Pass a big file as an iterable
    of byte chunks, which is read once. Raises if `path` exists: call `remove_folder` first.
    """
    for name in contents:
        require_name(name, path)
    with committing(path, files) as partial:
        return fill(partial, path, contents, files)


def fill(partial: Path, path: Path, contents: Mapping[str, Contents], files: FileLayer) -> Manifest:
    """Fill a partial folder and sync everything but its name, which will be `path`; return the manifest."""
    with disk_errors("commit the folder", path):
        for folder in _folders_of(contents):
            files.make_folder(partial / folder)
        entries = _put_in(partial, contents, files)
        return seal(partial, path.name, entries, files)


def _put_in(folder: Path, contents: Mapping[str, Contents], files: FileLayer) -> dict[str, FileEntry]:
    """Write and sync new files of a folder."""
    written = put({folder / name: data for name, data in contents.items()}, 0o666, files)
    return {name: FileEntry(*written[folder / name]) for name in contents}


@contextmanager
def committing(path: Path, files: FileLayer) -> Iterator[Path]:
    """Yield a new folder next to `path` that is renamed to `path` if the block succeeds, and deleted if it raises."""
    with disk_errors("commit the folder", path):
        if path.exists() or path.is_symlink():
            raise DurableError(
                f"{path} already exists, and folders are never overwritten", fix="choose another name or remove it"
            )
    with unfinished(path, files) as partial:
        yield partial
        with disk_errors("commit the folder", path):
            reached("before-rename")
            files.rename(partial, path)  # the system refuses if a folder with files appeared meanwhile
    with disk_errors("commit the folder", path):
        reached("after-rename")
        files.sync_folder(path.parent)


@contextmanager
def unfinished(path: Path, files: FileLayer) -> Iterator[Path]:
    """Yield a new hidden folder next to `path` that is deleted if the block raises."""
    partial = begin(path, files)
    try:
        yield partial
    except BaseException:
        with suppress(OSError):
            delete(partial, files)
        raise


def begin(path: Path, files: FileLayer) -> Path:
    """Create a hidden folder next to `path`."""
    if not path.name.isprintable():  # also rejects names that are not UTF-8, which a manifest cannot hold
        raise DurableError(f"{path.name!r} cannot be the name of a folder", fix="use printable characters")
    partial = beside(path, "partial")
    with disk_errors("commit the folder", path):
        files.make_folder(partial)
    return partial


def seal(partial: Path, name: str, entries: Mapping[str, FileEntry], files: FileLayer) -> Manifest:
    """Write the manifest after all files are written and synced; then sync all folders."""
    manifest = sealed(name, entries)
    if len(manifest.text()) > MANIFEST_LIMIT:
        raise DurableError(f"{len(entries)} files are too many for one folder", fix="join small files into larger ones")
    reached("before-manifest")
    put({partial / MANIFEST: disk.cut(memoryview(manifest.text()), disk.MANIFEST)}, 0o666, files)
    reached("after-manifest")
    for folder in [*reversed(_folders_of(entries)), ""]:
        files.sync_folder(partial / folder)
    return manifest


def require_name(name: str, path: Path) -> None:
    """Raise DurableError if this cannot be the name of a file in a committed folder."""
    if not _is_name(name):
        raise DurableError(
            f"{name!r} cannot be the name of a file in {path}",
            fix=f"use letters, digits, '_', '-', '.', no leading dot, parts joined by '/', and not '{MANIFEST}'",
        )


def _folders_of(names: Collection[str]) -> list[str]:
    """Return the subfolders of these names, parents before children."""
    return sorted({str(parent) for name in names for parent in PurePosixPath(name).parents} - {"."})


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name != MANIFEST


def verify_folder(path: Path) -> Manifest:
    """Verify every byte of a folder and return its manifest; raise DamagedError if a file differs."""
    manifest = read_manifest(path)
    with disk_errors("list", path):
        _refuse_strays(path, manifest.files)
    for name, promised in manifest.files.items():
        with _open(path / name) as (handle, size):
            _compare(path / name, promised, size, hashlib.file_digest(handle, "sha256").hexdigest())
    return manifest


def read_file_of(folder: Path, name: str) -> bytes:
    """Read and verify one file of a committed folder; the returned bytes are the ones that were hashed."""
    manifest = read_manifest(folder)
    if name not in manifest.files:
        raise DurableError(f"{folder} has no file {name!r}", fix=f"choose from {', '.join(sorted(manifest.files))}")
    return _summed_bytes(folder, name, manifest.files[name])


def read_folder(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and bytes of every file of a committed folder, verified like in `verify_folder` while reading."""
    manifest = read_manifest(path)
    require_own_name(path, manifest)
    with disk_errors("list", path):
        _refuse_strays(path, manifest.files)
    for name, promised in manifest.files.items():
        yield name, _summed_bytes(path, name, promised)


def require_own_name(path: Path, manifest: Manifest) -> None:
    """Raise DamagedError if the folder was committed under another name."""
    if manifest.folder != path.name:
        raise DamagedError(
            f"{path}: expected the folder name {manifest.folder[:80]!r}, found another name", fix="rename it back"
        )


def _summed_bytes(folder: Path, name: str, promised: FileEntry) -> bytes:
    with _open(folder / name) as (handle, size):
        if size != promised.size:  # before reading a file that grew into memory
            _compare(folder / name, promised, size, hashlib.file_digest(handle, "sha256").hexdigest())
        data = handle.read(size)
    _compare(folder / name, promised, len(data), hashlib.sha256(data).hexdigest())
    return data


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of a folder after checking its format and its own checksum; the files are not read."""
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
    """Open a plain file and yield it with its size. No mmap: a lost page would kill the process."""
    try:
        # O_NONBLOCK: do not wait for a writer if this is a named pipe.
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
    """Remove the folder. It is renamed first, so that a crash never leaves half of it under its name."""
    trash = beside(path, "trash")
    with disk_errors("remove", path):
        files.rename(path, trash)
        files.sync_folder(path.parent)  # before files are deleted, or the old name could return without them
        with suppress(FileNotFoundError):  # another process may sweep it meanwhile
            for entry in sorted(trash.iterdir()) if not trash.is_symlink() else []:
                delete(entry, files)
                reached("retention-half")
        delete(trash, files)


def sweep(parent: Path, *, name: str | None = None, files: FileLayer = REAL_FILES) -> tuple[Path, ...]:
    """Remove leftovers of interrupted writes (of one name or all) and return them; only for the process that writes."""
    with disk_errors("sweep", parent):
        found = [(entry, _LEFTOVER.fullmatch(entry.name)) for entry in sorted(parent.iterdir())]
        leftovers = [entry for entry, match in found if match and name in (None, match["name"])]
        for leftover in leftovers:
            delete(leftover, files)
    return tuple(leftovers)


def delete(path: Path, files: FileLayer) -> None:
    """Delete a renamed folder or file recursively."""
    with suppress(FileNotFoundError):  # another process may sweep the same leftover
        if not path.is_dir() or path.is_symlink():
            files.remove_file(path)
            return
        for entry in sorted(path.iterdir()):
            delete(entry, files)
        files.remove_folder(path)


# Folders whose files grow in parallel, chunk by chunk, for data larger than memory.
#
# `commit_folder` writes one file after the other, which suits data that is in memory. Data columns arrive a few rows at
# a time, for all columns; so here all files stay open with a running checksum, and memory holds one chunk.


class _GrowingFile:
    """An open file with the size and checksum of its contents."""

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
        """Append bytes to the file of this name; a missing file is created."""
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
            with self._layer.syncing() as sync:
                for file in self._files.values():
                    sync(file.handle)
            self._close()
            entries = {name: file.entry() for name, file in self._files.items()}
            return seal(self._partial, self._path.name, entries, self._layer)

    def _close(self) -> None:
        """Close every file that is open."""
        handles = [file.handle for file in self._files.values() if file.handle >= 0]
        for file in self._files.values():
            file.handle = -1
        disk.close(handles, self._layer)


@contextmanager
def grow_folder(path: Path, *, files: FileLayer = REAL_FILES) -> Iterator[GrowingFolder]:
    """Yield a folder to append to; it is committed durably when the block ends.

    If the block raises, nothing is left. Raises if `path` exists, like `commit_folder`.

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
            with suppress(OSError):  # already closed if everything succeeded
                folder._close()


# Replacing a folder: at every moment the old or the new one exists, or can be restored.
#
#     .model.partial-93ab/   complete, synced
#     model/ ── rename ──▶ .model.old-51c7/        between the two renames no folder is called `model`:
#     .model.partial-93ab/ ── rename ──▶ model/      `recover` restores the old one
#     sync the parent: only now it is saved; then the old one is deleted
#
# Not every system can exchange two folders in one rename, so the old one is renamed instead of being deleted first.

_OLD = re.compile(r"\.(?P<name>.+)\.old-[0-9a-f]{16}")


def replace_folder(path: Path, contents: Mapping[str, Contents], *, files: FileLayer = REAL_FILES) -> Manifest:
    """Write a folder at `path`, replacing a committed folder if there is one, and return its manifest.

    When the function returns, a power cut cannot bring the old one back. A failure leaves the old one. Raises if `path`
    is anything but a committed folder. After a crash, call `recover` on the parent before reading the folder.
    """
    for name in contents:
        require_name(name, path)
    require_replaceable(path)
    with unfinished(path, files) as partial:
        manifest = fill(partial, path, contents, files)
        take_name(partial, path, files)
    return manifest


def require_replaceable(path: Path) -> None:
    """Raise DurableError if `path` exists and Seqloom did not commit it."""
    with disk_errors("replace", path):
        ours = (path / MANIFEST).is_file() and not path.is_symlink()
        if not ours and (path.exists() or path.is_symlink()):
            raise DurableError(
                f"{path} exists and has no {MANIFEST}, so Seqloom did not write it and does not replace it",
                fix="move it elsewhere",
            )


def take_name(partial: Path, path: Path, files: FileLayer) -> None:
    """Rename the sealed folder to `path` durably, replacing the previous folder."""
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
        files.sync_folder(path.parent)  # before any part of the old one is deleted
        if replaces:
            with suppress(OSError):  # the new one is saved; leftovers of the old one are swept at the next start
                delete(old, files)


def recover(parent: Path, *, files: FileLayer = REAL_FILES) -> tuple[Path, ...]:
    """Restore folders after a crash during replacement and return them; also remove all other leftovers.

    Only the process that may write in `parent` may call this.
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


# A folder that several processes fill: each writes its own files, and process 0 seals and renames it.
#
#     process 0    begin_shared ──▶ its files ──┐                        ┌──▶ seal_shared: manifest, sync, rename, sync
#     process 1     (gets the name) files ──────┴─ (gathered checksums) ─┘
#
# The caller exchanges names and checksums between processes. If a process fails, the folder keeps its hidden name, so
# it is never mistaken for a saved one.


def begin_shared(path: Path, *, files: FileLayer = REAL_FILES) -> Path:
    """Create the hidden folder in which the files of `path` are collected."""
    require_replaceable(path)
    return begin(path, files)


def put_shared(
    partial: Path, contents: Mapping[str, Contents], *, files: FileLayer = REAL_FILES
) -> dict[str, FileEntry]:
    """Write this process's files to the hidden folder; return their sizes and checksums."""
    for name in contents:
        require_name(name, partial)
    with disk_errors("write into", partial):
        return _put_in(partial, contents, files)


def seal_shared(
    partial: Path, path: Path, entries: Mapping[str, FileEntry], *, files: FileLayer = REAL_FILES
) -> Manifest:
    """Write the manifest and rename the folder durably, replacing a previous committed folder; return the manifest."""
    with disk_errors("commit the folder", path):
        manifest = seal(partial, path.name, entries, files)
    take_name(partial, path, files)
    return manifest


def drop_shared(partial: Path, *, files: FileLayer = REAL_FILES) -> None:
    """Remove the hidden folder, ignoring disk errors."""
    with suppress(OSError):
        delete(partial, files)


@dataclass(frozen=True)
class NumberedFolder:
    """A numbered folder that was verified."""

    number: int
    path: Path
    manifest: Manifest


@dataclass(frozen=True)
class Skipped:
    """A skipped folder and the reason."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Newest:
    """The newest folder that verifies, if any, and the skipped ones: newer damaged ones and misnamed ones."""

    step: NumberedFolder | None
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True)
class Pruned:
    """Result of `prune`: kept folders, newest first, removed folders, and damaged folders that were left alone."""

    kept: tuple[NumberedFolder, ...]
    removed: tuple[Path, ...]
    skipped: tuple[Skipped, ...]


def newest_verified(parent: Path, prefix: str = "step-") -> Newest:
    """Return the newest folder that verifies completely, with the folders skipped before it."""
    listed, passed = numbered(parent, prefix)
    skipped = list(passed)
    return Newest(next(_verified(listed, skipped), None), tuple(skipped))


def prune(
    parent: Path, keep: int, prefix: str = "step-", *, protect: Collection[int] = (), files: FileLayer = REAL_FILES
) -> Pruned:
    """Keep the `keep` newest folders that verify and those with protected numbers; remove older ones.

    Damaged folders are not counted, so they cannot displace a good one. Older folders are removed only if they have a
    Seqloom manifest under their own name; anything else stays. Each call reads all folders that it keeps.
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
    """Return the numbered folders, newest first and unverified, and those with a similar but invalid name."""
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
