"""Networks: named places in columns with lines between them: the tree of a search, the lattice of a tagger."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from seqloom.errors import DataError
from seqloom.report.figures import checks
from seqloom.report.figures.axis import typeset
from seqloom.report.figures.colors import ColorScale, scale_of
from seqloom.report.figures.figure import MARGIN, NARROWEST, Figure, FigureBlock, Plot
from seqloom.report.figures.frame import LEGEND_HEIGHT, drawn_legend, legend_width, written_legend
from seqloom.report.figures.labels import cell, columns, edged, isolated, shortened, visible, wrap
from seqloom.report.figures.markup import Markup, filled, hover, inked, label, look, stroked, tag, together, width_of
from seqloom.report.numbers import number as brief

MOST_NODES, MOST_EDGES, MOST_GROUPS = 1_500, 4_000, 12
ROW_GAP, BOX_HEIGHT, GAP, WRITTEN_GAP = 8.0, 22.0, 44.0, 64.0  # lines with words on them are longer
LINE_HEIGHT = 13.0
WIDEST_BOX, LONGEST_LABEL = 130.0, 120.0
SIZE, SMALL_SIZE = 11.0, 10.0
SHARES = (0.5, 0.35, 0.65, 0.2, 0.8)  # of a line, where what it says may stand
NUMERAL = re.compile(r"-?[\d.]+(e-?\d+)?")
DESCRIBED = 100


@dataclass(frozen=True)
class Node:
    """A place in a column and a row; `value` is its colour, `note` what is said of it when it is pointed at.

    `below` stands under the text, apart from it.
    """

    column: int
    row: float
    text: str
    value: float | None = None
    note: str = ""
    below: str = ""


@dataclass(frozen=True)
class Edge:
    """A line between two nodes, by their numbers; `group` is the number of its colour, the first the strongest."""

    start: int
    stop: int
    group: int = 0
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Network(Figure):
    """Nodes in columns with lines between them; columns and rows may have names.

    >>> nodes = [Node(0, 0, "BEGIN"), Node(1, 0, "the", 0.75), Node(1, 1, "a", 0.25)]
    >>> print(Network(title="Tree", nodes=nodes, edges=[Edge(0, 1), Edge(0, 2, 1)], groups=["best", "other"]).text(40))
    Tree
    0  BEGIN
    1  the 0.75 · a 0.25
    best: BEGIN > the
    other: BEGIN > a
    0 [ ░▒▓█] 0.75
    """

    kind: ClassVar[str] = "network"
    nodes: Sequence[Node]
    edges: Sequence[Edge]
    groups: Sequence[str] = ()  # the names of the kinds of lines
    columns: Sequence[str] = ()
    rows: Sequence[str] = ()
    value_label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "nodes", checks.instances(self.nodes, Node, "nodes"))
        object.__setattr__(self, "edges", checks.instances(self.edges, Edge, "edges"))
        checks.some(self.nodes, "nodes", largest=MOST_NODES)
        if len(self.edges) > MOST_EDGES:
            raise DataError(f"edges has {len(self.edges):,} entries, more than {MOST_EDGES:,}", fix="draw a part")
        for name in ("groups", "columns", "rows"):
            object.__setattr__(self, name, checks.labels(getattr(self, name), name))
        object.__setattr__(self, "groups", self.groups or ("",))
        checks.some(self.groups, "groups", largest=MOST_GROUPS)
        for at, edge in enumerate(self.edges):
            places = (edge.start, edge.stop)
            if not all(0 <= end < len(self.nodes) for end in places) or not 0 <= edge.group < len(self.groups):
                raise DataError(f"edges[{at}] is {edge}", fix="give nodes and a group that there are")
        checks.text(self.value_label, "value_label")

    @cached_property
    def _scale(self) -> ColorScale | None:
        known = [node.value for node in self.nodes if node.value is not None]
        return scale_of(known, None) if known else None

    @cached_property
    def _box(self) -> float:
        texts = [text for node in self.nodes for text in (edged(node.text), node.below)]
        return min(WIDEST_BOX, max(width_of(text, SIZE) for text in texts) + 14)

    @cached_property
    def _left(self) -> float:
        return MARGIN + (min(LONGEST_LABEL, max(width_of(text, 12) for text in self.rows)) + 12 if self.rows else 0)

    def _plot(self) -> Plot:
        legend, top = self._legend()
        colours = self._scale
        if colours is not None:
            key = drawn_legend(colours, self.value_label, MARGIN, room=self._legend_width - 2 * MARGIN, gaps=False)
            legend = together([legend, tag("g", key, transform=f"translate(0 {top:g})")])
            top += LEGEND_HEIGHT
        heads = [
            label(text, self._x(at) + self._box / 2, top + 12, anchor="middle", room=self._box + self._gap - 8)
            for at, text in enumerate(self.columns)
        ]
        top += 22 if self.columns else 0
        names = [
            label(text, self._left - 12, self._y(at, top) + 4, anchor="end", room=LONGEST_LABEL)
            for at, text in enumerate(self.rows)
        ]
        lines = [self._line(edge, top) for edge in sorted(self.edges, key=lambda edge: -edge.group)]
        lines += self._written_on_lines(top)
        boxes = [self._drawn(node, top) for node in self.nodes]
        width = max(NARROWEST, self._x(max(node.column for node in self.nodes)) + self._box + MARGIN)
        last = max(len(self.rows) - 1, *(node.row for node in self.nodes))
        height = top + (self._tall + ROW_GAP) * (last + 1) + 8
        return Plot(together([legend, *heads, *names, *lines, *boxes]), max(width, self._legend_width), height)

    @cached_property
    def _gap(self) -> float:
        return WRITTEN_GAP if any(edge.text for edge in self.edges) else GAP

    @cached_property
    def _tall(self) -> float:
        return BOX_HEIGHT + (LINE_HEIGHT if any(node.below for node in self.nodes) else 0.0)

    def _x(self, column: int) -> float:
        return self._left + column * (self._box + self._gap)

    def _y(self, row: float, top: float) -> float:
        return top + (self._tall + ROW_GAP) * (row + 0.5)

    def _legend(self) -> tuple[Markup, float]:
        if self.groups == ("",):
            return Markup(""), 4.0
        marks, x = [], MARGIN
        for index, name in enumerate(self.groups):
            marks.append(tag("path", d=f"M{x:g} 8h24", fill="none", stroke_width=_thickness(index), **stroked(index)))
            marks.append(label(name, x + 30, 12, room=200))
            x += 48 + min(200.0, width_of(name, 12))
        return together(marks), 26.0

    @cached_property
    def _legend_width(self) -> float:
        lines = sum(48 + min(200.0, width_of(name, 12)) for name in self.groups)
        colours = legend_width(self.value_label, gaps=False) if self._scale else 0.0
        return 2 * MARGIN + max(lines, colours)

    def _ends(self, edge: Edge, top: float) -> tuple[float, float, float, float]:
        start, stop = self.nodes[edge.start], self.nodes[edge.stop]
        left, right = self._x(start.column) + self._box, self._x(stop.column)
        return left, self._y(start.row, top), right, self._y(stop.row, top)

    def _line(self, edge: Edge, top: float) -> Markup:
        x1, y1, x2, y2 = self._ends(edge, top)
        half = self._gap / 2
        bend = f"M{x1:.1f} {y1:.1f}C{x1 + half:.1f} {y1:.1f} {x2 - half:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        return tag(
            "path",
            hover(self._said(edge)),
            d=bend,
            fill="none",
            stroke_width=_thickness(edge.group),
            **stroked(edge.group),
        )

    def _written_on_lines(self, top: float) -> list[Markup]:
        """What lines say, each once, on a ground of its own between the columns, clear of what stands there already."""
        said: dict[tuple[int, int, str], Edge] = {}
        for edge in self.edges:
            said.setdefault((edge.start, edge.stop, edge.text), edge)
        taken: list[tuple[float, float]] = []
        marks: list[Markup] = []
        for edge in said.values():
            if edge.text:
                x1, y1, x2, y2 = self._ends(edge, top)
                middle = (x1 + x2) / 2
                levels = (y1 + share * (y2 - y1) for share in SHARES)
                y = next((y for y in levels if all(x != middle or abs(y - at) >= LINE_HEIGHT for x, at in taken)), y2)
                taken.append((middle, y))
                marks += _on_ground(_printed(edge.text), middle, y, room=self._gap - 8)
        return marks

    def _drawn(self, node: Node, top: float) -> Markup:
        x, y = self._x(node.column), self._y(node.row, top) - self._tall / 2
        box: dict[str, str | float] = {"x": x, "y": y, "width": self._box, "height": self._tall, "rx": 4}
        note = hover(node.note or self._named(node))
        if node.value is None or self._scale is None:
            box |= {"stroke": look("axis")["stroke"], "stroke_width": 0.8}
            ground, looks = tag("rect", note, **box, **look("ground")), look("ink")
        else:
            shade = self._scale.shade(self._scale.level(node.value))
            ground, looks = tag("rect", note, **box, **filled(shade)), inked(shade)
        texts = [text for text in (edged(node.text), node.below) if text]
        first = y + self._tall / 2 + 4 - LINE_HEIGHT * (len(texts) - 1) / 2
        words = [
            label(
                _printed(text),
                x + self._box / 2,
                first + at * LINE_HEIGHT,
                anchor="middle",
                size=SIZE,
                looks=looks,
                room=self._box - 8,
            )
            for at, text in enumerate(texts)
        ]
        return together([ground, *words])

    def _called(self, number: int) -> str:
        """A node in a sentence: by the name of its row, where rows have names."""
        node = self.nodes[number]
        return self.rows[round(node.row)] if self.rows else node.text

    def _named(self, node: Node) -> str:
        shown = " ".join(filter(None, (edged(shortened(node.text, 60)), visible(node.below))))
        row = f"{visible(shortened(self.rows[round(node.row)], 60))} " if self.rows else ""
        return row + (shown if node.value is None else f"{shown} {brief(node.value)}")

    def _said(self, edge: Edge) -> str:
        group = f" ({shortened(self.groups[edge.group])})" if self.groups[edge.group] else ""
        more = f": {shortened(edge.text)}" if edge.text else ""
        return f"{shortened(self._called(edge.start))} to {shortened(self._called(edge.stop))}{more}{group}"

    def _summary(self) -> str:
        said = "; ".join(self._said(edge) for edge in self.edges[:DESCRIBED])
        return f"{len(self.nodes)} nodes in columns with {len(self.edges)} lines between them. {said}"

    def _block(self, width: int, colour: bool) -> FigureBlock:
        names = self.columns or tuple(map(str, range(1 + max(node.column for node in self.nodes))))
        gutter = min(width // 3, max(columns(visible(name)) for name in names))
        lines = []
        for at, name in enumerate(names):
            said = " · ".join(self._named(node) for node in self.nodes if node.column == at)
            first, *others = wrap(said, width - gutter - 2)
            lines.append(f"{cell(visible(name), gutter)}  {isolated(first)}")
            lines += [f"{'':{gutter}}  {isolated(line)}" for line in others]
        for group, name in enumerate(self.groups):
            mine = [edge for edge in self.edges if edge.group == group]
            if mine and name:
                links = ", ".join(f"{self._called(edge.start)} > {self._called(edge.stop)}" for edge in mine)
                lines += wrap(visible(f"{name}: {links}"), width)
        key = self._scale and written_legend(self._scale, self.value_label, width=width, colour=colour, gaps=False)
        return FigureBlock([*lines, *(key or [])])


def _printed(text: str) -> str:
    """The text as it stands in a picture; a numeral with a true minus sign."""
    return typeset(text) if NUMERAL.fullmatch(text) else text


def _on_ground(text: str, x: float, y: float, *, room: float) -> list[Markup]:
    """A few words with nothing behind them: lines end around them."""
    width = min(room, width_of(text, SMALL_SIZE) + 4)
    ground = tag("rect", x=x - width / 2, y=y - 6, width=width, height=12, rx=2, **look("ground"))
    return [ground, label(text, x, y + 3.5, size=SMALL_SIZE, anchor="middle", room=room)]


def _thickness(group: int) -> float:
    return 2.6 if group == 0 else 1.4 if group == 1 else 0.9
