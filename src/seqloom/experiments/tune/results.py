"""What came out of a tuning: the trials, the best of them, and which parameters mattered.

How much a parameter matters is its share of what sets the best trials apart, five of them or a tenth (PED-ANOVA,
Watanabe et al. 2023), as Optuna computes it from the trials that were not pruned.
"""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Literal

import msgspec

from seqloom.report.document import Aside, Callout, CodeBlock, Details, Document, Heading, Pictures, Shown, TableBlock
from seqloom.report.excerpts import excerpt
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series
from seqloom.report.numbers import duration, number

TrialState = Literal["done", "pruned", "failed", "running", "waiting"]
Parameter = str | int | float
STATES: tuple[TrialState, ...] = ("done", "pruned", "failed", "running", "waiting")
FEWEST = 5  # finished trials before anything is said about what mattered
LONGEST, MOST_ROWS, BRIEF = 120, 500, 8  # characters of a text, trials of a page, and those that are seen first
MOST_PARAMETERS = 4  # that have a picture
QUARTERS = 4


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """One trial."""

    number: int
    state: TrialState
    value: float | None  # the best score on dev; of a pruned trial the best until then
    params: dict[str, Parameter]
    seconds: float
    is_default: bool = False  # the settings that nobody tuned
    host: str = ""
    folder: str = ""
    config: str = ""  # TOML
    problem: str = ""  # why it failed


class Results(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """A study as it stands."""

    study: str
    metric: str
    higher_is_better: bool
    trials: tuple[TrialResult, ...]
    importances: dict[str, float]  # shares that sum to 1; the greatest first; empty while trials are too few

    @property
    def done(self) -> tuple[TrialResult, ...]:
        """The trials that were trained to their end, the best first; of equal ones the earlier."""
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
        """The trial with the settings that nobody tuned."""
        return next((one for one in self.done if one.is_default), None)

    @property
    def verdict(self) -> str:
        """What came out, in one sentence."""
        best, default = self.best, self.default
        if best is None:
            return "No trial is finished yet"
        said = f"Best dev {self.metric} {number(best.value)} in trial {best.number}"
        if best.is_default:
            return f"{said}: the settings that nobody tuned"
        return said if default is None else f"{said}; {number(default.value)} without tuning"

    def document(self) -> Document:
        """The verdict, the trials with the best first, what mattered, and the configuration of the best trial."""
        states = [one.state for one in self.trials]
        counts = ", ".join(f"{states.count(kind):,} {kind}" for kind in STATES if kind in states) or "no trials"
        few = f"What mattered is told from {FEWEST} finished trials on that do not all score the same"
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
                Aside(f"{counts}; every score is one on dev"),
                Callout(self.verdict, "warn" if best is None else "fine"),
                Aside("" if self.importances else few),
                Heading("Trials"),
                TableBlock(heads, rows[:BRIEF]),
                Details(f"All {len(rows):,} trials", [TableBlock(heads, rows)] if len(rows) > BRIEF else []),
                Details(f"The configuration of trial {best.number}" if best else "", config),
                Heading("Pictures"),
                Pictures(self.figures()),
            ],
        )

    def figures(self) -> list[Figure]:
        """Scores by trial, what mattered, and how the scores lie over the parameters that mattered most."""
        drawn = list[Figure]()
        done = sorted(self.done, key=lambda one: one.number)
        if len(done) > 1:
            numbers, values = [one.number for one in done], [one.value for one in done if one.value is not None]
            best = list(accumulate(values, max if self.higher_is_better else min))
            series = [Series(name="trial", x=numbers, y=values), Series(name="best so far", x=numbers, y=best)]
            title, note = f"Dev {self.metric} by trial", "Trials that were pruned are left out."
            drawn.append(Line(title=title, series=series, x_label="trial", caption=note))
        if self.importances:
            names, shares = list(self.importances), [100 * share for share in self.importances.values()]
            unit, note = "% of the difference", f"From {len(self.done)} finished trials; few trials tell little."
            drawn.append(Bars(title="What mattered", labels=names, values=shares, x_label=unit, caption=note))
        return [*drawn, *self._slices()]

    def _slices(self) -> list[Figure]:
        """The best score for each choice, or in each quarter, of the parameters that mattered most."""
        better = max if self.higher_is_better else min
        found: list[Figure] = []
        for name in list(self.importances)[:MOST_PARAMETERS]:
            known = [one for one in self.done if name in one.params]
            numbers = [one for one in known if not isinstance(one.params[name], str)]  # "0.2/0.3": of parts that differ
            groups = _grouped(numbers or known, name)
            if len(groups) > 1:
                best = [better(one.value for one in group if one.value is not None) for group in groups.values()]
                labels = [f"{label} ({len(group)})" for label, group in groups.items()]
                note = "The best trial of each, and in brackets how many there were."
                found.append(Bars(title=f"{name}: best dev {self.metric}", labels=labels, values=best, caption=note))
        return found


def _grouped(trials: Sequence[TrialResult], name: str) -> dict[str, list[TrialResult]]:
    """Trials by the choice that was made for a parameter; of many numbers, four groups of nearly one size."""
    values = [one.params[name] for one in trials]
    if any(isinstance(value, str) for value in values) or len(set(values)) <= QUARTERS:
        choices = sorted(set(values), key=lambda value: (isinstance(value, str), value))
        return {str(choice): [one for one in trials if one.params[name] == choice] for choice in choices}
    ranked = sorted(trials, key=lambda one: float(one.params[name]))
    cuts = [math.ceil(quarter * len(ranked) / QUARTERS) for quarter in range(QUARTERS + 1)]
    groups = [ranked[start:end] for start, end in pairwise(cuts) if start < end]
    ends = [(float(group[0].params[name]), float(group[-1].params[name])) for group in groups]
    return {f"{number(low)} to {number(high)}": group for (low, high), group in zip(ends, groups, strict=True)}
