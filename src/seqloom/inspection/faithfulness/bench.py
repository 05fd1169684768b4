"""One layer with attention and one input, on which other weights are tried.

Special symbols keep the weights that they have: weights are moved among what was written alone. Of a running text the
last row of weights is meant, the one that the next symbol is foretold with; elsewhere all rows are, and all heads.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import DataError
from seqloom.inspection.asking import scores
from seqloom.inspection.attention_layers import AttentionLayer
from seqloom.inspection.faithfulness.answers import is_running, probabilities
from seqloom.inspection.faithfulness.holding import held
from seqloom.inspection.faithfulness.imposing import Rows, imposed
from seqloom.inspection.flow import still
from seqloom.inspection.subject import Reading, Subject, repeated

MOST_ELEMENTS = 8192  # tokens of all variants that one pass reads
MOST_TRIED = 2**28  # weights of all variants of one experiment: at 4,096 tokens, 16 variants of one head
FEWEST = 4  # variants, whatever they cost

Trial = Callable[[Rows, slice], Tensor]  # (weights of some variants, which ones these are) -> those to go on with


class Bench(NamedTuple):
    """A layer at work on one input, with what it gives by its own weights."""

    subject: Subject
    reading: Reading
    layer: AttentionLayer
    free: Tensor  # [S] bool, the keys that are no special symbols
    asked: Tensor  # [T] bool, the rows that are meant
    own: Tensor  # [Q,K] the answers
    weights: np.ndarray  # [S] what each key gets: the mean over heads and the rows that are meant; NaN if it is special
    sharpness: float  # the largest weight of a row on a free key, the mean over rows and heads
    cells: int  # heads x rows that are meant x keys

    def movable(self, rows: Rows) -> Tensor:
        """[N,1,R,S] the weights that may be moved."""
        return rows.allowed & self.free & self.asked[rows.start : rows.stop, None]

    def has_choice(self, rows: Rows) -> Tensor:
        """[R] the rows that are meant and have two weights or more that may be moved: others have to stay."""
        return self.movable(rows)[0, 0].sum(dim=-1) > 1

    def affordable(self, count: int) -> int:
        """How many of so many variants are tried: all, unless the weights are too many."""
        return min(count, max(FEWEST, MOST_TRIED // max(1, self.cells)))

    @property
    def at_once(self) -> int:
        """How many variants one pass reads."""
        return max(1, MOST_ELEMENTS // max(1, len(self.layer.keys), len(self.layer.queries)))

    def under(self, trial: Trial, count: int) -> Tensor:
        """[count,Q,K] the answers under so many variants of the weights; gradients go through."""
        parts = (slice(start, min(start + self.at_once, count)) for start in range(0, count, self.at_once))
        return torch.cat([self._under(trial, part) for part in parts])

    def _under(self, trial: Trial, part: slice) -> Tensor:
        inputs = repeated(self.reading.inputs, part.stop - part.start)
        with imposed(self.subject.model, self.layer.path, lambda rows: trial(rows, part)):
            return probabilities(self.subject, self.reading, inputs)


@contextmanager
def at_bench(subject: Subject, reading: Reading, layer: AttentionLayer) -> Iterator[Bench]:
    """Inside the `with`, the layer can be tried; DataError for an input that has nothing but special symbols."""
    free = torch.tensor([not token.is_special for token in layer.keys], device=subject.device)
    if not bool(free.any()):
        raise DataError("there is nothing but special symbols in this input", fix="give it some words")
    asked = torch.ones(len(layer.queries), dtype=torch.bool, device=subject.device)
    if is_running(reading) and layer.same:
        asked[:-1] = False
    with torch.no_grad(), still(subject.model), held(subject, reading, layer.path):
        seen = _Seen(free, asked)
        with imposed(subject.model, layer.path, seen.hear):
            scores(subject, reading.inputs)
        own = probabilities(subject, reading, reading.inputs)[0]
        yield Bench(subject, reading, layer, free, asked, own, *seen.summary())


class _Seen:
    """What is to be known of a layer's own weights, gathered while they pass."""

    def __init__(self, free: Tensor, asked: Tensor) -> None:
        self.free, self.asked = free, asked
        self.columns = torch.zeros(len(free), dtype=torch.float64, device=free.device)
        self.largest, self.rows, self.heads = 0.0, int(asked.sum()), 1

    def hear(self, rows: Rows) -> Tensor:
        meant = rows.weights[0, :, self.asked[rows.start : rows.stop]].double()  # [H,R,S]
        self.heads = len(meant)
        self.columns += meant.sum(dim=(0, 1))
        self.largest += float(meant[..., self.free].amax(dim=-1).sum())
        return rows.weights

    def summary(self) -> tuple[Any, ...]:
        count = max(1, self.rows * self.heads)
        weights = (self.columns / count).masked_fill(~self.free, torch.nan).cpu().numpy()
        return weights, self.largest / count, count * len(self.free)
