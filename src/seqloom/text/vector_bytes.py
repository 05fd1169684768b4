"""The bytes of a file of vectors: a regular file, unpacked where its name ends in .gz, and never more than is honest.

The words and the limits are those of `seqloom.data.opening`, which stands above this package and cannot be asked.
"""

import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

from seqloom.config.words import quoted
from seqloom.errors import RejectedError, near_name

Stream = io.BufferedReader
CHUNK = 1 << 20  # bytes, unpacked
RATIO = 200  # of the unpacked size to what was read
FLOOR = 16 << 20  # bytes that a small and very regular file reaches honestly
LARGEST = 64 << 30  # bytes, unpacked
GZIP = b"\x1f\x8b"


def refuse(path: Path, line: int | None, code: str, text: str, fix: str) -> NoReturn:
    """Raise RejectedError in the form that all refusals have."""
    place = str(path) if str(path).isprintable() else quoted(str(path))
    end = "" if fix.endswith("?") else "."
    shown = f"{place}:{line}" if line is not None else place
    raise RejectedError([f"{shown}: {code}: {text}. Fix: {fix}{end}"], codes=[code], total=1)


def is_packed(path: Path) -> bool:
    """Whether the name promises gzip."""
    return path.suffix.lower() == ".gz"


@contextmanager
def open_bytes(path: Path) -> Iterator[Stream]:
    """The bytes of the file, unpacked, while they are read; what is wrong with them is refused."""
    _require_regular(path)
    try:
        with path.open("rb") as stored:
            yield io.BufferedReader(_Unpacked(path, stored), CHUNK) if is_packed(path) else stored
    except PermissionError:
        refuse(path, None, "file.permission", "no permission to read this", "change its rights: chmod u+r")
    except EOFError:
        refuse(path, None, "gz.truncated", "the packed file ends too early (truncated copy?)", "copy it again")
    except (gzip.BadGzipFile, zlib.error) as error:
        refuse(path, None, "gz.crc", f"the packed bytes are damaged ({error})", "copy it again")
    except OSError as error:
        refuse(path, None, "file.unreadable", f"the system says: {error.strerror or error}", "check the disk")


class _Unpacked(io.RawIOBase):
    """What a gzip file holds; refused as soon as it is far more than what was read of the file could honestly hold."""

    def __init__(self, path: Path, stored: IO[bytes]) -> None:
        if stored.read(len(GZIP)) not in (GZIP, b""):
            refuse(path, None, "file.magic", "the name promises gzip, the content is something else", "take .gz off")
        stored.seek(0)
        self._path, self._stored = path, stored
        self._inner = gzip.GzipFile(fileobj=stored)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        return self._inner.tell()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        chunk = self._inner.read1(len(buffer))
        buffer[: len(chunk)] = chunk
        limit = min(LARGEST, max(FLOOR, RATIO * self._stored.tell()))  # of what was read so far: a bomb need not be all
        if self._inner.tell() > limit:
            text = f"unpacks to more than {limit:,} bytes, {RATIO} times what was read or the largest size"
            refuse(self._path, None, "gz.bomb", text, "unpack it yourself if that is meant")
        return len(chunk)


def _require_regular(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except PermissionError:
        refuse(path, None, "file.permission", "no permission to read this", "change its rights: chmod u+r")
    except FileNotFoundError:
        refuse(path, None, "file.missing", "there is no such file", near_name(path))
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL in it, links in a circle
        reason = getattr(error, "strerror", None) or str(error)
        refuse(path, None, "file.missing", f"this name leads nowhere: {reason}", "check the path")
    if stat.S_ISDIR(mode):
        refuse(path, None, "file.is_dir", "this is a folder", "give a file of vectors")
    if not stat.S_ISREG(mode):
        refuse(path, None, "file.not_regular", "this is no regular file", "copy the vectors into a file first")
