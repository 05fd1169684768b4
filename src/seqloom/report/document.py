"""A document: what a result shows, as plain values, with one renderer each for terminal, page, Markdown and JSON.

    Document(title, blocks)
      Heading  Paragraph  Aside     words: a title, a text, a soft remark
      TableBlock  Bullets  Quote    rows and columns; a list; what somebody else said
      KeyFigures  Callout           a few large numbers; the verdict
      Pictures  CodeBlock           figures; a file or a command as it stands
      Details                       what a page folds away, and a terminal leaves out
      Interactive                   what only a page can do, with a script of its own, and what is shown elsewhere

    a line is a str, or Spans of words, `Code` and `Mark`s;   a cell is a line, a number, a `Bar`, or Paragraphs

What is empty is left out, and so is a heading with nothing below it: whoever writes a document need not ask. Numbers
stay numbers until they are printed, by `seqloom.report.numbers`.

>>> found = Document("Results", (Heading("Scores"), TableBlock(("metric", "value"), (("accuracy", 0.93333),))))
>>> print(found.text(50))
Results
<BLANKLINE>
Scores
  metric     value
  accuracy  0.9333
<BLANKLINE>
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import msgspec

from seqloom.report.figures.figure import Figure
from seqloom.report.figures.markup import Markup
from seqloom.report.numbers import number

Kind = Literal["fine", "warn", "reject", "note", "open", "plain"]  # of a verdict; open: nobody knows
SIGNS: dict[str, str] = {"fine": "✓", "warn": "!", "reject": "✗", "note": "·", "open": "?", "plain": ""}
NUMERIC = re.compile(r"[-+<>]?\d|-?$|not finite$")  # how a cell of a column of numbers begins


class Code(str):
    """Words as they are typed: a flag, a file, a code."""

    __slots__ = ()


class Mark(str):
    """A sign: one of the kinds of SIGNS."""

    __slots__ = ()


class Spans(tuple[str, ...]):
    """A line of several spans, each a str, `Code` or a `Mark`."""

    __slots__ = ()

    def __new__(cls, *spans: str) -> "Spans":
        """The line."""
        return super().__new__(cls, spans)


Line = str | Spans


class Paragraphs(tuple[Line, ...]):
    """A cell of several lines, one below the other."""

    __slots__ = ()

    def __new__(cls, *lines: Line) -> "Paragraphs":
        """The cell."""
        return super().__new__(cls, lines)


@dataclass(frozen=True)
class Bar:
    """A cell that is a bar: this share of the room there is."""

    share: float


TableCell = Line | Paragraphs | Bar | float | None


def spans(line: Line) -> tuple[str, ...]:
    """The spans of a line."""
    return tuple(line) if isinstance(line, Spans) else (line,)


def lines_of(cell: TableCell) -> tuple[Line, ...]:
    """The lines of a cell that is no bar; a number is printed."""
    if isinstance(cell, Paragraphs):
        return tuple(cell)
    if isinstance(cell, str | Spans):
        return (cell,)
    return ("",) if cell is None or isinstance(cell, Bar) else (number(cell),)


@dataclass(frozen=True)
class DocumentBlock:
    """A part of a document; one whose first field is empty has nothing to show."""

    kind: ClassVar[str]

    def __init_subclass__(cls, kind: str = "") -> None:
        cls.kind = kind or cls.kind

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it."""
        return not getattr(self, fields(self)[0].name)


@dataclass(frozen=True)
class Heading(DocumentBlock, kind="heading"):
    """The title of what follows, down to the next heading of its level."""

    line: Line
    level: int = 2


@dataclass(frozen=True)
class Paragraph(DocumentBlock, kind="paragraph"):
    """A text."""

    line: Line


@dataclass(frozen=True)
class Aside(DocumentBlock, kind="aside"):
    """A soft remark."""

    line: Line


@dataclass(frozen=True)
class Callout(DocumentBlock, kind="callout"):
    """The verdict, in a box."""

    line: Line
    verdict: Kind = "plain"


@dataclass(frozen=True)
class Bullets(DocumentBlock, kind="bullets"):
    """A list."""

    lines: Sequence[Line]


@dataclass(frozen=True)
class Quote(DocumentBlock, kind="quote"):
    """Lines of somebody else: of the data, or of a model."""

    lines: Sequence[Line]


@dataclass(frozen=True)
class CodeBlock(DocumentBlock, kind="code"):
    """A file or a command as it stands."""

    text: str
    language: str = ""


@dataclass(frozen=True)
class KeyFigures(DocumentBlock, kind="figures"):
    """A few numbers that are seen first, each with what it is."""

    figures: Sequence[tuple[str | float, str]]


@dataclass(frozen=True)
class Pictures(DocumentBlock, kind="pictures"):
    """Figures; a terminal shows the first `brief` of them."""

    figures: Sequence[Figure]
    brief: int | None = None


@dataclass(frozen=True)
class TableBlock(DocumentBlock, kind="table"):
    """Rows of cells under their heads, if they have any; a terminal shows the first `brief` rows."""

    heads: Sequence[str]
    rows: Sequence[Sequence[TableCell]]
    brief: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has no row."""
        return not self.rows

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Of each column whether its cells begin as numbers do; the first one names its row, and never is."""
        return tuple(
            at > 0
            and not any(isinstance(cell, Bar | Spans | Paragraphs) for cell in column)
            and all(NUMERIC.match(str(lines_of(cell)[0])) for cell in column)
            for at, column in enumerate(zip(*self.rows, strict=True))
        )


@dataclass(frozen=True)
class Details(DocumentBlock, kind="details"):
    """What a page folds away under its title, and a terminal leaves out."""

    title: str
    blocks: Sequence[DocumentBlock]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(filled(self.blocks)))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is folded away."""
        return not self.blocks


@dataclass(frozen=True)
class Interactive(DocumentBlock, ABC, kind="interactive"):
    """What only a page can do: markup of its own, rules that join the style sheet, and at most one script.

    Every other form shows `blocks` in its place. The script is code of ours, never of a user's; it finds what `data`
    gives in the element `data`.
    """

    rules: ClassVar[str] = ""
    blocks: Sequence[DocumentBlock]

    @property
    def is_empty(self) -> bool:
        """Never: a page has something to show."""
        return False

    @abstractmethod
    def markup(self) -> Sequence[Markup]:
        """What stands on the page, made with `tag`."""

    def script(self) -> str:
        """The script; without one a page needs none."""
        return ""

    def data(self) -> Mapping[str, Any]:
        """What the script reads, as plain values."""
        return {}


def filled(blocks: Sequence[DocumentBlock]) -> list[DocumentBlock]:
    """The blocks that have something to show, without headings that have nothing below them."""
    kept: list[DocumentBlock] = []
    for block in reversed([block for block in blocks if not block.is_empty]):
        below = kept[-1] if kept else None
        if isinstance(block, Heading) and (
            below is None or (isinstance(below, Heading) and below.level <= block.level)
        ):
            continue
        kept.append(block)
    return kept[::-1]


@dataclass(frozen=True)
class Document:
    """A title and what stands below it."""

    title: str
    blocks: Sequence[DocumentBlock]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(filled(self.blocks)))

    @property
    def still(self) -> tuple[DocumentBlock, ...]:
        """The blocks where no page is: what is interactive as its figures and texts."""
        return tuple(
            part
            for block in self.blocks
            for part in (filled(block.blocks) if isinstance(block, Interactive) else [block])
        )

    def text(self, width: int = 80, color: bool = False) -> str:
        """The document as lines of at most `width` columns, with 24-bit terminal colors if asked for."""
        from seqloom.report.terminal import written

        return written(self, width, color)

    def html(self) -> str:
        """The document as one HTML page: no address, at most one script, light or dark as the reader prefers."""
        from seqloom.report.html import page

        return page(self)

    def markdown(self) -> str:
        """The document as Markdown."""
        from seqloom.report.markdown import marked

        return marked(self)

    def to_json(self) -> dict[str, Any]:
        """The document as plain values: the blocks by kind, figures as their numbers."""
        return {"title": self.title, "blocks": [_plain(block) for block in self.still]}

    def _repr_html_(self) -> str:
        from seqloom.report.html import framed

        return framed(self.html())


def _plain(value: Any) -> Any:
    if isinstance(value, DocumentBlock):
        return {"kind": value.kind, **{field.name: _plain(getattr(value, field.name)) for field in fields(value)}}
    if isinstance(value, Figure):
        return value.data()
    if isinstance(value, Bar):
        return value.share
    if isinstance(value, Mark):
        return SIGNS[value]
    if isinstance(value, Spans):
        return " ".join(_plain(span) if isinstance(span, Mark) else span for span in value if span)
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    if isinstance(value, str):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Shown:
    """A result that shows itself: whoever has a document has a text, a page and a place in a notebook."""

    __slots__ = ()

    def document(self) -> Document:
        """What is shown."""
        raise NotImplementedError

    def text(self, width: int = 80, color: bool = False) -> str:
        """The result as lines of at most `width` columns, with 24-bit terminal colors if asked for."""
        return self.document().text(width, color)

    def html(self) -> str:
        """The result as one HTML page that needs nothing else, light or dark as the reader prefers."""
        return self.document().html()

    def markdown(self) -> str:
        """The result as Markdown."""
        return self.document().markdown()

    def to_json(self) -> dict[str, Any]:
        """The result as plain values; a number that is not finite is None."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return plain

    def _repr_html_(self) -> str:
        return self.document()._repr_html_()
