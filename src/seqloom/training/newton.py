"""Solve a linear model, a convex problem, with Newton steps.

    min over W, b of   sum of losses(X W + b) + strength / 2 |W|^2          X: the TF-IDF of all training texts

Conjugate gradients minimize the quadratic model of the objective (truncated Newton: Lin, Weng and Keerthi 2008), and
the step is halved until the objective falls. The loss is that of the task and its head, with class weights and label
smoothing; its gradient by the scores comes from autograd, in float64, and its curvature from the head. Products with X
are `embedding_bag` sums, in float32.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.config.heads import UnmappedHead
from seqloom.config.inputs import TfidfConfig
from seqloom.config.models import AnyModel, SequenceModelConfig
from seqloom.config.training import AnyBatching, NewtonConfig
from seqloom.data.loader import BatchPlan, Loader, Position, Step
from seqloom.data.prepared import Prepared
from seqloom.errors import ConfigError
from seqloom.nn.heads import Curvature, Head
from seqloom.nn.inputs import Tfidf
from seqloom.nn.models import SequenceModel
from seqloom.nn.types import Batch, Loss, Padded
from seqloom.tasks.encoders import sequences
from seqloom.tasks.task import Batcher
from seqloom.training.checkpoint import copy_all, weights_of
from seqloom.training.loss import LossOf
from seqloom.training.session import Session
from seqloom.training.state import TrainingState
from seqloom.training.step import AnyBatch, Tally, WeightUpdate, elements_of, moved

MOST_PRODUCTS = 50  # products with the Hessian in one step
INEXACT = 0.1  # residual / gradient at which conjugate gradients stop; lower for a small gradient, to save final steps
HALVINGS = 20
FALLS = 1e-4  # fraction of the predicted decrease that a step must reach (Armijo 1966)
ROUNDED = 1e-7  # relative change of the objective that float32 may not resolve


class Entries(NamedTuple):
    """A sparse matrix [N,M] in compressed rows."""

    columns: Tensor
    values: Tensor
    starts: Tensor  # [N] index of the first entry of each row

    @classmethod
    def of(cls, rows: Tensor, columns: Tensor, values: Tensor, count: int) -> "Entries":
        """Build the matrix with `count` rows from its entries, sorted by row."""
        lengths = torch.bincount(rows, minlength=count)
        return cls(columns.int(), values.float(), (lengths.cumsum(0) - lengths).int())

    def times(self, dense: Tensor) -> Tensor:
        """Return the product [N,K] with a dense matrix [M,K]."""
        return F.embedding_bag(self.columns, dense, self.starts, mode="sum", per_sample_weights=self.values)


class Texts(NamedTuple):
    """The TF-IDF matrix of all texts, and their targets."""

    by_text: Entries  # [N,M], M n-grams that occur in some text
    by_ngram: Entries  # [M,N]
    rows: Tensor  # [M] row of each n-gram in the weight table
    targets: Tensor
    ids: tuple[str, ...]
    tokens: int

    @classmethod
    def of(cls, source: Tfidf, batches: Iterable[Batch[Any, Any]]) -> "Texts":
        """Build the matrix from batches, on the CPU."""
        found, targets, ids, tokens = [], [], list[str](), 0
        for batch in batches:
            bags = source.bags(moved(batch, source.idf.device).inputs)
            found.append((bags.texts.cpu() + len(ids), bags.rows.cpu(), bags.values.cpu()))
            targets.append(batch.targets)
            ids += batch.ids
            tokens += elements_of(batch)[1]
        texts, columns, values = (torch.cat(parts) for parts in zip(*found, strict=True))
        rows, ngrams = torch.unique(columns, return_inverse=True)
        order = ngrams.argsort(stable=True)
        by_text = Entries.of(texts, ngrams, values, len(ids))
        by_ngram = Entries.of(ngrams[order], texts[order], values[order], len(rows))
        return cls(by_text, by_ngram, rows, torch.cat(targets), tuple(ids), tokens)


class ScoredTexts(nn.Module):
    """The head of a linear model: its inputs are the scores X W + b."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head

    def loss(self, batch: Batch[Tensor, Tensor]) -> Loss:
        """Return the loss summed over the texts."""
        return self.head.loss(Padded.of(batch.inputs[:, None]), batch.targets[:, None])

    def curvature(self, batch: Batch[Tensor, Tensor]) -> Curvature:
        """Return the second derivative of the loss by the scores [N,K]."""
        bent = self.head.curvature(Padded.of(batch.inputs[:, None]), batch.targets[:, None])
        return lambda along: bent(along[:, None])[:, 0]


class NewtonPoint(NamedTuple):
    """Weights [M,K] and bias [K], or a direction."""

    weights: Tensor
    bias: Tensor

    def plus(self, length: float, along: "NewtonPoint") -> "NewtonPoint":
        return NewtonPoint(self.weights.add(along.weights, alpha=length), self.bias.add(along.bias, alpha=length))

    def dot(self, other: "NewtonPoint") -> float:
        weights = torch.dot(self.weights.flatten(), other.weights.flatten())
        return float(weights) + float(torch.dot(self.bias, other.bias))

    def largest(self) -> float:
        return max(float(part.abs().max()) if part.numel() else 0.0 for part in self)


class NewtonPlace(NamedTuple):
    """The objective, its gradient and the scores at a point, divided by the weight of the examples."""

    point: NewtonPoint
    value: float
    loss: float  # without the penalty
    weight: float
    gradient: NewtonPoint
    scores: Tensor  # [N,K]


class NewtonProblem(NamedTuple):
    """The objective for one L2 strength."""

    task: Batcher
    scored: ScoredTexts  # in float64, with bias 0: the scores include the bias of the problem
    texts: Texts
    strength: float

    def at(self, point: NewtonPoint) -> NewtonPlace:
        """Return the objective and its gradient at a point."""
        scores = (self.texts.by_text.times(point.weights) + point.bias).double().requires_grad_()
        with torch.enable_grad():
            loss, _ = self.task.loss(self.scored, Batch(scores, self.texts.targets, self.texts.ids), None)
            (slope,) = torch.autograd.grad(loss.total, scores)
        total, weight = float(loss.total.detach()), float(loss.weight.detach())
        penalty = self.strength / 2 * float(torch.dot(point.weights.flatten(), point.weights.flatten()))
        gradient = self._by_weights(slope, point.weights, weight)
        return NewtonPlace(point, (total + penalty) / weight, total / weight, weight, gradient, scores.detach())

    def curvature(self, place: NewtonPlace) -> Callable[[NewtonPoint], NewtonPoint]:
        """Return a function that multiplies a direction by the Hessian at a place."""
        bent = self.scored.curvature(Batch(place.scores, self.texts.targets, self.texts.ids))

        def times(along: NewtonPoint) -> NewtonPoint:
            by_scores = bent(self.texts.by_text.times(along.weights).add_(along.bias))
            return self._by_weights(by_scores, along.weights, place.weight)

        return times

    def _by_weights(self, by_scores: Tensor, weights: Tensor, divisor: float) -> NewtonPoint:
        """Convert a derivative by the scores to one by weights and bias, add the penalty, and divide."""
        by_weights = self.texts.by_ngram.times(by_scores.float()).add_(weights, alpha=self.strength)
        return NewtonPoint(by_weights.div_(divisor), by_scores.sum(dim=0).float().div_(divisor))


def newton_step(problem: NewtonProblem, place: NewtonPlace) -> NewtonPlace:
    """Return the place after one Newton step; the same place if the line search finds no lower value."""
    along, length = _direction(problem, place), 1.0
    descent, allowed = place.gradient.dot(along), ROUNDED * abs(place.value)
    for _ in range(HALVINGS):
        found = problem.at(place.point.plus(length, along))
        if found.value <= place.value + FALLS * length * descent + allowed:
            return found
        length /= 2
    return place


def _direction(problem: NewtonProblem, place: NewtonPlace) -> NewtonPoint:
    """Return the Newton direction, by conjugate gradients (Hestenes and Stiefel 1952)."""
    ahead = NewtonPoint(*map(torch.zeros_like, place.point))
    along = rest = ahead.plus(-1.0, place.gradient)
    squares = rest.dot(rest)
    enough, curved = min(INEXACT, squares**0.25) ** 2 * squares, problem.curvature(place)
    for _ in range(MOST_PRODUCTS):
        bent = curved(along)
        curvature = along.dot(bent)
        if curvature <= 0:  # zero within float32 precision
            break
        length = squares / curvature
        ahead, rest = ahead.plus(length, along), rest.plus(-length, bent)
        before, squares = squares, rest.dot(rest)
        if squares <= enough:
            break
        along = rest.plus(squares / before, along)
    return ahead


# A run with newton: Newton steps for a list of L2 strengths, from strong to weak.
#
# A step is one Newton step, and an epoch is one strength, which ends when the gradient is nearly zero. Each strength
# starts from the solution of the one before. After each there is a validation, as after any epoch.
#
# A step depends only on the weights and the index of the strength. So a checkpoint keeps nothing else, and a resumed
# run repeats its steps bit for bit.

USUAL, MOST = 4, 100  # steps per strength: the estimate, and the limit if the gradient does not converge


def require_solvable(model: AnyModel) -> None:
    """Raise ConfigError unless the model is linear on TF-IDF, which makes it convex."""
    linear = (
        isinstance(model, SequenceModelConfig)
        and isinstance(model.encoder.input, TfidfConfig)
        and isinstance(model.head, UnmappedHead)
        and (model.encoder.layers, model.pooling) == ((), "sum")
    )
    if not linear:
        raise ConfigError(
            "newton trains only the recipe linear",
            fix="use --model linear, or --optimizer adamw",
        )


def solutions(
    task: Batcher, model: SequenceModel, batches: Sequence[AnyBatch], config: NewtonConfig
) -> Iterator[float]:
    """Solve one strength after another in memory, and yield each when the model has its weights.

    Args:
        task: computes the loss.
        model: a linear model; its document frequencies are fitted here.
        batches: the training set, as `training_texts` yields it.
        config: the strengths and the tolerance.
    """
    source, bias = cast(Tfidf, model.encoder.input), cast(nn.Parameter, model.head.bias)
    source.fit(batch.inputs for batch in batches)
    scored = ScoredTexts(copy.deepcopy(model.head).double())
    nn.init.zeros_(cast(nn.Parameter, scored.head.bias))
    texts = Texts.of(source, batches)
    point = NewtonPoint(source.table.detach()[texts.rows], bias.detach().clone())
    for strength in config.l2:
        problem = NewtonProblem(task, scored, texts, strength)
        place, steps = problem.at(point), 0
        while place.gradient.largest() > config.tolerance and steps < MOST:
            place, before, steps = newton_step(problem, place), place, steps + 1
            if place is before:
                break
        point = place.point
        with torch.no_grad():
            source.table[texts.rows] = point.weights
            bias.copy_(point.bias)
        yield strength


class SolutionPath:
    """Batch plan and loader of a run with newton: one epoch per strength, which ends when it is solved."""

    def __init__(self, loader: Loader[Any, Any], solver: "Solver") -> None:
        self.solver, self.read = solver, loader.plan
        self.plan: BatchPlan[Any] = self

    def count(self, epoch: int) -> int:
        """Return the number of steps of a strength; until it is solved, at least one more than were taken."""
        taken = self.solver.taken if self.solver.taken.epoch == epoch else Taken(epoch)
        return taken.steps if taken.solved else max(USUAL, taken.steps + 1)

    def share(self, epoch: int, index: int, rank: int, ranks: int) -> None:
        """Return None: steps do not read batches."""

    def carried(self, index: int) -> bool:
        """Return False: there is no recurrent state."""
        return False

    def fingerprint(self) -> str:
        """Return the fingerprint of the batches of the training set."""
        return self.read.fingerprint()

    def steps(self, start: Position, *, until: int | None = None) -> Iterator[Step[Any]]:
        """Yield the steps from `start` on; the first step of a strength counts all texts as read."""
        epoch, index = start.epoch, start.index
        while until is None or epoch < until:
            yield Step(epoch, index, self.solver.whole() if index == 0 else None)
            epoch, index = (epoch, index + 1) if index + 1 < self.count(epoch) else (epoch + 1, 0)


class Taken(NamedTuple):
    """The steps taken for a strength."""

    epoch: int
    steps: int = 0
    solved: bool = False


class Solver(WeightUpdate):
    """Solves one strength after another."""

    def __init__(self, session: Session) -> None:
        config = session.config.training
        assert isinstance(config.optimizer, NewtonConfig), "other steps are those of Update"
        if session.ranks.count > 1:
            raise ConfigError(
                f"newton runs in one process, but there are {session.ranks.count}",
                fix="leave --processes out, or use --optimizer adamw",
            )
        super().__init__(session.model, LossOf(session.model, session.device), session.ranks, session.device)
        self._session, self._newton = session, config.optimizer
        linear = cast(SequenceModel, session.model)
        self._source = cast(Tfidf, linear.encoder.input)
        self._scored = ScoredTexts(copy.deepcopy(linear.head).to("cpu", torch.float64))
        self._bias = cast(nn.Parameter, linear.head.bias)
        nn.init.zeros_(cast(nn.Parameter, self._scored.head.bias))
        self._texts: Texts | None = None
        self._problem: NewtonProblem | None = None
        self._place: NewtonPlace | None = None
        self.taken = Taken(-1)
        self._tallies: list[Tally] = []

    def whole(self) -> AnyBatch:
        """Return all texts as one batch that has only ids, targets and the number of tokens."""
        texts = self._read()
        return Batch(torch.empty(texts.tokens, device="meta"), texts.targets, texts.ids)

    def step(
        self, batch: AnyBatch | None, *, carried: bool, run_state: TrainingState, lr: float, stop: bool = False
    ) -> None:
        """Take one Newton step, or none if the gradient is already below the tolerance."""
        place = self._at(self._newton.l2[run_state.epoch])
        assert self._problem is not None
        flat = place.gradient.largest() <= self._newton.tolerance
        after = place if flat else newton_step(self._problem, place)
        steps = run_state.index + 1
        solved = after is place or after.gradient.largest() <= self._newton.tolerance or steps == MOST
        self.taken, self._place = Taken(run_state.epoch, steps, solved), after
        self._put(after.point)
        tokens = self._read().tokens if run_state.index == 0 else 0
        self._tallies.append(_tally(place, tokens, stop))

    def is_done(self, run_state: TrainingState) -> bool:
        """Whether all strengths are solved."""
        return run_state.epoch >= len(self._newton.l2)

    def read(self) -> Tally:
        tallies, self._tallies = self._tallies, []
        summed = {name: sum(getattr(one, name) for one in tallies) for name in Tally._fields}
        last = {"largest": max((one.largest for one in tallies), default=0.0), "scale": 0.0}
        return Tally(**{**summed, **last, "stop": any(one.stop for one in tallies)})

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return the weights, the only state of the solver."""
        return {"model": weights_of(self._model), "optimizer": {}}

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Mapping[str, Tensor]], run_state: TrainingState) -> None:
        copy_all("model", self.tensors()["model"], tensors.get("model", {}))

    def _read(self) -> Texts:
        """Return the training set, read at the first step, when a resumed run has loaded its idf."""
        if self._texts is None:
            session = self._session
            batches = training_texts(session.task, session.prepared, session.config.training.batching)
            self._texts = Texts.of(self._source, batches)
        return self._texts

    def _at(self, strength: float) -> NewtonPlace:
        """Return objective and gradient for a strength at the current weights."""
        if self._place is None or self._problem is None or self._problem.strength != strength:
            texts = self._read()
            self._problem = NewtonProblem(self._session.task, self._scored, texts, strength)
            weights = self._source.table.detach().cpu()[texts.rows]
            self._place = self._problem.at(NewtonPoint(weights, self._bias.detach().cpu().clone()))
        return self._place

    @torch.no_grad()
    def _put(self, point: NewtonPoint) -> None:
        table = self._source.table
        table[self._read().rows.to(table.device)] = point.weights.to(table.device)
        self._bias.copy_(point.bias)


def _tally(place: NewtonPlace, tokens: int, stop: bool) -> Tally:
    """Return the statistics of a step, rounded to 24 bits so that sums do not depend on when they are read."""
    norm = float(np.float32(place.gradient.dot(place.gradient) ** 0.5))
    return Tally(
        steps=1,
        loss=float(np.float32(place.loss)),
        weight=1.0,
        norm=norm,
        largest=norm,
        clipped=0,
        skipped=0,
        not_finite=0,
        elements=tokens,
        tokens=tokens,
        stop=stop,
    )


def training_texts(task: Batcher, prepared: Prepared, feed: AnyBatching) -> Iterator[AnyBatch]:
    """Yield the batches of the training set once, in an order independent of the seed."""
    loader = task.loader(prepared, "train", feed, seed=0, workers=0)
    batches = (step.batch for step in loader.steps(until=1) if step.batch is not None)
    return (batch._replace(inputs=sequences(batch.inputs)) for batch in batches)
