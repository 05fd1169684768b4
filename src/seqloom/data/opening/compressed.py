"""The bytes of a file in chunks, unpacked where its name ends in .gz or .xz; never the whole file in memory.

A few kilobytes can unpack into terabytes, so the size of what comes out is watched: beyond a floor that small and very
regular files reach honestly, more than RATIO times the stored size is refused.
"""

import itertools
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, NoReturn, Protocol

from seqloom.data.opening.files import HEAD, describe_state, refuse_unreadable, require_state
from seqloom.data.problems import Ledger, Place

CHUNK = 1 << 20  # bytes, unpacked
STORED_CHUNK = 1 << 16  # bytes, packed: small, because what follows a member is copied for each member
RATIO = 200
FLOOR = 16 << 20  # bytes
LARGEST = 64 << 30  # bytes
XZ_MEMORY = 128 << 20  # bytes; `xz -9` needs 65 MiB


class Decoder(Protocol):
    """One member of a packed file."""

    @property
    def eof(self) -> bool:
        """Whether the member is complete."""

    @property
    def unused_data(self) -> bytes:
        """What was given and lies behind the end of the member."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """The next bytes, `max_length` at most."""


class Packing(NamedTuple):
    """How one kind of packed file is unpacked, and the codes of what can go wrong with it."""

    decoder: Callable[[], Decoder]
    truncated: str
    damaged: str
    bomb: str


class _Gzip:
    """zlib hands back what it had no room for, where lzma keeps it: this keeps it too."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


def _xz() -> Decoder:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)


PACKINGS = {
    ".gz": Packing(_Gzip, "gz.truncated", "gz.crc", "gz.bomb"),
    ".xz": Packing(_xz, "xz.truncated", "xz.damaged", "xz.bomb"),
}


def chunks_of(path: Path, ledger: Ledger) -> Iterator[bytes]:
    """The bytes of a file, unpacked by its last suffix; refused when they change meanwhile."""
    packing = PACKINGS.get(path.suffix.lower())
    try:
        with path.open("rb", buffering=0) as file:
            before = os.fstat(file.fileno())
            yield from _stored(file, CHUNK, ledger) if packing is None else _unpacked(file, packing, path, ledger)
            after = os.fstat(file.fileno())
    except OSError as error:
        refuse_unreadable(path, error, ledger)
    require_state(path, describe_state(before), describe_state(after), ledger)


def with_head(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first HEAD bytes, or fewer if there are not so many, and all chunks, these bytes included."""
    first: list[bytes] = []
    for chunk in chunks:
        first.append(chunk)
        if sum(map(len, first)) >= HEAD:
            break
    return b"".join(first)[:HEAD], itertools.chain(first, chunks)


def _stored(file: IO[bytes], size: int, ledger: Ledger) -> Iterator[bytes]:
    while chunk := file.read(size):
        ledger.bytes += len(chunk)
        yield chunk


def _unpacked(file: IO[bytes], packing: Packing, path: Path, ledger: Ledger) -> Iterator[bytes]:
    total = 0
    try:
        for chunk in _members(_stored(file, STORED_CHUNK, ledger), packing.decoder):
            total += len(chunk)
            limit = min(LARGEST, max(FLOOR, RATIO * file.tell()))  # of what was read so far: a bomb need not be all
            if total > limit:
                text = f"unpacks to more than {limit:,} bytes, {RATIO} times what was read or the largest size"
                ledger.bad_file(packing.bomb, text, Place(str(path)), "unpack it yourself if that is meant")
            yield chunk
    except EOFError:
        text = "the packed file ends too early (truncated copy?)"
        ledger.bad_file(packing.truncated, text, Place(str(path)), "copy it again")
    except (zlib.error, lzma.LZMAError) as error:
        _refuse_damaged(str(error), packing, path, ledger)


def _refuse_damaged(error: str, packing: Packing, path: Path, ledger: Ledger) -> NoReturn:
    if "Memory usage limit" in error:
        text, fix = f"needs more than {XZ_MEMORY >> 20} MiB of memory to unpack", "pack it again with xz -9 or less"
    else:
        text, fix = f"the packed bytes are damaged ({error})", "copy it again"
    ledger.bad_file(packing.damaged, text, Place(str(path)), fix)


def _members(stored: Iterator[bytes], new: Callable[[], Decoder]) -> Iterator[bytes]:
    """What all members hold, one behind the other, with the zeros that may pad them left out."""
    decoder: Decoder | None = None
    for data in stored:
        while data:
            if decoder is None:
                if not (data := data.lstrip(b"\0")):
                    break
                decoder = new()
            yield from _available(decoder, data)
            data = decoder.unused_data if decoder.eof else b""
            decoder = None if decoder.eof else decoder
    if decoder is not None:
        raise EOFError


def _available(decoder: Decoder, data: bytes) -> Iterator[bytes]:
    """All that a decoder can say now about the data it was given."""
    while chunk := decoder.decompress(data, CHUNK):
        yield chunk
        if decoder.eof:
            return
        data = b""
