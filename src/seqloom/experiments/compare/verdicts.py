"""From the evaluated runs of all models to a comparison: scores with intervals, and a test for every pair.

A difference is significant only in both tests: the hierarchical bootstrap, which includes seeds, and approximate
randomization, which is valid for metrics that are not means, such as BLEU and F1. With one seed per model there is no
verdict.

Models that have seen the answers score too high. So rows that are also in the training set, exactly or nearly, are
counted and reported.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec
import numpy as np

from seqloom.config.data import DataConfig, SplitName
from seqloom.data.checks.duplicates import DuplicateSearch
from seqloom.data.dataset import open_data, open_without_test
from seqloom.data.prepared import NoChecks
from seqloom.data.problems import Ledger
from seqloom.data.survey import Survey
from seqloom.errors import DataError
from seqloom.experiments.compare.results import ALPHA, Binned, Comparison, Interval, LeakCount, ModelResult, PairResult
from seqloom.experiments.compare.runs import RunEvaluation
from seqloom.experiments.compare.statistics import (
    LEVEL,
    Estimate,
    Margin,
    Measure,
    ModelScores,
    Needed,
    PairDecision,
    SeedSpread,
    Tables,
    decide,
    difference,
    estimate,
    mcnemar,
    needed,
    randomization,
    resampled,
)
from seqloom.metrics.bootstrap import SHARES, rule_of_three
from seqloom.tasks.task import Task

WHOLES = {**dict.fromkeys(SHARES, 1.0), **dict.fromkeys(("bleu", "bleu_tokenized", "chrf"), 100.0)}  # highest values
BINS = 5  # of lengths, of about as many examples each
BIN_RESAMPLES = 200


class ComparedScores:
    """The statistics [K,N,S] of all models on the same examples, and the scores computed from them."""

    def __init__(
        self, evaluated: Mapping[str, Sequence[RunEvaluation]], task: Task, margin: float | None = None
    ) -> None:
        first, *others = [one for runs in evaluated.values() for one in runs]
        for one in others:
            if not np.array_equal(one.ids, first.ids):
                raise DataError(
                    f"{one.facts.model} and {first.facts.model} were evaluated on different rows",
                    fix="start a new comparison with another --out",
                )
        self.evaluated, self.task = evaluated, task
        self.ids = first.ids
        made = Tables.made(task, {name: [one.statistics for one in runs] for name, runs in evaluated.items()})
        self.tables, self.measure, self._is_mean = made.of, made.measure, made.is_mean
        found = resampled(list(self.tables.values()), self.measure)
        self.scores: dict[str, ModelScores] = dict(zip(self.tables, found, strict=True))
        self.pool = SeedSpread.pooled(found, largest_variance(task.metric.name))
        sign = -1.0 if task.metric.higher_is_better else 1.0
        means = {name: one.mean for name, one in self.scores.items()}
        self.order = sorted(self.tables, key=lambda name: (math.isnan(means[name]), sign * means[name]))
        best = self.scores[self.order[0]].mean
        size = default_margin(task.metric.name, best) if margin is None else margin
        self.whole = WHOLES.get(task.metric.name, math.inf)
        self.margin = Margin(size) if math.isinf(self.whole) else Margin.of_share(size, len(self.ids), self.whole)

    def comparison(self, lengths: np.ndarray, **facts: object) -> Comparison:
        """The comparison of all models, the best first; `lengths` [N] are those of the evaluated inputs."""
        order = self.order
        tables = [self.tables[name] for name in order]
        return Comparison(
            task=self.task.name,
            metric=self.task.metric.name,
            higher_is_better=self.task.metric.higher_is_better,
            rows=len(self.ids),
            margin=self.margin.value,
            mean_length=float(lengths.mean()),
            models=tuple(self._model(name) for name in order),
            pairs=self._pairs(order),
            lengths=by_length(tables, lengths, self.measure, self.pool.most),
            **facts,  # type: ignore[arg-type]
        )

    def interval(self, name: str) -> Interval:
        """The score of a model with its interval."""
        has_negative = self.task.metric.higher_is_better and math.isinf(self.whole)  # as R2; errors have none
        return self._interval(estimate(self.scores[name], self.pool), -math.inf if has_negative else 0.0)

    def difference(self, one: str, other: str) -> Estimate:
        """By how much the score of the first model is above that of the second, on the same examples."""
        return difference(self.scores[one], self.scores[other], self.pool)

    def _model(self, name: str) -> ModelResult:
        runs = [one.facts for one in self.evaluated[name]]
        known = {key: [one.metrics[key] for one in runs] for key in runs[0].metrics}
        means = {
            key: float(np.mean([v for v in values if v is not None]))
            for key, values in known.items()
            if any(v is not None for v in values)
        }
        return ModelResult(
            name=name,
            score=self.interval(name),
            seeds=tuple(self.scores[name].found.tolist()),
            metrics=means,
            parameters=runs[0].parameters,
            tokens=int(np.median([one.tokens for one in runs])),
            seconds=float(np.median([one.seconds for one in runs])),
            jobs=max(one.jobs for one in runs),
            diverged=sum(one.end_reason == "not-finite" for one in runs),
        )

    def _pairs(self, order: Sequence[str]) -> tuple[PairResult, ...]:
        names = list(combinations(order, 2))
        found = [self.difference(one, other) for one, other in names]
        shuffled = [randomization(self.tables[one], self.tables[other], self.measure) for one, other in names]
        pairs = [
            PairResult(
                one=one,
                other=other,
                difference=self._interval(each, -self.whole),
                p_examples=p,
                p_mcnemar=self._mcnemar(one, other),
            )
            for (one, other), each, p in zip(names, found, shuffled, strict=True)
        ]
        if any(len(runs) < 2 for runs in self.evaluated.values()):
            return tuple(pairs)
        decisions = decide(found, shuffled, self.margin)
        would = needed(found, shuffled, self.margin, ALPHA)
        return tuple(map(self._decided, pairs, found, decisions, would))

    def _decided(self, pair: PairResult, found: Estimate, decision: PairDecision, would: Needed) -> PairResult:
        """Return the pair with its verdict."""
        known = msgspec.structs.replace(pair, p=found.p(), p_adjusted=decision.p_different, p_equal=decision.p_equal)
        if decision.p_different < ALPHA:
            better = (found.value > 0) == self.task.metric.higher_is_better
            return msgspec.structs.replace(known, verdict="better" if better else "worse")
        if decision.p_equal < ALPHA:
            return msgspec.structs.replace(known, verdict="equal")
        rows = None if would.rows is None else _rounded_up(would.rows * len(self.ids))
        return msgspec.structs.replace(known, verdict="undecided", more_seeds=would.more_seeds, rows_needed=rows)

    def _interval(self, found: Estimate, least: float) -> Interval:
        """The interval of a score or a difference, clipped to the range of the metric."""
        is_certain = self.task.metric.name in SHARES and found.low == found.high
        more = rule_of_three(len(self.ids), LEVEL) if is_certain else 0.0
        return Interval(found.value, max(least, found.low - more), min(self.whole, found.high + more))

    def _mcnemar(self, one: str, other: str) -> float | None:
        """McNemar's p if the metric is the share of right predictions, else None."""
        first, second = (self.measure(self.tables[name][0]) for name in (one, other))
        graded = not np.isin(np.concatenate([first, second]), [0.0, 1.0]).all()
        return None if graded or not self._is_mean else mcnemar(first, second)


def default_margin(metric: str, best: float) -> float:
    """Return the difference that counts as equal: 1 point of a share or of BLEU, else 1 % of the best score.

    >>> default_margin("accuracy", 0.9), default_margin("bleu", 35.0), default_margin("perplexity", 120.0)
    (0.01, 1.0, 1.2)
    """
    return WHOLES.get(metric, abs(best)) / 100


def largest_variance(metric: str) -> float:
    """Return the largest variance between seeds that is assumed: that of scores anywhere in their range.

    >>> round(largest_variance("accuracy"), 4), round(largest_variance("bleu"), 1), largest_variance("loss")
    (0.0833, 833.3, inf)
    """
    return WHOLES.get(metric, math.inf) ** 2 / 12


def _rounded_up(rows: float) -> int:
    """Return a number of rows with two significant digits: it is an estimate.

    >>> _rounded_up(1234.5), _rounded_up(87.0)
    (1300, 87)
    """
    unit = 10 ** max(0, math.floor(math.log10(rows)) - 1)
    return int(math.ceil(rows / unit) * unit)


def by_length(
    tables: Sequence[np.ndarray], lengths: np.ndarray, measure: Measure, most: float = math.inf
) -> tuple[Binned, ...]:
    """The scores of the models' statistics [K,N,S] in bins of the lengths [N]; none if all inputs are equally long."""
    cuts = np.unique(np.quantile(lengths, np.linspace(0, 1, BINS + 1)[1:-1], method="inverted_cdf"))
    places = np.searchsorted(cuts, lengths, side="left")  # a length equal to a cut belongs to the lower bin
    bins = [np.flatnonzero(places == place) for place in np.unique(places)]
    made = []
    for rows in bins if len(bins) > 1 else ():
        scores = resampled([table[:, rows] for table in tables], measure, resamples=BIN_RESAMPLES)
        pool = SeedSpread.pooled(scores, most)
        found = [estimate(one, pool) for one in scores]
        values, intervals = tuple(one.value for one in found), tuple((one.low, one.high) for one in found)
        made.append(Binned(int(lengths[rows].min()), int(lengths[rows].max()), len(rows), values, intervals))
    return tuple(made)


def count_leaks(data: DataConfig, part: SplitName) -> LeakCount | None:
    """How many rows of a set are also in the training set; None if a set is missing."""
    ledger = Ledger.of(data)
    dataset = open_data(data, ledger) if part == "test" else open_without_test(data, ledger)
    search = DuplicateSearch(dataset.schema.input)
    for seen, examples in Survey(dataset, ledger, NoChecks()).blocks():
        if seen in ("train", part):
            search.update(seen, examples)
    for leak in search.finish().between:
        samples = tuple(twins.texts for twins in leak.samples)
        return LeakCount(
            split=part, rows=leak.rows, exact=leak.exact, near=leak.near, compared=leak.compared, samples=samples
        )
    return None
