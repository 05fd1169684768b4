"""Labels suggested from a few examples, with a probability for each: by a fitted head, or by the nearest examples.

A *head* is logistic regression on vectors of length 1, softmax(x W + b), fitted to

    mean over the n examples of -log p(label)  +  |W|² / (2 C n),     C = 5

The second term keeps probabilities modest while examples are few. On sentences of films the mean probability of the
likelier label is 0.65 with 16 examples, 0.69 with 64 and 0.77 with 256, and 0.57, 0.70 and 0.75 of these labels are
right (`benchmarks/labelling.py`): from some dozens on, it is right about as often as it says. *Neighbours* vote: each
of the eight nearest examples by its nearness, and one more vote is shared by all labels.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

STRENGTH = 5.0  # C: how far examples are believed
ROUNDS = 500  # of the fit, at most
FLAT = 5e-5  # slope at which the fit is done
VOTES = 8
PRODUCTS = 1 << 22  # similarities to examples that are in memory at a time
NEARNESS = 0.1  # the difference of cosines that makes a vote e times as heavy


class Suggests(Protocol):
    """What suggests labels."""

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """[N,K] the probability of each label for each vector [N,W]."""


class Even(NamedTuple):
    """Nothing is known: every label is as likely as every other."""

    labels: int

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """[N,K] the same everywhere."""
        return np.full((len(vectors), self.labels), 1 / max(1, self.labels), np.float32)


class SuggestionHead(NamedTuple):
    """A fitted head."""

    weights: np.ndarray  # [W,K]
    bias: np.ndarray  # [K]

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """[N,K] softmax(x W + b)."""
        return _softmax(vectors @ self.weights + self.bias)


def fit_head(vectors: np.ndarray, classes: np.ndarray, labels: int) -> SuggestionHead:
    """The head fitted to examples [n,W] of length 1 and classes [n]; the same each time.

    Nesterov's accelerated descent, restarted when it overshoots (O'Donoghue and Candes 2015): the loss is convex, and
    with vectors of length 1 and the bias its curvature is at most 1 + 1/(C n), so no step has to be searched for.
    """
    inputs = np.concatenate([vectors.astype(np.float64), np.ones((len(vectors), 1))], axis=1)  # the last is the bias
    targets, decay = np.eye(labels)[classes], np.full((inputs.shape[1], 1), 1 / (STRENGTH * len(inputs)))
    decay[-1] = 0
    now = ahead = np.zeros((inputs.shape[1], labels))
    momentum = 1.0
    for _ in range(ROUNDS):
        slope = inputs.T @ (_softmax(inputs @ ahead) - targets) / len(inputs) + decay * ahead
        if np.abs(slope).max() < FLAT:
            break
        after = ahead - slope / (1 + decay.max())
        if (slope * (after - now)).sum() > 0:
            momentum = 1.0
        faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        now, ahead, momentum = after, after + (momentum - 1) / faster * (after - now), faster
    return SuggestionHead(ahead[:-1].astype(np.float32), ahead[-1].astype(np.float32))


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


class Neighbours(NamedTuple):
    """Examples that vote."""

    vectors: np.ndarray  # [n,W]
    classes: np.ndarray  # [n]
    labels: int

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """[N,K] the share of the votes of the nearest examples."""
        some = max(1, PRODUCTS // len(self.vectors))
        blocks = [self._shares(vectors[start : start + some]) for start in range(0, len(vectors), some)]
        return np.concatenate([np.empty((0, self.labels), np.float32), *blocks])

    def _shares(self, vectors: np.ndarray) -> np.ndarray:
        """[N,K] the same for few vectors, each of which is compared with every example."""
        count = min(VOTES, len(self.vectors))
        products = vectors @ self.vectors.T  # [N,n]
        near = np.argpartition(products, -count, axis=1)[:, -count:]
        nearness = np.take_along_axis(products, near, axis=1)
        votes = np.exp((nearness - nearness.max(axis=1, keepdims=True)) / NEARNESS)
        shares = np.repeat(votes.mean(axis=1, keepdims=True) / self.labels, self.labels, axis=1)
        np.add.at(shares, (np.arange(len(vectors))[:, None], self.classes[near]), votes)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))


SUGGESTS: dict[str, Callable[[np.ndarray, np.ndarray, int], Suggests]] = {"head": fit_head, "neighbours": Neighbours}
