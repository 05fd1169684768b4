"""How sure a score, or a difference of two scores, is: a hierarchical bootstrap over seeds and examples.

A model's score is the mean over its seeds. It would move with other examples, and with other seeds:

    resample   the same examples for every model [N counts] ──▶ the score of each seed ──▶ [R,K] of each model
    examples   how far the mean over seeds moves between resamples
    seeds      how far the seeds lie apart: s^2 / K
    both       how far the seeds move against each other between resamples; it is in each of the two above
    variance   examples + seeds - both                     the two-way layout of Owen (2007), "pigeonhole bootstrap"

To draw seeds with replacement as well would be simpler and wrong twice: what stands under `both` counts double, and K
seeds drawn from K spread by (K - 1) / K too little, which is a third for the usual three. So the variance of the seeds
is the unbiased one, and because few seeds tell it badly, the interval is one of Student's t, whose degrees of freedom
are those of all parts together (Satterthwaite 1946). With one seed nothing is known about others: the interval then
speaks of these weights alone. `tests/comparing/test_calibration.py` simulates that the intervals cover as often as
they say.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Measure = Callable[[np.ndarray], np.ndarray]  # a metric of summed statistics: [...,S] to [...]
LEVEL = 0.95
RESAMPLES = 1000
CELLS = 2**22  # counts that are held at once
MOST_FREEDOM = 10_000.0  # there Student's t is the normal distribution


class Estimate(NamedTuple):
    """A number, the interval around it, and how surprising it would be if the truth were zero."""

    value: float
    low: float
    high: float
    p: float = 1.0
    freedom: float = MOST_FREEDOM  # degrees of freedom: few where seeds are few and lie apart


class Scores(NamedTuple):
    """The score of each seed of a model, as found and in each resample of the examples."""

    found: np.ndarray  # [K]
    drawn: np.ndarray  # [R,K]

    @property
    def mean(self) -> float:
        """The score of the model."""
        return float(self.found.mean())

    @property
    def of_seeds(self) -> float:
        """The variance of the mean that comes of the seeds, with what they share with the examples; of one seed 0."""
        return float(self.found.var(ddof=1) / len(self.found)) if len(self.found) > 1 else 0.0

    @property
    def of_both(self) -> float:
        """The share of that which other examples alone would change."""
        if len(self.found) == 1:
            return 0.0
        apart, apart_drawn = (values - values.mean(-1, keepdims=True) for values in (self.found, self.drawn))
        squares = ((apart_drawn - apart) ** 2).sum(axis=1).mean()
        return float(squares / (len(self.found) - 1) / len(self.found))


def resampled(
    tables: Sequence[np.ndarray], measure: Measure, *, resamples: int = RESAMPLES, seed: int = 0
) -> list[Scores]:
    """The scores of each model of its statistics [K,N,S]; a resample draws the same examples for all of them."""
    rows, draws = tables[0].shape[1], np.random.Generator(np.random.PCG64(seed))
    sums: list[list[np.ndarray]] = [[] for _ in tables]  # of each model, blocks of [r,K,S]
    for start in range(0, resamples, block := max(1, CELLS // max(1, rows))):
        counts = _counts(draws, rows, min(block, resamples - start))
        for table, into in zip(tables, sums, strict=True):
            into.append(np.einsum("rn,kns->rks", counts, table, optimize=True))
    return [
        Scores(measure(table.sum(axis=1)), measure(np.concatenate(into)))
        for table, into in zip(tables, sums, strict=True)
    ]


def _counts(draws: np.random.Generator, rows: int, resamples: int) -> np.ndarray:
    """[R,N] how often each of N rows was drawn when N are drawn with replacement."""
    drawn = (np.bincount(draws.integers(0, rows, rows), minlength=rows) for _ in range(resamples))
    return np.stack(list(drawn)).astype(np.float64)


def estimate(scores: Scores, *, level: float = LEVEL) -> Estimate:
    """The score of a model, and where it would lie with other seeds and other examples."""
    return _estimate(scores.mean, [scores], scores.drawn.mean(axis=1), level)


def difference(one: Scores, other: Scores, *, level: float = LEVEL) -> Estimate:
    """By how much the first model's score is above the second's; both were resampled together."""
    examples = one.drawn.mean(axis=1) - other.drawn.mean(axis=1)
    return _estimate(one.mean - other.mean, [one, other], examples, level)


def _estimate(value: float, models: Sequence[Scores], examples: np.ndarray, level: float) -> Estimate:
    seeds = [max(0.0, one.of_seeds - one.of_both) for one in models]
    variance = float(examples.var()) + sum(seeds)
    if variance == 0.0:
        return Estimate(value, value, value, 1.0 if value == 0.0 else 0.0)
    shaky = sum(one.of_seeds**2 / (len(one.found) - 1) for one in models if len(one.found) > 1)
    freedom = min(MOST_FREEDOM, max(1.0, variance**2 / shaky)) if shaky else MOST_FREEDOM
    reach = student_quantile(level, freedom) * math.sqrt(variance)
    p = max(0.0, 1 - student(abs(value) / math.sqrt(variance), freedom))
    return Estimate(value, value - reach, value + reach, p, freedom)


def student(reach: float, freedom: float) -> float:
    """The share of Student's t between -reach and reach.

    With t = sqrt(f) tan(a), the density of the angle is cos(a)^(f-1), and integrates without special functions.

    >>> round(student(12.706, 1), 4), round(student(2.776, 4), 4), round(student(1.95996, 1e9), 4)
    (0.95, 0.95, 0.95)
    """
    freedom = min(freedom, MOST_FREEDOM)
    edge = math.atan(reach / math.sqrt(freedom))
    inside, outside = _integral(0.0, edge, freedom), _integral(edge, math.pi / 2, freedom)
    return inside / (inside + outside)


def _integral(start: float, end: float, freedom: float) -> float:
    """Of cos(a)^(f-1), by Simpson's rule; beyond 12 deviations there is nothing."""
    end = min(end, max(start, 12 / math.sqrt(freedom)) + (math.pi if freedom < 100 else 0.0))
    angles = np.linspace(start, end, 801)
    heights = np.cos(angles).clip(0.0) ** (freedom - 1)
    weights = np.full(801, 2.0)
    weights[1::2], weights[[0, -1]] = 4.0, 1.0
    return float((weights * heights).sum() * (end - start) / 2400)


def student_quantile(level: float, freedom: float) -> float:
    """How far from zero Student's t goes in `level` of all cases.

    >>> round(student_quantile(0.95, 2), 3), round(student_quantile(0.95, 4), 3)
    (4.303, 2.776)
    """
    low, high = 0.0, 1.0
    while student(high, freedom) < level:
        high *= 2
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student(middle, freedom) < level else (low, middle)
    return high
