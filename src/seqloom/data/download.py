"""What is known about a named data set: its files and their sums, how they are read, and whose they are.

A set is not part of Seqloom: we hold its description. A variant reads the files of another set in its own way, so files
are named by their path inside a folder of sets, `sst2/train.txt.xz`, whatever the variant is called. A set is brought
into our own folder: copied from the user's folder of sets, or downloaded.

    each file:  ours, and right?  ──▶ nothing to do
                in the mirror?    ──▶ unpacked ──┐
                has an address?   ──▶ https ─────┴──▶ size and sha256 as promised? ──▶ held
    all held ──▶ written, each file whole or not at all

Nothing is written before every file has the sum in the registry, so whoever serves a file need not be trusted. Files
are small (the largest has 14 MB) and are held in memory until then; no answer is read beyond the size that is expected.
"""

import hashlib
import os
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Literal, NamedTuple, Protocol
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from seqloom.config.data import AnySplit, DataConfig, ReadingConfig, Task
from seqloom.data.problems import Ledger, escaped
from seqloom.data.readers.files import cache_folder
from seqloom.data.readers.passages import PACKINGS, chunks_of
from seqloom.errors import DataError
from seqloom.files.disk import make_folder, require_free_space, write_file
from seqloom.version import __version__

PACKED = (".xz", ".gz")


class SourceFile(NamedTuple):
    """One file: where it lies in a folder of sets, what it holds when unpacked, and who serves the same bytes."""

    path: str
    sha256: str  # unpacked
    size: int  # bytes, unpacked
    rows: int  # examples or records that it gives when it is read
    url: str | None = None  # of the plain file, or of a .gz of it

    @property
    def plain(self) -> str:
        """The path of the unpacked file.

        >>> SourceFile("sst2/train.txt.xz", "", 0, 0).plain
        'sst2/train.txt'
        """
        return self.path.removesuffix(".xz")


Files = tuple[SourceFile, ...]  # two for parallel text, otherwise one


class NamedSource(NamedTuple):
    """A named set. `files` are by part (train, dev, test); a set without a task has tables by other names."""

    name: str
    description: str
    licence: str  # as the source states it
    citation: str
    origin: str  # where these bytes come from
    files: Mapping[str, Files]
    reading: ReadingConfig = ReadingConfig()
    task: Task | None = None
    input: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    split: AnySplit | None = None

    def every_file(self) -> Iterator[SourceFile]:
        """All files, part by part."""
        for files in self.files.values():
            yield from files

    def has_addresses(self) -> bool:
        """Whether every file can be downloaded."""
        return all(file.url is not None for file in self.every_file())

    def rows(self) -> dict[str, int]:
        """How many rows each part or table has."""
        return {part: files[0].rows for part, files in self.files.items()}

    def config(self, paths: Mapping[str, tuple[Path, ...]]) -> DataConfig:
        """How the set is read from these paths; DataError for tables that make no examples by themselves."""
        if self.task is None:
            tables = ", ".join(self.files)
            raise DataError(f"the set '{self.name}' has tables ({tables}), not examples", fix="name another set")
        named = {part: tuple(map(str, files)) for part, files in paths.items()}
        return DataConfig(
            train=named["train"],
            dev=named.get("dev", ()),
            test=named.get("test", ()),
            reading=self.reading,
            task=self.task,
            input=self.input,
            target=self.target,
            split=self.split,
        )


# An answer from a server, over https alone: also where a redirection leads.

TIMEOUT = 30.0  # seconds in which nothing comes


class HttpAnswer(Protocol):
    """The body of what a server sends."""

    length: int | None  # bytes still to come, where the server said how many

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end."""

    def close(self) -> None:
        """End the connection."""


class HttpsOnly(request.HTTPRedirectHandler):
    """Follows a redirection only to https."""

    def redirect_request(
        self, req: request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> request.Request | None:
        require_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def require_https(url: str) -> None:
    """Raise DataError for an address of another scheme."""
    if urlsplit(url).scheme != "https":
        raise DataError(f"only https is spoken, and the address is {escaped(url)}", fix="find an https address")


def open_https(url: str, transport: request.BaseHandler | None = None) -> HttpAnswer:
    """The answer of the server at this address; OSError says why there is none. Tests give a transport of their own."""
    require_https(url)
    director = request.OpenerDirector()  # bare: `build_opener` would speak http, ftp and file as well
    director.addheaders = [("User-Agent", f"seqloom/{__version__}")]
    for handler in (
        request.ProxyHandler(),
        transport or request.HTTPSHandler(),
        request.HTTPDefaultErrorHandler(),
        request.HTTPErrorProcessor(),
        HttpsOnly(),
    ):
        director.add_handler(handler)
    answer: HttpAnswer = director.open(url, timeout=TIMEOUT)
    return answer


# Where the files of known sets are looked for: a folder of sets that the user has, then our own.
#
#     SEQLOOM_DATA    a folder of sets: only read
#     SEQLOOM_CACHE   ours, ~/.cache/seqloom if it is not set; sets lie in data/ below it
#
# In both, a file lies at the path of the registry, plain or packed: sst2/train.txt, sst2/train.txt.xz or .gz.


class Shelves(NamedTuple):
    """The folders in which sets lie."""

    mirror: Path | None  # only read
    own: Path

    def find(self, file: SourceFile) -> Path | None:
        """Where a file lies, the user's folder first; None if it is nowhere. What it holds is not looked at."""
        return next((found for folder in self.folders() if (found := found_in(folder, file))), None)

    def find_all(self, source: NamedSource) -> dict[str, tuple[Path, ...]]:
        """The paths of every part of a set; DataError says what is missing and what to do."""
        missing = [file for file in source.every_file() if self.find(file) is None]
        if missing:
            looked = " and ".join(f"{one}{'' if one.is_dir() else ' (no such folder)'}" for one in self.folders())
            unset = "; SEQLOOM_DATA is not set" if self.mirror is None else ""
            text = f"the set '{source.name}' is not here: no {names_of(missing)} in {looked}{unset}"
            fetch = f"run `seqloom data get {source.name}`"
            raise DataError(text, fix=fetch if source.has_addresses() else self.by_hand(source))
        return {
            part: tuple(path for file in files if (path := self.find(file))) for part, files in source.files.items()
        }

    def folders(self) -> list[Path]:
        """The folders in the order in which they are searched."""
        return [self.own] if self.mirror is None else [self.mirror, self.own]

    def by_hand(self, source: NamedSource) -> str:
        """What to put where when nothing can be fetched."""
        return (
            f"put {names_of(list(source.every_file()))}, plain or packed as .xz or .gz, below {self.own}, "
            f"or set SEQLOOM_DATA to a folder that has them (they come from {source.origin})"
        )


def names_of(files: list[SourceFile]) -> str:
    """The plain names of files, in words."""
    return ", ".join(file.plain for file in files)


def found_in(folder: Path, file: SourceFile) -> Path | None:
    """The file in this folder, plain or packed."""
    try:
        return next((path for suffix in ("", *PACKED) if (path := folder / f"{file.plain}{suffix}").is_file()), None)
    except OSError as error:  # no right to look, or a name that no file system takes
        fix = "change its rights, or name another folder"
        raise DataError(f"cannot look for {file.plain} in {folder}: {error.strerror}", fix=fix) from None


def usual_shelves(environment: Mapping[str, str] | None = None) -> Shelves:
    """The folders that the environment names."""
    given = os.environ if environment is None else environment
    mirror = given.get("SEQLOOM_DATA")
    return Shelves(Path(mirror) if mirror else None, cache_folder(given) / "data")


CHUNK = 1 << 16  # bytes, between two reports
PACKED_MORE = 1 << 16  # bytes by which a packed file may be larger than the plain one

Opener = Callable[[str], HttpAnswer]


class Event(NamedTuple):
    """What was done about one file, and how far it is."""

    action: Literal["here", "copied", "downloading", "written"]
    file: SourceFile
    path: Path  # where it lies, or will lie
    done: int = 0  # bytes of a download
    total: int | None = None  # where known


def get_source(source: NamedSource, shelves: Shelves, opener: Opener = open_https) -> Iterator[Event]:
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


def _downloaded(
    file: SourceFile, source: NamedSource, shelves: Shelves, opener: Opener
) -> Generator[Event, None, bytes]:
    by_hand = shelves.by_hand(source)
    if file.url is None:
        if wrong := found_in(shelves.own, file):
            unpacked(wrong, file)  # says what is wrong with it
        raise DataError(f"no address is known that serves {file.plain}", fix=by_hand)
    try:
        data = yield from _received(file, file.url, shelves.own / file.plain, opener)
    except (OSError, HTTPException) as error:
        text = f"cannot download {file.url}: {_reason(error)}"
        raise DataError(text, fix=f"check the network, or {by_hand}") from None
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
