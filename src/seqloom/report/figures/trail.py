"""Trails: places on two axes in the order in which they are reached, coloured by that order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from seqloom.report.figures import checks
from seqloom.report.figures.axis import Axis, linear_axis
from seqloom.report.figures.colors import ColorScale, on_ground
from seqloom.report.figures.figure import MARGIN, WIDTH, Figure, FigureBlock, Plot, ruler
from seqloom.report.figures.frame import LEGEND_HEIGHT, PLOT_HEIGHT, Frame, FramePoint, drawn_legend, written_legend
from seqloom.report.figures.labels import edged, fit, isolated, shortened, visible
from seqloom.report.figures.markup import Markup, axis_name, filled, hover, label, look, tag, together, width_of
from seqloom.report.numbers import number

MOST_PLACES = 2_000
LABELLED = 64  # more places are named by hovering alone
DESCRIBED = 200
SIDE, LABEL_SIZE, LONGEST_LABEL = 7.0, 11.0, 120.0
TEXT_HEIGHT = 16


@dataclass(frozen=True, kw_only=True)
class Trail(Figure):
    """Places in the order in which they are reached: the states of a model over a sentence.

    `numbers` say where in the whole each place stands; they are the scale of the colours.

    >>> print(Trail(title="States", labels=["a", "b"], x=[0, 1], y=[0, 1], numbers=[0, 1]).text(40).splitlines()[0])
    States
    """

    kind: ClassVar[str] = "trail"
    labels: Sequence[str]
    x: Sequence[float]
    y: Sequence[float]
    numbers: Sequence[float] | None = None
    x_label: str = ""
    y_label: str = ""
    value_label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "labels", checks.labels(self.labels, "labels"))
        checks.some(self.labels, "labels", largest=MOST_PLACES)
        if self.numbers is None:
            object.__setattr__(self, "numbers", tuple(range(len(self.labels))))
        for name in ("x", "y", "numbers"):
            object.__setattr__(self, name, checks.every_number(getattr(self, name), name))
            checks.same_count(getattr(self, name), name, self.labels, "labels")
        for name in ("x_label", "y_label", "value_label"):
            checks.text(getattr(self, name), name)

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
        names = [label(self.y_label, MARGIN, LEGEND_HEIGHT + 12, theme="soft", room=WIDTH - 2 * MARGIN)]
        names += [axis_name(self.x_label, frame.left, frame.right, top + PLOT_HEIGHT + 38)]
        way = "M" + "L".join(f"{place.x:.1f} {place.y:.1f}" for place in places)
        line = tag("path", d=way, fill="none", stroke_width=1.2, **look("hatch"))
        marks = [self._mark(at, place, scale) for at, place in enumerate(places)]
        words = _named(self.labels, places, frame) if len(places) <= LABELLED else []
        plot = tag("g", frame.drawn(), line, *marks, *words, transform=f"translate(0 {top:g})")
        return Plot(together([legend, *names, plot]), WIDTH, top + PLOT_HEIGHT + (50 if self.x_label else 30))

    def _mark(self, at: int, place: FramePoint, scale: ColorScale) -> Markup:
        side = SIDE if len(self.labels) <= LABELLED else SIDE / 2
        note = hover(f"{shortened(self.labels[at])} ({number(self._order[at])})")
        rim = tag("rect", **_disc(place, side + 1.5), **look("soft"))  # the first shades are those of the page
        return together(
            [rim, tag("rect", note, **_disc(place, side), **filled(scale.shade(scale.level(self._order[at]))))]
        )

    def _summary(self) -> str:
        said = [
            f"{shortened(text)} ({number(x)}, {number(y)})"
            for text, x, y in zip(self.labels, self.x, self.y, strict=True)
        ]
        more = f", and {len(said) - DESCRIBED} more" if len(said) > DESCRIBED else ""
        return (
            f"Trail over {self.x_label or 'x'} and {self.y_label or 'y'}: " + ", ".join(said[:DESCRIBED]) + more + "."
        )

    def _block(self, width: int, colour: bool) -> FigureBlock:
        (across, upward), scale = self._axes(), self._scale()
        gutter = max(len(upward.labels[0]), len(upward.labels[-1]))
        count = width - gutter - 2
        cells: list[list[str]] = [[" "] * count for _ in range(TEXT_HEIGHT)]
        for at, (x, y) in enumerate(zip(self.x, self.y, strict=True)):
            row, column = round((1 - upward.place(y)) * (TEXT_HEIGHT - 1)), round(across.place(x) * (count - 1))
            glyph = scale.glyph(self._order[at]).replace(" ", "·")  # the first places are seen too
            cells[row][column] = on_ground(" ", scale.shade(scale.level(self._order[at])).dark) if colour else glyph
        sides = [upward.labels[-1], *[""] * (TEXT_HEIGHT - 2), upward.labels[0]]
        lines = [
            f"{side:>{gutter}} {'┤' if side else '│'}{''.join(row).rstrip()}"
            for side, row in zip(sides, cells, strict=True)
        ]
        ticks = zip(across.ticks, across.labels, strict=True)
        lines.append(
            " " * (gutter + 2) + ruler({round(across.place(at) * (count - 1)): text for at, text in ticks}, count)
        )
        axes = [("x", self.x_label), ("y", self.y_label)]
        lines += [isolated(fit(f"{axis}: {visible(text)}", width)) for axis, text in axes if text]
        return FigureBlock([*lines, *written_legend(scale, self.value_label, width=width, colour=colour, gaps=False)])


def _disc(place: FramePoint, side: float) -> dict[str, str | float]:
    return {"x": place.x - side / 2, "y": place.y - side / 2, "width": side, "height": side, "rx": side / 2}


def _named(labels: Sequence[str], places: Sequence[FramePoint], frame: Frame) -> list[Markup]:
    """The labels, each beside its place and clear of those that stand already; one that finds no room is left out."""
    taken: list[tuple[float, float, float]] = []  # left, right and baseline
    drawn = []
    for text, place in zip(map(edged, labels), places, strict=True):
        width = min(LONGEST_LABEL, width_of(text, LABEL_SIZE))
        leftward = place.x + SIDE + width > frame.right
        start = place.x - SIDE - width if leftward else place.x + SIDE
        for baseline in (place.y + 4, place.y - 8, place.y + 16):
            if not any(a < start + width and start < b and abs(line - baseline) < LABEL_SIZE for a, b, line in taken):
                taken.append((start, start + width, baseline))
                edge, anchor = (start + width, "end") if leftward else (start, "start")
                drawn.append(label(text, edge, baseline, size=LABEL_SIZE, anchor=anchor, room=LONGEST_LABEL))
                break
    return drawn
