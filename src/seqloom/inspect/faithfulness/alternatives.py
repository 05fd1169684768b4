"""Attention weights that replace the model's own: uniform, adversarial, shuffled, and some set to zero.

Uniform weights, and other models (Wiegreffe and Pinter 2019): does this task need attention, and is it reproducible?

frozen       uniform weights replace the model's own, without training: does *this model* use its weights?
retrained    a model of the same architecture that was trained with uniform weights (pooling "mean" instead of
             "attention"): does *the task* need them? If it scores as well, no other test shows that they are needed.
seeds        models of the same architecture from other seeds: JSD of their weights from these, the median over the
             models. Adversarial weights are meaningful only if they are farther than this, so it is measured in the
             same way: by row and head, over all keys, the mean over rows that have a choice. The heads of another
             model are in any order, so each head is matched with a similar one.

Adversarial attention (Jain and Wallace 2019, section 4.2.2): weights as far as possible with the same prediction.

    maximize  sum_k JSD(a_k, a) - 500 max(0, d_k - eps)  +  mean_k sum_l JSD(a_k, a_l)        d_k = TVD(p_k, p)

with Adam over the logits of K distributions, initialized at random, the model fixed. JSD is the mean over heads and
over the rows that have a choice: a row with only one movable weight cannot change. The result is the largest among
those with d_k <= eps; the model's own weights, JSD 0, are always included. With a saturated softmax much weight can
move without effect, so read the number together with the confidence of the model and the spread between seeds.

Weights set to zero (Serrano and Smith 2019): does the prediction depend on the largest weight?

    one       the largest weight against a random other one: JS(p without it, p), and whether the decision flips
    several   in descending order of (a) weight, (b) gradient of the predicted probability by the weight, (c) weight x
              gradient, (d) random, until the decision flips: the fraction of tokens that this takes

The rest of a row is scaled to its previous sum, or is zero if nothing remains. With several rows or heads, a token's
weight is erased in all of them.

Shuffled weights (Jain and Wallace 2019, section 4.2.1): does it matter which token has which weight?

    d_k = TVD(p(h, perm_k(a)), p(h, a))       for 100 random orders, h fixed; the median over k is reported

The largest weight is reported too: with nearly uniform weights a shuffle changes little, so it shows nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import DataError
from seqloom.inspect.attention_weights import chosen_layer, layers_of
from seqloom.inspect.faithfulness.bench import (
    Bench,
    ImposedRows,
    Trial,
    at_bench,
    confidence,
    decided,
    flipped,
    probabilities,
)
from seqloom.inspect.faithfulness.explanations import jensen_shannon, total_variation
from seqloom.inspect.flow import still
from seqloom.inspect.readings import read
from seqloom.inspect.subject import Reading, Subject

ORDERS = ("weight", "gradient", "weight x gradient", "chance")
MOST_STEPS = 100  # of an erasure: the tokens of a longer input are erased in up to 100 groups
MOST = 0.5  # share of several answers that must flip for the decision to flip


class ErasureTrial(NamedTuple):
    """The effect of erasing weights."""

    top: float  # JS of the predictions without the largest weight
    other: float  # without a random other weight
    top_flips: float  # fraction of predictions that flip
    other_flips: float
    gap: float  # largest weight - other weight
    taken: dict[str, float | None]  # by order: fraction of tokens erased when the decision flips; None: never


def erased(bench: Bench, draw: np.random.Generator) -> ErasureTrial | None:
    """Run both experiments on one input; None if it has only one token."""
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
    return ErasureTrial(float(far[0]), float(far[1]), float(flips[0]), float(flips[1]), gap, taken)


def erasure(bench: Bench, groups: Sequence[np.ndarray]) -> Trial:
    """Return the trial that erases the weights of these keys, one group per variant."""
    gone = torch.zeros(len(groups), len(bench.free), dtype=torch.bool)
    for row, group in enumerate(groups):
        gone[row, torch.from_numpy(group)] = True
    gone = gone.to(bench.free.device)
    return lambda rows, part: without_weights(rows, gone[part, None, None] & bench.movable(rows))


def without_weights(rows: ImposedRows, gone: Tensor) -> Tensor:
    """Return the weights [N,H,R,S] with some set to zero and the others scaled, so that each row keeps its sum."""
    left = rows.weights.masked_fill(gone, 0)
    before, after = (each.sum(dim=-1, keepdim=True) for each in (rows.weights, left))
    scaled = left * before / after.clamp(min=torch.finfo(left.dtype).tiny)
    return torch.where(gone.any(dim=-1, keepdim=True), scaled, rows.weights)


def _slopes(bench: Bench) -> np.ndarray:
    """Return the gradient [S] of the predicted probability by the weight of each key, summed over rows and heads."""
    with torch.enable_grad():
        more = torch.zeros(len(bench.free), device=bench.free.device, requires_grad=True)
        found = bench.under(lambda rows, _: rows.weights + more * bench.movable(rows), 1)
        (slopes,) = torch.autograd.grad(confidence(found, decided(bench.own)).sum(), [more])
    return slopes.double().cpu().numpy()


def _until_flipped(bench: Bench, order: np.ndarray) -> float | None:
    """Return the fraction of tokens, in this order, that are erased when the decision flips; None if it never does."""
    steps = bench.affordable(min(MOST_STEPS, len(order)))
    counts = np.unique(np.linspace(1, len(order), steps).round().astype(int))
    for some in np.split(counts, range(bench.at_once, len(counts), bench.at_once)):  # stops after a flip
        found = bench.under(erasure(bench, [order[:count] for count in some]), len(some))
        over = (flipped(found, decided(bench.own)) >= MOST).cpu().numpy()
        if over.any():
            return float(some[over.argmax()] / len(order))
    return None


PERMUTATIONS = 100


class PermutationTrial(NamedTuple):
    """How far predictions move when weights are shuffled."""

    tvd: np.ndarray  # [P] TVD of each shuffle, the mean over answers
    max_weight: float  # the mean over rows and heads

    @property
    def median(self) -> float:
        return float(np.median(self.tvd))


def permuted(bench: Bench, draw: torch.Generator, count: int = PERMUTATIONS) -> PermutationTrial:
    """Shuffle the weights, each row and head separately, at most `count` times (fewer for a long input)."""
    tried = bench.affordable(count)
    found = bench.under(lambda rows, _: shuffled(rows.weights, bench.movable(rows), draw), tried)
    return PermutationTrial(total_variation(found, bench.own).mean(dim=1).cpu().numpy(), bench.sharpness)


def shuffled(weights: Tensor, movable: Tensor, draw: torch.Generator) -> Tensor:
    """Return the weights [N,H,R,S] with the movable ones of each row in random order; the others stay."""
    places = torch.arange(weights.shape[-1], device=weights.device)
    noise = torch.rand(weights.shape, generator=draw).to(weights.device)
    # Both orders put the movable positions first and the fixed ones, in order, after them, so that fixed weights stay
    # in place. The second order is the same for all heads; if all weights are movable it is the identity.
    out_of = torch.where(movable, noise - 2, places + 2.0).argsort(dim=-1)
    found = weights.gather(-1, out_of)
    if bool(movable.all()):
        return found
    into = torch.where(movable, -1.0 / (places + 2), places + 2.0).argsort(dim=-1)
    return torch.empty_like(weights).scatter(-1, into.expand_as(weights), found)


def evened(rows: ImposedRows, movable: Tensor) -> Tensor:
    """Return the weights with the movable weight of each row spread evenly."""
    mass = rows.weights.masked_fill(~movable, 0).sum(dim=-1, keepdim=True)
    count = movable.sum(dim=-1, keepdim=True).clamp(min=1)
    return torch.where(movable, mass / count, rows.weights)


MOST_CELLS = 2**19  # weights of a model that are compared with another's: of more, evenly spaced rows are taken


class UniformTrial(NamedTuple):
    """The predictions for one input with uniform weights."""

    tvd: float  # TVD of the predictions
    kept: float  # fraction of decisions that stay
    predictions: tuple[int, ...]  # [Q]


class UniformComparison(NamedTuple):
    """The effect of uniform weights over several inputs; scores are accuracies, None if the labels are unknown."""

    tvd: float  # TVD with frozen uniform weights, the mean
    kept: float  # fraction of decisions that stay
    score: float | None = None  # of the model
    frozen_score: float | None = None  # of the model with uniform weights
    retrained_score: float | None = None  # of the model that was trained with uniform weights


def even(bench: Bench) -> UniformTrial:
    """Return the predictions with uniform weights."""
    found = bench.under(lambda rows, _: evened(rows, bench.movable(rows)), 1)
    moved = float(total_variation(found, bench.own).mean())
    kept = 1 - float(flipped(found, decided(bench.own))[0])
    return UniformTrial(moved, kept, tuple(decided(found[0]).tolist()))


@torch.no_grad()
def decisions(subject: Subject, reading: Reading) -> tuple[int, ...]:
    """Return the predictions [Q] of a model."""
    with still(subject.model):
        return tuple(decided(probabilities(subject, reading, reading.inputs)[0]).tolist())


def seed_distance(bench: Bench, others: Sequence[Subject], layer: int | str | None) -> float | None:
    """Return the JSD of the weights of other models from these, the median over the models; None without models."""
    if not others:
        return None
    own = _rows(bench)
    return float(np.median([_distance(own, _weights(other, bench.reading, layer)) for other in others]))


def _weights(other: Subject, reading: Reading, layer: int | str | None) -> Tensor:
    """Return the weights of another model for the same input; for a translation, with this model's target."""
    again = read(other, reading.given)
    own, others = reading.sides[0], again.sides[0]
    if own.tokens != others.tokens:
        raise DataError(
            f"the other model tokenizes this input differently: {len(others.tokens)} tokens, here {len(own.tokens)}",
            fix="compare models that were trained with the same tokenizer",
        )
    again = again if reading.targets is None else reading
    with at_bench(other, again, chosen_layer(layers_of(other, again), layer)) as bench:
        return _rows(bench)


def _rows(bench: Bench) -> Tensor:
    """Return the model's weights [H,R,S] in the used rows that have a choice, or in an even sample of them."""
    every = -(-bench.cells // MOST_CELLS)
    used = bench.asked.nonzero()[::every, 0]
    found: list[Tensor] = []

    def keep(rows: ImposedRows, _part: slice) -> Tensor:
        mine = used[(used >= rows.start) & (used < rows.stop)] - rows.start
        mine = mine[bench.has_choice(rows)[mine]]
        found.append(rows.weights[0, :, mine].double().cpu())
        return rows.weights

    bench.under(keep, 1)
    return torch.cat(found, dim=1)


def _distance(own: Tensor, others: Tensor) -> float:
    if own.shape != others.shape:
        raise DataError(
            f"the other model has {len(others)} heads x {others.shape[1]} queries, this one {len(own)} x "
            f"{own.shape[1]}",
            fix="compare models of the same architecture",
        )
    if not own.shape[1]:
        return 0.0  # with one word, all models have the same weights
    apart = torch.stack([jensen_shannon(head, others).mean(dim=-1) for head in own])  # [H,H]
    return float(np.mean(_matched(apart.numpy())))


def _matched(apart: np.ndarray) -> list[float]:
    """Return the distances [H] of matched heads: the closest pair first, then greedily the rest."""
    left, found = apart.copy(), []
    for _ in range(len(apart)):
        row, column = divmod(int(left.argmin()), left.shape[1])
        found.append(float(left[row, column]))
        left[row], left[:, column] = np.inf, np.inf
    return found


CANDIDATES, STEPS, RATE = 5, 500, 0.01
TOLERANCE = 0.01  # eps: predictions closer than this are the same
PENALTY = 500.0
SPREAD = 3.0  # of the initial logits


class Adversary(NamedTuple):
    """The most distant weights that leave the predictions unchanged."""

    distance: float  # the largest JSD of a candidate with d <= eps, 0 if there is none
    tvd: float  # its TVD
    feasible: bool  # whether there is a candidate with d <= eps
    weights: np.ndarray  # [S] in the format of `Bench.weights`
    candidates: np.ndarray  # [K,2] JSD and TVD of each


def adversary(
    bench: Bench, draw: torch.Generator, *, steps: int = STEPS, tolerance: float = TOLERANCE
) -> Adversary | None:
    """Search for adversarial weights; None if there are too many weights to search."""
    if bench.cells > MOST_CELLS:
        return None
    search = _AdversarySearch(bench, draw)
    optimizer = torch.optim.Adam([search.logits], lr=RATE, amsgrad=True)
    for _ in range(steps):
        with torch.enable_grad():
            far, moved, apart = search.measured()
            loss = (PENALTY * (moved - tolerance).relu() - far).sum() - apart
            (search.logits.grad,) = torch.autograd.grad(loss, [search.logits])
        optimizer.step()
    far, moved, _ = search.measured()
    return search.best(far, moved, tolerance)


class _AdversarySearch:
    """The candidates, as logits [K,H,R,S] over the used rows."""

    def __init__(self, bench: Bench, draw: torch.Generator) -> None:
        self.bench = bench
        kept: list[tuple[Tensor, ...]] = []

        def keep(rows: ImposedRows, _part: slice) -> Tensor:
            used = bench.asked[rows.start : rows.stop]
            kept.append((rows.weights[:, :, used], bench.movable(rows)[:, :, used], bench.has_choice(rows)[used]))
            return rows.weights

        bench.under(keep, 1)
        own, movable, choice = zip(*kept, strict=True)
        self.own = torch.cat(own, dim=2)  # [1,H,R,S]
        self.movable = torch.cat(movable, dim=2)  # [1,1,R,S]
        self.choice = torch.cat(choice)  # [R]
        self.mass = self.own.masked_fill(~self.movable, 0).sum(dim=-1, keepdim=True)
        noise = torch.randn(CANDIDATES, *self.own.shape[1:], generator=draw)
        self.logits = (SPREAD * noise).to(self.own.device).requires_grad_()

    def weights(self) -> Tensor:
        """Return the weights [K,H,R,S] of each candidate: the movable weight of a row is redistributed."""
        lowest = torch.finfo(self.logits.dtype).min
        shares = self.logits.masked_fill(~self.movable, lowest).softmax(dim=-1)
        return torch.where(self.movable, self.mass * shares, self.own)

    def measured(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return [K] distances from the model's weights, [K] of the predictions, and those between candidates."""
        found = self.weights()
        answers = self.bench.under(lambda rows, part: self._put(rows, found[part]), CANDIDATES)
        moved = total_variation(answers, self.bench.own).mean(dim=1)
        apart = self._over_rows(jensen_shannon(found[:, None], found[None])).sum(dim=0).mean()
        return self._over_rows(jensen_shannon(found, self.own)), moved, apart

    def _over_rows(self, distances: Tensor) -> Tensor:
        """Return the mean of distances [...,H,R] over heads and the rows that have a choice; 0 without such rows."""
        return (distances.mean(dim=-2) * self.choice).sum(dim=-1) / self.choice.sum().clamp(min=1)

    def _put(self, rows: ImposedRows, found: Tensor) -> Tensor:
        used = self.bench.asked[rows.start : rows.stop]
        before = int(self.bench.asked[: rows.start].sum())
        changed = rows.weights.clone()
        changed[:, :, used] = found[:, :, before : before + int(used.sum())].to(changed.dtype)
        return changed

    def best(self, far: Tensor, moved: Tensor, tolerance: float) -> Adversary:
        """Return the most distant candidate that leaves the predictions unchanged."""
        fits = moved <= tolerance
        chosen = int(far.masked_fill(~fits, -1).argmax())
        found = self.weights()[chosen] if bool(fits.any()) else self.own[0]
        columns = found.mean(dim=(0, 1)).double().masked_fill(~self.bench.free, torch.nan)
        distance, change = (float(each[chosen]) if bool(fits.any()) else 0.0 for each in (far, moved))
        candidates = torch.stack([far, moved], dim=1).detach().cpu().numpy()
        return Adversary(distance, change, bool(fits.any()), columns.detach().cpu().numpy(), candidates)
