"""The results of a comparison, and how they are shown: which model is better and by how much, costs and notes."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from seqloom.report.document import (
    Aside,
    Bullets,
    Callout,
    CodeBlock,
    Details,
    Document,
    DocumentBlock,
    Heading,
    Pictures,
    Shown,
    TableBlock,
    TableCell,
)
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.points import Points
from seqloom.report.frames import data_frame
from seqloom.report.labels import excerpt
from seqloom.report.numbers import counted, duration, estimate, interval, number, probability, signed, size

ALPHA = 0.05  # of decisions, after Holm's correction

Verdict = Literal["better", "worse", "equal", "undecided", "no verdict"]


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
    """The costs of inference with one model."""

    latency: Spread  # milliseconds for a single example
    throughput: Spread  # examples per second, in batches of 32
    memory: int  # bytes
    disk: int  # bytes of the model folder

    def to_row(self) -> dict[str, float]:
        """The medians and sizes by name."""
        rates = {"latency": self.latency.median, "throughput": self.throughput.median}
        return {**rates, "memory": self.memory, "disk": self.disk}


class Binned(msgspec.Struct, frozen=True):
    """The examples of one bin of lengths, and the score of each model on them, in the order of the models."""

    low: int  # the shortest and the longest input, in tokens
    high: int
    rows: int
    scores: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2


class LeakCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many evaluated rows are also in the training set."""

    split: str
    rows: int
    exact: int
    near: int  # besides the exact ones, among those that were compared
    compared: int
    samples: tuple[tuple[str, str], ...] = ()  # a training row, and the similar evaluated one

    def text(self) -> str:
        """The count as text.

        >>> LeakCount(split="dev", rows=100, exact=2, near=0, compared=100).text()
        '2 of 100 dev rows are also in the training set; no near duplicates'
        """
        verb, near = "is" if self.exact == 1 else "are", "no near duplicates"
        if self.near:
            near = f"{counted(self.near, 'near duplicate')} among {self.compared:,} compared rows"
        return f"{self.exact:,} of {self.rows:,} {self.split} rows {verb} also in the training set; {near}"


class Interval(msgspec.Struct, frozen=True):
    """A value with its 95% interval over seeds and examples; with one seed, over examples only."""

    value: float
    low: float
    high: float


class ModelResult(msgspec.Struct, frozen=True, kw_only=True):
    """One model: its scores and its costs."""

    name: str
    score: Interval  # the mean over seeds
    seeds: tuple[float, ...]  # the score of each
    metrics: dict[str, float]  # all of the task, means over seeds
    parameters: int
    tokens: int  # read in training, median over seeds
    seconds: float  # of training, median over seeds
    jobs: int = 1  # runs that trained at the same time, the maximum over seeds
    diverged: int = 0  # seeds whose training ended because the loss was not finite
    cost: Cost | None = None

    def price(self) -> float:
        """What a prediction costs: its time, or the number of parameters if that is unknown."""
        return self.parameters if self.cost is None else self.cost.latency.median

    def row(self) -> list[TableCell]:
        row: list[TableCell] = [self.name, self.score.value, interval(self.score.low, self.score.high)]
        row += [self.parameters, duration(self.seconds)]
        if self.cost is not None:
            rate, (median, low, high) = self.cost.throughput, msgspec.structs.astuple(self.cost.latency)
            row.append(f"{duration(median / 1000)} ({duration(low / 1000)} to {duration(high / 1000)})")
            row += [size(self.cost.memory), size(self.cost.disk), estimate(rate.median, (rate.low, rate.high))]
        return [*row, self.tokens, ", ".join(map(number, self.seeds))]


class PairResult(msgspec.Struct, frozen=True, kw_only=True):
    """Two models: the difference of their scores, and whether it is more than chance."""

    one: str
    other: str
    difference: Interval
    p: float | None = None  # over seeds and examples: the hierarchical bootstrap; None with one seed
    p_examples: float  # over examples only: approximate randomization
    p_adjusted: float | None = None  # the larger of the two, after Holm's correction over all pairs
    p_equal: float | None = None  # for a difference of at least the margin, after Holm's correction
    p_mcnemar: float | None  # of the first seeds only; None if predictions are not right or wrong
    verdict: Verdict = "no verdict"  # with one seed
    more_seeds: int | None = None  # if undecided: about how many more seeds per model would decide; None: more than 10
    rows_needed: int | None = None  # if undecided: about how many rows would decide; None: more than 90 times as many

    def row(self, seconds: float) -> list[TableCell]:
        """A row of the table of pairs; `seconds` is the training time of one more seed."""
        verdict: str = self.verdict
        if self.verdict == "undecided" and not self.is_hopeless:
            verdict = f"undecided: {self.needs(seconds)}"
        inside = f"{signed(self.difference.low)} to {signed(self.difference.high)}"
        return [self.names, signed(self.difference.value), verdict, inside, probability(self.p_adjusted)]

    def chances(self) -> list[TableCell]:
        """A row of the table of all p-values."""
        every = (self.p_adjusted, self.p_equal, self.p, self.p_examples, self.p_mcnemar)
        return [self.names, *map(probability, every)]

    @property
    def names(self) -> str:
        """Both models, as the difference of their scores."""
        return f"{self.one} - {self.other}"

    @property
    def is_hopeless(self) -> bool:
        """Whether neither more seeds nor more rows would decide the pair, if it is undecided."""
        return self.more_seeds is None and self.rows_needed is None

    def needs(self, seconds: float) -> str:
        """What would decide the pair, as text."""
        ways = []
        if self.more_seeds is not None:
            seeds = "seed" if self.more_seeds == 1 else "seeds"
            ways.append(f"about {self.more_seeds} more {seeds} ({duration(self.more_seeds * seconds)} of training)")
        if self.rows_needed is not None:
            ways.append(f"about {self.rows_needed:,} rows to evaluate on")
        if not ways:
            return f"{HOPELESS}; with a larger --margin they may be equal"
        return f"{' or '.join(ways)} would decide"


def _listed(names: Sequence[str], word: str = "and") -> str:
    """Names in a sentence: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


HOPELESS = "neither 10 more seeds nor 90 times the rows would decide"
ONE_SEED = (
    "With one seed there is no verdict: use --seeds 3. The intervals are over examples only; with other seeds "
    "the order may change."
)
LONGEST = 160  # characters of a text
MOST_PAIRS, MOST_PICTURES = 15, 2  # in a terminal
MOST_NAMED = 10  # models in `repr`
TRAINING = "seconds of training"
AT_ONCE = "Up to {:,} runs trained at the same time on this machine"
COSTS: dict[str, Callable[[ModelResult], float | None]] = {
    "milliseconds per prediction": lambda one: None if one.cost is None else one.cost.latency.median,
    "MB of memory": lambda one: None if one.cost is None else one.cost.memory / 1e6,
    "MB on disk": lambda one: None if one.cost is None else one.cost.disk / 1e6,
    TRAINING: lambda one: one.seconds,
}


class Comparison(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of several models, the best first."""

    data: str
    task: str
    metric: str
    higher_is_better: bool
    split: str
    rows: int
    budget: str
    seeds: int
    baseline: str
    margin: float  # a smaller difference counts as equal
    mean_length: float  # of the evaluated inputs, in tokens
    models: tuple[ModelResult, ...]
    pairs: tuple[PairResult, ...]
    lengths: tuple[Binned, ...] = ()
    leak: LeakCount | None = None
    messages: tuple[str, ...] = ()
    floor: float | None = None  # the score of a prediction that ignores its input; None: the task has none
    floor_answer: str = ""  # that prediction
    useful_from: float | None = None  # a lower score is useless for any data; None: there is no such limit
    commands: tuple[str, ...] = ()  # for the next steps

    def model(self, name: str) -> ModelResult:
        """The result of a model."""
        return next(one for one in self.models if one.name == name)

    def verdict(self, one: str, other: str) -> Verdict:
        """How the first model compares with the second."""
        turned: dict[Verdict, Verdict] = {"better": "worse", "worse": "better"}
        for pair in self.pairs:
            if {pair.one, pair.other} == {one, other}:
                return pair.verdict if pair.one == one else turned.get(pair.verdict, pair.verdict)
        return "equal"  # a model and itself

    def _pair(self, one: str, other: str) -> PairResult:
        return next(pair for pair in self.pairs if {pair.one, pair.other} == {one, other})

    @property
    def rivals(self) -> tuple[ModelResult, ...]:
        """The best model and all that are not significantly worse."""
        best = self.models[0]
        return tuple(one for one in self.models if self.verdict(one.name, best.name) != "worse")

    def is_useless(self, model: ModelResult) -> bool:
        """Whether the score of a model is useless for any data, or not finite."""
        score = model.score.value
        return not math.isfinite(score) or (self.useful_from is not None and score < self.useful_from)

    def is_constant(self, model: ModelResult) -> bool:
        """Whether a model is not significantly better than a prediction that ignores its input."""
        if self.floor is None:
            return False
        return model.score.low <= self.floor if self.higher_is_better else model.score.high >= self.floor

    def is_at_floor(self, model: ModelResult) -> bool:
        """Whether a model is useless, or not significantly better than a prediction that ignores its input."""
        return self.is_useless(model) or self.is_constant(model)

    @property
    def all_at_floor(self) -> bool:
        """Whether no model has been shown to have learned anything."""
        return all(map(self.is_at_floor, self.models))

    @property
    def sound(self) -> tuple[ModelResult, ...]:
        """The models that may win: above the floor, and trained without divergence; the best first."""
        return tuple(one for one in self.models if not one.diverged and not self.is_at_floor(one))

    @property
    def _near(self) -> tuple[ModelResult, ...]:
        """The best sound model and all that are not significantly worse; their training did not diverge."""
        best = self.sound[0].name
        return tuple(one for one in self.models if not one.diverged and self.verdict(one.name, best) != "worse")

    @property
    def cheapest(self) -> ModelResult | None:
        """The fastest of the best model and all that are not significantly worse, or the smallest if speed is unknown.

        Models at the floor and models whose training diverged do not count. None if no model is left, or with one seed.
        """
        if self.seeds == 1 or not self.sound:
            return None
        return min((one for one in self._near if not self.is_at_floor(one)), key=ModelResult.price)

    @property
    def _equal(self) -> tuple[ModelResult, ...]:
        """The best sound model and all sound models that are equal to it within the margin."""
        return tuple(one for one in self.sound if self.verdict(one.name, self.sound[0].name) == "equal")

    @property
    def _tied(self) -> tuple[ModelResult, ...]:
        """The best sound model and all sound models with exactly its score."""
        return tuple(one for one in self.sound if one.score.value == self.sound[0].score.value)

    @property
    def winner(self) -> ModelResult | None:
        """The model with the best score, or the cheapest one that ties with it or is equal to it within the margin.

        None if every model is at the floor, or its training diverged.
        """
        return min((*self._equal, *self._tied), key=ModelResult.price, default=None)

    @property
    def no_winner(self) -> str:
        """Why there is no winner, without a period."""
        if diverged := [one.name for one in self.models if not self.is_at_floor(one)]:
            more = "" if len(diverged) == len(self.models) else ", and every other model is at the floor"
            return f"the training of {_listed(diverged)} diverged{more}"
        if not any(math.isfinite(one.score.value) for one in self.models):
            return f"no model has a finite {self.metric}"
        if all(map(self.is_useless, self.models)):
            return f"almost no prediction of any model is right ({self._useless()})"
        return f"no model is significantly better than {self._floor()}"

    def _useless(self) -> str:
        assert self.useful_from is not None, "there is a limit"
        return f"{self.metric} below {number(self.useful_from)} on the {self.split} set"

    def _floor(self) -> str:
        assert self.floor is not None, "the floor is known"
        return f"{self.floor_answer} ({self.metric} {number(self.floor)} on the {self.split} set)"

    def why_winner(self) -> str:
        """The rule by which the winner was chosen, as a predicate."""
        among = " of those above the floor" if self.is_at_floor(self.models[0]) else ""
        if any(one.diverged for one in self.rivals):
            among = " of those whose training did not diverge"
        if len(self._equal) > 1 and self.winner in self._equal:
            return f"is the cheapest model{among} that is equal to the best within {number(self.margin)} {self.metric}"
        if others := [one.name for one in self._tied if one != self.winner]:
            return f"ties with {_listed(others)} for the best score{among}, and is the cheapest of them"
        return f"is the best model{among}" if self.seeds > 1 and len(self._near) == 1 else f"has the best score{among}"

    def sentence(self) -> str:
        """Which model wins and why, by how much or what would decide; and which is the cheapest."""
        best, winner = self.models[0], self.winner
        if winner is None:
            why = f"{self.no_winner[0].upper()}{self.no_winner[1:]}."
            return f"{why} The best score is that of {best.name}: {self._scored(best)}."
        if len(self.models) == 1:
            return f"{best.name}: {self._scored(best)} on the {self.split} set; there is no other model."
        parts = [f"{winner.name} {self.why_winner()}: {self._scored(winner)} on the {self.split} set."]
        if winner.score.value != best.score.value:  # equal, but not as cheap; or its training diverged
            diverged = ", whose training diverged" if best.diverged else ""
            parts.append(f"The best score is that of {best.name}{diverged}: {self._scored(best)}.")
        if self.seeds == 1:
            return " ".join([*parts, ONE_SEED])
        if self.rivals == (winner,):
            second = self.models[1]
            gap = self._pair(best.name, second.name).difference
            inside = interval(*sorted(map(abs, (gap.low, gap.high))))
            lead = f"It is better than the next, {second.name}, by {number(abs(gap.value))} (95 %: {inside})."
            return " ".join([*parts, lead])
        if self.cheapest in self.rivals:  # otherwise the training of all rivals diverged
            parts.append(self._cheapest())
        parts += self._undecided()
        if worse := [one.name for one in self.models if one not in self.rivals]:
            parts.append(f"{_listed(worse)} {'is' if len(worse) == 1 else 'are'} significantly worse than {best.name}.")
        return " ".join(parts)

    def _cheapest(self) -> str:
        """Which of the models that are not significantly worse is the cheapest, and its cost."""
        cheapest = self.cheapest
        assert cheapest is not None, "there is a winner"
        cost = f"{cheapest.parameters:,} parameters"
        if cheapest.cost is not None:
            cost = f"{duration(cheapest.cost.latency.median / 1000)} per prediction, {cost}"
        if cheapest == self.winner:
            return f"{cheapest.name} is also the cheapest of those that are not significantly worse ({cost})."
        return f"The cheapest model that is not significantly worse is {cheapest.name} ({cost})."

    def _scored(self, model: ModelResult) -> str:
        return f"{self.metric} {number(model.score.value)} (95%: {interval(model.score.low, model.score.high)})"

    @property
    def seed_seconds(self) -> float:
        """The time to train every model with one more seed."""
        return sum(one.seconds for one in self.models)

    def _undecided(self) -> list[str]:
        """What is known about the best model and its rivals."""
        best = self.models[0].name
        pairs = {one.name: self._pair(best, one.name) for one in self.rivals[1:]}
        said = []
        if equal := [name for name, pair in pairs.items() if pair.verdict == "equal"]:
            said.append(f"{_listed([best, *equal])} are equal within {number(self.margin)} {self.metric}.")
        needs: dict[str, list[str]] = {}  # each is said once, with all models that it is true of
        for name, pair in pairs.items():
            if pair.verdict == "undecided":
                needs.setdefault(pair.needs(self.seed_seconds), []).append(name)
        said += [f"Undecided between {best} and {_listed(names, 'or')}: {needed}." for needed, names in needs.items()]
        return said

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each model, the best first: its score with interval, its metrics and its costs.

        `latency` is in milliseconds, `throughput` in predictions per second, both medians; `memory` and `disk` are in
        bytes. They are missing if they were not measured.
        """
        rows = [
            {
                "model": one.name,
                self.metric: one.score.value,
                "low": one.score.low,
                "high": one.score.high,
                **{name: value for name, value in one.metrics.items() if name != self.metric},
                "parameters": one.parameters,
                "tokens": one.tokens,
                "seconds": one.seconds,
                **({} if one.cost is None else one.cost.to_row()),
            }
            for one in self.models
        ]
        return data_frame(rows)

    def __repr__(self) -> str:
        models = "\n  ".join(f"{one.name}: {self._scored(one)}" for one in self.models[:MOST_NAMED])
        more = f"\n  and {len(self.models) - MOST_NAMED:,} more" if len(self.models) > MOST_NAMED else ""
        return f"Comparison({excerpt(self.data, LONGEST)}, {counted(self.seeds, 'seed')})\n  {models}{more}"

    def document(self) -> Document:
        """The result, the models, every pair, the figures and notes."""
        seeds, part = counted(self.seeds, "seed"), "" if self.leak is None else f"in the {self.leak.split} set"
        setting = (
            f"{self.task}, evaluated on the {self.split} set ({self.rows:,} rows); {self.budget}, {seeds}, "
            f"baseline {self.baseline}, margin {number(self.margin)} {self.metric}"
        )
        measured = ("latency", "memory", "on disk", "predictions per second")
        has_costs = all(one.cost is not None for one in self.models)
        heads = ("model", self.metric, "95% interval", "parameters", "training time", *(measured if has_costs else ()))
        corrected = (
            f"p (Holm) and the verdict are corrected for {len(self.pairs)} comparisons; the intervals are not, so one "
            "may exclude 0 although the verdict is undecided."
        )
        leaks = () if self.leak is None else self.leak.samples
        hopeless = any(one.verdict == "undecided" and one.is_hopeless for one in self.pairs)
        return Document(
            excerpt(f"{self.data}: {counted(len(self.models), 'model')}", LONGEST),
            [
                Aside(setting),
                Callout(self.sentence(), "fine" if self.rivals == (self.winner,) else "warn"),
                Heading("Models"),
                TableBlock([*heads, "tokens read", "score of each seed"], [one.row() for one in self.models]),
                Heading("Pairs"),
                self._pairs_table(),
                Aside("" if len(self.pairs) < 2 or self.seeds == 1 else corrected),
                Aside(f"Undecided without a number: {HOPELESS}." if hopeless else ""),
                Details("All p-values", self._chances() if self.pairs else []),
                Heading("Figures"),
                Pictures(self.figures(), MOST_PICTURES),
                Heading("Notes"),
                Bullets(self._notes()),
                *([Heading("Evaluated rows that are in the training set, or nearly")] if leaks else []),
                TableBlock(
                    ("in the training set", part),
                    [[excerpt(text, LONGEST) for text in texts] for texts in leaks],
                    brief=3,
                ),
                Details("Next steps", [CodeBlock("\n".join(self.commands), "sh")] if self.commands else []),
            ],
        )

    def _pairs_table(self) -> TableBlock:
        heads = ["pair", "difference", "verdict", "95% interval", "p (Holm)"]
        return TableBlock(heads, [one.row(self.seed_seconds) for one in self.pairs], MOST_PAIRS)

    def _chances(self) -> list[DocumentBlock]:
        """The p-values of all tests, for a page."""
        heads = ["pair", "p (Holm)", "p (equal)", "p (seeds and examples)", "p (examples)", "p (McNemar)"]
        return [
            TableBlock(heads, [one.chances() for one in self.pairs]),
            Aside("McNemar's test uses only the first seed of each model."),
        ]

    def _notes(self) -> list[str]:
        notes = [*self.messages]
        if self.floor is not None and not self.all_at_floor:
            low = [one.name for one in self.models if self.is_constant(one)]
            are = f"{_listed(low)} {'is' if len(low) == 1 else 'are'} not" if low else "all models are"
            notes.append(f"Without reading the input: {self._floor()}; {are} significantly better.")
        if self.useful_from is not None and (useless := [one.name for one in self.models if self.is_useless(one)]):
            notes.append(f"Almost no prediction of {_listed(useless)} is right: {self._useless()}.")
        notes += [
            f"{one.name}: training ended early with {counted(one.diverged, 'seed')}, because the loss was not finite."
            for one in self.models
            if one.diverged
        ]
        if self.seeds == 2:
            notes.append(
                "Two seeds give only a rough estimate of the variance between seeds, so the intervals are wide; use "
                "at least three."
            )
        if any(pair.verdict == "undecided" for pair in self.pairs):
            notes.append(
                "The seeds or rows that would decide are estimates, if the difference and the variances stay the same; "
                "differences often shrink."
            )
        if (most := max(one.jobs for one in self.models)) > 1:
            notes.append(f"{AT_ONCE.format(most)}, so training times are longer than for a single run.")
        if self.split == "dev":
            notes.append(
                "The dev set was also used to choose the checkpoint of each run, so scores are slightly optimistic; "
                "use --split test for the final evaluation."
            )
        if self.leak is not None:
            notes.append(f"{self.leak.text()}.")
        return notes

    def figures(self) -> list[Figure]:
        """Scores with intervals, scores against each cost, and scores by length."""
        names, scores = [one.name for one in self.models], [one.score.value for one in self.models]
        intervals = [(one.score.low, one.score.high) for one in self.models]
        several = "Mean over seeds; 95% intervals over seeds and examples."
        note = "One seed; 95% intervals over examples only." if self.seeds == 1 else several
        title = f"{self.metric} on the {self.split} set"
        drawn: list[Figure] = [Bars(title=title, labels=names, values=scores, intervals=intervals, caption=note)]
        filled = "" if self.seeds == 1 else "Filled: no other model is both better and cheaper. "
        for cost, of in COSTS.items():
            costs = [of(one) or 0.0 for one in self.models]
            if not all(costs):
                continue
            shared = max(one.jobs for one in self.models) if cost == TRAINING else 1
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
            title, note = f"{self.metric} by input length", f"Means over seeds; bins: {ranges}."
            drawn.append(Line(title=title, series=series, x_label="tokens", caption=note))
        return drawn


def pareto_front(costs: list[float], scores: list[float], higher_is_better: bool) -> list[bool]:
    """Whether no other model is at least as good in both and better in one.

    >>> pareto_front([1.0, 2.0, 3.0], [0.5, 0.9, 0.8], True)
    [True, True, False]
    """
    worth = [score if higher_is_better else -score for score in scores]
    pairs = list(zip(costs, worth, strict=True))
    return [not any(other != one and other[0] <= one[0] and other[1] >= one[1] for other in pairs) for one in pairs]
