"""Bytes become characters strictly: what does not fit the encoding is refused, with a diagnosis of what it may be.

Nothing is guessed and nothing replaced. The encoding is UTF-8 unless the user names another from the closed list below.
"""

import codecs
import functools
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from seqloom.data.opening.files import HEAD
from seqloom.data.problems import Ledger, Place, counted
from seqloom.errors import did_you_mean

WIDE = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
ENCODINGS = [
    *["utf-8", "utf-8-sig", *WIDE, "ascii", "latin-1", "cp437", "cp850", "cp852", "cp866", "mac-roman"],
    *[f"iso8859-{part}" for part in range(2, 17) if part != 12],
    *[f"cp{page}" for page in range(1250, 1259)],
    *["koi8-r", "koi8-u", "shift-jis", "cp932", "euc-jp", "iso2022-jp", "euc-kr", "cp949", "gb2312", "gbk", "gb18030"],
    *["big5", "big5hkscs", "tis-620"],
]
MARKED = ["utf-16", "utf-32"]  # their decoders read the mark and drop it
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
MANY_LINES = 100  # good ones before a bad one: then it is the odd one out


def text_of(chunks: Iterator[bytes], encoding: str, path: Path, ledger: Ledger) -> Iterator[str]:
    """The characters of chunks of bytes, without the byte order mark at the start."""
    decoder_of = known_encoding(encoding, path, ledger).incrementaldecoder
    assert decoder_of is not None, "every encoding of the list has one"
    decoder, reading = decoder_of("strict"), Reading(path, encoding, ledger)
    before = 0  # bytes of the chunks that were decoded
    for chunk in itertools.chain(chunks, [b""]):
        state = decoder.getstate()
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            decoder.setstate(state)
            held = len(error.object) - len(chunk)  # bytes of a character that began in the chunk before
            reading.follow(decoder.decode(chunk[: max(0, error.start - held)]))
            reading.refuse(error, before - held + error.start, at_end=not chunk)
        before += len(chunk)
        if text:
            yield reading.follow(text)


def known_encoding(encoding: str, path: Path, ledger: Ledger) -> codecs.CodecInfo:
    """The encoding of this name; a name that is not in the list is refused."""
    try:
        found = codecs.lookup(encoding)
    except (LookupError, ValueError):
        found = None
    if found is None or found.name not in _canonical_names():
        text = f"there is no encoding '{encoding}'"
        ledger.bad_file("enc.unknown", text, Place(str(path)), did_you_mean(encoding, ENCODINGS))
    return codecs.lookup("utf-8") if found.name == "utf-8-sig" else found


@functools.cache
def _canonical_names() -> frozenset[str]:
    return frozenset(codecs.lookup(name).name for name in ENCODINGS)


def require_width(head: bytes, encoding: str, path: Path, ledger: Ledger) -> None:
    """Refuse UTF-16 and UTF-32 that was not announced, or that does not say which of its bytes comes first."""
    name = known_encoding(encoding, path, ledger).name
    place = Place(str(path))
    mark = next((mark for mark in MARKS if head.startswith(mark)), b"")
    if name in WIDE:
        if name in MARKED and head and not mark:
            text = f"{name.upper()} without a byte order mark"
            ledger.bad_file("enc.utf16", text, place, f"--encoding {name}-le or {name}-be")
    elif mark:
        text = f"starts with {mark.hex(' ').upper()}: {MARKS[mark].upper()}"
        ledger.bad_file("enc.utf16", text, place, f"--encoding {MARKS[mark]}")
    elif half := _empty_half(head):
        ledger.bad_file("enc.utf16", "every second byte is NUL: UTF-16", place, f"--encoding {half}")


def _empty_half(head: bytes) -> str:
    """The byte order of text in which one byte of nearly every pair is NUL and the other hardly ever is."""
    if len(head) < 4:
        return ""
    low, high = head[::2].count(0) / len(head[::2]), head[1::2].count(0) / len(head[1::2])
    if min(low, high) > 0.05 or max(low, high) < 0.8:
        return ""
    return "utf-16-le" if high > low else "utf-16-be"


class Reading:
    """What was read so far of one file, to say where a bad byte stands and what it may be."""

    def __init__(self, path: Path, encoding: str, ledger: Ledger) -> None:
        self.path, self.encoding, self.ledger = path, encoding, ledger
        self.line = 1  # that is being read
        self.column = 0  # characters of it that were read
        self.plain = True  # nothing but ASCII so far
        self.started = codecs.lookup(encoding).name in MARKED

    def follow(self, text: str) -> str:
        """The same text, without the mark at the very start of the file, after it was counted."""
        if not self.started:
            self.started = True
            text = text.removeprefix("\ufeff")
        self.plain = self.plain and text.isascii()
        if newlines := text.count("\n"):
            self.line += newlines
            self.column = len(text) - text.rindex("\n") - 1
        else:
            self.column += len(text)
        return text

    def refuse(self, error: UnicodeDecodeError, offset: int, *, at_end: bool) -> NoReturn:
        """Say what the first bad bytes are, which stand where the reading has come to; `offset` is as in a hex dump."""
        bad, place = error.object[error.start :], Place(str(self.path), self.line, self.column + 1)
        if not codecs.lookup(self.encoding).name.startswith("utf-8"):
            shown = " ".join(f"0x{byte:02X}" for byte in bad[: max(1, error.end - error.start)][:4])
            fix = "name the encoding that the file has: --encoding"
            text = f"{shown} is not {self.encoding} ({error.reason}), byte {offset:,} of the file"
            self.ledger.bad_file("enc.bytes", text, place, fix)
        found = diagnose(bad, at_end=at_end, plain=self.plain)
        if found.windows and (not self.plain or self.line > MANY_LINES):
            before = f"{counted(self.line - 1, 'line')} before {'is' if self.line == 2 else 'are'} UTF-8"
            text = f"{found.text}, byte {offset:,} of the file, but the {before}"
            self.ledger.bad_file("enc.mixed", text, place, self._one_encoding())
        self.ledger.bad_file("enc.utf8", f"{found.text}, byte {offset:,} of the file", place, found.fix)

    def _one_encoding(self) -> str:
        return "--encoding cp1252 if all of it is" if self.plain else "save the whole file in one encoding, UTF-8"


class Diagnosis(NamedTuple):
    """What bytes that are not UTF-8 seem to be, and the cure."""

    text: str
    fix: str
    windows: bool = False


def diagnose(bad: bytes, *, at_end: bool, plain: bool) -> Diagnosis:
    r"""What the first of these bytes is, given that it cannot stand there in UTF-8.

    >>> diagnose(b"\xe9 au lait", at_end=False, plain=True).text
    '0xE9 is not UTF-8; looks like Windows-1252'
    """
    first, follows = bad[0], len(bad) > 1 and 0x80 <= bad[1] <= 0xBF
    if at_end and _cut(bad) and not (plain and len(bad) == 1 and first >= 0xE0):  # 0xE0.. are small letters in cp1252
        return Diagnosis("the file ends in the middle of a character (truncated copy?)", "copy it again")
    if first == 0xED and follows and bad[1] >= 0xA0:
        return Diagnosis("a surrogate half, which UTF-8 never holds", "write the file again from its source")
    if follows and (first in (0xC0, 0xC1) or (first == 0xE0 and bad[1] < 0xA0) or (first == 0xF0 and bad[1] < 0x90)):
        return Diagnosis(
            f"0x{first:02X} 0x{bad[1]:02X} is an overlong form, which UTF-8 forbids", "write the file again"
        )
    line = bad.split(b"\n", 1)[0][:HEAD]
    if any(byte in line for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)):  # cp1252 has no such characters
        return Diagnosis(f"0x{first:02X} is not UTF-8", "name the encoding that the file has: --encoding")
    return Diagnosis(f"0x{first:02X} is not UTF-8; looks like Windows-1252", "--encoding cp1252", windows=True)


def _cut(bad: bytes) -> bool:
    """Whether all that is wrong is that continuation bytes are missing at the end."""
    needed = 2 if 0xC2 <= bad[0] <= 0xDF else 3 if 0xE0 <= bad[0] <= 0xEF else 4 if 0xF0 <= bad[0] <= 0xF4 else 0
    return 0 < len(bad) < needed and all(0x80 <= byte <= 0xBF for byte in bad[1:])
