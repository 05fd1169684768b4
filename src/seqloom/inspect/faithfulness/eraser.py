"""Tokens taken away, or nothing else left (DeYoung et al. 2020, ERASER): are these the tokens that the answer rests on?

    comprehensiveness = m(x)_j - m(x without r)_j        higher is better     j: the answer to the whole input
    sufficiency       = m(x)_j - m(r alone)_j            lower is better, may be negative

r are the top 1, 5, 10, 20 and 50 % of the tokens, max(1, ceil(kT)) of them, among equal ones the first. Their mean over
the five is the AOPC: as ERASER's code divides by five, not by six as the paper writes; shares that mean the same set in
a short text count once each, as there. Beside both stands the mean over random orders of the same sizes.

The curves add 0 and 100 %: deletion takes the top tokens away, insertion leaves nothing else (Petsiuk et al. 2018). The
normalised versions (Carton et al. 2020) divide by what there is to lose, m(x)_j less that of the empty input.

An input without some of its tokens: deleted where answers do not stand at tokens, masked where they do.

    delete    the symbols are left out, never cut anew from a text: the sequence gets shorter
    mask      vectors of zeros stand in their place: of tags, of running text, of patches of a picture

Special symbols are never removed.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ConfigError, did_you_mean
from seqloom.inspect.faithfulness.bench import confidence, decided, probabilities
from seqloom.inspect.flow import still
from seqloom.inspect.layers import changed_vectors
from seqloom.inspect.subject import Reading, Subject, repeated
from seqloom.inspect.view import MEDIUM
from seqloom.nn.models import EncoderDecoder, SequenceModel
from seqloom.nn.types import Padded, Pair, Spelled

Removal = Literal["delete", "mask"]
REMOVALS = ("delete", "mask")
MOST_ELEMENTS = 8192  # tokens that one pass reads


def chosen_removal(subject: Subject, reading: Reading, removal: str | None) -> Removal:
    """How tokens are removed: as asked, or deleted where that can be; ConfigError where it cannot."""
    read = reading.inputs.source if isinstance(reading.inputs, Pair) else reading.inputs
    deletes = isinstance(subject.model, SequenceModel | EncoderDecoder) and isinstance(read, Padded | Spelled)
    if removal is None:
        return "delete" if deletes else "mask"
    if removal not in REMOVALS:
        raise ConfigError(f"there is no removal '{removal}'", fix=did_you_mean(removal, REMOVALS))
    if removal == "delete" and not deletes:
        raise ConfigError(
            "each answer of this model stands at an element of its input: none can be deleted", fix="take mask"
        )
    return "delete" if removal == "delete" else "mask"


@torch.no_grad()
def without(subject: Subject, reading: Reading, gone: np.ndarray, removal: Removal) -> Tensor:
    """[N,Q,K] the answers to an input without the tokens `gone` [N,T] of its first side, a bounded number at once."""
    each = max(1, MOST_ELEMENTS // max(1, gone.shape[1]))
    ask = _deleted if removal == "delete" else _masked
    blocks = (torch.from_numpy(gone[start : start + each]) for start in range(0, len(gone), each))
    with still(subject.model):
        return torch.cat([ask(subject, reading, block.to(subject.device)) for block in blocks])


def _masked(subject: Subject, reading: Reading, gone: Tensor) -> Tensor:
    def change(_call: int, vectors: Padded) -> Padded:
        return vectors.with_values(vectors.values.masked_fill(gone[:, :, None], 0))

    with changed_vectors(subject.model, reading.sides[0].stack, change):
        return probabilities(subject, reading, repeated(reading.inputs, len(gone)))


def _deleted(subject: Subject, reading: Reading, gone: Tensor) -> Tensor:
    inputs = reading.inputs
    if not isinstance(inputs, Pair):
        return probabilities(subject, reading, _shorter(inputs, ~gone))
    targets = repeated(inputs.target, len(gone))
    return probabilities(subject, reading, Pair(_shorter(inputs.source, ~gone), targets))


def _shorter(read: Any, kept: Tensor) -> Any:
    """One row of what a stack reads, once for each row of `kept` [N,T], with these elements alone."""
    if isinstance(read, Spelled):
        letters = _packed(read.letters[0], kept)
        return Spelled(_shorter(read.words, kept), letters)
    return Padded.of(_packed(read.values[0], kept), kept.sum(dim=1))


def _packed(row: Tensor, kept: Tensor) -> Tensor:
    """[N,T',...] the kept elements of a row [T,...], moved to the front, zeros behind them; one column at least."""
    longest = max(1, int(kept.sum(dim=1).max()))
    order = (~kept).to(torch.int8).argsort(dim=1, stable=True)[:, :longest]
    moved = row[order]
    real = torch.arange(order.shape[1], device=row.device) < kept.sum(dim=1)[:, None]
    return moved * real.view(*real.shape, *(1,) * (moved.ndim - 2)).to(moved.dtype)


SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
POINTS = (0.0, *SHARES, 1.0)  # of the curves
ORDERS = 3  # random ones; one beyond 512 tokens
LEAST_TO_LOSE = 1e-6


class Curves(NamedTuple):
    """m_j at each of POINTS: with these shares of the tokens deleted, and with nothing else left."""

    deletion: np.ndarray  # [7]
    insertion: np.ndarray  # [7]

    @property
    def comprehensiveness(self) -> float:
        """The mean over SHARES of what is lost without them."""
        return float(self.deletion[0] - self.deletion[1:-1].mean())

    @property
    def sufficiency(self) -> float:
        """The mean over SHARES of what is lost with them alone."""
        return float(self.deletion[0] - self.insertion[1:-1].mean())

    @property
    def normalised(self) -> tuple[float, float]:
        """Comprehensiveness and sufficiency as shares of what there is to lose; (0, 1) where that is nothing."""
        empty = 1 - max(0.0, float(self.deletion[0] - self.insertion[0]))
        if 1 - empty < LEAST_TO_LOSE:
            return 0.0, 1.0
        enough = 1 - max(0.0, self.sufficiency)
        shares = max(0.0, self.comprehensiveness) / (1 - empty), (enough - empty) / (1 - empty)
        return min(1.0, shares[0]), min(1.0, max(0.0, shares[1]))

    @property
    def areas(self) -> tuple[float, float]:
        """The areas under deletion, where less is better, and under insertion, where more is."""
        return float(np.trapezoid(self.deletion, POINTS)), float(np.trapezoid(self.insertion, POINTS))


class Rationale(NamedTuple):
    """The curves of some scores of tokens, and those of chance."""

    told: Curves
    chance: Curves
    removal: Removal


def rationale(
    subject: Subject, reading: Reading, scores: np.ndarray, removal: Removal, draw: np.random.Generator
) -> Rationale:
    """What the tokens with the highest scores [T] carry; NaN stands at tokens that are never removed."""
    tokens = np.flatnonzero(~np.isnan(scores))
    ranked = tokens[np.argsort(-scores[tokens], kind="stable")]
    orders = [ranked, *(draw.permutation(tokens) for _ in range(ORDERS if len(tokens) <= MEDIUM else 1))]
    gone = np.concatenate([removals(order, len(scores)) for order in orders])
    found = without(subject, reading, gone, removal)
    columns = decided(found[0])  # nothing is gone in the first row
    kept = confidence(found, columns).double().cpu().numpy().reshape(len(orders), 2, len(POINTS))
    return Rationale(Curves(*kept[0]), Curves(*kept[1:].mean(axis=0)), removal)


def removals(order: np.ndarray, length: int) -> np.ndarray:
    """[14,length] what is gone at each of POINTS: first the top of the order, then all of it but the top."""
    gone = np.zeros((2, len(POINTS), length), dtype=bool)
    for number, share in enumerate(POINTS):
        count = top_count(share, len(order))
        gone[0, number, order[:count]] = True
        gone[1, number, order[count:]] = True
    return gone.reshape(-1, length)


def top_count(share: float, count: int) -> int:
    """How many of so many tokens are a share of them: at least one, unless the share is none.

    >>> top_count(0.01, 20), top_count(0.2, 11), top_count(0.0, 20)
    (1, 3, 0)
    """
    return 0 if share == 0 else min(count, max(1, math.ceil(round(share * count, 9))))
