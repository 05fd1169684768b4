"""How far a figure would move with other examples of the same kind: the bootstrap (Efron 1979, Koehn 2004).

A resample draws N of the N examples with replacement. Because every metric is a function of summed statistics, a
resample is how often each example was drawn times its statistics: no model is asked again, and memory holds one count
for each example, however many resamples there are.
"""

from collections.abc import Callable

import numpy as np

Interval = tuple[float, float]


def resampled_sums(statistics: np.ndarray, resamples: int, draws: np.random.Generator) -> np.ndarray:
    """[resamples,S] the summed statistics of as many draws of N rows out of [N,S]."""
    rows = len(statistics)
    sums = np.empty((resamples, statistics.shape[1]))
    for number in range(resamples):
        drawn = np.bincount(draws.integers(0, rows, rows), minlength=rows)
        sums[number] = drawn @ statistics
    return sums


def intervals(
    statistics: np.ndarray,
    measure: Callable[[np.ndarray], dict[str, np.ndarray]],
    *,
    resamples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, Interval]:
    """The interval of each figure that holds `level` of the resamples; the same for the same seed.

    >>> right = np.array([[1.0], [1.0], [0.0], [1.0]])
    >>> intervals(right, lambda sums: {"right": sums[..., 0] / 4})["right"]
    (0.25, 1.0)
    """
    sums = resampled_sums(statistics, resamples, np.random.Generator(np.random.PCG64(seed)))
    tails = [(1 - level) / 2, (1 + level) / 2]
    found = {name: np.quantile(values, tails) for name, values in measure(sums).items()}
    return {name: (float(low), float(high)) for name, (low, high) in found.items()}
