"""Markdown renderer; text that Markdown would interpret is escaped, and code becomes code spans."""

import re
from dataclasses import replace

from seqloom.report import document as doc
from seqloom.report.document import SIGNS, Bar, Code, Document, DocumentBlock, Line, Mark, TableCell, lines_of, spans
from seqloom.report.labels import visible
from seqloom.report.numbers import number, share

LONGEST = 10_000  # characters of a span
COLUMNS = 80  # width of a figure
SPECIAL = re.compile(r"[\\`*\[\]<>|]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)|^(?=[#+-]\s)|^\d+(?=[.)]\s)")


def marked(document: Document) -> str:
    """Return the document as Markdown."""
    shown = [block_md(block, document.title) for block in document.still]
    return "\n\n".join([f"# {_line(document.title)}", *shown]) + "\n"


def code(text: str) -> str:
    """Return text as a one-line code span with invisible characters escaped.

    >>> print(code("a`b\\n# c"), code(""))
    ``a`b\\x0a# c`` (empty)
    """
    shown = visible(text[:LONGEST])
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    space = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{space}{shown}{space}{fence}" if shown.strip() else "(empty)"


def _line(line: Line) -> str:
    return "".join(map(_span, spans(line)))


def _span(span: str) -> str:
    if isinstance(span, Mark):
        return f"{SIGNS[span]} "
    if isinstance(span, Code):
        return code(span)
    return SPECIAL.sub(lambda found: f"\\{found.group()}", visible(span[:LONGEST]))


def block_md(block: DocumentBlock, title: str = "") -> str:
    """Return a block as Markdown; `title` is the title of the document."""
    match block:
        case doc.Heading(line, level):
            return f"{'#' * level} {_line(line)}"
        case doc.Paragraph(line) | doc.Aside(line):
            return _line(line)
        case doc.Callout(line, verdict):
            return f"> {f'{SIGNS[verdict]} {_line(line)}'.lstrip()}"
        case doc.Bullets(lines):
            return "\n".join(f"- {_line(line)}" for line in lines)
        case doc.Quote(lines):
            return "\n>\n".join(f"> {_line(line)}" for line in lines)
        case doc.MarkedText():
            return _line(block.line())
        case doc.CodeBlock(text, language):
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
            shown = "\n".join(map(visible, text.rstrip().split("\n")))
            return f"{fence}{language}\n{shown}\n{fence}"
        case doc.KeyFigures(figures):
            named = [(one if isinstance(one, str) else number(one), words) for one, words in figures]
            return "\n".join(f"- {_line(one)} {_line(words)}" for one, words in named)
        case doc.Pictures(figures):
            untitled = [replace(figure, title="") if figure.title == title else figure for figure in figures]
            return "\n\n".join(f"```\n{figure.text(COLUMNS)}\n```" for figure in untitled)
        case doc.Details(title, blocks):
            return "\n\n".join([f"**{_line(title)}**", *map(block_md, blocks)])
        case doc.TableBlock(heads, rows):
            rule = ["---:" if numeric else "---" for numeric in block.numeric]
            cells = [map(_line, heads or [""] * len(rule)), rule, *(map(_cell, row) for row in rows)]
            return "\n".join(f"| {' | '.join(row)} |" for row in cells)
    raise TypeError(block)


def _cell(cell: TableCell) -> str:
    if isinstance(cell, Bar):
        return share(cell.share)
    return "<br>".join(re.sub(r"(?<!\\)\|", r"\\|", _line(line)) for line in lines_of(cell))
