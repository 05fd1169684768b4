"""Opening a text file safely: is it a file of the kind it claims, unpacked, decoded, cut into lines, and looked at.

    path ──▶ files ──▶ compressed ──▶ characters ──▶ passages of whole lines
            regular?   .gz, .xz in    strict, with    \\n and \\r\\n only,
            magic?     chunks, caps   a diagnosis     about 1 MiB of text each

All of it is a stream; the memory needed does not grow with the file.
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

from seqloom.config.data import Format, ReadingConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.files import HEAD, describe_state, opened, require_regular, require_state, require_text_head
from seqloom.errors import did_you_mean
from seqloom.report.numbers import counted
from seqloom.report.numbers import size as bytes_said

# The bytes of a file in chunks, unpacked where its name ends in .gz or .xz; never the whole file in memory.
#
# A few kilobytes can unpack into terabytes, so the size of what comes out is watched: beyond a floor that small and
# very regular files reach honestly, more than RATIO times the stored size is refused.

CHUNK = 1 << 20  # bytes, unpacked
STORED_CHUNK = 1 << 16  # bytes, packed: small, because what follows a member is copied for each member
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
        """What was given and lies behind the end of the member."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """The next bytes, `max_length` at most."""


class Packing(NamedTuple):
    """How one kind of packed file is unpacked, and the codes of what can go wrong with it."""

    decoder: Callable[[], Decompressor]
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


PACKINGS = {
    ".gz": Packing(_Gzip, "gz.truncated", "gz.crc", "gz.bomb"),
    ".xz": Packing(
        lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY), "xz.truncated", "xz.damaged", "xz.bomb"
    ),
}


def chunks_of(path: Path, ledger: Ledger, format: Format | None = None) -> Iterator[bytes]:  # noqa: A002
    """The bytes of a file, unpacked by its last suffix; refused when they change meanwhile, or are no such format."""
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
            limit = min(LARGEST, max(FLOOR, RATIO * file.tell()))  # of what was read so far: a bomb need not be all
            if total > limit:
                text = f"unpacks to more than {limit:,} bytes, {RATIO} times what was read or the largest size"
                ledger.bad_file(packing.bomb, text, Place(str(path)), "unpack it yourself if that is meant")
            yield chunk
    except EOFError:
        text = "the packed file ends too early (truncated copy?)"
        ledger.bad_file(packing.truncated, text, Place(str(path)), "copy it again")
    except (zlib.error, lzma.LZMAError) as error:
        text, fix = f"the packed bytes are damaged ({error})", "copy it again"
        if "Memory usage limit" in str(error):
            text, fix = f"needs more than {XZ_MEMORY >> 20} MiB of memory to unpack", "pack it again with xz -9 or less"
        ledger.bad_file(packing.damaged, text, Place(str(path)), fix)


def _members(stored: Iterator[bytes], new: Callable[[], Decompressor]) -> Iterator[bytes]:
    """What all members hold, one behind the other, with the zeros that may pad them left out."""
    decoder: Decompressor | None = None
    for data in stored:
        while data:
            if decoder is None:
                if not (data := data.lstrip(b"\0")):
                    break
                decoder = new()
            while chunk := decoder.decompress(data, CHUNK):  # all that it can say now
                yield chunk
                data = b""
                if decoder.eof:
                    break
            data = decoder.unused_data if decoder.eof else b""
            decoder = None if decoder.eof else decoder
    if decoder is not None:
        raise EOFError


# Bytes become characters strictly: what does not fit the encoding is refused, with a diagnosis of what it may be.
#
# Nothing is guessed and nothing replaced. The encoding is UTF-8 unless the user names another from the closed list
# below.

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
    decoder, reading = decoder_of("strict"), DecodedText(path, encoding, ledger)
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


class DecodedText:
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
            fix = "--encoding cp1252 if all of it is" if self.plain else "save the whole file in one encoding, UTF-8"
            self.ledger.bad_file("enc.mixed", text, place, fix)
        self.ledger.bad_file("enc.utf8", f"{found.text}, byte {offset:,} of the file", place, found.fix)


class EncodingDiagnosis(NamedTuple):
    """What bytes that are not UTF-8 seem to be, and the cure."""

    text: str
    fix: str
    windows: bool = False


def diagnose(bad: bytes, *, at_end: bool, plain: bool) -> EncodingDiagnosis:
    r"""What the first of these bytes is, given that it cannot stand there in UTF-8.

    >>> diagnose(b"\xe9 au lait", at_end=False, plain=True).text
    '0xE9 is not UTF-8; looks like Windows-1252'
    """
    first, follows = bad[0], len(bad) > 1 and 0x80 <= bad[1] <= 0xBF
    if at_end and _cut(bad) and not (plain and len(bad) == 1 and first >= 0xE0):  # 0xE0.. are small letters in cp1252
        return EncodingDiagnosis("the file ends in the middle of a character (truncated copy?)", "copy it again")
    if first == 0xED and follows and bad[1] >= 0xA0:
        return EncodingDiagnosis("a surrogate half, which UTF-8 never holds", "write the file again from its source")
    if follows and (first in (0xC0, 0xC1) or (first == 0xE0 and bad[1] < 0xA0) or (first == 0xF0 and bad[1] < 0x90)):
        return EncodingDiagnosis(
            f"0x{first:02X} 0x{bad[1]:02X} is an overlong form, which UTF-8 forbids", "write the file again"
        )
    line = bad.split(b"\n", 1)[0][:HEAD]
    if any(byte in line for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)):  # cp1252 has no such characters
        return EncodingDiagnosis(f"0x{first:02X} is not UTF-8", "name the encoding that the file has: --encoding")
    return EncodingDiagnosis(f"0x{first:02X} is not UTF-8; looks like Windows-1252", "--encoding cp1252", windows=True)


def _cut(bad: bytes) -> bool:
    """Whether all that is wrong is that continuation bytes are missing at the end."""
    needed = 2 if 0xC2 <= bad[0] <= 0xDF else 3 if 0xE0 <= bad[0] <= 0xEF else 4 if 0xF0 <= bad[0] <= 0xF4 else 0
    return 0 < len(bad) < needed and all(0x80 <= byte <= 0xBF for byte in bad[1:])


# Characters become passages of whole lines, and each passage is looked at once for what is damaged or odd.
#
# A line ends at \n or \r\n and nowhere else; U+2028, NEL, VT, FF and a bare CR are characters of a line. A
# megabyte is looked at in one go; single lines are searched only when something was found.

LONGEST_LINE = 16 << 20  # characters
MOJIBAKE_SHARE = 0.001  # of the lines
MOJIBAKE_SAMPLES = 3
# 0x80..0xBF as Latin-1 or Windows-1252 shows them, behind the lead bytes C3, C2 and E2 80 of UTF-8.
_TRAIL = "\u0080-\u00bf\u20ac\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\u017d\u2018\u2019"
_TRAIL += "\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\u017e\u0178"
MOJIBAKE = re.compile(f"\u00c3[{_TRAIL}]|\u00c2[\u00a0-\u00bf]|\u00e2\u20ac[{_TRAIL}]")
LOST = {
    "\ufeff": ("enc.bom_inside", "a byte order mark inside: files joined?"),
    "\ufffd": ("enc.replacement", "U+FFFD: a character was lost before"),
}
AROUND = 15  # characters shown on each side of a finding


class Passage(NamedTuple):
    """Whole lines as they stand in the file, with their ends; only the last line of a file may have none."""

    first_line: int
    text: str


def passages_of(texts: Iterator[str], path: Path, ledger: Ledger, longest: int = LONGEST_LINE) -> Iterator[Passage]:
    """The text cut after line ends, watched by a `Lookout`."""
    lookout = Lookout(path, ledger)
    held: list[str] = []  # pieces of a line that has not ended
    size = 0
    for text in texts:
        cut = text.rfind("\n") + 1
        if cut:
            yield lookout.watch("".join([*held, text[:cut]]))
            held, size = [], 0
        held.append(text[cut:])
        size += len(text) - cut
        if size > longest:
            lookout.refuse_long(held, longest)
    if rest := "".join(held):
        lookout.require_feeds(rest)
        yield lookout.watch(rest)
    lookout.finish()


class Lookout:
    """Watches the passages of one file: refuses NUL and old Mac line ends, counts what looks wrong."""

    def __init__(self, path: Path, ledger: Ledger) -> None:
        self.path, self.ledger = str(path), ledger
        self.line = 1  # the first of the next passage
        self.feeds = self.both = self.returns = 0  # \n, \r\n and all \r
        self.broken = 0  # lines with mojibake
        self.broken_samples: list[tuple[str, Place]] = []

    def watch(self, text: str) -> Passage:
        """The passage, counted and looked at."""
        passage = Passage(self.line, text)
        if "\0" in text:
            place = self._place(text, text.index("\0"))
            self.ledger.bad_file("enc.nul", "a NUL character", place, "remove it: no text holds one")
        if "\r" in text:
            self.returns += text.count("\r")
            self.both += text.count("\r\n")
        if not text.isascii():
            for mark, (code, said) in LOST.items():
                if count := text.count(mark):
                    self.ledger.warn(code, said, self._place(text, text.index(mark)), count=count)
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

    def refuse_long(self, held: list[str], longest: int) -> NoReturn:
        """Say what is wrong with text that has no end of line for too long."""
        if self.line == 1 and (returns := sum(piece.count("\r") for piece in held)):
            self._refuse_returns(f"more than {_amount(longest)}", returns)
        text = f"over {longest >> 20:,} MiB at line {self.line:,} without an end"
        fix = "is this a text with one row per line? If so, cut that line"
        self.ledger.bad_file("line.too_long", text, Place(self.path, self.line), fix)

    def require_feeds(self, rest: str) -> None:
        """Refuse a file whose only line ends are CR, given what stands behind the last LF."""
        if self.line == 1 and (returns := rest.count("\r")):
            self._refuse_returns(_amount(len(rest)), returns)

    def _refuse_returns(self, size: str, returns: int) -> NoReturn:
        text = f"one line of {size} with {returns:,} CR and no LF: line ends of old Macs"
        self.ledger.bad_file("line.cr_only", text, Place(self.path, 1), "change CR to LF: tr '\\r' '\\n'")

    def finish(self) -> None:
        """Say what only the whole file shows."""
        place = Place(self.path)
        if self.both and self.feeds > self.both:
            ends = f"{counted(self.both, 'line')} {'ends' if self.both == 1 else 'end'}"
            text = f"{ends} with CR LF and {self.feeds - self.both:,} with LF"
            self.ledger.note("line.mixed", text, place)
        if bare := self.returns - self.both:
            self.ledger.note("line.bare_cr", f"{bare:,} CR inside lines, read as characters", place, count=bare)
        samples = self.broken_samples if self.broken > MOJIBAKE_SHARE * self.line else []
        for number, (shown, where) in enumerate(samples, 1):
            count = 1 if number < len(samples) else self.broken - len(samples) + 1  # the last stands for all others
            text = f"'{shown}' looks like UTF-8 that was once read as Windows-1252"
            self.ledger.warn("enc.mojibake", text, where, "write the file again from its source", count=count)


def _amount(size: int) -> str:
    return bytes_said(size) if size >= 1e5 else counted(size, "character")


def open_passages(path: Path, reading: ReadingConfig, ledger: Ledger, longest: int = LONGEST_LINE) -> Iterator[Passage]:
    """A text file as passages of whole lines, their line ends kept."""
    format: Format = "text" if reading.format in (None, "folder", "parallel") else reading.format  # noqa: A001
    require_regular(path, ledger)
    chunks, first = chunks_of(path, ledger, format), b""
    while len(first) < HEAD and (chunk := next(chunks, b"")):
        first += chunk
    require_text_head(path, first[:HEAD], format, ledger)  # again: this is what was packed
    require_width(first[:HEAD], reading.encoding, path, ledger)
    texts = text_of(itertools.chain([first], chunks), reading.encoding, path, ledger)
    yield from passages_of(texts, path, ledger, longest)


def lines_in(text: str) -> list[str]:
    r"""The lines of a passage, without their ends.

    >>> lines_in("a\r\nb\u2028c\nd")
    ['a', 'b\u2028c', 'd']
    """
    lines = (text.replace("\r\n", "\n") if "\r" in text else text).split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def lines_of(path: Path, reading: ReadingConfig, ledger: Ledger) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers from 1; all checks of file, encoding and lines are done here."""
    for first_line, text in open_passages(path, reading, ledger):
        yield from enumerate(lines_in(text), first_line)
