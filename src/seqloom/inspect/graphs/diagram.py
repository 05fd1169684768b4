"""A graph as a figure, and as a page with a slider that steps through values and then gradients.

Lines between boxes are as thick as the gradient on them. The left edge of a box has the color of its gradient's size;
the background shows whether a box is an input, an operation or a part that can be opened. The layout is layered from
top to bottom, with few crossings and no line through a box (a small version of Sugiyama, Tagawa and Toda 1981): a box
is one layer below the lowest box that it reads; a line that crosses layers gets its own spot in each; spots are ordered
by the mean of their neighbors, down and up a few times; then each moves toward its neighbors as far as the order
allows.

On a page each part of a model is a section, and a box with more inside opens its section. One script serves all graphs.
It finds boxes and lines by number, knows only their steps, and makes no requests, so the page works from a file. After
`#` the address has the part, and after `@` the step.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

from seqloom.errors import DataError
from seqloom.inspect.view import script
from seqloom.report.document import Interactive
from seqloom.report.figures.figure import MARGIN, NARROWEST, Figure, FigureBlock, Plot
from seqloom.report.figures.frame import LEGEND_HEIGHT, drawn_legend, legend_width, written_legend
from seqloom.report.figures.markup import (
    ColorScale,
    Markup,
    hatched,
    hover,
    label,
    look,
    scale_of,
    tag,
    together,
    width_of,
)
from seqloom.report.labels import minus_signed, shortened, visible, wrap
from seqloom.report.numbers import number as brief

SWEEPS = 8
BETWEEN, PASSING = 26.0, 18.0  # between boxes; around a line that passes


class Size(NamedTuple):
    """The size of a box."""

    width: float
    height: float


class BoxPlace(NamedTuple):
    """The middle of the upper edge of a box, or a point of a line."""

    x: float
    y: float


class GraphLayout(NamedTuple):
    """A drawing plan."""

    boxes: tuple[BoxPlace, ...]
    lines: tuple[tuple[BoxPlace, ...], ...]  # for each edge the points between its ends, in order
    width: float
    height: float


class _Spot:
    """A box, or a point where a line crosses a layer."""

    def __init__(self, layer: int, size: Size) -> None:
        self.layer, self.size = layer, size
        self.above, self.below = list[_Spot](), list[_Spot]()
        self.x = 0.0
        self.order = 0.0


def layered(sizes: Sequence[Size], edges: Sequence[tuple[int, int]], *, gap: float) -> GraphLayout:
    """Return positions for boxes whose edges lead from earlier to later ones; `gap` is the height between layers."""
    spots = [_Spot(layer, size) for layer, size in zip(_layers(len(sizes), edges), sizes, strict=True)]
    chains = [_chain(spots[source], spots[target]) for source, target in edges]
    every = [*spots, *(spot for chain in chains for spot in chain)]
    layers = _ordered(every)
    _placed(layers)
    left = min(spot.x - spot.size.width / 2 for spot in every)
    width = max(spot.x + spot.size.width / 2 for spot in every) - left
    tops, ends, y = [], [], 0.0  # y at which each layer begins and ends
    for layer in layers:
        tops.append(y)
        ends.append(y + max((spot.size.height for spot in layer), default=0.0))
        y = ends[-1] + gap
    boxes = tuple(BoxPlace(spot.x - left, tops[spot.layer]) for spot in spots)
    lines = tuple(
        (
            BoxPlace(spots[source].x - left, ends[spots[source].layer]),  # below taller boxes of the same layer
            *(BoxPlace(spot.x - left, edge[spot.layer]) for spot in chain for edge in (tops, ends)),
        )
        for (source, _), chain in zip(edges, chains, strict=True)
    )
    return GraphLayout(boxes, lines, width, ends[-1])


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each box: below all that it reads; a box without inputs is just above its first reader."""
    layers, reads, first = [0] * count, [False] * count, dict[int, int]()
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        layers[target] = max(layers[target], layers[source] + 1)
        reads[target] = True
    for source, target in edges:
        first[source] = min(first.get(source, count), layers[target])
    return [layers[at] if reads[at] else max(0, first.get(at, 1) - 1) for at in range(count)]


def _chain(source: _Spot, target: _Spot) -> list[_Spot]:
    """Return the spots that a line passes, linked to each other and to its ends."""
    passed = [_Spot(layer, Size(PASSING, 0.0)) for layer in range(source.layer + 1, target.layer)]
    for upper, lower in zip([source, *passed], [*passed, target], strict=True):
        upper.below.append(lower)
        lower.above.append(upper)
    return passed


def _ordered(every: Sequence[_Spot]) -> list[list[_Spot]]:
    layers: list[list[_Spot]] = [[] for _ in range(1 + max(spot.layer for spot in every))]
    for spot in every:
        layers[spot.layer].append(spot)
    for sweep in range(SWEEPS):
        _number(layers)
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            for spot in layer:
                near = spot.above if down else spot.below
                spot.order = sum(one.order for one in near) / len(near) if near else spot.order
            layer.sort(key=lambda spot: spot.order)
            _number([layer])
    return layers


def _number(layers: Sequence[Sequence[_Spot]]) -> None:
    for layer in layers:
        for at, spot in enumerate(layer):
            spot.order = at - (len(layer) - 1) / 2


def _placed(layers: Sequence[list[_Spot]]) -> None:
    """Set the x of every spot: close to the mean of its neighbors, in order, without overlap."""
    for layer in layers:
        _spread(layer, [spot.order * (spot.size.width + BETWEEN) for spot in layer])
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            wanted = []
            for spot in layer:
                near = (spot.above if down else spot.below) or [spot]
                wanted.append(sum(one.x for one in near) / len(near))
            _spread(layer, wanted)


def _spread(layer: Sequence[_Spot], wanted: Sequence[float]) -> None:
    """Move spots as close to `wanted` as the order allows: colliding neighbors are centered around their mean."""
    clusters: list[tuple[list[int], float]] = []  # the spots, and the position of the first one
    offsets = [0.0]
    for left, right in pairwise(layer):
        offsets.append(offsets[-1] + (left.size.width + right.size.width) / 2 + BETWEEN)
    for at, wish in enumerate(wanted):
        clusters.append(([at], wish - offsets[at]))
        while len(clusters) > 1 and clusters[-2][1] > clusters[-1][1]:
            (later, second), (earlier, first) = clusters.pop(), clusters.pop()
            total = len(earlier) + len(later)
            clusters.append(([*earlier, *later], (first * len(earlier) + second * len(later)) / total))
    for members, start in clusters:
        for at in members:
            layer[at].x = start + offsets[at]


MOST_CARDS = 300  # more are hard to follow, and a browser stays fast below 5,000 elements
GAP = 46.0  # between two layers
LINE, TITLE_SIZE, TEXT_SIZE = 16.0, 12.5, 11.0
NARROW_CARD, WIDE_CARD = 96.0, 230.0
SIDE = 6.0  # the strip in the gradient's color
THINNEST, THICKEST = 1.0, 9.0
APART = 36.0  # between the numbers of two lines


class NodeCard(NamedTuple):
    """A box: its operation, its value and its gradient."""

    name: str
    value: str
    slope: str  # its gradient as text; empty without one
    size: float | None  # of the gradient, for the color; finite
    badge: str = ""  # its weights, and their gradients
    note: str = ""  # the full text, on hover
    opens: str = ""  # the part that it opens
    is_input: bool = False


class NodeLink(NamedTuple):
    """A line from one card to a later one."""

    source: int
    target: int
    size: float | None  # of the gradient on it
    note: str = ""
    local: str = ""  # the local derivative as text: d target / d source


@dataclass(frozen=True, kw_only=True)
class Diagram(Figure):
    """Boxes in layers, from the inputs at the top to the result at the bottom.

    Colors and lines begin at zero and end at the largest gradient, or at that of `span` if several diagrams share one.
    """

    kind: ClassVar[str] = "diagram"
    cards: Sequence[NodeCard]
    links: Sequence[NodeLink]
    size_label: str = "gradient norm"
    span: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.cards) <= MOST_CARDS:
            raise DataError(
                f"{len(self.cards):,} boxes are too many for a diagram", fix=f"draw 1 to {MOST_CARDS}, or open a part"
            )
        if any(not 0 <= link.source < link.target < len(self.cards) for link in self.links):
            raise DataError(
                "a link of a diagram points to an earlier box", fix="list the boxes in the order of computation"
            )

    def _scale(self) -> ColorScale:
        return scale_of((card.size for card in self.cards), self.span)

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
        placed = enumerate(zip(self.cards, layout.boxes, sizes, strict=True))
        boxes = [_drawn(at, card, place, size, scale) for at, (card, place, size) in placed]
        drawn = tag("g", *self._lines(layout, sizes), *boxes, transform=shift)
        notes = ("Thicker lines carry more gradient back.",) if self.links else ()
        if any(link.local for link in self.links):
            notes = (*notes, "Numbers on lines: local derivatives, of the lower box by the upper one.")
        return Plot(together([legend, drawn]), width, LEGEND_HEIGHT + 6 + layout.height + 14, notes)

    def _lines(self, layout: GraphLayout, sizes: Sequence[Size]) -> list[Markup]:
        largest = max((link.size or 0.0 for link in self.links), default=0.0) if self.span is None else self.span[1]
        drawn, names, taken = list[Markup](), list[Markup](), list[BoxPlace]()
        for at, (link, between) in enumerate(zip(self.links, layout.lines, strict=True)):
            start, end = layout.boxes[link.source], layout.boxes[link.target]
            start = start._replace(y=start.y + sizes[link.source].height)
            share = math.sqrt((link.size or 0.0) / largest) if largest else 0.0
            thick = THINNEST + (THICKEST - THINNEST) * share
            note = [hover(link.note)] if link.note else []
            path = _curve([start, *between, end])
            looks = {**look("hatch"), "fill": "none", "stroke_linecap": "round"}
            drawn.append(tag("path", *note, d=path, stroke_width=thick, data_link=at, **looks))
            if link.local:
                before = between[-1] if between else start
                place = _free(before, end, taken)
                taken.append(place)
                names.append(_beside(link.local, place.x, place.y + 4))
        return drawn + names  # no line crosses a number

    def _summary(self) -> str:
        shown = "; ".join(f"{card.name} {card.value} {card.slope}".strip() for card in self.cards[:40])
        more = f"; and {len(self.cards) - 40} more" if len(self.cards) > 40 else ""
        return f"Graph with {len(self.cards)} boxes and {len(self.links)} links: {shown}{more}."

    def _block(self, width: int, color: bool) -> FigureBlock:
        lines = []
        for at, card in enumerate(self.cards):
            read = [_read(self.cards[link.source].name, link.local) for link in self.links if link.target == at]
            from_ = f"  <- {', '.join(read)}" if read else ""
            summary = "  ".join(part for part in (card.name, card.value, card.slope, card.badge) if part)
            glyph = self._scale().glyph(card.size)
            first, *rest = wrap(visible(shortened(summary + from_)), width - 2)
            lines += [f"{glyph} {first}", *(f"  {line}" for line in rest)]
        legend = written_legend(self._scale(), self.size_label, width=width, color=color, gaps=self._has_gaps)
        return FigureBlock([*lines, *legend])


def _texts(card: NodeCard) -> list[tuple[str, float, str]]:
    """Return the lines of a box: text, size, and the pass that shows it."""
    named, passed = (card.name, TITLE_SIZE, "name"), (card.value, TEXT_SIZE, "value")
    back = [(text, TEXT_SIZE, "slope") for text in (card.slope, card.badge)]
    return [line for line in (named, passed, *back) if line[0]]


def _size(card: NodeCard) -> Size:
    texts = _texts(card)
    widest = max(width_of(text, size) for text, size, _ in texts)
    return Size(min(WIDE_CARD, max(NARROW_CARD, widest + SIDE + 22)), LINE * len(texts) + 10)


def _drawn(at: int, card: NodeCard, place: BoxPlace, size: Size, scale: ColorScale) -> Markup:
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
    x, y, height = left + 4, place.y + 5, size.height - 10
    if card.size is None:
        strip = hatched([(x, y + step, SIDE, 6.0) for step in range(0, int(height) - 5, 6)])
    else:
        side: dict[str, str | float] = {"x": x, "y": y, "width": SIDE, "height": height}
        title = hover(f"{card.name}: {brief(card.size)}")
        strip = tag("g", tag("rect", title, **side, **scale.shade_of(card.size).fill()), data_shows="slope")
    return tag("g", *note, ground, strip, frame, *lines, data_card=at, **reader)


def _free(start: BoxPlace, end: BoxPlace, taken: Sequence[BoxPlace]) -> BoxPlace:
    """Return the place on a line that is nearest to its middle and far enough from the numbers of other lines."""
    for share in (0.5, 0.32, 0.68, 0.2, 0.8):
        # The curve leaves and enters vertically: its control points have the x of the ends and the y of the middle
        x = start.x + (end.x - start.x) * (3 * share**2 - 2 * share**3)
        y = start.y + (end.y - start.y) * (share**3 + (1 - share) * share * 1.5)
        if all(abs(x - one.x) > APART or abs(y - one.y) > LINE for one in taken):
            return BoxPlace(x, y)
    return BoxPlace((start.x + end.x) / 2, (start.y + end.y) / 2)


def _read(name: str, local: str) -> str:
    return f"{name} (local derivative {local})" if local else name


def _beside(local: str, x: float, y: float) -> Markup:
    """Return the local derivative of a line on the background, so that it can be read on the line."""
    wide, text = width_of(minus_signed(local), TEXT_SIZE) + 6, minus_signed(local)
    ground = tag("rect", x=x - wide / 2, y=y - 11, width=wide, height=15, rx=3, **look("ground"))
    return together([ground, label(text, x, y, size=TEXT_SIZE, anchor="middle")])


def _curve(points: Sequence[BoxPlace]) -> str:
    """Return a path through the points that is vertical at each of them."""
    first, *rest = points
    drawn, (x, y) = f"M{first.x:.1f} {first.y:.1f}", first
    for point in rest:
        middle = (y + point.y) / 2
        drawn += f"C{x:.1f} {middle:.1f} {point.x:.1f} {middle:.1f} {point.x:.1f} {point.y:.1f}"
        x, y = point
    return drawn


RULES = (
    ".walk{display:flex;gap:12px;align-items:center;margin:16px 0 8px}.walk input{flex:1;max-width:640px}"
    ".told{min-height:3.2em;white-space:pre-wrap;font-size:16px}.way{display:flex;flex-wrap:wrap;gap:6px}"
    "[data-card].now>rect{stroke-width:3}[data-opens]{cursor:pointer}[data-opens]:focus{outline:2px solid #1c66be}"
    "section[hidden]{display:none}section h2{margin:12px 0}section figure{margin:0 -20px}"
)


class WalkStep(NamedTuple):
    """One step of the walk: a box gets its value or its gradient."""

    card: int
    shows: str  # value, slope
    text: str


class WalkPart(NamedTuple):
    """One section of the page."""

    name: str  # boxes link to this name; empty for the complete graph
    said: Sequence[str]
    figures: Sequence[Figure]
    steps: Sequence[WalkStep]
    way: Sequence[tuple[str, str]] = ()  # (text, part) links to parents and neighbors


@dataclass(frozen=True)
class GraphWalk(Interactive):
    """A section for each part, the first one open; without a script all are visible."""

    rules: ClassVar[str] = RULES
    parts: Sequence[WalkPart]

    def markup(self) -> list[Markup]:
        return [_section(part) for part in self.parts]

    def script(self) -> str:
        return script("graph_walk.js")

    def data(self) -> Mapping[str, Any]:
        return {"parts": [{"name": part.name, "steps": [step._asdict() for step in part.steps]} for part in self.parts]}


def _section(part: WalkPart) -> Markup:
    way = [tag("button", words, type="button", data_opens=to) for words, to in part.way]
    count = len(part.steps)
    slider = tag(
        "input", type="range", min=0, max=count, value=count, aria_label="step: forward pass, then backward pass"
    )
    back = tag("button", "◀", type="button", data_move=-1, aria_label="previous step")
    on = tag("button", "▶", type="button", data_move=1, aria_label="next step")
    walk = [tag("div", back, slider, on, class_="walk"), tag("p", " ", class_="told", aria_live="polite")]
    inside = [
        *([tag("nav", *way, class_="way")] if way else []),
        *([tag("h2", part.name)] if part.name else []),
        *(tag("p", sentence) for sentence in part.said),
        *(walk if part.steps else []),
        *(tag("figure", figure.drawn(styled=False)) for figure in part.figures),
    ]
    return tag("section", *inside)
