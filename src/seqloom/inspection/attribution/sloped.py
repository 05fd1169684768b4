"""The methods with gradients: the slope of a score at the input, or on the way to it from a baseline.

    gradient           a_t = |ds/dx_t|                                (Simonyan et al. 2014)
    gradient_x_input   a_t = ds/dx_t . (x_t - b_t)                    exact for a model that is linear in x
    integrated         a_t = (x_t - b_t) . int_0^1 ds/dx_t(b + u(x - b)) du      (Sundararajan et al. 2017)

Integrated gradients add up to s(x) - s(b): steps are taken until less than one in a hundred is missing (`path`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ConfigError
from seqloom.inspection.attribution.goals import Goal
from seqloom.inspection.attribution.ground import Ground, at_work
from seqloom.inspection.attribution.path import Way, completed, told
from seqloom.inspection.pace import Moved, work

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


def gradient(ground: Ground, goals: Sequence[Goal]) -> Measured:
    """The length of the slope at each element."""
    found = _told(ground, goals, torch.ones(1), lambda _at, slope: slope.norm(dim=-1).double())
    return Measured(tuple(each[:, 0].cpu().numpy() for each in found))


def gradient_x_input(ground: Ground, goals: Sequence[Goal]) -> Measured:
    """The slope at each element times its way from the baseline."""
    with work("steps", 1) as moved:
        rises = _rises(ground, goals, torch.ones(1), moved)
    return _without_held(ground, Measured(tuple(each[:, 0] for each in rises)))


def integrated(ground: Ground, goals: Sequence[Goal], steps: int | None = None) -> Measured:
    """The mean slope on the way times the way; with as many `steps` as it takes, or as are asked for."""
    if steps is not None and not 1 <= steps <= MOST_STEPS:
        raise ConfigError(f"{steps} steps of integrated gradients were asked for", fix=f"take 1 to {MOST_STEPS}")
    sizes = [len(each) for each in ground.here]
    _require_affordable(len(goals), sum(sizes), steps or FEWEST_STEPS)
    most = min(MOST_STEPS, MOST_ELEMENTS // sum(sizes), MOST_BACK // (sum(sizes) * len(goals)))
    with work("steps at most" if steps is None else "steps", most if steps is None else steps) as moved:
        way = _way(ground, goals, moved)
        found, taken = completed(way, most) if steps is None else (told(way, steps), steps)
    return _without_held(ground, Measured(tuple(np.split(found.T, np.cumsum(sizes)[:-1], axis=1)), taken))


def _require_affordable(goals: int, elements: int, steps: int) -> None:
    """Nothing; ConfigError for several answers that would take many minutes. One answer is always explained."""
    if goals > 1 and goals * elements * steps > MOST_BACK:
        fits = max(1, MOST_BACK // (elements * steps))
        raise ConfigError(
            f"integrated gradients of {goals:,} answers by {elements:,} elements with {steps:,} steps were asked for",
            fix=f"choose at most {fits} answers with rows=(start, stop), or a method that takes no steps",
        )


def ends(ground: Ground, goals: Sequence[Goal]) -> tuple[np.ndarray, np.ndarray]:
    """[G] the score of the input, and [G] that of its baseline."""
    last, first = _at(ground, goals, [1.0, 0.0])
    return last, first


def _way(ground: Ground, goals: Sequence[Goal], moved: Moved) -> Way:
    last, first = ends(ground, goals)
    allowed = np.maximum(COMPLETE * np.abs(last - first), ROUNDING * (np.abs(last) + np.abs(first))).clip(min=1e-30)

    def slope(shares: np.ndarray) -> np.ndarray:
        rises = _rises(ground, goals, torch.from_numpy(shares), moved)
        return np.concatenate(rises, axis=2).transpose(1, 2, 0)

    def badness(missing: np.ndarray) -> np.ndarray:
        found: np.ndarray = (np.abs(missing) / allowed).max(axis=1)
        return found

    return Way(slope, lambda shares: _at(ground, goals, shares), badness)


def _at(ground: Ground, goals: Sequence[Goal], shares: Sequence[float]) -> np.ndarray:
    """[N,G] the scores at these shares of the way."""
    found = []
    with at_work(ground), torch.no_grad():
        for some in torch.split(torch.tensor(shares, dtype=torch.float64), ground.rows_at_once):
            scores = ground.scores(ground.along(some)).double()
            found.append(torch.stack([goal.of(scores) for goal in goals], dim=1))
    return torch.cat(found).cpu().numpy()


def _rises(ground: Ground, goals: Sequence[Goal], shares: Tensor, moved: Moved) -> tuple[np.ndarray, ...]:
    """[G,N,E] of each place: the slope times the whole way, at each share of it."""
    found = []
    ways = [here - base for here, base in zip(ground.here, ground.base, strict=True)]
    for some in torch.split(shares, ground.rows_at_once):
        rises = _told(ground, goals, some, lambda at, slope: (slope * ways[at]).double().sum(dim=-1))
        found.append([each.cpu().numpy() for each in rises])
        moved(len(some))
    return tuple(np.concatenate(each, axis=1) for each in zip(*found, strict=True))


def slopes(ground: Ground, goals: Sequence[Goal], shares: Tensor) -> list[Tensor]:
    """[G,N,E,D] of each place: the derivative of each goal at each share of the way."""
    return _told(ground, goals, shares, lambda _at, slope: slope)


def _told(ground: Ground, goals: Sequence[Goal], shares: Tensor, tell: Callable[[int, Tensor], Tensor]) -> list[Tensor]:
    """[G,...] of each place: what is told of the slope [N,E,D] of each goal there, one slope being held at a time."""
    with at_work(ground):
        values = [each.detach().requires_grad_() for each in ground.along(shares)]
        scores = ground.scores(values)
        found = []
        for goal in goals:
            each = torch.autograd.grad(goal.of(scores).sum(), values, retain_graph=True, materialize_grads=True)
            found.append([tell(at, slope) for at, slope in enumerate(each)])
    return [torch.stack(told) for told in zip(*found, strict=True)]


def _without_held(ground: Ground, measured: Measured) -> Measured:
    """NaN for what stays as it is on the way."""
    values = tuple(np.where(ground.free(at), each, np.nan) for at, each in enumerate(measured.values))
    return measured._replace(values=values)
