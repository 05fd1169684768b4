"""The guide test of Wiegreffe and Pinter (2019, section 4.2): do these weights teach a model without context?

    h_t = tanh(W e_t + b)      z = sum_t a_t h_t      scores = U z + c        a_t imposed, the rest trained from scratch

The same small model is trained on the task with uniform weights, with weights that it learns itself, with the weights
of the inspected model, and with any others, for example adversarial ones. Each is trained three times, from other
initial weights and with another quarter of the inputs held out for evaluation. If the model's weights beat uniform ones
by more than twice the standard error of the difference over inputs, and the adversarial ones do not, the weights carry
what single tokens mean for the prediction. If uniform weights do as well as learned ones, the test is inconclusive.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.errors import DataError
from seqloom.inspect.faithfulness.bench import at_bench, require_distributions
from seqloom.inspect.faithfulness.measures import MeasureOptions, layer_of
from seqloom.inspect.subject import Reading, Subject, Token
from seqloom.inspect.view import View
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.numbers import number

UNIFORM, LEARNED, MODEL = "uniform weights", "learned weights", "weights of the model"
WIDTH, STEPS, RATE = 32, 100, 0.02
LEAST = 20  # number of inputs
SPLITS, TIMES = 4, 3  # the inputs are split in 4, and 3 of these parts are held out, one each time
ERRORS = 2  # standard errors that a difference must exceed

NO_OTHERS: Mapping[str, Sequence[np.ndarray]] = MappingProxyType({})


class Difference(NamedTuple):
    """The advantage of one kind of weights over another."""

    value: float  # difference of the accuracies
    margin: float  # two standard errors, over inputs

    @property
    def is_clear(self) -> bool:
        """Whether the difference exceeds the margin."""
        return self.value > self.margin


@dataclass(frozen=True, kw_only=True)
class GuideView(View):
    """How well a model without context learns the task with each kind of weights."""

    kind: ClassVar[str] = "guide"
    correct: Mapping[str, np.ndarray]  # by kind of weights: 1 for each correct held-out input, else 0
    num_train: int  # inputs, each time
    seed: int

    @property
    def accuracy(self) -> dict[str, float]:
        """The accuracy on held-out inputs, by kind of weights."""
        return {name: float(each.mean()) for name, each in self.correct.items()}

    @property
    def held_out(self) -> int:
        """The number of held-out inputs, over all trainings."""
        return len(self.correct[MODEL])

    def difference(self, one: str, other: str) -> Difference:
        """Return the advantage of one kind of weights over another."""
        each = self.correct[one] - self.correct[other]
        return Difference(float(each.mean()), ERRORS * float(each.std(ddof=1)) / math.sqrt(len(each)))

    def json_values(self, *, full: bool) -> Mapping[str, Any]:
        """Return the values, accuracies first."""
        found = {"accuracy": self.accuracy, "held_out": self.held_out}
        return {"kind": self.kind, **found, **super().json_values(full=full)}

    def figures(self) -> tuple[Figure, ...]:
        names, values = list(self.accuracy), list(self.accuracy.values())
        return (Bars(title=self.title, labels=names, values=values, x_label="accuracy on held-out inputs"),)

    def _sentences(self) -> tuple[str, ...]:
        mine, even, gain = self.accuracy[MODEL], self.accuracy[UNIFORM], self.difference(MODEL, UNIFORM)
        return (
            f"{self._verdict(gain)}: a bag-of-words model reaches accuracy {number(mine)} with them and {number(even)} "
            f"with uniform weights, on {self.held_out} held-out inputs "
            f"(two standard errors of the difference: {number(gain.margin)}).",
        )

    def _verdict(self, gain: Difference) -> str:
        what = "information about single tokens"
        if gain.is_clear:
            return f"The weights carry {what}"
        could = self.difference(LEARNED, UNIFORM).is_clear
        if self.difference(UNIFORM, MODEL).is_clear or (could and self.difference(LEARNED, MODEL).is_clear):
            return f"The weights do not carry {what}"
        why = "the difference is not significant" if could else "uniform weights are as good as learned ones"
        return f"It is unclear whether the weights carry {what}, because {why}"


class _Data(NamedTuple):
    """Inputs of the small model, padded."""

    tokens: Tensor  # [N,T]
    real: Tensor  # [N,T] bool, False for special tokens
    classes: Tensor  # [N]

    def part(self, rows: Tensor) -> "_Data":
        return _Data(self.tokens[rows], self.real[rows], self.classes[rows])


def guide(
    subject: Subject,
    readings: Sequence[Reading],
    labels: Sequence[str | int],
    *,
    layer: int | str | None = None,
    others: Mapping[str, Sequence[np.ndarray]] = NO_OTHERS,
    seed: int = 0,
) -> GuideView:
    """How well a model of single tokens learns the labels with the weights of a layer, and with `others`.

    `others` are further weights by name, with one number per token for each input, for example adversarial ones.
    """
    _require(subject, readings, labels, others)
    data = _padded(readings, [subject.column(truth) for truth in labels])
    given = {MODEL: [_weights_of(subject, reading, layer) for reading in readings], **others}
    imposed: dict[str, Tensor | None] = {UNIFORM: _shares(data.real.double(), data.real), LEARNED: None}
    imposed |= {name: _imposed(rows, data.real) for name, rows in given.items()}
    order = torch.randperm(len(readings), generator=torch.Generator().manual_seed(seed))
    size = len(order) // SPLITS
    found = dict[str, np.ndarray]()
    for name, weights in imposed.items():
        times = [_right(data, weights, order.roll(-size * time), size, seed + time) for time in range(TIMES)]
        found[name] = torch.cat(times).numpy()
    title = "Do the attention weights help a bag-of-words model?"
    return GuideView(title=title, correct=found, num_train=len(order) - size, seed=seed)


def _require(
    subject: Subject, readings: Sequence[Reading], truths: Sequence[object], others: Mapping[str, Sequence[np.ndarray]]
) -> None:
    require_distributions(subject)
    if any(len(reading.rows) != 1 for reading in readings):
        raise DataError("this test needs one prediction for each input", fix="use a classifier")
    if any(token.id is None for reading in readings for token in reading.sides[0].tokens):
        raise DataError(
            "these inputs have no tokens: they are vectors or images",
            fix="use a model that reads text",
        )
    if len(readings) < LEAST:
        raise DataError(f"{len(readings)} inputs are too few to train on", fix=f"give at least {LEAST}")
    if len(truths) != len(readings):
        raise DataError(f"{len(truths)} labels for {len(readings)} inputs", fix="give one label for each input")
    for name, rows in others.items():
        if name in (UNIFORM, LEARNED, MODEL):
            raise DataError(f"the name '{name}' is reserved", fix="choose another name")
        if len(rows) != len(readings):
            raise DataError(
                f"{len(rows)} rows of '{name}' for {len(readings)} inputs", fix="give one row for each input"
            )
        for at, (row, reading) in enumerate(zip(rows, readings, strict=True)):
            if (wrong := _wrong(row, reading.sides[0].tokens)) is not None:
                raise DataError(f"'{name}' of input {at} {wrong}", fix="give each token one weight, 0 or more")


def _wrong(row: Any, tokens: Sequence[Token]) -> str | None:
    """Return what is wrong with the weights of one input, or None; special tokens are ignored."""
    try:
        values = np.asarray(row, dtype=float)
    except (TypeError, ValueError):
        return "has weights that are not numbers"
    if values.shape != (len(tokens),):
        return f"has shape {list(values.shape)}, but the input has {len(tokens)} tokens"
    counted = values[[not token.is_special for token in tokens]]
    if not np.isfinite(counted).all():
        return "has weights that are not finite"
    if (counted < 0).any():
        return "has weights below zero"
    return None if counted.any() else "has only zero weights"


def _weights_of(subject: Subject, reading: Reading, layer: int | str | None) -> np.ndarray:
    """Return the weight [T] that each token gets from a layer."""
    found = layer_of(subject, reading, MeasureOptions(layer))
    assert found is not None, "layer_of refuses a model without attention"
    with at_bench(subject, reading, found) as bench:
        return bench.weights


def _padded(readings: Sequence[Reading], columns: Sequence[int]) -> _Data:
    rows = [reading.sides[0].tokens for reading in readings]
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    real = torch.zeros(ids.shape, dtype=torch.bool)
    for at, tokens in enumerate(rows):
        ids[at, : len(tokens)] = torch.tensor([token.id for token in tokens])
        real[at, : len(tokens)] = torch.tensor([not token.is_special for token in tokens])
    return _Data(ids, real, torch.tensor(columns))


def _imposed(rows: Sequence[np.ndarray], real: Tensor) -> Tensor:
    """Return the weights [N,T] of each input, without special tokens, normalized to sum to 1."""
    found = torch.zeros(real.shape, dtype=torch.float64)
    for at, row in enumerate(rows):
        found[at, : len(row)] = torch.from_numpy(np.nan_to_num(np.asarray(row, dtype=float)))
    return _shares(found, real)


def _shares(weights: Tensor, real: Tensor) -> Tensor:
    kept = weights.masked_fill(~real, 0)
    return (kept / kept.sum(dim=1, keepdim=True).clamp(min=torch.finfo(kept.dtype).tiny)).float()


def _right(data: _Data, weights: Tensor | None, order: Tensor, size: int, seed: int) -> Tensor:
    """Train on all but the first `size` inputs of the order; return 1 for each of these that is predicted correctly."""
    held_out, kept = order[:size], order[size:]
    model = _TokenModel(int(data.tokens.max()) + 1, int(data.classes.max()) + 1, seed)
    optimizer = torch.optim.Adam(model.weights, lr=RATE)
    mine, rest = (None, None) if weights is None else (weights[kept], weights[held_out])
    for _ in range(STEPS):
        with torch.enable_grad():
            loss = F.cross_entropy(model.scores(data.part(kept), mine), data.classes[kept])
            grads = torch.autograd.grad(loss, model.weights, allow_unused=True)
        for weight, slope in zip(model.weights, grads, strict=True):
            weight.grad = slope
        optimizer.step()
    with torch.no_grad():
        return (model.scores(data.part(held_out), rest).argmax(dim=1) == data.classes[held_out]).double()


class _TokenModel:
    """A model that reads each token separately; its initial weights depend only on the seed."""

    def __init__(self, tokens: int, classes: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        shapes = (tokens, WIDTH), (WIDTH, WIDTH), (WIDTH,), (WIDTH, classes), (classes,), (WIDTH,)
        self.weights = [(torch.randn(shape, generator=draw) * WIDTH**-0.5).requires_grad_() for shape in shapes]

    def scores(self, data: _Data, imposed: Tensor | None) -> Tensor:
        """Return the scores [N,K] with the imposed weights, or by default with the model's own."""
        table, inner, shift, outer, bias, direction = self.weights
        states = torch.tanh(table[data.tokens] @ inner + shift)  # [N,T,D]
        own = (states @ direction).masked_fill(~data.real, torch.finfo(states.dtype).min).softmax(dim=1)
        share = own if imposed is None else imposed
        found: Tensor = (share[:, None] @ states)[:, 0] @ outer + bias
        return found
