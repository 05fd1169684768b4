"""What came out of a comparison: a frozen value that programs read, and how it is shown.

Words, tables and pictures say which model wins and by how much, or that no difference is shown, and what else to know.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np

from seqloom.report.document import Aside, Bullets, Callout, Document, Heading, Pictures, Shown, TableBlock, TableCell
from seqloom.report.excerpts import excerpt
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.points import Points
from seqloom.report.numbers import counted, duration, estimate, interval, number, probability, signed, size

ALPHA = 0.05  # of decisions, after Holm's correction

Verdict = Literal["better", "worse", "undecided", "no difference shown", "no verdict"]


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


class Binned(msgspec.Struct, frozen=True):
    """The examples of one bin of lengths, and the score of each model on them, in the order of the models."""

    low: int  # the shortest and the longest input, in symbols
    high: int
    rows: int
    scores: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]

    @property
    def middle(self) -> float:
        """Where the bin stands on an axis of lengths."""
        return (self.low + self.high) / 2


class LeakCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many judged rows are in the training part."""

    part: str
    rows: int
    exact: int
    near: int  # besides the exact ones, among those that were compared
    compared: int
    samples: tuple[tuple[str, str], ...] = ()  # a training row, and the judged one that is like it

    def said(self) -> str:
        """The count in words.

        >>> LeakCount(part="dev", rows=100, exact=2, near=0, compared=100).said()
        '2 of 100 dev rows are in the training part, and none nearly are'
        """
        exact = f"{self.exact:,}" if self.exact else "None"
        near = f"{self.near:,} of the {self.compared:,} that were compared" if self.near else "none"
        first, second = ("is" if count == 1 else "are" for count in (self.exact, self.near))
        return f"{exact} of {self.rows:,} {self.part} rows {first} in the training part, and {near} nearly {second}"


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

    def row(self) -> list[TableCell]:
        """It in a table of models."""
        row: list[TableCell] = [self.name, self.score.value, interval(self.score.low, self.score.high)]
        row += [self.parameters, duration(self.seconds)]
        if self.cost is not None:
            rate, (median, low, high) = self.cost.throughput, msgspec.structs.astuple(self.cost.latency)
            row.append(f"{duration(median / 1000)} ({duration(low / 1000)} to {duration(high / 1000)})")
            row += [size(self.cost.memory), size(self.cost.disk), estimate(rate.median, (rate.low, rate.high))]
        return [*row, self.symbols, ", ".join(map(number, self.seeds))]


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

    def row(self) -> list[TableCell]:
        """It in a table of pairs; the verdict with what would have been needed for another one."""
        verdict: str = self.verdict
        if self.more_seeds is not None:
            verdict = f"undecided, {_seeds(self.more_seeds)}"
        elif self.detectable is not None:
            verdict = f"{verdict} (from {number(self.detectable)} on)"
        inside = f"{signed(self.difference.low)} to {signed(self.difference.high)}"
        chances = map(probability, (self.p_adjusted, self.p, self.p_examples))
        return [f"{self.one} - {self.other}", signed(self.difference.value), verdict, inside, *chances]


def _seeds(more: int) -> str:
    return f"about {more} more {'seed' if more == 1 else 'seeds'}"


def _listed(names: Sequence[str]) -> str:
    """Names as a sentence has them: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


ONE_SEED = (
    "No verdict from one seed: run with --seeds 3. The intervals are over examples alone; "
    "other seeds may turn the order round."
)
AS_FOUND = "if the difference and the spread of the seeds stay as found"
LONGEST = 160  # characters of a text
MOST_PAIRS, MOST_PICTURES = 15, 2  # in a terminal
TRAINING = "seconds of training"
AT_ONCE = "Up to {:,} runs trained at the same time and shared the machine"
COSTS: dict[str, Callable[[ModelResult], float | None]] = {
    "milliseconds for an answer": lambda one: None if one.cost is None else one.cost.latency.median,
    "MB of memory while answering": lambda one: None if one.cost is None else one.cost.memory / 1e6,
    "MB on disk": lambda one: None if one.cost is None else one.cost.disk / 1e6,
    TRAINING: lambda one: one.seconds,
}


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
            if {pair.one, pair.other} == {one, other}:
                return pair.verdict if pair.one == one else turned.get(pair.verdict, pair.verdict)
        return "no difference shown"

    def _pair(self, one: str, other: str) -> PairResult:
        return next(pair for pair in self.pairs if {pair.one, pair.other} == {one, other})

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
        best = self.models[0]
        if len(self.models) == 1:
            return f"{best.name}: {self._scored(best)}; there is nothing to compare it with."
        if self.seeds == 1:
            return ONE_SEED
        if len(self.rivals) == 1:
            second = self.models[1]
            gap = self._pair(best.name, second.name).difference
            inside = interval(*sorted(map(abs, (gap.low, gap.high))))
            return (
                f"{best.name} wins on {self.part}: {self._scored(best)}, better by {number(abs(gap.value))} "
                f"(95 %: {inside}) than {second.name}, the next."
            )
        said = [*self._undecided(), f"The best found on {self.part} is {best.name} with {self._scored(best)}."]
        if worse := [one.name for one in self.models if one not in self.rivals]:
            said.append(f"{_listed(worse)} {'is' if len(worse) == 1 else 'are'} shown to be worse than {best.name}.")
        cheapest = self.cheapest
        assert cheapest is not None, "there are several seeds"
        cost = f"{cheapest.parameters:,} parameters"
        if cheapest.cost is not None:
            cost = f"{duration(cheapest.cost.latency.median / 1000)} for an answer, {cost}"
        return " ".join([*said, f"The cheapest that is not shown to be worse is {cheapest.name} ({cost})."])

    def _scored(self, model: ModelResult) -> str:
        return f"{self.metric} {number(model.score.value)} (95 %: {interval(model.score.low, model.score.high)})"

    def _undecided(self) -> list[str]:
        """What is known of the best and those that are not shown to be worse than it."""
        best = self.models[0].name
        pairs = {one.name: self._pair(best, one.name) for one in self.rivals[1:]}
        equal = [name for name, pair in pairs.items() if pair.more_seeds is None]
        undecided = [name for name in pairs if name not in equal]
        said = []
        if equal:
            least = max(pair.detectable or 0.0 for pair in pairs.values())
            shown = f"; from {number(least)} on it would have been" if least else ""
            said.append(f"No difference shown between {_listed([best, *equal])}{shown}.")
        if undecided:
            more = _seeds(max(pair.more_seeds or 0 for pair in pairs.values()))
            said.append(f"Undecided between {best} and {_listed(undecided)}: {more} would decide, {AS_FOUND}.")
        return said

    def document(self) -> Document:
        """The sentence, the models, every pair, the pictures, and what people should know."""
        seeds, part = counted(self.seeds, "seed"), "" if self.leak is None else f"in {self.leak.part}"
        setting = f"{self.task} on {self.rows:,} {self.part} rows, {self.budget}, {seeds}; baseline: {self.baseline}"
        measured = ("an answer takes", "memory", "on disk", "answers per second")
        has_costs = all(one.cost is not None for one in self.models)
        heads = ("model", self.metric, "95 %", "parameters", "trained", *(measured if has_costs else ()))
        corrected = (
            f"p (Holm) and the verdict are corrected for {len(self.pairs)} pairs; each interval is that of its pair "
            "alone and may leave out 0 where no difference is shown."
        )
        leaks = () if self.leak is None else self.leak.samples
        return Document(
            excerpt(f"{self.data}: {counted(len(self.models), 'model')}", LONGEST),
            [
                Aside(setting),
                Callout(self.sentence(), "fine" if len(self.rivals) == 1 else "warn"),
                Heading("Models"),
                TableBlock([*heads, "symbols read", "each seed"], [one.row() for one in self.models]),
                Heading("Pairs"),
                self._pairs_table(),
                Aside("" if len(self.pairs) < 2 or self.seeds == 1 else corrected),
                Heading("Pictures"),
                Pictures(self.figures(), MOST_PICTURES),
                Heading("What to know"),
                Bullets(self._notes()),
                Heading("Rows that are in both parts"),
                TableBlock(
                    ("in the training part", part),
                    [[excerpt(text, LONGEST) for text in texts] for texts in leaks],
                    brief=3,
                ),
            ],
        )

    def _pairs_table(self) -> TableBlock:
        heads = ["pair", "difference", "verdict", "95 %, pair alone"]
        heads += ["p (Holm)", "p, seeds and examples", "p, examples"]
        if all(one.p_mcnemar is None for one in self.pairs):
            return TableBlock(heads, [one.row() for one in self.pairs], MOST_PAIRS)
        rows = [[*one.row(), probability(one.p_mcnemar)] for one in self.pairs]
        return TableBlock([*heads, "McNemar, first seeds only"], rows, MOST_PAIRS)

    def _notes(self) -> list[str]:
        """What people should know before they believe the numbers."""
        told = [*self.said]
        if self.seeds == 2:
            told.append("Two seeds tell badly how far seeds lie apart, so the intervals are wide: take three or more.")
        if any(pair.more_seeds is not None for pair in self.pairs):
            told.append(f"How many more seeds would decide is a projection, {AS_FOUND}: differences often shrink.")
        if any(pair.detectable is not None for pair in self.pairs):
            told.append("From ... on: so large a difference would have been shown with these seeds and examples.")
        if (most := max(one.together for one in self.models)) > 1:
            told.append(f"{AT_ONCE.format(most)}: alone, each would have been trained sooner.")
        if self.part == "dev":
            told.append(
                "The dev part also chose the checkpoint of each run; --on-test judges on rows that chose nothing."
            )
        if self.leak is not None:
            told.append(f"{self.leak.said()}.")
        if self.pairs and self.pairs[0].p_mcnemar is not None:
            told.append("McNemar's p is that of the first seed of each model alone: it says nothing about other seeds.")
        return told

    def figures(self) -> list[Figure]:
        """Scores with intervals, quality against each cost that is known, and scores by length."""
        names, scores = [one.name for one in self.models], [one.score.value for one in self.models]
        intervals = [(one.score.low, one.score.high) for one in self.models]
        several = "The mean over seeds; 95 % intervals over seeds and examples."
        note = "One seed; 95 % intervals over examples alone." if self.seeds == 1 else several
        title = f"{self.metric} on {self.part}"
        drawn: list[Figure] = [Bars(title=title, labels=names, values=scores, intervals=intervals, caption=note)]
        filled = "" if self.seeds == 1 else "Filled: no other is both better and cheaper. "
        for cost, of in COSTS.items():
            costs = [of(one) or 0.0 for one in self.models]
            if not all(costs):
                continue
            shared = max(one.together for one in self.models) if cost == TRAINING else 1
            points = Points(
                title=f"{self.metric} against {cost}",
                labels=names,
                x=costs,
                y=scores,
                intervals=intervals,
                marked=None if self.seeds == 1 else pareto_front(costs, scores, self.higher_is_better),
                x_label=cost,
                y_label=self.metric,
                x_axis="log",
                caption=(filled + ("" if shared == 1 else f"{AT_ONCE.format(shared)}.")).rstrip(),
            )
            drawn.append(points)
        if self.lengths:
            middles = [one.middle for one in self.lengths]
            lines = [[one.scores[place] for one in self.lengths] for place in range(len(names))]
            series = [Series(name=name, x=middles, y=line) for name, line in zip(names, lines, strict=True)]
            ranges = ", ".join(f"{one.low:,} to {one.high:,} ({one.rows:,} rows)" for one in self.lengths)
            title, note = f"{self.metric} by length of the input", f"Means over seeds in bins of {ranges}."
            drawn.append(Line(title=title, series=series, x_label="symbols", caption=note))
        return drawn


def pareto_front(costs: list[float], scores: list[float], higher_is_better: bool) -> list[bool]:
    """Whether no other is at least as good in both and better in one.

    >>> pareto_front([1.0, 2.0, 3.0], [0.5, 0.9, 0.8], True)
    [True, True, False]
    """
    worth = [score if higher_is_better else -score for score in scores]
    pairs = list(zip(costs, worth, strict=True))
    return [not any(other != one and other[0] <= one[0] and other[1] >= one[1] for other in pairs) for one in pairs]
