"""Explanations put to the test: tokens taken away, or nothing else left, and whether explanations agree.

Tokens taken away (DeYoung et al. 2020, ERASER): are these the tokens that the answer rests on?

    comprehensiveness = m(x)_j - m(x without r)_j        higher is better     j: the answer to the whole input
    sufficiency       = m(x)_j - m(r alone)_j            lower is better, may be negative

r are the top 1, 5, 10, 20 and 50 % of the tokens, max(1, ceil(kT)) of them, among equal ones the first. Their mean over
the five is the AOPC: as ERASER's code divides by five, not by six as the paper writes; shares that mean the same set in
a short text count once each, as there. Beside both stands the mean over random orders of the same sizes.

The curves add 0 and 100 %: deletion takes the top tokens away, insertion leaves nothing else (Petsiuk et al. 2018). The
normalized versions (Carton et al. 2020) divide by what there is to lose, m(x)_j less that of the empty input. Special
tokens are never removed; of the others, tokens are left out, never cut anew from a text, so that the sequence gets
shorter, or, where answers stand at tokens or patches, vectors of zeros stand in their place.

Attention, or whatever is given, is set against

    gradient         g_t = |sum_d dy/de_td e_td|        y the probability of the answer, attention held as it is
    leave-one-out    d_t = TVD(p(x without t), p(x))

Kendall's tau looks at the order of all tokens, and is low where many irrelevant ones stand in any order, even if
attention is right about the one that matters; so the overlap of the top tenth stands beside it. Leave-one-out of a long
input is measured for a sample of its tokens.

    TVD(p,q)  = 1/2 sum_i |p_i - q_i|                             in [0,1]
    KL(a||b)  = sum_i a_i (log a_i - log b_i)
    JSD(a,b)  = 1/2 KL(a||m) + 1/2 KL(b||m),  m = (a+b)/2         in [0, ln 2]
    tau_b     = (agreeing pairs - disagreeing ones) / sqrt(pairs untied in x * pairs untied in y)     Kendall 1945

Where both distributions are zero, at masked positions, they add nothing: 0 log 0 is 0 here, in value and in gradient.
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
MOST_ELEMENTS = 8192  # tokens that one pass reads


def chosen_removal(subject: Subject, reading: Reading, removal: str | None) -> Removal:
    """How tokens are removed: as asked, or deleted where that can be; ConfigError where it cannot."""
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
    def normalized(self) -> tuple[float, float]:
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

    marked: Curves
    random: Curves
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


LEAST = 3  # tokens: of fewer the order says nothing
BLOCK = 512  # rows of the matrix of pairs that is held at once
TOP = 0.1  # of the tokens: those whose overlap is looked at


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """TVD along the last axis.

    >>> float(total_variation(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])))
    1.0
    """
    return (p - q).abs().sum(dim=-1) / 2


def divergence(a: Tensor, b: Tensor) -> Tensor:
    """KL(a||b) along the last axis; what b holds impossible and a does not counts as the smallest number there is."""
    least = torch.finfo(b.dtype).tiny
    return (torch.xlogy(a, a.clamp(min=least)) - torch.xlogy(a, b.clamp(min=least))).sum(dim=-1)


def jensen_shannon(a: Tensor, b: Tensor) -> Tensor:
    """JSD along the last axis, by natural logarithms.

    >>> round(float(jensen_shannon(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))), 4)
    0.6931
    """
    middle = (a + b) / 2
    return (divergence(a, middle) + divergence(b, middle)).clamp(min=0) / 2


class Tau(NamedTuple):
    """Kendall's tau-b, and how often chance alone would be so far from zero."""

    value: float
    chance: float  # two-sided p, by the normal distribution


def kendall(x: np.ndarray, y: np.ndarray) -> Tau | None:
    """Kendall's tau-b of two columns [N]; None where it is undefined: fewer than 3 numbers, or one that never changes.

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
    """What the equal numbers of a column take away: sums over groups of t equal ones."""

    pairs: float  # t (t-1) / 2
    triples: float  # t (t-1) (t-2)
    spread: float  # t (t-1) (2t+5)


def _ties(values: np.ndarray) -> _Ties:
    sizes = np.unique(values, return_counts=True)[1].astype(float)
    twos = sizes * (sizes - 1)
    return _Ties(float(twos.sum() / 2), float((twos * (sizes - 2)).sum()), float((twos * (2 * sizes + 5)).sum()))


def _chance(difference: float, count: int, one: _Ties, other: _Ties) -> float:
    """Kendall 1970, with the variance that ties leave."""
    pairs = count * (count - 1.0)
    variance = (pairs * (2 * count + 5) - one.spread - other.spread) / 18
    variance += 2 * one.pairs * other.pairs / pairs + one.triples * other.triples / (9 * pairs * (count - 2))
    return math.erfc(abs(difference) / math.sqrt(2 * variance))


def overlap(x: np.ndarray, y: np.ndarray, share: float = TOP) -> float:
    """How much of the top tenth of x is in that of y, at least one of each; among equal numbers the first count.

    >>> overlap(np.array([0.1, 0.9, 0.0]), np.array([5.0, 6.0, 7.0]))
    0.0
    """
    count = max(1, math.ceil(share * len(x)))
    one, other = (set(np.argsort(-values, kind="stable")[:count].tolist()) for values in (x, y))
    return len(one & other) / count


MOST_LEFT_OUT = 128  # tokens of an input of more than 512 that are left out, one by one
MOST_READ = 2**18  # tokens that are read for it: of a longer input fewer are left out
CHANCE = 0.05
BINS = 10  # of a histogram of tau, from -1 to 1


class Agreement(NamedTuple):
    """How far two explanations of one input agree."""

    one: str
    other: str
    tau: Tau | None  # None where it is undefined
    overlap: float


class AgreementPair(NamedTuple):
    """How far two explanations agree over several inputs."""

    one: str
    other: str
    answer: str | None  # of the inputs with this answer; None: of all
    tau: float | None  # the mean; None where it is undefined for every input
    spread: float | None  # the standard deviation
    significant: float | None  # the share with p <= 0.05
    overlap: float  # of the top tenth, the mean
    inputs: int
    undefined: int  # inputs of fewer than 3 tokens, or with equal numbers throughout
    histogram: tuple[int, ...]  # how many inputs have a tau in each of ten equal parts of -1 to 1


def agreements(scores: dict[str, np.ndarray]) -> tuple[Agreement, ...]:
    """How far each explanation [T] agrees with each other one, on the tokens where both have a number."""
    found = []
    for one, other in combinations(scores, 2):
        known = ~np.isnan(scores[one]) & ~np.isnan(scores[other])
        x, y = scores[one][known], scores[other][known]
        found.append(Agreement(one, other, kendall(x, y), overlap(x, y) if len(x) else 0.0))
    return tuple(found)


def pairs(by_input: Sequence[Sequence[Agreement]], answers: Sequence[str | None]) -> tuple[AgreementPair, ...]:
    """What the inputs come to: all of them, and where each has one answer, by that answer."""
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
    """[T] |slope x vector| at each token of the first side, the weights of the layer held; NaN at special tokens."""
    leaves: list[torch.Tensor] = []

    def leaf(_call: int, vectors: Padded) -> Padded:
        leaves.append(vectors.values.detach().requires_grad_())
        return vectors.with_any(leaves[0])

    side = reading.sides[0]
    holding = nullcontext() if layer is None else imposed(subject.model, layer.path, lambda rows: rows.weights.detach())
    # The fused recurrent kernels of cuDNN refuse to go backwards outside training.
    with torch.enable_grad(), still(subject.model), torch.backends.cudnn.flags(enabled=False):
        with changed_vectors(subject.model, side.stack, leaf), holding:
            found = probabilities(subject, reading, reading.inputs)
        (slopes,) = torch.autograd.grad(confidence(found, decided(found[0])).sum(), leaves)
    sizes = (slopes * leaves[0]).sum(dim=-1).abs()[0].double().detach().cpu().numpy()
    return np.where([token.is_special for token in side.tokens], np.nan, sizes)


def left_out(subject: Subject, reading: Reading, removal: Removal, draw: np.random.Generator) -> np.ndarray:
    """[T] how far the answers move without each token of the first side; NaN at those that were not left out."""
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
