"""What stands on the disk before anything is read: a regular file, of the kind its name promises, with a fingerprint.

Nothing is unpacked that holds other files (zip, tar): an archive can write anywhere and hide anything.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from seqloom.config.data import DataConfig, Format, Part
from seqloom.data.problems import Ledger, Place
from seqloom.errors import DataError, near_name
from seqloom.report.numbers import counted

HEAD = 512  # bytes: enough for every mark below, tar's included
PAGES = (".html", ".htm")
ADDRESSES = ("http:/", "https:/")  # a path has one slash where an address has two
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
# What a binary format must begin with, and how it must end.
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
    """The format that the extension stands for, if there is one."""
    bare = path.with_suffix("") if path.suffix.lower() in PACKED else path
    found = EXTENSIONS.get(bare.suffix.lower())
    return None if bare is not path and found in ("parquet", "npz") else found


is_there, is_file, is_folder = os.path.exists, os.path.isfile, os.path.isdir  # which no name is too strange to ask


class Fingerprint(NamedTuple):
    """The size and SHA-256 of the bytes as they are stored."""

    size: int
    sha256: str


def fingerprint(path: Path) -> Fingerprint:
    """Size and sum of the stored bytes, read in pieces."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return Fingerprint(file.tell(), digest.hexdigest())


def require_regular(path: Path, ledger: Ledger) -> None:
    """Refuse what is not a readable file: missing, forbidden, a folder, a device, a pipe or a socket."""
    try:
        mode = path.stat().st_mode
    except PermissionError:
        refuse_forbidden(path, ledger)
    except FileNotFoundError:
        if str(path).startswith(ADDRESSES):
            fix = "download it first and give the file"
            ledger.bad_file("file.missing", "this is an address, and only files are read", Place(str(path)), fix)
        ledger.bad_file("file.missing", "there is no such file", Place(str(path)), near_name(path))
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a NUL in it, links in a circle
        reason = getattr(error, "strerror", None) or str(error)
        ledger.bad_file("file.missing", f"this name leads nowhere: {reason}", Place(str(path)), "check the path")
    if stat.S_ISDIR(mode):
        fix = "give a file, or a folder with one folder of files for each class"
        ledger.bad_file("file.is_dir", "this is a folder without class folders", Place(str(path)), fix)
    if not stat.S_ISREG(mode):
        fix = "copy the data into a file first"
        ledger.bad_file("file.not_regular", f"this is {_kind(mode)}, not a regular file", Place(str(path)), fix)
    if not os.access(path, os.R_OK):
        refuse_forbidden(path, ledger)


def require_writable(path: Path, inputs: Iterable[Path], ledger: Ledger) -> None:
    """Refuse, before any work, a page that could not be written at its end, or that would replace something else."""
    for text, fix in _obstacles(path, inputs):
        ledger.bad_file("out.unwritable", text, Place(str(path)), fix)


def _obstacles(path: Path, inputs: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """What stands in the way of a page, and the cure of each."""
    folder, page = path.parent, "give the path of a page, such as report.html"
    if is_folder(path):
        yield "this is a folder", page
    if any(are_same(path, given) for given in inputs):
        yield "this is the data itself, which the page would replace", page
    try:
        mode = path.lstat().st_mode
    except (OSError, ValueError):  # nothing is there, or the name is one that writing will refuse
        mode = stat.S_IFREG
    if not stat.S_ISREG(mode):
        yield f"this is {_kind(mode)}, which the page would replace", page
    if path.suffix.lower() not in PAGES:
        yield f"a page is written to a name that ends in {' or '.join(PAGES)}", page
    if not is_folder(folder):
        yield f"there is no folder {folder}", "make the folder first"
    elif not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        yield "no permission to write into its folder", "choose another folder"
    elif not shutil.disk_usage(folder).free:
        yield "the disk is full", "free some space or choose another folder"


def _kind(mode: int) -> str:
    return next((name for is_kind, name in KINDS if is_kind(mode)), "something else")


def are_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file or folder that is there."""
    try:
        return one.samefile(other)
    except (OSError, ValueError):  # one of them is not there, or its name is too strange
        return False


def state_of(path: Path) -> str:
    """What a file system says of a file's content: another state means that somebody wrote it."""
    try:
        return describe_state(path.stat())
    except (OSError, ValueError):  # whoever reads it says why
        return "nothing"


def describe_state(status: os.stat_result) -> str:
    """Size and time of a file in words."""
    return f"{counted(status.st_size, 'byte')} written at {status.st_mtime_ns}"


def require_state(path: Path, before: str, now: str, ledger: Ledger) -> None:
    """Refuse a file that was changed since it was looked at, with both states."""
    if now != before:
        text = f"the file changed while it was read: {before} before, {now} after"
        ledger.bad_file("data.changed", text, Place(str(path)), "let its writer finish, then start again")


def refuse_forbidden(path: Path, ledger: Ledger) -> NoReturn:
    """Say that the rights of a file keep us from reading it."""
    ledger.bad_file("file.permission", "no permission to read this", Place(str(path)), "change its rights: chmod u+r")


@contextmanager
def opened(path: Path, ledger: Ledger, format: Format | None = None) -> Iterator[IO[bytes]]:  # noqa: A002  # as in ReadingConfig
    """A block with a file that is open for reading, whose first bytes are those of its format if one is named."""
    try:
        with path.open("rb", buffering=0) as file:
            if format is not None:
                _require_magic(path, file, format, ledger)
            yield file
    except OSError as error:
        refuse_unreadable(path, error, ledger)


def _require_magic(path: Path, file: IO[bytes], format: Format, ledger: Ledger) -> None:  # noqa: A002
    """Refuse a file whose first bytes belong to another kind than its format or its .gz or .xz ending, and archives."""
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
            text = f"the name promises {format}, the content is {found}"
            ledger.bad_file("file.magic", text, Place(str(path)), "say what it is with --format")
        file.seek(-min(len(head), len(last)), os.SEEK_END)
        if file.read() != last:
            text = f"the end of this {format} file is missing"
            ledger.bad_file("file.magic", text, Place(str(path)), "copy it again")
    file.seek(0)
    if format in BINARY or not head:
        return  # an empty text is the reader's to refuse
    if packed := PACKED.get(path.suffix.lower()):
        name, mark = packed
        if not head.startswith(mark):
            fix = f"take {path.suffix} off its name, or pack it again"
            text = f"the name promises {name}, the content is {found}"
            ledger.bad_file("file.magic", text, Place(str(path)), fix)
    else:
        require_text_head(path, head, format, ledger)


def require_text_head(path: Path, head: bytes, format: Format, ledger: Ledger) -> None:  # noqa: A002
    """Refuse unpacked bytes that begin like a binary file."""
    if head[257:262] == b"ustar":
        refuse_archive("a tar archive", path, ledger)
    if not (kind := known_kind(head)):
        return
    cures = {"gzip": "add .gz to its name", "xz": "add .xz to its name", "parquet": "--format parquet"}
    sheet = "export it as csv, or unpack it if it is an archive" if "zip" in kind else "export it as csv"
    cure = cures.get(kind, sheet if "xls" in kind else f"export it as {format}")
    ledger.bad_file("file.magic", f"this is {kind}, not {format}", Place(str(path)), cure)


def refuse_archive(kind: str, path: Path, ledger: Ledger) -> NoReturn:
    """Say that archives are not unpacked."""
    ledger.bad_file("file.archive", f"this is {kind}", Place(str(path)), "unpack it yourself and give the files in it")


def known_kind(head: bytes) -> str:
    """What the first bytes say the file is; empty for what may be text.

    >>> known_kind(b"PAR1..."), known_kind(b"text,label")
    ('parquet', '')
    """
    return next((name for mark, name in MARKS if head.startswith(mark)), "")


def refuse_unreadable(path: Path, error: OSError, ledger: Ledger) -> NoReturn:
    """Say what the system said about a file that cannot be read."""
    if isinstance(error, PermissionError):
        refuse_forbidden(path, ledger)
    ledger.bad_file(
        "file.unreadable", f"the system says: {error.strerror or error}", Place(str(path)), "check the disk"
    )


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The folder for what can be had again: fetched sets, prepared data."""
    given = os.environ if environment is None else environment
    if named := given.get("SEQLOOM_CACHE"):
        return Path(named)
    general = Path(given.get("XDG_CACHE_HOME", ""))
    if general.is_absolute():  # a relative one is to be ignored, says the XDG standard
        return general / "seqloom"
    try:
        return Path.home() / ".cache" / "seqloom"
    except RuntimeError:
        raise DataError("there is no home folder to keep data sets in", fix="set SEQLOOM_CACHE to a folder") from None


Files = dict[Part, tuple[Path, ...]]


def files_of(config: DataConfig) -> Files:
    """The files of each part that was given."""
    given: dict[Part, tuple[str, ...]] = {"train": config.train, "dev": config.dev, "test": config.test}
    return {part: tuple(map(Path, paths)) for part, paths in given.items() if paths}


def stored(files: Files) -> Iterator[Path]:
    """Every file that is given, those in folders one by one."""
    given = (path for group in files.values() for path in group)
    paths = (inner for path in given for inner in (sorted(path.rglob("*")) if is_folder(path) else [path]))
    return filter(is_file, paths)


def states(paths: Iterable[Path]) -> dict[Path, str]:
    """What shows that a file was written since, without reading it."""
    return {path: state_of(path) for path in paths}


class FileSums:
    """Size and sha256 of files; one is read again only if its state says that somebody wrote it."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, ...], list[Any]]] = {}  # the state before it was read; what was found

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
    """Refuse a file that is given as two parts."""
    seen: dict[Path, Part] = {}
    for part, paths in files.items():
        for path in paths:
            before = seen.setdefault(path.resolve(), part)
            if before != part:
                text = f"the same file is given as {before} and as {part}"
                ledger.bad_file("data.same_file", text, Place(str(path)), "give another file, or none to draw a part")
