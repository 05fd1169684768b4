"""Several figures as one picture, below each other: what a file of SVG or PNG can hold."""

import re
from collections.abc import Sequence

from seqloom.errors import needing
from seqloom.figures.figure import NAMESPACE, Figure
from seqloom.figures.markup import FLIPPED, look, style_sheet, tag, together

GAP = 8.0
ZOOM = 2.0  # pixels for each unit of a picture: letters stay sharp on a fine screen
RIGHT_TO_LEFT = re.compile(r'<text\b[^>]* direction="rtl"[^>]*>')
ANCHORED = re.compile(r' text-anchor="(\w+)"')
VIEW_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


def stacked(figures: Sequence[Figure]) -> str:
    """One SVG element with the figures below each other, as wide as the widest."""
    if len(figures) == 1:
        return figures[0].svg()
    drawn = [figure.drawn(styled=False) for figure in figures]
    sizes = [tuple(map(float, found.groups())) for one in drawn if (found := VIEW_BOX.search(one))]
    width, height = max(size[0] for size in sizes), sum(size[1] + GAP for size in sizes) - GAP
    top, placed = 0.0, []
    for one, (_, tall) in zip(drawn, sizes, strict=True):
        placed.append(tag("g", one, transform=f"translate(0 {top:g})"))
        top += tall + GAP
    body = together([tag("rect", width=width, height=height, **look("ground")), *placed])
    box: dict[str, str | float] = {"viewBox": f"0 0 {width:g} {height:g}", "width": width, "height": height}
    return tag("svg", tag("style", style_sheet(body)), body, xmlns=NAMESPACE, **box, class_="seqloom")


def png(svg: str, *, zoom: float = ZOOM) -> bytes:
    """A picture as PNG, by resvg, which needs no browser; on a white ground, whatever the reader prefers."""
    with needing("png"):
        import resvg_py
    return bytes(resvg_py.svg_to_bytes(svg_string=_for_resvg(svg), zoom=zoom, background="#ffffff"))


def _for_resvg(svg: str) -> str:
    """The same picture as resvg understands it: to it the start of a line is its left end, whatever the direction.

    A minus sign has no place in many fonts, and resvg then takes any other for the whole number; a dash looks the same.
    """
    return RIGHT_TO_LEFT.sub(_from_the_left, svg).replace("\u2212", "\u2013")


def _from_the_left(found: re.Match[str]) -> str:
    opening = found.group().replace(' direction="rtl"', "")
    anchor = ANCHORED.search(opening)
    turned = f' text-anchor="{FLIPPED[anchor.group(1) if anchor else "start"]}"'
    return ANCHORED.sub("", opening)[:-1] + turned + ">"
