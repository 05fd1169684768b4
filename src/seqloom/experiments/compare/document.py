"""A comparison in words, tables and pictures: which model wins and by how much, and what else to know."""

from collections.abc import Callable, Sequence

from seqloom.experiments.compare.results import Comparison, Interval, ModelResult, PairResult
from seqloom.report.document import Aside, Bullets, Callout, Document, Heading, Pictures, TableBlock, TableCell
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.points import Points
from seqloom.report.labels import excerpt
from seqloom.report.numbers import counted, duration, estimate, interval, number, probability, signed, size

# Pictures of a comparison: scores with intervals, quality against each cost, and scores by length.

TRAINING = "seconds of training"
AT_ONCE = "Up to {:,} runs trained at the same time and shared the machine"
Costing = Callable[[ModelResult], float | None]
COSTS: dict[str, Costing] = {
    "milliseconds for an answer": lambda one: None if one.cost is None else one.cost.latency.median,
    "MB of memory while answering": lambda one: None if one.cost is None else one.cost.memory / 1e6,
    "MB on disk": lambda one: None if one.cost is None else one.cost.disk / 1e6,
    TRAINING: lambda one: one.seconds,
}


def figures_of(found: Comparison) -> list[Figure]:
    """All figures for which there is something to draw."""
    paretos = [_pareto(found, name, cost) for name, cost in COSTS.items() if all(cost(one) for one in found.models)]
    return [_scores(found), *paretos, *_lengths(found)]


def _scores(found: Comparison) -> Figure:
    intervals = [(one.score.low, one.score.high) for one in found.models]
    several = "The mean over seeds; 95 % intervals over seeds and examples."
    note = "One seed; 95 % intervals over examples alone." if found.seeds == 1 else several
    return Bars(
        title=f"{found.metric} on {found.part}",
        labels=[one.name for one in found.models],
        values=[one.score.value for one in found.models],
        intervals=intervals,
        caption=note,
    )


def _pareto(found: Comparison, name: str, cost: Costing) -> Figure:
    """Quality against one cost; a filled point has no other that is both better and cheaper. One seed fills none."""
    costs = [cost(one) or 0.0 for one in found.models]
    shared = max(one.together for one in found.models) if name == TRAINING else 1
    front = pareto_front(costs, [one.score.value for one in found.models], found.higher_is_better)
    filled = "" if found.seeds == 1 else "Filled: no other is both better and cheaper. "
    return Points(
        title=f"{found.metric} against {name}",
        labels=[one.name for one in found.models],
        x=costs,
        y=[one.score.value for one in found.models],
        intervals=[(one.score.low, one.score.high) for one in found.models],
        marked=None if found.seeds == 1 else front,
        x_label=name,
        y_label=found.metric,
        x_axis="log",
        caption=(filled + ("" if shared == 1 else f"{AT_ONCE.format(shared)}.")).rstrip(),
    )


def pareto_front(costs: list[float], scores: list[float], higher_is_better: bool) -> list[bool]:
    """Whether no other is at least as good in both and better in one.

    >>> pareto_front([1.0, 2.0, 3.0], [0.5, 0.9, 0.8], True)
    [True, True, False]
    """
    worth = [score if higher_is_better else -score for score in scores]
    pairs = list(zip(costs, worth, strict=True))
    return [not any(other != one and other[0] <= one[0] and other[1] >= one[1] for other in pairs) for one in pairs]


def _lengths(found: Comparison) -> list[Figure]:
    if not found.lengths:
        return []
    middles = [one.middle for one in found.lengths]
    series = [
        Series(name=model.name, x=middles, y=[one.scores[place] for one in found.lengths])
        for place, model in enumerate(found.models)
    ]
    ranges = ", ".join(f"{one.low:,} to {one.high:,} ({one.rows:,} rows)" for one in found.lengths)
    title = f"{found.metric} by length of the input"
    return [Line(title=title, series=series, x_label="symbols", caption=f"Means over seeds in bins of {ranges}.")]


ONE_SEED = (
    "No verdict from one seed: run with --seeds 3. The intervals are over examples alone; "
    "other seeds may turn the order round."
)
AS_FOUND = "if the difference and the spread of the seeds stay as found"
LONGEST = 160  # characters of a text
MOST_PAIRS, MOST_PICTURES = 15, 2  # in a terminal


def comparison_document(found: Comparison) -> Document:
    """The sentence, the models, every pair, the pictures, and what people should know."""
    rows_in_both = () if found.leak is None else found.leak.samples
    # What was compared, in one line
    seeds = counted(found.seeds, "seed")
    setting = f"{found.task} on {found.rows:,} {found.part} rows, {found.budget}, {seeds}; baseline: {found.baseline}"
    return Document(
        excerpt(f"{found.data}: {counted(len(found.models), 'model')}", LONGEST),
        [
            Aside(setting),
            Callout(sentence(found), "fine" if len(found.rivals) == 1 else "warn"),
            Heading("Models"),
            _models(found),
            Heading("Pairs"),
            _pairs(found),
            Aside(_corrected(found)),
            Heading("Pictures"),
            Pictures(figures_of(found), MOST_PICTURES),
            Heading("What to know"),
            Bullets(_notes(found)),
            Heading("Rows that are in both parts"),
            TableBlock(
                ("in the training part", "" if found.leak is None else f"in {found.leak.part}"),
                [[excerpt(text, LONGEST) for text in texts] for texts in rows_in_both],
                brief=3,
            ),
        ],
    )


def _models(found: Comparison) -> TableBlock:
    heads = ["model", found.metric, "95 %", "parameters", "trained"]
    measured = all(one.cost is not None for one in found.models)
    heads += ["an answer takes", "memory", "on disk", "answers per second"] if measured else []
    return TableBlock([*heads, "symbols read", "each seed"], [_model(one) for one in found.models])


def _model(one: ModelResult) -> list[TableCell]:
    row: list[TableCell] = [one.name, one.score.value, interval(one.score.low, one.score.high), one.parameters]
    row += [duration(one.seconds)]
    if one.cost is not None:
        latency, rate = one.cost.latency, one.cost.throughput
        slow = f"{duration(latency.median / 1000)} ({duration(latency.low / 1000)} to {duration(latency.high / 1000)})"
        row += [slow, size(one.cost.memory), size(one.cost.disk), estimate(rate.median, (rate.low, rate.high))]
    return [*row, one.symbols, ", ".join(map(number, one.seeds))]


def _pairs(found: Comparison) -> TableBlock:
    mcnemar = any(one.p_mcnemar is not None for one in found.pairs)
    heads = ["pair", "difference", "verdict", "95 %, pair alone", "p (Holm)", "p, seeds and examples", "p, examples"]
    rows = [
        [
            f"{one.one} - {one.other}",
            signed(one.difference.value),
            _verdict(one),
            f"{signed(one.difference.low)} to {signed(one.difference.high)}",
            probability(one.p_adjusted),
            probability(one.p),
            probability(one.p_examples),
            *([probability(one.p_mcnemar)] if mcnemar else []),
        ]
        for one in found.pairs
    ]
    return TableBlock([*heads, *(["McNemar, first seeds only"] if mcnemar else [])], rows, MOST_PAIRS)


def _listed(names: Sequence[str]) -> str:
    """Names as a sentence has them: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def sentence(found: Comparison) -> str:
    """Which wins and by how much, or that no difference is shown; and what is the cheapest that will do."""
    if len(found.models) == 1:
        return f"{found.models[0].name}: {_scored(found, found.models[0])}; there is nothing to compare it with."
    if found.seeds == 1:
        return ONE_SEED
    return " ".join(filter(None, [_won(found), _cheapest(found)]))


def _won(found: Comparison) -> str:
    best, rivals = found.models[0], found.rivals
    if len(rivals) == 1:
        second = found.models[1]
        pair = _pair(found, best.name, second.name)
        gap = Interval(abs(pair.difference.value), *sorted(map(abs, (pair.difference.low, pair.difference.high))))
        return (
            f"{best.name} wins on {found.part}: {_scored(found, best)}, better by {number(gap.value)} "
            f"(95 %: {interval(gap.low, gap.high)}) than {second.name}, the next."
        )
    worse = [one.name for one in found.models if one not in rivals]
    beaten = (
        f" {_listed(worse)} {'is' if len(worse) == 1 else 'are'} shown to be worse than {best.name}." if worse else ""
    )
    return f"{_rivals(found)} The best found on {found.part} is {best.name} with {_scored(found, best)}.{beaten}"


def _rivals(found: Comparison) -> str:
    """What is known of the best and those that are not shown to be worse than it."""
    best = found.models[0].name
    pairs = {one.name: _pair(found, best, one.name) for one in found.rivals[1:]}
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
    return " ".join(said)


def _seeds(more: int) -> str:
    return f"about {more} more {'seed' if more == 1 else 'seeds'}"


def _scored(found: Comparison, model: ModelResult) -> str:
    return f"{found.metric} {number(model.score.value)} (95 %: {interval(model.score.low, model.score.high)})"


def _pair(found: Comparison, one: str, other: str) -> PairResult:
    return next(pair for pair in found.pairs if {pair.one, pair.other} == {one, other})


def _cheapest(found: Comparison) -> str:
    cheapest = found.cheapest
    if cheapest is None or len(found.rivals) == 1:
        return ""
    cost = f"{cheapest.parameters:,} parameters"
    if cheapest.cost is not None:
        cost = f"{duration(cheapest.cost.latency.median / 1000)} for an answer, {cost}"
    return f"The cheapest that is not shown to be worse is {cheapest.name} ({cost})."


def _verdict(pair: PairResult) -> str:
    """The verdict of a pair with what would have been needed for another one."""
    if pair.more_seeds is not None:
        return f"undecided, {_seeds(pair.more_seeds)}"
    return pair.verdict if pair.detectable is None else f"{pair.verdict} (from {number(pair.detectable)} on)"


def _notes(found: Comparison) -> list[str]:
    """What people should know before they believe the numbers."""
    told = [*found.said]
    if found.seeds == 2:
        told.append("Two seeds tell badly how far seeds lie apart, so the intervals are wide: take three or more.")
    if any(pair.more_seeds is not None for pair in found.pairs):
        told.append(f"How many more seeds would decide is a projection, {AS_FOUND}: differences often shrink.")
    if any(pair.detectable is not None for pair in found.pairs):
        told.append("From ... on: so large a difference would have been shown with these seeds and examples.")
    if (most := max(one.together for one in found.models)) > 1:
        told.append(f"{AT_ONCE.format(most)}: alone, each would have been trained sooner.")
    if found.part == "dev":
        told.append("The dev part also chose the checkpoint of each run; --on-test judges on rows that chose nothing.")
    if found.leak is not None:
        told.append(f"{found.leak.said()}.")
    if found.pairs and found.pairs[0].p_mcnemar is not None:
        told.append("McNemar's p is that of the first seed of each model alone: it says nothing about other seeds.")
    return told


def _corrected(found: Comparison) -> str:
    """What is to be known beside the table of pairs: what the correction for several of them is in, and what not."""
    if len(found.pairs) < 2 or found.seeds == 1:
        return ""
    return (
        f"p (Holm) and the verdict are corrected for {len(found.pairs)} pairs; each interval is that of its pair alone "
        "and may leave out 0 where no difference is shown."
    )
