"""How the tests look at a picture: its labels, its frame, its pixels and its legend, without the code that drew it."""

import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from seqloom.report.figures.stack import png

SVG = "{http://www.w3.org/2000/svg}"
WHITE = (255, 255, 255)
EDGE = 6  # pixels, in which nothing is drawn
LEGEND_STEPS = 32  # rectangles of a legend's bar
ALONE = {"meta", "link", "input", "br", "hr", "img"}  # elements of HTML that are never closed


class Drawn(NamedTuple):
    """An element and the corner that its coordinates are counted from."""

    element: ElementTree.Element
    x: float
    y: float

    def number(self, name: str) -> float:
        return float(self.element.get(name, "0"))


class Picture:
    """One SVG, parsed and rendered."""

    def __init__(self, svg: str) -> None:
        self.root = ElementTree.fromstring(svg)
        self.width, self.height = map(float, self.root.attrib["viewBox"].split()[2:])
        self.elements = list(_placed(self.root, 0.0, 0.0))
        self.pixels = np.asarray(Image.open(io.BytesIO(png(svg, zoom=1.0))).convert("RGB"))

    def labels_outside(self) -> list[str]:
        """The labels that begin outside the frame."""
        labels = [one for one in self.elements if one.element.tag == f"{SVG}text"]
        return [
            "".join(one.element.itertext())
            for one in labels
            if not (0 <= one.x + one.number("x") <= self.width and 0 <= one.y + one.number("y") <= self.height)
        ]

    def is_cut(self) -> bool:
        """Whether something is drawn across the frame: then its edge is not of one color."""
        edges = self.pixels[:EDGE], self.pixels[-EDGE:], self.pixels[:, :EDGE], self.pixels[:, -EDGE:]
        return any((edge != WHITE).any() for edge in edges)

    def inked(self) -> float:
        """The share of pixels that are not the ground."""
        return float((self.pixels != WHITE).any(axis=2).mean())

    def color(self, x: float, y: float) -> tuple[int, int, int]:
        """That of the pixel at a place of the picture."""
        red, green, blue = self.pixels[int(y), int(x)]
        return int(red), int(green), int(blue)

    def color_in(self, one: Drawn, across: float = 0.5, down: float = 0.5) -> tuple[int, int, int]:
        """That of a pixel inside a rectangle."""
        x = one.x + one.number("x") + one.number("width") * across
        return self.color(x, one.y + one.number("y") + one.number("height") * down)

    def rectangles(self) -> list[Drawn]:
        """The rectangles, in their order."""
        return [one for one in self.elements if one.element.tag == f"{SVG}rect"]

    def legend(self) -> list[Drawn]:
        """The bar of the legend, if there is one: the first run of rectangles of one height that touch."""
        found: list[Drawn] = []
        for one in self.rectangles():
            follows = found and one.y == found[-1].y and abs(one.number("x") - _right(found[-1])) < 0.1
            found = [*found, one] if follows and one.number("height") == found[-1].number("height") else [one]
            if len(found) == LEGEND_STEPS:
                return found
        return []

    def noted(self) -> dict[str, Drawn]:
        """The elements that say something on hover, by what they say."""
        return {note.text or "": one for one in self.elements if (note := one.element.find(f"{SVG}title")) is not None}


def _right(one: Drawn) -> float:
    return one.number("x") + one.number("width")


def _placed(element: ElementTree.Element, x: float, y: float) -> Iterator[Drawn]:
    if (found := re.match(r"translate\(([-\d.e]+)[ ,]+([-\d.e]+)\)", element.get("transform", ""))) is not None:
        x, y = x + float(found[1]), y + float(found[2])
    yield Drawn(element, x, y)
    for child in element:
        yield from _placed(child, x, y)


class Page(HTMLParser):
    """A page, read as browsers read it: elements that are not closed, addresses, the text that people see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.faults: list[str] = []
        self.names: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        if tag not in ALONE:
            self.open.append(tag)
        for name, value in attrs:
            address = re.search(r"(?:https?:)?//|javascript:|data:text", value or "")
            if name.startswith("on") or (address and not name.startswith("xmlns")):
                self.faults.append(f"{tag} {name}={value}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in ALONE:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text += data
