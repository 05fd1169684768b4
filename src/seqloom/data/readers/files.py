"""Checks of files before they are read: regular files, whose content matches their extension, and fingerprints.

Archives of several files (zip, tar) are never unpacked.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from seqloom.config.data import DataConfig, Format, SplitName
from seqloom.data.problems import Ledger, Place
from seqloom.errors import DataError, near_name
from seqloom.report.numbers import counted

HEAD = 512  # bytes: enough for every signature below, including tar
PAGES = (".html", ".htm")
ADDRESSES = ("http:/", "https:/")  # a Path has one slash where a URL has two
ARCHIVES = {".zip", ".tar", ".tgz", ".tbz", ".txz", ".7z", ".rar"}
PACKED = {".gz": ("gzip", b"\x1f\x8b"), ".xz": ("xz", b"\xfd7zXZ\x00")}
MARKS = [
    (b"PK\x03\x04", "a zip (xlsx?)"),
    (b"PK\x05\x06", "an empty zip"),
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a rar archive"),
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    (b"\x93NUMPY", "a numpy array"),
    (b"\x89HDF\r\n\x1a\n", "HDF5"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office file (xls?)"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"%PDF-", "a pdf"),
    (b"\x89PNG\r\n\x1a\n", "a png picture"),
    (b"\xff\xd8\xff", "a jpeg picture"),
]
# The first and last bytes of binary formats.
BINARY: dict[Format, tuple[bytes, bytes]] = {"npz": (b"PK", b""), "parquet": (b"PAR1", b"PAR1")}
EXTENSIONS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".conll": "conll",
    ".bio": "conll",
    ".iob": "conll",
    ".conllu": "conllu",
    ".txt": "text",
    ".npz": "npz",
}
KINDS = [
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
]


def known_format(path: Path) -> Format | None:
    """The format of the extension, or None."""
    bare = path.with_suffix("") if path.suffix.lower() in PACKED else path
    found = EXTENSIONS.get(bare.suffix.lower())
    return None if bare is not path and found in ("parquet", "npz") else found


is_there, is_file, is_folder = os.path.exists, os.path.isfile, os.path.isdir  # false for impossible names


class Fingerprint(NamedTuple):
    """The size and SHA-256 of the bytes as they are stored."""

    size: int
    sha256: str


def fingerprint(path: Path) -> Fingerprint:
    """The size and SHA-256 of the stored bytes."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return Fingerprint(file.tell(), digest.hexdigest())


def require_regular(path: Path, ledger: Ledger) -> None:
    """Raise RejectedError unless the path is a readable file: not missing, a folder, a device, a pipe or a socket."""
    try:
        mode = path.stat().st_mode
    except PermissionError:
        refuse_forbidden(path, ledger)
    except FileNotFoundError:
        if str(path).startswith(ADDRESSES):
            fix = "download it and give the file"
            ledger.bad_file("file.missing", "this is a URL; only files are read", Place(str(path)), fix)
        ledger.bad_file("file.missing", "there is no such file", Place(str(path)), near_name(path))
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL in it, a loop of links
        reason = getattr(error, "strerror", None) or str(error)
        ledger.bad_file("file.missing", f"this path cannot be used: {reason}", Place(str(path)), "check the path")
    if stat.S_ISDIR(mode):
        fix = "give a file, or a folder with a subfolder of files for each class"
        ledger.bad_file("file.is_dir", "this is a folder without class folders", Place(str(path)), fix)
    if not stat.S_ISREG(mode):
        fix = "copy the data into a file first"
        ledger.bad_file("file.not_regular", f"this is {_kind(mode)}, not a regular file", Place(str(path)), fix)
    if not os.access(path, os.R_OK):
        refuse_forbidden(path, ledger)


def require_writable(path: Path, inputs: Iterable[Path], ledger: Ledger) -> None:
    """Raise RejectedError, before any work, if a report cannot be written to this path or would replace a file."""
    for text, fix in _obstacles(path, inputs):
        ledger.bad_file("out.unwritable", text, Place(str(path)), fix)


def _obstacles(path: Path, inputs: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield the reasons why a report cannot be written, and the fix of each."""
    folder, page = path.parent, "give the path of an HTML file, such as report.html"
    if is_folder(path):
        yield "this is a folder", page
    if any(are_same(path, given) for given in inputs):
        yield "this is the data itself, which the report would overwrite", page
    try:
        mode = path.lstat().st_mode
    except (OSError, ValueError):  # it does not exist, or writing it will fail anyway
        mode = stat.S_IFREG
    if not stat.S_ISREG(mode):
        yield f"this is {_kind(mode)}, which the report would overwrite", page
    if path.suffix.lower() not in PAGES:
        yield f"the name of a report must end in {' or '.join(PAGES)}", page
    if not is_folder(folder):
        yield f"there is no folder {folder}", "create the folder first"
    elif not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        yield "no permission to write to its folder", "choose another folder"
    elif not shutil.disk_usage(folder).free:
        yield "the disk is full", "free some space or choose another folder"


def _kind(mode: int) -> str:
    return next((name for is_kind, name in KINDS if is_kind(mode)), "something else")


def are_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same existing file or folder."""
    try:
        return one.samefile(other)
    except (OSError, ValueError):  # one of them does not exist
        return False


def state_of(path: Path) -> str:
    """The size and modification time of a file as text: they change when the file is written."""
    try:
        return describe_state(path.stat())
    except (OSError, ValueError):  # reading it will report the reason
        return "nothing"


def describe_state(status: os.stat_result) -> str:
    """Size and modification time as text."""
    return f"{counted(status.st_size, 'byte')} written at {status.st_mtime_ns}"


def require_state(path: Path, before: str, now: str, ledger: Ledger) -> None:
    """Raise RejectedError if a file changed since it was opened."""
    if now != before:
        text = f"the file changed while it was read: {before} before, {now} after"
        ledger.bad_file("data.changed", text, Place(str(path)), "wait until no program writes it, then start again")


def refuse_forbidden(path: Path, ledger: Ledger) -> NoReturn:
    """Raise RejectedError for missing permissions."""
    ledger.bad_file(
        "file.permission", "no permission to read this", Place(str(path)), "change the permissions: chmod u+r"
    )


@contextmanager
def opened(path: Path, ledger: Ledger, format: Format | None = None) -> Iterator[IO[bytes]]:  # as in ReadingConfig
    """Open a file for reading; if a format is given, its first bytes are checked."""
    try:
        with path.open("rb", buffering=0) as file:
            if format is not None:
                _require_magic(path, file, format, ledger)
            yield file
    except OSError as error:
        refuse_unreadable(path, error, ledger)


def _require_magic(path: Path, file: IO[bytes], format: Format, ledger: Ledger) -> None:
    """Raise RejectedError for archives, and for files whose first bytes do not match their format or extension."""
    unpacked = path.with_suffix("") if path.suffix.lower() in (*PACKED, ".bz2") else path
    if unpacked.suffix.lower() in ARCHIVES:
        refuse_archive(f"a {unpacked.suffix[1:]} archive", path, ledger)
    head = file.read(HEAD)
    found = known_kind(head) or "something else"
    if format in BINARY:
        first, last = BINARY[format]
        if not head:
            ledger.bad_file("data.empty", "the file is empty", Place(str(path)))
        if not head.startswith(first):
            text = f"expected {format} by its name, but the content is {found}"
            ledger.bad_file("file.magic", text, Place(str(path)), "give the right --format")
        file.seek(-min(len(head), len(last)), os.SEEK_END)
        if file.read() != last:
            text = f"the end of this {format} file is missing"
            ledger.bad_file("file.magic", text, Place(str(path)), "copy it again")
    file.seek(0)
    if format in BINARY or not head:
        return  # the reader rejects an empty text
    if packed := PACKED.get(path.suffix.lower()):
        name, mark = packed
        if not head.startswith(mark):
            fix = f"remove {path.suffix} from its name, or compress it again"
            text = f"expected {name} by its name, but the content is {found}"
            ledger.bad_file("file.magic", text, Place(str(path)), fix)
    else:
        require_text_head(path, head, format, ledger)


def require_text_head(path: Path, head: bytes, format: Format, ledger: Ledger) -> None:
    """Raise RejectedError if unpacked bytes begin like a binary file."""
    if head[257:262] == b"ustar":
        refuse_archive("a tar archive", path, ledger)
    if not (kind := known_kind(head)):
        return
    cures = {"gzip": "add .gz to its name", "xz": "add .xz to its name", "parquet": "use --format parquet"}
    sheet = "export it as csv, or unpack it if it is an archive" if "zip" in kind else "export it as csv"
    cure = cures.get(kind, sheet if "xls" in kind else f"export it as {format}")
    ledger.bad_file("file.magic", f"this is {kind}, not {format}", Place(str(path)), cure)


def refuse_archive(kind: str, path: Path, ledger: Ledger) -> NoReturn:
    """Raise RejectedError: archives are not unpacked."""
    ledger.bad_file("file.archive", f"this is {kind}", Place(str(path)), "unpack it and give the files in it")


def known_kind(head: bytes) -> str:
    """The kind of file by its first bytes; empty for what may be text.

    >>> known_kind(b"PAR1..."), known_kind(b"text,label")
    ('parquet', '')
    """
    return next((name for mark, name in MARKS if head.startswith(mark)), "")


def refuse_unreadable(path: Path, error: OSError, ledger: Ledger) -> NoReturn:
    """Raise RejectedError with the system's reason for a file that cannot be read."""
    if isinstance(error, PermissionError):
        refuse_forbidden(path, ledger)
    ledger.bad_file(
        "file.unreadable", f"the file cannot be read: {error.strerror or error}", Place(str(path)), "check the disk"
    )


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The cache folder, for downloaded datasets and prepared data."""
    given = os.environ if environment is None else environment
    if named := given.get("SEQLOOM_CACHE"):
        return Path(named)
    general = Path(given.get("XDG_CACHE_HOME", ""))
    if general.is_absolute():  # the XDG standard says to ignore a relative one
        return general / "seqloom"
    try:
        return Path.home() / ".cache" / "seqloom"
    except RuntimeError:
        raise DataError("there is no home folder for the cache", fix="set SEQLOOM_CACHE to a folder") from None


Files = dict[SplitName, tuple[Path, ...]]


def files_of(config: DataConfig) -> Files:
    """The files of each given split."""
    given: dict[SplitName, tuple[str, ...]] = {"train": config.train, "dev": config.dev, "test": config.test}
    return {part: tuple(map(Path, paths)) for part, paths in given.items() if paths}


def stored(files: Files) -> Iterator[Path]:
    """All given files, including those in folders."""
    given = (path for group in files.values() for path in group)
    paths = (inner for path in given for inner in (sorted(path.rglob("*")) if is_folder(path) else [path]))
    return filter(is_file, paths)


def states(paths: Iterable[Path]) -> dict[Path, str]:
    """The states of files, which show whether a file was written since."""
    return {path: state_of(path) for path in paths}


class FileSums:
    """Size and sha256 of files; a file is read again only if its state changed."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, ...], list[Any]]] = {}  # state, and size and sha256

    def of(self, paths: Iterable[Path]) -> dict[str, Any]:
        """Size and sha256 of every file."""
        found = {}
        for path in paths:
            try:
                status, known = path.stat(), self._known.get(path)
                state = (status.st_size, status.st_mtime_ns, status.st_ino)
                if known is None or known[0] != state:
                    known = self._known[path] = state, list(fingerprint(path))
                found[str(path)] = known[1]
            except OSError as error:
                refuse_unreadable(path, error, Ledger())
        return found


def require_apart(files: Files, ledger: Ledger) -> None:
    """Raise RejectedError if one file is given for two splits."""
    seen: dict[Path, SplitName] = {}
    for part, paths in files.items():
        for path in paths:
            before = seen.setdefault(path.resolve(), part)
            if before != part:
                text = f"the same file is given for {before} and for {part}"
                fix = "give another file, or leave it out for a random split"
                ledger.bad_file("data.same_file", text, Place(str(path)), fix)
