"""The methods that use gradients: at the input, or along the path from a baseline to it.

    gradient           a_t = |ds/dx_t|                                (Simonyan et al. 2014)
    gradient_x_input   a_t = ds/dx_t . (x_t - b_t)                    exact if the model is linear in x
    integrated         a_t = (x_t - b_t) . int_0^1 ds/dx_t(b + u(x - b)) du      (Sundararajan et al. 2017)

Integrated gradients sum to s(x) - s(b). Steps are added until less than 1% is missing. The test uses that

    sum over elements of int_a^b slope du = value(b) - value(a)        on every part a..b of the path

so the error of each part is known. Parts with a large error are cut in two, which puts the steps where the path bends:
at the kinks of ReLUs and maxima, and near a baseline where a normalization amplifies small vectors. There the score may
change within a thousandth of the path. So the scores, which need only a forward pass, are first computed at fractions
that shrink toward the baseline, and a nearly straight segment starts as a single part.
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

NODES = 4  # Gauss-Legendre nodes on each part of the path
SHARES = (0.0, *(4.0**-power for power in range(7, 0, -1)), 0.5, 1.0)  # where the scores are computed first
STRAIGHT = 0.1  # largest deviation of the scores from a straight line inside one part, relative to the largest change
FAR = 4.0  # a part whose stop is more than this times its start is cut at the geometric mean

Slope = Callable[[np.ndarray], np.ndarray]  # fractions [N] of the path -> [N,E,G] the gradient of G scores by element
Value = Callable[[Sequence[float]], np.ndarray]  # fractions of the path -> [N,G] the scores
Badness = Callable[[np.ndarray], np.ndarray]  # error [P,G] of P parts -> [P]; acceptable up to a sum of 1


class _PathPart(NamedTuple):
    """A part of the path: the values of its elements, and the error of their sum."""

    start: float
    stop: float
    values: np.ndarray  # [E,G]
    missing: np.ndarray  # [G]


class AttributionPath(NamedTuple):
    """The functions that are evaluated along the path."""

    slope: Slope
    value: Value
    badness: Badness


def completed(way: AttributionPath, most: int) -> tuple[np.ndarray, int]:
    """Return the integral [E,G] and its number of steps; it is complete unless it needs more than `most` steps."""
    known = dict(zip(SHARES, way.value(SHARES), strict=True))
    parts = _parts(way, list(pairwise(edges(known, max(1, most // NODES)))), known)
    steps = NODES * len(parts)
    while True:
        badness = way.badness(np.stack([part.missing for part in parts]))
        bad = [at for at, own in enumerate(badness) if own > 0.5 / len(parts)]  # more than their share of the error
        if badness.sum() <= 1 or not bad or steps + 2 * NODES * len(bad) > most:
            return np.sum([part.values for part in parts], axis=0), steps
        middles = {at: _middle(parts[at]) for at in bad}
        known |= dict(zip(middles.values(), way.value(list(middles.values())), strict=True))
        halves = [span for at in bad for span in pairwise((parts[at].start, middles[at], parts[at].stop))]
        parts = [part for at, part in enumerate(parts) if at not in middles] + _parts(way, halves, known)
        steps += NODES * len(halves)


def edges(known: Mapping[float, np.ndarray], most: int) -> list[float]:
    """Return the ends of at most `most` parts: those of the known fractions where the scores [G] bend."""
    kept, whole = sorted(known), np.max([np.abs(each - known[0.0]) for each in known.values()], axis=0).clip(min=1e-30)
    while len(kept) > 2:
        bends = [_bend(known, start, stop, whole) for start, stop in zip(kept, kept[2:], strict=False)]
        least = int(np.argmin(bends))
        if bends[least] > STRAIGHT and len(kept) - 1 <= most:
            break
        del kept[least + 1]
    return kept


def _bend(known: Mapping[float, np.ndarray], start: float, stop: float, whole: np.ndarray) -> float:
    """Return the largest deviation of the scores between two points from a straight line, relative to `whole` [G]."""
    rise = (known[stop] - known[start]) / (stop - start)
    inner = [share for share in known if start < share < stop]
    return max(float((np.abs(known[at] - known[start] - rise * (at - start)) / whole).max()) for at in inner)


def _middle(part: _PathPart) -> float:
    """Return where to cut a part: closer to the baseline if the part is long relative to its start."""
    if part.start == 0:
        return part.stop / FAR
    if part.stop > FAR * part.start:
        return math.sqrt(part.start * part.stop)
    return (part.start + part.stop) / 2


def told(way: AttributionPath, steps: int) -> np.ndarray:
    """Return the integral [E,G] along the path with a fixed number of steps."""
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
MOST_ELEMENTS = 2**20  # elements that are read along the path of a long input, if `steps` is not given
MOST_BACK = 2**20  # answers x elements x steps: each answer needs a backward pass per step
FEWEST_STEPS = 16  # the least for several answers, so answers x elements is at most 65,536
COMPLETE = 0.005  # of s(x) - s(b): half of the error that is promised
ROUNDING = 1e-5  # relative to the scores: a smaller difference counts as 0


class Measured(NamedTuple):
    """The values of a method: an array [G,E] for each place and G goals; NaN where not measured."""

    values: tuple[np.ndarray, ...]
    steps: int = 1  # number of evaluations of the score
    grouped: int = 1  # largest number of elements that were removed together


def gradient(ground: AttributionGround, goals: Sequence[Goal]) -> Measured:
    """Return the norm of the gradient at each element."""
    found = _gradients(ground, goals, torch.ones(1), lambda _at, slope: slope.norm(dim=-1).double())
    return Measured(tuple(each[:, 0].cpu().numpy() for each in found))


def gradient_x_input(ground: AttributionGround, goals: Sequence[Goal]) -> Measured:
    """Return the gradient at each element times its difference from the baseline."""
    with ground.subject.work("steps", 1) as moved:
        rises = _rises(ground, goals, torch.ones(1), moved)
    return _without_fixed(ground, Measured(tuple(each[:, 0] for each in rises)))


def integrated(ground: AttributionGround, goals: Sequence[Goal], steps: int | None = None) -> Measured:
    """Return integrated gradients with `steps` steps, or by default with as many as completeness needs."""
    if steps is not None and not 1 <= steps <= MOST_STEPS:
        raise ConfigError(f"steps is {steps}", fix=f"give 1 to {MOST_STEPS}")
    sizes = [len(each) for each in ground.here]
    count, elements, fewest = len(goals), sum(sizes), steps or FEWEST_STEPS
    if count > 1 and count * elements * fewest > MOST_BACK:  # one answer is always allowed
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
    return _without_fixed(ground, Measured(tuple(np.split(found.T, np.cumsum(sizes)[:-1], axis=1)), steps))


def ends(ground: AttributionGround, goals: Sequence[Goal]) -> tuple[np.ndarray, np.ndarray]:
    """Return the score [G] of the input and that of its baseline."""
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
    """Return the scores [N,G] at these fractions of the path."""
    found = []
    with at_work(ground), torch.no_grad():
        for some in torch.split(torch.tensor(shares, dtype=torch.float64), ground.rows_at_once):
            scores = ground.scores(ground.along(some)).double()
            found.append(torch.stack([goal.of(scores) for goal in goals], dim=1))
    return torch.cat(found).cpu().numpy()


def _rises(ground: AttributionGround, goals: Sequence[Goal], shares: Tensor, moved: Moved) -> tuple[np.ndarray, ...]:
    """Return [G,N,E] for each place: the gradient times (input - baseline) at these fractions of the path."""
    found = []
    ways = [here - base for here, base in zip(ground.here, ground.base, strict=True)]
    for some in torch.split(shares, ground.rows_at_once):
        rises = _gradients(ground, goals, some, lambda at, slope: (slope * ways[at]).double().sum(dim=-1))
        found.append([each.cpu().numpy() for each in rises])
        moved(len(some))
    return tuple(np.concatenate(each, axis=1) for each in zip(*found, strict=True))


def slopes(ground: AttributionGround, goals: Sequence[Goal], shares: Tensor) -> list[Tensor]:
    """Return [G,N,E,D] for each place: the gradient of each goal at these fractions of the path."""
    return _gradients(ground, goals, shares, lambda _at, slope: slope)


def _gradients(
    ground: AttributionGround, goals: Sequence[Goal], shares: Tensor, reduce: Callable[[int, Tensor], Tensor]
) -> list[Tensor]:
    """Return [G,...] for each place: `reduce` of the gradient [N,E,D] of each goal; keeps one gradient at a time."""
    with at_work(ground):
        values = [each.detach().requires_grad_() for each in ground.along(shares)]
        scores = ground.scores(values)
        found = []
        for goal in goals:
            each = torch.autograd.grad(goal.of(scores).sum(), values, retain_graph=True, materialize_grads=True)
            found.append([reduce(at, slope) for at, slope in enumerate(each)])
    return [torch.stack(each) for each in zip(*found, strict=True)]


def _without_fixed(ground: AttributionGround, measured: Measured) -> Measured:
    """Set the values of elements that do not move to NaN."""
    values = tuple(np.where(ground.free(at), each, np.nan) for at, each in enumerate(measured.values))
    return measured._replace(values=values)
