"""Horizontal bars: labeled values on both sides of zero, each with an optional interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from seqloom.report.figures.figure import MARGIN, WIDTH, Figure, FigureBlock, Interval, Plot, checked_intervals
from seqloom.report.figures.frame import Axis, linear_axis
from seqloom.report.figures.markup import Markup, axis_name, hover, label, look, rule, tag, tinted, together, width_of
from seqloom.report.labels import breadth, cell, shortened, stacked_cell, typeset, visible
from seqloom.report.numbers import estimate
from seqloom.report.numbers import interval as between
from seqloom.report.numbers import number as brief

MOST_BARS = 500
ROW_HEIGHT, BAR_HEIGHT = 28.0, 16.0
LONGEST_LABEL = 220.0
EIGHTHS = "▏▎▍▌▋▊▉█"


@dataclass(frozen=True, kw_only=True)
class Bars(Figure, kind="bars"):
    """Labeled values as horizontal bars from zero, with an optional interval around each.

    >>> scores = Bars(title="Accuracy", labels=["bag", "lstm"], values=[0.5, 0.9], intervals=[None, (0.86, 0.93)])
    >>> print(scores.text(40))
    Accuracy
    bag  │████████▏       0.5
    lstm │██████████████▋ 0.9 (0.86 to 0.93)
    """

    labels: Sequence[str]
    values: Sequence[float | None]
    intervals: Sequence[Interval | None] | None = None
    x_label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_labels("labels", largest=MOST_BARS)
        self._check_numbers("values", others="labels", gaps=True)
        object.__setattr__(self, "intervals", checked_intervals(self.intervals, self.values, "the value"))

    def _rows(self) -> list[tuple[str, float | None, Interval | None]]:
        return list(zip(self.labels, self.values, self.intervals or [None] * len(self.labels), strict=True))

    def _reach(self) -> Interval:
        ends = [end for interval in self.intervals or () if interval for end in interval]
        known = [0.0, *ends, *(value for value in self.values if value is not None)]
        low, high = min(known), max(known)
        return (low, high) if high - low > 1e-90 else (-1.0 if low < 0 else 0.0, 1.0)

    def _plot(self) -> Plot:
        left = MARGIN + min(LONGEST_LABEL, max(width_of(text, 12) for text in self.labels)) + 10
        right = WIDTH - MARGIN - max(width_of(_printed(value), 11) for value in self.values) - 10
        frame = _BarFrame(left, right, linear_axis(*self._reach()))
        depth = ROW_HEIGHT * len(self.labels)
        bars = [frame.bar(index, *row) for index, row in enumerate(self._rows())]
        name = axis_name(self.x_label, left, right, depth + 38)
        return Plot(together([frame.drawn(depth), *bars, name]), WIDTH, depth + (50 if self.x_label else 30))

    def _summary(self) -> str:
        return f"Bar chart, {self.x_label or 'values'}: " + "; ".join(map(_described, self._rows())) + "."

    def _block(self, width: int, color: bool) -> FigureBlock:
        tails = [_number(value, interval) for _, value, interval in self._rows()]
        gutter = min(width // 3, max(map(breadth, self.labels)))
        # If there is too little room for bars, intervals get separate lines
        apart = max(map(len, tails)) > width - gutter - 12
        beside = [_number(value) for value in self.values] if apart else tails
        room = width - gutter - 3 - max(map(len, beside))
        lines = []
        for (text, value, interval), tail in zip(self._rows(), beside, strict=True):
            *above, last = stacked_cell(visible(text), gutter)
            lines += [*above, f"{last} {_bar(value, self._reach(), room, color)} {tail}"]
            if apart and interval:
                lines.append(cell(f"({between(*interval)})", width, right=True))
        return FigureBlock([*lines, *([cell(visible(self.x_label), width)] if self.x_label else [])])


def _number(value: float | None, interval: Interval | None = None) -> str:
    return "no value" if value is None else estimate(value, interval)


def _printed(value: float | None) -> str:
    return "no value" if value is None else typeset(brief(value))


def _described(row: tuple[str, float | None, Interval | None]) -> str:
    text, value, interval = row
    return f"{shortened(text)} {_number(value, interval)}"


def _bar(value: float | None, reach: Interval, room: int, color: bool) -> str:
    """Return the bar in `room` columns, with the zero line between its two sides."""
    low, high = reach
    below = 0 if low >= 0 else room if high <= 0 else min(room - 1, max(1, round(room * -low / (high - low))))
    above = room - below
    length = abs(value or 0.0) / max(-low / below if below else 0.0, high / above if above else 0.0)
    halves, eighths = (max(1, math.ceil(length * parts - 1e-9)) for parts in (2, 8))  # nonzero values must be visible
    fall = ("▐" if halves % 2 else "") + "█" * (halves // 2)
    rise = "█" * (eighths // 8) + (EIGHTHS[eighths % 8 - 1] if eighths % 8 else "")
    left = (fall if value is not None and value < 0 else "").rjust(below)
    right = (rise if value is not None and value > 0 else "").ljust(above)
    return f"{tinted(left, 'fall')}│{tinted(right, 'bar')}" if color else f"{left}│{right}"


@dataclass(frozen=True)
class _BarFrame:
    left: float
    right: float
    axis: Axis

    def at(self, value: float) -> float:
        return self.left + self.axis.place(value) * (self.right - self.left)

    def drawn(self, depth: float) -> Markup:
        marks = []
        for tick, text in zip(self.axis.ticks, self.axis.labels, strict=True):
            marks += [rule(self.at(tick), 0, self.at(tick), depth)]
            marks += [label(typeset(text), self.at(tick), depth + 18, size=11, anchor="middle", theme="soft")]
        return together(marks)

    def bar(self, index: int, text: str, value: float | None, interval: Interval | None) -> Markup:
        middle = ROW_HEIGHT * (index + 0.5)
        name = label(text, self.left - 10, middle + 4, anchor="end", room=min(LONGEST_LABEL, self.left - MARGIN))
        zero, end = self.at(0.0), self.at(value or 0.0)
        place: dict[str, str | float] = {"x": min(zero, end), "y": middle - BAR_HEIGHT / 2}
        place |= {"width": abs(end - zero), "height": BAR_HEIGHT}
        theme = "fall" if value is not None and value < 0 else "bar"
        box = tag("rect", hover(_described((text, value, interval))), **place, **look(theme))
        beyond = max(end, zero, self.at(interval[1]) if interval else end)
        number = label(_printed(value), beyond + 6, middle + 4, size=11)
        axis = rule(zero, ROW_HEIGHT * index, zero, ROW_HEIGHT * (index + 1), "axis")
        return together([name, box, axis, *self.whisker(interval, middle), number])

    def whisker(self, interval: Interval | None, middle: float) -> list[Markup]:
        if interval is None:
            return []
        low, high = map(self.at, interval)
        d = f"M{low:.1f} {middle - 4:g}v8M{high:.1f} {middle - 4:g}v8M{low:.1f} {middle:g}H{high:.1f}"
        return [tag("path", d=d, fill="none", stroke_width=1.5, **look("whisker"))]
