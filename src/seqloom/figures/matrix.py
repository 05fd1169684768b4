"""Small matrices with a name for each row and column and the number in each cell: alignments, confusions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from seqloom.figures import checks
from seqloom.figures.axis import alike, typeset
from seqloom.figures.colours import NO_VALUE, Scale, on_ground, scale_of
from seqloom.figures.figure import MARGIN, NARROWEST, Block, Figure, Plot
from seqloom.figures.markup import Markup, filled, hatched, hover, inked, label, look, tag, together, width_of
from seqloom.figures.words import breadth, cell, shortened, visible

LARGEST_SIDE = 64
MOST_CELLS = 40 * 40  # three elements each: a browser stays quick below 5,000
LONGEST_LABEL = 150.0
LONGEST_COLUMN = 14
SLOPE = 0.71  # sine and cosine of the angle of slanted labels
NO_NUMBER = "no value"


@dataclass(frozen=True, kw_only=True)
class Matrix(Figure):
    """A matrix with its rows and columns named and its numbers written out: at most 64 on a side and 1,600 in all.

    Names may be in any script. What does not fit in the width of a terminal continues below, no number is left out.

    >>> print(Matrix(title="Confusion", rows=["cat", "狗"], columns=["cat", "狗"], values=[[8, 2], [1, 9]]).text(40))
    Confusion
        cat 狗
    cat   8  2
    狗    1  9
    """

    kind: ClassVar[str] = "matrix"
    values: Sequence[Sequence[float | None]]
    rows: Sequence[str]
    columns: Sequence[str]
    x_label: str = ""
    y_label: str = ""
    span: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        values = checks.grid(self.values, largest=MOST_CELLS, fix="draw it as a HeatMap, or a part of it")
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "rows", checks.labels(self.rows, "rows"))
        object.__setattr__(self, "columns", checks.labels(self.columns, "columns"))
        object.__setattr__(self, "span", checks.span(self.span, values))
        checks.some(self.rows, "rows", largest=LARGEST_SIDE)
        checks.some(self.columns, "columns", largest=LARGEST_SIDE)
        checks.same_count(self.rows, "rows", values, "values")
        checks.same_count(self.columns, "columns", values[0], "each row of values")
        checks.text(self.x_label, "x_label")
        checks.text(self.y_label, "y_label")

    @cached_property
    def _numerals(self) -> list[list[str]]:
        written = iter(alike([value for row in self.values for value in row if value is not None]))
        return [[NO_VALUE if value is None else next(written) for value in row] for row in self.values]

    def _scale(self) -> Scale:
        return scale_of((value for row in self.values for value in row), self.span)

    def _plot(self) -> Plot:
        size = 11 if len(self.columns) <= 24 else 9
        widest = max(width_of(typeset(text), size) for row in self._numerals for text in row)
        tile = _Tile(max(size * 3.2, widest + 10), size * 2.6, size)
        gutter = max([width_of(text, 12) for text in self.rows] + [width_of(self.y_label, 12)])
        left = MARGIN + min(LONGEST_LABEL, gutter) + 8
        heads, top, spill = self._heads(left, tile)
        right = left + tile.width * len(self.columns)
        width = max(NARROWEST, right + max(MARGIN, spill))
        corner = label(self.y_label, left - 8, top - 8, anchor="end", theme="soft", room=left - MARGIN)
        name = label(self.x_label, left, 12, theme="soft", room=width - left - MARGIN)
        body = tag("g", self._names(left, tile), self._cells(left, tile), transform=f"translate(0 {top:g})")
        return Plot(together([name, corner, heads, body]), width, top + tile.height * len(self.rows) + 14)

    def _heads(self, left: float, tile: "_Tile") -> tuple[Markup, float, float]:
        """The column names, the height they take, and how far the last reaches beyond the matrix."""
        start = 24.0 if self.x_label else 4.0
        widest = min(LONGEST_LABEL, max(width_of(text, 12) for text in self.columns))
        middles = [left + (index + 0.5) * tile.width for index in range(len(self.columns))]
        if widest <= tile.width - 4:
            top = start + 22
            heads = [label(text, x, top - 8, anchor="middle") for text, x in zip(self.columns, middles, strict=True)]
            return together(heads), top, 0.0
        top = start + widest * SLOPE + 18
        pairs = zip(self.columns, middles, strict=True)
        heads = [label(text, x + 2, top - 6, turn=-45, room=LONGEST_LABEL) for text, x in pairs]
        return together(heads), top, widest * SLOPE + 14 - tile.width / 2

    def _names(self, left: float, tile: "_Tile") -> Markup:
        names = (
            label(text, left - 8, (index + 0.5) * tile.height + 4, anchor="end", room=LONGEST_LABEL)
            for index, text in enumerate(self.rows)
        )
        return together(names)

    def _cells(self, left: float, tile: "_Tile") -> Markup:
        scale, marks, gaps = self._scale(), [], []
        for row_index, row in enumerate(self.values):
            for index, value in enumerate(row):
                x, y = left + index * tile.width, row_index * tile.height
                words = f"{shortened(self.rows[row_index])} / {shortened(self.columns[index])}: "
                if value is None:
                    gaps.append((x, y, tile.width - 1, tile.height - 1))
                    marks.append(tile.empty(x, y, words + NO_NUMBER))
                else:
                    numeral = self._numerals[row_index][index]
                    marks.append(tile.drawn(x, y, words + numeral, numeral, scale, value))
        return together([*marks, hatched(gaps)])

    def _summary(self) -> str:
        said = []
        for name, row in zip(self.rows, self._numerals, strict=True):
            cells = zip(self.columns, row, strict=True)
            said.append(
                f"{shortened(name)}: "
                + ", ".join(f"{shortened(head)} {NO_NUMBER if n == NO_VALUE else n}" for head, n in cells)
            )
        axes = f"{self.y_label or 'rows'} by {self.x_label or 'columns'}"
        return f"Matrix, {axes}. " + "; ".join(said) + "."

    def _block(self, width: int, colour: bool) -> Block:
        gutter = min(width // 3, max(map(breadth, (*self.rows, self.y_label))))
        heads = [visible(text) for text in self.columns]
        widths = [
            max(min(LONGEST_COLUMN, breadth(head)), *(len(row[index]) for row in self._numerals))
            for index, head in enumerate(heads)
        ]
        lines = [cell(visible(self.x_label), width)] if self.x_label else []
        for start, end in _panels(widths, width - gutter):
            titles = (cell(heads[index], widths[index], right=True) for index in range(start, end))
            lines.append(" ".join([cell(visible(self.y_label), gutter), *titles]))
            for row_index, name in enumerate(self.rows):
                cells = (self._written(row_index, index, widths[index], colour) for index in range(start, end))
                lines.append(" ".join([cell(visible(name), gutter), *cells]))
        return Block(lines)

    def _written(self, row: int, column: int, width: int, colour: bool) -> str:
        value, numeral = self.values[row][column], self._numerals[row][column].rjust(width)
        if value is None or not colour:
            return numeral
        scale = self._scale()
        return on_ground(numeral, scale.shade(scale.level(value)).dark)


class _Tile(NamedTuple):
    """The size of a cell and of the number in it."""

    width: float
    height: float
    size: float

    def drawn(self, x: float, y: float, words: str, numeral: str, scale: Scale, value: float) -> Markup:
        shade = scale.shade(scale.level(value))
        box = tag("rect", hover(words), x=x, y=y, width=self.width - 1, height=self.height - 1, **filled(shade))
        middle, line = x + (self.width - 1) / 2, y + self.height / 2 + self.size * 0.34
        number = tag(
            "text", typeset(numeral), x=middle, y=line, font_size=self.size, text_anchor="middle", **inked(shade)
        )
        return together([box, number])

    def empty(self, x: float, y: float, words: str) -> Markup:
        size = {"width": self.width - 1, "height": self.height - 1}
        return tag("rect", hover(words), x=x, y=y, fill="none", pointer_events="all", **size, **look("rule"))


def _panels(widths: Sequence[int], room: int) -> list[tuple[int, int]]:
    """The columns cut into stretches that fit side by side."""
    panels, start, used = [], 0, 0
    for index, width in enumerate(widths):
        if index > start and used + width + 1 > room:
            panels.append((start, index))
            start, used = index, 0
        used += width + 1
    return [*panels, (start, len(widths))]
