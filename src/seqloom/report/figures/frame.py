"""The frame of a plot: a rectangle with two axes, their grid lines and their numbers."""

from typing import NamedTuple, Self

from seqloom.report.figures.axis import Axis, typeset
from seqloom.report.figures.colors import LEVELS, NO_VALUE, ColorScale, on_ground
from seqloom.report.figures.figure import MARGIN, WIDTH
from seqloom.report.figures.labels import columns, fit, isolated, visible
from seqloom.report.figures.markup import Markup, filled, hatched, hover, label, look, rule, tag, together, width_of
from seqloom.report.numbers import number

PLOT_HEIGHT = 280.0


class FramePoint(NamedTuple):
    """A point of the data, or its place: between 0 and 1 along both axes, or in pixels."""

    x: float
    y: float


class Frame(NamedTuple):
    """The rectangle of the plot, from 0 down to PLOT_HEIGHT, with the two axes that fill it."""

    left: float
    right: float
    across: Axis
    upward: Axis

    @classmethod
    def around(cls, across: Axis, upward: Axis) -> Self:
        """The frame with room for the numbers of the upward axis beside it."""
        left = MARGIN + max(width_of(typeset(text), 11) for text in upward.labels) + 8
        return cls(left, WIDTH - MARGIN - 8, across, upward)

    def at(self, x: float, y: float) -> FramePoint:
        """The place of a point in pixels."""
        across = self.left + self.across.place(x) * (self.right - self.left)
        return FramePoint(across, PLOT_HEIGHT * (1 - self.upward.place(y)))

    def drawn(self) -> Markup:
        """Grid lines, tick marks and their numbers."""
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


# The key to a colour scale: a bar of its shades with the numbers at its ends, in a picture and in a terminal.

BAR_WIDTH, BAR_HEIGHT = 160.0, 10.0
LEGEND_HEIGHT = 40.0
STEPS, WRITTEN_STEPS = 32, 16


def drawn_legend(scale: ColorScale, name: str, x: float, *, room: float, gaps: bool) -> Markup:
    """The legend as a picture, `LEGEND_HEIGHT` high, with its left edge at `x`."""
    step = BAR_WIDTH / STEPS
    levels = [round(index * (LEVELS - 1 + scale.is_diverging) / (STEPS - 1)) for index in range(STEPS)]
    bar = (
        tag(
            "rect",
            hover(scale.interval(level)),
            x=x + index * step,
            y=2,
            width=step,
            height=BAR_HEIGHT,
            **filled(scale.shade(level)),
        )
        for index, level in enumerate(levels)
    )
    ends = [(0.0, scale.low, "start"), (BAR_WIDTH, scale.high, "end")]
    ends += [(BAR_WIDTH / 2, 0.0, "middle")] if scale.is_diverging else []
    marks = [label(typeset(number(value)), x + at, 25, size=11, anchor=side, theme="soft") for at, value, side in ends]
    right = x + BAR_WIDTH + 12
    swatch = [_swatch(right), label("no value", right + 18, 11, theme="soft")] if gaps else []
    right += 18 + width_of("no value", 12) + 12 if gaps else 0
    words = [label(name, right, 11, room=x + room - right, theme="soft")] if name else []
    return together([tag("g", *bar, shape_rendering="crispEdges"), *marks, *swatch, *words])


def legend_width(name: str, *, gaps: bool) -> float:
    """The room that a legend needs to say all of its name."""
    swatch = 18 + width_of("no value", 12) + 12 if gaps else 0.0
    return BAR_WIDTH + 12 + swatch + width_of(name, 12) + 1


def _swatch(x: float) -> Markup:
    box = tag("rect", x=x, y=2, width=12, height=BAR_HEIGHT, fill="none", **look("hatch"))
    return together([box, hatched([(x, 2, 12, BAR_HEIGHT)])])


def written_legend(scale: ColorScale, name: str, *, width: int, colour: bool, gaps: bool) -> list[str]:
    """The legend as one line, or as few as keep to `width` columns."""
    last = LEVELS - 1 + scale.is_diverging
    shades = [scale.shade(round(index * last / (WRITTEN_STEPS - 1))).dark for index in range(WRITTEN_STEPS)]
    ramp = "".join(on_ground(" ", shade) for shade in shades) if colour else f"[{scale.glyphs}]"
    low, high = number(scale.low), number(scale.high)
    used = len(low) + len(high) + 2 + (WRITTEN_STEPS if colour else len(ramp))
    lines = [f"{low} {ramp} {high}"]
    for part in (fit(visible(name), width), f"{NO_VALUE} no value" if gaps else ""):
        if part and used + 2 + columns(part) <= width:
            lines[-1] += f"  {isolated(part)}"
            used += 2 + columns(part)
        elif part:
            lines.append(isolated(part))
            used = columns(part)
    return lines
