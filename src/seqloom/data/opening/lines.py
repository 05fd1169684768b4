"""Characters become passages of whole lines, and each passage is looked at once for what is damaged or odd.

A line ends at \\n or \\r\\n and nowhere else; U+2028, NEL, VT, FF and a bare CR are characters of a line. A
megabyte is looked at in one go; single lines are searched only when something was found.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from seqloom.data.problems import Ledger, Place, counted

LONGEST_LINE = 16 << 20  # characters
MOJIBAKE_SHARE = 0.001  # of the lines
MOJIBAKE_SAMPLES = 3
# 0x80..0xBF as Latin-1 or Windows-1252 shows them, behind the lead bytes C3, C2 and E2 80 of UTF-8.
_TRAIL = "\u0080-\u00bf\u20ac\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\u017d\u2018\u2019"
_TRAIL += "\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\u017e\u0178"
MOJIBAKE = re.compile(f"\u00c3[{_TRAIL}]|\u00c2[\u00a0-\u00bf]|\u00e2\u20ac[{_TRAIL}]")
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
            self._look_beyond_ascii(text)
        newlines = text.count("\n")
        self.feeds += newlines
        self.line += newlines
        return passage

    def _look_beyond_ascii(self, text: str) -> None:
        if "\ufeff" in text:
            place, count = self._place(text, text.index("\ufeff")), text.count("\ufeff")
            self.ledger.warn("enc.bom_inside", "a byte order mark inside: files joined?", place, count=count)
        if "\ufffd" in text:
            place, count = self._place(text, text.index("\ufffd")), text.count("\ufffd")
            self.ledger.warn("enc.replacement", "U+FFFD: a character was lost before", place, count=count)
        if "\u00c3" in text or "\u00c2" in text or "\u00e2\u20ac" in text:
            self._count_mojibake(text)

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
        if self.broken > MOJIBAKE_SHARE * self.line:
            self._warn_of_mojibake()

    def _warn_of_mojibake(self) -> None:
        uncounted = self.broken
        for number, (shown, where) in enumerate(self.broken_samples, 1):
            count = uncounted if number == len(self.broken_samples) else 1
            uncounted -= count
            text = f"'{shown}' looks like UTF-8 that was once read as Windows-1252"
            self.ledger.warn("enc.mojibake", text, where, "write the file again from its source", count=count)


def _amount(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else counted(size, "character")
