"""Sums along the way from a baseline to an input, as fine as it takes to be complete.

    sum over elements of int_a^b slope du = value(b) - value(a)        on every part a..b of the way

So each part of the way says itself how far its sum is off. Parts that are off are cut in two, which puts the steps
where the way bends: at the kinks of ReLUs and maxima, and near a baseline that a normalisation blows up. There the
whole rise may lie in a thousandth of the way, so the numbers themselves, which cost a pass forward and none back, are
asked first at ever smaller shares, and a stretch that is nearly straight between its ends is one part from the start.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

NODES = 4  # of Gauss and Legendre on each part of the way
SHARES = (0.0, *(4.0**-power for power in range(7, 0, -1)), 0.5, 1.0)  # where the numbers are asked first
STRAIGHT = 0.1  # of the largest rise: what the numbers may be off a straight line inside one part
FAR = 4.0  # times as far from the baseline: a part that ends there is cut at the mean of the powers

Slope = Callable[[np.ndarray], np.ndarray]  # shares [N] of the way -> [N,E,G] the slope of G numbers by each element
Value = Callable[[Sequence[float]], np.ndarray]  # shares of the way -> [N,G] the numbers themselves
Badness = Callable[[np.ndarray], np.ndarray]  # what is missing [P,G] of P parts -> [P]; all is well up to a sum of 1


class _Part(NamedTuple):
    """A part of the way: what its elements get, and how far that is from the rise of the numbers."""

    start: float
    stop: float
    values: np.ndarray  # [E,G]
    missing: np.ndarray  # [G]


class Way(NamedTuple):
    """What is asked along the way."""

    slope: Slope
    value: Value
    badness: Badness


def completed(way: Way, most: int) -> tuple[np.ndarray, int]:
    """[E,G] the sums along the way, complete unless that takes more than `most` steps; and how many it took."""
    known = dict(zip(SHARES, way.value(SHARES), strict=True))
    parts = _parts(way, list(pairwise(edges(known, max(1, most // NODES)))), known)
    steps = NODES * len(parts)
    while (bad := _bad(way, parts)) and steps + 2 * NODES * len(bad) <= most:
        middles = {at: _middle(parts[at]) for at in bad}
        known |= dict(zip(middles.values(), way.value(list(middles.values())), strict=True))
        halves = [span for at in bad for span in pairwise((parts[at].start, middles[at], parts[at].stop))]
        parts = [part for at, part in enumerate(parts) if at not in middles] + _parts(way, halves, known)
        steps += NODES * len(halves)
    return np.sum([part.values for part in parts], axis=0), steps


def edges(known: Mapping[float, np.ndarray], most: int) -> list[float]:
    """The ends of at most `most` parts: of the shares whose numbers [G] are known, those where the way bends."""
    kept, whole = sorted(known), np.max([np.abs(each - known[0.0]) for each in known.values()], axis=0).clip(min=1e-30)
    while len(kept) > 2:
        bends = [_bend(known, start, stop, whole) for start, stop in zip(kept, kept[2:], strict=False)]
        least = int(np.argmin(bends))
        if bends[least] > STRAIGHT and len(kept) - 1 <= most:
            break
        del kept[least + 1]
    return kept


def _bend(known: Mapping[float, np.ndarray], start: float, stop: float, whole: np.ndarray) -> float:
    """How far the numbers between two shares are off the line between their ends, at most, as a part of `whole` [G]."""
    rise = (known[stop] - known[start]) / (stop - start)
    inner = [share for share in known if start < share < stop]
    return max(float((np.abs(known[at] - known[start] - rise * (at - start)) / whole).max()) for at in inner)


def _middle(part: _Part) -> float:
    """Where a part is cut: nearer to the baseline where it reaches far from it, for the way bends there."""
    if part.start == 0:
        return part.stop / FAR
    if part.stop > FAR * part.start:
        return math.sqrt(part.start * part.stop)
    return (part.start + part.stop) / 2


def told(way: Way, steps: int) -> np.ndarray:
    """[E,G] the sums along the whole way with so many steps."""
    nodes, weights = _nodes(0.0, 1.0, steps)
    found: np.ndarray = np.einsum("n,neg->eg", weights, way.slope(nodes))
    return found


def _bad(way: Way, parts: Sequence[_Part]) -> list[int]:
    """The parts with more than their share of what is missing, if that is too much."""
    badness = way.badness(np.stack([part.missing for part in parts]))
    if badness.sum() <= 1:
        return []
    return [at for at, own in enumerate(badness) if own > 0.5 / len(parts)]


def _parts(way: Way, spans: Sequence[tuple[float, float]], known: dict[float, np.ndarray]) -> list[_Part]:
    nodes, weights = zip(*(_nodes(start, stop, NODES) for start, stop in spans), strict=True)
    slopes = way.slope(np.concatenate(nodes)).reshape(len(spans), NODES, -1, len(known[0.0]))
    found = []
    for (start, stop), weight, slope in zip(spans, weights, slopes, strict=True):
        values = np.einsum("n,neg->eg", weight, slope)
        found.append(_Part(start, stop, values, values.sum(axis=0) - (known[stop] - known[start])))
    return found


def _nodes(start: float, stop: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    half = (stop - start) / 2
    return start + half * (nodes + 1), half * weights
