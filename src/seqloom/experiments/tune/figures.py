"""Pictures of a tuning: scores by trial, what mattered, and how the scores lie over each parameter."""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

from seqloom.experiments.tune.results import Results, TrialResult
from seqloom.report.figures.axis import brief
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series

MOST_PARAMETERS = 4
QUARTERS = 4


def figures_of(results: Results) -> list[Figure]:
    """The figures for which there are enough trials."""
    return [*_progress(results), *_importances(results), *_slices(results)]


def _progress(results: Results) -> list[Figure]:
    done = sorted(results.done, key=lambda one: one.number)
    if len(done) < 2:
        return []
    numbers, values = [one.number for one in done], [one.value for one in done if one.value is not None]
    best = accumulate(values, lambda a, b: max(a, b) if results.higher_is_better else min(a, b))
    series = [
        Series(name="trial", x=numbers, y=values),
        Series(name="best so far", x=numbers, y=list(best)),
    ]
    note = "Trials that were pruned are left out."
    return [Line(title=f"Dev {results.metric} by trial", series=series, x_label="trial", caption=note)]


def _importances(results: Results) -> list[Figure]:
    if not results.importances:
        return []
    names, shares = list(results.importances), [100 * share for share in results.importances.values()]
    note = f"From {len(results.done)} finished trials; few trials tell little."
    return [Bars(title="What mattered", labels=names, values=shares, x_label="% of the difference", caption=note)]


def _slices(results: Results) -> list[Figure]:
    """The best score for each choice, or in each quarter, of the parameters that mattered most."""
    drawn = [_slice(results, name) for name in list(results.importances)[:MOST_PARAMETERS]]
    return [figure for figure in drawn if figure is not None]


def _slice(results: Results, name: str) -> Figure | None:
    known = [one for one in results.done if name in one.params]
    numbers = [one for one in known if not isinstance(one.params[name], str)]  # "0.2/0.3": of parts that differ
    groups = _grouped(numbers or known, name)
    if len(groups) < 2:
        return None
    better = max if results.higher_is_better else min
    best = [better(one.value for one in group if one.value is not None) for group in groups.values()]
    labels = [f"{label} ({len(group)})" for label, group in groups.items()]
    note = "The best trial of each, and in brackets how many there were."
    return Bars(title=f"{name}: best dev {results.metric}", labels=labels, values=best, caption=note)


def _grouped(trials: Sequence[TrialResult], name: str) -> dict[str, list[TrialResult]]:
    values = [one.params[name] for one in trials]
    if any(isinstance(value, str) for value in values) or len(set(values)) <= QUARTERS:
        choices = sorted(set(values), key=lambda value: (isinstance(value, str), value))
        return {str(choice): [one for one in trials if one.params[name] == choice] for choice in choices}
    return _quarters(trials, name)


def _quarters(trials: Sequence[TrialResult], name: str) -> dict[str, list[TrialResult]]:
    """Trials in four groups of nearly one size, by the number that a parameter had."""
    ranked = sorted(trials, key=lambda one: float(one.params[name]))
    cuts = [math.ceil(quarter * len(ranked) / QUARTERS) for quarter in range(QUARTERS + 1)]
    groups = [ranked[start:end] for start, end in pairwise(cuts) if start < end]
    return {f"{_end(group[0], name)} to {_end(group[-1], name)}": group for group in groups}


def _end(trial: TrialResult, name: str) -> str:
    return brief(float(f"{float(trial.params[name]):.3g}"))
