"""Pictures of a comparison: scores with intervals, quality against each cost, and scores by length."""

from collections.abc import Callable

from seqloom.experiments.compare.results import Comparison, ModelResult
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.points import Points

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
