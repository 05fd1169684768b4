"""Documents: the content of a report as plain values, with renderers for terminal, HTML, Markdown and JSON.

    Document(title, blocks)
      Heading  Paragraph  Aside     a title, a text, a side note
      TableBlock  Bullets  Quote    rows and columns; a list; text from the data or a model
      KeyFigures  Callout           a few large numbers; the verdict
      Pictures  CodeBlock           figures; a file or a command
      MarkedText                    a text with marked parts, such as entities
      Details                       collapsed on a page, left out in a terminal
      Interactive                   page content with its own script, and its replacement elsewhere

    a line is a str, or Spans of words, `Code` and `Mark`s;   a cell is a line, a number, a `Bar`, or Paragraphs

Empty blocks are left out, and so are headings with nothing below them, so the author need not check. Numbers stay
numbers until `seqloom.report.numbers` formats them.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from seqloom.errors import DataError
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.markup import Markup
from seqloom.report.numbers import number

Kind = Literal["fine", "warn", "reject", "note", "open", "plain"]  # of a verdict; open: undecided
SIGNS: dict[str, str] = {"fine": "✓", "warn": "!", "reject": "✗", "note": "·", "open": "?", "plain": ""}
REPORT_COLUMNS = 100  # of a text to print
NUMERIC = re.compile(r"[-+<>]?\d|-?$|not finite$")  # how a cell in a numeric column begins


class Code(str):
    """Text to type literally: a flag, a file name, code."""

    __slots__ = ()


class Mark(str):
    """A sign: one of the kinds in SIGNS."""

    __slots__ = ()


class Spans(tuple[str, ...]):
    """A line of several spans, each a str, `Code` or `Mark`."""

    __slots__ = ()

    def __new__(cls, *spans: str) -> "Spans":
        """Create the line from its spans."""
        return super().__new__(cls, spans)


Line = str | Spans


class Paragraphs(tuple[Line, ...]):
    """A cell with several lines."""

    __slots__ = ()

    def __new__(cls, *lines: Line) -> "Paragraphs":
        """Create the cell from its lines."""
        return super().__new__(cls, lines)


@dataclass(frozen=True)
class Bar:
    """A cell that shows a bar; its length is a share of the available width."""

    share: float


TableCell = Line | Paragraphs | Bar | float | None


def spans(line: Line) -> tuple[str, ...]:
    """Return the spans of a line."""
    return tuple(line) if isinstance(line, Spans) else (line,)


def lines_of(cell: TableCell) -> tuple[Line, ...]:
    """Return the lines of a cell that is not a bar; numbers are formatted."""
    if isinstance(cell, Paragraphs):
        return tuple(cell)
    if isinstance(cell, str | Spans):
        return (cell,)
    return ("",) if cell is None or isinstance(cell, Bar) else (number(cell),)


@dataclass(frozen=True)
class DocumentBlock:
    """A part of a document; it is empty if its first field is empty."""

    kind: ClassVar[str]

    def __init_subclass__(cls, kind: str = "") -> None:
        cls.kind = kind or cls.kind

    @property
    def is_empty(self) -> bool:
        """Whether the block has no content."""
        return not getattr(self, fields(self)[0].name)


@dataclass(frozen=True)
class Heading(DocumentBlock, kind="heading"):
    """A heading; it covers everything up to the next heading of its level."""

    line: Line
    level: int = 2


@dataclass(frozen=True)
class Paragraph(DocumentBlock, kind="paragraph"):
    """A text."""

    line: Line


@dataclass(frozen=True)
class Aside(DocumentBlock, kind="aside"):
    """A side note."""

    line: Line


@dataclass(frozen=True)
class Callout(DocumentBlock, kind="callout"):
    """The verdict, shown in a box."""

    line: Line
    verdict: Kind = "plain"


@dataclass(frozen=True)
class Bullets(DocumentBlock, kind="bullets"):
    """A list."""

    lines: Sequence[Line]


@dataclass(frozen=True)
class Quote(DocumentBlock, kind="quote"):
    """Lines quoted from the data or from a model."""

    lines: Sequence[Line]


class TextMark(NamedTuple):
    """The characters start..stop of a text with their label; `note` is shown on hover."""

    start: int
    stop: int
    label: str
    note: str = ""


@dataclass(frozen=True)
class MarkedText(DocumentBlock, kind="marked"):
    """A text with marked parts, in order and without overlap. The color of a label is its place among `labels`.

    >>> MarkedText("Ada met Bo.", [TextMark(0, 3, "PER"), TextMark(8, 10, "PER")]).line()
    '[Ada](PER) met [Bo](PER).'
    """

    text: str
    marks: Sequence[TextMark]
    labels: Sequence[str] = ()  # all labels that may occur; default: those of the marks, sorted

    def parts(self) -> Iterator[tuple[str, TextMark | None, int]]:
        """Yield the text in parts, each with its mark, if any, and the number of its color."""
        order = list(self.labels) or sorted({mark.label for mark in self.marks})
        at = 0
        for mark in self.marks:
            if not (at <= mark.start < mark.stop <= len(self.text)):
                found = f"the mark {tuple(mark[:2])} after character {at} of {len(self.text)}"
                raise DataError(found, fix="give marks in order, inside the text and without overlap")
            yield self.text[at : mark.start], None, 0
            yield self.text[mark.start : mark.stop], mark, order.index(mark.label) if mark.label in order else 0
            at = mark.stop
        yield self.text[at:], None, 0

    def line(self) -> str:
        """The text in one line with its marks in brackets."""
        return "".join(text if mark is None else f"[{text}]({mark.label})" for text, mark, _ in self.parts())


@dataclass(frozen=True)
class CodeBlock(DocumentBlock, kind="code"):
    """A file or a command, shown verbatim; a terminal does not break the lines of the language `sh`."""

    text: str
    language: str = ""


@dataclass(frozen=True)
class KeyFigures(DocumentBlock, kind="figures"):
    """A few important numbers with their names, shown large."""

    figures: Sequence[tuple[str | float, str]]


@dataclass(frozen=True)
class Pictures(DocumentBlock, kind="pictures"):
    """Figures; a terminal shows the first `brief` of them."""

    figures: Sequence[Figure]
    brief: int | None = None


@dataclass(frozen=True)
class TableBlock(DocumentBlock, kind="table"):
    """Rows of cells with optional column headers; a terminal shows the first `brief` rows."""

    heads: Sequence[str]
    rows: Sequence[Sequence[TableCell]]
    brief: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the table has no rows."""
        return not self.rows

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Whether each column is numeric; the first one names its row and never is."""
        return tuple(
            at > 0
            and not any(isinstance(cell, Bar | Spans | Paragraphs) for cell in column)
            and all(NUMERIC.match(str(lines_of(cell)[0])) for cell in column)
            for at, column in enumerate(zip(*self.rows, strict=True))
        )


@dataclass(frozen=True)
class Details(DocumentBlock, kind="details"):
    """Blocks that a page collapses under a title and a terminal leaves out."""

    title: str
    blocks: Sequence[DocumentBlock]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(filled(self.blocks)))

    @property
    def is_empty(self) -> bool:
        """Whether there are no blocks inside."""
        return not self.blocks


@dataclass(frozen=True)
class Interactive(DocumentBlock, ABC, kind="interactive"):
    """Content for pages only: its own markup, extra style rules, and at most one script.

    Other formats show `blocks` instead. The script is part of Seqloom, never from a user; it reads `data` from the
    element `data`.
    """

    rules: ClassVar[str] = ""
    blocks: Sequence[DocumentBlock]

    @property
    def is_empty(self) -> bool:
        """Always False: a page has content to show."""
        return False

    @abstractmethod
    def markup(self) -> Sequence[Markup]:
        """Return the markup for the page, made with `tag`."""

    def script(self) -> str:
        """Return the script, or an empty string."""
        return ""

    def data(self) -> Mapping[str, Any]:
        """Return the data for the script as plain values."""
        return {}


def filled(blocks: Sequence[DocumentBlock]) -> list[DocumentBlock]:
    """Return the blocks that are not empty, without headings that have nothing below them."""
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
    """A title and the blocks below it."""

    title: str
    blocks: Sequence[DocumentBlock]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(filled(self.blocks)))

    @property
    def still(self) -> tuple[DocumentBlock, ...]:
        """Return the blocks for formats other than HTML: interactive blocks are replaced by their figures and texts."""
        return tuple(
            part
            for block in self.blocks
            for part in (filled(block.blocks) if isinstance(block, Interactive) else [block])
        )

    def text(self, width: int = 80, color: bool = False) -> str:
        """Return the document as lines of at most `width` columns, with 24-bit terminal colors if `color` is set."""
        from seqloom.report.terminal import written

        return written(self, width, color)

    def html(self) -> str:
        """Return the document as one self-contained HTML page with at most one script, in a light and a dark theme."""
        from seqloom.report.html import page

        return page(self)

    def markdown(self) -> str:
        """Return the document as Markdown."""
        from seqloom.report.markdown import marked

        return marked(self)

    def to_json(self) -> dict[str, Any]:
        """Return the document as plain values: the blocks by kind, figures as their numbers."""
        return {"title": self.title, "blocks": [_plain(block) for block in self.still]}

    def _repr_html_(self) -> str:
        from seqloom.report.html import framed

        return framed(self)


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
    """Base class of results with a `document`; provides text, HTML, Markdown, JSON and notebook display."""

    __slots__ = ()

    def document(self) -> Document:
        """Return the document that shows this result."""
        raise NotImplementedError

    def text(self, width: int = 80, color: bool = False) -> str:
        """Return the result as lines of at most `width` columns, with 24-bit terminal colors if `color` is set."""
        return self.document().text(width, color)

    def html(self) -> str:
        """Return the result as one self-contained HTML page, in a light and a dark theme."""
        return self.document().html()

    def report(self) -> str:
        """Return the result as text to print, in lines of at most 100 columns."""
        return self.text(REPORT_COLUMNS)

    def markdown(self) -> str:
        """Return the result as Markdown."""
        return self.document().markdown()

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values; numbers that are not finite become None."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return plain

    def _repr_html_(self) -> str:
        return self.document()._repr_html_()
