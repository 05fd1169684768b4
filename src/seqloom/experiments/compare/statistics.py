"""Uncertainty of scores and their differences: a hierarchical bootstrap over seeds and examples.

A model's score is the mean over its seeds. It would change with other examples and with other seeds:

    resample   the same examples for every model [N counts] ──▶ the score of each seed ──▶ [R,K] for each model
    examples   variance of the mean over seeds between resamples
    seeds      variance between seeds: s^2 / K
    both       variance of seeds relative to each other between resamples; it is part of both of the above
    variance   examples + seeds - both                     the two-way layout of Owen (2007), "pigeonhole bootstrap"

Resampling the seeds with replacement as well would be simpler, but wrong in two ways: it would count `both` twice, and
K seeds drawn from K have only (K - 1) / K of the variance, a third too little for the usual three. So the variance
between seeds is the unbiased one, s^2. A few seeds say little about the true variance, which may be much larger:

    true variance of seeds   s^2 f / (a draw of chi^2 with f degrees of freedom), but at least `both`: what the examples
                             cause is known, and at most `most`, if scores have a range
    score - true score       normal, with the variance examples + (true variance - both) / K

This is the fiducial distribution of Behrens and Fisher. The interval and the p-values are those of this mixture of
normals. Student's t with the freedom of all parts together (Satterthwaite 1946) is no substitute: where s^2 is small by
chance, the examples seem to be all of the variance, the freedom seems large, and equal models differ in 8 to 10 % of
comparisons. For two models, s^2 is the sum of both; its freedom is that of one model times the sum over the larger one:
K - 1 if one model has all of the variance, as beside a convex one, and twice as much if both have the same.

s^2 is imprecise for few seeds, so it is pooled over all models. Two models have the pooled variance, with its freedom,
unless their own is clearly larger. A model whose seeds differ much more than those of the others would hide every
difference between these, so it is excluded from the pool. A model whose seeds all give the same predictions, for
example a convex one, has no variance between seeds and is excluded too.

With one seed the interval covers only these weights. `tests/experiments/compare/test_calibration.py` simulates the
coverage of the intervals, and how often equal models are called different.

Tests of one pair of models over examples, and the correction for several pairs:

randomization   how often is the difference as large if predictions are swapped between the models at random? Valid for
                BLEU and F1, which are not means over examples (Riezler and Maxwell 2005). Seeds are paired, the first
                with the first: the result is about these trained weights.
McNemar         one seed of each, and right or wrong predictions: are the disagreements one-sided? (McNemar 1947, exact)
Holm            with more pairs, each p must be smaller (Holm 1979)
equality        is the difference smaller than a margin? Two one-sided tests (Schuirmann 1987)
projections     how many more seeds, or rows, would decide a pair, if its difference and all variances did not change

Every resampling uses the evaluated examples as statistics that can be summed: a metric is a function of sums over
examples. If it is the mean of a score per example, like accuracy, two numbers per example are enough, independent of
the number of labels: the score, and 1 for the count.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from seqloom.tasks.task import Task

Measure = Callable[[np.ndarray], np.ndarray]  # a metric of summed statistics: [...,S] to [...]
LEVEL = 0.95  # of intervals
RESAMPLES = 1000
CELLS = 2**22  # counts in memory at a time
OUTLIER = 20.0  # times the variance of the other models with two seeds, 10 with three, ...: chosen by simulation
CLEARLY = 1.5  # a variance is clearly larger than the pooled one if it exceeds 2 - CLEARLY / (seeds - 1) times it
NODES = 101  # of an integral over the variance of seeds


@dataclass(frozen=True, eq=False)
class ModelScores:
    """The score of each seed of a model, on the data and in each resample of the examples."""

    found: np.ndarray  # [K]
    drawn: np.ndarray  # [R,K]

    @property
    def mean(self) -> float:
        """The score of the model: the mean over seeds."""
        return float(self.found.mean())

    @cached_property
    def vary(self) -> bool:
        """Whether the seeds give different predictions; equal ones may differ by rounding."""
        apart = max(float(np.ptp(self.found)), float(np.ptp(self.drawn, axis=1).max()))
        return apart > 1e-9 * float(np.abs(self.found).max())

    @cached_property
    def of_seeds(self) -> float:
        """The variance between seeds, including the part caused by the examples; 0 for one seed."""
        return float(self.found.var(ddof=1)) if self.vary else 0.0

    @cached_property
    def of_both(self) -> float:
        """The part of that variance that is caused by the examples."""
        if not self.vary:
            return 0.0
        apart, apart_drawn = (values - values.mean(-1, keepdims=True) for values in (self.found, self.drawn))
        return float(((apart_drawn - apart) ** 2).sum(axis=1).mean() / (len(self.found) - 1))


class SeedSpread(NamedTuple):
    """The variance between seeds, pooled over models, and its degrees of freedom."""

    variance: float
    freedom: float
    most: float = math.inf  # the largest possible variance between the seeds of a model

    @classmethod
    def pooled(cls, models: Sequence[ModelScores], most: float = math.inf) -> "SeedSpread":
        """Pool all models whose seeds differ, without those whose variance is much larger than that of the others.

        The freedom of the pool is lower if its models vary unequally (Satterthwaite 1946, without bias).
        """
        inside = sorted((one for one in models if one.vary), key=lambda one: one.of_seeds)
        if not inside:
            return cls(0.0, 0.0, most)
        each = len(inside[0].found) - 1  # degrees of freedom of a model
        while len(inside) > 1:
            *others, last = inside
            if last.of_seeds <= OUTLIER / each * np.mean([one.of_seeds for one in others]):
                break
            inside = others
        found = np.array([one.of_seeds for one in inside])
        alike = found.sum() ** 2 / (found**2).sum() if found.any() else len(found)
        return cls(float(found.mean()), min(each * len(found), (each + 2) * float(alike) - 2), most)

    def of(self, models: Sequence[ModelScores]) -> tuple[float, float]:
        """Return the variance between the seeds of models that vary, summed over them, and its degrees of freedom."""
        own, each = [one.of_seeds for one in models], len(models[0].found) - 1
        total, usual = sum(own), len(own) * self.variance
        freedom = each * (total / max(own) if total else len(own))
        others_say_more = self.freedom > each * len(own)
        if others_say_more and total <= (2 - CLEARLY / each) * usual:
            freedom = self.freedom
        return max(total, usual), freedom


class Uncertainty(NamedTuple):
    """The parts of the variance of a score, or of a difference of two scores."""

    examples: float  # of the mean over seeds
    both: float = 0.0  # for one seed, like `seeds`
    seeds: float = 0.0
    freedom: float = 1.0  # of `seeds`
    most: float = math.inf  # the largest possible `seeds`
    num_seeds: int = 1  # per model

    @classmethod
    def of(cls, models: Sequence[ModelScores], examples: np.ndarray, pool: SeedSpread) -> "Uncertainty":
        """Return the parts for models whose score, or difference, was `examples` [R] in the resamples."""
        varying, count = [one for one in models if one.vary], len(models[0].found)
        if not varying:
            return cls(float(examples.var()), num_seeds=count)
        both, (seeds, freedom) = sum(one.of_both for one in varying), pool.of(varying)
        return cls(float(examples.var()), both, seeds, freedom, len(varying) * pool.most, count)

    @property
    def variance(self) -> float:
        """The total variance, as estimated."""
        return self.examples + max(0.0, self.seeds - self.both) / self.num_seeds

    def possible(self) -> tuple[np.ndarray, np.ndarray]:
        """Return total variances that are possible, and their probabilities."""
        if not self.seeds:
            return np.array([self.examples]), np.ones(1)
        spread, weights = chi_squared_nodes(self.freedom)
        seeds = np.clip(self.seeds * spread, self.both, max(self.most, self.seeds, self.both))
        return self.examples + (seeds - self.both) / self.num_seeds, weights

    def outside(self, reach: float, least: float = 0.0) -> float:
        """Return the probability of an error larger than `reach`, up or down; the variance is at least `least`."""
        variances, weights = self.possible()
        deviations = np.sqrt(np.maximum(variances, least) * 2)
        ratios = np.divide(reach, deviations, out=np.full_like(deviations, math.inf), where=deviations != 0)
        return float(weights @ [math.erfc(ratio) for ratio in ratios]) if reach > 0 else 1.0

    def projected(self, *, more_seeds: int = 0, rows: float = 1.0) -> "Uncertainty":
        """Return the uncertainty with more seeds and `rows` times the rows, if both vary like the existing ones."""
        before, after = self.num_seeds, self.num_seeds + more_seeds
        examples = max(self.examples - self.both * (1 / before - 1 / after), self.examples * before / after) / rows
        both = self.both / rows
        seeds = max(0.0, self.seeds - self.both) + min(self.seeds, self.both) / rows  # other rows change no training
        freedom = self.freedom * (after - 1) / max(1, before - 1)
        return Uncertainty(examples, both, seeds, freedom, self.most, after)

    def reach(self, level: float) -> float:
        """Return the half width of the confidence interval."""
        low, high = 0.0, math.sqrt(self.variance)
        while high and self.outside(high) > 1 - level:
            low, high = high, high * 2
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self.outside(middle) > 1 - level else (low, middle)
        return high


class Estimate(NamedTuple):
    """A number and its uncertainty."""

    value: float
    uncertainty: Uncertainty

    @property
    def low(self) -> float:
        """The lower end of its interval."""
        return self.value - self.uncertainty.reach(LEVEL)

    @property
    def high(self) -> float:
        """The upper end of its interval."""
        return self.value + self.uncertainty.reach(LEVEL)

    def p(self) -> float:
        """Return the p-value for a true value of zero."""
        return self.uncertainty.outside(abs(self.value))

    def p_equal(self, margin: "Margin") -> float:
        """Return the p-value for a true value of at least the margin, up or down: two one-sided tests."""
        if not max(self.uncertainty.variance, margin.variance):
            return 1.0  # the same score in every resample says nothing about other examples
        room = margin.value - abs(self.value)
        outside = self.uncertainty.outside(abs(room), margin.variance) / 2
        return outside if room > 0 else 1 - outside


class Margin(NamedTuple):
    """A difference that counts as equal, and the least variance of a measured difference whose true value is that.

    Two models that differ by a share m of their right answers disagree on at least that share of the rows, so the
    variance of their measured difference is at least m (1 - m) / N. On few rows, or near 100 %, they may agree on all
    rows by chance; then the resamples have no variance, and equality would look certain.
    """

    value: float
    variance: float = 0.0  # unknown for metrics without a range

    @classmethod
    def of_share(cls, value: float, rows: int, whole: float = 1.0) -> "Margin":
        """Return the margin of a metric between 0 and `whole` on so many rows.

        >>> Margin.of_share(0.01, 99), Margin.of_share(1.0, 99, 100.0)
        (Margin(value=0.01, variance=0.0001), Margin(value=1.0, variance=1.0))
        """
        return cls(value, max(0.0, value * (whole - value)) / rows)

    def with_rows(self, times: float) -> "Margin":
        """Return the margin for `times` as many rows."""
        return Margin(self.value, self.variance / times)


def resampled(tables: Sequence[np.ndarray], measure: Measure, *, resamples: int = RESAMPLES) -> list[ModelScores]:
    """Compute the scores of models with statistics [K,N,S]; a resample draws the same examples for all of them."""
    rows, draws = tables[0].shape[1], np.random.Generator(np.random.PCG64(0))
    sums: list[list[np.ndarray]] = [[] for _ in tables]  # for each model, blocks of [r,K,S]
    for start in range(0, resamples, block := max(1, CELLS // max(1, rows))):
        # [R,N] how often each of N rows was drawn when N are drawn with replacement
        drawn = (
            np.bincount(draws.integers(0, rows, rows), minlength=rows) for _ in range(min(block, resamples - start))
        )
        counts = np.stack(list(drawn)).astype(np.float64)
        for table, into in zip(tables, sums, strict=True):
            into.append(np.einsum("rn,kns->rks", counts, table, optimize=True))
    return [
        ModelScores(measure(table.sum(axis=1)), measure(np.concatenate(into)))
        for table, into in zip(tables, sums, strict=True)
    ]


def estimate(scores: ModelScores, pool: SeedSpread) -> Estimate:
    """Return the score of a model with its uncertainty over seeds and examples."""
    return Estimate(scores.mean, Uncertainty.of([scores], scores.drawn.mean(axis=1), pool))


def difference(one: ModelScores, other: ModelScores, pool: SeedSpread) -> Estimate:
    """Return the first score minus the second; both must have been resampled together."""
    examples = one.drawn.mean(axis=1) - other.drawn.mean(axis=1)
    return Estimate(one.mean - other.mean, Uncertainty.of([one, other], examples, pool))


@lru_cache(maxsize=4096)
def chi_squared_nodes(freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """Return values of `freedom` / chi^2, from small to large, and their probabilities.

    With freedom / chi^2 = e^x, the density of x is exp(-freedom (x + e^-x) / 2); nodes are closer where it is high.

    >>> values, weights = chi_squared_nodes(5.0)
    >>> round(float(weights @ values), 3)  # f / (f - 2)
    1.667
    """
    width = math.sqrt(2 / freedom)
    nodes = np.linspace(math.asinh(-min(9.0, 6 / width)), math.asinh(41 / freedom / width + 9), NODES)
    x = width * np.sinh(nodes)
    weights = np.exp(-freedom / 2 * (x + np.exp(-x) - 1)) * np.cosh(nodes)
    return np.exp(x), weights / weights.sum()


SHUFFLES = 2000
MOST_MORE = 10  # additional seeds that a projection tries
MORE_ROWS = tuple(1.1**power for power in range(1, 49))  # times the rows, up to 97


def randomization(
    one: np.ndarray, other: np.ndarray, measure: Measure, *, shuffles: int = SHUFFLES, seed: int = 0
) -> float:
    """Return the p-value of approximate randomization: each example's predictions [K,N,S] are swapped by a coin flip.

    >>> same = np.ones((1, 9, 1))
    >>> randomization(same, same, lambda sums: sums[..., 0])
    1.0
    """
    pairs = min(len(one), len(other))
    one, other = one[:pairs], other[:pairs]
    observed = abs(float(_mean_difference(one.sum(axis=1), other.sum(axis=1), measure)))
    draws, rows, reached = np.random.Generator(np.random.PCG64(seed)), one.shape[1], 0
    total, apart = one.sum(axis=1) + other.sum(axis=1), one - other
    for start in range(0, shuffles, block := max(1, CELLS // max(1, rows))):
        signs = draws.integers(0, 2, (min(block, shuffles - start), rows)) * 2.0 - 1.0
        moved = np.einsum("rn,kns->rks", signs, apart, optimize=True)
        found = _mean_difference((total + moved) / 2, (total - moved) / 2, measure)
        reached += int(np.sum(np.abs(found) >= observed - 1e-12 * max(1.0, observed)))
    return (reached + 1) / (shuffles + 1)


def _mean_difference(one: np.ndarray, other: np.ndarray, measure: Measure) -> np.ndarray:
    """Return the difference of the scores from summed statistics [...,K,S], the mean over pairs of seeds."""
    return np.asarray((measure(one) - measure(other)).mean(axis=-1))


def mcnemar(one: np.ndarray, other: np.ndarray) -> float:
    """Return McNemar's exact p-value of right (1) and wrong (0) predictions [N] on the same examples, one seed each.

    >>> mcnemar(np.array([1.0] * 6), np.array([0.0] * 6))
    0.03125
    """
    better, worse = int(np.sum(one > other)), int(np.sum(one < other))
    fewer = sum(math.comb(better + worse, k) for k in range(min(better, worse) + 1))
    return min(1.0, float(2 * fewer / 2 ** (better + worse)))


def holm(values: Sequence[float]) -> list[float]:
    """Return adjusted p-values: the smallest times their number, the next times one less, and so on, never decreasing.

    An unknown one (NaN) counts as 1.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    values = [1.0 if math.isnan(value) else value for value in values]
    adjusted, least = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=lambda at: values[at])):
        least = max(least, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = least
    return adjusted


class PairDecision(NamedTuple):
    """Two p-values of a pair, corrected for all pairs: for no difference, and for one of at least the margin."""

    p_different: float
    p_equal: float


def decide(found: Sequence[Estimate], shuffled: Sequence[float], margin: Margin) -> list[PairDecision]:
    """Test every pair both ways; `shuffled` contains the p-values of `randomization` for the pairs."""
    different = holm([max(one.p(), p) for one, p in zip(found, shuffled, strict=True)])
    return list(map(PairDecision, different, holm([one.p_equal(margin) for one in found])))


class Needed(NamedTuple):
    """What would decide a pair, if its difference and all variances stay the same; None where the limit is too low."""

    more_seeds: int | None  # per model, with the rows that are there
    rows: float | None  # times the rows, with the seeds that are there


def needed(found: Sequence[Estimate], shuffled: Sequence[float], margin: Margin, alpha: float) -> list[Needed]:
    """Project for each pair the fewest additional seeds, and the fewest rows, that would decide it."""
    fewest = [Needed(None, None)] * len(found)

    def decided(more_seeds: int, times: float) -> list[bool]:
        then = [Estimate(one.value, one.uncertainty.projected(more_seeds=more_seeds, rows=times)) for one in found]
        fewer = list(map(_shuffled_then, found, then, shuffled))
        return [min(one) < alpha for one in decide(then, fewer, margin.with_rows(times))]

    for more in range(1, MOST_MORE + 1):
        now = decided(more, 1.0)
        fewest = [
            one._replace(more_seeds=more) if one.more_seeds is None and yes else one
            for one, yes in zip(fewest, now, strict=True)
        ]
    for times in MORE_ROWS:
        now = decided(0, times)
        fewest = [
            one._replace(rows=times) if one.rows is None and yes else one for one, yes in zip(fewest, now, strict=True)
        ]
    return fewest


def _shuffled_then(now: Estimate, then: Estimate, p: float) -> float:
    """Return the p-value of `randomization` with more seeds or rows: the mean varies less."""
    before, after = now.uncertainty.examples, then.uncertainty.examples
    if p >= 1.0 or after == 0.0:
        return p
    normal = NormalDist()
    return 2 * normal.cdf(normal.inv_cdf(p / 2) * math.sqrt(before / after))


TOGETHER = 64  # examples per block: each is scored with zeros for all others


class Tables(NamedTuple):
    """Tables [K,N,W] of each model: seeds, examples, and the numbers that are summed for `measure`."""

    of: dict[str, np.ndarray]
    measure: Measure

    @property
    def is_mean(self) -> bool:
        """Whether the metric is the mean of a score per example."""
        return self.measure is _mean

    @classmethod
    def made(cls, task: "Task", judged: Mapping[str, list[np.ndarray]]) -> "Tables":
        """Build the tables from the statistics [N,S] of each run."""
        name = task.metric.name

        def measure(sums: np.ndarray) -> np.ndarray:
            return np.asarray(task.measure(sums)[name])

        means = {
            model: np.stack([np.concatenate([measure(block) for block in added(task, rows)]) for rows in runs])
            for model, runs in judged.items()
        }  # [K,N] the score of each example
        sums = {model: np.stack([task.summed(rows) for rows in runs]) for model, runs in judged.items()}
        if all(
            np.isfinite(each).all() and np.allclose(each.mean(axis=1), measure(sums[model]), rtol=1e-9, atol=1e-12)
            for model, each in means.items()
        ):
            return cls({model: np.stack([each, np.ones_like(each)], axis=-1) for model, each in means.items()}, _mean)
        whole = {
            model: np.stack([np.concatenate([*added(task, rows)]) for rows in runs]) for model, runs in judged.items()
        }
        return cls(whole, measure)


def added(task: "Task", rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield blocks [n,W] of what each example [N,S] adds to the sums, with a place for every label of the task."""
    for start in range(0, len(rows), TOGETHER):
        block = rows[start : start + TOGETHER]
        yield task.summed(block, np.eye(len(block)))


def _mean(sums: np.ndarray) -> np.ndarray:
    return np.asarray(sums[..., 0] / sums[..., 1])
