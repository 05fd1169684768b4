"""The operations that change a disk, the errors they give, and one file written whole."""

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Protocol

from seqloom.errors import ConfigError, DurableError, did_you_mean
from seqloom.files.layouts import RunFile

# Places at which a test can make a run die: `SEQLOOM_FAIL=name:kill` ends the process when it comes there.
#
#     SEQLOOM_FAIL=file-50:kill        SIGKILL at the first file that is half written
#     SEQLOOM_FAIL=file-50:kill:3      at the third one
#     SEQLOOM_FAIL=file-50:enospc      OSError "No space left on device" there, every time from then on
#     SEQLOOM_FAIL=validation:raise    an error that nobody expects
#
# Random kills rarely hit the few microseconds that matter; named places are hit every time. Without the variable, which
# is read once, a place costs a comparison with None.

FILE = {"file-0": 0.0, "file-25": 0.25, "file-50": 0.5, "file-75": 0.75, "file-100": 1.0}
MANIFEST = {"manifest-half": 0.5}
METRICS = {"metrics-half": 0.5}
VOCABULARY = {"vocabulary-half": 0.5}

NAMES = (
    "file-new",  # before a temporary file is created
    *FILE,  # so many percent of a file are written; at 100 it is not synced yet
    "file-synced",  # after the sync of a file
    "before-rename",  # everything is synced under its temporary name
    "after-rename",  # it has its name, which is not synced yet
    "before-manifest",  # all files of a folder are whole, and nothing says so
    *MANIFEST,
    "after-manifest",
    "before-model",  # RUN/model is about to be replaced
    "after-model",  # it is replaced; the checkpoint does not know of it yet
    "retention-half",  # an old checkpoint has lost its name and its first file
    "validation",  # before the dev set is looked at
    "first-batch",  # of an epoch, before its step
    "last-batch",  # of an epoch, after its step
    "epoch-boundary",  # the next position is in the next epoch
    "between-update-and-count",  # the weights have changed, the counters not yet
    *VOCABULARY,
    "index-half",  # the cache of encoded data is being built
    *METRICS,
    "signal",  # in the handler of the first SIGINT, SIGTERM or SIGHUP
)


class InjectedError(Exception):
    """What `SEQLOOM_FAIL=name:raise` raises: no error of ours, so that nothing is prepared for it."""


class _Asked:
    """Where the process shall fail, how, and at which time that it comes there."""

    def __init__(self, name: str, how: str, time: int) -> None:
        self.name, self.how, self.time, self.come = name, how, time, 0

    def strike(self) -> None:
        self.come += 1
        if self.how == "enospc" and self.come >= self.time:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.how == "raise" and self.come == self.time:
            raise InjectedError(f"requested by SEQLOOM_FAIL at {self.name}")
        if self.how == "kill" and self.come == self.time:
            os.kill(os.getpid(), signal.SIGKILL)


def reached(name: str) -> None:
    """Fail here if SEQLOOM_FAIL names this place."""
    asked = _asked()
    if asked is not None and asked.name == name:
        asked.strike()


def cut(data: memoryview, places: Mapping[str, float]) -> Iterator[memoryview]:
    """The data in one piece; in two around a place, given as its share of the data, that SEQLOOM_FAIL names."""
    asked = _asked()
    if asked is None or asked.name not in places:
        yield data
        return
    size = int(len(data) * places[asked.name])
    yield data[:size]
    asked.strike()
    yield data[size:]


@cache
def _asked() -> _Asked | None:
    text = os.environ.get("SEQLOOM_FAIL", "")
    if not text:
        return None
    name, how, time = [*text.split(":"), "1", "1"][:3]
    if name not in NAMES:
        raise ConfigError(f"SEQLOOM_FAIL={text[:80]}: unknown place", fix=did_you_mean(name[:80], NAMES))
    if how not in ("kill", "enospc", "raise") or not (time.isdecimal() and int(time[:9]) > 0):
        raise ConfigError(
            f"SEQLOOM_FAIL={text[:80]}", fix="write name:kill, name:enospc or name:raise, optionally with :number"
        )
    return _Asked(name, how, int(time[:9]))


Chunk = bytes | bytearray | memoryview
Contents = str | Chunk | Iterable[Chunk]


class FileLayer(Protocol):
    """Every way in which Seqloom changes a disk; tests record these calls and make them fail.

    A handle is a file descriptor. Each operation raises OSError when the system refuses it.
    """

    def make_folder(self, path: Path) -> None: ...
    def create(self, path: Path, mode: int) -> int: ...
    def open_to_append(self, path: Path) -> int: ...
    def open_to_hold(self, path: Path) -> int: ...
    def write(self, handle: int, data: memoryview) -> None: ...
    def truncate(self, handle: int, size: int) -> None: ...
    def sync(self, handle: int) -> None: ...
    def close(self, handle: int) -> None: ...
    def rename(self, old: Path, new: Path) -> None: ...
    def remove_file(self, path: Path) -> None: ...
    def remove_folder(self, path: Path) -> None: ...
    def sync_folder(self, path: Path) -> None: ...


class RealFiles:
    """The file layer of the operating system."""

    def make_folder(self, path: Path) -> None:
        path.mkdir()

    def create(self, path: Path, mode: int) -> int:
        # O_EXCL: a temporary name that exists is somebody else's file or a planted link.
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)

    def open_to_append(self, path: Path) -> int:
        """The locked handle of a file that grows; a link is refused, because appending would write through it."""
        # Two writers take turns: without this, one could cut off as torn what the other is still writing.
        return _locked(path, fcntl.LOCK_EX)

    def open_to_hold(self, path: Path) -> int:
        """The same for a lock that nobody waits for: BlockingIOError if another process has it."""
        return _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, handle: int, data: memoryview) -> None:
        while data:  # one call may write less than all: Linux stops at 2 GiB
            data = data[os.write(handle, data) :]

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        os.fsync(handle)

    def close(self, handle: int) -> None:
        os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def remove_file(self, path: Path) -> None:
        path.unlink()

    def remove_folder(self, path: Path) -> None:
        path.rmdir()

    def sync_folder(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        except OSError as error:
            # Some network and user-space file systems have no sync for folders; as PostgreSQL does, go on without.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(handle)


def _locked(path: Path, how: int) -> int:
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(handle, how)
    except BaseException:
        os.close(handle)
        raise
    return handle


REAL_FILES = RealFiles()

_CURES = {
    errno.ENOSPC: "free space on this disk or choose a folder on another one",
    errno.EDQUOT: "free space under your quota or choose a folder on another disk",
    errno.EIO: "the disk reports a hardware error; check it, and copy important files to another disk",
    errno.EROFS: "this file system is read-only; choose another folder or mount it writable",
    errno.EACCES: "choose a folder you may write to, or change its permissions",
    errno.EPERM: "choose a folder you may write to, or change its permissions",
    errno.ENOENT: "create its parent folder first",
    errno.ELOOP: "name the file itself, not a symbolic link to it",
    errno.EEXIST: "choose another name; existing files are never overwritten",
    errno.ENOTEMPTY: "choose another name; existing files are never overwritten",
}


@contextmanager
def disk_errors(asked: str, path: Path) -> Iterator[None]:
    """A block in which an OSError becomes a DurableError that names the path, the cause and the cure."""
    try:
        yield
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "unknown error")
        problem = f"cannot {asked} {path}: {error.strerror or error} ({code})"
        raise DurableError(problem, fix=_cure(error, path)) from error


def _cure(error: OSError, path: Path) -> str:
    """What to do; where the folder of what is missing is there, as /proc is, which takes no names, not to make it."""
    folder = Path(error.filename or path).parent
    if error.errno == errno.ENOENT and folder.is_dir():
        return f"choose another folder: {folder} exists, but does not accept this name"
    return _CURES.get(error.errno or 0, "check the path and the disk")


def beside(path: Path, kind: str) -> Path:
    """A fresh hidden name in the same folder, so on the same file system: `.name.kind-1f2e3d4c5b6a7988`."""
    return path.with_name(f".{path.name}.{kind}-{secrets.token_hex(8)}")


def pieces(contents: Contents) -> Iterator[memoryview]:
    """The contents as views of bytes, without a copy; text becomes UTF-8."""
    if isinstance(contents, str):
        try:
            contents = contents.encode()
        except UnicodeEncodeError as error:
            raise DurableError(f"text cannot be written as UTF-8: {error}", fix="remove the surrogate") from error
    for chunk in [contents] if isinstance(contents, Chunk) else contents:
        view = memoryview(chunk)
        if view.nbytes:  # a view with a zero in its shape cannot be cast
            yield view.cast("B")


def put(path: Path, contents: Contents, mode: int, files: FileLayer) -> tuple[int, str]:
    """The size and sha256 of a new file that is written and synced; its name is not yet synced."""
    size, digest = 0, hashlib.sha256()
    reached("file-new")
    handle = files.create(path, mode)
    try:
        for piece in pieces(contents):
            for part in cut(piece, FILE):
                files.write(handle, part)
            digest.update(piece)
            size += len(piece)
        files.sync(handle)
    finally:
        files.close(handle)
    reached("file-synced")
    return size, digest.hexdigest()


def write_file(path: Path, data: Contents, *, mode: int = 0o666, files: FileLayer = REAL_FILES) -> None:
    """Write a file; when it returns, `path` holds exactly `data`, and a power cut cannot take it back.

    At every moment and after every failure the path holds the old bytes or the new ones, whole. A symbolic link at the
    path is replaced by a plain file: what it pointed to keeps its bytes. `mode` is narrowed by the umask as usual.
    """
    temporary = beside(path, "tmp")
    with disk_errors("write", path):
        try:
            put(temporary, data, mode, files)
            reached("before-rename")
            files.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                files.remove_file(temporary)
            raise
        reached("after-rename")
        files.sync_folder(path.parent)


def remove_files(paths: Iterable[Path], *, files: FileLayer = REAL_FILES) -> None:
    """Remove files of one folder; one that is not there is gone already."""
    for path in paths:
        with disk_errors("remove", path), suppress(FileNotFoundError):
            files.remove_file(path)
            files.sync_folder(path.parent)


def make_folder(path: Path, *, files: FileLayer = REAL_FILES) -> None:
    """Make a folder and those above it; when it returns, a power cut cannot take them back."""
    with disk_errors("make the folder", path):
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            with suppress(FileExistsError):  # another process made it first
                files.make_folder(folder)
            files.sync_folder(folder.parent)
    if not path.is_dir():
        raise DurableError(f"{path} is a file, not a folder", fix="choose another name")


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """A folder for what nobody needs afterwards; it is gone when the block ends."""
    with tempfile.TemporaryDirectory(prefix=f"seqloom-{name}-") as path:
        yield Path(path)


def require_free_space(path: Path, needed_bytes: int) -> int:
    """The free bytes of the disk that holds `path`, or a refusal before the first byte is written."""
    with disk_errors("find the free space for", path):
        existing = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
        free = shutil.disk_usage(existing).free
    if free < needed_bytes:
        raise DurableError(
            f"{path} needs {needed_bytes:,} bytes, but the disk has only {free:,} free",
            fix=f"free {needed_bytes - free:,} bytes or choose a folder on another disk",
        )
    return free


# Names that earlier versions gave to files of a run folder.
_OLD_NAMES = {RunFile.PATHS: "places.json", RunFile.TEST_EVALUATIONS: "looks.jsonl"}  # of earlier versions


def existing(path: Path) -> Path:
    """This path, or the file beside it that an earlier version wrote under another name.

    >>> existing(Path("run/paths.json")).as_posix()
    'run/paths.json'
    """
    for name, old in _OLD_NAMES.items():
        if path.name.endswith(name) and not path.exists():
            before = path.with_name(path.name.removesuffix(name) + old)
            return before if before.exists() else path
    return path
