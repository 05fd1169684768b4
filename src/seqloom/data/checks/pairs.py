"""Parallel text: do source and target lines belong together?

Equal counts of lines do not prove it. But long sentences have long translations: in a window of neighbouring lines, the
logarithms of the two lengths go together. Where one side is shifted by a few lines, they go together only when it is
shifted back; where it is shuffled, not at all. Two windows in a row must agree before a word is said.
"""

import math
from typing import NamedTuple

import numpy as np

from seqloom.data.checks.blocks import BlockPlaces, ExampleBlock
from seqloom.data.problems import SAMPLES, Ledger
from seqloom.report.numbers import share

WINDOW = 64  # lines
SHIFTS = tuple(shift for shift in range(-5, 6) if shift)
GAIN, RECOVERED = 0.35, 0.5  # how much better, and how good, the correlation is where a shift undoes the damage
USUAL, LOST, LOST_WINDOWS = 0.6, 0.2, 4  # of sound windows, of damaged ones, and how many of these in a row
SPREAD = 0.15  # of the logarithms in a window: with less, as in a file sorted by length, nothing can be said
COPIES = 0.5
RATIO = 9.0
FEWEST_ROWS = 20  # for a usual ratio of lengths, and for speaking of copies


class Break(NamedTuple):
    """From which row on the sides do not belong together, and the shift that would mend it; None: no shift does."""

    row: int
    shift: int | None


class _PairPart:
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
        self._parts: dict[str, _PairPart] = {}

    def see(self, block: ExampleBlock) -> None:
        """Keep the lengths of further pairs."""
        self._parts.setdefault(block.part, _PairPart()).add(block)

    def finish(self, ledger: Ledger) -> None:
        """Write what does not look like translations."""
        for name, part in self._parts.items():
            source, target = part.logarithms
            _find_copies(ledger, name, part)
            _find_ratios(ledger, part, target - source)
            if (found := find_break(source, target)) is not None:
                _warn_of_break(ledger, part, found)


def _find_copies(ledger: Ledger, name: str, part: _PairPart) -> None:
    rows = part.places.rows
    if rows >= FEWEST_ROWS and part.copies > COPIES * rows:
        text = (
            f"in {part.copies:,} of {rows:,} pairs of {name} ({share(part.copies, rows)}) the target equals the source"
        )
        ledger.warn("par.copies", text, part.places[0], "is one file given twice?", part.copies)


def _find_ratios(ledger: Ledger, part: _PairPart, ratios: np.ndarray) -> None:
    usual = float(np.median(ratios)) if len(ratios) >= FEWEST_ROWS else 0.0
    far = np.flatnonzero(np.abs(ratios - usual) > math.log(RATIO))
    for row in far[:SAMPLES].tolist():
        factor = math.exp(abs(float(ratios[row]) - usual))
        side, other = ("target", "source") if ratios[row] > usual else ("source", "target")
        text = f"the {side} is {factor:.0f} times as long as its {other} lets expect"
        ledger.warn("par.ratio", text, part.places[row], "does it belong to this line?")
    if len(far) > SAMPLES:
        ledger.warn("par.ratio", "further rows", part.places[int(far[-1])], count=len(far) - SAMPLES)


def _warn_of_break(ledger: Ledger, part: _PairPart, found: Break) -> None:
    place = part.places[found.row]
    cause = (
        "the lines do not go together any more"
        if found.shift is None
        else f"the target seems to be {abs(found.shift)} {'line' if abs(found.shift) == 1 else 'lines'} "
        f"{'late' if found.shift > 0 else 'early'}"
    )
    text = f"length ratio breaks at {place.line or found.row + 1}: {cause}"
    ledger.warn("par.suspect", text, place, "look at the lines before it: was one lost, or one added?")


def find_break(source: np.ndarray, target: np.ndarray) -> Break | None:
    """Where the logarithms of lengths [rows] stop going together, or None."""
    if len(source) < 2 * WINDOW:
        return None
    still = _correlations(source, target, 0)
    shifted = np.stack([_correlations(source, target, shift) for shift in SHIFTS])  # [shifts, windows]
    mended = (shifted > RECOVERED) & (shifted - still > GAIN)  # false where one of them is not known
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
    """The target as if it had not been shifted: element i is target[i + shift], the ends repeated."""
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
    return start + int(np.argmin(np.concatenate([[0.0], fits])))  # before it the shift only does harm
