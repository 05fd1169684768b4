"""Operations that change the disk, their errors, and atomic writes of one file."""

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Protocol

from seqloom.errors import ConfigError, DurableError, did_you_mean
from seqloom.files.layouts import RunFile

# Fail points for tests: `SEQLOOM_FAIL=name:kill` kills the process when it reaches the named point.
#
#     SEQLOOM_FAIL=file-50:kill        SIGKILL at the first file that is half written
#     SEQLOOM_FAIL=file-50:kill:3      at the third one
#     SEQLOOM_FAIL=file-50:enospc      OSError "No space left on device" there, every time from then on
#     SEQLOOM_FAIL=validation:raise    an unexpected error
#
# Random kills rarely hit the few microseconds that matter; named points are hit every time. The variable is read once.
# Without it, a fail point costs one comparison with None.

FILE = {"file-0": 0.0, "file-25": 0.25, "file-50": 0.5, "file-75": 0.75, "file-100": 1.0}
MANIFEST = {"manifest-half": 0.5}
METRICS = {"metrics-half": 0.5}
VOCABULARY = {"vocabulary-half": 0.5}

NAMES = (
    "file-new",  # before a temporary file is created
    *FILE,  # this percentage of a file is written; at 100 it is not synced yet
    "file-synced",  # after the sync of a file
    "before-rename",  # everything is synced under its temporary name
    "after-rename",  # the new name exists but is not synced yet
    "before-manifest",  # all files of a folder are complete, but there is no manifest yet
    *MANIFEST,
    "after-manifest",
    "before-model",  # RUN/model will be replaced next
    "after-model",  # RUN/model is replaced; no checkpoint refers to it yet
    "retention-half",  # an old checkpoint has lost its name and its first file
    "validation",  # before an evaluation on the dev set
    "first-batch",  # before the first step of an epoch
    "last-batch",  # after the last step of an epoch
    "epoch-boundary",  # the next position is in the next epoch
    "between-update-and-count",  # the weights are updated, the counters are not
    *VOCABULARY,
    "index-half",  # the cache of encoded data is being built
    *METRICS,
    "signal",  # in the handler of the first SIGINT, SIGTERM or SIGHUP
)


class InjectedError(Exception):
    """The error that `SEQLOOM_FAIL=name:raise` raises; no code handles it specially."""


class _Failure:
    """The requested failure: its fail point, its kind, and at which visit it happens."""

    def __init__(self, name: str, how: str, time: int) -> None:
        self.name, self.how, self.time, self.visits = name, how, time, 0

    def trigger(self) -> None:
        self.visits += 1
        if self.how == "enospc" and self.visits >= self.time:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.how == "raise" and self.visits == self.time:
            raise InjectedError(f"requested by SEQLOOM_FAIL at {self.name}")
        if self.how == "kill" and self.visits == self.time:
            os.kill(os.getpid(), signal.SIGKILL)


def reached(name: str) -> None:
    """Fail here if SEQLOOM_FAIL names this point."""
    failure = _asked()
    if failure is not None and failure.name == name:
        failure.trigger()


def cut(data: memoryview, places: Mapping[str, float]) -> Iterator[memoryview]:
    """Yield the data in one piece, or in two at a fail point; `places` gives each point's share of the data."""
    failure = _asked()
    if failure is None or failure.name not in places:
        yield data
        return
    size = int(len(data) * places[failure.name])
    yield data[:size]
    failure.trigger()
    yield data[size:]


@cache
def _asked() -> _Failure | None:
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
    return _Failure(name, how, int(time[:9]))


MOST_TOGETHER = 16  # files that are written before the first of them must be synced

Chunk = bytes | bytearray | memoryview
Contents = str | Chunk | Iterable[Chunk]


class FileLayer(Protocol):
    """All operations with which Seqloom changes the disk; tests record these calls and make them fail.

    A handle is a file descriptor. Each operation raises OSError when the system call fails.
    """

    def make_folder(self, path: Path) -> None: ...
    def create(self, path: Path, mode: int) -> int: ...
    def open_to_append(self, path: Path) -> int: ...
    def open_to_hold(self, path: Path) -> int: ...
    def write(self, handle: int, data: memoryview) -> None: ...
    def truncate(self, handle: int, size: int) -> None: ...
    def sync(self, handle: int) -> None: ...
    def syncing(self) -> AbstractContextManager[Callable[[int], None]]: ...
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
        # O_EXCL: an existing temporary name is another process's file or a planted link.
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)

    def open_to_append(self, path: Path) -> int:
        """Open a file for appending and lock it; raise for a symbolic link, because appending would follow it."""
        # Writers take turns: otherwise one could truncate, as a torn line, what the other is still writing.
        return _locked(path, fcntl.LOCK_EX)

    def open_to_hold(self, path: Path) -> int:
        """Open and lock without waiting; raise BlockingIOError if another process has the lock."""
        return _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, handle: int, data: memoryview) -> None:
        while data:  # one call may write only part: Linux stops at 2 GiB
            data = data[os.write(handle, data) :]

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        os.fsync(handle)

    @contextmanager
    def syncing(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that begins to sync a file; all are synced when the block ends, or an error is raised.

        A disk syncs seven small files at once in a fifth of the time that it takes for one after the other.
        """
        failed = list[Exception]()

        def sync(handle: int) -> None:
            try:
                self.sync(handle)
            except Exception as error:
                failed.append(error)

        with ThreadPoolExecutor(MOST_TOGETHER, "syncing a file") as pool:

            def begin(handle: int) -> None:
                try:
                    pool.submit(sync, handle)
                except RuntimeError:  # no thread can start: too many processes, or the interpreter is ending
                    sync(handle)

            yield begin
        if failed:
            raise failed[0]

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
            # Some network and user-space file systems cannot sync folders; continue without, as PostgreSQL does.
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


class CacheFiles(RealFiles):
    """The same without syncs, for folders that are verified when they are opened, and built again if they differ."""

    def sync(self, handle: int) -> None:
        pass

    @contextmanager
    def syncing(self) -> Iterator[Callable[[int], None]]:
        yield self.sync

    def sync_folder(self, path: Path) -> None:
        pass


REAL_FILES, CACHE_FILES = RealFiles(), CacheFiles()

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
    """Convert an OSError in the block to a DurableError that names the path, the cause and the fix."""
    try:
        yield
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "unknown error")
        problem = f"cannot {asked} {path}: {error.strerror or error} ({code})"
        raise DurableError(problem, fix=_cure(error, path)) from error


def _cure(error: OSError, path: Path) -> str:
    """Return the fix; if the parent folder exists but takes no new names, like /proc, suggest another folder."""
    folder = Path(error.filename or path).parent
    if error.errno == errno.ENOENT and folder.is_dir():
        return f"choose another folder: {folder} exists, but does not accept this name"
    return _CURES.get(error.errno or 0, "check the path and the disk")


def beside(path: Path, kind: str) -> Path:
    """Return a new hidden name in the same folder, thus on the same file system: `.name.kind-1f2e3d4c5b6a7988`."""
    return path.with_name(f".{path.name}.{kind}-{secrets.token_hex(8)}")


def pieces(contents: Contents) -> Iterator[memoryview]:
    """Yield the contents as byte views without copying; text becomes UTF-8."""
    if isinstance(contents, str):
        try:
            contents = contents.encode()
        except UnicodeEncodeError as error:
            raise DurableError(f"text cannot be written as UTF-8: {error}", fix="remove the surrogate") from error
    for chunk in [contents] if isinstance(contents, Chunk) else contents:
        view = memoryview(chunk)
        if view.nbytes:  # a view with a zero in its shape cannot be cast
            yield view.cast("B")


def put(contents: Mapping[Path, Contents], mode: int, files: FileLayer) -> dict[Path, tuple[int, str]]:
    """Write and sync new files and return the size and sha256 of each; their names are not synced yet."""
    written, left = dict[Path, tuple[int, str]](), iter(contents.items())
    while some := list(islice(left, MOST_TOGETHER)):
        handles = list[int]()
        try:
            with files.syncing() if len(some) > 1 else nullcontext(files.sync) as sync:
                for path, data in some:
                    reached("file-new")
                    handles.append(files.create(path, mode))
                    written[path] = _write(handles[-1], data, files)
                    sync(handles[-1])
        finally:
            close(handles, files)
        for _ in some:
            reached("file-synced")
    return written


def _write(handle: int, contents: Contents, files: FileLayer) -> tuple[int, str]:
    """Write a file and return its size and sha256."""
    size, digest = 0, hashlib.sha256()
    for piece in pieces(contents):
        for part in cut(piece, FILE):
            files.write(handle, part)
        digest.update(piece)
        size += len(piece)
    return size, digest.hexdigest()


def close(handles: Iterable[int], files: FileLayer) -> None:
    """Close every file, even if closing one fails; then raise the first error."""
    failure = None
    for handle in handles:
        try:
            files.close(handle)
        except OSError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def write_file(path: Path, data: Contents, *, mode: int = 0o666, files: FileLayer = REAL_FILES) -> None:
    """Write a file atomically and durably.

    At every moment, also after a failure, the path holds either all old bytes or all new bytes. When the function
    returns, the new bytes survive a power cut. A symbolic link at the path is replaced by a plain file; its target does
    not change. `mode` is narrowed by the umask as usual.
    """
    write_files({path: data}, mode=mode, files=files)


def write_files(contents: Mapping[Path, Contents], *, mode: int = 0o666, files: FileLayer = REAL_FILES) -> None:
    """Write several files of one folder, each like `write_file`, with one sync of the folder.

    A failure or a power cut may leave some of them old and some new.
    """
    temporary = {path: beside(path, "tmp") for path in contents}
    with disk_errors("write", next(iter(contents))):
        try:
            put({temporary[path]: data for path, data in contents.items()}, mode, files)
            for path in contents:
                reached("before-rename")
                files.rename(temporary[path], path)
        except BaseException:
            for path in temporary.values():
                with suppress(OSError):
                    files.remove_file(path)
            raise
        reached("after-rename")
        for folder in {path.parent for path in contents}:
            files.sync_folder(folder)


def remove_files(paths: Iterable[Path], *, files: FileLayer = REAL_FILES) -> None:
    """Remove files of one folder; missing files are ignored."""
    for path in paths:
        with disk_errors("remove", path), suppress(FileNotFoundError):
            files.remove_file(path)
            files.sync_folder(path.parent)


def make_folder(path: Path, *, files: FileLayer = REAL_FILES) -> None:
    """Make a folder and its parents durably: when the function returns, they survive a power cut."""
    with disk_errors("make the folder", path):
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            with suppress(FileExistsError):  # another process made it first
                files.make_folder(folder)
            files.sync_folder(folder.parent)
    if not path.is_dir():
        raise DurableError(f"{path} is a file, not a folder", fix="choose another name")


def remove_empty(folders: Iterable[Path], *, files: FileLayer = REAL_FILES) -> None:
    """Remove these folders, in this order, if they are empty; others stay."""
    for folder in folders:
        with suppress(OSError):  # it has content, or is already removed
            files.remove_folder(folder)


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """Yield a temporary folder that is removed when the block ends."""
    with tempfile.TemporaryDirectory(prefix=f"seqloom-{name}-") as path:
        yield Path(path)


def require_free_space(path: Path, needed_bytes: int) -> int:
    """Return the free bytes of the disk of `path`; raise DurableError if there are too few."""
    with disk_errors("find the free space for", path):
        existing = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
        free = shutil.disk_usage(existing).free
    if free < needed_bytes:
        raise DurableError(
            f"{path} needs {needed_bytes:,} bytes, but the disk has only {free:,} free",
            fix=f"free {needed_bytes - free:,} bytes or choose a folder on another disk",
        )
    return free


_OLD_NAMES = {RunFile.PATHS: "places.json", RunFile.TEST_EVALUATIONS: "looks.jsonl"}  # file names of earlier versions


def existing(path: Path) -> Path:
    """Return this path, or the path of the same file under the name that an earlier version used.

    >>> existing(Path("run/paths.json")).as_posix()
    'run/paths.json'
    """
    for name, old in _OLD_NAMES.items():
        if path.name.endswith(name) and not path.exists():
            before = path.with_name(path.name.removesuffix(name) + old)
            return before if before.exists() else path
    return path
