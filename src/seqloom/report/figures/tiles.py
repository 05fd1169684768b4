"""Tiles: many small heat maps side by side on one scale, each with its name: the heads of a model, the filters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from seqloom.errors import DataError
from seqloom.report.figures import checks
from seqloom.report.figures.checks import Row
from seqloom.report.figures.colors import ColorScale, scale_of
from seqloom.report.figures.figure import MARGIN, NARROWEST, WIDTH, Figure, FigureBlock, Plot
from seqloom.report.figures.frame import LEGEND_HEIGHT, drawn_legend, legend_width, written_legend
from seqloom.report.figures.labels import fit, isolated, shortened, visible
from seqloom.report.figures.markup import Markup, filled, hatched, hover, label, look, tag, together
from seqloom.report.numbers import number

MOST_TILES, MOST_CELLS = 1_024, 2**16
SMALLEST, LARGEST = 56.0, 150.0  # of the side of a tile
PICTURE = 960.0
GAP, NAME_HEIGHT = 12.0, 16.0


@dataclass(frozen=True)
class Tile:
    """One small heat map; a cell without a value is hatched."""

    name: str
    values: Sequence[Sequence[float | None]]


@dataclass(frozen=True, kw_only=True)
class Tiles(Figure):
    """Small heat maps in rows of `across`, all on one scale.

    >>> print(Tiles(title="Heads", tiles=[Tile("0.0", [[1, 0]]), Tile("0.1", [[0, 0.5]])], across=2).text(40))
    Heads
    0.0: 0 to 1, mean 0.5
    0.1: 0 to 0.5, mean 0.25
    0 [ ░▒▓█] 1
    """

    kind: ClassVar[str] = "tiles"
    tiles: Sequence[Tile]
    across: int
    value_label: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        found = checks.instances(self.tiles, Tile, "tiles")
        checks.some(found, "tiles", largest=MOST_TILES)
        if self.across < 1:
            raise DataError(f"{self.across} tiles side by side were asked for", fix="give at least 1")
        object.__setattr__(self, "tiles", tuple(_checked(tile) for tile in found))
        cells = sum(len(tile.values) * len(tile.values[0]) for tile in self.tiles)
        if cells > MOST_CELLS:
            raise DataError(f"the tiles have {cells:,} cells, more than {MOST_CELLS:,}", fix="pool them first")
        checks.text(self.value_label, "value_label")

    def _values(self) -> list[float | None]:
        return [value for tile in self.tiles for row in tile.values for value in row]

    def _plot(self) -> Plot:
        scale, side = scale_of(self._values()), self._side()
        gaps = None in self._values()
        legend_room = min(WIDTH, 2 * MARGIN + legend_width(self.value_label, gaps=gaps))
        width = max(NARROWEST, legend_room, 2 * MARGIN + self.across * (side + GAP) - GAP)
        legend = drawn_legend(scale, self.value_label, MARGIN, room=width - 2 * MARGIN, gaps=gaps)
        marks = []
        for at, tile in enumerate(self.tiles):
            x = MARGIN + (at % self.across) * (side + GAP)
            y = LEGEND_HEIGHT + (at // self.across) * (side + NAME_HEIGHT + GAP)
            marks += [label(tile.name, x, y + 11, size=11, room=side), _drawn(tile, x, y + NAME_HEIGHT, side, scale)]
        down = -(-len(self.tiles) // self.across)
        return Plot(together([legend, *marks]), width, LEGEND_HEIGHT + down * (side + NAME_HEIGHT + GAP) + 4)

    def _side(self) -> float:
        return min(LARGEST, max(SMALLEST, PICTURE / self.across - GAP))

    def _summary(self) -> str:
        said = "; ".join(f"{shortened(tile.name)}: {_range(tile)}" for tile in self.tiles)
        return f"{len(self.tiles)} small heat maps of {self.value_label or 'values'}. {said}."

    def _block(self, width: int, colour: bool) -> FigureBlock:
        lines = [isolated(fit(f"{visible(tile.name)}: {_range(tile)}", width)) for tile in self.tiles]
        values = self._values()
        legend = written_legend(scale_of(values), self.value_label, width=width, colour=colour, gaps=None in values)
        return FigureBlock(lines + legend)


def _checked(tile: Tile) -> Tile:
    name = checks.text(tile.name, "the name of a tile")
    return Tile(name, checks.grid(tile.values, largest=MOST_CELLS, fix="pool it first"))


def _range(tile: Tile) -> str:
    known = [value for row in tile.values for value in row if value is not None]
    if not known:
        return "no value"
    return f"{number(min(known))} to {number(max(known))}, mean {number(sum(known) / len(known))}"


def _drawn(tile: Tile, x: float, y: float, side: float, scale: ColorScale) -> Markup:
    """One path for each shade, through all its cells: few elements however many cells there are."""
    wide, high = side / len(tile.values[0]), side / len(tile.values)
    paths: dict[int, list[str]] = {}
    gaps = []
    for row, values in enumerate(tile.values):
        for start, stop, level in _runs(tuple(values), scale):
            left, top = x + start * wide, y + row * high
            if level is None:
                gaps += [(x + at * wide, top, wide, high) for at in range(start, stop)]
            else:
                length = (stop - start) * wide
                paths.setdefault(level, []).append(f"M{left:.2f} {top:.2f}h{length:.2f}v{high:.2f}h-{length:.2f}z")
    drawn = [tag("path", d="".join(d), **filled(scale.shade(level))) for level, d in sorted(paths.items())]
    note = hover(f"{shortened(tile.name)}: {_range(tile)}")
    frame = tag("rect", note, x=x, y=y, width=side, height=side, fill="none", pointer_events="all", **look("rule"))
    return together([tag("g", *drawn, shape_rendering="crispEdges") if drawn else Markup(""), hatched(gaps), frame])


def _runs(values: Row, scale: ColorScale) -> list[tuple[int, int, int | None]]:
    """Stretches of cells that share a shade."""
    levels = [None if value is None else scale.level(value) for value in values]
    starts = [at for at in range(len(levels)) if at == 0 or levels[at] != levels[at - 1]]
    return [(a, b, levels[a]) for a, b in zip(starts, [*starts[1:], len(levels)], strict=True)]
