"""Tokens taken away, or nothing else left (DeYoung et al. 2020, ERASER): are these the tokens that the answer rests on?

    comprehensiveness = m(x)_j - m(x without r)_j        higher is better     j: the answer to the whole input
    sufficiency       = m(x)_j - m(r alone)_j            lower is better, may be negative

r are the top 1, 5, 10, 20 and 50 % of the tokens, max(1, ceil(kT)) of them, among equal ones the first. Their mean over
the five is the AOPC: as ERASER's code divides by five, not by six as the paper writes; shares that mean the same set in
a short text count once each, as there. Beside both stands the mean over random orders of the same sizes.

The curves add 0 and 100 %: deletion takes the top tokens away, insertion leaves nothing else (Petsiuk et al. 2018). The
normalised versions (Carton et al. 2020) divide by what there is to lose, m(x)_j less that of the empty input.
"""

import math
from typing import NamedTuple

import numpy as np

from seqloom.inspection.faithfulness.answers import confidence, decided
from seqloom.inspection.faithfulness.removing import Removal, without
from seqloom.inspection.subject import Reading, Subject
from seqloom.inspection.view import MEDIUM

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
