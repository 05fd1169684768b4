"""Confidence intervals of metrics: the bootstrap (Efron 1979, Koehn 2004).

A resample draws N of the N examples with replacement. Every metric is a function of summed statistics, so a resample
only needs to know how often each example was drawn: the model does not run again, and only a few resamples are in
memory at a time. A metric that is not a function of sums, such as a rank correlation, is computed from the drawn rows;
for many rows it gets fewer resamples, because each one sorts all rows.

An interval always contains the metric itself. Noise can only increase a calibration error, so its resamples are too
high and the metric is then an end of its interval.

With one row, or if all rows are equal, every resample gives the same value. The bootstrap would claim certainty, so the
metric has no interval. If all rows are correct or all are wrong, the rule of three applies (Hanley and Lippman-Hand
1983): if 0 of n rows differ, fewer than 3/n of all further rows do, with 95 % confidence, because (1 - 3/n)^n is about
0.05.
"""

import math
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

Interval = tuple[float, float]
Measure = Callable[[np.ndarray], dict[str, np.ndarray]]  # metrics of sums [...,W], each [...]
MeasureRows = Callable[[np.ndarray], dict[str, float]]  # metrics of rows [N,S]
Summed = Callable[[np.ndarray, np.ndarray], np.ndarray]  # sums [R,W] of rows [N,S], where each row counts [R,N] times
SHARES = frozenset({"accuracy", "exact_match", "f1", "macro_f1", "precision", "recall"})  # in [0,1], where 1 is perfect
TOGETHER = 2**18  # counts of drawn rows in memory at a time
SAME = 1e-12  # relative difference that the order of a sum may cause
THREE = 3  # of n further rows, how many may differ if 0 of n did
SORTED = 10**7, 100  # maximum rows to sort for an interval, and the minimum number of resamples


def added(statistics: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The sums of rows, each counted `times`."""
    return np.asarray(times @ statistics)


def no_rows(_: np.ndarray) -> dict[str, float]:
    return {}


def resampled_sums(
    statistics: np.ndarray, resamples: int, draws: np.random.Generator, summed: Summed = added
) -> np.ndarray:
    """[resamples,W] the summed statistics of resamples of the rows [N,S]."""
    rows, sums = len(statistics), []
    for start in range(0, resamples, together := max(1, min(resamples, TOGETHER // rows))):
        count = min(together, resamples - start)
        drawn = draws.integers(0, rows, (count, rows)) + rows * np.arange(count)[:, None]
        times = np.bincount(drawn.ravel(), minlength=count * rows)  # how often each row was drawn
        sums.append(summed(statistics, times.reshape(count, rows)))
    return np.concatenate(sums)


def intervals(
    statistics: np.ndarray,
    measure: Measure,
    *,
    summed: Summed = added,
    rows: MeasureRows = no_rows,
    resamples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
    shares: Collection[str] = SHARES,
) -> dict[str, Interval]:
    """Bootstrap confidence intervals, by name.

    Args:
        statistics: [N,S] one row per example.
        measure: computes metrics from sums.
        summed: computes sums of resampled rows.
        rows: computes metrics that are no function of sums.
        resamples: how many resamples to draw.
        seed: the random seed.
        level: the confidence level.
        shares: metrics in 0..1 that use the rule of three if they are 0 or 1.

    Returns:
        (low, high) for each metric; none for a single row, or for a metric that is the same in every resample.

    >>> right = np.array([[1.0], [1.0], [0.0], [1.0]])
    >>> intervals(right, lambda sums: {"right": sums[..., 0] / 4})["right"]
    (0.25, 1.0)
    """
    if len(statistics) < 2:
        return {}
    whole = measure(summed(statistics, np.ones((1, len(statistics)))))
    figures = {name: float(value[0]) for name, value in whole.items()} | rows(statistics)
    drawn = measure(resampled_sums(statistics, resamples, _generator(seed), summed))
    drawn |= _resampled_rows(statistics, rows, resamples, _generator(seed))
    tails = [(1 - level) / 2, (1 + level) / 2]
    # Resamples that differ only by rounding count as equal
    spread = {name: values for name, values in drawn.items() if not np.ptp(values) <= SAME * np.abs(values).max()}
    ends = {name: np.quantile(values, tails).tolist() for name, values in spread.items()}
    found = {name: (min(low, figures[name]), max(high, figures[name])) for name, (low, high) in ends.items()}
    return found | rows_alike(statistics, measure, summed=summed, level=level, shares=shares)


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _resampled_rows(
    statistics: np.ndarray, measure: MeasureRows, resamples: int, draws: np.random.Generator
) -> dict[str, np.ndarray]:
    """The metrics of resampled rows, for as many resamples as time allows."""
    names, count = measure(statistics), len(statistics)
    if not names:
        return {}
    most, fewest = SORTED
    made = [
        measure(statistics[draws.integers(0, count, count)]) for _ in range(min(resamples, max(fewest, most // count)))
    ]
    return {name: np.array([one[name] for one in made]) for name in names}


def rows_alike(
    statistics: np.ndarray,
    measure: Measure,
    *,
    summed: Summed = added,
    level: float = 0.95,
    shares: Collection[str] = SHARES,
) -> dict[str, Interval]:
    """The intervals of shares that are 0 or 1, by the rule of three; n is the number of rows that a metric counts.

    >>> all_right = np.ones((30, 2))
    >>> low, high = rows_alike(all_right, lambda sums: {"accuracy": sums[..., 0] / sums[..., 1]})["accuracy"]
    >>> round(low, 3), high
    (0.9, 1.0)
    """
    whole = measure(summed(statistics, np.ones((1, len(statistics)))))
    extreme = {name: float(value[0]) for name, value in whole.items() if is_extreme(name, float(value[0]), shares)}
    alike = _rows_with(extreme, statistics, measure, summed) if extreme else {}
    most = {name: rule_of_three(rows, level) for name, rows in alike.items()}
    return {name: (1 - most[name], 1.0) if value == 1.0 else (0.0, most[name]) for name, value in extreme.items()}


def _rows_with(
    figures: dict[str, float], statistics: np.ndarray, measure: Measure, summed: Summed, together: int = 256
) -> dict[str, int]:
    """Return, for each metric, how many single rows have the same value as the whole."""
    found = dict.fromkeys(figures, 0)
    for start in range(0, len(statistics), together):
        block = statistics[start : start + together]
        each = measure(summed(block, np.eye(len(block))))
        for name, value in figures.items():
            found[name] += int(np.sum(each[name] == value))
    return found


def is_extreme(name: str, value: float | None, shares: Collection[str] = SHARES) -> bool:
    """Whether a metric is a share of 0 or 1, for which resampling shows no spread.

    >>> is_extreme("accuracy", 1.0), is_extreme("accuracy", 0.99), is_extreme("mse", 0.0)
    (True, False, False)
    """
    return name in shares and value in (0.0, 1.0)


def alike_said(
    metrics: Mapping[str, float | None], rows: int, shares: Collection[str] = SHARES, one: str = "row"
) -> str:
    """A note about the intervals of shares of 0 or 1; empty if there are none. `rows` is 0 if unknown.

    >>> print(alike_said({"accuracy": 1.0, "loss": 0.1}, 20))
    The accuracy of all rows is 1, so the bootstrap shows no variation. The interval uses the rule of three: up to 3 \
of 20 new rows may be wrong.
    >>> alike_said({"f1": 1.0, "recall": 1.0, "accuracy": 1.0}, 20).partition(", so")[0]
    'The f1, recall and accuracy of all rows are 1'
    >>> alike_said({"accuracy": 0.9}, 20)
    ''
    """
    names = [name for name, number in metrics.items() if is_extreme(name, number, shares)]
    many = f"{one.removesuffix('y')}ies" if one.endswith("y") else f"{one}s"
    found = {metrics[name] for name in names}
    value, differ = (
        ("1", "wrong") if found == {1.0} else ("0", "correct") if found == {0.0} else ("0 or 1", "different")
    )
    are = f"is {value}" if len(names) == 1 else f"are {value}"
    listed = " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
    same = f"The {listed} of all {many} {are}, so the bootstrap shows no variation."
    most = "all" if 0 < rows <= THREE else f"up to {THREE}"
    further = f"{rows:,}" if rows else "as many"
    rule = f"The interval uses the rule of three: {most} of {further} new {many} may be {differ}."
    return f"{same} {rule}" if names else ""


def rule_of_three(rows: int, level: float) -> float:
    """The share of further rows that may differ if none of `rows` did: 3/n for 95 %."""
    return min(1.0, -math.log(1 - level) / max(1, rows))


# The standard error of the difference of two models on the same examples: the paired jackknife (Quenouille 1949,
# Tukey 1958).
#
# Every metric is a function of summed statistics, so leaving examples out is a subtraction:
#
#     D    = metric(sums of the first) - metric(sums of the second)
#     D_j  = the same without the examples of group j, of the m_j of n
#     P_j  = h_j D - (h_j - 1) D_j   with h_j = n / m_j                      pseudo-value of group j
#     error^2 = mean of (P_j - weighted mean of P)^2 / (h_j - 1)             Busing, Meijer and van der Leeden 1999
#
# Up to `MOST_GROUPS` examples, each is its own group, and the error of a mean equals that of a paired t-test. With
# more examples, neighbors are left out together to limit the cost; group sizes differ by at most one.

MOST_GROUPS = 500  # the standard error is then known to 3 %: 1 / sqrt(2 x 499)


class PairedDifference(NamedTuple):
    """The first model's metric minus the second model's, and its standard error over the examples."""

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
    """The paired difference of each metric of two tables [N,S] of the same examples; N is at least 2.

    >>> first, second = np.array([[1, 1], [1, 1], [0, 1], [1, 1]]), np.array([[1, 1], [0, 1], [0, 1], [1, 1]])
    >>> accuracy = lambda sums: {"accuracy": sums[..., 0] / sums[..., 1]}
    >>> paired_differences(first, second, lambda rows: rows.sum(axis=0), accuracy)["accuracy"]
    PairedDifference(value=0.25, error=0.25)
    """
    cuts = np.linspace(0, len(first), min(groups, len(first)) + 1).astype(int)
    times = len(first) / np.diff(cuts)  # h_j
    whole, others = (_figures(table, cuts, summed, measure) for table in (first, second))
    with np.errstate(invalid="ignore"):  # a perplexity may be infinite; then the error of the difference is NaN
        return {name: _difference(whole[name] - others[name], times) for name in whole}


def _figures(
    table: np.ndarray, cuts: np.ndarray, summed: Callable[[np.ndarray], np.ndarray], measure: Measure
) -> dict[str, np.ndarray]:
    """The metrics [1+G] of the complete table, and without each of the groups."""
    sums = summed(table)
    parts = [summed(table[start:end]) for start, end in pairwise(cuts)]
    return measure(np.stack([sums, *(sums - part for part in parts)]))


def _difference(found: np.ndarray, times: np.ndarray) -> PairedDifference:
    whole, without = found[0], found[1:]
    alone = times * whole - (times - 1) * without  # P_j
    spread = (alone - np.average(alone, weights=1 / times)) ** 2 / (times - 1)
    return PairedDifference(float(whole), float(np.sqrt(spread.mean())))


# Ratios and perplexity. Each takes arrays of sums [...] and returns an array [...], so that one call can handle a
# thousand resamples. 0 / 0 is 0, as in conlleval.

LARGEST_EXPONENT = 700.0  # the largest exponent for float64, with a margin


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return part / whole, and 0 where the whole is 0.

    >>> ratio(np.array([1.0, 0.0]), np.array([4.0, 0.0])).tolist()
    [0.25, 0.0]
    """
    part, whole = np.broadcast_arrays(np.asarray(part, np.float64), np.asarray(whole, np.float64))
    quotient = np.zeros(part.shape)
    np.divide(part, whole, out=quotient, where=whole != 0)
    return quotient


def sums_by(groups: np.ndarray, times: np.ndarray, count: int) -> np.ndarray:
    """Sum the numbers [...,N] by the group [N] of each; return [...,count].

    >>> sums_by(np.array([2, 0, 2]), np.array([[1.0, 1.0, 1.0], [0.5, 0.0, 4.0]]), 3).tolist()
    [[1.0, 0.0, 2.0], [0.0, 0.0, 4.5]]
    """
    if times.ndim == 1:
        return np.bincount(groups, times, minlength=count)
    sums = np.zeros((*times.shape[:-1], count))
    if len(groups):
        order = np.argsort(groups, kind="stable")
        there, starts = np.unique(groups[order], return_index=True)
        sums[..., there] = np.add.reduceat(times[..., order], starts, axis=-1)
    return sums


def perplexity(loss: np.ndarray) -> np.ndarray:
    """Return exp(loss): the number of equally likely tokens with the same uncertainty; finite for any loss.

    >>> perplexity(np.log(np.array([8.0]))).round(6).tolist(), bool(np.isfinite(perplexity(np.array(1e9))))
    ([8.0], True)
    """
    return np.asarray(np.exp(np.minimum(loss, LARGEST_EXPONENT)))
