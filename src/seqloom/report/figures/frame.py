"""Axes with round ticks, grid lines and numbers, and legends."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from seqloom.report.figures.figure import MARGIN, WIDTH
from seqloom.report.figures.markup import (
    LEVELS,
    NO_VALUE,
    ColorScale,
    Markup,
    axis_name,
    hatched,
    hover,
    label,
    look,
    rule,
    stroked,
    tag,
    together,
    width_of,
)
from seqloom.report.labels import columns, fit, isolated, typeset, visible
from seqloom.report.numbers import number

TOLERANCE = 0.04  # how far beyond the data the last tick may be, as a share of the axis
ALMOST = 1e-9  # how much of a step may be missing at either end before another tick is added
NEGLIGIBLE = 1e-90
LEAST_LOGARITHMIC = 1e-80  # the smallest value a log axis accepts
DECIMALS = ((0.01, 4), (0.1, 3), (10.0, 2), (1000.0, 1), (math.inf, 0))  # (limit, decimals for numbers below it)


@dataclass(frozen=True)
class Axis:
    """A range of values with its ticks; `place` maps the range to 0..1."""

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    is_log: bool = False

    def place(self, value: float) -> float:
        """Return the position of the value along the axis: 0 at `low`, 1 at `high`."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def trimmed(self, low: float, high: float) -> "Axis":
        """Return the axis from `low` to `high` with the ticks in between; a tick just outside is kept as its end."""
        low, high = widened(low, high)
        near = TOLERANCE * (high - low)
        low, high = (self.low if low - self.low <= near else low), (self.high if self.high - high <= near else high)
        inside = [(tick, label) for tick, label in zip(self.ticks, self.labels, strict=True) if low <= tick <= high]
        return Axis(low, high, tuple(tick for tick, _ in inside), tuple(label for _, label in inside), self.is_log)

    @property
    def gutter(self) -> int:
        """The terminal columns for the numbers beside a plot."""
        return max(len(self.labels[0]), len(self.labels[-1]))

    def beside(self, rows: Sequence[str]) -> list[str]:
        """Add the numbers of this vertical axis before the first and the last row of a terminal plot."""
        sides = [self.labels[-1], *[""] * (len(rows) - 2), self.labels[0]]
        return [f"{side:>{self.gutter}} {'┤' if side else '│'}{row}" for side, row in zip(sides, rows, strict=True)]

    def below(self, room: int) -> str:
        """Return the line of numbers below a terminal plot of `room` columns."""
        ticks = zip(self.ticks, self.labels, strict=True)
        return ruler({round(self.place(tick) * (room - 1)): text for tick, text in ticks}, room)


def linear_axis(low: float, high: float, *, count: int = 6, least_step: float = 0.0) -> Axis:
    """Return an axis whose ticks enclose the range, with about `count` steps of 1, 2 or 5 times a power of ten.

    >>> linear_axis(0.12, 0.87).labels
    ('0.0', '0.2', '0.4', '0.6', '0.8', '1.0')
    """
    low, high = widened(low, high)
    least = (high - low) / count
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - ALMOST))
    step = max(step, least_step)
    first, last = math.floor(low / step + ALMOST), math.ceil(high / step - ALMOST)
    exponent = math.floor(math.log10(step) + ALMOST)
    ticks = tuple(round(index * step, max(0, -exponent)) for index in range(first, last + 1))
    return Axis(min(low, ticks[0]), max(high, ticks[-1]), ticks, _numerals(ticks, exponent))


def log_axis(low: float, high: float) -> Axis:
    """Return an axis of powers of ten that encloses the positive range; within one decade, of round numbers.

    >>> log_axis(0.002, 3.0).labels
    ('0.001', '0.01', '0.1', '1', '10')
    """
    if high / low < 1 + ALMOST:
        low, high = low / 1.5, high * 1.5
    if high / low < 3:
        return replace(linear_axis(low, high), is_log=True)
    first, last = math.floor(math.log10(low) + ALMOST), math.ceil(math.log10(high) - ALMOST)
    stride = math.ceil((last - first) / 7)
    factors = (1, 2, 5) if last - first < 3 else (1,)
    ticks = [factor * 10.0**power for power in range(first, last + stride, stride) for factor in factors]
    below, above = max(t for t in ticks if t <= low * (1 + ALMOST)), min(t for t in ticks if t >= high * (1 - ALMOST))
    ticks = [tick for tick in ticks if below <= tick <= above]
    plain = len(ticks) < 2 or (ticks[0] > 1e-4 and ticks[-1] < 1e5)  # else all as powers, never mixed with decimals
    labels = tuple(number(tick) if plain else _without_padding(f"{tick:.0e}") for tick in ticks)
    return Axis(min(low, below), max(high, above), tuple(ticks), labels, is_log=True)


def widened(low: float, high: float) -> tuple[float, float]:
    """Return the range, widened if it has (almost) no extent."""
    largest = max(abs(low), abs(high))
    if high - low > max(ALMOST * largest, NEGLIGIBLE):
        return low, high
    middle, margin = (low + high) / 2, largest / 10 if largest > NEGLIGIBLE else 1.0
    return middle - margin, middle + margin


def _numerals(ticks: Sequence[float], exponent: int) -> tuple[str, ...]:
    largest = max(map(abs, ticks))
    if 1e-3 <= largest < 1e6:
        return tuple(f"{tick + 0.0:,.{max(0, -exponent)}f}" for tick in ticks)
    digits = max(0, math.floor(math.log10(largest)) - exponent)
    return tuple(_without_padding(f"{tick:.{digits}e}") if tick else "0" for tick in ticks)


def _without_padding(numeral: str) -> str:
    mantissa, mark, power = numeral.partition("e")
    short = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{short}e{int(power)}" if mark else numeral


def alike(values: Sequence[float]) -> tuple[str, ...]:
    """Format the numbers with the same number of decimals, as in a table.

    >>> alike([3.0, 12.0]), alike([0.5, 0.125]), alike([150.25, 2.0])
    (('3', '12'), ('0.50', '0.12'), ('150.2', '2.0'))
    """
    largest = max(map(abs, values), default=0.0)
    if all(value == round(value) for value in values) and largest < 1e6:
        return tuple(f"{value + 0.0:,.0f}" for value in values)
    if not 1e-3 <= largest < 1e5:
        return tuple(_without_padding(f"{value + 0.0:.1e}") if value else "0" for value in values)
    decimals = next(count for limit, count in DECIMALS if largest < limit)
    return tuple(f"{round(value, decimals) + 0.0:,.{decimals}f}" for value in values)


PLOT_HEIGHT = 280.0
BAR_WIDTH, BAR_HEIGHT = 160.0, 10.0  # of the color scale's legend
LEGEND_HEIGHT = 40.0
STEPS, WRITTEN_STEPS = 32, 16


class FramePoint(NamedTuple):
    """A point of the data, or its position: 0..1 along both axes, or in pixels."""

    x: float
    y: float


class Frame(NamedTuple):
    """The rectangle of the plot, from 0 down to PLOT_HEIGHT, with its two axes."""

    left: float
    right: float
    across: Axis
    upward: Axis

    @classmethod
    def around(cls, across: Axis, upward: Axis) -> Self:
        """Return the frame with room for the numbers of the vertical axis."""
        left = MARGIN + max(width_of(typeset(text), 11) for text in upward.labels) + 8
        return cls(left, WIDTH - MARGIN - 8, across, upward)

    def at(self, x: float, y: float) -> FramePoint:
        """Return the position of a point in pixels."""
        across = self.left + self.across.place(x) * (self.right - self.left)
        return FramePoint(across, PLOT_HEIGHT * (1 - self.upward.place(y)))

    def drawn(self) -> Markup:
        """Return grid lines, tick marks and their numbers."""
        marks = []
        for tick, text in zip(self.upward.ticks, self.upward.labels, strict=True):
            y = PLOT_HEIGHT * (1 - self.upward.place(tick))
            marks += [rule(self.left, y, self.right, y)]
            marks += [label(typeset(text), self.left - 8, y + 4, size=11, anchor="end", theme="soft")]
        for tick, text in zip(self.across.ticks, self.across.labels, strict=True):
            x = self.left + self.across.place(tick) * (self.right - self.left)
            marks += [rule(x, PLOT_HEIGHT, x, PLOT_HEIGHT + 5, "axis")]
            marks += [label(typeset(text), x, PLOT_HEIGHT + 18, size=11, anchor="middle", theme="soft")]
        return together([*marks, rule(self.left, PLOT_HEIGHT, self.right, PLOT_HEIGHT, "axis")])

    def named_below(self, text: str, top: float) -> Markup:
        """Return the name of the horizontal axis, for a frame that begins at `top`."""
        return axis_name(text, self.left, self.right, top + PLOT_HEIGHT + 38)


def ruler(marks: Mapping[int, str], width: int) -> str:
    """Return a line of at most `width` columns with each label near its column, without labels that would touch
    another.
    """
    line = ""
    for column, text in sorted(marks.items()):
        start = min(max(0, column - columns(text) // 2), width - columns(text))
        if start >= columns(line) + (1 if line else 0):
            line += " " * (start - columns(line)) + text
    return line


class LineLegend(NamedTuple):
    """The names of lines with a sample of each, and the required space."""

    marks: Markup
    width: float
    height: float

    @classmethod
    def of(cls, names: Sequence[str]) -> Self:
        """Return the legend, in as many rows as it needs."""
        marks, x, y, widest = [], MARGIN, 12.0, 0.0
        for index, name in enumerate(names):
            room = min(width_of(name, 12) + 4, WIDTH / 2 - 60)
            if x > MARGIN and x + 32 + room > WIDTH - MARGIN:
                x, y = MARGIN, y + 20
            marks.append(tag("path", d=f"M{x:g} {y - 4:g}h24", fill="none", stroke_width=2.5, **stroked(index)))
            marks.append(label(name, x + 30, y, room=room))
            widest = max(widest, x + 30 + room + MARGIN)
            x += 30 + room + 18
        return cls(together(marks), widest, y + 14)


def drawn_legend(scale: ColorScale, name: str, x: float, *, room: float, gaps: bool) -> Markup:
    """Return the legend of a color scale: a bar of its shades, `LEGEND_HEIGHT` high, with its left edge at `x`."""
    step = BAR_WIDTH / STEPS
    bar = []
    for index in range(STEPS):
        level = round(index * (LEVELS - 1 + scale.is_diverging) / (STEPS - 1))
        box: dict[str, str | float] = {"x": x + index * step, "y": 2, "width": step, "height": BAR_HEIGHT}
        bar.append(tag("rect", hover(scale.interval(level)), **box, **scale.shade(level).fill()))
    ends = [(0.0, scale.low, "start"), (BAR_WIDTH, scale.high, "end")]
    ends += [(BAR_WIDTH / 2, 0.0, "middle")] if scale.is_diverging else []
    marks = [label(typeset(number(value)), x + at, 25, size=11, anchor=side, theme="soft") for at, value, side in ends]
    right = x + BAR_WIDTH + 12
    swatch_width = 18 + width_of("no value", 12) + 12 if gaps else 0.0
    space = min(width_of(name, 12) + 1, x + room - right - swatch_width)
    words = [label(name, right, 11, room=space, theme="soft")] if name else []
    swatch = []
    if gaps:
        right += space + 12 if name else 0.0
        swatch = [tag("rect", x=right, y=2, width=12, height=BAR_HEIGHT, fill="none", **look("hatch"))]
        swatch += [hatched([(right, 2, 12, BAR_HEIGHT)]), label("no value", right + 18, 11, theme="soft")]
    return together([tag("g", *bar, shape_rendering="crispEdges"), *marks, *words, *swatch])


def legend_width(name: str, *, gaps: bool) -> float:
    """Return the width of a legend with its full name."""
    swatch = 18 + width_of("no value", 12) + 12 if gaps else 0.0
    return BAR_WIDTH + 12 + swatch + width_of(name, 12) + 1


def written_legend(scale: ColorScale, name: str, *, width: int, color: bool, gaps: bool) -> list[str]:
    """Return the legend as text, in as few lines of `width` columns as possible."""
    last = LEVELS - 1 + scale.is_diverging
    shades = [scale.shade(round(index * last / (WRITTEN_STEPS - 1))) for index in range(WRITTEN_STEPS)]
    ramp = "".join(shade.behind(" ") for shade in shades) if color else f"[{scale.glyphs}]"
    low, high = number(scale.low), number(scale.high)
    used = len(low) + len(high) + 2 + (WRITTEN_STEPS if color else len(ramp))
    lines = [f"{low} {ramp} {high}"]
    for part in (fit(visible(name), width), f"{NO_VALUE} no value" if gaps else ""):
        if part and used + 2 + columns(part) <= width:
            lines[-1] += f"  {isolated(part)}"
            used += 2 + columns(part)
        elif part:
            lines.append(isolated(part))
            used = columns(part)
    return lines
