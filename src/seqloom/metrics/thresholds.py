"""Thresholds: from which probability on each of several labels is said, so that F1 is largest.

Saying what is more likely than not makes the fewest errors. F1 does not count errors: it asks that rare labels be
found, and its best threshold is half of the F1 that it reaches (Lipton et al. 2014), so mostly below one half.

    micro F1 = 2 right / (said + true), summed over labels

is a ratio of sums, and its largest value l solves  max sum_k (2 right_k - l (said_k + true_k)) = 0. For a given l each
label has its own best threshold, whatever the others have; with these, l grows, and after a few rounds it stands still
(Dinkelbach 1967). F1 never falls on the way, and where thresholds are equally good the one nearest to a half is taken.

A label that fewer than five rows of the dev part have, or lack, keeps a half: nothing is known of it.
"""

from typing import NamedTuple

import numpy as np

HALF = 0.5
LOWEST, HIGHEST = 0.05, 0.95
FEWEST = 5  # rows with a label, and without it, from which its threshold is found
MOST_ROUNDS = 50


class _Choices(NamedTuple):
    """The thresholds that one label may have, and what is said and right with each."""

    thresholds: np.ndarray  # [C], the nearest to a half first
    said: np.ndarray
    right: np.ndarray

    def best(self, level: float) -> int:
        """Which is best where the F1 of all is so large."""
        return int(np.argmax(2 * self.right - level * self.said))


def best_thresholds(probabilities: np.ndarray, true: np.ndarray) -> tuple[float, ...]:
    """The threshold of each label that together make the largest F1, from [N,K] each; what is above it is said.

    >>> likely, true = np.array([[0.4], [0.3], [0.1]] * 5), np.array([[1], [1], [0]] * 5)
    >>> [round(threshold, 3) for threshold in best_thresholds(likely, true)]
    [0.2]
    """
    columns = zip(probabilities.T.astype(np.float64), true.T > 0, strict=True)
    labels = [_choices(likely, there) for likely, there in columns]
    positives, chosen, level = float(np.sum(true > 0)), [0] * len(labels), -1.0  # first: a half everywhere
    for _ in range(MOST_ROUNDS):
        reached = _f1(labels, chosen, positives)
        if reached <= level:
            break
        level, chosen = reached, [label.best(reached) for label in labels]
    return tuple(float(label.thresholds[number]) for label, number in zip(labels, chosen, strict=True))


def _f1(labels: list[_Choices], chosen: list[int], positives: float) -> float:
    right = sum(float(label.right[number]) for label, number in zip(labels, chosen, strict=True))
    said = sum(float(label.said[number]) for label, number in zip(labels, chosen, strict=True))
    return 2 * right / (said + positives) if said + positives else 0.0


def _choices(likely: np.ndarray, true: np.ndarray) -> _Choices:
    """The thresholds between the probabilities of one label [N], and a half."""
    thresholds = np.array([HALF])
    if min(true.sum(), (~true).sum()) >= FEWEST:
        values = np.unique(likely)
        between = (values[1:] + values[:-1]) / 2
        between = between[(between >= LOWEST) & (between <= HIGHEST)]
        thresholds = np.concatenate([thresholds, between[np.argsort(np.abs(between - HALF), kind="stable")]])
    return _Choices(thresholds, _above(likely, thresholds), _above(likely[true], thresholds))


def _above(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """How many values are above each threshold."""
    return len(values) - np.searchsorted(np.sort(values), thresholds, side="right")
