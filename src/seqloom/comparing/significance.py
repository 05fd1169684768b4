"""Tests of one pair of models that go by examples alone, and the correction for several pairs.

randomisation   is this difference more than chance would give if each answer might as well be the other model's?
                Right for BLEU and F1, which are no means over examples (Riezler and Maxwell 2005). Seeds stand
                side by side, the first with the first: it speaks of these trained weights.
McNemar         one seed of each, and right or wrong answers: do the disagreements go one way? (McNemar 1947, exact)
Holm            the more pairs are looked at, the smaller each p must be (Holm 1979)
more seeds      how many would be enough for a pair, if its difference and the spread of the seeds stayed as they are
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from seqloom.comparing.statistics import CELLS, Estimate, Measure

SHUFFLES = 2000
MOST_MORE = 10  # seeds that a projection goes on to


def randomisation(
    one: np.ndarray, other: np.ndarray, measure: Measure, *, shuffles: int = SHUFFLES, seed: int = 0
) -> float:
    """How often the difference is as large when each example's answers change sides by a coin; [K,N,S] of each.

    >>> same = np.ones((1, 9, 1))
    >>> randomisation(same, same, lambda sums: sums[..., 0])
    1.0
    """
    pairs = min(len(one), len(other))
    one, other = one[:pairs], other[:pairs]
    observed = abs(float(_mean_difference(one.sum(axis=1), other.sum(axis=1), measure)))
    draws, rows, reached = np.random.Generator(np.random.PCG64(seed)), one.shape[1], 0
    total, apart = one.sum(axis=1) + other.sum(axis=1), one - other
    for start in range(0, shuffles, block := max(1, CELLS // max(1, rows))):
        signs = draws.integers(0, 2, (min(block, shuffles - start), rows)) * 2.0 - 1.0
        moved = np.einsum("rn,kns->rks", signs, apart, optimize=True)
        found = _mean_difference((total + moved) / 2, (total - moved) / 2, measure)
        reached += int(np.sum(np.abs(found) >= observed - 1e-12 * max(1.0, observed)))
    return (reached + 1) / (shuffles + 1)


def _mean_difference(one: np.ndarray, other: np.ndarray, measure: Measure) -> np.ndarray:
    """[...] of summed statistics [...,K,S]: the difference of the scores, a mean over pairs of seeds."""
    return np.asarray((measure(one) - measure(other)).mean(axis=-1))


def mcnemar(one: np.ndarray, other: np.ndarray) -> float:
    """The exact p of two models' right (1) and wrong (0) answers [N] to the same examples, one seed of each.

    >>> mcnemar(np.array([1.0] * 6), np.array([0.0] * 6))
    0.03125
    """
    better, worse = int(np.sum(one > other)), int(np.sum(one < other))
    fewer = sum(math.comb(better + worse, k) for k in range(min(better, worse) + 1))
    return min(1.0, float(2 * fewer / 2 ** (better + worse)))


def holm(values: Sequence[float]) -> list[float]:
    """Each p as if it were the only one: the smallest times their number, the next times one less, never falling.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    adjusted, least = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=lambda at: values[at])):
        least = max(least, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = least
    return adjusted


def more_seeds(found: Sequence[Estimate], shuffled: Sequence[float], alpha: float) -> list[int | None]:
    """For each pair how many more seeds would show its difference; None where MOST_MORE would not.

    A projection: differences and spreads as found, all pairs with as many seeds, and Holm's correction over them.
    `shuffled` are the pairs' p of `randomisation`.
    """
    enough: list[int | None] = [None] * len(found)
    for more in range(1, MOST_MORE + 1):
        pairs = zip(found, shuffled, strict=True)
        adjusted = holm([max(one.p(more), _shuffled_with(one, p, more)) for one, p in pairs])
        enough = [more if had is None and p < alpha else had for had, p in zip(enough, adjusted, strict=True)]
    return enough


def _shuffled_with(found: Estimate, p: float, more: int) -> float:
    """The p of randomisation with more seeds, whose mean moves less between examples."""
    before, after = (found.uncertainty.of_examples(seeds) for seeds in (0, more))
    if p >= 1.0 or after == 0.0:
        return p
    normal = NormalDist()
    return 2 * normal.cdf(normal.inv_cdf(p / 2) * math.sqrt(before / after))
