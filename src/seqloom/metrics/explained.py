"""R²: how much of the spread of true numbers the answers explain, from sums over examples.

    R² = 1 - Σ (said - true)² / Σ (true - mean)²     1: all of it; 0: no more than the mean as the answer to everything

Of several numbers it is the mean of each, as scikit-learn has it, which is the test. The spread is that of the judged
examples. It comes from sums of the true numbers and of their squares, both less something near their mean: so of prices
in millions that differ by cents no digit is lost. A number that never changes has no spread: R² is then 1 where every
answer is right, and else 0, as in scikit-learn.
"""

import numpy as np

from seqloom.metrics.figures import ratio

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
