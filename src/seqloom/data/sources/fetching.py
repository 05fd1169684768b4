"""A known set brought into our own folder: copied from the user's folder of sets, or downloaded.

    each file:  ours, and right?  ──▶ nothing to do
                in the mirror?    ──▶ unpacked ──┐
                has an address?   ──▶ https ─────┴──▶ size and sha256 as promised? ──▶ held
    all held ──▶ written, each file whole or not at all

Nothing is written before every file has the sum in the registry, so whoever serves a file need not be trusted. Files
are small (the largest has 14 MB) and are held in memory until then; no answer is read beyond the size that is expected.
"""

import hashlib
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.error import HTTPError, URLError

from seqloom.data.opening.compressed import PACKINGS, chunks_of
from seqloom.data.problems import Ledger, escaped
from seqloom.data.sources.https import Answer, open_https
from seqloom.data.sources.shelves import Shelves, found_in
from seqloom.data.sources.source import Source, SourceFile
from seqloom.durable import make_folder, require_free_space, write_file
from seqloom.errors import DataError

CHUNK = 1 << 16  # bytes, between two reports
PACKED_MORE = 1 << 16  # bytes by which a packed file may be larger than the plain one

Opener = Callable[[str], Answer]


class Event(NamedTuple):
    """What was done about one file, and how far it is."""

    action: Literal["here", "copied", "downloading", "written"]
    file: SourceFile
    path: Path  # where it lies, or will lie
    done: int = 0  # bytes of a download
    total: int | None = None  # where known


def get_source(source: Source, shelves: Shelves, opener: Opener = open_https) -> Iterator[Event]:
    """What happens until every file of a set lies verified in our own folder; run it to its end."""
    held: dict[SourceFile, bytes] = {}
    for file in source.every_file():
        if (ours := found_in(shelves.own, file)) and _is_right(ours, file):
            yield Event("here", file, ours)
        elif shelves.mirror is not None and (copy := found_in(shelves.mirror, file)):
            held[file] = unpacked(copy, file)
            yield Event("copied", file, copy)
        else:
            held[file] = yield from _downloaded(file, source, shelves, opener)
    require_free_space(shelves.own, sum(map(len, held.values())))
    for file, data in held.items():
        place = shelves.own / file.plain
        make_folder(place.parent)
        write_file(place, data)
        yield Event("written", file, place)


def _is_right(path: Path, file: SourceFile) -> bool:
    try:
        unpacked(path, file)
    except DataError:
        return False
    return True


def unpacked(path: Path, file: SourceFile) -> bytes:
    """What a file on disk holds, unpacked and verified."""
    data = bytearray()
    for chunk in chunks_of(path, Ledger()):
        data += chunk
        if len(data) > file.size:
            break
    return _require_content(bytes(data), file, str(path), f"replace {path} or take it away")


def _require_content(data: bytes, file: SourceFile, origin: str, fix: str) -> bytes:
    """The same data, if it is what the registry promises."""
    if len(data) > file.size:
        raise DataError(f"{origin} is too large: {file.plain} has {file.size:,} bytes", fix=fix)
    if len(data) < file.size:
        raise DataError(f"{origin} ends after {len(data):,} of the {file.size:,} bytes of {file.plain}", fix=fix)
    found = hashlib.sha256(data).hexdigest()
    if found != file.sha256:
        raise DataError(f"{origin} is not the known {file.plain}: sha256 {found}, expected {file.sha256}", fix=fix)
    return data


def _downloaded(file: SourceFile, source: Source, shelves: Shelves, opener: Opener) -> Generator[Event, None, bytes]:
    by_hand = shelves.by_hand(source)
    if file.url is None:
        if wrong := found_in(shelves.own, file):
            unpacked(wrong, file)  # says what is wrong with it
        raise DataError(f"no address is known that serves {file.plain}", fix=by_hand)
    try:
        data = yield from _received(file, file.url, shelves.own / file.plain, opener)
    except (OSError, HTTPException) as error:
        raise DataError(
            f"cannot download {file.url}: {_reason(error)}", fix=f"check the network, or {by_hand}"
        ) from None
    return _require_content(data, file, file.url, by_hand)


def _received(file: SourceFile, url: str, place: Path, opener: Opener) -> Generator[Event, None, bytes]:
    """The unpacked answer of a server; one byte more than expected is enough to know that it is another file."""
    packed = url.endswith(".gz")
    limit = file.size + (PACKED_MORE if packed else 0)
    data = bytearray()
    with closing(opener(url)) as answer:
        total = answer.length or (None if packed else file.size)
        while len(data) <= limit and (chunk := answer.read(CHUNK)):
            data += chunk
            yield Event("downloading", file, place, len(data), total)
    return _without_gzip(bytes(data), file.size + 1) if packed else bytes(data)


def _without_gzip(data: bytes, most: int) -> bytes:
    try:
        return PACKINGS[".gz"].decoder().decompress(data, most)
    except zlib.error as error:
        raise OSError(f"the packed bytes are damaged ({error})") from None


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"the server answers {error.code} {escaped(str(error.reason))}"
    return escaped(str(error.reason if isinstance(error, URLError) else error) or type(error).__name__)
