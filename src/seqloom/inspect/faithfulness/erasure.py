"""Weights set to zero (Serrano and Smith 2019): is the largest weight the one that the answer rests on?

    one       the largest weight against a random other one: JS(p without it, p), and whether the decision flips
    several   in descending order of (a) weight, (b) gradient of the predicted probability by the weight, (c) weight x
              gradient, (d) chance, until the decision flips: the share of tokens that it takes

What is left of a row is scaled to sum to what it had; where nothing is left it is zero. With several rows or heads a
token's weight is erased in all of them.

Shuffled weights (Jain and Wallace 2019, section 4.2.1): do the answers care which token has which weight?

    d_k = TVD(p(h, perm_k(a)), p(h, a))       for 100 random orders, h fixed; the median over k is reported

Beside it stands the largest weight: where weights are even, a shuffle changes nothing and says nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.inspect.faithfulness.agreement import jensen_shannon, total_variation
from seqloom.inspect.faithfulness.bench import Bench, ImposedRows, Trial, confidence, decided, flipped

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


def without_weights(rows: ImposedRows, gone: Tensor) -> Tensor:
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


PERMUTATIONS = 100


class Permuted(NamedTuple):
    """How far answers move when weights are shuffled."""

    moved: np.ndarray  # [P] TVD of each shuffle that was tried, the mean over answers
    sharpness: float  # the largest weight, the mean over rows and heads

    @property
    def median(self) -> float:
        """The median over the shuffles."""
        return float(np.median(self.moved))


def permuted(bench: Bench, draw: torch.Generator, count: int = PERMUTATIONS) -> Permuted:
    """The answers under as many shuffles of the weights as can be paid for, each row and head by itself."""
    tried = bench.affordable(count)
    found = bench.under(lambda rows, _: shuffled(rows.weights, bench.movable(rows), draw), tried)
    return Permuted(total_variation(found, bench.own).mean(dim=1).cpu().numpy(), bench.sharpness)


def shuffled(weights: Tensor, movable: Tensor, draw: torch.Generator) -> Tensor:
    """The weights [N,H,R,S] with the movable ones of each row in a random order, the others where they are."""
    places = torch.arange(weights.shape[-1], device=weights.device)
    noise = torch.rand(weights.shape, generator=draw).to(weights.device)
    # Both orders put the movable places first and the others, in order, behind them: these meet themselves. The first
    # order is the same for all heads, and where all may be moved it is the one that they stand in.
    out_of = torch.where(movable, noise - 2, places + 2.0).argsort(dim=-1)
    found = weights.gather(-1, out_of)
    if bool(movable.all()):
        return found
    into = torch.where(movable, -1.0 / (places + 2), places + 2.0).argsort(dim=-1)
    return torch.empty_like(weights).scatter(-1, into.expand_as(weights), found)


def evened(rows: ImposedRows, movable: Tensor) -> Tensor:
    """The weights with what is movable of each row spread evenly over its places."""
    mass = rows.weights.masked_fill(~movable, 0).sum(dim=-1, keepdim=True)
    count = movable.sum(dim=-1, keepdim=True).clamp(min=1)
    return torch.where(movable, mass / count, rows.weights)
