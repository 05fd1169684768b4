"""Networks: nodes in columns with edges (a search tree, the lattice of a tagger), or two linked columns of tokens."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from seqloom.errors import DataError
from seqloom.report.figures.figure import MARGIN, NARROWEST, Figure, FigureBlock, Plot, checked_instances, every_number
from seqloom.report.figures.frame import LEGEND_HEIGHT, LineLegend, drawn_legend, legend_width, written_legend
from seqloom.report.figures.markup import (
    ColorScale,
    Markup,
    hover,
    label,
    look,
    scale_of,
    stroked,
    tag,
    together,
    width_of,
)
from seqloom.report.labels import cell, columns, edged, isolated, shortened, typeset, visible, wrap
from seqloom.report.numbers import number

MOST_NODES, MOST_EDGES, MOST_GROUPS = 1_500, 4_000, 12
ROW_GAP, BOX_HEIGHT, GAP, WRITTEN_GAP = 8.0, 22.0, 44.0, 64.0  # edges with labels are longer
LINE_HEIGHT = 13.0
WIDEST_BOX, LONGEST_LABEL = 200.0, 120.0
SIZE, SMALL_SIZE = 11.0, 10.0
SHARES = (0.5, 0.35, 0.65, 0.2, 0.8)  # positions along an edge where its label may be
NUMERAL = re.compile(r"-?[\d.]+(e-?\d+)?")
DESCRIBED = 100
MOST_TOKENS, MOST_LINKS, MOST_LINK_GROUPS = 512, 4_000, 24
ROW_HEIGHT, LOW_ROW, BETWEEN = 18.0, 12.0, 300.0  # height of a token, of one of many; distance of the two columns
MANY = 64
LONGEST_TOKEN = 200.0
THINNEST, THICKEST = 0.6, 4.0
LANE, BETWEEN_ROWS = 4.0, 4.0  # between two groups at one token; free between two tokens
FAINTEST = 0.25
HOVERED_LINKS, STEPS = 300, 8  # more links are drawn in this many steps of thickness, without tooltips


@dataclass(frozen=True)
class Node:
    """A node at a column and a row; `value` is its color, `note` its tooltip.

    `below` is a second line under the text.
    """

    column: int
    row: float
    text: str
    value: float | None = None
    note: str = ""
    below: str = ""


@dataclass(frozen=True)
class Edge:
    """An edge between two nodes, by index; `group` is the index of its color, the first the strongest."""

    start: int
    stop: int
    group: int = 0
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Network(Figure, kind="network"):
    """Nodes in columns with edges between them; columns and rows may have names.

    >>> nodes = [Node(0, 0, "BEGIN"), Node(1, 0, "the", 0.75), Node(1, 1, "a", 0.25)]
    >>> print(Network(title="Tree", nodes=nodes, edges=[Edge(0, 1), Edge(0, 2, 1)], groups=["best", "other"]).text(40))
    Tree
    0  BEGIN
    1  the 0.75 · a 0.25
    best: BEGIN > the
    other: BEGIN > a
    0 [ ░▒▓█] 0.75
    """

    nodes: Sequence[Node]
    edges: Sequence[Edge]
    groups: Sequence[str] = ()  # names of the kinds of edges
    columns: Sequence[str] = ()
    rows: Sequence[str] = ()
    value_label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_parts("nodes", Node, largest=MOST_NODES)
        self._check_parts("edges", Edge)
        if len(self.edges) > MOST_EDGES:
            raise DataError(f"edges has {len(self.edges):,} entries, more than {MOST_EDGES:,}", fix="draw a part")
        object.__setattr__(self, "groups", self.groups or ("",))
        self._check_labels("groups", largest=MOST_GROUPS)
        self._check_labels("columns", "rows")
        for at, edge in enumerate(self.edges):
            places = (edge.start, edge.stop)
            if not all(0 <= end < len(self.nodes) for end in places) or not 0 <= edge.group < len(self.groups):
                raise DataError(f"edges[{at}] is {edge}", fix="use existing nodes and groups")

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
        colors = self._scale
        if colors is not None:
            key = drawn_legend(colors, self.value_label, MARGIN, room=self._legend_width - 2 * MARGIN, gaps=False)
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
        colors = legend_width(self.value_label, gaps=False) if self._scale else 0.0
        return 2 * MARGIN + max(lines, colors)

    def _ends(self, edge: Edge, top: float) -> tuple[float, float, float, float]:
        start, stop = self.nodes[edge.start], self.nodes[edge.stop]
        left, right = self._x(start.column) + self._box, self._x(stop.column)
        return left, self._y(start.row, top), right, self._y(stop.row, top)

    def _line(self, edge: Edge, top: float) -> Markup:
        x1, y1, x2, y2 = self._ends(edge, top)
        half = self._gap / 2
        bend = f"M{x1:.1f} {y1:.1f}C{x1 + half:.1f} {y1:.1f} {x2 - half:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        looks: dict[str, str | float] = {"stroke_width": _thickness(edge.group), **stroked(edge.group)}
        return tag("path", hover(self._described(edge)), d=bend, fill="none", **looks)

    def _written_on_lines(self, top: float) -> list[Markup]:
        """Return the labels of edges, each once, on a background between the columns, without overlaps."""
        labeled: dict[tuple[int, int, str], Edge] = {}
        for edge in self.edges:
            labeled.setdefault((edge.start, edge.stop, edge.text), edge)
        taken: list[tuple[float, float]] = []
        marks: list[Markup] = []
        for edge in labeled.values():
            if edge.text:
                x1, y1, x2, y2 = self._ends(edge, top)
                middle = (x1 + x2) / 2
                levels = (y1 + share * (y2 - y1) for share in SHARES)
                y = next((y for y in levels if all(x != middle or abs(y - at) >= LINE_HEIGHT for x, at in taken)), y2)
                taken.append((middle, y))
                text, room = _printed(edge.text), self._gap - 8
                width = min(room, width_of(text, SMALL_SIZE) + 4)
                marks.append(tag("rect", x=middle - width / 2, y=y - 6, width=width, height=12, rx=2, **look("ground")))
                marks.append(label(text, middle, y + 3.5, size=SMALL_SIZE, anchor="middle", room=room))
        return marks

    def _drawn(self, node: Node, top: float) -> Markup:
        x, y = self._x(node.column), self._y(node.row, top) - self._tall / 2
        box: dict[str, str | float] = {"x": x, "y": y, "width": self._box, "height": self._tall, "rx": 4}
        note = hover(node.note or self._named(node))
        if node.value is None or self._scale is None:
            box |= {"stroke": look("axis")["stroke"], "stroke_width": 0.8}
            ground, looks = tag("rect", note, **box, **look("ground")), look("ink")
        else:
            shade = self._scale.shade_of(node.value)
            ground, looks = tag("rect", note, **box, **shade.fill()), shade.ink()
        texts = [text for text in (edged(node.text), node.below) if text]
        first = y + self._tall / 2 + 4 - LINE_HEIGHT * (len(texts) - 1) / 2
        middle, room, words = x + self._box / 2, self._box - 8, []
        for at, text in enumerate(texts):
            line = first + at * LINE_HEIGHT
            words.append(label(_printed(text), middle, line, anchor="middle", size=SIZE, looks=looks, room=room))
        return together([ground, *words])

    def _called(self, at: int) -> str:
        """Return the name of a node in a sentence, with the name of its row if rows have names."""
        node = self.nodes[at]
        return self.rows[round(node.row)] if self.rows else node.text

    def _named(self, node: Node) -> str:
        shown = " ".join(filter(None, (edged(shortened(node.text, 60)), visible(node.below))))
        row = f"{visible(shortened(self.rows[round(node.row)], 60))} " if self.rows else ""
        return row + (shown if node.value is None else f"{shown} {number(node.value)}")

    def _described(self, edge: Edge) -> str:
        group = f" ({shortened(self.groups[edge.group])})" if self.groups[edge.group] else ""
        more = f": {shortened(edge.text)}" if edge.text else ""
        return f"{shortened(self._called(edge.start))} to {shortened(self._called(edge.stop))}{more}{group}"

    def _summary(self) -> str:
        said = "; ".join(self._described(edge) for edge in self.edges[:DESCRIBED])
        return f"{len(self.nodes)} nodes in columns with {len(self.edges)} lines between them. {said}"

    def _block(self, width: int, color: bool) -> FigureBlock:
        names = self.columns or tuple(map(str, range(1 + max(node.column for node in self.nodes))))
        gutter = min(width // 3, max(columns(visible(name)) for name in names))
        lines = []
        for at, name in enumerate(names):
            listed = " · ".join(self._named(node) for node in self.nodes if node.column == at)
            first, *others = wrap(listed, width - gutter - 2)
            lines.append(f"{cell(visible(name), gutter)}  {isolated(first)}")
            lines += [f"{'':{gutter}}  {isolated(line)}" for line in others]
        for group, name in enumerate(self.groups):
            mine = [edge for edge in self.edges if edge.group == group]
            if mine and name:
                links = ", ".join(f"{self._called(edge.start)} > {self._called(edge.stop)}" for edge in mine)
                lines += wrap(visible(f"{name}: {links}"), width)
        key = self._scale and written_legend(self._scale, self.value_label, width=width, color=color, gaps=False)
        return FigureBlock([*lines, *(key or [])])


def _printed(text: str) -> str:
    """Return the text for a picture; a number gets a true minus sign."""
    return typeset(text) if NUMERAL.fullmatch(text) else text


def _thickness(group: int) -> float:
    return 2.6 if group == 0 else 1.4 if group == 1 else 0.9


@dataclass(frozen=True)
class Link:
    """A line from a token on the left to one on the right; `group` is the index of its color."""

    left: int
    right: int
    value: float
    group: int = 0


@dataclass(frozen=True, kw_only=True)
class Links(Figure, kind="links"):
    """Lines between two columns of tokens: attention from tokens to tokens, alignments of two sentences.

    >>> links = [Link(0, 1, 0.9), Link(1, 1, 0.75), Link(1, 0, 0.25)]
    >>> print(Links(title="Alignment", left=["le", "chat"], right=["cat", "the"], links=links).text(40))
    Alignment
    le   the 0.9
    chat the 0.75, cat 0.25
    """

    left: Sequence[str]
    right: Sequence[str]
    links: Sequence[Link]
    groups: Sequence[str] = ()  # names of the groups, one color each
    left_label: str = ""
    right_label: str = ""
    value_label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_labels("left", "right", largest=MOST_TOKENS)
        object.__setattr__(self, "groups", self.groups or ("",))
        self._check_labels("groups", largest=MOST_LINK_GROUPS)
        found = checked_instances(self.links, Link, "links")
        if len(found) > MOST_LINKS:
            raise DataError(f"links has {len(found):,} entries, more than {MOST_LINKS:,}", fix="draw the strongest")
        kept = []
        for at, link in enumerate(found):
            (value,) = every_number([link.value], f"links[{at}]")
            ends = ((link.left, self.left), (link.right, self.right), (link.group, self.groups))
            if value < 0 or not all(0 <= place < len(those) for place, those in ends):
                fix = "use existing tokens and groups, and values of 0 or more"
                raise DataError(f"links[{at}] is {link}", fix=fix)
            kept.append(Link(int(link.left), int(link.right), value, int(link.group)))
        object.__setattr__(self, "links", tuple(kept))

    @cached_property
    def _most(self) -> float:
        return max((link.value for link in self.links), default=0.0) or 1.0

    def _plot(self) -> Plot:
        named = self.groups != ("",)
        legend = LineLegend.of(self.groups) if named else LineLegend(Markup(""), 0.0, 4.0)
        size = min(12.0, self._step - 2)
        widths = [max(width_of(edged(text), 12) for text in side) for side in (self.left, self.right)]
        names = [width_of(text, 12) for text in (self.left_label, self.right_label)]
        rooms = [min(LONGEST_TOKEN, max(pair)) for pair in zip(widths, names, strict=True)]
        start = MARGIN + rooms[0] + 10
        end = start + BETWEEN
        head = legend.height + (20 if self.left_label or self.right_label else 0)
        marks = [
            label(self.left_label, start - 10, head - 6, anchor="end", theme="soft", room=rooms[0]),
            label(self.right_label, end + 10, head - 6, theme="soft", room=rooms[1]),
            *self._lines(start, end, head),
        ]
        for at, token in enumerate(self.left):
            y = self._middle(at, head) + 4
            marks.append(label(edged(token), start - 10, y, anchor="end", room=rooms[0], size=size))
        for at, token in enumerate(self.right):
            marks.append(label(edged(token), end + 10, self._middle(at, head) + 4, room=rooms[1], size=size))
        width = max(NARROWEST, legend.width, end + 10 + rooms[1] + MARGIN)
        height = head + self._step * max(len(self.left), len(self.right)) + 8
        return Plot(together([legend.marks, *marks]), width, height, (self._key(),))

    @property
    def _step(self) -> float:
        return LOW_ROW if max(len(self.left), len(self.right)) > MANY else ROW_HEIGHT

    def _middle(self, at: int, top: float) -> float:
        return top + self._step * (at + 0.5)

    @property
    def _lane(self) -> float:
        return min(LANE, (self._step - BETWEEN_ROWS) / len(self.groups))

    def _lines(self, start: float, end: float, top: float) -> list[Markup]:
        """Return the lines, the faintest first: an element for each, or one per thickness if there are many."""
        if len(self.links) <= HOVERED_LINKS:
            ordered = sorted(self.links, key=lambda each: each.value)
            return [self._drawn([link], link.value / self._most, start, end, top) for link in ordered]
        alike: dict[tuple[int, int], list[Link]] = {}
        for link in self.links:
            alike.setdefault((math.ceil(STEPS * link.value / self._most), link.group), []).append(link)
        return [self._drawn(alike[key], key[0] / STEPS, start, end, top) for key in sorted(alike)]

    def _drawn(self, links: Sequence[Link], share: float, start: float, end: float, top: float) -> Markup:
        # Each group has its own height at a token, so that no line lies on another
        top += self._lane * (links[0].group - (len(self.groups) - 1) / 2)
        places = ((self._middle(link.left, top), self._middle(link.right, top)) for link in links)
        d = "".join(f"M{start:.1f} {left:.1f}L{end:.1f} {right:.1f}" for left, right in places)
        note = [hover(self._described(links[0]))] if len(links) == 1 else []
        look: dict[str, str | float] = {
            "stroke_width": THINNEST + (min(THICKEST, max(1.0, self._lane)) - THINNEST) * share,
            "stroke_opacity": FAINTEST + (1 - FAINTEST) * share,
        }
        return tag("path", *note, d=d, fill="none", **look, **stroked(links[0].group))

    def _described(self, link: Link) -> str:
        group = f" ({shortened(self.groups[link.group])})" if self.groups[link.group] else ""
        ends = f"{shortened(self.left[link.left])} / {shortened(self.right[link.right])}"
        return f"{ends}: {number(link.value)}{group}"

    def _key(self) -> str:
        if not self.links:
            return "No line to draw."
        low = min(link.value for link in self.links)
        what = self.value_label or "value"
        return f"Thicker lines have a larger {what}; the values drawn are from {number(low)} to {number(self._most)}."

    def _summary(self) -> str:
        best = sorted(self.links, key=lambda each: -each.value)[:DESCRIBED]
        return f"{len(self.links)} links between two columns of tokens. " + "; ".join(map(self._described, best))

    def _block(self, width: int, color: bool) -> FigureBlock:
        gutter = min(width // 3, max(columns(edged(text[:100])) for text in self.left))
        lines = []
        for at, name in enumerate(self.left):
            mine = sorted((link for link in self.links if link.left == at), key=lambda each: -each.value)
            if mine:
                said = ", ".join(f"{edged(self.right[link.right][:40])} {number(link.value)}" for link in mine)
                first, *others = wrap(said, width - gutter - 1)
                lines.append(f"{cell(edged(name), gutter)} {isolated(first)}")
                lines += [f"{'':{gutter}} {isolated(line)}" for line in others]
        return FigureBlock(lines or ["no link"])
