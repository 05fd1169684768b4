"""The lock of a run folder: one process writes there, and a second one fails immediately with the first one's name.

The system locks `RUN/.lock` as long as the holder lives, so a dead process blocks nobody. The file names the holder:

    {"pid": 4711, "host": "blue", "since": "2026-01-31T12:00:00+00:00"}     locked, or its holder died
    (empty)                                                                 released

The holder may remove the folder before releasing the lock. A process that has opened the removed lock file tries again,
because only the file that is now at the path counts.

System locks do not always work between machines on a network file system. So a lock file that names another host raises
an error even if it seems free, and the user decides.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import msgspec

from seqloom.errors import DurableError, HeldError
from seqloom.files.disk import REAL_FILES, FileLayer, disk_errors, make_folder
from seqloom.files.folders import delete, remove_folder

LOCK = ".lock"
LONGEST = 4_096  # bytes of a lock file to read
PATIENCE = 0.3  # seconds that a new holder may take to write its name
ATTEMPTS = 10  # to open a lock that other processes keep removing

_HELD: set[int] = set()  # handles that child processes must close


class _Holder(msgspec.Struct, frozen=True):
    pid: int
    host: str
    since: str


@contextmanager
def hold(path: Path, *, files: FileLayer = REAL_FILES) -> Iterator[None]:
    """Hold the write lock of the folder `path` during the block; raise HeldError if another process holds it.

    The folder is created if it is missing.
    """
    lock = path / LOCK
    handle = _taken(lock, files)
    try:
        _require_no_other_host(lock)
        with disk_errors("lock", lock):
            holder = _Holder(os.getpid(), socket.gethostname(), datetime.now(UTC).isoformat(timespec="seconds"))
            files.truncate(handle, 0)
            files.write(handle, memoryview(msgspec.json.encode(holder)))
        yield
    finally:
        _let_go(handle, lock, files)


def remove_held(path: Path, *, files: FileLayer = REAL_FILES) -> None:
    """Remove a folder that this process holds; it may already be removed."""
    if path.exists():
        remove_folder(path, files=files)


def is_unused(path: Path) -> bool:
    """Whether a folder is missing or empty: what is there later was written since."""
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def empty_held(path: Path, *, files: FileLayer = REAL_FILES) -> None:
    """Remove all that is in a folder that this process holds, the lock last; the folder stays."""
    with disk_errors("empty", path):
        for entry in sorted(path.iterdir(), key=lambda entry: entry.name == LOCK):
            delete(entry, files)


def _taken(lock: Path, files: FileLayer) -> int:
    """Return the locked handle of the file that is now at the path."""
    _close_in_children()
    for _ in range(ATTEMPTS):
        make_folder(lock.parent, files=files)
        with disk_errors("lock", lock):
            try:
                handle = files.open_to_hold(lock)
            except FileNotFoundError:  # the folder was removed meanwhile
                continue
            except BlockingIOError:
                raise _refusal(lock) from None
        if _stands(handle, lock):
            _HELD.add(handle)
            return handle
        with suppress(OSError):
            files.close(handle)
    raise _refusal(lock)


def _stands(handle: int, lock: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), lock.stat())
    except FileNotFoundError:
        return False


def _let_go(handle: int, lock: Path, files: FileLayer) -> None:
    if handle not in _HELD:  # a child of the holder has nothing to release
        return
    _HELD.discard(handle)
    with suppress(OSError):  # a remaining name belongs to a dead process, and a failed close still closes
        holder = _holder(lock)
        if holder is not None and (holder.pid, holder.host) == (os.getpid(), socket.gethostname()):
            files.truncate(handle, 0)
    with suppress(OSError):
        files.close(handle)


def _holder(lock: Path) -> _Holder | None:
    """Return the holder written in the lock; None if it is empty or incomplete after a crash."""
    try:
        with lock.open("rb") as file:
            return msgspec.json.decode(file.read(LONGEST), type=_Holder)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _refusal(lock: Path) -> HeldError:
    until = time.monotonic() + PATIENCE
    while (holder := _holder(lock)) is None and time.monotonic() < until:
        time.sleep(0.01)
    who = f"process {holder.pid} on {holder.host} since {holder.since}" if holder else "another process"
    return HeldError(f"{lock.parent} is in use by {who}", fix="wait for it, stop it, or choose another folder")


def _require_no_other_host(lock: Path) -> None:
    holder = _holder(lock)
    if holder is not None and holder.host != socket.gethostname():
        raise DurableError(
            f"{lock.parent} is in use by process {holder.pid} on {holder.host} since {holder.since}; this machine, "
            f"{socket.gethostname()}, cannot check whether that process still runs",
            fix=f"make sure that it has ended, then delete {lock}",
        )


@cache
def _close_in_children() -> None:
    """Register once per process that children close the lock, so that they cannot keep it after the holder ends."""
    os.register_at_fork(after_in_child=_close_held)


def _close_held() -> None:
    while _HELD:
        with suppress(OSError):
            os.close(_HELD.pop())


@contextmanager
def alone(path: Path, *, files: FileLayer = REAL_FILES) -> Iterator[None]:
    """Let one process at a time work on `path`; others wait, and a dead process blocks nobody.

    The lock is an empty hidden file next to it, `.name.lock`, which is not removed.
    """
    lock = path.with_name(f".{path.name}.lock")
    with disk_errors("lock", lock):
        handle = files.open_to_append(lock)
    try:
        yield
    finally:
        with suppress(OSError):  # a failed close still closes and unlocks
            files.close(handle)
