"""The lock of a run folder: one process writes there, a second one is told at once who does.

`RUN/.lock` is locked by the system as long as its holder lives, so a dead one holds up nobody. The file says who it is:

    {"pid": 4711, "host": "blue", "since": "2026-01-31T12:00:00+00:00"}     held, or its holder died
    (empty)                                                                 let go

A holder may remove the folder before he lets go. Whoever opened the lock meanwhile then has one that nobody else can
find, and begins again: what is held is always the file that stands at the path.

Locks of the system do not always reach from one machine to another over a network file system; the name of another
host in a lock that seems free is therefore refused, and a person decides.
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
from seqloom.files.folders import remove_folder

LOCK = ".lock"
LONGEST = 4_096  # bytes of a lock that are read
PATIENCE = 0.3  # seconds in which a new holder writes its name
ATTEMPTS = 10  # to open a lock that others take away, again and again

_HELD: set[int] = set()  # handles that children of this process must not keep open


class _Holder(msgspec.Struct, frozen=True):
    pid: int
    host: str
    since: str


@contextmanager
def hold(path: Path, *, files: FileLayer = REAL_FILES) -> Iterator[None]:
    """A block in which this process alone may write in the folder `path`; HeldError at once if another one does.

    The folder is made if it is missing.
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
    """Remove a folder that this process holds; it may be gone already: a person may tidy up."""
    if path.exists():
        remove_folder(path, files=files)


def _taken(lock: Path, files: FileLayer) -> int:
    """The locked handle of the file that stands at the path."""
    _close_in_children()
    for _ in range(ATTEMPTS):
        make_folder(lock.parent, files=files)
        with disk_errors("lock", lock):
            try:
                handle = files.open_to_hold(lock)
            except FileNotFoundError:  # the folder has gone meanwhile
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
    if handle not in _HELD:  # a child of the holder has nothing to let go
        return
    _HELD.discard(handle)
    with suppress(OSError):  # a name that stays is that of a dead process, and a close has closed all the same
        holder = _holder(lock)
        if holder is not None and (holder.pid, holder.host) == (os.getpid(), socket.gethostname()):
            files.truncate(handle, 0)
    with suppress(OSError):
        files.close(handle)


def _holder(lock: Path) -> _Holder | None:
    """Who wrote the lock; None for an empty one, and for half a name that a crash left."""
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
    """Once for this process: a child that outlives the holder must not keep the lock."""
    os.register_at_fork(after_in_child=_close_held)


def _close_held() -> None:
    while _HELD:
        with suppress(OSError):
            os.close(_HELD.pop())


@contextmanager
def alone(path: Path, *, files: FileLayer = REAL_FILES) -> Iterator[None]:
    """A block in which one process at a time is at work on `path`; others wait, and a dead one holds up nobody.

    The lock is on an empty hidden file beside it, `.name.lock`, which stays.
    """
    lock = path.with_name(f".{path.name}.lock")
    with disk_errors("lock", lock):
        handle = files.open_to_append(lock)
    try:
        yield
    finally:
        with suppress(OSError):  # a close that reports an error has closed, and unlocked, all the same
            files.close(handle)
