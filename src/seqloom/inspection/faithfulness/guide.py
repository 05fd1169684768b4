"""The guide of Wiegreffe and Pinter (2019, section 4.2): do these weights teach a model that has no context of its own?

    h_t = tanh(W e_t + b)      z = sum_t a_t h_t      scores = U z + c         a_t imposed, all else learnt from scratch

The same small model learns the task with weights that are equal, that it learns itself, that the model looked into has,
and with any others, such as those of an adversary; it is judged on inputs that it did not learn from. If the model's
weights beat equal ones and the adversary's do not, the weights carry what single tokens mean for the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.errors import DataError
from seqloom.figures import Bars, Figure
from seqloom.inspection.faithfulness.answers import require_distributions
from seqloom.inspection.faithfulness.bench import at_bench
from seqloom.inspection.faithfulness.measuring import Wishes, layer_of
from seqloom.inspection.subject import Reading, Subject
from seqloom.inspection.view import View

UNIFORM, LEARNT, MODEL = "equal weights", "weights that it learns", "weights of the model"
WIDTH, STEPS, RATE = 32, 100, 0.02
LEAST = 20  # inputs, a quarter of which are held out

NO_OTHERS: Mapping[str, Sequence[np.ndarray]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class GuideView(View):
    """How well a model without context learns the task with each kind of weights."""

    kind: ClassVar[str] = "guide"
    accuracy: Mapping[str, float]  # on the inputs held out, by the kind of weights
    learnt_from: int
    held_out: int
    seed: int

    def figures(self) -> tuple[Figure, ...]:
        names, values = list(self.accuracy), list(self.accuracy.values())
        return (Bars(title=self.title, labels=names, values=values, x_label="accuracy on inputs held out"),)

    def _sentences(self) -> tuple[str, ...]:
        mine, even = self.accuracy[MODEL], self.accuracy[UNIFORM]
        does = "carry" if mine > even + 1 / self.held_out else "do not carry"
        return (
            f"The weights {does} what single tokens mean for the answer: a model of single tokens scores {mine:.3f} "
            f"with them and {even:.3f} with equal ones, on {self.held_out} inputs held out of "
            f"{self.held_out + self.learnt_from}.",
        )


class _Data(NamedTuple):
    """Inputs as the small model reads them, padded."""

    symbols: Tensor  # [N,T]
    real: Tensor  # [N,T] bool, special symbols are not
    classes: Tensor  # [N]

    def part(self, rows: Tensor) -> "_Data":
        return _Data(self.symbols[rows], self.real[rows], self.classes[rows])


def guide(
    subject: Subject,
    readings: Sequence[Reading],
    truths: Sequence[str | int],
    *,
    layer: int | str | None = None,
    others: Mapping[str, Sequence[np.ndarray]] = NO_OTHERS,
    seed: int = 0,
) -> GuideView:
    """How well a model of single tokens learns the right answers with the weights of a layer, and with `others`.

    `others` are further weights by name, for each input a number for each token: such as an adversary's.
    """
    _require(subject, readings, truths, others)
    data = _padded(readings, [subject.column(truth) for truth in truths])
    given = {MODEL: [_weights_of(subject, reading, layer) for reading in readings], **others}
    imposed: dict[str, Tensor | None] = {UNIFORM: _shares(data.real.double(), data.real), LEARNT: None}
    imposed |= {name: _imposed(rows, readings, data.real) for name, rows in given.items()}
    order = torch.randperm(len(readings), generator=torch.Generator().manual_seed(seed))
    held, kept = order[: len(order) // 4], order[len(order) // 4 :]
    found = {name: _accuracy(data, weights, kept, held, seed) for name, weights in imposed.items()}
    title = "Do the weights teach a model of single tokens?"
    return GuideView(title=title, accuracy=found, learnt_from=len(kept), held_out=len(held), seed=seed)


def _require(
    subject: Subject, readings: Sequence[Reading], truths: Sequence[object], others: Mapping[str, Sequence[np.ndarray]]
) -> None:
    require_distributions(subject)
    if any(len(reading.rows) != 1 for reading in readings):
        raise DataError("a guide learns one answer for each input, and these have several", fix="take a classifier")
    if len(readings) < LEAST:
        raise DataError(f"{len(readings)} inputs are too few to learn from", fix=f"give {LEAST} at least")
    for name, rows in {"truths": truths, **others}.items():
        if len(rows) != len(readings):
            raise DataError(f"{len(rows)} {name} for {len(readings)} inputs", fix="give one for each")


def _weights_of(subject: Subject, reading: Reading, layer: int | str | None) -> np.ndarray:
    """[T] what each token gets of the weights of a layer."""
    found = layer_of(subject, reading, Wishes(layer))
    assert found is not None, "layer_of refuses a model without attention"
    with at_bench(subject, reading, found) as bench:
        return bench.weights


def _padded(readings: Sequence[Reading], columns: Sequence[int]) -> _Data:
    rows = [reading.sides[0].tokens for reading in readings]
    symbols = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    real = torch.zeros(symbols.shape, dtype=torch.bool)
    for number, tokens in enumerate(rows):
        symbols[number, : len(tokens)] = torch.tensor([token.symbol or 0 for token in tokens])
        real[number, : len(tokens)] = torch.tensor([not token.is_special for token in tokens])
    return _Data(symbols, real, torch.tensor(columns))


def _imposed(rows: Sequence[np.ndarray], readings: Sequence[Reading], real: Tensor) -> Tensor:
    """[N,T] the weights of each input, those of real tokens alone, made to add up to 1."""
    found = torch.zeros(real.shape, dtype=torch.float64)
    for number, (row, reading) in enumerate(zip(rows, readings, strict=True)):
        if np.shape(row) != (len(reading.sides[0].tokens),):
            raise DataError(f"input {number} has {len(reading.sides[0].tokens)} tokens", fix="give each one weight")
        found[number, : len(row)] = torch.from_numpy(np.nan_to_num(np.asarray(row, dtype=float)))
    return _shares(found, real)


def _shares(weights: Tensor, real: Tensor) -> Tensor:
    kept = weights.masked_fill(~real, 0)
    return (kept / kept.sum(dim=1, keepdim=True).clamp(min=torch.finfo(kept.dtype).tiny)).float()


def _accuracy(data: _Data, weights: Tensor | None, kept: Tensor, held: Tensor, seed: int) -> float:
    """Of a model that learnt from the rows `kept` on the rows `held`."""
    model = _TokenModel(int(data.symbols.max()) + 1, int(data.classes.max()) + 1, seed)
    optimiser = torch.optim.Adam(model.weights, lr=RATE)
    mine, rest = (None, None) if weights is None else (weights[kept], weights[held])
    for _ in range(STEPS):
        with torch.enable_grad():
            loss = F.cross_entropy(model.scores(data.part(kept), mine), data.classes[kept])
            grads = torch.autograd.grad(loss, model.weights, allow_unused=True)
        for weight, slope in zip(model.weights, grads, strict=True):
            weight.grad = slope
        optimiser.step()
    with torch.no_grad():
        right = model.scores(data.part(held), rest).argmax(dim=1) == data.classes[held]
    return float(right.double().mean())


class _TokenModel:
    """A model that reads each token by itself; the same first weights for the same seed."""

    def __init__(self, symbols: int, classes: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        shapes = (symbols, WIDTH), (WIDTH, WIDTH), (WIDTH,), (WIDTH, classes), (classes,), (WIDTH,)
        self.weights = [(torch.randn(shape, generator=draw) * WIDTH**-0.5).requires_grad_() for shape in shapes]

    def scores(self, data: _Data, imposed: Tensor | None) -> Tensor:
        """[N,K], with the weights that are imposed, or else with those that it gives itself."""
        table, inner, shift, outer, bias, direction = self.weights
        states = torch.tanh(table[data.symbols] @ inner + shift)  # [N,T,D]
        own = (states @ direction).masked_fill(~data.real, torch.finfo(states.dtype).min).softmax(dim=1)
        share = own if imposed is None else imposed
        found: Tensor = (share[:, None] @ states)[:, 0] @ outer + bias
        return found
