"""Weights set to zero (Serrano and Smith 2019): is the largest weight the one that the answer rests on?

    one       the largest weight against a random other one: JS(p without it, p), and whether the decision flips
    several   in descending order of (a) weight, (b) gradient of the predicted probability by the weight, (c) weight x
              gradient, (d) chance, until the decision flips: the share of tokens that it takes

What is left of a row is scaled to sum to what it had; where nothing is left it is zero. With several rows or heads a
token's weight is erased in all of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.inspection.faithfulness.answers import confidence, decided, flipped
from seqloom.inspection.faithfulness.bench import Bench, Trial
from seqloom.inspection.faithfulness.distances import jensen_shannon
from seqloom.inspection.faithfulness.imposing import Rows

ORDERS = ("weight", "gradient", "weight x gradient", "chance")
MOST_STEPS = 100  # of an erasure: a longer input is erased in bins of one in a hundred, or fewer
MOST = 0.5  # of several answers: the decision has flipped when so many have


class Erased(NamedTuple):
    """What it does to erase weights."""

    top: float  # JS of the answers without the largest weight
    other: float  # the same without a random other one
    top_flips: float  # the share of answers that flip
    other_flips: float
    gap: float  # how much larger the largest weight is than the other
    taken: dict[str, float | None]  # by order: the share of tokens that are erased when the decision flips, None: never


def erased(bench: Bench, draw: np.random.Generator) -> Erased | None:
    """The two experiments on one input; None where it has only one token."""
    tokens = np.flatnonzero(~np.isnan(bench.weights))
    if len(tokens) < 2:
        return None
    weights = bench.weights[tokens]
    top = int(weights.argmax())
    other = int(draw.choice(np.delete(np.arange(len(tokens)), top)))
    found = bench.under(erasure(bench, [tokens[[top]], tokens[[other]]]), 2)
    far, flips = jensen_shannon(found, bench.own).mean(dim=1), flipped(found, decided(bench.own))
    slopes = _slopes(bench)[tokens]
    ranked = dict(zip(ORDERS, (weights, slopes, weights * slopes, draw.random(len(tokens))), strict=True))
    taken = {name: _until_flipped(bench, tokens[np.argsort(-by, kind="stable")]) for name, by in ranked.items()}
    gap = float(weights[top] - weights[other])
    return Erased(float(far[0]), float(far[1]), float(flips[0]), float(flips[1]), gap, taken)


def erasure(bench: Bench, groups: Sequence[np.ndarray]) -> Trial:
    """The trial that erases the weights of these keys, a group in each variant."""
    gone = torch.zeros(len(groups), len(bench.free), dtype=torch.bool)
    for row, group in enumerate(groups):
        gone[row, torch.from_numpy(group)] = True
    gone = gone.to(bench.free.device)
    return lambda rows, part: without_weights(rows, gone[part, None, None] & bench.movable(rows))


def without_weights(rows: Rows, gone: Tensor) -> Tensor:
    """The weights [N,H,R,S] with some of them zero and the others scaled, so that a row has what it had."""
    left = rows.weights.masked_fill(gone, 0)
    before, after = (each.sum(dim=-1, keepdim=True) for each in (rows.weights, left))
    scaled = left * before / after.clamp(min=torch.finfo(left.dtype).tiny)
    return torch.where(gone.any(dim=-1, keepdim=True), scaled, rows.weights)


def _slopes(bench: Bench) -> np.ndarray:
    """[S] the gradient of the predicted probability by the weight of each key, summed over rows and heads."""
    with torch.enable_grad():
        more = torch.zeros(len(bench.free), device=bench.free.device, requires_grad=True)
        found = bench.under(lambda rows, _: rows.weights + more * bench.movable(rows), 1)
        (slopes,) = torch.autograd.grad(confidence(found, decided(bench.own)).sum(), [more])
    return slopes.double().cpu().numpy()


def _until_flipped(bench: Bench, order: np.ndarray) -> float | None:
    """The share of tokens, in this order, without whose weights the decision is another one; None if it stays."""
    steps = bench.affordable(min(MOST_STEPS, len(order)))
    counts = np.unique(np.linspace(1, len(order), steps).round().astype(int))
    for some in np.split(counts, range(bench.at_once, len(counts), bench.at_once)):  # those behind a flip tell nothing
        found = bench.under(erasure(bench, [order[:count] for count in some]), len(some))
        over = (flipped(found, decided(bench.own)) >= MOST).cpu().numpy()
        if over.any():
            return float(some[over.argmax()] / len(order))
    return None
