"""The methods by name, and what their numbers mean."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seqloom.errors import ConfigError, did_you_mean
from seqloom.inspect.attribution.goals import Goal
from seqloom.inspect.attribution.gradients import Measured, ends, gradient, gradient_x_input, integrated
from seqloom.inspect.attribution.ground import AttributionGround
from seqloom.inspect.attribution.removal import groups_of, leave_one_out, occlusion
from seqloom.inspect.attribution.rollout import rollout
from seqloom.inspect.progress import work


class MethodOptions(NamedTuple):
    """What a method may be told."""

    steps: int | None = None  # of integrated gradients
    words: bool = False  # the pieces of a word are taken away together


class Method(NamedTuple):
    """A way to say what moved an answer."""

    measure: Callable[[AttributionGround, Sequence[Goal], MethodOptions], Measured]
    title: str
    unit: str  # what one number is
    adds_up: bool  # to the score less that of the baseline: exactly, or as far as the model is linear


def _occlusion(ground: AttributionGround, goals: Sequence[Goal], wishes: MethodOptions) -> Measured:
    return occlusion(ground, goals, groups_of(ground, words=wishes.words))


def _leave_one_out(ground: AttributionGround, goals: Sequence[Goal], wishes: MethodOptions) -> Measured:
    return leave_one_out(ground, goals, groups_of(ground, words=wishes.words))


METHODS: Mapping[str, Method] = {
    "integrated": Method(
        lambda ground, goals, wishes: integrated(ground, goals, wishes.steps),
        "integrated gradients",
        "part of the score",
        True,
    ),
    "gradient_x_input": Method(
        lambda ground, goals, _: gradient_x_input(ground, goals), "gradient x input", "part of the score", True
    ),
    "gradient": Method(
        lambda ground, goals, _: gradient(ground, goals), "length of the gradient", "score per unit of change", False
    ),
    "occlusion": Method(_occlusion, "occlusion", "what the score loses", True),
    "leave_one_out": Method(_leave_one_out, "leave-one-out", "what the score loses", False),
    "rollout": Method(
        lambda ground, goals, _: rollout(ground, goals), "attention rollout", "share of the attention", False
    ),
}


class Outcome(NamedTuple):
    """What a method found for some goals, and whether it adds up."""

    values: tuple[np.ndarray, ...]  # [G,E] of each place
    score: np.ndarray  # [G]
    baseline_scores: np.ndarray  # [M,G] with all places at the baseline; of two texts, with the first, with the second
    error: np.ndarray | None  # [G] of completeness; None for what adds up to nothing
    steps: int
    grouped: int  # elements that were taken away at once, at most


def method_of(name: str) -> Method:
    """The method of this name."""
    if name not in METHODS:
        raise ConfigError(f"there is no method '{name}' of attribution", fix=did_you_mean(name, METHODS))
    return METHODS[name]


def outcome(ground: AttributionGround, goals: Sequence[Goal], name: str, wishes: MethodOptions) -> Outcome:
    """What the method of this name finds, with what moves together moved together."""
    method = method_of(name)
    if wishes.steps is not None and name != "integrated":
        raise ConfigError(f"steps belong to integrated gradients, and the method is {name}", fix="leave them out")
    moves = ground.moves()
    found = list[Measured]()
    with work("sides", len(moves)) as moved:
        for each in moves:
            found.append(method.measure(each, goals, wishes))
            moved(1)
    values = tuple(_of_mover(moves, found, at) for at in range(len(ground.places)))
    scores = [ends(each, goals) for each in moves]
    before = np.stack([end for _, end in scores])
    error = completeness_error(values, (scores[0][0] - before).sum(axis=0)) if method.adds_up else None
    steps, grouped = sum(each.steps for each in found), max(each.grouped for each in found)
    return Outcome(values, scores[0][0], before, error, steps, grouped)


def _of_mover(moves: Sequence[AttributionGround], found: Sequence[Measured], place: int) -> np.ndarray:
    return next(each.values[place] for move, each in zip(moves, found, strict=True) if place in move.moving)


def completeness_error(values: Sequence[np.ndarray], rise: np.ndarray) -> np.ndarray:
    """[G] how far all values of a goal are from its rise, as a part of the rise; infinite where that is zero."""
    total = np.sum([np.nansum(each, axis=1) for each in values], axis=0)
    missing = np.abs(total - rise)
    found: np.ndarray = np.divide(missing, np.abs(rise), out=np.where(missing > 0, np.inf, 0.0), where=np.abs(rise) > 0)
    return found
