"""Pearson's correlation as a function of sums, so that ranks can add up and resamples need no second look.

r = (n S_xy - S_x S_y) / sqrt((n S_xx - S_x^2) (n S_yy - S_y^2))
"""

import numpy as np

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
