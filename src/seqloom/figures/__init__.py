"""Pictures from typed results: curves, bars, maps, matrices, strips of tokens, networks, as SVG and as text.

A figure is a frozen value. `svg()` draws it, `text()` writes it in a terminal, `data()` gives it as plain values; in a
notebook it shows itself; `page` puts several into one HTML file. No plotting library, no tensor library, no script.

    words    labels made visible and measured        axis      ticks and numerals
    checks   what a figure accepts                   colours   colour scales
    markup   elements, escaped in one place          legend    the key to a colour scale
    figure   what all kinds share                    line  bars  points  heatmap  matrix  strip  page
    stack    several as one picture                  links  tiles  network  trail
    faces    the letters of a PNG
"""

from seqloom.figures.bars import Bars
from seqloom.figures.figure import Figure
from seqloom.figures.heatmap import HeatMap
from seqloom.figures.line import Line, Series
from seqloom.figures.links import Link, Links
from seqloom.figures.matrix import Matrix
from seqloom.figures.network import Edge, Network, Node
from seqloom.figures.page import page
from seqloom.figures.points import Points
from seqloom.figures.strip import Strip
from seqloom.figures.tiles import Tile, Tiles
from seqloom.figures.trail import Trail

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
