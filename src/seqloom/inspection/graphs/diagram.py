"""A graph as a figure: boxes with their lines of text, joined by lines as thick as the gradient that comes back there.

The side of a box has the colour of its gradient's size, as the legend says; the ground of a box tells an input from an
operation and from a part that can be opened. Boxes and lines carry numbers that the script of a page finds them by.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from seqloom.errors import DataError
from seqloom.figures.axis import brief, minus_signed
from seqloom.figures.colours import Scale, scale_of
from seqloom.figures.figure import MARGIN, NARROWEST, Block, Figure, Plot
from seqloom.figures.legend import LEGEND_HEIGHT, drawn_legend, legend_width, written_legend
from seqloom.figures.markup import Markup, filled, hatched, hover, label, look, tag, together, width_of
from seqloom.figures.words import shortened, visible, wrap
from seqloom.inspection.graphs.layout import Layout, Place, Size, layered

MOST_CARDS = 300  # more cannot be followed by eye, and a browser stays quick below 5,000 elements
GAP = 46.0  # between two layers
LINE, TITLE_SIZE, TEXT_SIZE = 16.0, 12.5, 11.0
NARROW_CARD, WIDE_CARD = 96.0, 230.0
SIDE = 6.0  # the strip that has the gradient's colour
THINNEST, THICKEST = 1.0, 9.0


class Card(NamedTuple):
    """A box: what it is, what it holds, what comes back to it."""

    name: str
    value: str
    slope: str  # its gradient, written; empty where it has none
    size: float | None  # of the gradient: what colour stands for; finite
    badge: str = ""  # its weights, and what comes back to them
    note: str = ""  # the whole of it, on hover
    opens: str = ""  # the part that it leads to
    is_input: bool = False


class Link(NamedTuple):
    """A line from one card to a later one."""

    source: int
    target: int
    size: float | None  # of the gradient that comes back on it
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Diagram(Figure):
    """Boxes in layers, from what is given at the top to the result at the bottom."""

    kind: ClassVar[str] = "diagram"
    cards: Sequence[Card]
    links: Sequence[Link]
    size_label: str = "size of the gradient"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.cards) <= MOST_CARDS:
            raise DataError(f"a diagram of {len(self.cards):,} boxes", fix=f"draw 1 to {MOST_CARDS}, or open a part")
        if any(not 0 <= link.source < link.target < len(self.cards) for link in self.links):
            raise DataError("a line of a diagram leads from a box to an earlier one", fix="order them as computed")

    def _scale(self) -> Scale:
        return scale_of(card.size for card in self.cards)

    @property
    def _has_gaps(self) -> bool:
        return any(card.size is None for card in self.cards)

    def _plot(self) -> Plot:
        sizes = [_size(card) for card in self.cards]
        layout = layered(sizes, [(link.source, link.target) for link in self.links], gap=GAP)
        legend_room = legend_width(self.size_label, gaps=self._has_gaps)
        width = max(NARROWEST, max(layout.width, legend_room) + 2 * MARGIN)
        scale = self._scale()
        legend = drawn_legend(scale, self.size_label, MARGIN, room=width - 2 * MARGIN, gaps=self._has_gaps)
        shift = f"translate({(width - layout.width) / 2:g} {LEGEND_HEIGHT + 6:g})"
        drawn = tag("g", *self._lines(layout, sizes), *self._boxes(layout, sizes, scale), transform=shift)
        notes = ("Thicker lines bring back more gradient.",) if self.links else ()
        return Plot(together([legend, drawn]), width, LEGEND_HEIGHT + 6 + layout.height + 14, notes)

    def _lines(self, layout: Layout, sizes: Sequence[Size]) -> list[Markup]:
        largest = max((link.size or 0.0 for link in self.links), default=0.0)
        drawn = []
        for at, (link, between) in enumerate(zip(self.links, layout.lines, strict=True)):
            start, end = layout.boxes[link.source], layout.boxes[link.target]
            start = start._replace(y=start.y + sizes[link.source].height)
            share = math.sqrt((link.size or 0.0) / largest) if largest else 0.0
            thick = THINNEST + (THICKEST - THINNEST) * share
            note = [hover(link.note)] if link.note else []
            path = _curve([start, *between, end])
            looks = {**look("hatch"), "fill": "none", "stroke_linecap": "round"}
            drawn.append(tag("path", *note, d=path, stroke_width=thick, data_link=at, **looks))
        return drawn

    def _boxes(self, layout: Layout, sizes: Sequence[Size], scale: Scale) -> list[Markup]:
        every = zip(self.cards, layout.boxes, sizes, strict=True)
        return [_drawn(at, card, place, size, scale) for at, (card, place, size) in enumerate(every)]

    def _summary(self) -> str:
        shown = "; ".join(f"{card.name} {card.value} {card.slope}".strip() for card in self.cards[:40])
        more = f"; and {len(self.cards) - 40} more" if len(self.cards) > 40 else ""
        return f"Graph of {len(self.cards)} boxes and {len(self.links)} lines: {shown}{more}."

    def _block(self, width: int, colour: bool) -> Block:
        lines = []
        for at, card in enumerate(self.cards):
            read = [self.cards[link.source].name for link in self.links if link.target == at]
            from_ = f"  <- {', '.join(read)}" if read else ""
            told = "  ".join(part for part in (card.name, card.value, card.slope, card.badge) if part)
            glyph = self._scale().glyph(card.size)
            first, *rest = wrap(visible(shortened(told + from_)), width - 2)
            lines += [f"{glyph} {first}", *(f"  {line}" for line in rest)]
        legend = written_legend(self._scale(), self.size_label, width=width, colour=colour, gaps=self._has_gaps)
        return Block([*lines, *legend])


def _texts(card: Card) -> list[tuple[str, float, str]]:
    """The lines of a box: text, size, and which pass brings it."""
    named, passed = (card.name, TITLE_SIZE, "name"), (card.value, TEXT_SIZE, "value")
    back = [(text, TEXT_SIZE, "slope") for text in (card.slope, card.badge)]
    return [line for line in (named, passed, *back) if line[0]]


def _size(card: Card) -> Size:
    texts = _texts(card)
    widest = max(width_of(text, size) for text, size, _ in texts)
    return Size(min(WIDE_CARD, max(NARROW_CARD, widest + SIDE + 22)), LINE * len(texts) + 10)


def _drawn(at: int, card: Card, place: Place, size: Size, scale: Scale) -> Markup:
    left = place.x - size.width / 2
    box: dict[str, str | float] = {"x": left, "y": place.y, "width": size.width, "height": size.height}
    border: dict[str, str | float] = {"stroke_width": 2.0 if card.opens else 1.0, "rx": 9 if card.is_input else 3}
    ground = tag("rect", **box, **look("ground"))
    frame = tag("rect", fill="none", **box, **border, **look("axis" if card.opens else "hatch"))
    lines = [
        tag(
            "g",
            label(
                text if kind == "name" else minus_signed(text),
                left + SIDE + 12,
                place.y + 18 + LINE * row,
                size=letters,
                room=size.width - SIDE - 18,
                theme="ink" if kind == "name" else "soft",
            ),
            data_shows=kind,
        )
        for row, (text, letters, kind) in enumerate(_texts(card))
    ]
    reader = {"role": "button", "tabindex": "0", "data_opens": card.opens} if card.opens else {}
    note = [hover(card.note)] if card.note else []
    return tag("g", *note, ground, _strip(card, left, place.y, size, scale), frame, *lines, data_card=at, **reader)


def _strip(card: Card, left: float, top: float, size: Size, scale: Scale) -> Markup:
    x, y, height = left + 4, top + 5, size.height - 10
    if card.size is None:
        return hatched([(x, y + step, SIDE, 6.0) for step in range(0, int(height) - 5, 6)])
    box: dict[str, str | float] = {"x": x, "y": y, "width": SIDE, "height": height}
    said = hover(f"{card.name}: {brief(card.size)}")
    return tag("g", tag("rect", said, **box, **filled(scale.shade(scale.level(card.size)))), data_shows="slope")


def _curve(points: Sequence[Place]) -> str:
    """A path through the points that leaves and meets every one of them straight down."""
    first, *rest = points
    drawn, (x, y) = f"M{first.x:.1f} {first.y:.1f}", first
    for point in rest:
        middle = (y + point.y) / 2
        drawn += f"C{x:.1f} {middle:.1f} {point.x:.1f} {middle:.1f} {point.x:.1f} {point.y:.1f}"
        x, y = point
    return drawn
