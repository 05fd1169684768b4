"""The methods without gradients, and the table of all methods.

Two methods remove something and measure the drop of the score:

    occlusion        a_t = s(x) - s(x with the baseline at t)        all positions stay
    leave_one_out    a_t = s(x) - s(x without t)                     tokens are removed; the text is not tokenized again

Several elements may be removed together (the pieces of a word, a segment of a long text, a square of a picture): then
each gets an equal share of the drop.

Rollout measures how much of each token the attention of all layers lets through to the prediction.

    r <- 1/2 r + 1/2 r A_l      from the last layer to the first, A_l the mean of its heads   (Abnar and Zuidema 2020)

The half that stays is the residual connection. r starts at the element that the prediction is computed from, or, if a
text has one prediction, at the weights of attention pooling, the first element, the last, or equally at all. A decoder
with cross-attention passes half of r to the source. Rows of A are recomputed in blocks, so no T x T matrix is kept.
Rollout shows where attention could carry information from, not whether it counts for or against the prediction; layers
without attention are skipped.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.config.old_names import name_fix
from seqloom.errors import ConfigError
from seqloom.inspect.attention_weights import AttentionLayer, AttentionRows, PooledRows, heard, layers_of
from seqloom.inspect.attribution.goals import AttributionGround, Goal, GroundPlace, at_work
from seqloom.inspect.attribution.gradients import Measured, ends, gradient, gradient_x_input, integrated
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import repeated
from seqloom.inspect.view import MEDIUM
from seqloom.nn.heads import Pooler
from seqloom.nn.types import Padded, Spelled, Subwords

MOST_GROUPS = 100  # that a long input is divided into
SQUARES = 14  # along the shorter side of a picture

Group = np.ndarray  # [M] indices of elements that are removed together


class Groups(NamedTuple):
    """The elements of each place that are removed together, and the size of the largest group."""

    of: tuple[list[Group], ...]
    largest: int


def groups_of(ground: AttributionGround, *, words: bool) -> Groups:
    """Return groups of single elements or words, or, for long inputs, of segments or squares."""
    found = tuple(_groups(place, ground.free(at), words=words) for at, place in enumerate(ground.places))
    return Groups(found, max((len(group) for groups in found for group in groups), default=1))


def _groups(place: GroundPlace, moves: np.ndarray, *, words: bool) -> list[Group]:
    if place.shape is not None:
        side = max(1, min(place.shape) // SQUARES)
        numbers = np.arange(place.shape[0] * place.shape[1]).reshape(place.shape)
        corners = product(range(0, place.shape[0], side), range(0, place.shape[1], side))
        return [numbers[y : y + side, x : x + side].ravel() for y, x in corners]
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


def occlusion(ground: AttributionGround, goals: Sequence[Goal], groups: Groups) -> Measured:
    """Return the drop of the score when the baseline replaces a group."""

    def scored(number: int, some: Sequence[Group]) -> Tensor:
        values = [each.expand(max(1, len(some)), *each.shape) for each in ground.here]
        here, base = ground.here[number], ground.base[number]
        gone = torch.zeros(len(values[number]), len(here), dtype=torch.bool)
        for row, group in enumerate(some):
            gone[row, torch.from_numpy(group)] = True
        values[number] = torch.where(gone.to(here.device)[..., None], base, here)
        return ground.scores(values)

    return _lost(ground, goals, groups, scored)


def leave_one_out(ground: AttributionGround, goals: Sequence[Goal], groups: Groups) -> Measured:
    """Return the drop of the score without each group; NaN for a place whose elements each have a prediction."""
    pairs = list(zip(ground.places, groups.of, strict=True))
    reasons = [_reason_to_stay(ground, place, of_place) for place, of_place in pairs]
    if all(reason is not None for reason in reasons):
        raise ConfigError(
            f"no token can be deleted: {'; '.join(dict.fromkeys(filter(None, reasons)))}",
            fix="use method occlusion, which replaces tokens instead of deleting them",
        )
    leaving = tuple(of_place if reason is None else [] for of_place, reason in zip(groups.of, reasons, strict=True))

    def scored(number: int, some: Sequence[Group]) -> Tensor:
        shorter = _shorter(ground, ground.places[number], some) if some else ground.reading.inputs
        return scores(ground.subject, shorter)

    return _lost(ground, goals, groups._replace(of=leaving), scored)


def _lost(
    ground: AttributionGround,
    goals: Sequence[Goal],
    groups: Groups,
    scored: Callable[[int, Sequence[Group]], Tensor],
) -> Measured:
    """Return the drop of the score without each group; `scored` returns the scores without some groups."""
    with at_work(ground), torch.no_grad():
        whole = _goals(goals, scored(0, []))

        def lost(number: int) -> np.ndarray:
            """[G,E] an equal share of the drop for each element of a group, NaN outside of groups."""
            mine, at_once = groups.of[number], ground.rows_at_once
            parts = [mine[start : start + at_once] for start in range(0, len(mine), at_once)]
            losses = [whole[:, :0]]
            with ground.subject.work("occlusions", len(mine)) as moved:
                for some in parts:
                    losses.append(whole - _goals(goals, scored(number, some)))
                    moved(at_once)
            found = np.full((len(goals), len(ground.places[number].tokens)), np.nan)
            for group, loss in zip(mine, np.concatenate(losses, axis=1).T, strict=True):
                found[:, group] = loss[:, None] / len(group)
            return found

        values = ground.subject.made("sides", range(len(groups.of)), lost)
    return Measured(tuple(values), 1 + sum(map(len, groups.of)), groups.largest)


def _reason_to_stay(ground: AttributionGround, place: GroundPlace, groups: Sequence[Group]) -> str | None:
    """Return why the elements of a place cannot be removed; None if they can."""
    if place.shape is not None:
        return "an image is read as a whole"
    if isinstance(place.raw, Spelled):
        return "this model reads words by their characters"
    if isinstance(place.raw, Padded) and place.raw.edges is not None:
        return "a node cannot be deleted without its edges"
    if max(map(len, groups), default=0) == len(place.tokens):
        return f"the {place.side.name} has only one token"
    if isinstance(place.raw, Subwords):
        return "each prediction belongs to a token"
    with at_work(ground), torch.no_grad():
        without_first = scores(ground.subject, _shorter(ground, place, [np.array([0])]))
    if without_first.shape[1] != len(ground.reading.rows):
        return "each prediction belongs to a token"  # a tagger, or a running text
    return None


def _shorter(ground: AttributionGround, place: GroundPlace, groups: Sequence[Group]) -> Any:
    """Return the inputs repeated for each group, without the group."""
    row = place.raw.values[0]
    rows = [row[torch.from_numpy(np.setdiff1d(np.arange(len(row)), group)).to(row.device)] for group in groups]
    inputs = repeated(ground.reading.inputs, len(groups))
    shorter = Padded.stack(rows)
    return shorter if place.field is None else inputs._replace(**{place.field: shorter})


def _goals(goals: Sequence[Goal], found: Tensor) -> np.ndarray:
    """Return the goals [G,N] from scores [N,R,K]."""
    return torch.stack([goal.of(found.double()) for goal in goals]).cpu().numpy()


ROWS_AT_ONCE = 256


@torch.no_grad()
def rollout(ground: AttributionGround, goals: Sequence[Goal]) -> Measured:
    """Return how much of each token may reach the elements that each goal is computed from; the sum is 1."""
    if any(place.shape is not None for place in ground.places):
        raise ConfigError(
            "attention rollout gives values for patches, and attributions of images are for pixels",
            fix="choose integrated_gradients or occlusion",
        )
    sides = ground.reading.sides
    # If the same layers read two texts, their attention counts for both
    names = [side.name for side in sides] if len({side.stack for side in sides}) < len(sides) else [None]
    layers = [layer for side in names for layer in layers_of(ground.subject, ground.reading, side)]
    found = heard(ground.subject, ground.reading, layers, lambda layer, rows: (layer, rows))
    rolled = []
    for goal in goals:
        shares = _beginning(ground, found, goal)
        for layer, rows in reversed(found):
            mine = shares[layer.side]
            if layer.same:
                shares[layer.side] = 0.5 * mine + 0.5 * _read(rows, mine)
            elif not isinstance(rows, PooledRows):
                shares[sides[0].name] = shares[sides[0].name] + 0.5 * _read(rows, mine)
                shares[layer.side] = 0.5 * mine
        rolled.append([shares[place.side.name] for place in ground.places])
    return Measured(tuple(np.stack(values) for values in zip(*rolled, strict=True)))


def _beginning(
    ground: AttributionGround, found: Sequence[tuple[AttentionLayer, AttentionRows]], goal: Goal
) -> dict[str, np.ndarray]:
    """Return the shares of the last vectors of each side that the prediction is computed from."""
    places = {place.side.name: np.zeros(len(place.tokens)) for place in ground.places}
    pooler = next((each for each in ground.subject.model.modules() if isinstance(each, Pooler)), None)
    if pooler is None:
        answering = ground.places[-1]
        for row in goal.rows:
            # a row is computed from the first piece of its word, or from the element itself
            element = int(answering.raw.firsts.values[0, row]) if isinstance(answering.raw, Subwords) else row
            places[answering.side.name][element] += 1 / len(goal.rows)
        return places
    weights = {
        layer.side: rows.weights(0, slice(0, 1))[0].double().cpu().numpy()
        for layer, rows in found
        if isinstance(rows, PooledRows)
    }
    for shares in places.values():
        shares[{"first": slice(1), "last": slice(-1, None)}.get(pooler.how, slice(None))] = 1
    return {name: weights.get(name, shares / shares.sum()) / len(places) for name, shares in places.items()}


def _read(rows: AttentionRows, shares: np.ndarray) -> np.ndarray:
    """Propagate the shares [T] of queries to the keys [S] that they attend to."""
    total = np.zeros(rows.num_keys)
    for start in range(0, rows.num_queries, ROWS_AT_ONCE):
        block = slice(start, min(start + ROWS_AT_ONCE, rows.num_queries))
        if shares[block].any():
            for head in range(rows.num_heads):  # NaN where masked, for all heads
                weights = rows.weights(head, block).nan_to_num().double().cpu().numpy()
                total += shares[block] @ weights / rows.num_heads
    return total


class MethodOptions(NamedTuple):
    """Options of a method."""

    steps: int | None = None  # of integrated gradients
    words: bool = False  # remove the pieces of a word together


class Method(NamedTuple):
    """An attribution method."""

    measure: Callable[[AttributionGround, Sequence[Goal], MethodOptions], Measured]
    title: str
    unit: str  # of its values
    adds_up: bool  # to score - baseline score, exactly or as far as the model is linear


METHODS: Mapping[str, Method] = {
    "integrated_gradients": Method(
        lambda ground, goals, wishes: integrated(ground, goals, wishes.steps),
        "integrated gradients",
        "contribution to the score",
        True,
    ),
    "gradient_x_input": Method(
        lambda ground, goals, _: gradient_x_input(ground, goals), "gradient x input", "contribution to the score", True
    ),
    "gradient": Method(
        lambda ground, goals, _: gradient(ground, goals), "gradient norm", "score per unit of change", False
    ),
    "occlusion": Method(
        lambda ground, goals, wishes: occlusion(ground, goals, groups_of(ground, words=wishes.words)),
        "occlusion",
        "drop of the score",
        True,
    ),
    "leave_one_out": Method(
        lambda ground, goals, wishes: leave_one_out(ground, goals, groups_of(ground, words=wishes.words)),
        "leave-one-out",
        "drop of the score",
        False,
    ),
    "rollout": Method(
        lambda ground, goals, _: rollout(ground, goals), "attention rollout", "share of the attention", False
    ),
}


class Outcome(NamedTuple):
    """The values of a method for some goals, and their completeness."""

    values: tuple[np.ndarray, ...]  # [G,E] of each place
    score: np.ndarray  # [G]
    baseline_scores: np.ndarray  # [M,G] all places at the baseline; for two texts, with the first, then the second
    error: np.ndarray | None  # [G] of completeness; None if the values of the method have no sum
    steps: int
    grouped: int  # largest number of elements that were removed together


def method_of(name: str) -> Method:
    if name not in METHODS:
        raise ConfigError(f"there is no attribution method '{name}'", fix=name_fix(name, METHODS))
    return METHODS[name]


def outcome(ground: AttributionGround, goals: Sequence[Goal], name: str, wishes: MethodOptions) -> Outcome:
    """Run the method of this name on each group of places that move together."""
    method = method_of(name)
    if wishes.steps is not None and name != "integrated_gradients":
        raise ConfigError(f"steps is only for integrated gradients, and the method is {name}", fix="leave steps out")
    moves = ground.moves()
    found = ground.subject.made("sides", moves, lambda each: method.measure(each, goals, wishes))
    by_move = list(zip(moves, found, strict=True))
    values = tuple(
        next(each.values[at] for move, each in by_move if at in move.moving) for at in range(len(ground.places))
    )
    scores = [ends(each, goals) for each in moves]
    before = np.stack([end for _, end in scores])
    error = completeness_error(values, (scores[0][0] - before).sum(axis=0)) if method.adds_up else None
    steps, grouped = sum(each.steps for each in found), max(each.grouped for each in found)
    return Outcome(values, scores[0][0], before, error, steps, grouped)


def completeness_error(values: Sequence[np.ndarray], rise: np.ndarray) -> np.ndarray:
    """Return [G] |sum of the values - rise| relative to the rise; infinite if the rise is zero."""
    total = np.sum([np.nansum(each, axis=1) for each in values], axis=0)
    missing = np.abs(total - rise)
    found: np.ndarray = np.divide(missing, np.abs(rise), out=np.where(missing > 0, np.inf, 0.0), where=np.abs(rise) > 0)
    return found
