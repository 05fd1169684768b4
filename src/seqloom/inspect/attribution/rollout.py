"""Attention rollout: how much of each token the attention of all layers lets through to the answer.

    r <- 1/2 r + 1/2 r A_l      from the last layer to the first, A_l the mean of its heads   (Abnar and Zuidema 2020)

The half that stays is the residual connection. r begins at the element that the answer is read from: one of them, or,
where a text has one answer, the weights of attention pooling, the first, the last, or all alike. A decoder that looks
at a source gives half of r to it. Rows of A are recomputed in blocks, so r of 4,000 tokens holds no 4,000 x 4,000.
It says where attention could carry from, never whether it spoke for or against; layers that do not attend are passed.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from seqloom.errors import ConfigError
from seqloom.inspect.attention_rows import AttentionLayer, AttentionRows, PooledRows, heard, layers_of
from seqloom.inspect.attribution.goals import Goal
from seqloom.inspect.attribution.gradients import Measured
from seqloom.inspect.attribution.ground import AttributionGround
from seqloom.nn.heads import Pooler
from seqloom.nn.types import Subwords

ROWS_AT_ONCE = 256


class _Heard(NamedTuple):
    """A layer that attends, and its rows."""

    layer: AttentionLayer
    rows: AttentionRows


@torch.no_grad()
def rollout(ground: AttributionGround, goals: Sequence[Goal]) -> Measured:
    """How much of each token may reach the elements that each goal is read from; adds up to one over all places."""
    if any(place.shape is not None for place in ground.places):
        raise ConfigError(
            "attention rolls back to patches, and attributions of pictures are those of pixels",
            fix="choose integrated or occlusion",
        )
    found = heard(ground.subject, ground.reading, _layers(ground), _Heard)
    each = [_rolled(ground, found, goal) for goal in goals]
    return Measured(tuple(np.stack(values) for values in zip(*each, strict=True)))


def _layers(ground: AttributionGround) -> list[AttentionLayer]:
    """Every layer that attends; where two texts are read by the same layers, of both of them."""
    sides = ground.reading.sides
    shared = len({side.stack for side in sides}) < len(sides)
    asked = [side.name for side in sides] if shared else [None]
    return [layer for side in asked for layer in layers_of(ground.subject, ground.reading, side)]


def _rolled(ground: AttributionGround, found: Sequence[_Heard], goal: Goal) -> list[np.ndarray]:
    """[E] of each place."""
    shares = _beginning(ground, found, goal)
    for layer, rows in reversed(found):
        mine = shares[layer.side]
        if layer.same:
            shares[layer.side] = 0.5 * mine + 0.5 * _read(rows, mine)
        elif not isinstance(rows, PooledRows):
            source = ground.reading.sides[0].name
            shares[source] = shares[source] + 0.5 * _read(rows, mine)
            shares[layer.side] = 0.5 * mine
    return [shares[place.side.name] for place in ground.places]


def _beginning(ground: AttributionGround, found: Sequence[_Heard], goal: Goal) -> dict[str, np.ndarray]:
    """What the answer is read from, as shares of the last vectors of each side."""
    places = {place.side.name: np.zeros(len(place.tokens)) for place in ground.places}
    pooler = next((each for each in ground.subject.model.modules() if isinstance(each, Pooler)), None)
    if pooler is None:
        answering = ground.places[-1]
        for row in goal.rows:
            places[answering.side.name][_element(answering.raw, row)] += 1 / len(goal.rows)
        return places
    weights = {
        layer.side: rows.weights(0, slice(0, 1))[0].double().cpu().numpy() for layer, rows in found if _pools(rows)
    }
    return {
        name: weights.get(name, POOLED.get(pooler.how, _evenly)(len(zeros))) / len(places)
        for name, zeros in places.items()
    }


def _pools(rows: AttentionRows) -> bool:
    return isinstance(rows, PooledRows)


def _element(raw: Any, row: int) -> int:
    """The element that a row of the answer is read from: the first piece of a word, or the element itself."""
    return int(raw.firsts.values[0, row]) if isinstance(raw, Subwords) else row


def _read(rows: AttentionRows, shares: np.ndarray) -> np.ndarray:
    """[S] the shares [T] of queries, handed on to what they read."""
    total = np.zeros(rows.num_keys)
    for start in range(0, rows.num_queries, ROWS_AT_ONCE):
        asked = slice(start, min(start + ROWS_AT_ONCE, rows.num_queries))
        if shares[asked].any():
            for head in range(rows.num_heads):  # NaN where the mask forbids, which is the same for all of them
                weights = rows.weights(head, asked).nan_to_num().double().cpu().numpy()
                total += shares[asked] @ weights / rows.num_heads
    return total


def _evenly(count: int) -> np.ndarray:
    return np.full(count, 1 / count)


def _one(at: int) -> Callable[[int], np.ndarray]:
    return lambda count: np.eye(1, count, at % count)[0]


POOLED: Mapping[str, Callable[[int], np.ndarray]] = {"first": _one(0), "last": _one(-1)}  # else all alike
