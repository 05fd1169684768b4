"""How far a figure would move with other examples of the same kind: the bootstrap (Efron 1979, Koehn 2004).

A resample draws N of the N examples with replacement. Because every metric is a function of summed statistics, a
resample is how often each example was drawn times its statistics: no model is asked again, and memory holds one count
for each example, however many resamples there are.

Rows that are all right, or all wrong, stay so however they are drawn: of them the bootstrap says that there is no
doubt, which is false. A share of 1 or 0 has the rule of three instead (Hanley and Lippman-Hand 1983): if none of n
rows differs, fewer than 3/n of all further rows do, with 95 % confidence, because (1 - 3/n)^n is about 0.05.
"""

import math
from collections.abc import Callable, Collection

import numpy as np

Interval = tuple[float, float]
Measure = Callable[[np.ndarray], dict[str, np.ndarray]]
SHARES = frozenset({"accuracy", "exact_match", "f1", "precision", "recall"})  # in [0,1], and 1 is all right


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
    measure: Measure,
    *,
    resamples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    shares: Collection[str] = SHARES,
) -> dict[str, Interval]:
    """The interval of each figure that holds `level` of the resamples; the same for the same seed.

    Of `shares` that are 0 or 1 it is that of the rule of three.

    >>> right = np.array([[1.0], [1.0], [0.0], [1.0]])
    >>> intervals(right, lambda sums: {"right": sums[..., 0] / 4})["right"]
    (0.25, 1.0)
    """
    sums = resampled_sums(statistics, resamples, np.random.Generator(np.random.PCG64(seed)))
    tails = [(1 - level) / 2, (1 + level) / 2]
    found = {name: np.quantile(values, tails) for name, values in measure(sums).items()}
    drawn = {name: (float(low), float(high)) for name, (low, high) in found.items()}
    return drawn | rows_alike(statistics, measure, level=level, shares=shares)


def rows_alike(
    statistics: np.ndarray, measure: Measure, *, level: float = 0.95, shares: Collection[str] = SHARES
) -> dict[str, Interval]:
    """The intervals of the shares that are 0 or 1, by the rule of three: n are the rows that have part in a figure.

    >>> all_right = np.ones((30, 2))
    >>> low, high = rows_alike(all_right, lambda sums: {"accuracy": sums[..., 0] / sums[..., 1]})["accuracy"]
    >>> round(low, 3), high
    (0.9, 1.0)
    """
    whole, each = measure(statistics.sum(axis=0)), measure(statistics)
    extreme = {name: float(value) for name, value in whole.items() if is_extreme(name, float(value), shares)}
    return {name: _rule_of_three(value, int(np.sum(each[name] == value)), level) for name, value in extreme.items()}


def is_extreme(name: str, value: float | None, shares: Collection[str] = SHARES) -> bool:
    """Whether a figure is a share of nothing or of all, of which resampling says nothing.

    >>> is_extreme("accuracy", 1.0), is_extreme("accuracy", 0.99), is_extreme("mse", 0.0)
    (True, False, False)
    """
    return name in shares and value in (0.0, 1.0)


def _rule_of_three(value: float, rows: int, level: float) -> Interval:
    most = min(1.0, -math.log(1 - level) / max(1, rows))  # 3/n for 95 %
    return (1 - most, 1.0) if value == 1.0 else (0.0, most)
