"""Points: labeled points on two axes, some of them marked; trails: points in the order in which they are reached."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from seqloom.errors import DataError
from seqloom.report.figures.figure import (
    MARGIN,
    WIDTH,
    Figure,
    FigureBlock,
    Interval,
    Plot,
    checked_intervals,
    quoted_label,
    require_same_count,
)
from seqloom.report.figures.frame import (
    LEAST_LOGARITHMIC,
    LEGEND_HEIGHT,
    PLOT_HEIGHT,
    Axis,
    Frame,
    drawn_legend,
    linear_axis,
    log_axis,
    written_legend,
)
from seqloom.report.figures.markup import ColorScale, Markup, hover, label, look, tag, tinted, together, width_of
from seqloom.report.labels import edged, fit, isolated, shortened, visible
from seqloom.report.numbers import estimate, number

ROWS, TRAIL_ROWS = 12, 16  # in a terminal
RADIUS, LABEL_SIZE, LONGEST_LABEL = 6.0, 12.0, 200.0
NAMES = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of points in a terminal
SEVERAL = "*"  # several points at one place of a terminal
MOST_PLACES = 2_000
LABELED = 64  # more points of a trail have only tooltips
DESCRIBED = 200
SIDE, TRAIL_LABEL_SIZE, LONGEST_TRAIL_LABEL = 7.0, 11.0, 120.0


class Point(NamedTuple):
    """One point with its label and interval."""

    label: str
    x: float
    y: float
    interval: Interval | None
    marked: bool

    def said(self) -> str:
        """Describe the point in words."""
        return f"{estimate(self.y, self.interval)} at {number(self.x)}{', marked' if self.marked else ''}"


@dataclass(frozen=True, kw_only=True)
class Points(Figure, kind="points"):
    """Labeled points, x linear or logarithmic; marked points are filled, and y may have an interval.

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
        self._check_labels("labels", largest=len(NAMES))
        self._check_numbers("x", "y", others="labels")
        if self.marked is not None:
            self._check_parts("marked", bool)
            require_same_count(self.marked, "marked", self.labels, "labels")
        object.__setattr__(self, "intervals", checked_intervals(self.intervals, self.y, "y"))
        if self.x_axis not in ("linear", "log"):
            raise DataError(f"x_axis is {quoted_label(str(self.x_axis))}", fix="choose linear or log")
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
        frame = _PointFrame.around(*self._axes())
        top = 30 if self.y_label else 12
        points = [*map(frame.whisker, self._points()), *map(frame.point, self._points()), *frame.named(self._points())]
        plot = tag("g", frame.drawn(), *points, transform=f"translate(0 {top:g})")
        name = label(self.y_label, MARGIN, 10, theme="soft", room=WIDTH - 2 * MARGIN)
        height = top + PLOT_HEIGHT + (50 if self.x_label else 30)
        return Plot(together([name, frame.named_below(self.x_label, top), plot]), WIDTH, height)

    def _summary(self) -> str:
        axes = f"{self.y_label or 'y'} over {self.x_label or 'x'}"
        said = "; ".join(f"{shortened(point.label)} {point.said()}" for point in self._points())
        return f"Points, {'logarithmic' if self.x_axis == 'log' else 'linear'} x axis, {axes}: {said}."

    def _block(self, width: int, color: bool) -> FigureBlock:
        across, upward = self._axes()
        room = width - upward.gutter - 2
        grid = [[" "] * room for _ in range(ROWS)]
        for name, point in zip(NAMES, self._points(), strict=False):
            column = round(across.place(point.x) * (room - 1))
            row = round((1 - upward.place(point.y)) * (ROWS - 1))
            grid[row][column] = name if grid[row][column] == " " else SEVERAL
        rows = ["".join(row).rstrip() for row in grid]
        rows = [tinted(row, "bar") for row in rows] if color else rows
        lines = [*upward.beside(rows), " " * (upward.gutter + 2) + across.below(room)]
        for name, point in zip(NAMES, self._points(), strict=False):
            words = f": {point.said()}"
            text = isolated(fit(visible(point.label), max(8, width - 4 - len(words))))
            lines.append(fit(f"{name} {'●' if point.marked else '○'} {text}{words}", width))
        return FigureBlock([*lines, *_axis_names(self.x_label, self.y_label, width)])


def _axis_names(x_label: str, y_label: str, width: int) -> list[str]:
    axes = [("x", x_label), ("y", y_label)]
    return [isolated(fit(f"{axis}: {visible(text)}", width)) for axis, text in axes if text]


def _disc(x: float, y: float, side: float) -> dict[str, str | float]:
    return {"x": x - side / 2, "y": y - side / 2, "width": side, "height": side, "rx": side / 2}


class _PointFrame(Frame):
    """A frame that draws its points and labels."""

    def point(self, point: Point) -> Markup:
        """Return a disc for a marked point, a ring otherwise."""
        x, y = self.at(point.x, point.y)
        note, disc = hover(f"{shortened(point.label)}: {point.said()}"), _disc(x, y, 2 * RADIUS)
        if point.marked:
            return tag("rect", note, **disc, **look("bar"))
        hole = tag("rect", note, **_disc(x, y, 2 * RADIUS - 4), **look("ground"))
        return together([tag("rect", **disc, **look("bar")), hole])

    def whisker(self, point: Point) -> Markup:
        if point.interval is None:
            return Markup("")
        x, low = self.at(point.x, point.interval[0])
        _, high = self.at(point.x, point.interval[1])
        d = f"M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8M{x:.1f} {low:.1f}V{high:.1f}"
        return tag("path", d=d, fill="none", stroke_width=1.5, **look("hatch"))

    def named(self, points: Sequence[Point]) -> list[Markup]:
        """Return the labels, each next to its point, without overlaps."""
        places = [self.at(point.x, point.y) for point in points]
        taken = [(x - RADIUS, x + RADIUS, y + 4) for x, y in places]  # left, right and baseline; points first
        return [self._name(point, taken) for point in sorted(points, key=lambda one: (-one.y, one.x))]

    def _name(self, point: Point, taken: list[tuple[float, float, float]]) -> Markup:
        x, y = self.at(point.x, point.y)
        width = min(LONGEST_LABEL, width_of(point.label, LABEL_SIZE))
        leftward = x + RADIUS + 6 + width > self.right
        start = x - RADIUS - 6 - width if leftward else x + RADIUS + 6
        baseline = y + 4
        while _touches(taken, start, width, baseline, LABEL_SIZE + 2):
            baseline += LABEL_SIZE
        taken.append((start, start + width, baseline))
        edge = start + width if leftward else start
        return label(point.label, edge, baseline, anchor="end" if leftward else "start", room=LONGEST_LABEL)


def _touches(
    taken: Sequence[tuple[float, float, float]], start: float, width: float, baseline: float, high: float
) -> bool:
    """Whether a label at this place would touch another."""
    return any(a < start + width and start < b and abs(line - baseline) < high for a, b, line in taken)


@dataclass(frozen=True, kw_only=True)
class Trail(Figure, kind="trail"):
    """Points in the order in which they are reached: the states of a model over a sentence.

    `numbers` are the positions in the complete sequence; they determine the colors.

    >>> print(Trail(title="States", labels=["a", "b"], x=[0, 1], y=[0, 1], numbers=[0, 1]).text(40).splitlines()[0])
    States
    """

    labels: Sequence[str]
    x: Sequence[float]
    y: Sequence[float]
    numbers: Sequence[float] | None = None
    x_label: str = ""
    y_label: str = ""
    value_label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_labels("labels", largest=MOST_PLACES)
        if self.numbers is None:
            object.__setattr__(self, "numbers", tuple(range(len(self.labels))))
        self._check_numbers("x", "y", "numbers", others="labels")

    def _axes(self) -> tuple[Axis, Axis]:
        return linear_axis(min(self.x), max(self.x)), linear_axis(min(self.y), max(self.y))

    @property
    def _order(self) -> tuple[float, ...]:
        assert self.numbers is not None
        return tuple(self.numbers)

    def _scale(self) -> ColorScale:
        low = min(self._order)
        return ColorScale(low, max(*self._order, low + 1.0))

    def _plot(self) -> Plot:
        frame, scale = Frame.around(*self._axes()), self._scale()
        places = [frame.at(x, y) for x, y in zip(self.x, self.y, strict=True)]
        legend = drawn_legend(scale, self.value_label, MARGIN, room=WIDTH - 2 * MARGIN, gaps=False)
        top = LEGEND_HEIGHT + (30 if self.y_label else 8)
        name = label(self.y_label, MARGIN, LEGEND_HEIGHT + 12, theme="soft", room=WIDTH - 2 * MARGIN)
        way = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        marks = [tag("path", d=way, fill="none", stroke_width=1.2, **look("hatch"))]
        side = SIDE if len(self.labels) <= LABELED else SIDE / 2
        for text, order, place in zip(self.labels, self._order, places, strict=True):
            note = hover(f"{shortened(text)} ({number(order)})")
            rim = tag("rect", **_disc(*place, side + 1.5), **look("soft"))  # the first shades match the page
            marks += [rim, tag("rect", note, **_disc(*place, side), **scale.shade_of(order).fill())]
        words = self._named(frame) if len(places) <= LABELED else []
        plot = tag("g", frame.drawn(), *marks, *words, transform=f"translate(0 {top:g})")
        height = top + PLOT_HEIGHT + (50 if self.x_label else 30)
        return Plot(together([legend, name, frame.named_below(self.x_label, top), plot]), WIDTH, height)

    def _named(self, frame: Frame) -> list[Markup]:
        """Return the labels, each next to its point, without those that would overlap."""
        taken: list[tuple[float, float, float]] = []  # left, right and baseline
        drawn = []
        for text, *place in zip(map(edged, self.labels), self.x, self.y, strict=True):
            x, y = frame.at(*place)
            width = min(LONGEST_TRAIL_LABEL, width_of(text, TRAIL_LABEL_SIZE))
            leftward = x + SIDE + width > frame.right
            start = x - SIDE - width if leftward else x + SIDE
            for baseline in (y + 4, y - 8, y + 16):
                if not _touches(taken, start, width, baseline, TRAIL_LABEL_SIZE):
                    taken.append((start, start + width, baseline))
                    edge, anchor = (start + width, "end") if leftward else (start, "start")
                    size, room = TRAIL_LABEL_SIZE, LONGEST_TRAIL_LABEL
                    drawn.append(label(text, edge, baseline, size=size, anchor=anchor, room=room))
                    break
        return drawn

    def _summary(self) -> str:
        places = zip(self.labels, self.x, self.y, strict=True)
        said = [f"{shortened(text)} ({number(x)}, {number(y)})" for text, x, y in places]
        more = f", and {len(said) - DESCRIBED} more" if len(said) > DESCRIBED else ""
        return f"Trail over {self.x_label or 'x'} and {self.y_label or 'y'}: {', '.join(said[:DESCRIBED])}{more}."

    def _block(self, width: int, color: bool) -> FigureBlock:
        (across, upward), scale = self._axes(), self._scale()
        room = width - upward.gutter - 2
        grid = [[" "] * room for _ in range(TRAIL_ROWS)]
        for x, y, order in zip(self.x, self.y, self._order, strict=True):
            row, column = round((1 - upward.place(y)) * (TRAIL_ROWS - 1)), round(across.place(x) * (room - 1))
            glyph = scale.glyph(order).replace(" ", "·")  # so that the first points are visible
            grid[row][column] = scale.shade_of(order).behind(" ") if color else glyph
        lines = [*upward.beside(list(map("".join, grid))), " " * (upward.gutter + 2) + across.below(room)]
        lines += _axis_names(self.x_label, self.y_label, width)
        return FigureBlock([*lines, *written_legend(scale, self.value_label, width=width, color=color, gaps=False)])
