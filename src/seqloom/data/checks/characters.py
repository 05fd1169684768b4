"""Characters that people do not see or do not mean: bidi controls, invisible ones, noncharacters and private use.

They are counted and shown, never changed ("Bad Characters", Boucher et al. 2022). A text is looked at as an array of
code points, and one table says of every code point what it is; a block of ASCII costs nothing at all.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from seqloom.data.checks.blocks import ExampleBlock
from seqloom.data.problems import SAMPLES, Ledger, Place

BIDI, INVISIBLE, ODD, JOINER, TAG, MARK = 1, 2, 3, 4, 5, 6
CODES = {BIDI: "uni.bidi_control", INVISIBLE: "uni.invisible", ODD: "uni.odd", MARK: "uni.invisible"}
CURES = {
    BIDI: "remove it unless the text needs it: what is shown is not the order in which it is read",
    INVISIBLE: "remove it unless the text needs it: words that look the same are different to a model",
    ODD: "look where it comes from: it has no meaning outside the program that wrote it",
}
CURES[MARK] = CURES[INVISIBLE]
RANGES = {
    BIDI: ((0x202A, 0x202E), (0x2066, 0x2069)),
    INVISIBLE: (
        *((0xAD, 0xAD), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180E, 0x180E), (0x200B, 0x200B)),
        *((0x200E, 0x200F), (0x2060, 0x2064), (0x206A, 0x206F), (0x3164, 0x3164), (0xFFA0, 0xFFA0)),
    ),
    ODD: ((0xE000, 0xF8FF), (0xFDD0, 0xFDEF), (0xF0000, 0x10FFFF)),
    JOINER: ((0x200C, 0x200D),),  # Persian, Indic scripts and emoji need single ones
    TAG: ((0xE0000, 0xE007F),),  # some flags need them behind a black flag
    MARK: ((0xFEFF, 0xFEFF),),  # the byte order mark, which readers of text tell of themselves
}
BLACK_FLAG = 0x1F3F4
SLICE = 1 << 20  # characters looked at together
AROUND = 12  # characters shown on either side


class _CharacterSample(NamedTuple):
    text: str
    place: Place


class CharacterCheck:
    """Finds uni.bidi_control, uni.invisible and uni.odd in inputs and target texts."""

    def __init__(self) -> None:
        self._rows = dict.fromkeys(CODES, 0)
        self._samples: dict[int, list[_CharacterSample]] = {kind: [] for kind in CODES}

    def see(self, block: ExampleBlock) -> None:
        """Count the rows of a block that hold such characters."""
        for texts in [*block.inputs, *([block.targets] if block.targets else [])]:
            for start, some in _slices(texts):
                self._see(some, start, block)

    def _see(self, texts: Sequence[str], start: int, block: ExampleBlock) -> None:
        joined = "\n".join(texts)
        if joined.isascii():
            return
        kinds = _kinds(joined)
        ends = np.cumsum([len(text) + 1 for text in texts])
        for kind in CODES:
            if len(places := np.flatnonzero(kinds == kind)):
                rows, firsts = np.unique(np.searchsorted(ends, places, side="right"), return_index=True)
                self._rows[kind] += len(rows)
                wanted = SAMPLES - len(self._samples[kind])
                for row, at in zip(rows[:wanted], places[firsts[:wanted]], strict=True):
                    inside = int(at - ends[row] + len(texts[row]) + 1)
                    place = block.examples[start + int(row)].place
                    self._samples[kind].append(_CharacterSample(_described(texts[row], inside), place))

    def finish(self, ledger: Ledger) -> None:
        """Write how many rows hold such characters."""
        for kind, code in CODES.items():
            if kind == MARK and ledger.counts["enc.bom_inside"]:
                continue
            for text, place in (samples := self._samples[kind]):
                ledger.warn(code, text, place, CURES[kind])
            if more := self._rows[kind] - len(samples):
                ledger.warn(code, "further rows", samples[-1].place, count=more)


def _slices(texts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Runs of neighbouring texts of about SLICE characters, each with the number of its first."""
    start = size = 0
    for end, text in enumerate(texts):
        size += len(text)
        if size > SLICE:
            yield start, texts[start : end + 1]
            start, size = end + 1, 0
    if start < len(texts):
        yield start, texts[start:]


@lru_cache(maxsize=1)
def _table() -> np.ndarray:
    table = np.zeros(0x110000, np.uint8)
    for kind, ranges in RANGES.items():
        for first, last in ranges:
            table[first : last + 1] = kind
    table[0xFFFE::0x10000] = table[0xFFFF::0x10000] = ODD
    return table


def _kinds(text: str) -> np.ndarray:
    """What each character is; joiners and tags are invisible ones where nothing needs them."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    kinds = _table()[codes]
    joiners, tags = np.flatnonzero(kinds == JOINER), np.flatnonzero(kinds == TAG)
    if len(joiners):
        kinds[joiners[1:][np.diff(joiners) == 1]] = INVISIBLE
    if len(tags):
        begins = tags[np.diff(tags, prepend=-2) > 1]
        kinds[begins[codes[begins - 1] != BLACK_FLAG]] = INVISIBLE
    return kinds


def _described(text: str, at: int) -> str:
    letter = text[at]
    name = unicodedata.name(letter, "private use" if unicodedata.category(letter) == "Co" else "a noncharacter")
    around = text[max(0, at - AROUND) : at + AROUND + 1]
    return f"U+{ord(letter):04X} ({name.lower()}) at character {at + 1:,}: '{around}'"
