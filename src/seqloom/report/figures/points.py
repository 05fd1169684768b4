"""Points: labelled places on two axes, such as quality against cost, some of them marked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from seqloom.errors import DataError
from seqloom.report.figures import checks
from seqloom.report.figures.axis import LEAST_LOGARITHMIC, Axis, linear_axis, log_axis
from seqloom.report.figures.colors import colour as colour_of
from seqloom.report.figures.colors import in_colour
from seqloom.report.figures.figure import MARGIN, WIDTH, Figure, FigureBlock, Plot, ruler
from seqloom.report.figures.frame import PLOT_HEIGHT, Frame
from seqloom.report.figures.labels import fit, isolated, shortened, visible
from seqloom.report.figures.markup import THEME, Markup, axis_name, hover, label, look, tag, together, width_of
from seqloom.report.numbers import number

TEXT_HEIGHT = 12
RADIUS, LABEL_SIZE, LONGEST_LABEL = 6.0, 12.0, 200.0
NAMES = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of points in a terminal
SEVERAL = "*"  # points in one place of a terminal

Interval = tuple[float, float]


class Point(NamedTuple):
    """One point with what belongs to it."""

    label: str
    x: float
    y: float
    interval: Interval | None
    marked: bool

    def said(self) -> str:
        """The point in words."""
        ends = f" ({number(self.interval[0])} to {number(self.interval[1])})" if self.interval else ""
        return f"{number(self.y)}{ends} at {number(self.x)}{', marked' if self.marked else ''}"


@dataclass(frozen=True, kw_only=True)
class Points(Figure):
    """Labelled points, x linear or logarithmic; those that are marked are filled, and y may have an interval.

    >>> costs = Points(title="Quality", labels=["bag", "lstm"], x=[1, 10], y=[0.5, 0.9], marked=[False, True])
    >>> print(costs.text(40))
    Quality
    0.9 ┤                                  b
        │
        │
        │
        │
        │
        │
        │
        │
        │
        │
    0.5 ┤   a
         0      2      4     6      8     10
    a ○ bag: 0.5 at 1
    b ● lstm: 0.9 at 10, marked
    """

    kind: ClassVar[str] = "points"
    labels: Sequence[str]
    x: Sequence[float]
    y: Sequence[float]
    intervals: Sequence[Interval | None] | None = None
    marked: Sequence[bool] | None = None
    x_label: str = ""
    y_label: str = ""
    x_axis: Literal["linear", "log"] = "linear"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "labels", checks.labels(self.labels, "labels"))
        checks.some(self.labels, "labels", largest=len(NAMES))
        for name in ("x", "y"):
            object.__setattr__(self, name, checks.every_number(getattr(self, name), name))
            checks.same_count(getattr(self, name), name, self.labels, "labels")
        checks.text(self.x_label, "x_label")
        checks.text(self.y_label, "y_label")
        self._check_extras()
        self._check_axis()

    def _check_extras(self) -> None:
        if self.marked is not None:
            object.__setattr__(self, "marked", checks.instances(self.marked, bool, "marked"))
            checks.same_count(self.marked, "marked", self.labels, "labels")
        if self.intervals is not None:
            found = tuple(checks.each(self.intervals, "intervals"))
            checks.same_count(found, "intervals", self.labels, "labels")
            object.__setattr__(self, "intervals", tuple(map(self._interval, range(len(found)), found)))

    def _interval(self, index: int, interval: Interval | None) -> Interval | None:
        if interval is None:
            return None
        ends = checks.every_number(interval, f"intervals[{index}]")
        if len(ends) != 2 or not ends[0] <= self.y[index] <= ends[1]:
            raise DataError(
                f"intervals[{index}] is {ends} around the value {self.y[index]}", fix="give (low, high) around y"
            )
        return ends[0], ends[1]

    def _check_axis(self) -> None:
        if self.x_axis not in ("linear", "log"):
            raise DataError(f"x_axis is {checks.quoted(str(self.x_axis))}", fix="choose linear or log")
        least = min(self.x)
        if self.x_axis == "log" and least < LEAST_LOGARITHMIC:
            raise DataError(f"x has {least:g} on a log axis", fix="use x_axis='linear', or leave the point out")

    def _points(self) -> list[Point]:
        count = len(self.labels)
        intervals, marked = self.intervals or [None] * count, self.marked or [False] * count
        return [Point(*row) for row in zip(self.labels, self.x, self.y, intervals, marked, strict=True)]

    def _axes(self) -> tuple[Axis, Axis]:
        ends = [end for interval in self.intervals or () if interval for end in interval]
        across = (log_axis if self.x_axis == "log" else linear_axis)(min(self.x), max(self.x))
        return across, linear_axis(min([*self.y, *ends]), max([*self.y, *ends]))

    def _plot(self) -> Plot:
        across, upward = self._axes()
        frame = _PointFrame.around(across, upward)
        top = 30 if self.y_label else 12
        names = [label(self.y_label, MARGIN, 10, theme="soft", room=WIDTH - 2 * MARGIN)]
        names += [axis_name(self.x_label, frame.left, frame.right, top + PLOT_HEIGHT + 38)]
        points = [*map(frame.whisker, self._points()), *map(frame.point, self._points()), *frame.named(self._points())]
        plot = tag("g", frame.drawn(), *points, transform=f"translate(0 {top:g})")
        return Plot(together([*names, plot]), WIDTH, top + PLOT_HEIGHT + (50 if self.x_label else 30))

    def _summary(self) -> str:
        axes = f"{self.y_label or 'y'} over {self.x_label or 'x'}"
        said = "; ".join(f"{shortened(point.label)} {point.said()}" for point in self._points())
        return f"Points, {'logarithmic' if self.x_axis == 'log' else 'linear'} x axis, {axes}: {said}."

    def _block(self, width: int, colour: bool) -> FigureBlock:
        across, upward = self._axes()
        gutter = max(len(upward.labels[0]), len(upward.labels[-1]))
        count = width - gutter - 2
        sides = [upward.labels[-1], *[""] * (TEXT_HEIGHT - 2), upward.labels[0]]
        grid = self._grid(across, upward, count)
        rows = [_tinted(row.rstrip(), colour) for row in grid]
        lines = [f"{side:>{gutter}} {'┤' if side else '│'}{row}" for side, row in zip(sides, rows, strict=True)]
        ticks = zip(across.ticks, across.labels, strict=True)
        lines.append(
            " " * (gutter + 2) + ruler({round(across.place(tick) * (count - 1)): text for tick, text in ticks}, count)
        )
        lines += [_listed(name, point, width) for name, point in zip(NAMES, self._points(), strict=False)]
        axes = [("x", self.x_label), ("y", self.y_label)]
        return FigureBlock([*lines, *(isolated(fit(f"{axis}: {visible(text)}", width)) for axis, text in axes if text)])

    def _grid(self, across: Axis, upward: Axis, count: int) -> list[str]:
        """The letters of the points in their places, the top row first."""
        rows = [[" "] * count for _ in range(TEXT_HEIGHT)]
        for name, point in zip(NAMES, self._points(), strict=False):
            column = round(across.place(point.x) * (count - 1))
            row = round((1 - upward.place(point.y)) * (TEXT_HEIGHT - 1))
            rows[row][column] = name if rows[row][column] == " " else SEVERAL
        return ["".join(row) for row in rows]


def _listed(name: str, point: Point, width: int) -> str:
    words = f": {point.said()}"
    room = max(8, width - 4 - len(words))
    return fit(f"{name} {'●' if point.marked else '○'} {isolated(fit(visible(point.label), room))}{words}", width)


def _disc(x: float, y: float, radius: float, theme: str, *note: Markup) -> Markup:
    side = 2 * radius
    return tag("rect", *note, x=x - radius, y=y - radius, width=side, height=side, rx=radius, **look(theme))


def _tinted(text: str, colour: bool) -> str:
    return in_colour(text, colour_of(THEME["bar"][2])) if colour and text.strip() else text


class _PointFrame(Frame):
    """The frame with what stands in it."""

    def point(self, point: Point) -> Markup:
        """A disc for a marked point, a ring for another."""
        x, y = self.at(point.x, point.y)
        note = hover(f"{shortened(point.label)}: {point.said()}")
        if point.marked:
            return _disc(x, y, RADIUS, "bar", note)
        return together([_disc(x, y, RADIUS, "bar"), _disc(x, y, RADIUS - 2, "ground", note)])

    def whisker(self, point: Point) -> Markup:
        if point.interval is None:
            return Markup("")
        x, low = self.at(point.x, point.interval[0])
        _, high = self.at(point.x, point.interval[1])
        d = f"M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8M{x:.1f} {low:.1f}V{high:.1f}"
        return tag("path", d=d, fill="none", stroke_width=1.5, **look("hatch"))

    def named(self, points: Sequence[Point]) -> list[Markup]:
        """The labels, each beside its point and clear of those that stand already."""
        places = [self.at(point.x, point.y) for point in points]
        taken = [(x - RADIUS, x + RADIUS, y + 4) for x, y in places]  # left, right and baseline; points first
        return [self._name(point, taken) for point in sorted(points, key=lambda one: (-one.y, one.x))]

    def _name(self, point: Point, taken: list[tuple[float, float, float]]) -> Markup:
        x, y = self.at(point.x, point.y)
        width = min(LONGEST_LABEL, width_of(point.label, LABEL_SIZE))
        leftward = x + RADIUS + 6 + width > self.right
        start = x - RADIUS - 6 - width if leftward else x + RADIUS + 6
        baseline = y + 4
        while any(a < start + width and start < b and abs(line - baseline) < LABEL_SIZE + 2 for a, b, line in taken):
            baseline += LABEL_SIZE
        taken.append((start, start + width, baseline))
        edge = start + width if leftward else start
        return label(point.label, edge, baseline, anchor="end" if leftward else "start", room=LONGEST_LABEL)
