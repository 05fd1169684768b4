"""Named datasets: their files and checksums, and how they are copied or downloaded.

Seqloom contains the description of a set, not its files. A variant reads the files of another set in its own way, so
files are named by their path in a folder of datasets, such as `sst2/train.txt.xz`. A set is brought into the cache:
copied from the user's folder of datasets, or downloaded.

    each file:  in the cache, and right?  ──▶ nothing to do
                in the mirror?            ──▶ unpacked ──┐
                has a URL?                ──▶ https ─────┴──▶ right size and sha256? ──▶ held in memory
    all held ──▶ written atomically

Nothing is written before every file has the checksum in the registry, so servers need not be trusted. Files are small
(at most 14 MB) and held in memory until then; no download is read beyond its expected size.
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
    """One file: its path in a folder of datasets, its checksum when unpacked, and its URL."""

    path: str
    sha256: str  # unpacked
    size: int  # bytes, unpacked
    rows: int  # examples or records in it
    url: str | None = None  # of the plain file or its .gz

    @property
    def plain(self) -> str:
        """The path of the unpacked file.

        >>> SourceFile("sst2/train.txt.xz", "", 0, 0).plain
        'sst2/train.txt'
        """
        return self.path.removesuffix(".xz")


Files = tuple[SourceFile, ...]  # two for parallel text, otherwise one


class NamedSource(NamedTuple):
    """A named dataset. `files` are by split (train, dev, test); a set without a task has tables by other names."""

    name: str
    description: str
    license: str  # as stated by the source
    citation: str
    origin: str  # of these files
    files: Mapping[str, Files]
    reading: ReadingConfig = ReadingConfig()
    task: Task | None = None
    input: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    split: AnySplit | None = None

    def every_file(self) -> Iterator[SourceFile]:
        """All files, split by split."""
        for files in self.files.values():
            yield from files

    def has_addresses(self) -> bool:
        """Whether every file can be downloaded."""
        return all(file.url is not None for file in self.every_file())

    def rows(self) -> dict[str, int]:
        """The number of rows of each split or table."""
        return {part: files[0].rows for part, files in self.files.items()}

    def config(self, paths: Mapping[str, tuple[Path, ...]]) -> DataConfig:
        """The configuration to read the set from these paths; raises DataError for a set of tables without a task."""
        if self.task is None:
            tables = ", ".join(self.files)
            text = f"the dataset '{self.name}' has tables ({tables}) but no training examples"
            raise DataError(text, fix="choose another dataset")
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


# Downloads over https only, including redirects.

TIMEOUT = 30.0  # seconds without data


class HttpAnswer(Protocol):
    """The body of a server's response."""

    length: int | None  # remaining bytes, if the server sent it

    def read(self, size: int, /) -> bytes:
        """The next bytes; empty at the end."""

    def close(self) -> None:
        """Close the connection."""


class HttpsOnly(request.HTTPRedirectHandler):
    """Follows redirects only to https."""

    def redirect_request(
        self, req: request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> request.Request | None:
        require_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def require_https(url: str) -> None:
    """Raise DataError for a URL of another scheme."""
    if urlsplit(url).scheme != "https":
        raise DataError(f"only https is allowed, but the URL is {escaped(url)}", fix="use an https URL")


def open_https(url: str, transport: request.BaseHandler | None = None) -> HttpAnswer:
    """The server's response; raises OSError if there is none. Tests pass their own transport."""
    require_https(url)
    director = request.OpenerDirector()  # `build_opener` would allow http, ftp and file as well
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


# Where the files of named datasets are searched: the user's folder of datasets, then the cache.
#
#     SEQLOOM_DATA    the user's folder, only read
#     SEQLOOM_CACHE   the cache (default ~/.cache/seqloom), with datasets in data/
#
# Files have the path of the registry, plain or compressed: sst2/train.txt, sst2/train.txt.xz or .gz.


class DataFolders(NamedTuple):
    """The folders with datasets."""

    mirror: Path | None  # only read
    own: Path

    def find(self, file: SourceFile) -> Path | None:
        """The path of a file, in the user's folder first; None if it is missing. Its content is not checked."""
        return next((found for folder in self.search_order() if (found := found_in(folder, file))), None)

    def find_all(self, source: NamedSource) -> dict[str, tuple[Path, ...]]:
        """The paths of every split of a set; raises DataError if a file is missing."""
        missing = [file for file in source.every_file() if self.find(file) is None]
        if missing:
            searched = " and ".join(
                f"{one}{'' if one.is_dir() else ' (no such folder)'}" for one in self.search_order()
            )
            unset = "; SEQLOOM_DATA is not set" if self.mirror is None else ""
            text = (
                f"the dataset '{source.name}' is not on this machine: {names_of(missing)} not found in "
                f"{searched}{unset}"
            )
            fetch = f"run `seqloom data get {source.name}`"
            raise DataError(text, fix=fetch if source.has_addresses() else self.by_hand(source))
        return {
            part: tuple(path for file in files if (path := self.find(file))) for part, files in source.files.items()
        }

    def search_order(self) -> list[Path]:
        """The folders in the order of the search."""
        return [self.own] if self.mirror is None else [self.mirror, self.own]

    def by_hand(self, source: NamedSource) -> str:
        """The fix for a set that cannot be downloaded."""
        return (
            f"put {names_of(list(source.every_file()))} (plain, .xz or .gz) into {self.own}, "
            f"or set SEQLOOM_DATA to a folder with these files (they come from {source.origin})"
        )


def names_of(files: list[SourceFile]) -> str:
    """The names of files for a message."""
    return ", ".join(file.plain for file in files)


def found_in(folder: Path, file: SourceFile) -> Path | None:
    """The file in this folder, plain or compressed."""
    try:
        return next((path for suffix in ("", *PACKED) if (path := folder / f"{file.plain}{suffix}").is_file()), None)
    except OSError as error:  # no permission, or an impossible name
        fix = "change its permissions, or choose another folder"
        raise DataError(f"cannot look for {file.plain} in {folder}: {error.strerror}", fix=fix) from None


def default_folders(environment: Mapping[str, str] | None = None) -> DataFolders:
    """The folders given by the environment."""
    given = os.environ if environment is None else environment
    mirror = given.get("SEQLOOM_DATA")
    return DataFolders(Path(mirror) if mirror else None, cache_folder(given) / "data")


CHUNK = 1 << 16  # bytes between two progress events
PACKED_MORE = 1 << 16  # bytes by which a compressed file may be larger than the plain one

Opener = Callable[[str], HttpAnswer]


class Event(NamedTuple):
    """The result for one file, or the progress of its download."""

    action: Literal["here", "copied", "downloading", "written"]
    file: SourceFile
    path: Path  # where it is or will be
    done: int = 0  # downloaded bytes
    total: int | None = None  # if known


def get_source(source: NamedSource, folders: DataFolders, opener: Opener = open_https) -> Iterator[Event]:
    """Copy or download every file of a set into the cache, verified; yields what happens."""
    contents: dict[SourceFile, bytes] = {}
    for file in source.every_file():
        if (ours := found_in(folders.own, file)) and _is_right(ours, file):
            yield Event("here", file, ours)
        elif folders.mirror is not None and (copy := found_in(folders.mirror, file)):
            contents[file] = unpacked(copy, file)
            yield Event("copied", file, copy)
        else:
            contents[file] = yield from _downloaded(file, source, folders, opener)
    require_free_space(folders.own, sum(map(len, contents.values())))
    for file, data in contents.items():
        place = folders.own / file.plain
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
    """The content of a file, unpacked and verified."""
    data = bytearray()
    for chunk in chunks_of(path, Ledger()):
        data += chunk
        if len(data) > file.size:
            break
    return _require_content(bytes(data), file, str(path), f"replace or remove {path}")


def _require_content(data: bytes, file: SourceFile, origin: str, fix: str) -> bytes:
    """Return the data if it has the size and checksum of the registry; raise DataError otherwise."""
    if len(data) > file.size:
        raise DataError(f"{origin} is too large: {file.plain} has {file.size:,} bytes", fix=fix)
    if len(data) < file.size:
        raise DataError(f"{origin} ends after {len(data):,} of the {file.size:,} bytes of {file.plain}", fix=fix)
    found = hashlib.sha256(data).hexdigest()
    if found != file.sha256:
        raise DataError(f"{origin} is not the expected {file.plain}: sha256 {found}, expected {file.sha256}", fix=fix)
    return data


def _downloaded(
    file: SourceFile, source: NamedSource, folders: DataFolders, opener: Opener
) -> Generator[Event, None, bytes]:
    by_hand = folders.by_hand(source)
    if file.url is None:
        if wrong := found_in(folders.own, file):
            unpacked(wrong, file)  # raises with the reason
        raise DataError(f"there is no known URL for {file.plain}", fix=by_hand)
    try:
        data = yield from _received(file, file.url, folders.own / file.plain, opener)
    except (OSError, HTTPException) as error:
        text = f"cannot download {file.url}: {_reason(error)}"
        raise DataError(text, fix=f"check the network, or {by_hand}") from None
    return _require_content(data, file, file.url, by_hand)


def _received(file: SourceFile, url: str, place: Path, opener: Opener) -> Generator[Event, None, bytes]:
    """The unpacked download, read up to one byte more than expected, which shows that it is another file."""
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
        raise OSError(f"the compressed data is damaged ({error})") from None


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"the server answered {error.code} {escaped(str(error.reason))}"
    return escaped(str(error.reason if isinstance(error, URLError) else error) or type(error).__name__)
