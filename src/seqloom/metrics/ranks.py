"""Spearman's correlation: whether two columns of numbers put the examples into the same order.

    rho = correlation of rank(x) and rank(y)         equal numbers share the mean of their ranks

It does not ask for the right numbers, only for the right order: what a measure of similarity is judged by.
"""

import numpy as np


def ranks(values: np.ndarray) -> np.ndarray:
    """[N] the rank of each value, the first 1; equal values share the mean of their ranks.

    >>> ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, number, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[number])


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """The correlation of the ranks of two columns [N], in [-1,1]; 0 where one of them never changes.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 25.0]))
    1.0
    """
    one, other = ranks(x), ranks(y)
    one, other = one - one.mean(), other - other.mean()
    scale = np.sqrt((one @ one) * (other @ other))
    return float(np.clip(one @ other / scale, -1, 1)) if scale > 0 else 0.0
