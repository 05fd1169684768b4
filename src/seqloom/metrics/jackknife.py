"""How sure the difference of two models is on the same examples: the paired jackknife (Quenouille 1949, Tukey 1958).

Every metric is a function of summed statistics, so leaving examples out is a subtraction, and no model is asked again:

    D    = metric(sums of the first) - metric(sums of the second)
    D_j  = the same without the examples of group j, of the m_j of n
    P_j  = h_j D - (h_j - 1) D_j   with h_j = n / m_j                      what group j says alone
    error^2 = mean of (P_j - weighted mean of P)^2 / (h_j - 1)             Busing, Meijer and van der Leeden 1999

Up to `MOST_GROUPS` examples each is a group of its own, and of a mean the error is that of a paired t-test. Of more
examples neighbours are left out together, so that the cost stays small; groups may differ in size by one.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from seqloom.metrics.bootstrap import Measure

MOST_GROUPS = 500  # the error itself is then known to 3 %: 1 / sqrt(2 x 499)


class PairedDifference(NamedTuple):
    """A figure of the first model less that of the second, and the standard error of it over the examples."""

    value: float
    error: float


def paired_differences(
    first: np.ndarray,
    second: np.ndarray,
    summed: Callable[[np.ndarray], np.ndarray],
    measure: Measure,
    *,
    groups: int = MOST_GROUPS,
) -> dict[str, PairedDifference]:
    """The difference of each figure of two tables [N,S], whose rows are of the same examples, N at least 2.

    >>> first, second = np.array([[1, 1], [1, 1], [0, 1], [1, 1]]), np.array([[1, 1], [0, 1], [0, 1], [1, 1]])
    >>> accuracy = lambda sums: {"accuracy": sums[..., 0] / sums[..., 1]}
    >>> paired_differences(first, second, lambda rows: rows.sum(axis=0), accuracy)["accuracy"]
    PairedDifference(value=0.25, error=0.25)
    """
    cuts = np.linspace(0, len(first), min(groups, len(first)) + 1).astype(int)
    times = len(first) / np.diff(cuts)  # h_j
    whole, others = (_figures(table, cuts, summed, measure) for table in (first, second))
    with np.errstate(invalid="ignore"):  # a perplexity may be infinite, and the error of its difference is NaN then
        return {name: _difference(whole[name] - others[name], times) for name in whole}


def _figures(
    table: np.ndarray, cuts: np.ndarray, summed: Callable[[np.ndarray], np.ndarray], measure: Measure
) -> dict[str, np.ndarray]:
    """The figures [1+G] of the whole table, and of it without each of the groups."""
    sums = summed(table)
    parts = [summed(table[start:end]) for start, end in pairwise(cuts)]
    return measure(np.stack([sums, *(sums - part for part in parts)]))


def _difference(found: np.ndarray, times: np.ndarray) -> PairedDifference:
    whole, without = found[0], found[1:]
    alone = times * whole - (times - 1) * without  # P_j
    spread = (alone - np.average(alone, weights=1 / times)) ** 2 / (times - 1)
    return PairedDifference(float(whole), float(np.sqrt(spread.mean())))
