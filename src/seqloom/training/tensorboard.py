"""Curves for TensorBoard: event files written whole, without TensorBoard or TensorFlow.

A file of events is a row of records (length, sum, bytes, sum), each a small message of protocol buffers:

    Event { 1: seconds (double)  2: step  3: version of the file  5: Summary { 1: Value { 1: tag  2: number } ... } }

TensorBoard reads the files of a folder one after the other, so each look at the dev part closes one file and begins the
next; a file is never changed, which is what `durable` wants. A run that goes on writes some points again, with the same
values.
"""

import struct
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from seqloom.errors import DurableError
from seqloom.files.disk import make_folder, write_file
from seqloom.training.events import Ended, Report, Stepped, Validated

LARGEST = 3.4e38
VERSION = b"brain.Event:2"
TRAIN = ("loss", "rate", "norm", "padding")  # of `Stepped`
_POLYNOMIAL = 0x82F63B78  # of CRC-32C (Castagnoli), reflected
_ROTATION, _OFFSET = 15, 0xA282EAD8  # the sums of records are masked: they may be of bytes that hold sums


class Events:
    """Takes reports, and writes their numbers into a folder that TensorBoard opens."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.folder, self._clock = folder, clock
        self._waiting: list[bytes] = []
        self._files = 0

    def take(self, report: Report) -> None:
        """Nothing; the numbers are written at the next look at the dev part, or at the end.

        A disk that refuses stops no run: the points wait for the next time, and `metrics.jsonl` has them all.
        """
        points = points_of(report)
        if points:
            self._waiting.append(event(self._clock(), report.step, points))
        if isinstance(report, Validated | Ended) and self._waiting:
            try:
                self._write()
            except DurableError:
                return
            self._waiting.clear()

    def _write(self) -> None:
        now = self._clock()
        make_folder(self.folder)
        first = record(_double(1, now) + _bytes(3, VERSION))
        # files are read in the order of their names
        name = f"events.out.tfevents.{int(now * 1000):014d}.{self._files:06d}.seqloom"
        write_file(self.folder / name, first + b"".join(self._waiting))
        self._files += 1


def points_of(report: Report) -> dict[str, float]:
    """The numbers of a report by the names of their curves; those that no float holds are left out."""
    if isinstance(report, Stepped):
        points = {f"train/{name}": float(getattr(report, name)) for name in TRAIN}
        points["pace/symbols per second"] = report.pace.symbols_per_second
    elif isinstance(report, Validated):
        points = {f"dev/{name}": value for name, value in report.metrics.items()}
    else:
        points = {}
    return {name: value for name, value in points.items() if abs(value) <= LARGEST}


def event(seconds: float, step: int, points: dict[str, float]) -> bytes:
    """The record of some points at a step."""
    values = (_bytes(1, name.encode()) + _float(2, value) for name, value in points.items())
    summary = b"".join(_bytes(1, value) for value in values)
    return record(_double(1, seconds) + _varint(2 << 3) + _varint(step) + _bytes(5, summary))


def record(data: bytes) -> bytes:
    """Bytes with their length and two sums around them."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _float(number: int, value: float) -> bytes:
    return _varint(number << 3 | 5) + struct.pack("<f", value)


def _bytes(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    """A whole number in groups of seven bits, the lowest first.

    >>> _varint(300).hex()
    'ac02'
    """
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def _masked(data: bytes) -> int:
    checksum = crc32c(data)
    return (checksum >> _ROTATION | checksum << (32 - _ROTATION)) + _OFFSET & 0xFFFFFFFF


def crc32c(data: Iterable[int]) -> int:
    """The sum of RFC 3720.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    table, checksum = _table(), 0xFFFFFFFF
    for byte in data:
        checksum = table[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return checksum ^ 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    """The sums of single bytes."""

    def of(byte: int) -> int:
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        return byte

    return tuple(of(byte) for byte in range(256))
