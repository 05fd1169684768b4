"""A linear model as the convex problem it is, and the Newton steps that solve it.

    min over W, b of   sum of losses(X W + b) + strength / 2 |W|^2          X: the TF-IDF of all training texts

Conjugate gradients find where the quadratic model of the objective is lowest (Lin, Weng and Keerthi 2008), and the step
there is halved until the objective falls. The loss is that of the task and its head, with class weights and smoothing;
its derivatives by the scores come from autograd, in float64. Products with X are sums of bags of rows, in float32.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.heads import Head
from seqloom.inputs import Tfidf
from seqloom.tasks.contract import Task
from seqloom.training.pieces import elements_of, moved
from seqloom.types import Batch, Loss, Padded

MOST_PRODUCTS = 50  # of one step
INEXACT = 0.1  # of the gradient may be left by a step; less as the gradient falls, so that the last steps are few
HALVINGS = 20
FALLS = 1e-4  # of the descent that the gradient promises must come true (Armijo 1966)
ROUNDED = 1e-7  # of the objective: in float32 less may be no change at all


class Entries(NamedTuple):
    """A sparse matrix [N,M]: what stands in each row, one row after another."""

    columns: Tensor
    values: Tensor
    starts: Tensor  # [N] where each row begins

    @classmethod
    def of(cls, rows: Tensor, columns: Tensor, values: Tensor, count: int) -> "Entries":
        """The matrix of so many rows with these entries, given in any order."""
        order = rows.argsort(stable=True)
        lengths = torch.bincount(rows, minlength=count)
        return cls(columns[order].int(), values[order].float(), (lengths.cumsum(0) - lengths).int())

    def times(self, dense: Tensor) -> Tensor:
        """[N,K] the product with a matrix [M,K]."""
        return F.embedding_bag(self.columns, dense, self.starts, mode="sum", per_sample_weights=self.values)


class Texts(NamedTuple):
    """The TF-IDF of all texts, and their targets."""

    by_text: Entries  # [N,M], M the n-grams that stand in some text
    by_ngram: Entries  # [M,N]
    rows: Tensor  # [M] where each n-gram stands in the table of weights
    targets: Tensor
    ids: tuple[str, ...]
    symbols: int

    @classmethod
    def of(cls, source: Tfidf, batches: Iterable[Batch[Any, Any]]) -> "Texts":
        """The texts of some batches, on the processor."""
        found, targets, ids, symbols = [], [], list[str](), 0
        for batch in batches:
            bags = source.bags(moved(batch, source.idf.device).inputs)
            found.append((bags.texts.cpu() + len(ids), bags.rows.cpu(), bags.values.cpu()))
            targets.append(batch.targets)
            ids += batch.ids
            symbols += elements_of(batch)[1]
        texts, standing, values = (torch.cat(parts) for parts in zip(*found, strict=True))
        rows, ngrams = torch.unique(standing, return_inverse=True)
        by_text, by_ngram = Entries.of(texts, ngrams, values, len(ids)), Entries.of(ngrams, texts, values, len(rows))
        return cls(by_text, by_ngram, rows, torch.cat(targets), tuple(ids), symbols)


class Scored(nn.Module):
    """What is left of a linear model behind X W + b: its inputs are the scores, its head gives their loss."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head

    def loss(self, batch: Batch[Tensor, Tensor]) -> Loss:
        """The loss summed over the texts."""
        return self.head.loss(Padded.of(batch.inputs[:, None]), batch.targets[:, None])


class Point(NamedTuple):
    """Weights [M,K] and bias [K], or a direction from some to others."""

    weights: Tensor
    bias: Tensor

    def plus(self, length: float, along: "Point") -> "Point":
        """self + length along."""
        return Point(self.weights.add(along.weights, alpha=length), self.bias.add(along.bias, alpha=length))

    def dot(self, other: "Point") -> float:
        """The inner product."""
        weights = torch.dot(self.weights.flatten(), other.weights.flatten())
        return float(weights) + float(torch.dot(self.bias, other.bias))

    def largest(self) -> float:
        """The largest size of a number."""
        return max(float(part.abs().max()) if part.numel() else 0.0 for part in self)


class Place(NamedTuple):
    """What is known of the objective at a point, per unit of weight."""

    point: Point
    value: float
    loss: float  # without the penalty
    weight: float
    gradient: Point
    scores: Tensor  # [N,K]
    slope: Tensor  # [N,K] the derivative of the summed loss by them, which can be derived once more


class Problem(NamedTuple):
    """The objective of one strength."""

    task: Task
    scored: Scored  # of float64, its own bias zero: that of the problem is in the scores
    texts: Texts
    strength: float

    def at(self, point: Point) -> Place:
        """The objective and its gradient at a point."""
        scores = (self.texts.by_text.times(point.weights) + point.bias).double().requires_grad_()
        with torch.enable_grad():
            loss, _ = self.task.loss(self.scored, Batch(scores, self.texts.targets, self.texts.ids), None)
            (slope,) = torch.autograd.grad(loss.total, scores, create_graph=True)
        total, weight = float(loss.total.detach()), float(loss.weight.detach())
        penalty = self.strength / 2 * float(torch.dot(point.weights.flatten(), point.weights.flatten()))
        gradient = self._by_weights(slope.detach(), point.weights, weight)
        return Place(point, (total + penalty) / weight, total / weight, weight, gradient, scores, slope)

    def curved(self, place: Place, along: Point) -> Point:
        """The second derivative of the objective at a place, times a direction."""
        scores = (self.texts.by_text.times(along.weights) + along.bias).double()
        (bent,) = torch.autograd.grad(place.slope, place.scores, scores, retain_graph=True)
        return self._by_weights(bent, along.weights, place.weight)

    def _by_weights(self, by_scores: Tensor, weights: Tensor, divisor: float) -> Point:
        """What a derivative by the scores is by weights and bias, with that of the penalty, over a divisor."""
        by_weights = self.texts.by_ngram.times(by_scores.float()).add_(weights, alpha=self.strength)
        return Point(by_weights.div_(divisor), by_scores.sum(dim=0).float().div_(divisor))


def newton_step(problem: Problem, place: Place) -> Place:
    """The place after one step; the same one where nothing lower was found."""
    along, length = _direction(problem, place), 1.0
    descent, allowed = place.gradient.dot(along), ROUNDED * abs(place.value)
    for _ in range(HALVINGS):
        found = problem.at(place.point.plus(length, along))
        if found.value <= place.value + FALLS * length * descent + allowed:
            return found
        length /= 2
    return place


def _direction(problem: Problem, place: Place) -> Point:
    """Where the quadratic model of the objective is low: conjugate gradients (Hestenes and Stiefel 1952)."""
    ahead = Point(*map(torch.zeros_like, place.point))
    along = rest = ahead.plus(-1.0, place.gradient)
    squares = rest.dot(rest)
    enough = min(INEXACT, squares**0.25) ** 2 * squares
    for _ in range(MOST_PRODUCTS):
        bent = problem.curved(place, along)
        curvature = along.dot(bent)
        if squares <= enough or curvature <= 0:  # near enough, or flat as far as float32 tells
            break
        length = squares / curvature
        ahead, rest = ahead.plus(length, along), rest.plus(-length, bent)
        before, squares = squares, rest.dot(rest)
        along = rest.plus(squares / before, along)
    return ahead
