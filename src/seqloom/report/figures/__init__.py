"""Pictures from typed results: curves, bars, maps, matrices, strips of tokens, networks, as SVG and as text.

A figure is a frozen value. `svg()` draws it, `text()` writes it in a terminal, `data()` gives it as plain values; in a
notebook it shows itself; `page` puts several into one HTML file. No plotting library, no tensor library, no script.

    labels   labels made visible and measured        axis      ticks and numerals
    checks   what a figure accepts                   colors    color scales
    markup   elements, escaped in one place          frame     the key to a color scale
    figure   what all kinds share                    line  bars  points  heatmap  matrix  strip
    stack    several as one picture or page          links  tiles  network  trail
    fonts    the letters of a PNG
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.report.figures.bars import Bars
    from seqloom.report.figures.figure import Figure
    from seqloom.report.figures.heatmap import HeatMap
    from seqloom.report.figures.line import Line, Series
    from seqloom.report.figures.links import Link, Links
    from seqloom.report.figures.matrix import Matrix
    from seqloom.report.figures.network import Edge, Network, Node
    from seqloom.report.figures.points import Points
    from seqloom.report.figures.stack import page
    from seqloom.report.figures.strip import Strip
    from seqloom.report.figures.tiles import Tile, Tiles
    from seqloom.report.figures.trail import Trail

__all__ = [
    "Bars",
    "Edge",
    "Figure",
    "HeatMap",
    "Line",
    "Link",
    "Links",
    "Matrix",
    "Network",
    "Node",
    "Points",
    "Series",
    "Strip",
    "Tile",
    "Tiles",
    "Trail",
    "page",
]
HOMES = {
    "bars": ("Bars",),
    "network": (
        "Edge",
        "Network",
        "Node",
    ),
    "figure": ("Figure",),
    "heatmap": ("HeatMap",),
    "line": (
        "Line",
        "Series",
    ),
    "links": (
        "Link",
        "Links",
    ),
    "matrix": ("Matrix",),
    "points": ("Points",),
    "strip": ("Strip",),
    "tiles": (
        "Tile",
        "Tiles",
    ),
    "trail": ("Trail",),
    "stack": ("page",),
}

__getattr__ = loading(__name__, HOMES)


def __dir__() -> list[str]:
    return __all__
