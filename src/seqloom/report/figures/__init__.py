"""Figures from typed results: curves, bars, heat maps, matrices, token strips and networks, as SVG and as text.

A figure is a frozen value. `svg()` draws it, `text()` prints it in a terminal, `data()` returns plain values, and a
notebook displays it; `page` puts several into one HTML file. No plotting library, no tensor library, no script.

    figure   base class and argument checks                  line  bars  points  heatmap  matrix  strip  network
    markup   elements, escaped in one place; color scales    stack    several as one picture or page
    frame    axes, ticks, legends
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.report.figures.bars import Bars
    from seqloom.report.figures.figure import Figure
    from seqloom.report.figures.heatmap import HeatMap, Tile, Tiles
    from seqloom.report.figures.line import Line, Series
    from seqloom.report.figures.matrix import Matrix
    from seqloom.report.figures.network import Edge, Link, Links, Network, Node
    from seqloom.report.figures.points import Points, Trail
    from seqloom.report.figures.stack import page
    from seqloom.report.figures.strip import Strip

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
    "figure": ("Figure",),
    "heatmap": ("HeatMap", "Tile", "Tiles"),
    "line": ("Line", "Series"),
    "matrix": ("Matrix",),
    "network": ("Edge", "Link", "Links", "Network", "Node"),
    "points": ("Points", "Trail"),
    "stack": ("page",),
    "strip": ("Strip",),
}

__getattr__ = loading(__name__, HOMES)


def __dir__() -> list[str]:
    return __all__
