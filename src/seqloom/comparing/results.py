"""What came out of a comparison: a frozen value that the terminal, the page and programs read."""

from typing import Literal

import msgspec

from seqloom.comparing.costs import Cost
from seqloom.comparing.leaks import LeakCount
from seqloom.comparing.lengths import Binned
from seqloom.training.pages.shown import Shown

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


class Comparison(Shown, frozen=True, kw_only=True):
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
        from seqloom.comparing.words import sentence

        return sentence(self)

    def text(self, width: int = 80, colour: bool = False) -> str:
        """The results for a terminal."""
        from seqloom.comparing.terminal import written

        return written(self, width, colour)

    def html(self) -> str:
        """The results as one self-contained page."""
        from seqloom.comparing.page import comparison_html

        return comparison_html(self)
