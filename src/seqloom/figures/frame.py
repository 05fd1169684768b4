"""The frame of a plot: a rectangle with two axes, their grid lines and their numbers."""

from typing import NamedTuple, Self

from seqloom.figures.axis import Axis, typeset
from seqloom.figures.figure import MARGIN, WIDTH
from seqloom.figures.markup import Markup, label, rule, together, width_of

PLOT_HEIGHT = 280.0


class Point(NamedTuple):
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

    def at(self, x: float, y: float) -> Point:
        """The place of a point in pixels."""
        across = self.left + self.across.place(x) * (self.right - self.left)
        return Point(across, PLOT_HEIGHT * (1 - self.upward.place(y)))

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
