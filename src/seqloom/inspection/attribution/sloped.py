"""The methods with gradients: the slope of a score at the input, or on the way to it from a baseline.

    gradient           a_t = |ds/dx_t|                                (Simonyan et al. 2014)
    gradient_x_input   a_t = ds/dx_t . (x_t - b_t)                    exact for a model that is linear in x
    integrated         a_t = (x_t - b_t) . int_0^1 ds/dx_t(b + u(x - b)) du      (Sundararajan et al. 2017)

Integrated gradients add up to s(x) - s(b), and so they do on every part of the way. The way is therefore cut where its
parts do not add up yet, at the kinks of ReLUs and maxima, until what is missing of the whole is below one in a hundred.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ConfigError
from seqloom.inspection.attribution.goals import Goal
from seqloom.inspection.attribution.ground import Ground, at_work

NODES = 4  # of Gauss and Legendre on each part of the way
MOST_STEPS = 1024
MOST_ELEMENTS = 2**20  # that are read on the way of a long input, if no steps are asked for
COMPLETE = 0.005  # of s(x) - s(b): half of what is promised
ROUNDING = 1e-5  # of the scores themselves: a difference below it is none


Known = dict[float, np.ndarray]  # share of the way -> [G] scores there


class Measured(NamedTuple):
    """What a method found: an array [G,E] of each place, for G goals; NaN where nothing was measured."""

    values: tuple[np.ndarray, ...]
    steps: int = 1  # how often the score was asked for
    grouped: int = 1  # elements that were taken away at once, at most


def gradient(ground: Ground, goals: Sequence[Goal]) -> Measured:
    """The length of the slope at each element."""
    found = slopes(ground, goals, torch.ones(1))
    return Measured(tuple(each[:, 0].norm(dim=-1).double().cpu().numpy() for each in found))


def gradient_x_input(ground: Ground, goals: Sequence[Goal]) -> Measured:
    """The slope at each element times its way from the baseline."""
    return _without_held(ground, Measured(tuple(each[:, 0] for each in _rises(ground, goals, torch.ones(1)))))


def integrated(ground: Ground, goals: Sequence[Goal], steps: int | None = None) -> Measured:
    """The mean slope on the way times the way; with as many `steps` as it takes, or as are asked for."""
    if steps is not None and not 1 <= steps <= MOST_STEPS:
        raise ConfigError(f"{steps} steps of integrated gradients were asked for", fix=f"take 1 to {MOST_STEPS}")
    if steps is None:
        return _without_held(ground, _until_complete(ground, goals))
    nodes, weights = _nodes(0.0, 1.0, steps)
    rises = _rises(ground, goals, torch.from_numpy(nodes))
    return _without_held(ground, Measured(tuple(np.einsum("n,gne->ge", weights, each) for each in rises), steps))


def ends(ground: Ground, goals: Sequence[Goal]) -> tuple[np.ndarray, np.ndarray]:
    """[G] the score of the input, and [G] that of its baseline."""
    found = _at(ground, goals, [1.0, 0.0])
    return found[:, 0], found[:, 1]


class _Part(NamedTuple):
    """A part of the way: what its elements get, and how far that is from the rise of the score."""

    start: float
    stop: float
    values: tuple[np.ndarray, ...]  # [G,E] of each place
    missing: np.ndarray  # [G]


def _until_complete(ground: Ground, goals: Sequence[Goal]) -> Measured:
    known = _known(ground, goals, {}, [0.0, 0.25, 0.5, 0.75, 1.0])
    first, last = known[0.0], known[1.0]
    allowed = np.maximum(COMPLETE * np.abs(first - last), ROUNDING * (np.abs(first) + np.abs(last)))
    parts = _parts(ground, goals, list(pairwise(sorted(known))), known)
    steps, most = NODES * len(parts), min(MOST_STEPS, MOST_ELEMENTS // sum(len(each) for each in ground.here))
    while (bad := _worst(parts, allowed)) and steps + 2 * NODES * len(bad) <= most:
        halves = [half for part in bad for half in _halves(part)]
        chosen = {id(part) for part in bad}
        known = _known(ground, goals, known, [start for start, _ in halves])
        parts = [part for part in parts if id(part) not in chosen] + _parts(ground, goals, halves, known)
        steps += NODES * len(halves)
    return Measured(tuple(np.sum(each, axis=0) for each in zip(*(part.values for part in parts), strict=True)), steps)


def _worst(parts: Sequence[_Part], allowed: np.ndarray) -> list[_Part]:
    """The parts to cut: those with more than their share of what is missing, if that is too much."""
    missing = np.abs(np.stack([part.missing for part in parts]))  # [P,G]
    if (missing.sum(axis=0) <= allowed).all():
        return []
    share = missing / allowed.clip(min=1e-30)
    most = share.sum(axis=0).argmax()
    return [part for part, own in zip(parts, share[:, most], strict=True) if own > 0.5 / len(parts)]


def _halves(part: _Part) -> tuple[tuple[float, float], tuple[float, float]]:
    middle = (part.start + part.stop) / 2
    return (part.start, middle), (middle, part.stop)


def _known(ground: Ground, goals: Sequence[Goal], known: Known, shares: Sequence[float]) -> Known:
    """The scores at shares of the way, with those that are not known yet."""
    new = [share for share in shares if share not in known]
    return known | dict(zip(new, _at(ground, goals, new).T, strict=True))


def _parts(ground: Ground, goals: Sequence[Goal], spans: Sequence[tuple[float, float]], known: Known) -> list[_Part]:
    nodes, weights = zip(*(_nodes(start, stop, NODES) for start, stop in spans), strict=True)
    rises = _rises(ground, goals, torch.from_numpy(np.concatenate(nodes)))
    found = []
    for number, (start, stop) in enumerate(spans):
        mine = slice(number * NODES, (number + 1) * NODES)
        values = tuple(np.einsum("n,gne->ge", weights[number], each[:, mine]) for each in rises)
        missing = sum(each.sum(axis=1) for each in values) - (known[stop] - known[start])
        found.append(_Part(start, stop, values, missing))
    return found


def _nodes(start: float, stop: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    half = (stop - start) / 2
    return start + half * (nodes + 1), half * weights


def _at(ground: Ground, goals: Sequence[Goal], shares: Sequence[float]) -> np.ndarray:
    """[G,N] the scores at these shares of the way."""
    found = []
    with at_work(ground), torch.no_grad():
        for some in torch.split(torch.tensor(shares, dtype=torch.float64), ground.rows_at_once):
            scores = ground.scores(ground.along(some)).double()
            found.append(torch.stack([goal.of(scores) for goal in goals]))
    return torch.cat(found, dim=1).cpu().numpy()


def _rises(ground: Ground, goals: Sequence[Goal], shares: Tensor) -> tuple[np.ndarray, ...]:
    """[G,N,E] of each place: the slope times the whole way, at each share of it."""
    found = []
    for some in torch.split(shares, ground.rows_at_once):
        found_here = slopes(ground, goals, some)
        ways = [here - base for here, base in zip(ground.here, ground.base, strict=True)]
        rises = [(each * way).double().sum(dim=-1) for each, way in zip(found_here, ways, strict=True)]
        found.append([each.cpu().numpy() for each in rises])
    return tuple(np.concatenate(each, axis=1) for each in zip(*found, strict=True))


def slopes(ground: Ground, goals: Sequence[Goal], shares: Tensor) -> list[Tensor]:
    """[G,N,E,D] of each place: the derivative of each goal at each share of the way."""
    with at_work(ground):
        values = [each.detach().requires_grad_() for each in ground.along(shares)]
        scores = ground.scores(values)
        each_goal = [
            torch.autograd.grad(goal.of(scores).sum(), values, retain_graph=True, materialize_grads=True)
            for goal in goals
        ]
    return [torch.stack(slopes) for slopes in zip(*each_goal, strict=True)]


def _without_held(ground: Ground, measured: Measured) -> Measured:
    """NaN for what stays as it is on the way."""
    values = tuple(np.where(ground.free(at), each, np.nan) for at, each in enumerate(measured.values))
    return measured._replace(values=values)
