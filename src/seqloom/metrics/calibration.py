"""Calibration: whether probabilities mean what they say, and what to do when they do not.

Among a hundred answers given with probability 0.8, eighty should be right. The expected calibration error (Naeini et
al. 2015) puts the answers into 15 bins of equal width by their probability, and is the mean distance between the
probability and the share of right answers of a bin, weighted by the answers in it.

A network that is trained long is too sure. Dividing its scores z by one number T > 1, the temperature, makes it less
so, and changes no answer: softmax(z / T) has its largest value where softmax(z) has (Guo et al. 2017). T is that of the
least loss on the dev part. A dev part of a few rows that are all right would ask for T = 0, for no reason: so log T
counts as drawn from a normal law around 0, whose deviation `DOUBT` costs as much as half a nat in the summed loss.

Rows that found a calibration flatter it. So figures of the dev part itself are cross-fitted: each half of its rows is
read as the other half asks for, and what is shipped comes from all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from seqloom.metrics import ratio

BINS = 15
EDGES = np.linspace(0, 1, BINS + 1)  # a bin holds its upper edge
DOUBT = 0.5  # of log T
FARTHEST = 3.0  # of log T: temperatures lie between 1/20 and 20


class Calibration(NamedTuple):
    """How scores are read: divided by a temperature, and for several labels compared with thresholds."""

    temperature: float = 1.0
    thresholds: tuple[float, ...] = ()  # of the probability of each label; empty: 0.5

    @property
    def untempered(self) -> "Calibration":
        """The same answers from plain probabilities: sigmoid(z / T) > t where sigmoid(z) > sigmoid(T logit(t)).

        >>> Calibration(2.0, (0.5, 0.2)).untempered
        Calibration(temperature=1.0, thresholds=(0.5, 0.058823529411764705))
        """
        odds = ((threshold / (1 - threshold)) ** self.temperature for threshold in self.thresholds)
        return Calibration(1.0, tuple(one / (1 + one) for one in odds))


class Fitted(NamedTuple):
    """What a dev part asks for: what is shipped, and for each row that found it what the other half of them found."""

    shipped: Calibration = Calibration()
    rows: Mapping[str, Calibration] = MappingProxyType({})  # by id


def cross_fitted(ids: Sequence[str], fit: Callable[[np.ndarray], Calibration]) -> Fitted:
    """The calibration of all rows, and that of the other half for each; `fit` takes the places of some of them.

    Halves are drawn by the order of ids, whole numbers: so they are the same wherever the part begins, and however its
    batches come.
    """
    order = np.array(sorted(range(len(ids)), key=lambda place: (len(ids[place]), ids[place])), np.int64)
    drawn = order[np.random.Generator(np.random.PCG64(0)).permutation(len(ids))]
    halves = drawn[: len(ids) // 2], drawn[len(ids) // 2 :]
    rows = {ids[place]: found for half, found in zip(halves, map(fit, reversed(halves)), strict=True) for place in half}
    return Fitted(fit(np.sort(drawn)), rows)


def binned(probabilities: np.ndarray, right: np.ndarray, times: np.ndarray) -> np.ndarray:
    """[3,15] of each bin: how many answers, their summed probability, and how many were right; each `times`."""
    bins = np.searchsorted(EDGES[1:-1], probabilities, side="left")
    weights = (times, times * probabilities, times * right)
    return np.stack([np.bincount(bins, weight, minlength=BINS) for weight in weights])


def calibration_error(bins: np.ndarray) -> np.ndarray:
    """The expected calibration error [...] of bins [...,3,15] as `binned` makes them.

    >>> sure, right = np.array([0.9, 0.9, 0.6]), np.array([1.0, 1.0, 0.0])
    >>> round(float(calibration_error(binned(sure, right, np.ones(3)))), 6)  # (0.2 + 0.6) / 3
    0.266667
    """
    count, probability, right = np.moveaxis(bins, -2, 0)
    whole = count.sum(axis=-1)
    distance = np.abs(probability - right).sum(axis=-1)
    return ratio(distance, whole)


def best_temperature(loss: Callable[[float], float]) -> float:
    """The temperature of the least summed loss and doubt; 1 where no other is better.

    The loss is convex in 1 / T. The search halves an interval of log T by the golden section, so it is the same
    whenever it is made.

    >>> round(best_temperature(lambda temperature: 1e6 * (temperature - 2) ** 2), 3)
    2.0
    """

    def cost(log: float) -> float:
        return loss(float(np.exp(log))) + log**2 / (2 * DOUBT**2)

    found = _golden(cost, -FARTHEST, FARTHEST)
    return float(np.exp(found)) if cost(found) < cost(0.0) else 1.0


def _golden(cost: Callable[[float], float], low: float, high: float, within: float = 1e-4) -> float:
    """Where a function with one valley between two places is least, by the golden section."""
    share = (5**0.5 - 1) / 2
    left, right = high - share * (high - low), low + share * (high - low)
    at_left, at_right = cost(left), cost(right)
    while high - low > within:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - share * (high - low)
            at_left = cost(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + share * (high - low)
            at_right = cost(right)
    return (low + high) / 2
