"""The results of a search: the trials, the best one, and the importance of each parameter.

The importance is computed by Optuna from the trials that were not pruned (PED-ANOVA, Watanabe et al. 2023): how much
each parameter separates the best trials, a tenth of all but at least five, from the others.
"""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal

import msgspec

from seqloom.report.document import Aside, Callout, CodeBlock, Details, Document, Heading, Pictures, Shown, TableBlock
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series
from seqloom.report.frames import data_frame
from seqloom.report.labels import excerpt
from seqloom.report.numbers import counted, duration, number

TrialState = Literal["done", "pruned", "failed", "running", "waiting"]
Parameter = str | int | float
STATES: tuple[TrialState, ...] = ("done", "pruned", "failed", "running", "waiting")
FEWEST = 5  # finished trials that importances need
LONGEST, MOST_ROWS, BRIEF = 120, 500, 8  # characters of a text, trials in the report, and those in the first table
MOST_PARAMETERS = 4  # that have a figure
QUARTERS = 4


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """One trial."""

    number: int
    state: TrialState
    value: float | None  # the best dev score; of a pruned trial, the best before it was pruned
    params: dict[str, Parameter]
    seconds: float
    is_default: bool = False  # the run with default settings
    host: str = ""
    folder: str = ""
    config: str = ""  # TOML
    problem: str = ""  # why it failed


class Results(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """The results so far."""

    study: str
    metric: str
    higher_is_better: bool
    trials: tuple[TrialResult, ...]
    importances: dict[str, float]  # they sum to 1; largest first; empty if there are too few trials

    @property
    def done(self) -> tuple[TrialResult, ...]:
        """The trials that were trained to the end, the best first; of equal ones the earlier."""
        sign = -1 if self.higher_is_better else 1
        known = [
            (sign * one.value, one.number, one) for one in self.trials if one.state == "done" and one.value is not None
        ]
        return tuple(one for *_, one in sorted(known, key=lambda entry: entry[:2]))

    @property
    def best(self) -> TrialResult | None:
        """The best trial, if one is finished."""
        return self.done[0] if self.done else None

    @property
    def default(self) -> TrialResult | None:
        """The trial with default settings."""
        return next((one for one in self.done if one.is_default), None)

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        best, default = self.best, self.default
        if best is None:
            return "No trial has finished yet"
        text = f"Best dev {self.metric}: {number(best.value)} in trial {best.number}"
        if best.is_default:
            return f"{text}, which has the default settings"
        return text if default is None else f"{text}; with default settings it is {number(default.value)}"

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each trial: number, state, dev score, time, and its parameters."""
        rows = [
            {"trial": one.number, "state": one.state, self.metric: one.value, "seconds": one.seconds, **one.params}
            for one in self.trials
        ]
        return data_frame(rows)

    def __repr__(self) -> str:
        return f"Results({excerpt(self.study, LONGEST)}, {counted(len(self.trials), 'trial')})\n  {self.verdict}"

    def document(self) -> Document:
        """The verdict, the trials with the best first, the configuration of the best trial, and figures."""
        states = [one.state for one in self.trials]
        counts = ", ".join(f"{states.count(kind):,} {kind}" for kind in STATES if kind in states) or "no trials"
        few = f"Parameter importances need at least {FEWEST} finished trials with different scores"
        best = self.best
        names = list(dict.fromkeys(name for one in self.trials for name in one.params))
        heads = ["trial", "state", self.metric, "time", *names]
        others = [one for one in self.trials if one not in self.done]
        rows: list[list[str | float | None]] = [
            [
                f"{one.number}{' (default)' if one.is_default else ''}",
                excerpt(f"{one.state}: {one.problem}" if one.problem else one.state, LONGEST),
                one.value,
                duration(one.seconds),
                *(one.params.get(name) for name in names),
            ]
            for one in [*self.done, *others][:MOST_ROWS]
        ]
        config = [] if best is None else [CodeBlock(best.config, "toml")]
        return Document(
            excerpt(f"Tuning {self.study}", LONGEST),
            [
                Aside(f"{counts}; scores are on the dev set"),
                Callout(self.verdict, "warn" if best is None else "fine"),
                Aside("" if self.importances else few),
                Heading("Trials"),
                TableBlock(heads, rows[:BRIEF]),
                Details(f"All {len(rows):,} trials", [TableBlock(heads, rows)] if len(rows) > BRIEF else []),
                Details(f"Configuration of trial {best.number}" if best else "", config),
                Heading("Figures"),
                Pictures(self.figures()),
            ],
        )

    def figures(self) -> list[Figure]:
        """Scores by trial, parameter importances, and scores by the most important parameters."""
        drawn = list[Figure]()
        done = sorted(self.done, key=lambda one: one.number)
        if len(done) > 1:
            numbers, values = [one.number for one in done], [one.value for one in done if one.value is not None]
            best = list(accumulate(values, max if self.higher_is_better else min))
            series = [Series(name="trial", x=numbers, y=values), Series(name="best so far", x=numbers, y=best)]
            title, note = f"Dev {self.metric} by trial", "Without pruned trials."
            drawn.append(Line(title=title, series=series, x_label="trial", caption=note))
        if self.importances:
            names, shares = list(self.importances), [100 * share for share in self.importances.values()]
            unit, note = (
                "importance, %",
                f"From {len(self.done)} finished trials; with few trials it is only a rough guide.",
            )
            drawn.append(Bars(title="Parameter importance", labels=names, values=shares, x_label=unit, caption=note))
        return [*drawn, *self._slices()]

    def _slices(self) -> list[Figure]:
        """The best score for each choice, or in each quarter, of the most important parameters."""
        better = max if self.higher_is_better else min
        found: list[Figure] = []
        for name in list(self.importances)[:MOST_PARAMETERS]:
            known = [one for one in self.done if name in one.params]
            numbers = [
                one for one in known if not isinstance(one.params[name], str)
            ]  # without values such as "0.2/0.3"
            groups = _grouped(numbers or known, name)
            if len(groups) > 1:
                best = [better(one.value for one in group if one.value is not None) for group in groups.values()]
                labels = [f"{label} ({len(group)})" for label, group in groups.items()]
                note = "The best trial of each group; the number of trials in brackets."
                found.append(Bars(title=f"{name}: best dev {self.metric}", labels=labels, values=best, caption=note))
        return found


def _grouped(trials: Sequence[TrialResult], name: str) -> dict[str, list[TrialResult]]:
    """Trials grouped by the value of a parameter; many numbers are put into four groups of equal size."""
    values = [one.params[name] for one in trials]
    if any(isinstance(value, str) for value in values) or len(set(values)) <= QUARTERS:
        choices = sorted(set(values), key=lambda value: (isinstance(value, str), value))
        return {str(choice): [one for one in trials if one.params[name] == choice] for choice in choices}
    ranked = sorted(trials, key=lambda one: float(one.params[name]))
    cuts = [math.ceil(quarter * len(ranked) / QUARTERS) for quarter in range(QUARTERS + 1)]
    groups = [ranked[start:end] for start, end in pairwise(cuts) if start < end]
    ends = [(float(group[0].params[name]), float(group[-1].params[name])) for group in groups]
    return {f"{number(low)} to {number(high)}": group for (low, high), group in zip(ends, groups, strict=True)}
