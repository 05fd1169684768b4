"""Pearson's correlation as a function of sums, so that ranks can add up and resamples need no second look.

r = (n S_xy - S_x S_y) / sqrt((n S_xx - S_x^2) (n S_yy - S_y^2))

Spearman's correlation: whether two columns of numbers put the examples into the same order.

    rho = correlation of rank(x) and rank(y)         equal numbers share the mean of their ranks

It does not ask for the right numbers, only for the right order: what a measure of similarity is judged by.

R²: how much of the spread of true numbers the answers explain, from sums over examples.

    R² = 1 - Σ (said - true)² / Σ (true - mean)²    1: all of it; 0: no more than the mean as the answer to everything

Of several numbers it is the mean of each, as scikit-learn has it, which is the test. The spread is that of the judged
examples. It comes from sums of the true numbers and of their squares, both less something near their mean: so of
prices in millions that differ by cents no digit is lost. A number that never changes has no spread: R² is then 1
where every answer is right, and else 0, as in scikit-learn.
"""

import numpy as np

from seqloom.metrics import ratio

SMALLEST = 1e-12  # of the largest that a spread could be: below it, sums of float64 know nothing


def correlation_statistics(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """[N,5] what is to be added up: x, y, x^2, y^2, x y."""
    return np.stack([x, y, x * x, y * y, x * y], axis=1)


def correlation(sums: np.ndarray, count: np.ndarray) -> np.ndarray:
    """[...] the correlation from sums [...,5] over so many [...]; 0 where one of the two never changes.

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
    """The correlation of the ranks of two columns [N], in [-1,1]; 0 where one of them never changes.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 25.0]))
    1.0
    """
    one, other = ranks(x), ranks(y)
    one, other = one - one.mean(), other - other.mean()
    scale = np.sqrt((one @ one) * (other @ other))
    return float(np.clip(one @ other / scale, -1, 1)) if scale > 0 else 0.0


KINDS = 3  # of columns for each number
NO_SPREAD = 1e-12  # of the summed squares: what is left of them is noise


def explained_statistics(said: np.ndarray, true: np.ndarray, near: np.ndarray) -> np.ndarray:
    """[...,3K] of numbers [...,K]: squared errors, true numbers less `near` [K], and squares of these; to be summed.

    >>> explained_statistics(np.array([3.0]), np.array([5.0]), np.array([4.0])).tolist()
    [4.0, 1.0, 1.0]
    """
    apart = true - near
    return np.concatenate([(said - true) ** 2, apart, apart**2], axis=-1)


def explained(sums: np.ndarray, count: np.ndarray) -> np.ndarray:
    """[...] of sums [...,3K] over so many [...] examples.

    >>> rows = explained_statistics(np.array([[1.0], [2.0], [4.0]]), np.array([[1.0], [2.0], [3.0]]), np.array([2.0]))
    >>> explained(rows.sum(axis=0), np.array(3)).item()
    0.5
    """
    errors, spread = np.split(sums, KINDS, axis=-1)[0], spreads(sums, count)
    share = np.where(spread > 0, 1 - ratio(errors, spread), errors == 0)
    return np.asarray(share.mean(axis=-1))


def spreads(sums: np.ndarray, count: np.ndarray) -> np.ndarray:
    """[...,K] the summed squares of each true number less its mean; 0 where it never changes."""
    _, apart, squares = np.split(sums, KINDS, axis=-1)
    found = squares - ratio(apart**2, np.asarray(count)[..., None])
    return np.asarray(np.where(found > NO_SPREAD * squares, found, 0.0))
