"""The methods that take something away and look at what the score loses: no gradient is needed.

    occlusion        a_t = s(x) - s(x with the baseline at t)        everything keeps its place
    leave_one_out    a_t = s(x) - s(x without t)                     symbols are removed, never cut anew from a text

Several elements may be taken away at once (the pieces of a word, a stretch of a long text, a square of a picture): then
each gets an equal share of what they lose together.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ConfigError
from seqloom.inspect.attribution.goals import Goal
from seqloom.inspect.attribution.gradients import Measured
from seqloom.inspect.attribution.ground import AttributionGround, GroundPlace, at_work
from seqloom.inspect.progress import work
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import repeated
from seqloom.inspect.view import MEDIUM
from seqloom.nn.types import Padded, Spelled, Subwords

MOST_GROUPS = 100  # that a long input is taken away in: a hundredth of it at a time
SQUARES = 14  # of a picture, along its shorter side

Group = np.ndarray  # [M] the numbers of elements that are taken away together


class Groups(NamedTuple):
    """What is taken away together in each place, and how that is said."""

    of: tuple[list[Group], ...]
    largest: int


def groups_of(ground: AttributionGround, *, words: bool) -> Groups:
    """The elements one by one, by words, or, where they are many, in stretches and squares."""
    found = tuple(_groups(place, ground.free(at), words=words) for at, place in enumerate(ground.places))
    return Groups(found, max((len(group) for groups in found for group in groups), default=1))


def _groups(place: GroundPlace, moves: np.ndarray, *, words: bool) -> list[Group]:
    if place.shape is not None:
        return _squares(*place.shape)
    free = np.flatnonzero(moves)
    if not len(free):
        return []
    if len(free) > MEDIUM:
        return np.array_split(free, MOST_GROUPS)
    if not words:
        return list(free[:, None])
    numbers = np.array([place.tokens[at].word for at in free])
    new = np.flatnonzero((np.diff(numbers) != 0) | (numbers[1:] < 0)) + 1
    return np.split(free, new)


def _squares(height: int, width: int) -> list[Group]:
    side = max(1, min(height, width) // SQUARES)
    numbers = np.arange(height * width).reshape(height, width)
    return [numbers[y : y + side, x : x + side].ravel() for y in range(0, height, side) for x in range(0, width, side)]


def occlusion(ground: AttributionGround, goals: Sequence[Goal], groups: Groups) -> Measured:
    """What the score loses when the baseline stands in the place of a group."""
    whole = _goals(goals, _scored(ground, [each[None] for each in ground.here]))
    found, steps = [], 1
    with work("sides", len(groups.of)) as moved:
        for number, of_place in enumerate(groups.of):
            losses = [
                whole - _goals(goals, _scored(ground, _occluded(ground, number, some)))
                for some in _some(of_place, ground.rows_at_once)
            ]
            found.append(_shared([whole[:, :0], *losses], of_place, len(ground.here[number])))
            steps += len(of_place)
            moved(1)
    return Measured(tuple(found), steps, groups.largest)


def _occluded(ground: AttributionGround, number: int, groups: Sequence[Group]) -> list[Tensor]:
    """The input once for each group, with the baseline in its place."""
    values = [each.expand(len(groups), *each.shape) for each in ground.here]
    here, base = ground.here[number], ground.base[number]
    gone = torch.zeros(len(groups), len(here), dtype=torch.bool)
    for row, group in enumerate(groups):
        gone[row, torch.from_numpy(group)] = True
    values[number] = torch.where(gone.to(here.device)[..., None], base, here)
    return values


def leave_one_out(ground: AttributionGround, goals: Sequence[Goal], groups: Groups) -> Measured:
    """What the score loses when a group is not there; NaN for a place that answers stand at, one for each element."""
    pairs = list(zip(ground.places, groups.of, strict=True))
    reasons = [_reason_to_stay(ground, place, of_place) for place, of_place in pairs]
    if all(reason is not None for reason in reasons):
        raise ConfigError(
            f"nothing can be left out here: {'; '.join(dict.fromkeys(filter(None, reasons)))}",
            fix="choose the method occlusion, which keeps every element in its place",
        )
    whole = _goals(goals, _asked(ground, ground.reading.inputs))
    found, steps = [], 1
    with work("sides", len(pairs)) as moved:
        for (place, of_place), reason in zip(pairs, reasons, strict=True):
            leaving = of_place if reason is None else []
            some_at_once = _some(leaving, ground.rows_at_once)
            losses = [whole - _goals(goals, _asked(ground, _shorter(ground, place, some))) for some in some_at_once]
            found.append(_shared([whole[:, :0], *losses], leaving, len(place.tokens)))
            steps += len(leaving)
            moved(1)
    return Measured(tuple(found), steps, groups.largest)


def _reason_to_stay(ground: AttributionGround, place: GroundPlace, groups: Sequence[Group]) -> str | None:
    """Why no element of a place can be left out; None where the answers are the same ones without it."""
    if place.shape is not None:
        return "a picture is read as a whole"
    if isinstance(place.raw, Spelled):
        return "words that are read by their letters are not taken apart"
    if max(map(len, groups), default=0) == len(place.tokens):
        return f"there is one element in the {place.side.name}, and without it none"
    if isinstance(place.raw, Subwords) or _answers_without_first(ground, place) != len(ground.reading.rows):
        return "each answer stands at an element"  # of a tagger, of a running text
    return None


def _answers_without_first(ground: AttributionGround, place: GroundPlace) -> int:
    return _asked(ground, _shorter(ground, place, [np.array([0])])).shape[1]


def _shorter(ground: AttributionGround, place: GroundPlace, groups: Sequence[Group]) -> Any:
    """The inputs once for each group, without it."""
    row = place.raw.values[0]
    rows = [row[torch.from_numpy(np.setdiff1d(np.arange(len(row)), group)).to(row.device)] for group in groups]
    inputs = repeated(ground.reading.inputs, len(groups))
    shorter = Padded.stack(rows)
    return shorter if place.field is None else inputs._replace(**{place.field: shorter})


def _some(groups: Sequence[Group], at_once: int) -> Iterator[Sequence[Group]]:
    with work("parts taken away", len(groups)) as moved:
        for start in range(0, len(groups), at_once):
            yield groups[start : start + at_once]
            moved(at_once)


def _scored(ground: AttributionGround, values: Sequence[Tensor]) -> Tensor:
    with at_work(ground), torch.no_grad():
        return ground.scores(values)


def _asked(ground: AttributionGround, inputs: Any) -> Tensor:
    with at_work(ground), torch.no_grad():
        return scores(ground.subject, inputs)


def _goals(goals: Sequence[Goal], found: Tensor) -> np.ndarray:
    """[G,N] of scores [N,R,K]."""
    return torch.stack([goal.of(found.double()) for goal in goals]).cpu().numpy()


def _shared(losses: Sequence[np.ndarray], groups: Sequence[Group], count: int) -> np.ndarray:
    """[G,E] an equal share for each element of a group, NaN for elements of none."""
    every = np.concatenate(losses, axis=1)  # [G,groups]
    found = np.full((len(every), count), np.nan)
    for number, group in enumerate(groups):
        found[:, group] = every[:, number : number + 1] / len(group)
    return found
