"""Attributions in tables: several methods for one prediction, and all predictions by all tokens.

Methods answer different questions, so they may disagree, and the table shows where. Ranks use absolute values, because
two of the methods have no sign. Tau also ranks the many tokens that do not matter, so it is low for two methods that
agree on the few that do; the overlap of the strongest tokens is therefore shown next to it (Neely et al. 2022).

A table has one row per tag, per token of a translation, or per next token. For a translation it is the matrix of source
and target that attention only suggests, and a second matrix has the target tokens decoded so far. Each row has its own
score and completeness. Tokens that a row cannot have read, because they come later, have no value instead of 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from seqloom.errors import ConfigError
from seqloom.inspect.attribution.attribution import (
    UNKNOWN_MARK,
    AttributionView,
    largest_cells,
    part_of,
    span_of,
    unknown_text,
    view_of,
)
from seqloom.inspect.attribution.goals import chosen_goal, every_goal, ground_of
from seqloom.inspect.attribution.methods import METHODS, MethodOptions, method_of, outcome
from seqloom.inspect.faithfulness.explanations import kendall, overlap
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import MEDIUM, SMALL, View, block_means, strongest_in
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.matrix import MOST_CELLS, Matrix
from seqloom.report.numbers import counted, number, share

LARGEST_MAP = 240


@dataclass(frozen=True, kw_only=True)
class AttributionsView(View):
    """Attributions of one prediction by several methods, and their agreement."""

    kind: ClassVar[str] = "attributions"
    answer: str
    views: tuple[AttributionView, ...]
    tau: np.ndarray  # [M,M] Kendall's tau-b of absolute values; NaN where undefined
    overlap: np.ndarray  # [M,M] of the `top` strongest tokens
    top_k: int
    left_out: tuple[str, ...]  # methods that do not apply to this model or input

    def figures(self) -> tuple[Figure, ...]:
        strongest = f"Overlap of the {self.top_k} strongest tokens"
        return (*self._rows(), self._matrix("Kendall's tau", self.tau), self._matrix(strongest, self.overlap))

    def _sentences(self) -> tuple[str, ...]:
        errors = [
            f"{METHODS[view.method].title} {'none' if view.error is None else share(view.error)}" for view in self.views
        ]
        lines = [f"Completeness errors: {', '.join(errors)}. Baseline: {self.views[0].baseline}."]
        if len(self.views) > 1 and np.isfinite(self.tau).all():
            titles = [METHODS[view.method].title for view in self.views]
            pairs = sorted(((a, b) for a in range(len(titles)) for b in range(a)), key=lambda pair: self.tau[pair])
            low, high = (f"{titles[b]} and {titles[a]} ({number(self.tau[a, b])})" for a, b in (pairs[0], pairs[-1]))
            lines.append(f"By Kendall's tau, {high} agree most and {low} least.")
        if self.left_out:
            lines.append(f"Left out, because this model or input does not support them: {', '.join(self.left_out)}.")
        unknown = [unknown_text(part) for part in self.views[0].parts]
        return (*lines, *filter(None, unknown))

    def _rows(self) -> list[Figure]:
        if max(len(part.tokens) for part in self.views[0].parts) <= SMALL and self.views[0].parts[0].shape is None:
            return [figure for view in self.views for figure in view.figures()]
        return [self._map(number) for number in range(len(self.views[0].parts))]

    def _map(self, number: int) -> Figure:
        """One row per method, each scaled by its own largest value."""
        values = [view.parts[number].values for view in self.views]
        across = -(-len(values[0]) // LARGEST_MAP)
        pooled = [strongest_in(each / (np.nanmax(np.abs(each), initial=0.0) or 1.0), across) for each in values]
        names = "; ".join(f"Row {row}: {METHODS[view.method].title}" for row, view in enumerate(self.views))
        name = self.views[0].parts[number].name
        cell = f"; each cell is the strongest of {across} tokens" if across > 1 else ""
        return HeatMap(
            title=f"{self.title}, {name}",
            caption=f"{names}. Values relative to the largest of each method{cell}.",
            values=[row.tolist() for row in pooled],
            x=[float(at) for at in range(0, len(values[0]), across)],
            x_label="token",
            y_label="method",
            value_label="relative to the largest",
        )

    def _matrix(self, title: str, values: np.ndarray) -> Figure:
        names = [METHODS[view.method].title for view in self.views]
        low = min(0.0, float(np.nanmin(values, initial=0.0)))
        return Matrix(title=title, rows=names, columns=names, values=values.tolist(), span=(low, 1.0))


def attributions_compared(
    subject: Subject,
    reading: Reading,
    *,
    methods: Sequence[str] | None = None,
    answer: str | int | None = None,
    against: str | int | None = None,
    at: int | str | None = None,
    baseline: str | None = None,
    words: bool = False,
    top_k: int | None = None,
) -> AttributionsView:
    """Attributions by several methods (by default all that apply to this model) and their agreement.

    `top` is how many of the strongest tokens are compared; by default a tenth, and at least three.
    """
    for name in methods or ():
        method_of(name)
    ground = ground_of(subject, reading, baseline)
    goal = chosen_goal(subject, reading, answer=answer, against=against, at=at)
    views, left_out = [], []
    with subject.work("methods", len(methods or METHODS)) as moved:
        for name in methods or METHODS:
            try:
                views.append(view_of(ground, goal, name, MethodOptions(words=words)))
            except ConfigError:
                if methods:
                    raise
                left_out.append(METHODS[name].title)
            moved(1)
    # [M,N] absolute values of the tokens that every method measured
    values = np.stack([np.concatenate([part.values for part in view.parts]) for view in views])
    sizes: np.ndarray = np.abs(values[:, ~np.isnan(values).any(axis=0)])
    count = min(sizes.shape[1], top_k or max(3, sizes.shape[1] // 10))
    taus = [[kendall(a, b) for b in sizes] for a in sizes]
    return AttributionsView(
        title=f"Attribution of {goal.name} by {counted(len(views), 'method')}",
        answer=goal.name,
        views=tuple(views),
        tau=np.array([[math.nan if tau is None else tau.value for tau in row] for row in taus]),
        overlap=np.array([[overlap(a, b, (count - 0.5) / len(a)) for b in sizes] for a in sizes]),
        top_k=count,
        left_out=tuple(left_out),
    )


LARGEST_PICTURE = 256
STRONGEST = 16
USUAL_CELLS = 2**14  # answers x tokens of integrated gradients, if `rows` is not given


class TablePart(NamedTuple):
    """The tokens of one side, as columns."""

    name: str
    columns: tuple[str, ...]
    values: np.ndarray  # [R,E], NaN for tokens that the row does not read, or that were not measured
    unknown: tuple[int, ...] = ()  # columns whose token the vocabulary lacks

    @property
    def heads(self) -> list[str]:
        """The columns, with unknown tokens marked."""
        return [f"{text}{UNKNOWN_MARK * (at in self.unknown)}" for at, text in enumerate(self.columns)]


@dataclass(frozen=True, kw_only=True)
class AttributionTableView(View):
    """How much each token contributes to each prediction, by one method."""

    kind: ClassVar[str] = "attribution_table"
    method: str
    baseline: str
    rows: tuple[str, ...]  # the predictions in words
    first_row: int
    score: tuple[float, ...]
    error: tuple[float, ...] | None  # of completeness, per row
    num_answers: int  # of the input; the rows may be a part of them
    parts: tuple[TablePart, ...]

    def figures(self) -> tuple[Figure, ...]:
        found = [figure for part in self.parts for figure in self._figures(part)]
        large = max(len(self.rows), *(len(part.columns) for part in self.parts)) > SMALL
        return (*found, *([self._strongest()] if large else []))

    def _sentences(self) -> tuple[str, ...]:
        count = counted(len(self.rows), "prediction")
        lines = [f"{METHODS[self.method].title.capitalize()} of {count}; baseline: {self.baseline}."]
        if len(self.rows) < self.num_answers:
            last = self.first_row + len(self.rows)
            lines.append(
                f"Predictions {self.first_row:,} to {last - 1:,} of {self.num_answers:,}; "
                f"use rows=(start, stop) for others."
            )
        if self.error is None:
            lines.append("The values of this method do not sum to the score.")
        else:
            lines.append(
                f"Completeness error of a row: median {share(np.median(self.error))}, maximum {share(max(self.error))}."
            )
        return tuple(lines)

    @property
    def span(self) -> tuple[float, float] | None:
        return span_of([part.values for part in self.parts])

    def _figures(self, part: TablePart) -> list[Figure]:
        title = f"{self.title}: {part.name}" if len(self.parts) > 1 else self.title
        if max(len(self.rows), len(part.columns)) <= SMALL and part.values.size <= MOST_CELLS:
            matrix = Matrix(
                title=title,
                values=part.values.tolist(),
                rows=self.rows,
                columns=part.heads,
                x_label=part.name,
                y_label="answer",
                span=self.span,
            )
            return [matrix]
        down, across = (-(-side // LARGEST_PICTURE) for side in part.values.shape)
        if down == across == 1:
            return [self._map(title, part.values, 1, 1, "")]
        size = f" of {down} x {across} cells"
        return [
            self._map(f"{title}: the strongest", strongest_in(part.values, down, across), down, across, size),
            self._map(f"{title}: the mean", block_means(part.values, (down, across)), down, across, size),
        ]

    def _map(self, title: str, values: np.ndarray, down: int, across: int, size: str) -> Figure:
        return HeatMap(
            title=title,
            values=values.tolist(),
            y=[float(self.first_row + down * at) for at in range(len(values))],
            x=[float(across * at) for at in range(values.shape[1])],
            x_label="token",
            y_label="answer",
            value_label=METHODS[self.method].unit + size,
        )

    def _strongest(self) -> Figure:
        cells = [
            (float(part.values[row, column]), f"{self.rows[row]} from {column}: {part.heads[column]}")
            for part in self.parts
            for row, column in largest_cells(part.values, STRONGEST)
        ]
        chosen = sorted(cells, key=lambda cell: -abs(cell[0]))[:STRONGEST]
        return Bars(
            title="Strongest values",
            labels=[name for _, name in chosen],
            values=[value for value, _ in chosen],
            x_label=METHODS[self.method].unit,
        )


def attribution_table(
    subject: Subject,
    reading: Reading,
    *,
    method: str = "integrated_gradients",
    rows: tuple[int, int] | None = None,
    baseline: str | None = None,
    steps: int | None = None,
    words: bool = False,
) -> AttributionTableView:
    """How much each token contributes to each prediction; `rows` selects those from `rows[0]` to before `rows[1]`.

    Integrated gradients need a backward pass per prediction and step, so predictions x tokens is at most 65,536. By
    default the table has the first rows, up to 16,384 of predictions x tokens.
    """
    method_of(method)
    fitting = max(1, USUAL_CELLS // sum(len(side.tokens) for side in reading.sides))
    if rows is None and method == "integrated_gradients" and fitting < len(reading.rows) <= MEDIUM:
        rows = (0, fitting)  # all rows would take long
    count = len(reading.rows)
    start, stop = rows or (0, count)
    if not 0 <= start < stop <= count:
        raise ConfigError(
            f"the rows {start} to {stop} are not inside the {count:,} predictions",
            fix=f"choose 0 <= start < stop <= {count}",
        )
    if stop - start > MEDIUM:
        raise ConfigError(
            f"a table of {stop - start:,} predictions is too large",
            fix=f"choose at most {MEDIUM} with rows=(start, stop)",
        )
    ground = ground_of(subject, reading, baseline)
    if any(place.shape is not None for place in ground.places):
        raise ConfigError("an image has no tokens", fix="choose attribution with at=")
    goals = every_goal(subject, reading, range(start, stop))
    found = outcome(ground, goals, method, MethodOptions(steps, words))
    parts = list[TablePart]()
    for at, (place, values) in enumerate(zip(ground.places, found.values, strict=True)):
        if reading.targets is not None and at == len(ground.places) - 1:  # the target is read from left to right
            values = np.where(np.arange(values.shape[1]) > np.arange(start, stop)[:, None], np.nan, values)
        each = [part_of(place, row, words=words) for row in values]
        values = np.stack([part.values for part in each])
        parts.append(TablePart(place.side.name, each[0].texts, values, each[0].unknown))
    names = [subject.name(goal.answers[0].column) for goal in goals]
    if len(reading.sides) == 1 and len(reading.rows) > 1:
        names = [f"{name} ({reading.rows[row]})" for row, name in enumerate(names, start)]
    return AttributionTableView(
        title=f"Attribution of each prediction: {METHODS[method].title}",
        method=method,
        baseline=ground.baseline,
        rows=tuple(names),
        first_row=start,
        num_answers=len(reading.rows),
        score=tuple(found.score.tolist()),
        error=None if found.error is None else tuple(found.error.tolist()),
        parts=tuple(parts),
    )
