"""What came out of a comparison: a frozen value that the terminal, the page and programs read.

How scores change with the length of the input: bins of about as many examples each.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from seqloom.experiments.compare.leaks import LeakCount
from seqloom.experiments.compare.statistics import Measure, SeedSpread, estimate, resampled
from seqloom.report.document import Document, Shown


class Spread(msgspec.Struct, frozen=True):
    """The median of several measurements, and the middle half of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The quartiles.

        >>> Spread.of([1.0, 2.0, 3.0, 4.0, 5.0])
        Spread(median=3.0, low=2.0, high=4.0)
        """
        low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
        return cls(median, low, high)


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What one model costs."""

    latency: Spread  # milliseconds for an example that comes alone
    throughput: Spread  # examples in a second, 32 at a time
    memory: int  # bytes
    disk: int  # bytes of the model folder


BINS = 5
RESAMPLES = 200


class Binned(msgspec.Struct, frozen=True):
    """The examples of one bin, and the score of each model on them, in the order of the models."""

    low: int  # the shortest and the longest input, in symbols
    high: int
    rows: int
    scores: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]

    @property
    def middle(self) -> float:
        """Where the bin stands on an axis of lengths."""
        return (self.low + self.high) / 2


def by_length(tables: Sequence[np.ndarray], lengths: np.ndarray, measure: Measure) -> tuple[Binned, ...]:
    """The scores of the models' statistics [K,N,S] in bins of the lengths [N]; none if all inputs are equally long."""
    cuts = np.unique(np.quantile(lengths, np.linspace(0, 1, BINS + 1)[1:-1], method="inverted_cdf"))
    places = np.searchsorted(cuts, lengths, side="left")  # a length that is a cut belongs below it
    used = np.unique(places)
    if len(used) < 2:
        return ()
    return tuple(_bin(tables, lengths, measure, np.flatnonzero(places == place)) for place in used)


def _bin(tables: Sequence[np.ndarray], lengths: np.ndarray, measure: Measure, rows: np.ndarray) -> Binned:
    chosen = [table[:, rows] for table in tables]
    scores = resampled(chosen, measure, resamples=RESAMPLES)
    pool = SeedSpread.pooled(scores)
    found = [estimate(one, pool) for one in scores]
    return Binned(
        int(lengths[rows].min()),
        int(lengths[rows].max()),
        len(rows),
        tuple(one.value for one in found),
        tuple((one.low, one.high) for one in found),
    )


ALPHA = 0.05  # of decisions, after Holm's correction

Verdict = Literal["better", "worse", "undecided", "no difference shown", "no verdict"]


class Interval(msgspec.Struct, frozen=True):
    """A value and where it would lie with other seeds and other examples, in 95 of 100 cases; of one seed: examples."""

    value: float
    low: float
    high: float


class ModelResult(msgspec.Struct, frozen=True, kw_only=True):
    """One model: its scores, and what it cost."""

    name: str
    score: Interval  # the mean over seeds
    seeds: tuple[float, ...]  # the score of each
    metrics: dict[str, float]  # all of the task, means over seeds
    parameters: int
    symbols: int  # read in training, median over seeds
    seconds: float  # of training, median over seeds
    together: int = 1  # runs that trained at the same time, the most of any seed
    cost: Cost | None = None


class PairResult(msgspec.Struct, frozen=True, kw_only=True):
    """Two models: the first one's score less the second one's, and whether that is more than chance."""

    one: str
    other: str
    difference: Interval
    p: float | None = None  # over seeds and examples: the hierarchical bootstrap; None with one seed
    p_examples: float  # over examples alone: approximate randomisation
    p_adjusted: float | None = None  # the larger of the two, after Holm's correction over all pairs
    p_mcnemar: float | None  # of the first seed of each alone; None where answers are not right or wrong
    verdict: Verdict = "no verdict"  # which is that of one seed
    more_seeds: int | None = None  # where undecided: about so many more of each model would decide
    detectable: float | None = None  # where no difference is shown: from here on it would have been


class Comparison(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """Models side by side, the best first."""

    data: str
    task: str
    metric: str
    higher_is_better: bool
    part: str
    rows: int
    budget: str
    seeds: int
    baseline: str
    mean_length: float  # of the judged inputs, in symbols
    models: tuple[ModelResult, ...]
    pairs: tuple[PairResult, ...]
    lengths: tuple[Binned, ...] = ()
    leak: LeakCount | None = None
    said: tuple[str, ...] = ()

    def model(self, name: str) -> ModelResult:
        """The result of a model."""
        return next(one for one in self.models if one.name == name)

    def verdict(self, one: str, other: str) -> Verdict:
        """How the first model compares with the second."""
        turned: dict[Verdict, Verdict] = {"better": "worse", "worse": "better"}
        for pair in self.pairs:
            if (pair.one, pair.other) == (one, other):
                return pair.verdict
            if (pair.other, pair.one) == (one, other):
                return turned.get(pair.verdict, pair.verdict)
        return "no difference shown"

    @property
    def rivals(self) -> tuple[ModelResult, ...]:
        """The best model and all that are not shown to be worse than it."""
        best = self.models[0]
        return tuple(one for one in self.models if self.verdict(one.name, best.name) != "worse")

    @property
    def cheapest(self) -> ModelResult | None:
        """Of the best and its rivals the one that answers fastest, unmeasured: the smallest; None with one seed."""
        if self.seeds == 1:
            return None
        return min(self.rivals, key=lambda one: one.parameters if one.cost is None else one.cost.latency.median)

    def sentence(self) -> str:
        """Which wins and by how much, or that no difference is shown; and what is the cheapest that will do."""
        from seqloom.experiments.compare.document import sentence

        return sentence(self)

    def document(self) -> Document:
        """The sentence, the models, every pair, the pictures, and what people should know."""
        from seqloom.experiments.compare.document import comparison_document

        return comparison_document(self)
