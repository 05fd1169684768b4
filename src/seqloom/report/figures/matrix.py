"""Small matrices with named rows and columns and the number in each cell: alignments, confusion matrices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

from seqloom.errors import DataError
from seqloom.report.figures.figure import (
    MARGIN,
    NARROWEST,
    Figure,
    FigureBlock,
    Plot,
    checked_grid,
    checked_labels,
    checked_span,
    require_same_count,
)
from seqloom.report.figures.frame import LEGEND_HEIGHT, alike, drawn_legend, legend_width
from seqloom.report.figures.markup import (
    NO_VALUE,
    ColorScale,
    Markup,
    Shade,
    hatched,
    hover,
    label,
    look,
    scale_of,
    tag,
    together,
    width_of,
)
from seqloom.report.labels import breadth, cell, columns, edged, fit, shortened, stacked_cell, typeset, visible

LARGEST_SIDE = 64
MOST_CELLS = 40 * 40  # three elements each: browsers stay fast below 5,000
LONGEST_LABEL, LONGEST_ROW = 150.0, 220.0
LONGEST_COLUMN = 14
WIDEST_CELL, FILLED = 60.0, 440.0  # with few columns, cells grow up to this width, and the matrix up to the second
SLOPE = 0.71  # sine and cosine of the angle of slanted labels
LONGEST_WORD = 12  # columns of a word in a cell
BROKEN = "4 3"
NO_NUMBER = "no value"

Place = tuple[int, int]  # a row and a column


@dataclass(frozen=True, kw_only=True)
class Matrix(Figure, kind="matrix"):
    """A matrix with named rows and columns and its numbers: at most 64 on a side and 1,600 in all.

    Names may be in any script. Columns that do not fit in a terminal continue below; no number is left out. `words`
    replace the numbers in the cells, but colors and tooltips still show the numbers. Cells in `framed` have a frame,
    those in `dashed` a dashed one; in a terminal square and round brackets.

    >>> print(Matrix(title="Confusion", rows=["cat", "狗"], columns=["cat", "狗"], values=[[8, 2], [1, 9]]).text(40))
    Confusion
        cat 狗
    cat   8  2
    狗    1  9
    """

    values: Sequence[Sequence[float | None]]
    rows: Sequence[str]
    columns: Sequence[str]
    x_label: str = ""
    y_label: str = ""
    value_label: str = ""  # with a name, the picture has a bar with the ends of its color scale
    span: tuple[float, float] | None = None
    words: Sequence[Sequence[str]] = ()
    framed: Sequence[Place] = ()
    dashed: Sequence[Place] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        values = checked_grid(self.values, largest=MOST_CELLS, fix="draw it as a HeatMap, or a part of it")
        object.__setattr__(self, "values", values)
        self._check_labels("rows", "columns", largest=LARGEST_SIDE)
        object.__setattr__(self, "span", checked_span(self.span, values))
        require_same_count(self.rows, "rows", values, "values")
        require_same_count(self.columns, "columns", values[0], "each row of values")
        words = tuple(checked_labels(row, "words") for row in self.words)
        if words:
            require_same_count(words, "words", self.rows, "rows")
        for row in words:
            require_same_count(row, "each row of words", self.columns, "columns")
        object.__setattr__(self, "words", words)
        for name in ("framed", "dashed"):
            object.__setattr__(self, name, tuple((down, across) for down, across in getattr(self, name)))
            for down, across in getattr(self, name):
                if not (0 <= down < len(self.rows) and 0 <= across < len(self.columns)):
                    found = f"({down}, {across}) of {len(self.rows)} x {len(self.columns)}"
                    raise DataError(f"{name} has the cell {found}", fix="give (row, column), from 0")

    @cached_property
    def _numerals(self) -> list[list[str]]:
        written = iter(alike([value for row in self.values for value in row if value is not None]))
        return [[NO_VALUE if value is None else next(written) for value in row] for row in self.values]

    @cached_property
    def _inside(self) -> list[list[str]]:
        """Return the text of each cell: its word, or its number."""
        if not self.words:
            return self._numerals
        return [[fit(visible(word), LONGEST_WORD) for word in row] for row in self.words]

    def _scale(self) -> ColorScale:
        return scale_of((value for row in self.values for value in row), self.span)

    def _plot(self) -> Plot:
        size = 11 if len(self.columns) <= 24 else 9
        widest = max(width_of(self._printed(row, index), size) for row, index in self._places())
        gutter = max([width_of(edged(text), 12) for text in self.rows] + [width_of(self.y_label, 12)])
        left = MARGIN + min(LONGEST_ROW, gutter) + 8
        filling = min(WIDEST_CELL, (FILLED - left) / len(self.columns))
        tile = _Tile(max(size * 3.2, widest + 10, filling), size * 2.6, size)
        heads, top, spill = self._heads(left, tile)
        right = left + tile.width * len(self.columns)
        gaps = any(value is None for row in self.values for value in row)
        key_width = 2 * MARGIN + legend_width(self.value_label, gaps=gaps) if self.value_label else 0.0
        width = max(NARROWEST, right + max(MARGIN, spill), key_width)
        corner = label(self.y_label, left - 8, top - 8, anchor="end", theme="soft", room=left - MARGIN)
        name = label(self.x_label, left, 12, theme="soft", room=width - left - MARGIN)
        names = [
            label(edged(text), left - 8, (index + 0.5) * tile.height + 4, anchor="end", room=LONGEST_ROW)
            for index, text in enumerate(self.rows)
        ]
        body = tag("g", *names, self._cells(left, tile), transform=f"translate(0 {top:g})")
        matrix, height = together([name, corner, heads, body]), top + tile.height * len(self.rows) + 14
        if not self.value_label:
            return Plot(matrix, width, height)
        key = drawn_legend(self._scale(), self.value_label, MARGIN, room=width - 2 * MARGIN, gaps=gaps)
        below = tag("g", matrix, transform=f"translate(0 {LEGEND_HEIGHT:g})")
        return Plot(together([key, below]), width, LEGEND_HEIGHT + height)

    def _heads(self, left: float, tile: "_Tile") -> tuple[Markup, float, float]:
        """Return the column names, their height, and how far the last extends beyond the matrix."""
        start = 24.0 if self.x_label else 4.0
        widest = min(LONGEST_LABEL, max(width_of(edged(text), 12) for text in self.columns))
        pairs = [(text, left + (index + 0.5) * tile.width) for index, text in enumerate(self.columns)]
        if widest <= tile.width - 4:
            top = start + 22
            heads = [label(edged(text), x, top - 8, anchor="middle") for text, x in pairs]
            return together(heads), top, 0.0
        top = start + widest * SLOPE + 18
        heads = [label(edged(text), x + 2, top - 6, turn=-45, room=LONGEST_LABEL) for text, x in pairs]
        return together(heads), top, widest * SLOPE + 14 - tile.width / 2

    def _cells(self, left: float, tile: "_Tile") -> Markup:
        scale, marks, gaps = self._scale(), [], []
        for row, column in self._places():
            value, x, y = self.values[row][column], left + column * tile.width, row * tile.height
            words = f"{shortened(self.rows[row])} / {shortened(self.columns[column])}: "
            if value is None:
                gaps.append((x, y, tile.width - 1, tile.height - 1))
                marks.append(tile.empty(x, y, words + NO_NUMBER))
            else:
                shade = scale.shade_of(value)
                marks.append(tile.drawn(x, y, words + self._texts[row][column], self._printed(row, column), shade))
        frames = [tile.frame(left, place, "none") for place in self.framed]
        frames += [tile.frame(left, place, BROKEN) for place in self.dashed]
        return together([*marks, hatched(gaps), *frames])

    @cached_property
    def _texts(self) -> list[list[str]]:
        """Return the full text of each cell: its word and its number."""
        if not self.words:
            return self._numerals
        both = zip(self._inside, self._numerals, strict=True)
        return [[f"{word} {number}" for word, number in zip(*pair, strict=True)] for pair in both]

    def _places(self) -> Iterator[Place]:
        return product(range(len(self.rows)), range(len(self.columns)))

    def _printed(self, row: int, column: int) -> str:
        inside = self._inside[row][column]
        return inside if self.words else typeset(inside)

    def _summary(self) -> str:
        said = []
        for name, row in zip(self.rows, self._texts, strict=True):
            cells = zip(self.columns, row, strict=True)
            told = ", ".join(f"{shortened(head)} {NO_NUMBER if n == NO_VALUE else n}" for head, n in cells)
            said.append(f"{shortened(name)}: {told}")
        axes = f"{self.y_label or 'rows'} by {self.x_label or 'columns'}"
        return f"Matrix, {axes}. " + "; ".join(said) + "."

    def _block(self, width: int, color: bool) -> FigureBlock:
        names, heads = [edged(text) for text in self.rows], [edged(text) for text in self.columns]
        gutter = min(width // 3, max(map(breadth, (*names, self.y_label))))
        widths = []
        for index, head in enumerate(heads):
            inside = (columns(self._bracketed(at, index)) for at in range(len(self.rows)))
            widths.append(max(min(LONGEST_COLUMN, breadth(head)), *inside))
        lines = [cell(visible(self.x_label), width)] if self.x_label else []
        for start, end in _panels(widths, width - gutter):
            titles = [stacked_cell(heads[index], widths[index], right=True) for index in range(start, end)]
            titles.insert(0, stacked_cell(visible(self.y_label), gutter))
            tall = max(map(len, titles))  # align the last lines
            sized = zip(titles, [gutter, *widths[start:end]], strict=True)
            filled = [[" " * wide] * (tall - len(title)) + title for title, wide in sized]
            lines += [" ".join(line) for line in zip(*filled, strict=True)]
            for row_index, name in enumerate(names):
                cells = (self._written(row_index, index, widths[index], color) for index in range(start, end))
                *above, last = stacked_cell(name, gutter)
                lines += [*above, " ".join([last, *cells])]
        return FigureBlock(lines)

    def _written(self, row: int, column: int, width: int, color: bool) -> str:
        value, inside = self.values[row][column], cell(self._bracketed(row, column), width, right=True)
        return inside if value is None or not color else self._scale().shade_of(value).behind(inside)

    def _bracketed(self, row: int, column: int) -> str:
        """Return the text of a cell, in brackets if it has a frame, padded if other cells have one."""
        inside = self._texts[row][column]
        if (row, column) in self.framed:
            return f"[{inside}]"
        if (row, column) in self.dashed:
            return f"({inside})"
        return f"{inside} " if self.framed or self.dashed else inside


class _Tile(NamedTuple):
    """The size of a cell and of its number."""

    width: float
    height: float
    size: float

    def drawn(self, x: float, y: float, words: str, written: str, shade: Shade) -> Markup:
        box = tag("rect", hover(words), x=x, y=y, width=self.width - 1, height=self.height - 1, **shade.fill())
        middle, line = x + (self.width - 1) / 2, y + self.height / 2 + self.size * 0.34
        number = tag("text", written, x=middle, y=line, font_size=self.size, text_anchor="middle", **shade.ink())
        return together([box, number])

    def frame(self, left: float, place: Place, dashes: str) -> Markup:
        """Return a frame inside the edge of a cell, dark on a light line so that it is visible on every color."""
        box = {"x": left + place[1] * self.width + 2, "y": place[0] * self.height + 2}
        box |= {"width": self.width - 5, "height": self.height - 5}
        look_of: dict[str, str | float] = {"fill": "none", "stroke_dasharray": dashes, "pointer_events": "none"}
        under = tag("rect", **box, fill="none", stroke="#ffffff", stroke_width=4, pointer_events="none")
        return together([under, tag("rect", **box, **look_of, stroke="#000000", stroke_width=2)])

    def empty(self, x: float, y: float, words: str) -> Markup:
        size = {"width": self.width - 1, "height": self.height - 1}
        return tag("rect", hover(words), x=x, y=y, fill="none", pointer_events="all", **size, **look("rule"))


def _panels(widths: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Split the columns into panels that fit the width."""
    panels, start, used = [], 0, 0
    for index, width in enumerate(widths):
        if index > start and used + width + 1 > room:
            panels.append((start, index))
            start, used = index, 0
        used += width + 1
    return [*panels, (start, len(widths))]
