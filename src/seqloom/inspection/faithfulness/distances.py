"""How far apart two distributions are, and whether two columns of numbers put tokens into the same order.

    TVD(p,q)  = 1/2 sum_i |p_i - q_i|                             in [0,1]
    KL(a||b)  = sum_i a_i (log a_i - log b_i)
    JSD(a,b)  = 1/2 KL(a||m) + 1/2 KL(b||m),  m = (a+b)/2         in [0, ln 2]
    tau_b     = (agreeing pairs - disagreeing ones) / sqrt(pairs untied in x * pairs untied in y)     Kendall 1945

Where both distributions are zero, at masked positions, they add nothing: 0 log 0 is 0 here, in value and in gradient.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

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
    difference = sum(_agreement(x, y, start) for start in range(0, count, BLOCK)) / 2
    pairs, one, other = count * (count - 1) / 2, _ties(x), _ties(y)
    value = difference / math.sqrt((pairs - one.pairs) * (pairs - other.pairs))
    return Tau(min(1.0, max(-1.0, value)), _chance(difference, count, one, other))


def _agreement(x: np.ndarray, y: np.ndarray, start: int) -> float:
    rows = slice(start, start + BLOCK)
    return float((np.sign(x[rows, None] - x) * np.sign(y[rows, None] - y)).sum())


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
