"""Every answer by every token: a row for each tag, for each symbol of a translation, for each next symbol.

For a translation this is the matrix of source and target that attention only suggests; what the decoder has written
before stands in a matrix beside it. A row has its own score and its own completeness. What a row cannot have read, for
it comes later, is no zero but no value.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from seqloom.errors import ConfigError
from seqloom.inspect.attribution.attribution import part_of
from seqloom.inspect.attribution.goals import AttributionGround, every_goal, ground_of
from seqloom.inspect.attribution.methods import METHODS, MethodOptions, method_of, outcome
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import MEDIUM, SMALL, View
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.matrix import MOST_CELLS, Matrix
from seqloom.report.numbers import share

LARGEST_PICTURE = 256
STRONGEST = 16
USUAL_CELLS = 2**14  # answers x tokens of integrated gradients, if no rows are asked for


class TablePart(NamedTuple):
    """The tokens of one side as columns."""

    name: str
    columns: tuple[str, ...]
    values: np.ndarray  # [R,E], NaN where a row reads nothing or nothing was measured


@dataclass(frozen=True, kw_only=True)
class AttributionTableView(View):
    """What each token has to do with each answer, by one method."""

    kind: ClassVar[str] = "attribution_table"
    method: str
    baseline: str
    rows: tuple[str, ...]  # the answers in words
    first_row: int
    score: tuple[float, ...]
    error: tuple[float, ...] | None  # of completeness, of each row
    num_answers: int  # of the input, of which the rows are some
    parts: tuple[TablePart, ...]

    def figures(self) -> tuple[Figure, ...]:
        found = [figure for part in self.parts for figure in self._figures(part)]
        large = max(len(self.rows), *(len(part.columns) for part in self.parts)) > SMALL
        return (*found, *([self._strongest()] if large else []))

    def _sentences(self) -> tuple[str, ...]:
        said = [f"{METHODS[self.method].title.capitalize()} of {len(self.rows)} answers; baseline: {self.baseline}."]
        if len(self.rows) < self.num_answers:
            last = self.first_row + len(self.rows)
            said.append(
                f"These are the answers {self.first_row:,} to {last - 1:,} of {self.num_answers:,}: "
                f"rows=(start, stop) shows others."
            )
        if self.error is None:
            said.append("The numbers of this method add up to no score.")
        else:
            said.append(
                f"Completeness error of a row: {share(np.median(self.error))} in the middle, "
                f"{share(max(self.error))} at most."
            )
        return tuple(said)

    @property
    def span(self) -> tuple[float, float] | None:
        """The scale that all parts share."""
        known = np.concatenate([part.values[~np.isnan(part.values)] for part in self.parts])
        return (float(min(known.min(), 0)), float(max(known.max(), 0))) if known.size and known.any() else None

    def _figures(self, part: TablePart) -> list[Figure]:
        title = f"{self.title}: {part.name}" if len(self.parts) > 1 else self.title
        small = max(len(self.rows), len(part.columns)) <= SMALL and part.values.size <= MOST_CELLS
        return [self._matrix(title, part)] if small else self._maps(title, part)

    def _matrix(self, title: str, part: TablePart) -> Figure:
        return Matrix(
            title=title,
            values=_cells(part.values),
            rows=self.rows,
            columns=part.columns,
            x_label=part.name,
            y_label="answer",
            span=self.span,
        )

    def _maps(self, title: str, part: TablePart) -> list[Figure]:
        down, across = (-(-side // LARGEST_PICTURE) for side in part.values.shape)
        if down == across == 1:
            return [self._map(title, part.values, 1, 1, "")]
        size = f" of {down} x {across} cells"
        # The value of the largest size in each block; NaN where it has none
        ups, downs = (_reduced(part.values, down, across, reduce) for reduce in (np.fmax, np.fmin))
        return [
            self._map(f"{title}: the strongest", np.where(ups >= -downs, ups, downs), down, across, size),
            self._map(f"{title}: the mean", _mean(part.values, down, across), down, across, size),
        ]

    def _map(self, title: str, values: np.ndarray, down: int, across: int, size: str) -> Figure:
        return HeatMap(
            title=title,
            values=_cells(values),
            y=[float(self.first_row + down * at) for at in range(len(values))],
            x=[float(across * at) for at in range(values.shape[1])],
            x_label="token",
            y_label="answer",
            value_label=METHODS[self.method].unit + size,
        )

    def _strongest(self) -> Figure:
        cells = [
            (float(part.values[row, column]), f"{self.rows[row]} from {column}: {part.columns[column]}")
            for part in self.parts
            for row, column in _largest(part.values, STRONGEST)
        ]
        chosen = sorted(cells, key=lambda cell: -abs(cell[0]))[:STRONGEST]
        return Bars(
            title="The strongest of them",
            labels=[name for _, name in chosen],
            values=[value for value, _ in chosen],
            x_label=METHODS[self.method].unit,
        )


def _cells(values: np.ndarray) -> list[list[float | None]]:
    return [[None if np.isnan(value) else float(value) for value in row] for row in values]


def _largest(values: np.ndarray, count: int) -> list[tuple[int, int]]:
    sizes = np.abs(np.nan_to_num(values)).ravel()
    order = np.argsort(-sizes, kind="stable")[:count]
    return [(int(at) // values.shape[1], int(at) % values.shape[1]) for at in order]


def _reduced(values: np.ndarray, down: int, across: int, reduce: np.ufunc) -> np.ndarray:
    """Blocks of down x across cells by a function of two numbers."""
    rows = reduce.reduceat(values, np.arange(0, values.shape[0], down), axis=0)
    found: np.ndarray = reduce.reduceat(rows, np.arange(0, values.shape[1], across), axis=1)
    return found


def _mean(values: np.ndarray, down: int, across: int) -> np.ndarray:
    """The mean over the values of each block; NaN where it has none."""
    known = (~np.isnan(values)).astype(float)
    count = _reduced(known, down, across, np.add)
    total = _reduced(np.nan_to_num(values), down, across, np.add)
    found: np.ndarray = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return found


def attribution_table(
    subject: Subject,
    reading: Reading,
    *,
    method: str = "integrated",
    rows: tuple[int, int] | None = None,
    baseline: str | None = None,
    steps: int | None = None,
    words: bool = False,
) -> AttributionTableView:
    """What each token has to do with each answer; of many answers, those from `rows[0]` to before `rows[1]`.

    Integrated gradients go back once for each answer at every step, so answers x tokens are 65,536 of them at most; if
    no rows are asked for, the first ones, of 16,384 together.
    """
    method_of(method)
    start, stop = _chosen_rows(reading, rows or _first_rows(reading, method))
    ground = ground_of(subject, reading, baseline)
    if any(place.shape is not None for place in ground.places):
        raise ConfigError("a table has a column for each token, and a picture has none", fix="look at one answer, at=")
    goals = every_goal(subject, reading, range(start, stop))
    found = outcome(ground, goals, method, MethodOptions(steps, words))
    values = [_readable(ground, each, at, start) for at, each in enumerate(found.values)]
    return AttributionTableView(
        title=f"What moved each answer: {METHODS[method].title}",
        method=method,
        baseline=ground.baseline,
        rows=tuple(_short(subject, goal.answers[0].column, reading, goal.answers[0].row) for goal in goals),
        first_row=start,
        num_answers=len(reading.rows),
        score=tuple(found.score.tolist()),
        error=None if found.error is None else tuple(found.error.tolist()),
        parts=tuple(_part(ground, at, each, words=words) for at, each in enumerate(values)),
    )


def _first_rows(reading: Reading, method: str) -> tuple[int, int] | None:
    """The rows that are looked at where all of them would take long; None: all of them."""
    fitting = max(1, USUAL_CELLS // sum(len(side.tokens) for side in reading.sides))
    return (0, fitting) if method == "integrated" and fitting < len(reading.rows) <= MEDIUM else None


def _chosen_rows(reading: Reading, rows: tuple[int, int] | None) -> tuple[int, int]:
    count = len(reading.rows)
    start, stop = rows or (0, count)
    if not 0 <= start < stop <= count:
        raise ConfigError(
            f"the rows {start} to {stop} are not inside the {count:,} answers", fix=f"choose inside 0..{count}"
        )
    if stop - start > MEDIUM:
        raise ConfigError(
            f"a table of {stop - start:,} answers was asked for", fix=f"choose at most {MEDIUM} with rows=(start, stop)"
        )
    return start, stop


def _readable(ground: AttributionGround, values: np.ndarray, at: int, start: int) -> np.ndarray:
    """NaN where a row stands before the column, in what is read from left to right."""
    runs = ground.reading.said is not None and at == len(ground.places) - 1
    if not runs:
        return values
    rows, columns = start + np.arange(len(values))[:, None], np.arange(values.shape[1])
    return np.where(columns > rows, np.nan, values)


def _short(subject: Subject, column: int, reading: Reading, row: int) -> str:
    said = subject.name(column)
    return said if len(reading.sides) > 1 else f"{said} ({reading.rows[row]})" if len(reading.rows) > 1 else said


def _part(ground: AttributionGround, at: int, values: np.ndarray, *, words: bool) -> TablePart:
    place = ground.places[at]
    rows = [part_of(place, row, words=words) for row in values]
    return TablePart(place.side.name, rows[0].texts, np.stack([row.values for row in rows]))
