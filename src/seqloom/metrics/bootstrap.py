"""How far a figure would move with other examples of the same kind: the bootstrap (Efron 1979, Koehn 2004).

A resample draws N of the N examples with replacement. Because every metric is a function of summed statistics, a
resample is how often each example was drawn times its statistics: no model is asked again, and memory holds the counts
of a few resamples, however many there are. A figure that is no function of sums, as a correlation of ranks, is made of
the rows that were drawn; of many rows fewer resamples are made of it, for each of them sorts all rows.

An interval always holds the figure itself: a figure that noise can only raise, as a calibration error, is larger in
resamples than it is, and then stands at the end of its interval.

One row can be drawn in one way only, and rows that are alike give one figure however they are drawn: of them the
bootstrap says that there is no doubt, which is false. Such a figure has no interval. Where rows are all right, or all
wrong, more is known. A share of 1 or 0 has the rule of three instead (Hanley and Lippman-Hand 1983): if none of n
rows differs, fewer than 3/n of all further rows do, with 95 % confidence, because (1 - 3/n)^n is about 0.05.
"""

import math
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np

Interval = tuple[float, float]
Measure = Callable[[np.ndarray], dict[str, np.ndarray]]  # figures of sums [...,W], each [...]
MeasureRows = Callable[[np.ndarray], dict[str, float]]  # figures of rows [N,S]
Summed = Callable[[np.ndarray, np.ndarray], np.ndarray]  # rows [N,S], each taken so often [R,N], added up: [R,W]
SHARES = frozenset({"accuracy", "exact_match", "f1", "macro_f1", "precision", "recall"})  # in [0,1], and 1 is all right
TOGETHER = 2**18  # counts of drawn rows that are held at a time
SAME = 1e-12  # of a figure: what the order of a sum may change
THREE = 3  # rows of n further ones that may differ where none of n did
SORTED = 10**7, 100  # rows that are sorted for an interval, and the fewest resamples all the same


def added(statistics: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The rows added up, each taken so often."""
    return np.asarray(times @ statistics)


def no_rows(_: np.ndarray) -> dict[str, float]:
    """No figure."""
    return {}


def resampled_sums(
    statistics: np.ndarray, resamples: int, draws: np.random.Generator, summed: Summed = added
) -> np.ndarray:
    """[resamples,W] the summed statistics of as many draws of N rows out of [N,S]."""
    rows, sums = len(statistics), []
    for start in range(0, resamples, together := max(1, min(resamples, TOGETHER // rows))):
        count = min(together, resamples - start)
        # [R,N] how often each row was drawn
        times = np.stack([np.bincount(draws.integers(0, rows, rows), minlength=rows) for _ in range(count)])
        sums.append(summed(statistics, times))
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
    """The interval of each figure that holds `level` of the resamples; the same for the same seed.

    Of `shares` that are 0 or 1 it is that of the rule of three. Of one row there is none, nor of other figures that are
    the same in every resample.

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
    # resamples that differ by no more than the last digits of a sum are one figure
    spread = {name: values for name, values in drawn.items() if not np.ptp(values) <= SAME * np.abs(values).max()}
    ends = {name: np.quantile(values, tails).tolist() for name, values in spread.items()}
    found = {name: (min(low, figures[name]), max(high, figures[name])) for name, (low, high) in ends.items()}
    return found | rows_alike(statistics, measure, summed=summed, level=level, shares=shares)


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _resampled_rows(
    statistics: np.ndarray, measure: MeasureRows, resamples: int, draws: np.random.Generator
) -> dict[str, np.ndarray]:
    """The figures of rows, of as many draws of N rows as time allows."""
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
    """The intervals of the shares that are 0 or 1, by the rule of three: n are the rows that have part in a figure.

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
    """How many rows alone have the same figure, by its name."""
    found = dict.fromkeys(figures, 0)
    for start in range(0, len(statistics), together):
        block = statistics[start : start + together]
        each = measure(summed(block, np.eye(len(block))))
        for name, value in figures.items():
            found[name] += int(np.sum(each[name] == value))
    return found


def is_extreme(name: str, value: float | None, shares: Collection[str] = SHARES) -> bool:
    """Whether a figure is a share of nothing or of all, of which resampling says nothing.

    >>> is_extreme("accuracy", 1.0), is_extreme("accuracy", 0.99), is_extreme("mse", 0.0)
    (True, False, False)
    """
    return name in shares and value in (0.0, 1.0)


def alike_said(
    metrics: Mapping[str, float | None], rows: int, shares: Collection[str] = SHARES, one: str = "row"
) -> str:
    """What the intervals of shares of 0 or 1 are; empty where there are none. `rows` is 0 where unknown.

    >>> print(alike_said({"accuracy": 1.0, "loss": 0.1}, 20))
    Not one row differs in accuracy, so drawing rows again shows no spread. The interval is the rule of three: of \
as many further rows up to 3 may differ.
    >>> alike_said({"accuracy": 0.9}, 20)
    ''
    """
    names = [name for name, number in metrics.items() if is_extreme(name, number, shares)]
    same = f"Not one {one} differs in {' or '.join(names)}, so drawing {one}s again shows no spread."
    most = "all" if 0 < rows <= THREE else f"up to {THREE}"
    rule = f"The interval is the rule of three: of as many further {one}s {most} may differ."
    return f"{same} {rule}" if names else ""


def rule_of_three(rows: int, level: float) -> float:
    """The share of further rows that may differ where none of so many did: 3/n for 95 %."""
    return min(1.0, -math.log(1 - level) / max(1, rows))


# How sure the difference of two models is on the same examples: the paired jackknife (Quenouille 1949, Tukey 1958).
#
# Every metric is a function of summed statistics, so leaving examples out is a subtraction, and no model is asked
# again:
#
#     D    = metric(sums of the first) - metric(sums of the second)
#     D_j  = the same without the examples of group j, of the m_j of n
#     P_j  = h_j D - (h_j - 1) D_j   with h_j = n / m_j                      what group j says alone
#     error^2 = mean of (P_j - weighted mean of P)^2 / (h_j - 1)             Busing, Meijer and van der Leeden 1999
#
# Up to `MOST_GROUPS` examples each is a group of its own, and of a mean the error is that of a paired t-test. Of more
# examples neighbours are left out together, so that the cost stays small; groups may differ in size by one.

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
