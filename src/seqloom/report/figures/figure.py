"""What all figures are: frozen values with a title that draw themselves as SVG and write themselves as text."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import ClassVar, NamedTuple

from seqloom.errors import DataError
from seqloom.report.figures import checks
from seqloom.report.figures.axis import minus_signed
from seqloom.report.figures.labels import columns, ems, isolated, visible, wrap
from seqloom.report.figures.markup import FONT, Markup, label, look, style_sheet, tag, together

WIDTH = 720.0  # of a picture that has no reason for another width
MARGIN = 20.0
NARROWEST, LEAST_COLUMNS = 360.0, 40
TITLE_SIZE, NOTE_SIZE = 16.0, 12.0
BOLD_SIZE = TITLE_SIZE * 1.06  # bold letters are a little wider
NAMESPACE = "http://www.w3.org/2000/svg"


class Plot(NamedTuple):
    """The middle of a picture, drawn from its own upper edge down, and what must be said below it."""

    marks: Markup
    width: float
    height: float
    notes: tuple[str, ...] = ()


class FigureBlock(NamedTuple):
    """The middle of a figure as lines for a terminal, and what must be said below it."""

    lines: list[str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Figure(ABC):
    """A picture as a value; the kinds are the modules beside this one, from `Line` to `Trail`."""

    kind: ClassVar[str]
    title: str
    caption: str = ""

    def __post_init__(self) -> None:
        checks.text(self.title, "title")
        checks.text(self.caption, "caption")

    @abstractmethod
    def _plot(self) -> Plot: ...

    @abstractmethod
    def _block(self, width: int, colour: bool) -> FigureBlock: ...

    @abstractmethod
    def _summary(self) -> str: ...

    def svg(self) -> str:
        """One self-contained SVG element that follows the reader's preference for light or dark."""
        return self.drawn(styled=True)

    def drawn(self, *, styled: bool, titled: bool = True) -> Markup:
        """The SVG element with its style sheet and its title, or without where the page around it has them already."""
        plot = self._plot()
        notes = [note for note in (self.caption, *plot.notes) if note]
        body, width, height = _framed(plot, self.title if titled else "", notes)
        style = [tag("style", style_sheet(body))] if styled else []
        named = [tag("title", self.title), tag("desc", " ".join([self._summary(), *notes]))]
        size: dict[str, str | float] = {
            "viewBox": f"0 0 {width:g} {height:g}",
            "width": width,
            "height": height,
        }
        reader = {"role": "img", "aria_label": self.title or self.kind}
        look_of = {"class_": "seqloom", "font_family": FONT}
        return tag("svg", *named, *style, body, xmlns=NAMESPACE, **size, **reader, **look_of)

    def text(self, width: int = 80, colour: bool = False) -> str:
        """The figure as lines of at most `width` columns, with 24-bit terminal colours if asked for."""
        if width < LEAST_COLUMNS:
            raise DataError(f"a figure {width} columns wide was asked for", fix=f"give it at least {LEAST_COLUMNS}")
        block = self._block(width, colour)
        titles = _written(self.title, width)
        notes = [line for note in (self.caption, *block.notes) for line in _written(note, width)]
        return "\n".join(line.rstrip() for line in (*titles, *block.lines, *notes))

    def data(self) -> dict[str, object]:
        """The figure as plain values that JSON can hold, its `kind` first; a missing number is None."""
        return {"kind": self.kind, **_plain_fields(self)}

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return self.svg()


def _framed(plot: Plot, title: str, notes: Sequence[str]) -> tuple[Markup, float, float]:
    """The plot between its title and its notes on a ground of its own, and the width and the height of it all."""
    room = max(plot.width, min(WIDTH, BOLD_SIZE * ems(visible(title)) + 2 * MARGIN + 1)) - 2 * MARGIN
    width = room + 2 * MARGIN
    titles = wrap(visible(title), room / BOLD_SIZE, ems) if title else []
    below = [line for note in notes for line in wrap(minus_signed(visible(note)), room / NOTE_SIZE, ems)]
    top = MARGIN + 24 * len(titles)
    end = top + plot.height
    height = end + 18 * len(below) + MARGIN
    heads = [label(line, MARGIN, MARGIN + 14 + 24 * at, size=TITLE_SIZE) for at, line in enumerate(titles)]
    feet = [label(line, MARGIN, end + 14 + 18 * at, size=NOTE_SIZE, theme="soft") for at, line in enumerate(below)]
    ground = tag("rect", width=width, height=height, **look("ground"))
    middle = tag("g", plot.marks, transform=f"translate(0 {top:g})")
    return together([ground, tag("g", *heads, font_weight=600), middle, *feet]), width, height


def _written(text: str, width: int) -> list[str]:
    return [isolated(line) for line in wrap(visible(text), width)] if text else []


def _plain_fields(value: object) -> dict[str, object]:
    assert is_dataclass(value)
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return _plain_fields(value) if is_dataclass(value) else value


def ruler(marks: Mapping[int, str], width: int) -> str:
    """A line of at most `width` columns with each label near its column, leaving out those that would touch another."""
    line = ""
    for column, text in sorted(marks.items()):
        start = min(max(0, column - columns(text) // 2), width - columns(text))
        if start >= columns(line) + (1 if line else 0):
            line += " " * (start - columns(line)) + text
    return line
