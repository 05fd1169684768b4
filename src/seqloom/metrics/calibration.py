"""Calibration: do probabilities match the share of correct predictions?

Of a hundred predictions with probability 0.8, eighty should be correct. The expected calibration error (Naeini et al.
2015) sorts predictions into 15 bins of equal width by their probability. It is the mean distance between probability
and accuracy of a bin, weighted by the number of predictions in it.

Networks that are trained long are overconfident. Temperature scaling (Guo et al. 2017) divides the logits z by one
number T; it changes no prediction, because softmax(z / T) and softmax(z) have the same maximum. T minimizes the loss
on the dev set. On a dev set with a few rows, all correct, the best T would be 0, so log T has a normal prior around 0
with the standard deviation `DOUBT`.

A calibration looks too good on the rows that it was fitted on. So metrics of the dev set itself are cross-fitted: each
half of its rows uses the calibration of the other half. The final calibration is fitted on all rows.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from seqloom.metrics.bootstrap import ratio, sums_by

BINS = 15
EDGES = np.linspace(0, 1, BINS + 1)  # a bin includes its upper edge
DOUBT = 0.5  # standard deviation of log T
FARTHEST = 3.0  # maximum of |log T|: temperatures are between 1/20 and 20


class Calibration(NamedTuple):
    """A temperature for logits, and for several labels a threshold for each probability."""

    temperature: float = 1.0
    thresholds: tuple[float, ...] = ()  # one for each label; empty: 0.5

    @property
    def untempered(self) -> "Calibration":
        """The same predictions from uncalibrated probabilities: sigmoid(z / T) > t if sigmoid(z) > sigmoid(T logit(t)).

        >>> Calibration(2.0, (0.5, 0.2)).untempered
        Calibration(temperature=1.0, thresholds=(0.5, 0.058823529411764705))
        """
        odds = ((threshold / (1 - threshold)) ** self.temperature for threshold in self.thresholds)
        return Calibration(1.0, tuple(one / (1 + one) for one in odds))


class Fitted(NamedTuple):
    """The calibration of a dev set, and for each of its rows that of the other half (cross-fitting)."""

    shipped: Calibration = Calibration()
    rows: Mapping[str, Calibration] = MappingProxyType({})  # by id


def cross_fitted(ids: Sequence[str], fit: Callable[[np.ndarray], Calibration]) -> Fitted:
    """The calibration of all rows, and for each row that of the other half; `fit` takes the indices of some rows.

    Halves are drawn by the order of ids, so they do not depend on batches.
    """
    order = np.array(sorted(range(len(ids)), key=lambda place: (len(ids[place]), ids[place])), np.int64)
    drawn = order[np.random.Generator(np.random.PCG64(0)).permutation(len(ids))]
    halves = drawn[: len(ids) // 2], drawn[len(ids) // 2 :]
    rows = {ids[place]: found for half, found in zip(halves, map(fit, reversed(halves)), strict=True) for place in half}
    return Fitted(fit(np.sort(drawn)), rows)


def binned(probabilities: np.ndarray, correct: np.ndarray, times: np.ndarray) -> np.ndarray:
    """[...,3,15] of each bin: predictions, their summed probability, correct ones; each counted `times` [...,N]."""
    bins = np.searchsorted(EDGES[1:-1], probabilities, side="left")
    weights = (times, times * probabilities, times * correct)
    return np.stack([sums_by(bins, weight, BINS) for weight in weights], axis=-2)


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
    """The temperature with the lowest sum of loss and prior; 1 if no other is better.

    The loss is convex in 1 / T. A golden-section search over log T finds it, without randomness.

    >>> round(best_temperature(lambda temperature: 1e6 * (temperature - 2) ** 2), 3)
    2.0
    """

    def cost(log: float) -> float:
        return loss(float(np.exp(log))) + log**2 / (2 * DOUBT**2)

    found = _golden(cost, -FARTHEST, FARTHEST)
    return float(np.exp(found)) if cost(found) < cost(0.0) else 1.0


def _golden(cost: Callable[[float], float], low: float, high: float, within: float = 1e-4) -> float:
    """The minimum of a unimodal function in an interval, by golden-section search."""
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
