"""Append-only JSON lines with checksums: `{"step": 7, "loss": 0.25, "crc": "602dd470"}`.

A log is the one file that grows in place, so a crash can tear its end but nothing else: each append, of one line or a
group, is synced before the next begins. A torn line belongs to a record that was never reported as saved. Readers skip
it and report it, and the next append removes it. Damage anywhere else is an error and is never skipped.
"""

import io
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqloom.errors import DamagedError, DurableError
from seqloom.files.disk import METRICS, REAL_FILES, FileLayer, cut, disk_errors, write_file

LINE_LIMIT = 1 << 20
_CRC = re.compile(rb'(?:, )?"crc": "([0-9a-f]{8})"\}$')


@dataclass(frozen=True)
class Lines:
    """The records of a log in order, and whether its last line is torn."""

    records: tuple[dict[str, Any], ...]
    torn: bool


def append_line(path: Path, record: Mapping[str, Any], *, files: FileLayer = REAL_FILES) -> None:
    """Append a record durably, after removing a torn last line.

    Raises for a symbolic link and for a file that does not end like a Seqloom log, so that no other file is truncated.
    """
    append_lines(path, [record], files=files)


def append_lines(path: Path, records: Iterable[Mapping[str, Any]], *, files: FileLayer = REAL_FILES) -> None:
    """Append records durably, with one sync for all of them.

    After a crash the log may end after any of them, possibly with a torn line. If the call fails, none of its records
    stay.
    """
    for group in _groups(map(_encode, records)):
        with disk_errors("append to", path):
            _append(path, group, files)


def _groups(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to groups no longer than the line limit, so that readers know how far back a tear can reach."""
    group = b""
    for line in lines:
        if group and len(group) + len(line) > LINE_LIMIT:
            yield group
            group = b""
        group += line
    if group:
        yield group


def _append(path: Path, group: bytes, files: FileLayer) -> None:
    handle = files.open_to_append(path)
    try:
        size = os.fstat(handle).st_size
        if size == 0:
            files.sync_folder(path.parent)  # the name first: a saved line must not lose its file
        whole = _whole_size(handle, size, path)
        if whole < size:
            files.truncate(handle, whole)
        try:
            for part in cut(memoryview(group), METRICS):
                files.write(handle, part)
            files.sync(handle)
        except BaseException:
            with suppress(OSError):
                files.truncate(handle, whole)
            raise
    finally:
        with suppress(OSError):  # the lines are synced or removed by now: close cannot change that
            files.close(handle)


def write_lines(path: Path, records: Iterable[Mapping[str, Any]], *, files: FileLayer = REAL_FILES) -> None:
    """Replace the log with these records, for example when a run returns to an earlier step."""
    write_file(path, (_encode(record) for record in records), files=files)


def read_lines(path: Path) -> Lines:
    """Read the records of a log, and whether a torn last line was skipped; a missing log has no records."""
    records: list[dict[str, Any]] = []
    with disk_errors("read", path):
        if not path.exists():
            return Lines((), torn=False)
        with path.open("rb") as handle:
            while line := handle.readline(LINE_LIMIT + 1):
                record = _decode(line)
                if record is not None:
                    records.append(record)
                elif handle.read(1) == b"" and _is_torn(line):
                    return Lines(tuple(records), torn=True)
                else:
                    raise _damaged(path, f"line {len(records) + 1}")
    return Lines(tuple(records), torn=False)


def _encode(record: Mapping[str, Any]) -> bytes:
    """Return the line of a record; the checksum covers the JSON text without the checksum.

    >>> _encode({"step": 7, "loss": 0.25})
    b'{"step": 7, "loss": 0.25, "crc": "602dd470"}\\n'
    """
    if "crc" in record:
        raise DurableError("a record has a field 'crc', which is reserved for the checksum", fix="give it another name")
    try:
        body = json.dumps(dict(record), allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DurableError(f"a record cannot be written as JSON: {error}", fix="log finite numbers and text") from error
    line = body[:-1] + (b", " if record else b"") + b'"crc": "%08x"}\n' % zlib.crc32(body)
    if len(line) > LINE_LIMIT:
        raise DurableError(f"a record has {len(line)} bytes; the limit is {LINE_LIMIT}", fix="write it to its own file")
    return line


def _decode(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line, or None if the line is incomplete or damaged."""
    found = _CRC.search(line[:-1]) if line.endswith(b"\n") else None
    if found is None:
        return None
    body = line[: found.start()] + b"}"
    if int(found[1], 16) != zlib.crc32(body):
        return None
    try:
        record = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _is_torn(line: bytes) -> bool:
    """Whether a crash could have left this of a line: its beginning, or zeros for data that was never written."""
    if b"\0" in line:
        return True
    if line.endswith(b"\n") or not line.startswith(b"{"):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return _decode(line + b"\n") is not None  # only the newline is missing; other complete objects are not ours to cut


def _whole_size(handle: int, size: int, path: Path) -> int:
    """Return the size of the intact part of the log: all of it, or all but a torn last line."""
    for reach in (4096, 2 * LINE_LIMIT + 1):  # the first is almost always enough for the last two lines
        start = max(0, size - reach)
        lines = io.BytesIO(os.pread(handle, size - start, start)).readlines()[start > 0 :]
        if start == 0 or len(lines) > 1:
            break
    if size == 0 or (lines and _decode(lines[-1]) is not None):
        return size
    # A torn line can only follow an intact line or be the first line.
    follows_whole = _decode(lines[-2]) is not None if len(lines) > 1 else start == 0
    if not follows_whole or not _is_torn(lines[-1]):
        raise _damaged(path, "its last line")
    return size - len(lines[-1])


def _damaged(path: Path, where: str) -> DamagedError:
    return DamagedError(
        f"{path}: expected JSON records with valid checksums, found something else in {where}",
        fix="restore the file from a copy, or move it away to start a new one",
    )
