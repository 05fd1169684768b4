"""Heat maps: a matrix of numbers as color, pooled if large; tiles: many small ones side by side on one scale."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from seqloom.errors import DataError
from seqloom.report.figures.figure import (
    MARGIN,
    NARROWEST,
    WIDTH,
    Figure,
    FigureBlock,
    Plot,
    Row,
    checked_grid,
    checked_labels,
    checked_span,
    checked_text,
    every_number,
    require_same_count,
)
from seqloom.report.figures.frame import LEGEND_HEIGHT, drawn_legend, legend_width, ruler, written_legend
from seqloom.report.figures.markup import (
    ColorScale,
    Markup,
    hatched,
    hover,
    label,
    look,
    rule,
    scale_of,
    tag,
    together,
    width_of,
)
from seqloom.report.labels import cell, columns, edged, fit, isolated, shortened, typeset, visible
from seqloom.report.numbers import number

MOST_CELLS = 2**22
LARGEST_SIDE = 256  # of a picture: larger matrices are averaged in blocks
HOVERED_CELLS = 48 * 48  # up to this size each cell is an element with a tooltip, fewer than 5,000 in total
TALLEST_TEXT = 40
MOST_ROW_NAMES, NAMED_CELL, LONGEST_AXIS_NAME, MOST_COLUMNS = 64, 11.0, 110.0, 14
PLOT_WIDTH, PLOT_HEIGHT, LARGEST_CELL, THINNEST_STRIP = 620.0, 500.0, 32.0, 14.0
STRIP = 120.0  # width of a long and thin matrix, if its cells need not be larger than others for it
MOST_TILES, MOST_TILE_CELLS = 1_024, 2**16
SMALLEST, LARGEST = 56.0, 150.0  # side of a tile
TILES_WIDTH = 960.0
GAP, NAME_HEIGHT = 12.0, 16.0
RIGHTWARD, DOWNWARD = "→", "↓"
MOST_NAMED, NAMES_SIZE, LONGEST_NAME = 14, 9.0, 64.0  # rows or columns of a tile, and their names


@dataclass(frozen=True, kw_only=True)
class HeatMap(Figure, kind="heat_map"):
    """A matrix of numbers as color; `x` and `y` number its columns and rows, by default from 0.

    The scale starts at zero, is centered on it if both signs occur, and is `span` if several figures share one.
    Cells without a value are hatched. If a side has more than 256 cells, blocks are averaged, with a note.

    >>> print(HeatMap(title="Weights", values=[[0.0, 0.3, 1.0], [0.9, 0.5, None]]).text(40))
    Weights
    0   ░░██
    1 ██▒▒╱╱
      0 1 2
    0 [ ░▒▓█] 1  ╱ no value
    """

    values: Sequence[Sequence[float | None]]
    x: Sequence[float] | None = None
    y: Sequence[float] | None = None
    x_label: str = ""
    y_label: str = ""
    value_label: str = ""
    span: tuple[float, float] | None = None
    rows: Sequence[str] = ()  # names instead of numbers, of at most 64 rows and columns
    columns: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        rows = checked_grid(self.values, largest=MOST_CELLS, fix="pool it first, or draw a part")
        if self.rows or self.columns:
            self._check_labels("rows", "columns", largest=MOST_ROW_NAMES)
            require_same_count(self.rows, "rows", rows, "values")
            require_same_count(self.columns, "columns", rows[0], "each row of values")
        object.__setattr__(self, "values", rows)
        object.__setattr__(self, "span", checked_span(self.span, rows))
        for name, count in (("x", len(rows[0])), ("y", len(rows))):
            positions = getattr(self, name)
            known = tuple(map(float, range(count))) if positions is None else every_number(positions, name)
            require_same_count(known, name, range(count), "that side of values")
            object.__setattr__(self, name, known)

    def _plot(self) -> Plot:
        pooled = self._pooled(LARGEST_SIDE, LARGEST_SIDE)
        scale = pooled.scale(self.span)
        left = MARGIN + max(width_of(text, 11) for text in self._y_texts(pooled)) + 8
        wide, high = _tile(len(pooled.x), len(pooled.rows))
        if self.rows:
            wide, high = max(wide, NAMED_CELL), max(high, NAMED_CELL)
        area = _Area(left, wide, high, pooled)
        legend_room = min(WIDTH, 2 * MARGIN + legend_width(self.value_label, gaps=pooled.has_gaps))
        width = max(NARROWEST, legend_room, area.right + MARGIN)
        top = LEGEND_HEIGHT + (22 if self.y_label else 0)
        legend = drawn_legend(scale, self.value_label, MARGIN, room=width - 2 * MARGIN, gaps=pooled.has_gaps)
        names = [label(self.y_label, MARGIN, LEGEND_HEIGHT + 12, theme="soft", room=width - 2 * MARGIN)]
        widest = max((width_of(edged(text), 11) for text in self.columns), default=0.0)
        upright = widest > area.tile_width  # otherwise each name fits below its column
        under = top + area.bottom + 25 + (min(LONGEST_AXIS_NAME, widest) if upright else 13.0)
        names += [label(self.x_label, left, under, theme="soft", room=width - left - MARGIN)]
        cells = area.cells(scale, self._hover) if area.tiles <= HOVERED_CELLS else area.levels(scale)
        axes = area.named_axes(self.rows, self.columns, upright=upright) if self.rows else area.axes()
        drawn = tag("g", cells, area.gaps(), axes, transform=f"translate(0 {top:g})")
        height = under + (12 if self.x_label else -8)
        return Plot(together([legend, *names, drawn]), width, height, self._notes(pooled))

    def _y_texts(self, pooled: "_Pooled") -> list[str]:
        """Return the names or numbers beside the rows, as a picture shows them."""
        if self.rows:
            return [fit(edged(name), LONGEST_AXIS_NAME, lambda text: width_of(text, 11)) for name in self.rows]
        return [typeset(number(value)) for value in pooled.y]

    def _hover(self, y: float, x: float, value: float) -> str:
        row, column = number(y), number(x)
        if self.rows:
            assert self.x is not None and self.y is not None
            row += f" '{shortened(self.rows[self.y.index(y)])}'"
            column += f" '{shortened(self.columns[self.x.index(x)])}'"
        return f"{self.y_label or 'row'} {row}, {self.x_label or 'column'} {column}: {number(value)}"

    def _pooled(self, most_rows: int, most_columns: int) -> "_Pooled":
        assert self.x is not None and self.y is not None
        down, across = -(-len(self.y) // most_rows), -(-len(self.x) // most_columns)
        rows: list[Row] = []
        for start in range(0, len(self.y), down):
            block = self.values[start : start + down]
            cells = ([v for row in block for v in row[at : at + across]] for at in range(0, len(self.x), across))
            rows.append(tuple(block[0]) if down == across == 1 else tuple(map(_mean, cells)))
        return _Pooled(tuple(rows), tuple(self.x[::across]), tuple(self.y[::down]), down, across)

    def _notes(self, pooled: "_Pooled") -> tuple[str, ...]:
        if pooled.down == pooled.across == 1:
            return ()
        known = [value for row in self.values for value in row if value is not None]
        ends = f"; single values run from {number(min(known))} to {number(max(known))}" if known else ""
        size = f"{len(self.values)} x {len(self.values[0])}"
        return (f"Each cell drawn is the mean of up to {pooled.down} x {pooled.across} of the {size} values{ends}.",)

    def _summary(self) -> str:
        known = [value for row in self.values for value in row if value is not None]
        ends = f"values from {number(min(known))} to {number(max(known))}" if known else "no values"
        axes = f"{self.y_label or 'rows'} by {self.x_label or 'columns'}"
        return f"Heat map of {len(self.values)} x {len(self.values[0])} cells, {axes}, {self.value_label} {ends}."

    def _block(self, width: int, color: bool) -> FigureBlock:
        assert self.y is not None
        names = [fit(edged(name), MOST_COLUMNS) for name in self.rows] or [number(value) for value in self.y]
        gutter = max(map(columns, names))
        pooled = self._pooled(max(TALLEST_TEXT, len(self.rows)), width - gutter - 1)
        beside = names if pooled.down == 1 else [number(value) for value in pooled.y]
        scale = pooled.scale(self.span)
        each = 2 if 2 * len(pooled.x) <= width - gutter - 1 else 1
        lines = [cell(visible(self.y_label), width)] if self.y_label else []
        for name, row in zip(beside, pooled.rows, strict=True):
            glyphs = [scale.glyph(value) * each for value in row]
            if color:
                pairs = zip(row, glyphs, strict=True)
                glyphs = [scale.shade_of(v).behind(" " * each) if v is not None else glyph for v, glyph in pairs]
            lines.append(f"{cell(name, gutter, right=True)} {''.join(glyphs)}")
        stride = _stride(each, max(len(number(value)) for value in pooled.x) + 1)
        marks = {index * each: number(pooled.x[index]) for index in range(0, len(pooled.x), stride)}
        lines.append(" " * (gutter + 1) + ruler(marks, max(len(pooled.x) * each, 12)))
        lines += [" " * (gutter + 1) + cell(visible(self.x_label), width - gutter - 1)] if self.x_label else []
        lines += written_legend(scale, self.value_label, width=width, color=color, gaps=pooled.has_gaps)
        return FigureBlock(lines, self._notes(pooled))


class _Pooled(NamedTuple):
    """The matrix as drawn: blocks of `down` rows and `across` columns instead of cells."""

    rows: tuple[Row, ...]
    x: tuple[float, ...]
    y: tuple[float, ...]
    down: int
    across: int

    @property
    def has_gaps(self) -> bool:
        return any(value is None for row in self.rows for value in row)

    def scale(self, span: tuple[float, float] | None) -> ColorScale:
        return scale_of((value for row in self.rows for value in row), span)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _tile(columns: int, rows: int) -> tuple[float, float]:
    # Square tiles, unless the matrix is so long and thin that it would become a line.
    across, down = min(LARGEST_CELL, PLOT_WIDTH / columns), min(LARGEST_CELL, PLOT_HEIGHT / rows)
    side = min(across, down)
    thin = max(THINNEST_STRIP, min(LARGEST_CELL, STRIP / min(columns, rows)))
    thick = side if max(columns, rows) <= 3 * min(columns, rows) else max(side, thin)
    return min(across, thick), min(down, thick)


class _Area(NamedTuple):
    """The rectangle of tiles, its upper left corner at (left, 0)."""

    left: float
    tile_width: float
    tile_height: float
    pooled: _Pooled

    @property
    def right(self) -> float:
        return self.left + self.tile_width * len(self.pooled.x)

    @property
    def bottom(self) -> float:
        return self.tile_height * len(self.pooled.y)

    @property
    def tiles(self) -> int:
        return len(self.pooled.x) * len(self.pooled.y)

    def box(self, row: int, column: int) -> tuple[float, float, float, float]:
        return self.left + column * self.tile_width, row * self.tile_height, self.tile_width, self.tile_height

    def places(self) -> Iterator[tuple[int, int, float | None]]:
        for row_index, row in enumerate(self.pooled.rows):
            for index, value in enumerate(row):
                yield row_index, index, value

    def cells(self, scale: ColorScale, words: Callable[[float, float, float], str]) -> Markup:
        """Return an element for each cell, with its number as tooltip."""
        drawn = []
        for row, column, value in self.places():
            if value is not None:
                x, y, width, height = self.box(row, column)
                note = hover(words(self.pooled.y[row], self.pooled.x[column], value))
                drawn.append(tag("rect", note, x=x, y=y, width=width, height=height, **scale.shade_of(value).fill()))
        return tag("g", *drawn, shape_rendering="crispEdges")

    def levels(self, scale: ColorScale) -> Markup:
        """Return one path per shade for all its cells: few elements for any number of cells."""
        paths: dict[int, list[str]] = {}
        for row_index, row in enumerate(self.pooled.rows):
            for start, count, level in _runs(row, scale):
                if level is not None:  # in units of cells: a third of the characters of coordinates
                    paths.setdefault(level, []).append(f"M{start} {row_index}h{count}v1h-{count}z")
        drawn = (
            tag("path", hover(scale.interval(level)), d="".join(parts), **scale.shade(level).fill())
            for level, parts in sorted(paths.items())
        )
        placed = f"translate({self.left:g} 0) scale({self.tile_width:.6g} {self.tile_height:.6g})"
        return tag("g", *drawn, shape_rendering="crispEdges", transform=placed)

    def named_axes(self, rows: Sequence[str], columns: Sequence[str], *, upright: bool) -> Markup:
        """Return a frame with the name of each row beside it and of each column below it."""
        box = {"x": self.left, "y": 0, "width": self.right - self.left, "height": self.bottom}
        marks = [tag("rect", **box, fill="none", **look("axis"))]
        looks: dict[str, Any] = {"size": min(11.0, self.tile_height - 1), "room": LONGEST_AXIS_NAME}
        for at, name in enumerate(rows):
            marks.append(label(edged(name), self.left - 6, (at + 0.5) * self.tile_height + 3.5, anchor="end", **looks))
        for at, name in enumerate(columns):
            x = self.left + (at + 0.5) * self.tile_width
            if upright:
                marks.append(label(edged(name), x + 3.5, self.bottom + 6, anchor="end", turn=-90, **looks))
            else:
                marks.append(label(edged(name), x, self.bottom + 15, anchor="middle", **looks))
        return together(marks)

    def gaps(self) -> Markup:
        return hatched(self.box(row, column) for row, column, value in self.places() if value is None)

    def axes(self) -> Markup:
        """Return a frame with as many position labels as fit."""
        box = {"x": self.left, "y": 0, "width": self.right - self.left, "height": self.bottom}
        marks = [tag("rect", **box, fill="none", **look("axis"))]
        names = [typeset(number(value)) for value in self.pooled.x]
        widest = max(width_of(name, 11) for name in names)
        for index in range(0, len(self.pooled.x), _stride(self.tile_width, widest + 10)):
            x = self.left + (index + 0.5) * self.tile_width
            marks += [rule(x, self.bottom, x, self.bottom + 4, "axis")]
            marks += [label(names[index], x, self.bottom + 17, size=11, anchor="middle", theme="soft")]
        for index in range(0, len(self.pooled.y), _stride(self.tile_height, 14)):
            y = (index + 0.5) * self.tile_height
            marks += [rule(self.left - 4, y, self.left, y, "axis")]
            name = typeset(number(self.pooled.y[index]))
            marks += [label(name, self.left - 8, y + 4, size=11, anchor="end", theme="soft")]
        return together(marks)


def _stride(tile: float, needed: float) -> int:
    """Return the smallest round number of tiles with room for a label."""
    sizes = (factor * power for power in (1, 10, 100, 1000) for factor in (1, 2, 5))
    return next(size for size in sizes if size * tile >= needed)


def _runs(values: Sequence[float | None], scale: ColorScale) -> Iterator[tuple[int, int, int | None]]:
    """Yield runs of cells of one shade: the first cell, the length, and the level; None for missing values."""
    levels = [None if value is None else scale.level(value) for value in values]
    for level, run in groupby(enumerate(levels), key=lambda entry: entry[1]):
        places = [at for at, _ in run]
        yield places[0], len(places), level


@dataclass(frozen=True)
class Tile:
    """One small heat map; a cell without a value is hatched. `rows` and `columns` name its cells, if there is room."""

    name: str
    values: Sequence[Sequence[float | None]]
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()

    @property
    def gutter(self) -> float:
        """The width beside it for the names of its rows; the height above it for those of its columns is the same."""
        if max(len(self.rows), len(self.columns)) > MOST_NAMED:
            return 0.0
        return min(
            LONGEST_NAME,
            max((width_of(edged(one), NAMES_SIZE) + 6 for one in (*self.rows, *self.columns)), default=0.0),
        )


@dataclass(frozen=True, kw_only=True)
class Tiles(Figure, kind="tiles"):
    """Small heat maps in rows of `across`, all on one scale.

    >>> print(Tiles(title="Heads", tiles=[Tile("0.0", [[1, 0]]), Tile("0.1", [[0, 0.5]])], across=2).text(40))
    Heads
    0.0: 0 to 1, mean 0.5
    0.1: 0 to 0.5, mean 0.25
    0 [ ░▒▓█] 1
    """

    tiles: Sequence[Tile]
    across: int
    value_label: str = ""
    x_label: str = ""
    y_label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_parts("tiles", Tile, largest=MOST_TILES)
        if self.across < 1:
            raise DataError(f"across is {self.across}", fix="give at least 1")
        kept = []
        for tile in self.tiles:
            grid = checked_grid(tile.values, largest=MOST_TILE_CELLS, fix="pool it first")
            rows, columns = (checked_labels(names, "the names of a tile") for names in (tile.rows, tile.columns))
            if rows or columns:
                require_same_count(rows, "rows of a tile", grid, "values")
                require_same_count(columns, "columns of a tile", grid[0], "each row of values")
            kept.append(Tile(checked_text(tile.name, "the name of a tile"), grid, rows, columns))
        object.__setattr__(self, "tiles", tuple(kept))
        cells = sum(len(tile.values) * len(tile.values[0]) for tile in self.tiles)
        if cells > MOST_TILE_CELLS:
            raise DataError(f"the tiles have {cells:,} cells, more than {MOST_TILE_CELLS:,}", fix="pool them first")

    def _values(self) -> list[float | None]:
        return [value for tile in self.tiles for row in tile.values for value in row]

    def _plot(self) -> Plot:
        scale, side = scale_of(self._values()), min(LARGEST, max(SMALLEST, TILES_WIDTH / self.across - GAP))
        gaps = None in self._values()
        legend_room = min(WIDTH, 2 * MARGIN + legend_width(self.value_label, gaps=gaps))
        gutter = max(tile.gutter for tile in self.tiles)
        if gutter:  # room for the names of the axes in the corner
            gutter = max(gutter, width_of(f"{self.x_label} {RIGHTWARD}", NAMES_SIZE) + 6 if self.x_label else 0.0)
        gutter = gutter if self.across * (side + GAP + gutter) <= TILES_WIDTH + GAP and side >= LARGEST else 0.0
        width = max(NARROWEST, legend_room, 2 * MARGIN + self.across * (side + GAP + gutter) - GAP)
        legend = drawn_legend(scale, self.value_label, MARGIN, room=width - 2 * MARGIN, gaps=gaps)
        marks = []
        for at, tile in enumerate(self.tiles):
            x = MARGIN + (at % self.across) * (side + GAP + gutter)
            y = LEGEND_HEIGHT + (at // self.across) * (side + NAME_HEIGHT + GAP + gutter)
            marks.append(label(tile.name, x, y + 11, size=11, room=side + gutter))
            marks.append(_drawn(tile, x + gutter, y + NAME_HEIGHT + gutter, side, scale))
            if gutter:
                marks += _names(tile, x + gutter, y + NAME_HEIGHT + gutter, side, gutter)
                marks += self._corner(x + gutter - 4, y + NAME_HEIGHT + gutter - 4)
        down = -(-len(self.tiles) // self.across)
        return Plot(together([legend, *marks]), width, LEGEND_HEIGHT + down * (side + NAME_HEIGHT + GAP + gutter) + 4)

    def _corner(self, x: float, y: float) -> list[Markup]:
        """Return the names of the axes of a tile, left of the names of its columns and above those of its rows."""
        looks: dict[str, Any] = {"size": NAMES_SIZE, "anchor": "end"}
        across = [label(f"{self.x_label} {RIGHTWARD}", x, y - NAMES_SIZE - 2, **looks)] if self.x_label else []
        return across + ([label(f"{self.y_label} {DOWNWARD}", x, y, **looks)] if self.y_label else [])

    def _summary(self) -> str:
        said = "; ".join(f"{shortened(tile.name)}: {_range(tile)}" for tile in self.tiles)
        return f"{len(self.tiles)} small heat maps of {self.value_label or 'values'}. {said}."

    def _block(self, width: int, color: bool) -> FigureBlock:
        lines = [isolated(fit(f"{visible(tile.name)}: {_range(tile)}", width)) for tile in self.tiles]
        values = self._values()
        legend = written_legend(scale_of(values), self.value_label, width=width, color=color, gaps=None in values)
        return FigureBlock(lines + legend)


def _names(tile: Tile, left: float, top: float, side: float, room: float) -> list[Markup]:
    """Return the names of the rows, beside them, and those of the columns, above them and upright."""
    wide, high = side / len(tile.values[0]), side / len(tile.values)
    looks: dict[str, Any] = {"size": NAMES_SIZE, "theme": "soft", "room": room - 4}
    beside = [
        label(edged(name), left - 4, top + (at + 0.5) * high + 3, anchor="end", **looks)
        for at, name in enumerate(tile.rows)
    ]
    above = [
        label(edged(name), left + (at + 0.5) * wide + 3, top - 4, turn=-90, **looks)
        for at, name in enumerate(tile.columns)
    ]
    return beside + above


def _range(tile: Tile) -> str:
    known = [value for row in tile.values for value in row if value is not None]
    if not known:
        return "no value"
    return f"{number(min(known))} to {number(max(known))}, mean {number(sum(known) / len(known))}"


def _drawn(tile: Tile, x: float, y: float, side: float, scale: ColorScale) -> Markup:
    """Return one path per shade for all its cells: few elements for any number of cells."""
    wide, high = side / len(tile.values[0]), side / len(tile.values)
    paths: dict[int, list[str]] = {}
    gaps = []
    for row, values in enumerate(tile.values):
        for start, count, level in _runs(values, scale):
            left, top = x + start * wide, y + row * high
            if level is None:
                gaps += [(x + at * wide, top, wide, high) for at in range(start, start + count)]
            else:
                length = count * wide
                paths.setdefault(level, []).append(f"M{left:.2f} {top:.2f}h{length:.2f}v{high:.2f}h-{length:.2f}z")
    drawn = [tag("path", d="".join(d), **scale.shade(level).fill()) for level, d in sorted(paths.items())]
    note = hover(f"{shortened(tile.name)}: {_range(tile)}")
    frame = tag("rect", note, x=x, y=y, width=side, height=side, fill="none", pointer_events="all", **look("rule"))
    return together([tag("g", *drawn, shape_rendering="crispEdges") if drawn else Markup(""), hatched(gaps), frame])
