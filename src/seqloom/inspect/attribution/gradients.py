"""The methods with gradients: the slope of a score at the input, or on the way to it from a baseline.

    gradient           a_t = |ds/dx_t|                                (Simonyan et al. 2014)
    gradient_x_input   a_t = ds/dx_t . (x_t - b_t)                    exact for a model that is linear in x
    integrated         a_t = (x_t - b_t) . int_0^1 ds/dx_t(b + u(x - b)) du      (Sundararajan et al. 2017)

Integrated gradients add up to s(x) - s(b): steps are taken until less than one in a hundred is missing, for

    sum over elements of int_a^b slope du = value(b) - value(a)        on every part a..b of the way

So each part of the way says itself how far its sum is off. Parts that are off are cut in two, which puts the steps
where the way bends: at the kinks of ReLUs and maxima, and near a baseline that a normalization blows up. There the
whole rise may lie in a thousandth of the way, so the numbers themselves, which cost a pass forward and none back, are
asked first at ever smaller shares, and a segment that is nearly straight between its ends is one part from the start.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ConfigError
from seqloom.inspect.attribution.goals import AttributionGround, Goal, at_work
from seqloom.inspect.subject import Moved

NODES = 4  # of Gauss and Legendre on each part of the way
SHARES = (0.0, *(4.0**-power for power in range(7, 0, -1)), 0.5, 1.0)  # where the numbers are asked first
STRAIGHT = 0.1  # of the largest rise: what the numbers may be off a straight line inside one part
FAR = 4.0  # times as far from the baseline: a part that ends there is cut at the mean of the powers

Slope = Callable[[np.ndarray], np.ndarray]  # shares [N] of the way -> [N,E,G] the slope of G numbers by each element
Value = Callable[[Sequence[float]], np.ndarray]  # shares of the way -> [N,G] the numbers themselves
Badness = Callable[[np.ndarray], np.ndarray]  # what is missing [P,G] of P parts -> [P]; all is well up to a sum of 1


class _PathPart(NamedTuple):
    """A part of the way: what its elements get, and how far that is from the rise of the numbers."""

    start: float
    stop: float
    values: np.ndarray  # [E,G]
    missing: np.ndarray  # [G]


class AttributionPath(NamedTuple):
    """What is asked along the way."""

    slope: Slope
    value: Value
    badness: Badness


def completed(way: AttributionPath, most: int) -> tuple[np.ndarray, int]:
    """[E,G] the sums along the way, complete unless that takes more than `most` steps; and how many it took."""
    known = dict(zip(SHARES, way.value(SHARES), strict=True))
    parts = _parts(way, list(pairwise(edges(known, max(1, most // NODES)))), known)
    steps = NODES * len(parts)
    while True:
        badness = way.badness(np.stack([part.missing for part in parts]))
        bad = [at for at, own in enumerate(badness) if own > 0.5 / len(parts)]  # more than their share
        if badness.sum() <= 1 or not bad or steps + 2 * NODES * len(bad) > most:
            return np.sum([part.values for part in parts], axis=0), steps
        middles = {at: _middle(parts[at]) for at in bad}
        known |= dict(zip(middles.values(), way.value(list(middles.values())), strict=True))
        halves = [span for at in bad for span in pairwise((parts[at].start, middles[at], parts[at].stop))]
        parts = [part for at, part in enumerate(parts) if at not in middles] + _parts(way, halves, known)
        steps += NODES * len(halves)


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


def _middle(part: _PathPart) -> float:
    """Where a part is cut: nearer to the baseline where it reaches far from it, for the way bends there."""
    if part.start == 0:
        return part.stop / FAR
    if part.stop > FAR * part.start:
        return math.sqrt(part.start * part.stop)
    return (part.start + part.stop) / 2


def told(way: AttributionPath, steps: int) -> np.ndarray:
    """[E,G] the sums along the whole way with so many steps."""
    nodes, weights = _nodes(0.0, 1.0, steps)
    found: np.ndarray = np.einsum("n,neg->eg", weights, way.slope(nodes))
    return found


def _parts(
    way: AttributionPath, spans: Sequence[tuple[float, float]], known: dict[float, np.ndarray]
) -> list[_PathPart]:
    nodes, weights = zip(*(_nodes(start, stop, NODES) for start, stop in spans), strict=True)
    slopes = way.slope(np.concatenate(nodes)).reshape(len(spans), NODES, -1, len(known[0.0]))
    found = []
    for (start, stop), weight, slope in zip(spans, weights, slopes, strict=True):
        values = np.einsum("n,neg->eg", weight, slope)
        found.append(_PathPart(start, stop, values, values.sum(axis=0) - (known[stop] - known[start])))
    return found


def _nodes(start: float, stop: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    half = (stop - start) / 2
    return start + half * (nodes + 1), half * weights


MOST_STEPS = 1024
MOST_ELEMENTS = 2**20  # that are read on the way of a long input, if no steps are asked for
MOST_BACK = 2**20  # answers x elements x steps: each answer goes back through every element at each step
FEWEST_STEPS = 16  # below which several answers are not worth their time: so 65,536 of answers x elements at most
COMPLETE = 0.005  # of s(x) - s(b): half of what is promised
ROUNDING = 1e-5  # of the scores themselves: a difference below it is none


class Measured(NamedTuple):
    """What a method found: an array [G,E] of each place, for G goals; NaN where nothing was measured."""

    values: tuple[np.ndarray, ...]
    steps: int = 1  # how often the score was asked for
    grouped: int = 1  # elements that were taken away at once, at most


def gradient(ground: AttributionGround, goals: Sequence[Goal]) -> Measured:
    """The length of the slope at each element."""
    found = _told(ground, goals, torch.ones(1), lambda _at, slope: slope.norm(dim=-1).double())
    return Measured(tuple(each[:, 0].cpu().numpy() for each in found))


def gradient_x_input(ground: AttributionGround, goals: Sequence[Goal]) -> Measured:
    """The slope at each element times its way from the baseline."""
    with ground.subject.work("steps", 1) as moved:
        rises = _rises(ground, goals, torch.ones(1), moved)
    return _without_held(ground, Measured(tuple(each[:, 0] for each in rises)))


def integrated(ground: AttributionGround, goals: Sequence[Goal], steps: int | None = None) -> Measured:
    """The mean slope on the way times the way; with as many `steps` as it takes, or as are asked for."""
    if steps is not None and not 1 <= steps <= MOST_STEPS:
        raise ConfigError(f"steps is {steps}", fix=f"give 1 to {MOST_STEPS}")
    sizes = [len(each) for each in ground.here]
    count, elements, fewest = len(goals), sum(sizes), steps or FEWEST_STEPS
    if count > 1 and count * elements * fewest > MOST_BACK:  # one answer is always explained
        raise ConfigError(
            f"integrated gradients of {count:,} answers x {elements:,} tokens x {fewest:,} steps are too many",
            fix=f"choose at most {max(1, MOST_BACK // (elements * fewest))} answers with rows=(start, stop), "
            "or another method",
        )
    if steps is None:
        most = min(MOST_STEPS, MOST_ELEMENTS // elements, MOST_BACK // (elements * count))
        with ground.subject.work("steps at most", most) as moved:
            found, steps = completed(_way(ground, goals, moved), most)
    else:
        with ground.subject.work("steps", steps) as moved:
            found = told(_way(ground, goals, moved), steps)
    return _without_held(ground, Measured(tuple(np.split(found.T, np.cumsum(sizes)[:-1], axis=1)), steps))


def ends(ground: AttributionGround, goals: Sequence[Goal]) -> tuple[np.ndarray, np.ndarray]:
    """[G] the score of the input, and [G] that of its baseline."""
    last, first = _at(ground, goals, [1.0, 0.0])
    return last, first


def _way(ground: AttributionGround, goals: Sequence[Goal], moved: Moved) -> AttributionPath:
    last, first = ends(ground, goals)
    allowed = np.maximum(COMPLETE * np.abs(last - first), ROUNDING * (np.abs(last) + np.abs(first))).clip(min=1e-30)

    def slope(shares: np.ndarray) -> np.ndarray:
        rises = _rises(ground, goals, torch.from_numpy(shares), moved)
        return np.concatenate(rises, axis=2).transpose(1, 2, 0)

    def badness(missing: np.ndarray) -> np.ndarray:
        found: np.ndarray = (np.abs(missing) / allowed).max(axis=1)
        return found

    return AttributionPath(slope, lambda shares: _at(ground, goals, shares), badness)


def _at(ground: AttributionGround, goals: Sequence[Goal], shares: Sequence[float]) -> np.ndarray:
    """[N,G] the scores at these shares of the way."""
    found = []
    with at_work(ground), torch.no_grad():
        for some in torch.split(torch.tensor(shares, dtype=torch.float64), ground.rows_at_once):
            scores = ground.scores(ground.along(some)).double()
            found.append(torch.stack([goal.of(scores) for goal in goals], dim=1))
    return torch.cat(found).cpu().numpy()


def _rises(ground: AttributionGround, goals: Sequence[Goal], shares: Tensor, moved: Moved) -> tuple[np.ndarray, ...]:
    """[G,N,E] of each place: the slope times the whole way, at each share of it."""
    found = []
    ways = [here - base for here, base in zip(ground.here, ground.base, strict=True)]
    for some in torch.split(shares, ground.rows_at_once):
        rises = _told(ground, goals, some, lambda at, slope: (slope * ways[at]).double().sum(dim=-1))
        found.append([each.cpu().numpy() for each in rises])
        moved(len(some))
    return tuple(np.concatenate(each, axis=1) for each in zip(*found, strict=True))


def slopes(ground: AttributionGround, goals: Sequence[Goal], shares: Tensor) -> list[Tensor]:
    """[G,N,E,D] of each place: the derivative of each goal at each share of the way."""
    return _told(ground, goals, shares, lambda _at, slope: slope)


def _told(
    ground: AttributionGround, goals: Sequence[Goal], shares: Tensor, tell: Callable[[int, Tensor], Tensor]
) -> list[Tensor]:
    """[G,...] of each place: what is told of the slope [N,E,D] of each goal there, one slope being held at a time."""
    with at_work(ground):
        values = [each.detach().requires_grad_() for each in ground.along(shares)]
        scores = ground.scores(values)
        found = []
        for goal in goals:
            each = torch.autograd.grad(goal.of(scores).sum(), values, retain_graph=True, materialize_grads=True)
            found.append([tell(at, slope) for at, slope in enumerate(each)])
    return [torch.stack(told) for told in zip(*found, strict=True)]


def _without_held(ground: AttributionGround, measured: Measured) -> Measured:
    """NaN for what stays as it is on the way."""
    values = tuple(np.where(ground.free(at), each, np.nan) for at, each in enumerate(measured.values))
    return measured._replace(values=values)
