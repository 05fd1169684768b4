"""Pictures from typed results: curves, bars, maps, matrices, strips of tokens, networks, as SVG and as text.

A figure is a frozen value. `svg()` draws it, `text()` writes it in a terminal, `data()` gives it as plain values; in a
notebook it shows itself; `page` puts several into one HTML file. No plotting library, no tensor library, no script.

    words    labels made visible and measured        axis      ticks and numerals
    checks   what a figure accepts                   colours   colour scales
    markup   elements, escaped in one place          legend    the key to a colour scale
    figure   what all kinds share                    line  bars  points  heatmap  matrix  strip
    stack    several as one picture or page                links  tiles  network  trail
    faces    the letters of a PNG
"""

from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name == "Bars":
        from seqloom.report.figures import bars

        return getattr(bars, name)
    if name == "Figure":
        from seqloom.report.figures import figure

        return getattr(figure, name)
    if name == "HeatMap":
        from seqloom.report.figures import heatmap

        return getattr(heatmap, name)
    if name in ("Line", "Series"):
        from seqloom.report.figures import line

        return getattr(line, name)
    if name in ("Link", "Links"):
        from seqloom.report.figures import links

        return getattr(links, name)
    if name == "Matrix":
        from seqloom.report.figures import matrix

        return getattr(matrix, name)
    if name in ("Edge", "Network", "Node"):
        from seqloom.report.figures import network

        return getattr(network, name)
    if name == "page":
        from seqloom.report.figures import stack

        return getattr(stack, name)
    if name == "Points":
        from seqloom.report.figures import points

        return getattr(points, name)
    if name == "Strip":
        from seqloom.report.figures import strip

        return getattr(strip, name)
    if name in ("Tile", "Tiles"):
        from seqloom.report.figures import tiles

        return getattr(tiles, name)
    if name == "Trail":
        from seqloom.report.figures import trail

        return getattr(trail, name)
    raise AttributeError(f"module 'seqloom.report.figures' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
