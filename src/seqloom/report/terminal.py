"""Terminal renderer: content below a heading is indented, and no line exceeds the width, except shell commands.

A table that is too wide wraps its long texts. If that is not enough, the columns that do not fit follow below their
row, each with its name.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from seqloom.errors import DataError
from seqloom.report import document as doc
from seqloom.report.document import SIGNS, Bar, Document, DocumentBlock, Line, Mark, Spans, TableCell, lines_of, spans
from seqloom.report.figures.markup import Color, in_color
from seqloom.report.labels import cell as padded
from seqloom.report.labels import columns, excerpt, isolated, visible, wrap
from seqloom.report.numbers import number

NARROWEST = 50  # columns
INDENT, GAP, JOINED = "  ", "  ", " · "
WRAPPED = 24  # minimum columns of a wrapped text
BAR = 20  # columns
LONGEST = 10_000  # characters of a span
DECIMAL = re.compile(r"[-+]?[\d,]+(\.\d+)?$")
TINTS: dict[str, Color] = {
    "fine": (58, 150, 98),
    "warn": (199, 137, 32),
    "open": (199, 137, 32),
    "reject": (209, 73, 63),
    "note": (128, 138, 150),
    "plain": (128, 138, 150),
}


def written(document: Document, width: int, color: bool) -> str:
    """Return the document as lines of at most `width` columns."""
    if width < NARROWEST:
        raise DataError(f"a report of {width} columns is too narrow", fix=f"give it at least {NARROWEST}")
    lines = [_bold(isolated(excerpt(document.title, width)), color)]
    indent, after_heading = "", False
    for block in document.still:
        indent = "" if isinstance(block, doc.Heading) else indent
        found = [f"{indent}{line}".rstrip() for line in block_lines(block, width - len(indent), color, document.title)]
        if found and not after_heading and not isinstance(block, doc.Paragraph | doc.Aside | doc.Callout | doc.Bullets):
            lines.append("")
        lines += found
        if after_heading := isinstance(block, doc.Heading):
            indent = INDENT
    return "\n".join(lines) + "\n"


def _bold(text: str, color: bool) -> str:
    return f"\x1b[1m{text}\x1b[0m" if color else text


def _words(line: Line) -> str:
    """Return the line as text with invisible characters escaped."""
    return "".join(f"{SIGNS[span]} " if isinstance(span, Mark) else visible(span[:LONGEST]) for span in spans(line))


def _wrapped(line: Line, width: int, color: bool, first: str = "", later: str = "") -> Iterator[str]:
    for at, text in enumerate(wrap(_words(line), width - len(later))):
        yield f"{later if at else first}{_tinted(isolated(text), line, color and not at)}"


def _tinted(text: str, line: TableCell, color: bool) -> str:
    """Color the sign that the text begins with."""
    mark = line[0] if isinstance(line, Spans) and line else None
    if not color or not isinstance(mark, Mark):
        return text
    return text.replace(SIGNS[mark], in_color(SIGNS[mark], TINTS[mark]), 1)


def block_lines(block: DocumentBlock, width: int, color: bool, title: str = "") -> Iterator[str]:
    """Yield the lines of a block; `title` is the title of the document. Collapsed blocks yield nothing."""
    match block:
        case doc.Heading(line):
            yield from (_bold(text, color) for text in _wrapped(line, width, False))
        case doc.Paragraph(line) | doc.Aside(line):
            yield from _wrapped(line, width, color)
        case doc.Callout(line, verdict):
            for text in wrap(f"{SIGNS[verdict]} {_words(line)}".lstrip(), width):
                yield in_color(text, TINTS[verdict]) if color else text
        case doc.Bullets(lines):
            for line in lines:
                yield from _wrapped(line, width, color, "- ", INDENT)
        case doc.Quote(lines):
            for line in lines:
                yield from _wrapped(line, width, color, "│ ", "│ ")
        case doc.MarkedText():
            yield from _wrapped(block.line(), width, False)
        case doc.CodeBlock(text, "sh"):  # a command that is broken cannot be copied
            yield from map(visible, text.rstrip("\n").split("\n"))
        case doc.CodeBlock(text):
            for line in text[:LONGEST].rstrip("\n").split("\n"):
                yield from wrap(visible(line), width)
        case doc.KeyFigures(figures):
            shown = [one if isinstance(one, str) else number(one) for one, _ in figures]
            room = max(map(columns, shown))
            for one, (_, words) in zip(shown, figures, strict=True):
                head = padded(one, room, right=True) + GAP
                yield from _wrapped(words, width, False, head, " " * (room + len(GAP)))
        case doc.Pictures(figures, brief):
            for at, figure in enumerate(figures[:brief]):
                named = replace(figure, title="") if figure.title == title else figure  # printed above
                yield from ["", *named.text(width, color).split("\n")][not at :]
        case doc.TableBlock():
            yield from _table(block, width, color)


def _table(table: doc.TableBlock, width: int, color: bool) -> Iterator[str]:
    rows, numeric = table.rows[: table.brief], table.numeric
    heads = list(map(visible, table.heads)) if any(table.heads) else [""] * len(numeric)
    stacks = [[_text(row[at]) for row in rows] for at in range(len(numeric))]  # the texts of each column
    stacks = [_aligned(texts) if is_number else texts for texts, is_number in zip(stacks, numeric, strict=True)]
    sizes = [
        max(columns(line) for text in (head, *texts) for line in text.split("\n"))
        for head, texts in zip(heads, stacks, strict=True)
    ]
    widths = _fitted(sizes, numeric, width)
    if any(heads):
        yield from _grid(heads, numeric, widths)
    for row, texts in zip(rows, zip(*stacks, strict=True), strict=True):
        first, *others = _grid(texts, numeric, widths)
        yield _tinted(first, row[0], color)
        yield from others
        below = list(zip(heads, texts, strict=True))[len(widths) :]
        rest = JOINED.join(f"{head} {text.strip()}".replace("\n", " ") for head, text in below if text.strip())
        yield from _wrapped(rest, width, False, INDENT, INDENT) if rest else ()
    if len(rows) < len(table.rows):
        yield f"and {len(table.rows) - len(rows):,} more"


def _text(cell: TableCell) -> str:
    if isinstance(cell, Bar):
        return "█" * max(round(BAR * cell.share), cell.share > 0)
    return "\n".join(map(_words, lines_of(cell)))


def _aligned(texts: Sequence[str]) -> list[str]:
    """Align numbers at their decimal points."""
    behind = [len(text.partition(".")[2]) + ("." in text) if DECIMAL.match(text) else None for text in texts]
    most = max((count for count in behind if count is not None), default=0)
    return [text if count is None else text + " " * (most - count) for text, count in zip(texts, behind, strict=True)]


def _fitted(sizes: Sequence[int], numeric: Sequence[bool], width: int) -> list[int]:
    """Return the widths of the columns that fit side by side; all of them if wrapping long texts suffices."""
    room = width - len(GAP) * (len(sizes) - 1)
    if sum(sizes) <= room:
        return list(sizes)
    long = sorted((size, at) for at, size in enumerate(sizes) if size > WRAPPED and not numeric[at])
    left = room - sum(size for at, size in enumerate(sizes) if (size, at) not in long)
    if long and left >= WRAPPED * len(long):
        widths = list(sizes)
        for count, (size, at) in zip(range(len(long), 0, -1), long, strict=True):
            widths[at] = min(size, left // count)
            left -= widths[at]
        return widths
    kept, used = [min(sizes[0], width // 2)], 0
    for size in sizes[1:]:
        used = sum(kept) + len(GAP) * len(kept)
        if used + size > width:
            break
        kept.append(size)
    return kept


def _grid(texts: Sequence[str], numeric: Sequence[bool], widths: Sequence[int]) -> list[str]:
    """Return the lines of a row."""
    stacks = [
        [part for line in text.split("\n") for part in wrap(line, width)]
        for text, width in zip(texts, widths, strict=False)
    ]
    lines = []
    for line in zip_longest(*stacks, fillvalue=""):
        cells = zip(line, widths, numeric, strict=False)
        lines.append(GAP.join(padded(text, width, right=right) for text, width, right in cells).rstrip())
    return lines
