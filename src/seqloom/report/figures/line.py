"""Curves: one or more named series over a common x axis."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

from seqloom.errors import DataError
from seqloom.report.figures.figure import (
    MARGIN,
    WIDTH,
    Figure,
    FigureBlock,
    Plot,
    checked_numbers,
    checked_text,
    every_number,
    quoted_label,
    require_same_count,
    require_some,
)
from seqloom.report.figures.frame import (
    LEAST_LOGARITHMIC,
    PLOT_HEIGHT,
    Axis,
    Frame,
    FramePoint,
    LineLegend,
    linear_axis,
    log_axis,
)
from seqloom.report.figures.markup import LINES_DARK, Markup, hover, in_color, label, stroked, tag, together
from seqloom.report.figures.markup import color as color_of
from seqloom.report.labels import cell, columns, fit, isolated, shortened, visible, wrap
from seqloom.report.numbers import number

MOST_SERIES, MOST_POINTS = 24, 1_000_000
DOTTED = 40  # a series of at most this many points shows each as a dot
EIGHTHS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, kw_only=True)
class Series:
    """A named curve: y over x, None or NaN where the curve has a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]

    def __post_init__(self) -> None:
        what = f"series {quoted_label(checked_text(self.name, 'name'))}"
        object.__setattr__(self, "x", every_number(self.x, f"{what} x"))
        object.__setattr__(self, "y", checked_numbers(self.y, f"{what} y"))
        require_some(self.x, f"{what} x", largest=MOST_POINTS)
        require_same_count(self.x, f"{what} x", self.y, "y")
        if all(value is None for value in self.y):
            raise DataError(f"{what} has {len(self.y)} points and no value", fix="leave the series out")
        for index, (before, after) in enumerate(pairwise(self.x), start=1):
            if after < before:
                raise DataError(f"{what} x[{index}] goes back from {before:g} to {after:g}", fix="sort the points by x")

    @property
    def known(self) -> list[float]:
        """The values that are not missing."""
        return [value for value in self.y if value is not None]

    def runs(self) -> Iterator[list[FramePoint]]:
        """Yield the runs of points without gaps."""
        pairs = zip(self.x, self.y, strict=True)
        for missing, run in groupby(pairs, key=lambda pair: pair[1] is None):
            if not missing:
                yield [FramePoint(x, y) for x, y in run if y is not None]


@dataclass(frozen=True, kw_only=True)
class Line(Figure, kind="line"):
    """Curves over a common x axis, y linear or logarithmic.

    In a terminal each series has a separate strip on the same scale; a column shows the mean of its points. Series of
    one point each are not curves: their points are labeled with their values, and a terminal shows only these.

    >>> losses = Series(name="train", x=[0, 1, 2, 3], y=[2.3, 1.1, None, 0.4])
    >>> print(Line(title="Loss", series=[losses], x_label="epoch").text(40))
    Loss
    train: 2.3 to 0.4, lowest 0.4
    2.5 ┤▁
        │█▃
        │██▇▃
        │████▇▃
        │██████▇▃
        │████████▇▃
        │██████████▇▃
        │████████████
        │████████████
        │████████████
        │████████████                      █
    0.0 ┤████████████                      █
         0          1           2          3
    x: epoch
    """

    series: Sequence[Series]
    x_label: str = ""
    y_label: str = ""
    y_axis: Literal["linear", "log"] = "linear"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_parts("series", Series, largest=MOST_SERIES)
        if self.y_axis not in ("linear", "log"):
            raise DataError(f"y_axis is {quoted_label(str(self.y_axis))}", fix="choose linear or log")
        for series in self.series if self.y_axis == "log" else ():
            for index, value in enumerate(series.y):
                if value is not None and value < LEAST_LOGARITHMIC:
                    where = f"series {quoted_label(series.name)} y[{index}]"
                    raise DataError(f"{where} is {value:g} on a log axis", fix="use y_axis='linear' or make it a gap")

    @property
    def _is_of_points(self) -> bool:
        return all(len(series.known) == 1 for series in self.series)

    def _axes(self) -> tuple[Axis, Axis]:
        xs = [x for series in self.series for x in series.x]
        ys = [y for series in self.series for y in series.known]
        across = linear_axis(min(xs), max(xs), count=7, least_step=_least_step(xs)).trimmed(min(xs), max(xs))
        if self.y_axis == "log":
            return across, log_axis(min(ys), max(ys))
        return across, linear_axis(min(ys), max(ys), least_step=_least_step(ys))

    def _plot(self) -> Plot:
        across, upward = self._axes()
        frame = Frame.around(across, upward)
        unnamed = len(self.series) == 1 and self.series[0].name in ("", self.y_label)
        legend = LineLegend(Markup(""), 0.0, 0.0) if unnamed else LineLegend.of([one.name for one in self.series])
        curves = together(_curve(series, index, frame) for index, series in enumerate(self.series))
        top = legend.height + (30 if self.y_label else 8)
        name = label(self.y_label, MARGIN, legend.height + 10, theme="soft", room=WIDTH - 2 * MARGIN)
        values = [_value(series, frame) for series in self.series if self._is_of_points]
        plot = tag("g", frame.drawn(), curves, *values, transform=f"translate(0 {top:g})")
        marks = together([legend.marks, name, frame.named_below(self.x_label, top), plot])
        return Plot(marks, WIDTH, top + PLOT_HEIGHT + (50 if self.x_label else 30), self._thinning(frame))

    def _thinning(self, frame: Frame) -> tuple[str, ...]:
        drawn = sum(len(_thinned(run, frame)) for series in self.series for run in series.runs())
        known = sum(len(series.known) for series in self.series)
        if drawn == known:
            return ()
        return (f"Drawn from {drawn:,} of {known:,} points: first, lowest, highest and last in each pixel column.",)

    def _summary(self) -> str:
        axis = "logarithmic" if self.y_axis == "log" else "linear"
        parts = [f"Line chart, {axis} y axis, {self.y_label or 'y'} over {self.x_label or 'x'}."]
        return " ".join(parts + [f"{shortened(series.name) or 'series'}: {_range(series)}." for series in self.series])

    def _block(self, width: int, color: bool) -> FigureBlock:
        if self._is_of_points:
            points = [_point(series) for series in self.series]
            named = [f"{visible(one.name)}: " if one.name else "" for one in self.series]
            said = [
                f"{name}{number(y)} at {self.x_label or 'x'} {number(x)}"
                for name, (x, y) in zip(named, points, strict=True)
            ]
            return FigureBlock([isolated(line) for text in said for line in wrap(visible(text), width)])
        across, upward = self._axes()
        height = max(4, 12 // len(self.series))
        count = width - upward.gutter - 2
        lines = []
        for index, series in enumerate(self.series):
            name, words = isolated(fit(visible(series.name), width // 2)), _range(series)
            joined = f"{name}: {words}" if name else words
            lines += [joined] if columns(joined) <= width else [*filter(None, [name]), *wrap(words, width)]
            rows = _profile(series, across, upward, count, height)
            ink = color_of(LINES_DARK[index % len(LINES_DARK)])
            lines += upward.beside([in_color(row, ink) for row in rows] if color else rows)
        lines.append(" " * (upward.gutter + 2) + across.below(count))
        names = [cell(visible(text), width - 4).rstrip() for text in (self.x_label, self.y_label)]
        return FigureBlock([*lines, *(f"{axis}: {name}" for axis, name in zip("xy", names, strict=True) if name)])


def _least_step(values: Sequence[float]) -> float:
    """Return the smallest step between ticks: 1 for integers."""
    return 1.0 if all(value == round(value) for value in values) and max(values) > min(values) else 0.0


def _range(series: Series) -> str:
    known = series.known
    words = f"{number(known[0])} to {number(known[-1])}, lowest {number(min(known))}"
    return words if len(known) > 1 else number(known[0])


def _point(series: Series) -> FramePoint:
    """Return the only point of a series."""
    return next(run[0] for run in series.runs())


def _value(series: Series, frame: Frame) -> Markup:
    """Return the value of a single point, beside it."""
    point = _point(series)
    place = frame.at(*point)
    anchor, shift = ("end", -8) if frame.across.place(point.x) > 0.5 else ("start", 8)
    return label(number(point.y), place.x + shift, place.y + 4, size=11, anchor=anchor, theme="soft")


def _curve(series: Series, index: int, frame: Frame) -> Markup:
    name = shortened(series.name) or "series"
    paths, dots = [], []
    for run in series.runs():
        places = [frame.at(*point) for point in _thinned(run, frame)]
        paths.append("M" + "L".join(f"{place.x:.1f} {place.y:.1f}" for place in places))
        for point in run if len(series.x) <= DOTTED or len(run) == 1 else ():
            # A stroke of length zero with round ends: a dot that has the line's color.
            note, place = hover(f"{name}: {number(point.y)} at {number(point.x)}"), frame.at(*point)
            looks: dict[str, str | float] = {**stroked(index), "stroke_dasharray": "none"}
            dot = f"M{place.x:.1f} {place.y:.1f}h0"
            dots.append(tag("path", note, d=dot, stroke_width=6, stroke_linecap="round", **looks))
    note, round_ends = hover(f"{name}: {_range(series)}"), {"stroke_linejoin": "round", "stroke_linecap": "round"}
    line = tag("path", note, d="".join(paths), fill="none", stroke_width=2, **round_ends, **stroked(index))
    return together([line, *dots])


def _thinned(run: list[FramePoint], frame: Frame) -> list[FramePoint]:
    # The first, lowest, highest and last point of a pixel column are enough to draw the same line.
    pixels = int(frame.right - frame.left)
    if len(run) <= 4 * pixels:
        return run
    kept = []
    for _, group in groupby(enumerate(run), key=lambda entry: int(frame.across.place(entry[1].x) * pixels)):
        column = list(group)
        ends = {column[0], column[-1], min(column, key=lambda e: e[1].y), max(column, key=lambda e: e[1].y)}
        kept += [point for _, point in sorted(ends)]
    return kept


def _profile(series: Series, across: Axis, upward: Axis, count: int, rows: int) -> list[str]:
    """Return the curve as `count` columns of block characters, the top row first; gaps are blank, the minimum is not.

    A column shows the mean of its points; columns between points are interpolated.
    """
    totals, hits = [0.0] * count, [0] * count
    heights: list[float | None] = [None] * count
    for run in series.runs():
        places = [FramePoint(across.place(point.x), upward.place(point.y)) for point in run]
        for place in places:
            column = min(count - 1, int(place.x * count))
            totals[column] += place.y
            hits[column] += 1
        for start, end in pairwise(places):
            for column in range(int(start.x * count) + 1, min(count - 1, int(end.x * count))):
                share = ((column + 0.5) / count - start.x) / (end.x - start.x)
                heights[column] = start.y + share * (end.y - start.y)
    heights = [total / hit if hit else height for total, hit, height in zip(totals, hits, heights, strict=True)]
    eighths = [0 if height is None else max(1, math.ceil(height * rows * 8 - 1e-9)) for height in heights]
    lines = ["".join(EIGHTHS[min(8, max(0, height - 8 * row))] for height in eighths) for row in range(rows)]
    return lines[::-1]
