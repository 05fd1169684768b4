"""Pearson's correlation as a function of sums.

r = (n S_xy - S_x S_y) / sqrt((n S_xx - S_x^2) (n S_yy - S_y^2))

Spearman's rank correlation:

    rho = correlation of rank(x) and rank(y)         equal numbers share the mean of their ranks

R², the coefficient of determination, from sums over examples:

    R² = 1 - Σ (predicted - expected)² / Σ (expected - mean)²       1: perfect; 0: no better than predicting the mean

For several numbers it is the mean over them, as in scikit-learn. The mean is that of the evaluated examples. It is
computed from sums of the expected numbers and of their squares, both shifted by something near their mean: so no digit
is lost for prices in millions that differ by cents. A number that never changes has no variance: R² is then 1 if every
prediction is correct, and else 0, as in scikit-learn.
"""

import numpy as np

from seqloom.metrics.bootstrap import ratio

SMALLEST = 1e-12  # relative variance: below it, float64 sums are only rounding


def correlation_statistics(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """[N,5] statistics to be summed: x, y, x^2, y^2, x y."""
    return np.stack([x, y, x * x, y * y, x * y], axis=1)


def correlation(sums: np.ndarray, count: np.ndarray) -> np.ndarray:
    """[...] the correlation from sums [...,5] over `count` [...] examples; 0 if one of the two never changes.

    >>> x, y = np.array([1.0, 2.0, 4.0]), np.array([2.0, 4.0, 8.0])
    >>> round(float(correlation(correlation_statistics(x, y).sum(axis=0), np.array(3.0))), 12)
    1.0
    """
    x, y, xx, yy, xy = np.moveaxis(np.asarray(sums, np.float64), -1, 0)
    spreads = [
        np.where(n > SMALLEST * count * square, n, 0.0)
        for n, square in ((count * xx - x * x, xx), (count * yy - y * y, yy))
    ]
    scale = np.sqrt(spreads[0] * spreads[1])
    found = np.divide(count * xy - x * y, scale, out=np.zeros_like(scale), where=scale > 0)
    return np.asarray(np.clip(found, -1.0, 1.0))


def ranks(values: np.ndarray) -> np.ndarray:
    """[N] the rank of each value, the first 1; equal values share the mean of their ranks.

    >>> ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, number, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[number])


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """The rank correlation of two columns [N], in [-1,1]; 0 if one of them never changes.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 25.0]))
    1.0
    """
    one, other = ranks(x), ranks(y)
    one, other = one - one.mean(), other - other.mean()
    scale = np.sqrt((one @ one) * (other @ other))
    return float(np.clip(one @ other / scale, -1, 1)) if scale > 0 else 0.0


KINDS = 3  # of columns for each number
NO_SPREAD = 1e-12  # relative to the summed squares: smaller is rounding


def explained_statistics(predicted: np.ndarray, expected: np.ndarray, near: np.ndarray) -> np.ndarray:
    """[...,3K] of numbers [...,K]: squared errors, expected numbers minus `near` [K], and their squares; to be summed.

    >>> explained_statistics(np.array([3.0]), np.array([5.0]), np.array([4.0])).tolist()
    [4.0, 1.0, 1.0]
    """
    apart = expected - near
    return np.concatenate([(predicted - expected) ** 2, apart, apart**2], axis=-1)


def explained(sums: np.ndarray, count: np.ndarray) -> np.ndarray:
    """[...] R² from sums [...,3K] over `count` [...] examples.

    >>> rows = explained_statistics(np.array([[1.0], [2.0], [4.0]]), np.array([[1.0], [2.0], [3.0]]), np.array([2.0]))
    >>> explained(rows.sum(axis=0), np.array(3)).item()
    0.5
    """
    errors, spread = np.split(sums, KINDS, axis=-1)[0], spreads(sums, count)
    share = np.where(spread > 0, 1 - ratio(errors, spread), errors == 0)
    return np.asarray(share.mean(axis=-1))


def spreads(sums: np.ndarray, count: np.ndarray) -> np.ndarray:
    """[...,K] the summed squares of each expected number minus its mean; 0 if it never changes."""
    _, apart, squares = np.split(sums, KINDS, axis=-1)
    found = squares - ratio(apart**2, np.asarray(count)[..., None])
    return np.asarray(np.where(found > NO_SPREAD * squares, found, 0.0))
