"""Where studies are kept: an SQLite file for one machine, PostgreSQL for several. Optuna speaks to both.

SQLite relies on locks of the file system, and those of network file systems are not to be relied on; so it is refused
there. Optuna's own messages are held back: what people should know is in our reports.
"""

import logging
import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seqloom.errors import ConfigError, DurableError, needing
from seqloom.files.disk import make_folder

if TYPE_CHECKING:
    from optuna.storages import RDBStorage
    from optuna.study import Study
    from optuna.trial import FrozenTrial

HEARTBEAT, SILENCE = 30, 600  # seconds between signs of life; without one for so long another worker takes the trial
WAIT = 60.0  # seconds for a lock of SQLite
MENDED = (3, 51, 3)  # the version of SQLite that mended a rare damage with several writers
ATTEMPTS = 5  # to open: two that make the tables at once get in each other's way
NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "beegfs", "gpfs", "glusterfs"}
NETWORK |= {"fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse"}


class OpenedStudy(NamedTuple):
    """A storage, its address without a password, and what people should know about it."""

    storage: "RDBStorage"
    shown: str
    said: tuple[str, ...]

    def close(self) -> None:
        """Let go of all connections."""
        self.storage.remove_session()
        self.storage.engine.dispose()


def open_storage(url: str) -> OpenedStudy:
    """The storage at an address: sqlite:///FILE or postgresql://user@host/name."""
    with needing("tune"):
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError
    try:
        address = make_url(url)
    except ArgumentError:
        raise ConfigError("--storage is no address", fix="sqlite:///study.db or postgresql://user@host/name") from None
    if address.drivername == "sqlite":
        return _sqlite(address.database)
    if address.drivername not in ("postgresql", "postgresql+psycopg"):
        problem = f"--storage {address.drivername}: studies are kept in SQLite or PostgreSQL"
        raise ConfigError(problem, fix="sqlite:///study.db or postgresql://user@host/name")
    with needing("postgres"):
        import psycopg  # noqa: F401
    whole = address.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    shown = address.render_as_string(hide_password=True)
    return OpenedStudy(_connected(whole, shown, {"pool_pre_ping": True}), shown, ())


def _sqlite(name: str | None) -> OpenedStudy:
    if not name or name == ":memory:":
        raise ConfigError("--storage sqlite has no file, and memory is forgotten", fix="sqlite:///study.db")
    path = Path(name)
    make_folder(path.parent)
    require_local(path.parent)
    said = (version_said(sqlite3.sqlite_version_info),)
    url = f"sqlite:///{path}"
    storage = _connected(url, url, {"connect_args": {"timeout": WAIT}})
    return OpenedStudy(storage, url, tuple(filter(None, said)))


def version_said(version: tuple[int, ...]) -> str:
    """A warning about an old SQLite; empty for a new one."""
    if version >= MENDED:
        return ""
    found, mended = ".".join(map(str, version)), ".".join(map(str, MENDED))
    return (
        f"SQLite {found} is older than {mended}, which mended a rare damage with several writers: "
        "for many workers take PostgreSQL"
    )


def require_local(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> None:
    """Refuse a folder on a network file system, where the system tells."""
    kind = file_system(folder, mounts)
    if kind in NETWORK:
        raise ConfigError(
            f"{folder} lies on a network file system ({kind}), where SQLite may lose what it has written",
            fix="put the file on a local disk, or give --storage postgresql://user@host/name",
        )


def file_system(folder: Path, mounts: Path) -> str:
    """The kind of the file system that holds a folder; empty where nobody tells."""
    try:
        lines = mounts.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    found, longest = "", -1
    whole = folder.resolve()
    for line in lines:  # 36 35 98:0 /root /mount/point rw,noatime shared:1 - ext4 /dev/sda1 rw
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) < 5:
            continue
        point = Path(fields[4].encode().decode("unicode_escape", errors="replace"))
        if whole.is_relative_to(point) and len(point.parts) >= longest:  # a later mount hides an earlier one
            found, longest = kinds[0], len(point.parts)
    return found


def _connected(url: str, shown: str, engine: dict[str, object]) -> "RDBStorage":
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import SQLAlchemyError

    for attempt in range(ATTEMPTS):
        try:
            with quiet():
                return RDBStorage(
                    url,
                    engine_kwargs=engine,
                    heartbeat_interval=HEARTBEAT,
                    grace_period=SILENCE,
                    heartbeat_stale_trial_callback=_again,
                )
        except SQLAlchemyError as error:
            if attempt + 1 == ATTEMPTS:
                reason = str(getattr(error, "orig", None) or error).strip().split("\n")[0]
                fix = "check that it runs, the name and the password; the database must exist"
                raise DurableError(f"{shown} cannot be opened: {reason}", fix=fix) from None
            time.sleep(0.2 * 2**attempt)
    raise AssertionError("the last attempt returns or raises")


def _again(study: "Study", trial: "FrozenTrial") -> None:
    """Ask for the parameters of a trial again whose worker fell silent."""
    study.enqueue_trial(trial.params, user_attrs=trial.user_attrs)


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, Optuna says nothing by itself: no lines, and no warnings about what it calls experimental."""
    from optuna.exceptions import ExperimentalWarning

    logger = logging.getLogger("optuna")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            warnings.filterwarnings("ignore", "Heartbeat of storage")  # ours is given between the reports of a run
            yield
    finally:
        logger.setLevel(before)
