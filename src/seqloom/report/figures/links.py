"""Links: two columns of tokens with a line for each pair that belongs together, as thick as the number between them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from seqloom.errors import DataError
from seqloom.report.figures import checks
from seqloom.report.figures.figure import MARGIN, NARROWEST, WIDTH, Figure, FigureBlock, Plot
from seqloom.report.figures.labels import cell, columns, edged, isolated, shortened, wrap
from seqloom.report.figures.markup import Markup, hover, label, stroked, tag, together, width_of
from seqloom.report.numbers import number

MOST_TOKENS, MOST_LINKS, MOST_GROUPS = 512, 4_000, 24
ROW_HEIGHT, LOW_ROW, GAP = 18.0, 12.0, 300.0  # of a token, of one of many; between the two columns
MANY = 64
LONGEST_LABEL = 200.0
THINNEST, THICKEST = 0.6, 4.0
FAINTEST = 0.25
DESCRIBED_LINKS = 100
HOVERED_LINKS, STEPS = 300, 8  # more links are drawn in so many steps of thickness, without a note each


@dataclass(frozen=True)
class Link:
    """A line from a token on the left to one on the right; `group` is the number of its colour."""

    left: int
    right: int
    value: float
    group: int = 0


@dataclass(frozen=True, kw_only=True)
class Links(Figure):
    """Lines between two columns of tokens: attention from tokens to tokens, alignments of two sentences.

    >>> links = [Link(0, 1, 0.9), Link(1, 1, 0.75), Link(1, 0, 0.25)]
    >>> print(Links(title="Alignment", left=["le", "chat"], right=["cat", "the"], links=links).text(40))
    Alignment
    le   the 0.9
    chat the 0.75, cat 0.25
    """

    kind: ClassVar[str] = "links"
    left: Sequence[str]
    right: Sequence[str]
    links: Sequence[Link]
    groups: Sequence[str] = ()  # their names, one colour each
    left_label: str = ""
    right_label: str = ""
    value_label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("left", "right"):
            object.__setattr__(self, name, checks.labels(getattr(self, name), name))
            checks.some(getattr(self, name), name, largest=MOST_TOKENS)
        object.__setattr__(self, "groups", checks.labels(self.groups, "groups") or ("",))
        checks.some(self.groups, "groups", largest=MOST_GROUPS)
        found = checks.instances(self.links, Link, "links")
        if len(found) > MOST_LINKS:
            raise DataError(f"links has {len(found):,} entries, more than {MOST_LINKS:,}", fix="draw the strongest")
        object.__setattr__(self, "links", tuple(self._checked(at, link) for at, link in enumerate(found)))
        for name in ("left_label", "right_label", "value_label"):
            checks.text(getattr(self, name), name)

    def _checked(self, at: int, link: Link) -> Link:
        (value,) = checks.every_number([link.value], f"links[{at}]")
        inside = (
            0 <= link.left < len(self.left)
            and 0 <= link.right < len(self.right)
            and 0 <= link.group < len(self.groups)
            and value >= 0
        )
        if not inside:
            raise DataError(
                f"links[{at}] is {link}", fix="give tokens and a group that there are, and no value below 0"
            )
        return Link(int(link.left), int(link.right), value, int(link.group))

    @cached_property
    def _most(self) -> float:
        return max((link.value for link in self.links), default=0.0) or 1.0

    def _plot(self) -> Plot:
        legend, legend_width, top = self._legend()
        size = min(12.0, self._step - 2)
        widths = [max(width_of(edged(text), 12) for text in side) for side in (self.left, self.right)]
        names = [width_of(text, 12) for text in (self.left_label, self.right_label)]
        rooms = [min(LONGEST_LABEL, max(pair)) for pair in zip(widths, names, strict=True)]
        start = MARGIN + rooms[0] + 10
        end = start + GAP
        head = top + (20 if self.left_label or self.right_label else 0)
        marks = [
            label(self.left_label, start - 10, head - 6, anchor="end", theme="soft", room=rooms[0]),
            label(self.right_label, end + 10, head - 6, theme="soft", room=rooms[1]),
            *self._lines(start, end, head),
            *(
                label(edged(t), start - 10, self._middle(at, head) + 4, anchor="end", room=rooms[0], size=size)
                for at, t in enumerate(self.left)
            ),
            *(
                label(edged(t), end + 10, self._middle(at, head) + 4, room=rooms[1], size=size)
                for at, t in enumerate(self.right)
            ),
        ]
        width = max(NARROWEST, legend_width, end + 10 + rooms[1] + MARGIN)
        height = head + self._step * max(len(self.left), len(self.right)) + 8
        return Plot(together([legend, *marks]), width, height, (self._key(),))

    @property
    def _step(self) -> float:
        return LOW_ROW if max(len(self.left), len(self.right)) > MANY else ROW_HEIGHT

    def _middle(self, at: int, top: float) -> float:
        return top + self._step * (at + 0.5)

    def _legend(self) -> tuple[Markup, float, float]:
        """The names of the colours, the width and the height that they take."""
        if self.groups == ("",):
            return Markup(""), 0.0, 4.0
        marks, x, y, widest = [], MARGIN, 12.0, 0.0
        for index, name in enumerate(self.groups):
            room = min(width_of(name, 12) + 4, WIDTH / 2 - 60)
            if x > MARGIN and x + 32 + room > WIDTH - MARGIN:
                x, y = MARGIN, y + 20
            marks.append(tag("path", d=f"M{x:g} {y - 4:g}h24", fill="none", stroke_width=2.5, **stroked(index)))
            marks.append(label(name, x + 30, y, room=room))
            widest = max(widest, x + 30 + room + MARGIN)
            x += 30 + room + 18
        return together(marks), widest, y + 14

    def _lines(self, start: float, end: float, top: float) -> list[Markup]:
        """The faintest first: an element for each, or, of many, one for all that are about equally thick."""
        if len(self.links) <= HOVERED_LINKS:
            ordered = sorted(self.links, key=lambda each: each.value)
            return [self._drawn([link], link.value / self._most, start, end, top) for link in ordered]
        alike: dict[tuple[int, int], list[Link]] = {}
        for link in self.links:
            alike.setdefault((math.ceil(STEPS * link.value / self._most), link.group), []).append(link)
        return [self._drawn(alike[key], key[0] / STEPS, start, end, top) for key in sorted(alike)]

    def _drawn(self, links: Sequence[Link], share: float, start: float, end: float, top: float) -> Markup:
        places = ((self._middle(link.left, top), self._middle(link.right, top)) for link in links)
        d = "".join(f"M{start:.1f} {left:.1f}L{end:.1f} {right:.1f}" for left, right in places)
        note = [hover(self._said(links[0]))] if len(links) == 1 else []
        look: dict[str, str | float] = {
            "stroke_width": THINNEST + (THICKEST - THINNEST) * share,
            "stroke_opacity": FAINTEST + (1 - FAINTEST) * share,
        }
        return tag("path", *note, d=d, fill="none", **look, **stroked(links[0].group))

    def _said(self, link: Link) -> str:
        group = f" ({shortened(self.groups[link.group])})" if self.groups[link.group] else ""
        ends = f"{shortened(self.left[link.left])} / {shortened(self.right[link.right])}"
        return f"{ends}: {number(link.value)}{group}"

    def _key(self) -> str:
        if not self.links:
            return "No line to draw."
        low = min(link.value for link in self.links)
        what = self.value_label or "value"
        return f"A line is thicker the larger the {what}; those drawn run from {number(low)} to {number(self._most)}."

    def _summary(self) -> str:
        best = sorted(self.links, key=lambda each: -each.value)[:DESCRIBED_LINKS]
        return f"{len(self.links)} links between two columns of tokens. " + "; ".join(map(self._said, best))

    def _block(self, width: int, colour: bool) -> FigureBlock:
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
