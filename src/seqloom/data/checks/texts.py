"""Checks of texts: invisible and odd characters, and pairs of parallel text that are not translations.

Bidi controls, invisible characters, noncharacters and private use are counted and shown, never changed ("Bad
Characters", Boucher et al. 2022). A text is checked as an array of code points against one table; ASCII is skipped.

Two files of parallel text may have the same number of lines and still be misaligned. But long sentences have long
translations: in a window of neighboring lines, the logarithms of the two lengths correlate. If one side is shifted by a
few lines, they correlate only after it is shifted back; if it is shuffled, not at all. Two windows in a row must agree
before a warning.
"""

import math
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from seqloom.data.checks.check import BlockPlaces, ExampleBlock
from seqloom.data.problems import SAMPLES, Ledger, Place
from seqloom.report.numbers import counted, share

BIDI, INVISIBLE, ODD, JOINER, TAG, MARK = 1, 2, 3, 4, 5, 6
CODES = {BIDI: "uni.bidi_control", INVISIBLE: "uni.invisible", ODD: "uni.odd", MARK: "uni.invisible"}
CURES = {
    BIDI: "remove it unless the text needs it: the text is displayed in another order than the model reads it",
    INVISIBLE: "remove it unless the text needs it: words that look the same are different for a model",
    ODD: "find out where it comes from: it has no meaning outside the program that wrote it",
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
    TAG: ((0xE0000, 0xE007F),),  # some flag emoji need them after a black flag
    MARK: ((0xFEFF, 0xFEFF),),  # the byte order mark, which text readers report themselves
}
BLACK_FLAG = 0x1F3F4
SLICE = 1 << 20  # characters checked together
AROUND = 12  # characters shown on either side


class CharacterCheck:
    """Finds uni.bidi_control, uni.invisible and uni.odd in inputs and target texts."""

    def __init__(self) -> None:
        self._rows = dict.fromkeys(CODES, 0)
        self._samples: dict[int, list[tuple[str, Place]]] = {kind: [] for kind in CODES}

    def update(self, block: ExampleBlock) -> None:
        """Count the rows of a block with these characters."""
        for texts in [*block.inputs, *([block.targets] if block.targets else [])]:
            start = size = 0
            for end, text in enumerate(texts, 1):  # about SLICE characters at a time
                size += len(text)
                if size > SLICE or end == len(texts):
                    self._check(texts[start:end], start, block)
                    start, size = end, 0

    def _check(self, texts: Sequence[str], start: int, block: ExampleBlock) -> None:
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
                    place = block.examples.place(start + int(row))
                    self._samples[kind].append((_described(texts[row], inside), place))

    def finish(self, ledger: Ledger) -> None:
        """Write the findings to the ledger."""
        for kind, code in CODES.items():
            if kind == MARK and ledger.counts["enc.bom_inside"]:
                continue
            for text, place in (samples := self._samples[kind]):
                ledger.warn(code, text, place, CURES[kind])
            if more := self._rows[kind] - len(samples):
                ledger.warn(code, "more rows", samples[-1][1], count=more)


@lru_cache(maxsize=1)
def _table() -> np.ndarray:
    table = np.zeros(0x110000, np.uint8)
    for kind, ranges in RANGES.items():
        for first, last in ranges:
            table[first : last + 1] = kind
    table[0xFFFE::0x10000] = table[0xFFFF::0x10000] = ODD
    return table


def _kinds(text: str) -> np.ndarray:
    """The kind of each character; joiners and tags count as invisible unless their neighbors need them."""
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


WINDOW = 64  # lines
SHIFTS = tuple(shift for shift in range(-5, 6) if shift)
GAIN, RECOVERED = 0.35, 0.5  # least gain and least correlation after a shift that undoes the damage
USUAL, LOST, LOST_WINDOWS = 0.6, 0.2, 4  # correlation of good and damaged windows, and damaged windows in a row
SPREAD = 0.15  # of the logarithms in a window: with less, as in a file sorted by length, the check is skipped
COPIES = 0.5
RATIO = 9.0
FEWEST_ROWS = 20  # for a typical ratio of lengths, and for a warning of copies


class Break(NamedTuple):
    """The row from which on the sides are misaligned, and the shift that would align them; None: no shift does."""

    row: int
    shift: int | None


class _SplitPairs:
    def __init__(self) -> None:
        self.places = BlockPlaces()
        self.copies = 0
        self._lengths: list[np.ndarray] = []

    def add(self, block: ExampleBlock) -> None:
        sources, targets = block.inputs[0], block.targets
        self.places.add(block.examples)
        self.copies += sum(map(str.__eq__, sources, targets))
        lengths = [np.fromiter(map(len, side), np.int32, len(side)) for side in (sources, targets)]
        self._lengths.append(np.stack(lengths))

    @property
    def logarithms(self) -> np.ndarray:
        """[2, rows] of the lengths of source and target."""
        lengths: np.ndarray = np.concatenate(self._lengths, axis=1)
        return np.log(np.maximum(lengths, 1).astype(np.float32))  # type: ignore[no-any-return]


class PairCheck:
    """Finds par.suspect, par.copies and par.ratio in parallel text."""

    def __init__(self) -> None:
        self._parts: dict[str, _SplitPairs] = {}

    def update(self, block: ExampleBlock) -> None:
        """Add the lengths of more pairs."""
        self._parts.setdefault(block.split, _SplitPairs()).add(block)

    def finish(self, ledger: Ledger) -> None:
        """Write the findings to the ledger."""
        for name, part in self._parts.items():
            source, target = part.logarithms
            rows, copies = part.places.rows, part.copies
            if rows >= FEWEST_ROWS and copies > COPIES * rows:
                text = f"in {copies:,} of {rows:,} pairs in {name} ({share(copies, rows)}) the target equals the source"
                ledger.warn("par.copies", text, part.places[0], "check whether one file was given twice", copies)
            _find_ratios(ledger, part, target - source)
            if (found := find_break(source, target)) is not None:
                place, cause = part.places[found.row], "source and target no longer match"
                if found.shift is not None:
                    late = "late" if found.shift > 0 else "early"
                    cause = f"the target seems to be {counted(abs(found.shift), 'line')} {late}"
                text = f"the sides look misaligned from line {place.line or found.row + 1} on: {cause}"
                ledger.warn("par.suspect", text, place, "check the lines before it for a missing or an extra line")


def _find_ratios(ledger: Ledger, part: _SplitPairs, ratios: np.ndarray) -> None:
    usual = float(np.median(ratios)) if len(ratios) >= FEWEST_ROWS else 0.0
    far = np.flatnonzero(np.abs(ratios - usual) > math.log(RATIO))
    for row in far[:SAMPLES].tolist():
        factor = math.exp(abs(float(ratios[row]) - usual))
        side, other = ("target", "source") if ratios[row] > usual else ("source", "target")
        text = f"the {side} is {factor:.0f} times as long as expected from its {other}"
        ledger.warn("par.ratio", text, part.places[row], "check whether it belongs to this line")
    if len(far) > SAMPLES:
        ledger.warn("par.ratio", "more rows", part.places[int(far[-1])], count=len(far) - SAMPLES)


def find_break(source: np.ndarray, target: np.ndarray) -> Break | None:
    """The row where the logarithms of lengths [rows] stop correlating, or None."""
    if len(source) < 2 * WINDOW:
        return None
    still = _correlations(source, target, 0)
    shifted = np.stack([_correlations(source, target, shift) for shift in SHIFTS])  # [shifts, windows]
    mended = (shifted > RECOVERED) & (shifted - still > GAIN)  # false where one of them is NaN
    pairs = mended[:, 1:] & mended[:, :-1]
    if pairs.any():
        window = int(np.flatnonzero(pairs.any(axis=0))[0])
        shift = SHIFTS[int(np.argmax(np.where(pairs[:, window], shifted[:, window], -1.0)))]
        return Break(_beginning(source, target, shift, window * WINDOW), shift)
    lost = np.convolve(still < LOST, np.ones(LOST_WINDOWS, int), "valid") == LOST_WINDOWS
    sound = still[still >= LOST]
    usual = len(sound) > 1 and np.median(sound) > USUAL
    return Break(int(np.argmax(lost)) * WINDOW, None) if usual and lost.any() else None


def _moved(target: np.ndarray, shift: int) -> np.ndarray:
    """The target shifted back: element i is target[i + shift], with the ends repeated."""
    return target[np.clip(np.arange(len(target)) + shift, 0, len(target) - 1)]


def _correlations(source: np.ndarray, target: np.ndarray, shift: int) -> np.ndarray:
    """[windows] Pearson's correlation in each full window; NaN where a side hardly varies."""
    whole = len(source) // WINDOW * WINDOW
    x = source[:whole].reshape(-1, WINDOW)
    y = _moved(target, shift)[:whole].reshape(-1, WINDOW)
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    spreads = np.sqrt((x * x).mean(axis=1)), np.sqrt((y * y).mean(axis=1))
    known = np.minimum(*spreads) > SPREAD
    return np.where(known, (x * y).mean(axis=1) / np.where(known, spreads[0] * spreads[1], 1.0), np.nan)


def _beginning(source: np.ndarray, target: np.ndarray, shift: int, row: int) -> int:
    """The row from which on the shifted target fits better, within a window of `row`."""
    usual = np.median(target - source)
    gain = np.abs(target - source - usual) - np.abs(_moved(target, shift) - source - usual)
    start = max(0, row - WINDOW)
    fits = np.cumsum(gain[start : row + 2 * WINDOW])
    return start + int(np.argmin(np.concatenate([[0.0], fits])))  # before this row the shift makes it worse
