"""Tests of explanations: tokens removed or kept, and the agreement of explanations.

Tokens removed (DeYoung et al. 2020, ERASER): does the prediction depend on these tokens?

    comprehensiveness = m(x)_j - m(x without r)_j        higher is better     j: the prediction for the full input
    sufficiency       = m(x)_j - m(r alone)_j            lower is better, may be negative

r are the top 1, 5, 10, 20 and 50% of the tokens, max(1, ceil(kT)) of them; the first ones win ties. AOPC is the mean
over these five shares. As in ERASER's code it divides by five, not by six as in the paper; shares that give the same
set in a short text each count. The report also has the mean over random orders of the same sizes.

The curves add 0 and 100%: deletion removes the top tokens, insertion keeps only them (Petsiuk et al. 2018). The
normalized versions (Carton et al. 2020) divide by the largest possible loss, m(x)_j minus that of the empty input.
Special tokens are never removed. Other tokens are left out without tokenizing the text again, which shortens the
sequence; if each token or patch has a prediction, vectors of zeros replace them instead.

Attention, or another explanation, is compared with

    gradient         g_t = |sum_d dy/de_td e_td|        y the probability of the prediction, attention weights fixed
    leave-one-out    d_t = TVD(p(x without t), p(x))

Kendall's tau ranks all tokens, and is low if many irrelevant ones are in random order, even if attention is right about
the one that matters; so the overlap of the top tenth is reported too. Leave-one-out of a long input uses a sample of
its tokens.

    TVD(p,q)  = 1/2 sum_i |p_i - q_i|                             in [0,1]
    KL(a||b)  = sum_i a_i (log a_i - log b_i)
    JSD(a,b)  = 1/2 KL(a||m) + 1/2 KL(b||m),  m = (a+b)/2         in [0, ln 2]
    tau_b     = (agreeing pairs - disagreeing ones) / sqrt(pairs untied in x * pairs untied in y)     Kendall 1945

Where both distributions are zero, at masked positions, they add nothing: 0 log 0 is 0, also in the gradient.
"""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ConfigError, did_you_mean
from seqloom.inspect.attention_weights import AttentionLayer
from seqloom.inspect.faithfulness.bench import confidence, decided, imposed, probabilities
from seqloom.inspect.flow import still
from seqloom.inspect.layers import changed_vectors
from seqloom.inspect.subject import Reading, Subject, repeated
from seqloom.inspect.view import MEDIUM
from seqloom.nn.models import EncoderDecoder, SequenceModel
from seqloom.nn.types import Padded, Pair, Spelled

Removal = Literal["delete", "mask"]
REMOVALS = ("delete", "mask")
MOST_ELEMENTS = 8192  # tokens in one forward pass


def chosen_removal(subject: Subject, reading: Reading, removal: str | None) -> Removal:
    """Return how to remove tokens: `removal`, by default deletion if possible; ConfigError if it is not possible."""
    read = reading.inputs.source if isinstance(reading.inputs, Pair) else reading.inputs
    graph = isinstance(read, Padded) and read.edges is not None
    deletes = isinstance(subject.model, SequenceModel | EncoderDecoder) and isinstance(read, Padded | Spelled)
    deletes = deletes and not graph
    if removal is None:
        return "delete" if deletes else "mask"
    if removal not in REMOVALS:
        raise ConfigError(f"there is no removal '{removal}'", fix=did_you_mean(removal, REMOVALS))
    if removal == "delete" and graph:
        raise ConfigError("a node cannot be deleted without its edges", fix="use removal mask")
    if removal == "delete" and not deletes:
        raise ConfigError("each prediction belongs to a token, so tokens cannot be deleted", fix="use removal mask")
    return "delete" if removal == "delete" else "mask"


@torch.no_grad()
def without(subject: Subject, reading: Reading, gone: np.ndarray, removal: Removal) -> Tensor:
    """Return the predictions [N,Q,K] without the tokens `gone` [N,T] of the first side, in batches of bounded size."""
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
    """Repeat the stack's input of one row for each row of `kept` [N,T], with only these elements."""
    if isinstance(read, Spelled):
        letters = _packed(read.letters[0], kept)
        return Spelled(_shorter(read.words, kept), letters)
    return Padded.of(_packed(read.values[0], kept), kept.sum(dim=1))


def _packed(row: Tensor, kept: Tensor) -> Tensor:
    """Move the kept elements of a row [T,...] to the front, padded with zeros: [N,T',...], at least one column."""
    longest = max(1, int(kept.sum(dim=1).max()))
    order = (~kept).to(torch.int8).argsort(dim=1, stable=True)[:, :longest]
    moved = row[order]
    real = torch.arange(order.shape[1], device=row.device) < kept.sum(dim=1)[:, None]
    return moved * real.view(*real.shape, *(1,) * (moved.ndim - 2)).to(moved.dtype)


SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
POINTS = (0.0, *SHARES, 1.0)  # of the curves
ORDERS = 3  # random orders; 1 beyond 512 tokens
LEAST_TO_LOSE = 1e-6


class Curves(NamedTuple):
    """m_j at each of POINTS: with these shares of the tokens deleted, and with only them kept."""

    deletion: np.ndarray  # [7]
    insertion: np.ndarray  # [7]

    @property
    def comprehensiveness(self) -> float:
        """The mean loss over SHARES without these tokens."""
        return float(self.deletion[0] - self.deletion[1:-1].mean())

    @property
    def sufficiency(self) -> float:
        """The mean loss over SHARES with only these tokens."""
        return float(self.deletion[0] - self.insertion[1:-1].mean())

    @property
    def normalized(self) -> tuple[float, float]:
        """Comprehensiveness and sufficiency divided by the largest possible loss; (0, 1) if that is zero."""
        empty = 1 - max(0.0, float(self.deletion[0] - self.insertion[0]))
        if 1 - empty < LEAST_TO_LOSE:
            return 0.0, 1.0
        enough = 1 - max(0.0, self.sufficiency)
        shares = max(0.0, self.comprehensiveness) / (1 - empty), (enough - empty) / (1 - empty)
        return min(1.0, shares[0]), min(1.0, max(0.0, shares[1]))

    @property
    def areas(self) -> tuple[float, float]:
        """The areas under deletion, where lower is better, and insertion, where higher is better."""
        return float(np.trapezoid(self.deletion, POINTS)), float(np.trapezoid(self.insertion, POINTS))


class Rationale(NamedTuple):
    """The curves of an explanation, and those of random orders."""

    marked: Curves
    random: Curves
    removal: Removal


def rationale(
    subject: Subject, reading: Reading, scores: np.ndarray, removal: Removal, draw: np.random.Generator
) -> Rationale:
    """Return the curves of the tokens with the highest scores [T]; NaN marks tokens that are never removed."""
    tokens = np.flatnonzero(~np.isnan(scores))
    ranked = tokens[np.argsort(-scores[tokens], kind="stable")]
    orders = [ranked, *(draw.permutation(tokens) for _ in range(ORDERS if len(tokens) <= MEDIUM else 1))]
    gone = np.concatenate([removals(order, len(scores)) for order in orders])
    found = without(subject, reading, gone, removal)
    columns = decided(found[0])  # the first row has all tokens
    kept = confidence(found, columns).double().cpu().numpy().reshape(len(orders), 2, len(POINTS))
    return Rationale(Curves(*kept[0]), Curves(*kept[1:].mean(axis=0)), removal)


def removals(order: np.ndarray, length: int) -> np.ndarray:
    """Return the removed tokens [14,length] at each of POINTS: first the top of the order, then all but the top."""
    gone = np.zeros((2, len(POINTS), length), dtype=bool)
    for number, share in enumerate(POINTS):
        count = top_count(share, len(order))
        gone[0, number, order[:count]] = True
        gone[1, number, order[count:]] = True
    return gone.reshape(-1, length)


def top_count(share: float, count: int) -> int:
    """Return how many of `count` tokens a share is: at least one, unless the share is 0.

    >>> top_count(0.01, 20), top_count(0.2, 11), top_count(0.0, 20)
    (1, 3, 0)
    """
    return 0 if share == 0 else min(count, max(1, math.ceil(round(share * count, 9))))


LEAST = 3  # tokens: with fewer, the order means nothing
BLOCK = 512  # rows of the matrix of pairs in memory at a time
TOP = 0.1  # of the tokens, for the overlap


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """TVD along the last axis.

    >>> float(total_variation(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])))
    1.0
    """
    return (p - q).abs().sum(dim=-1) / 2


def divergence(a: Tensor, b: Tensor) -> Tensor:
    """KL(a||b) along the last axis; a zero of b where a is not zero counts as the smallest positive number."""
    least = torch.finfo(b.dtype).tiny
    return (torch.xlogy(a, a.clamp(min=least)) - torch.xlogy(a, b.clamp(min=least))).sum(dim=-1)


def jensen_shannon(a: Tensor, b: Tensor) -> Tensor:
    """JSD along the last axis, in nats.

    >>> round(float(jensen_shannon(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))), 4)
    0.6931
    """
    middle = (a + b) / 2
    return (divergence(a, middle) + divergence(b, middle)).clamp(min=0) / 2


class Tau(NamedTuple):
    """Kendall's tau-b and its p-value."""

    value: float
    chance: float  # two-sided p, by the normal distribution


def kendall(x: np.ndarray, y: np.ndarray) -> Tau | None:
    """Return Kendall's tau-b of two columns [N]; None if undefined: fewer than 3 values, or a constant column.

    >>> kendall(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])).value
    -1.0
    """
    count = len(x)
    if count < LEAST or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    blocks = (slice(start, start + BLOCK) for start in range(0, count, BLOCK))
    difference = sum(float((np.sign(x[rows, None] - x) * np.sign(y[rows, None] - y)).sum()) for rows in blocks) / 2
    pairs, one, other = count * (count - 1) / 2, _ties(x), _ties(y)
    value = difference / math.sqrt((pairs - one.pairs) * (pairs - other.pairs))
    return Tau(min(1.0, max(-1.0, value)), _chance(difference, count, one, other))


class _Ties(NamedTuple):
    """Sums over groups of t equal values of a column."""

    pairs: float  # t (t-1) / 2
    triples: float  # t (t-1) (t-2)
    spread: float  # t (t-1) (2t+5)


def _ties(values: np.ndarray) -> _Ties:
    sizes = np.unique(values, return_counts=True)[1].astype(float)
    twos = sizes * (sizes - 1)
    return _Ties(float(twos.sum() / 2), float((twos * (sizes - 2)).sum()), float((twos * (2 * sizes + 5)).sum()))


def _chance(difference: float, count: int, one: _Ties, other: _Ties) -> float:
    """Return the p-value (Kendall 1970), with the variance corrected for ties."""
    pairs = count * (count - 1.0)
    variance = (pairs * (2 * count + 5) - one.spread - other.spread) / 18
    variance += 2 * one.pairs * other.pairs / pairs + one.triples * other.triples / (9 * pairs * (count - 2))
    return math.erfc(abs(difference) / math.sqrt(2 * variance))


def overlap(x: np.ndarray, y: np.ndarray, share: float = TOP) -> float:
    """Return the fraction of the top tenth of x that is in that of y (at least one token); the first ones win ties.

    >>> overlap(np.array([0.1, 0.9, 0.0]), np.array([5.0, 6.0, 7.0]))
    0.0
    """
    count = max(1, math.ceil(share * len(x)))
    one, other = (set(np.argsort(-values, kind="stable")[:count].tolist()) for values in (x, y))
    return len(one & other) / count


MOST_LEFT_OUT = 128  # tokens that are left out one by one, of an input with more than 512
MOST_READ = 2**18  # tokens that are read for it: of a longer input fewer are left out
CHANCE = 0.05
BINS = 10  # of the histogram of tau, from -1 to 1


class Agreement(NamedTuple):
    """The agreement of two explanations of one input."""

    one: str
    other: str
    tau: Tau | None  # None if undefined
    overlap: float


class AgreementPair(NamedTuple):
    """The agreement of two explanations over several inputs."""

    one: str
    other: str
    answer: str | None  # of the inputs with this prediction; None: of all
    tau: float | None  # the mean; None if undefined for every input
    spread: float | None  # the standard deviation
    significant: float | None  # fraction with p <= 0.05
    overlap: float  # of the top tenth, the mean
    inputs: int
    undefined: int  # inputs with fewer than 3 tokens, or with constant values
    histogram: tuple[int, ...]  # number of inputs with tau in each of ten equal parts of -1 to 1


def agreements(scores: dict[str, np.ndarray]) -> tuple[Agreement, ...]:
    """Return the agreement of each pair of explanations [T], on the tokens where both have a value."""
    found = []
    for one, other in combinations(scores, 2):
        known = ~np.isnan(scores[one]) & ~np.isnan(scores[other])
        x, y = scores[one][known], scores[other][known]
        found.append(Agreement(one, other, kendall(x, y), overlap(x, y) if len(x) else 0.0))
    return tuple(found)


def pairs(by_input: Sequence[Sequence[Agreement]], answers: Sequence[str | None]) -> tuple[AgreementPair, ...]:
    """Summarize the agreement over all inputs, and by prediction if each input has one."""
    names = [name for name in dict.fromkeys(answers) if name is not None]
    found = []
    for at in range(len(by_input[0])):
        every = [each[at] for each in by_input]
        found.append(_pair(every, None))
        for name in names if len(names) > 1 else []:
            found.append(_pair([each for each, answer in zip(every, answers, strict=True) if answer == name], name))
    return tuple(found)


def _pair(found: Sequence[Agreement], answer: str | None) -> AgreementPair:
    taus = [each.tau for each in found if each.tau is not None]
    values = np.array([tau.value for tau in taus])
    measured = (values.mean(), values.std(), np.mean([tau.chance <= CHANCE for tau in taus])) if taus else ()
    mean, spread, significant = (float(each) for each in measured) if taus else (None, None, None)
    shared = float(np.mean([each.overlap for each in found]))
    one, other = found[0][:2]
    counts = tuple(int(count) for count in np.histogram(values, bins=BINS, range=(-1, 1))[0])
    return AgreementPair(
        one, other, answer, mean, spread, significant, shared, len(found), len(found) - len(taus), counts
    )


def gradient(subject: Subject, reading: Reading, layer: AttentionLayer | None) -> np.ndarray:
    """Return |gradient x vector| [T] for tokens of the first side, the layer's weights fixed; NaN at special tokens."""
    leaves: list[torch.Tensor] = []

    def leaf(_call: int, vectors: Padded) -> Padded:
        leaves.append(vectors.values.detach().requires_grad_())
        return vectors.with_any(leaves[0])

    side = reading.sides[0]
    holding = nullcontext() if layer is None else imposed(subject.model, layer.path, lambda rows: rows.weights.detach())
    # The fused recurrent kernels of cuDNN have no backward pass outside training.
    with torch.enable_grad(), still(subject.model), torch.backends.cudnn.flags(enabled=False):
        with changed_vectors(subject.model, side.stack, leaf), holding:
            found = probabilities(subject, reading, reading.inputs)
        (slopes,) = torch.autograd.grad(confidence(found, decided(found[0])).sum(), leaves)
    sizes = (slopes * leaves[0]).sum(dim=-1).abs()[0].double().detach().cpu().numpy()
    return np.where([token.is_special for token in side.tokens], np.nan, sizes)


def left_out(subject: Subject, reading: Reading, removal: Removal, draw: np.random.Generator) -> np.ndarray:
    """Return how far the predictions move [T] without each token of the first side; NaN at tokens not left out."""
    tokens = reading.sides[0].tokens
    chosen = np.array([at for at, token in enumerate(tokens) if not token.is_special])
    if len(chosen) > MEDIUM:
        count = max(1, min(MOST_LEFT_OUT, MOST_READ // len(tokens)))
        chosen = np.sort(draw.choice(chosen, count, replace=False))
    gone = np.zeros((1 + len(chosen), len(tokens)), dtype=bool)
    gone[1 + np.arange(len(chosen)), chosen] = True
    found = without(subject, reading, gone, removal)
    moved = np.full(len(tokens), np.nan)
    moved[chosen] = total_variation(found[1:], found[0]).mean(dim=1).double().cpu().numpy()
    return moved
