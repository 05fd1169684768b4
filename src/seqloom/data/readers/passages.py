"""Opening a text file safely: it is verified, unpacked, decoded, cut into lines, and checked.

    path ──▶ files ──▶ compressed ──▶ characters ──▶ passages of complete lines
            regular?   .gz, .xz in    strict, with    \\n and \\r\\n only,
            magic?     chunks, caps   a diagnosis     about 1 MiB of text each

Everything is streamed; memory does not grow with the file.
"""

import codecs
import functools
import itertools
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, NoReturn, Protocol

import msgspec

from seqloom.config.data import Format, ReadingConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.files import HEAD, describe_state, opened, require_regular, require_state, require_text_head
from seqloom.errors import did_you_mean
from seqloom.report.numbers import counted
from seqloom.report.numbers import size as bytes_said

# The bytes of a file in chunks, unpacked if its name ends in .gz or .xz; the complete file is never in memory.
#
# A few kilobytes can unpack into terabytes, so the unpacked size is limited to RATIO times the stored size; small files
# may always unpack to FLOOR.

CHUNK = 1 << 20  # bytes, unpacked
STORED_CHUNK = 1 << 16  # bytes, packed: small, because the rest of a chunk is copied for each member
RATIO = 200
FLOOR = 16 << 20  # bytes
LARGEST = 64 << 30  # bytes
XZ_MEMORY = 128 << 20  # bytes; `xz -9` needs 65 MiB


class Decompressor(Protocol):
    """One member of a packed file."""

    @property
    def eof(self) -> bool:
        """Whether the member is complete."""

    @property
    def unused_data(self) -> bytes:
        """Bytes after the end of the member."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """The next bytes, at most `max_length`."""


class Packing(NamedTuple):
    """How one compression format is unpacked, and the codes of its problems."""

    decoder: Callable[[], Decompressor]
    truncated: str
    damaged: str
    bomb: str


class _Gzip:
    """Like lzma's decompressor, it keeps the input that it has not consumed yet; zlib returns it."""

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


PACKINGS = {
    ".gz": Packing(_Gzip, "gz.truncated", "gz.crc", "gz.bomb"),
    ".xz": Packing(
        lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY), "xz.truncated", "xz.damaged", "xz.bomb"
    ),
}


def chunks_of(path: Path, ledger: Ledger, format: Format | None = None) -> Iterator[bytes]:
    """Yield the bytes of a file, unpacked by its suffix; raise RejectedError if it changes or is of another format."""
    packing = PACKINGS.get(path.suffix.lower())
    with opened(path, ledger, format) as file:
        before = os.fstat(file.fileno())
        yield from _stored(file, CHUNK, ledger) if packing is None else _unpacked(file, packing, path, ledger)
        after = os.fstat(file.fileno())
    require_state(path, describe_state(before), describe_state(after), ledger)


def _stored(file: IO[bytes], size: int, ledger: Ledger) -> Iterator[bytes]:
    while chunk := file.read(size):
        ledger.bytes += len(chunk)
        yield chunk


def _unpacked(file: IO[bytes], packing: Packing, path: Path, ledger: Ledger) -> Iterator[bytes]:
    total = 0
    try:
        for chunk in _members(_stored(file, STORED_CHUNK, ledger), packing.decoder):
            total += len(chunk)
            limit = min(LARGEST, max(FLOOR, RATIO * file.tell()))  # relative to the bytes read so far
            if total > limit:
                text = f"the file unpacks to more than {limit:,} bytes, the limit for its size"
                ledger.bad_file(packing.bomb, text, Place(str(path)), "unpack it yourself if this is intended")
            yield chunk
    except EOFError:
        text = "the compressed file ends too early (truncated copy?)"
        ledger.bad_file(packing.truncated, text, Place(str(path)), "copy it again")
    except (zlib.error, lzma.LZMAError) as error:
        text, fix = f"the compressed data is damaged ({error})", "copy it again"
        if "Memory usage limit" in str(error):
            text = f"unpacking needs more than {XZ_MEMORY >> 20} MiB of memory"
            fix = "compress it again with xz -9 or less"
        ledger.bad_file(packing.damaged, text, Place(str(path)), fix)


def _members(stored: Iterator[bytes], new: Callable[[], Decompressor]) -> Iterator[bytes]:
    """Yield the content of all members, without zeros between them."""
    decoder: Decompressor | None = None
    for data in stored:
        while data:
            if decoder is None:
                if not (data := data.lstrip(b"\0")):
                    break
                decoder = new()
            while chunk := decoder.decompress(data, CHUNK):  # all that is available now
                yield chunk
                data = b""
                if decoder.eof:
                    break
            data = decoder.unused_data if decoder.eof else b""
            decoder = None if decoder.eof else decoder
    if decoder is not None:
        raise EOFError


# Bytes are decoded strictly: bytes that do not fit the encoding are an error, with a diagnosis of what they may be.
#
# Nothing is guessed or replaced. The encoding is UTF-8 unless the user gives another one from the list below.

WIDE = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
ENCODINGS = [
    *["utf-8", "utf-8-sig", *WIDE, "ascii", "latin-1", "cp437", "cp850", "cp852", "cp866", "mac-roman"],
    *[f"iso8859-{part}" for part in range(2, 17) if part != 12],
    *[f"cp{page}" for page in range(1250, 1259)],
    *["koi8-r", "koi8-u", "shift-jis", "cp932", "euc-jp", "iso2022-jp", "euc-kr", "cp949", "gb2312", "gbk", "gb18030"],
    *["big5", "big5hkscs", "tis-620"],
]
MIXED = "utf-8+cp1252"  # UTF-8 with some lines or words in Windows-1252, as `seqloom data clean` reads such files
MARKED = ["utf-16", "utf-32"]  # their decoders remove the byte order mark
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
OTHER_ENCODING = "name the encoding of the file: --encoding NAME"  # the fix of bytes that do not fit the given one
MANY_LINES = 100  # good lines before a bad one: then the file has mixed encodings


def text_of(chunks: Iterator[bytes], encoding: str, path: Path, ledger: Ledger) -> Iterator[str]:
    """Yield the characters of chunks of bytes, without a byte order mark at the start."""
    decoder_of = known_encoding(encoding, path, ledger).incrementaldecoder
    assert decoder_of is not None, "every encoding of the list has one"
    decoder, reading = decoder_of(error_handler(encoding)), DecodedText(path, encoding.removesuffix("+cp1252"), ledger)
    before = 0  # bytes of the chunks that were decoded
    for chunk in itertools.chain(chunks, [b""]):
        state = decoder.getstate()
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            decoder.setstate(state)
            carried = len(error.object) - len(chunk)  # bytes of a character that began in the chunk before
            reading.follow(decoder.decode(chunk[: max(0, error.start - carried)]))
            reading.refuse(error, before - carried + error.start, at_end=not chunk)
        before += len(chunk)
        if text:
            yield reading.follow(text)


def in_either_encoding(reading: ReadingConfig, path: Path, ledger: Ledger) -> ReadingConfig:
    """The settings that also read lines in Windows-1252 among lines in UTF-8, for a look at a file that is refused."""
    utf_8 = known_encoding(reading.encoding, path, ledger).name == "utf-8"
    return msgspec.structs.replace(reading, encoding=MIXED) if utf_8 else reading


def error_handler(encoding: str) -> str:
    """The name of the error handler of an encoding; that of MIXED is registered with Python first."""
    if encoding != MIXED:
        return "strict"
    codecs.register_error(MIXED, _as_windows)
    return MIXED


def _as_windows(error: UnicodeError) -> tuple[str, int]:
    """Decode the bytes that are not UTF-8 as Windows-1252; raise the error if they are not that either."""
    assert isinstance(error, UnicodeDecodeError)
    try:
        return error.object[error.start : error.end].decode("cp1252"), error.end
    except UnicodeDecodeError:
        raise error from None


def lines_in_windows(path: Path, ledger: Ledger) -> list[int]:
    """Return the numbers of the lines that are not UTF-8 but Windows-1252, if other lines beyond ASCII are UTF-8.

    There are none in a file that cannot be read as MIXED.
    """
    found, others, either = list[int](), 0, error_handler(MIXED)
    for number, line in enumerate(_byte_lines(chunks_of(path, ledger)), 1):
        if not line.isascii():
            try:
                line.decode()
                others += 1
            except UnicodeDecodeError:
                try:
                    line.decode(errors=either)
                except UnicodeDecodeError:
                    return []
                found.append(number)
    return found if others else []


def _byte_lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines before one that is too long to be read."""
    before = b""
    for chunk in chunks:
        *lines, before = (before + chunk).split(b"\n")
        yield from lines
        if len(before) > 4 * LONGEST_LINE:
            return
    yield before


def known_encoding(encoding: str, path: Path, ledger: Ledger) -> codecs.CodecInfo:
    """The encoding of this name; raises RejectedError if it is not in the list."""
    if encoding == MIXED:
        return codecs.lookup("utf-8")
    try:
        found = codecs.lookup(encoding)
    except (LookupError, ValueError):
        found = None
    if found is None or not (found.name in ENCODINGS or found.name in _canonical_names()):
        text = f"there is no encoding '{encoding}'"
        ledger.bad_file("enc.unknown", text, Place(str(path)), did_you_mean(encoding, ENCODINGS))
    return codecs.lookup("utf-8") if found.name == "utf-8-sig" else found


@functools.cache
def _canonical_names() -> frozenset[str]:
    """Python's names of the encodings in the list."""
    return frozenset(codecs.lookup(name).name for name in ENCODINGS)


def require_width(head: bytes, encoding: str, path: Path, ledger: Ledger) -> None:
    """Raise RejectedError for unexpected UTF-16 or UTF-32, and for an unknown byte order."""
    name = known_encoding(encoding, path, ledger).name
    place = Place(str(path))
    mark = next((mark for mark in MARKS if head.startswith(mark)), b"")
    if name in WIDE:
        if name in MARKED and head and not mark:
            text = f"{name.upper()} without a byte order mark"
            ledger.bad_file("enc.utf16", text, place, f"use --encoding {name}-le or {name}-be")
    elif mark:
        text = f"the file begins with {mark.hex(' ').upper()}, so it is {MARKS[mark].upper()}"
        ledger.bad_file("enc.utf16", text, place, f"use --encoding {MARKS[mark]}")
    elif half := _empty_half(head):
        ledger.bad_file("enc.utf16", "every second byte is NUL, so it is UTF-16", place, f"use --encoding {half}")


def _empty_half(head: bytes) -> str:
    """The UTF-16 encoding of text in which nearly every second byte is NUL, or an empty text."""
    if len(head) < 4:
        return ""
    low, high = head[::2].count(0) / len(head[::2]), head[1::2].count(0) / len(head[1::2])
    if min(low, high) > 0.05 or max(low, high) < 0.8:
        return ""
    return "utf-16-le" if high > low else "utf-16-be"


class DecodedText:
    """The position in a file that is being decoded, for error messages."""

    def __init__(self, path: Path, encoding: str, ledger: Ledger) -> None:
        self.path, self.encoding, self.ledger = path, encoding, ledger
        self.line = 1  # current line
        self.column = 0  # characters read of it
        self.plain = True  # only ASCII so far
        self.started = codecs.lookup(encoding).name in MARKED

    def follow(self, text: str) -> str:
        """Count the text, and return it without a byte order mark at the start of the file."""
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
        """Raise RejectedError for bad bytes at the current position; `offset` counts bytes from 0."""
        bad, place = error.object[error.start :], Place(str(self.path), self.line, self.column + 1)
        if not codecs.lookup(self.encoding).name.startswith("utf-8"):
            shown = " ".join(f"0x{byte:02X}" for byte in bad[: max(1, error.end - error.start)][:4])
            text = f"{shown} is not {self.encoding} ({error.reason}), byte {offset:,} of the file"
            self.ledger.bad_file("enc.bytes", text, place, OTHER_ENCODING)
        found = diagnose(bad, at_end=at_end, plain=self.plain)
        if found.windows and (not self.plain or self.line > MANY_LINES):
            before = f"{counted(self.line - 1, 'line')} before {'is' if self.line == 2 else 'are'} UTF-8"
            text = f"{found.text}, byte {offset:,} of the file, but the {before}"
            whole = "use --encoding cp1252 if the whole file is" if self.plain else "save the whole file as UTF-8"
            offer = self.ledger.or_clean(whole, str(self.path))
            is_mixed = offer != whole and lines_in_windows(self.path, Ledger())  # only such a file is cleaned
            self.ledger.bad_file("enc.mixed", text, place, offer if is_mixed else whole)
        remedy = {"encoding": "cp1252"} if found.windows else None
        self.ledger.bad_file("enc.utf8", f"{found.text}, byte {offset:,} of the file", place, found.fix, remedy)


class EncodingDiagnosis(NamedTuple):
    """What bytes that are not UTF-8 seem to be, and the fix."""

    text: str
    fix: str
    windows: bool = False


def diagnose(bad: bytes, *, at_end: bool, plain: bool) -> EncodingDiagnosis:
    r"""A diagnosis of bytes that are not valid UTF-8.

    >>> diagnose(b"\xe9 au lait", at_end=False, plain=True).text
    '0xE9 is not UTF-8; looks like Windows-1252'
    """
    first, follows = bad[0], len(bad) > 1 and 0x80 <= bad[1] <= 0xBF
    if at_end and _cut(bad) and not (plain and len(bad) == 1 and first >= 0xE0):  # 0xE0.. are small letters in cp1252
        return EncodingDiagnosis("the file ends in the middle of a character (truncated copy?)", "copy it again")
    if first == 0xED and follows and bad[1] >= 0xA0:
        return EncodingDiagnosis("a surrogate, which is not valid in UTF-8", "export the file again from its source")
    if follows and (first in (0xC0, 0xC1) or (first == 0xE0 and bad[1] < 0xA0) or (first == 0xF0 and bad[1] < 0x90)):
        return EncodingDiagnosis(
            f"0x{first:02X} 0x{bad[1]:02X} is an overlong form, which is not valid in UTF-8", "export the file again"
        )
    line = bad.split(b"\n", 1)[0][:HEAD]
    if any(byte in line for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)):  # not in cp1252
        return EncodingDiagnosis(f"0x{first:02X} is not UTF-8", OTHER_ENCODING)
    text = f"0x{first:02X} is not UTF-8; looks like Windows-1252"
    return EncodingDiagnosis(text, "use --encoding cp1252", windows=True)


def _cut(bad: bytes) -> bool:
    """Whether the only problem is that continuation bytes are missing at the end."""
    needed = 2 if 0xC2 <= bad[0] <= 0xDF else 3 if 0xE0 <= bad[0] <= 0xEF else 4 if 0xF0 <= bad[0] <= 0xF4 else 0
    return 0 < len(bad) < needed and all(0x80 <= byte <= 0xBF for byte in bad[1:])


# Characters become passages of complete lines, and each passage is checked once for damaged or odd characters.
#
# A line ends only at \n or \r\n; U+2028, NEL, VT, FF and a bare CR are characters of a line. About a megabyte is
# checked together; single lines are searched only if something was found.

LONGEST_LINE = 16 << 20  # characters
MOJIBAKE_SHARE = 0.001  # of the lines
MOJIBAKE_SAMPLES = 3
# 0x80..0xBF decoded as Latin-1 or Windows-1252, after the lead bytes C3, C2 and E2 80 of UTF-8.
_TRAIL = "\u0080-\u00bf\u20ac\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\u017d\u2018\u2019"
_TRAIL += "\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\u017e\u0178"
MOJIBAKE = re.compile(f"\u00c3[{_TRAIL}]|\u00c2[\u00a0-\u00bf]|\u00e2\u20ac[{_TRAIL}]")
LOST = {
    "\ufeff": ("enc.bom_inside", "a byte order mark inside the file; were files joined?"),
    "\ufffd": ("enc.replacement", "U+FFFD: a character was lost in an earlier conversion"),
}
AROUND = 15  # characters shown on each side of a finding


class Passage(NamedTuple):
    """Complete lines with their line ends; only the last line of a file may have none."""

    first_line: int
    text: str


class QuotedLineEnds:
    """Counts line ends that belong to a value: a reader takes them as they come, and they say nothing about the file.

    Spreadsheets write LF inside cells and CR LF after rows.
    """

    def __init__(self) -> None:
        self.feeds = self.both = 0  # \n, and \r\n among them

    def take(self, line: str) -> None:
        """Count the end of a line, which is inside quotes."""
        self.feeds += line.endswith("\n")
        self.both += line.endswith("\r\n")


def passages_of(
    texts: Iterator[str],
    path: Path,
    ledger: Ledger,
    longest: int = LONGEST_LINE,
    quoted: QuotedLineEnds | None = None,
) -> Iterator[Passage]:
    """Yield the text in passages that end at line ends, checked by a `PassageChecker`."""
    checker = PassageChecker(path, ledger, quoted or QuotedLineEnds())
    pending: list[str] = []  # parts of an incomplete line
    size = 0
    for text in texts:
        cut = text.rfind("\n") + 1
        if cut:
            yield checker.check("".join([*pending, text[:cut]]))
            pending, size = [], 0
        pending.append(text[cut:])
        size += len(text) - cut
        if size > longest:
            checker.refuse_long(pending, longest)
    if rest := "".join(pending):
        checker.require_feeds(rest)
        yield checker.check(rest)
    checker.finish()


class PassageChecker:
    """Checks the passages of one file: rejects NUL and CR line ends, and counts what looks wrong."""

    def __init__(self, path: Path, ledger: Ledger, quoted: QuotedLineEnds) -> None:
        self.path, self.ledger, self.quoted = str(path), ledger, quoted
        self.line = 1  # the first of the next passage
        self.feeds = self.both = self.returns = 0  # \n, \r\n and all \r
        self.broken = 0  # lines with mojibake
        self.broken_samples: list[tuple[str, Place]] = []

    def check(self, text: str) -> Passage:
        """Check a text and return it as a passage."""
        passage = Passage(self.line, text)
        if "\0" in text:
            place = self._place(text, text.index("\0"))
            self.ledger.bad_file("enc.nul", "a NUL character", place, "remove it")
        if "\r" in text:
            self.returns += text.count("\r")
            self.both += text.count("\r\n")
        if not text.isascii():
            for mark, (code, message) in LOST.items():
                if count := text.count(mark):
                    self.ledger.warn(code, message, self._place(text, text.index(mark)), count=count)
            if "\u00c3" in text or "\u00c2" in text or "\u00e2\u20ac" in text:
                self._count_mojibake(text)
        newlines = text.count("\n")
        self.feeds += newlines
        self.line += newlines
        return passage

    def _count_mojibake(self, text: str) -> None:
        end = -1  # of the line that was counted last
        for found in MOJIBAKE.finditer(text):
            if found.start() < end:
                continue
            self.broken += 1
            end = text.find("\n", found.end())
            end = len(text) if end < 0 else end
            if len(self.broken_samples) < MOJIBAKE_SAMPLES:
                begin = text.rfind("\n", 0, found.start()) + 1
                shown = text[max(begin, found.start() - AROUND) : min(end, found.end() + AROUND)]
                self.broken_samples.append((shown, self._place(text, found.start())))

    def _place(self, text: str, at: int) -> Place:
        return Place(self.path, self.line + text.count("\n", 0, at), at - text.rfind("\n", 0, at))

    def refuse_long(self, pending: list[str], longest: int) -> NoReturn:
        """Raise RejectedError for a line that is too long."""
        if self.line == 1 and (returns := sum(piece.count("\r") for piece in pending)):
            self._refuse_returns(f"more than {_amount(longest)}", returns)
        text = f"line {self.line:,} is longer than {longest >> 20:,} MiB"
        fix = "check that the file is text with one row per line, or split this line"
        self.ledger.bad_file("line.too_long", text, Place(self.path, self.line), fix)

    def require_feeds(self, rest: str) -> None:
        """Raise RejectedError if the only line ends of the file are CR."""
        if self.line == 1 and (returns := rest.count("\r")):
            self._refuse_returns(_amount(len(rest)), returns)

    def _refuse_returns(self, size: str, returns: int) -> NoReturn:
        text = f"one line of {size} with {returns:,} CR and no LF (line ends of old Macs)"
        self.ledger.bad_file("line.cr_only", text, Place(self.path, 1), "convert CR to LF: tr '\\r' '\\n'")

    def finish(self) -> None:
        """Report findings that are known only at the end of the file."""
        place = Place(self.path)
        feeds, both = self.feeds - self.quoted.feeds, self.both - self.quoted.both
        if both and feeds > both:
            ends = f"{counted(both, 'line')} {'ends' if both == 1 else 'end'}"
            text = f"{ends} with CR LF and {feeds - both:,} with LF"
            self.ledger.note("line.mixed", text, place)
        if bare := self.returns - self.both:
            self.ledger.note("line.bare_cr", f"{bare:,} CR inside lines, read as characters", place, count=bare)
        samples = self.broken_samples if self.broken > MOJIBAKE_SHARE * self.line else []
        fix = self.ledger.or_clean("export the file again from its source", self.path)
        for number, (shown, where) in enumerate(samples, 1):
            count = 1 if number < len(samples) else self.broken - len(samples) + 1  # the last one counts the rest
            text = f"'{shown}' looks like UTF-8 that was decoded as Windows-1252"
            self.ledger.warn("enc.mojibake", text, where, fix, count=count)


def _amount(size: int) -> str:
    return bytes_said(size) if size >= 1e5 else counted(size, "character")


def open_passages(
    path: Path,
    reading: ReadingConfig,
    ledger: Ledger,
    longest: int = LONGEST_LINE,
    quoted: QuotedLineEnds | None = None,
) -> Iterator[Passage]:
    """Yield a text file as passages of complete lines, with their line ends."""
    format: Format = "text" if reading.format in (None, "folder", "parallel") else reading.format
    require_regular(path, ledger)
    chunks, first = chunks_of(path, ledger, format), b""
    while len(first) < HEAD and (chunk := next(chunks, b"")):
        first += chunk
    require_text_head(path, first[:HEAD], format, ledger)  # again: these are the unpacked bytes
    require_width(first[:HEAD], reading.encoding, path, ledger)
    texts = text_of(itertools.chain([first], chunks), reading.encoding, path, ledger)
    yield from passages_of(texts, path, ledger, longest, quoted)


def lines_in(text: str) -> list[str]:
    r"""The lines of a passage, without line ends.

    >>> lines_in("a\r\nb\u2028c\nd")
    ['a', 'b\u2028c', 'd']
    """
    lines = (text.replace("\r\n", "\n") if "\r" in text else text).split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def lines_of(path: Path, reading: ReadingConfig, ledger: Ledger) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file with their numbers from 1, after all checks of file, encoding and lines."""
    for first_line, text in open_passages(path, reading, ledger):
        yield from enumerate(lines_in(text), first_line)
