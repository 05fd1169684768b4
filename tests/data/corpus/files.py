"""F01-F14: what stands on the disk before anything is read."""

import contextlib
import gzip
import io
import os
import socket
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from data.corpus.case import Case, fine, labeled, reject, table
from seqloom.data.readers.passages import Passage, PassageChecker

PLAIN, LONGER = table(*labeled()), table(*labeled(500))
BOMB = 100 << 20  # bytes
OTHERS = 65_534  # the user who owns nothing


def zipped(name: str) -> bytes:
    """A zip archive with one member."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), PLAIN)
    return stream.getvalue()


def tarred() -> bytes:
    """A tar archive with one member."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo("train.csv")
        member.size = len(PLAIN)
        archive.addfile(member, io.BytesIO(PLAIN))
    return stream.getvalue()


def packed(content: bytes) -> bytes:
    """The bytes as gzip, the same ones at every time of day."""
    return gzip.compress(content, mtime=0)


def flipped(content: bytes, at: int) -> bytes:
    """The bytes with one bit another one."""
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def pipe(folder: Path) -> None:
    """A named pipe that nobody writes to."""
    os.mkfifo(folder / "train.csv")


def door(folder: Path) -> None:
    """A socket; its path must be short, so it is bound where it stands."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("train.csv")
    finally:
        os.chdir(here)


def forbid(folder: Path) -> None:
    """A file that may not be read, in a folder that may."""
    folder.chmod(0o755)
    (folder / "train.csv").chmod(0)


def escape(folder: Path) -> None:
    """A link in a class folder that leads out of the data folder."""
    (folder / "outside.txt").write_text("a secret")
    (folder / "reviews/pos/2.txt").symlink_to(folder / "outside.txt")


def link(folder: Path) -> None:
    """A second name for the training file."""
    (folder / "dev.csv").symlink_to("train.csv")


def seal(folder: Path) -> None:
    """A folder that may not be written into."""
    folder.chmod(0o755)
    (folder / "out").mkdir(mode=0o555)


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Inside, file permissions hold, even where the tests are run by root."""
    mine = os.geteuid()
    if mine:
        yield
        return
    os.seteuid(OTHERS)
    try:
        yield
    finally:
        os.seteuid(mine)


@contextlib.contextmanager
def growing() -> Iterator[None]:
    """Inside, another program adds a row to the file while it is read."""
    watch, rows = PassageChecker.check, ["one more,pos\n"]

    def watch_and_write(checker: PassageChecker, text: str) -> Passage:
        with Path("train.csv").open("a") as file:
            file.writelines(rows)
        rows.clear()
        return watch(checker, text)

    with mock.patch.object(PassageChecker, "check", watch_and_write):
        yield


CLASSES = {"reviews/pos/1.txt": b"fine", "reviews/neg/1.txt": b"bad"}
LONGEST_NAME = "n" * 251 + ".csv"
STRANGE_NAME = "two\nlines \x1b[31mred.csv"

FILES: list[Case] = [
    reject("F01", "file.is_dir", {"folder/a.txt": b"a\n", "folder/b.txt": b"b\n"}, "folder", place="folder"),
    reject(
        "F02", "file.missing", {"train.csv": PLAIN}, "trian.csv", place="trian.csv", says=("Did you mean train.csv?",)
    ),
    reject("F03", "file.permission", {"train.csv": PLAIN}, place="train.csv", make=forbid, around=unprivileged),
    *(
        reject(f"F04 {kind}", "file.magic", {"train.csv": content}, place="train.csv", says=(f"this is {said}",))
        for kind, content, said in (
            ("xlsx", zipped("xl/workbook.xml"), "a zip (xlsx?)"),
            ("gzip", packed(PLAIN), "gzip"),
            ("parquet", b"PAR1\x15\x04PAR1", "parquet"),
        )
    ),
    reject(
        "F05", "gz.truncated", {"train.csv.gz": packed(PLAIN)[:-12]}, place="train.csv.gz", says=("truncated copy?",)
    ),
    reject("F06", "gz.crc", {"train.csv.gz": flipped(packed(PLAIN), -6)}, place="train.csv.gz", says=("damaged",)),
    reject("F07", "gz.bomb", {"train.txt.gz": lambda: packed(bytes(BOMB))}, place="train.txt.gz", memory=32),
    reject(
        "F07 lines",
        "gz.bomb",
        {"train.txt.gz": lambda: packed((b"a" * 1023 + b"\n") * (BOMB >> 10))},
        place="train.txt.gz",
        memory=96,  # the rows before it are kept
    ),
    reject("F08 zip", "file.archive", {"train.zip": zipped("train.csv")}, place="train.zip", says=("unpack it",)),
    reject("F08 tar", "file.archive", {"train.tar": tarred()}, place="train.tar", says=("unpack it",)),
    reject("F08 tar.gz", "file.archive", {"train.tar.gz": packed(tarred())}, place="train.tar.gz"),
    reject("F09 device", "file.not_regular", {}, "/dev/zero", place="/dev/zero", says=("a device",)),
    reject("F09 pipe", "file.not_regular", {}, "train.csv", place="train.csv", says=("a named pipe",), make=pipe),
    reject("F09 socket", "file.not_regular", {}, "train.csv", place="train.csv", says=("a socket",), make=door),
    reject("F10", "file.escape", CLASSES, "reviews", place="reviews/pos/2.txt", make=escape),
    reject(
        "F11",
        "data.changed",
        {"train.csv": LONGER},
        place="train.csv",
        says=(f"{len(LONGER):,} bytes", f"{len(LONGER) + 13:,} bytes"),
        around=growing,
    ),
    reject("F12", "data.same_file", {"train.csv": PLAIN}, "train.csv", "--dev", "train.csv", place="train.csv"),
    reject("F12 by a link", "data.same_file", {"train.csv": PLAIN}, "train.csv", "--dev", "dev.csv", make=link),
    fine("F13 longest name", {LONGEST_NAME: PLAIN}, rows=10),
    fine("F13 control characters", {STRANGE_NAME: PLAIN}, rows=10),
    reject(
        "F13 refused",
        "data.no_rows",
        {STRANGE_NAME: table()},
        place=r"two\nlines \x1b[31mred.csv",
    ),
    reject(
        "F14",
        "out.unwritable",
        {},
        *("train.csv", "--html", "out/report.html"),
        place="out/report.html",
        make=seal,
        around=unprivileged,
    ),
    reject("F14 no folder", "out.unwritable", {}, "train.csv", "--html", "out/report.html", place="out/report.html"),
    reject("F14 a folder", "out.unwritable", {}, "train.csv", "--html", ".", place="."),
    reject("F14 the data", "out.unwritable", {"train.csv": PLAIN}, "train.csv", "--html", "train.csv"),
    reject("F14 no page", "out.unwritable", {"train.csv": PLAIN}, "train.csv", "--html", "other.csv"),
]
