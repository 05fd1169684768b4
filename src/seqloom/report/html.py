"""HTML renderer: a self-contained page with one style sheet, no links, at most one script, and a light and dark theme.

The page's content security policy allows a script only by its hash. The script's data is embedded as JSON in which `<`
is escaped, so that it cannot end the element early.
"""

import base64
import hashlib
import html
import json
from collections.abc import Sequence

from seqloom.report import document as doc
from seqloom.report.document import SIGNS, Bar, Code, Document, DocumentBlock, Line, Mark, TableCell, lines_of, spans
from seqloom.report.figures.markup import FONT, LINES_DARK, LINES_LIGHT, Markup, style_sheet, tag, together
from seqloom.report.labels import isolated
from seqloom.report.numbers import number

LONGEST = 10_000  # characters of a span
LONGEST_FILE = 40_000
TALLEST = 720  # pixels of the frame in a notebook; longer pages scroll
SPACES = str.maketrans("\n\r\t", "   ")
SHORT = 40  # maximum characters of a cell that is not wrapped
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLES = (
    f":root{{color-scheme:light dark}}body{{margin:0;background:#fff;color:#1c2026;font-family:{FONT}}}"
    "@media (prefers-color-scheme:dark){body{background:#14171c;color:#e6e8eb}}"
    "main{margin:0 auto;padding:24px 20px}svg{display:block;max-width:100%;height:auto}"
    # Text aligns with figures, whose own margin is 20; figures are placed side by side where they fit.
    "main>figure{display:inline-block;vertical-align:top;margin:12px 0 12px -20px;max-width:calc(100% + 40px)}"
    "@media (min-width:1000px){main>figure{margin-left:-24px}main>figure>svg{zoom:1.2}}"
    ":root{--soft:#59616d;--rule:#e1e4e8;--panel:#f6f7f9;--bar:#336d9c;--fine:#1f7a4d;--warn:#96590a;--reject:#b3261e}"
    "@media (prefers-color-scheme:dark){:root{--soft:#a2abb8;--rule:#2d333c;--panel:#1b1f26;--bar:#3f86b8;"
    "--fine:#6cc496;--warn:#e2a95a;--reject:#f08a80}}"
    "main{max-width:1200px;font-size:15px;line-height:1.5}h1{margin:8px 0 0;font-size:28px;overflow-wrap:anywhere}"
    "h2{font-size:18px;margin:40px 0 12px}h3{font-size:16px;margin:28px 0 8px}p{margin:4px 0;max-width:960px}"
    ".soft{color:var(--soft)}"
    ".verdict{margin:20px 0;padding:14px 18px;border-radius:8px;background:var(--panel);font-weight:600;"
    "border-left:5px solid var(--soft)}"
    ".verdict.fine{border-color:var(--fine)}.verdict.warn,.verdict.open{border-color:var(--warn)}"
    ".verdict.reject{border-color:var(--reject)}"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(160px,1fr));gap:12px;margin:20px 0}"
    ".card{padding:12px 16px;border:1px solid var(--rule);border-radius:8px}.card b{display:block;font-size:22px;"
    "font-weight:600;line-height:1.3}.card span{color:var(--soft);font-size:13px}"
    "table{border-collapse:collapse;width:100%;font-size:14px}table.short{width:auto}"
    ".short th,.short td{padding-right:22px;width:auto}.scroll{overflow-x:auto;margin:8px 0}"
    "th{font-weight:500;color:var(--soft);text-align:left}"
    "th,td{padding:7px 14px 7px 0;border-bottom:1px solid var(--rule);vertical-align:top}"
    ".number{text-align:right;font-variant-numeric:tabular-nums;width:1%;padding-left:14px}"
    "td.number,td.name{white-space:nowrap}"
    ".name{width:1%}.wide{overflow-wrap:anywhere}td p{margin:0 0 2px}"
    "code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:13px;background:var(--panel);"
    "padding:1px 5px;border-radius:4px}"
    "pre{background:var(--panel);padding:14px 18px;border-radius:8px;overflow:auto;max-height:480px}pre code{padding:0}"
    ".mark{margin-right:7px;color:var(--soft)}.mark.fine{color:var(--fine)}.mark.warn,.mark.open{color:var(--warn)}"
    ".mark.reject{color:var(--reject)}"
    ".track{display:block;height:12px;margin-top:5px;min-width:120px}.track span{display:block;height:12px;"
    "border-radius:2px;background:var(--bar);min-width:2px}"
    "details{margin:8px 0}summary{color:var(--soft);cursor:pointer}"
    "blockquote{border-left:3px solid var(--rule);padding:2px 0 2px 14px;margin:12px 0;overflow-wrap:anywhere}"
    "ul{margin:4px 0;padding-left:20px}figure{margin:12px -16px}"
    ".figures{display:grid;gap:8px 24px;grid-template-columns:repeat(auto-fit,minmax(min(100%,510px),1fr))}"
    ".figures .line text[text-anchor]{font-size:14px}"  # tick labels: figures side by side are scaled down
    ".figures figure{margin:8px 0;min-width:0}"
    "@media (max-width:640px){td.name{white-space:normal;min-width:90px;overflow-wrap:anywhere;width:auto}"
    ".track{min-width:50px}.number{padding-left:6px}th,td{padding-right:6px}}"
)


# Parts of a marked text, in the colors of lines, nearly transparent, so that the text is readable in any theme.
TINT = "33"  # opacity, hexadecimal
MARKED = (
    ".marked{line-height:2.2;white-space:pre-wrap}"
    ".marked mark{color:inherit;border-radius:4px;padding:3px 5px;-webkit-box-decoration-break:clone;"
    "box-decoration-break:clone}"
    ".marked small{font-size:10px;font-weight:700;margin-left:6px;vertical-align:middle}"
    + "".join(f".marked .m{at}{{background:{color}{TINT}}}" for at, color in enumerate(LINES_LIGHT))
    + "@media (prefers-color-scheme:dark){"
    + "".join(f".marked .m{at}{{background:{color}{TINT}}}" for at, color in enumerate(LINES_DARK))
    + "}"
)


def fragment(block: DocumentBlock) -> str:
    """Return a block of marked text with its style, for a notebook; it has the font and color of the notebook."""
    return tag("div", tag("style", Markup(MARKED)), drawn(block))


def _marked(text: str, mark: doc.TextMark | None, color: int) -> Markup:
    shown = _span(text.translate(SPACES))
    if mark is None:
        return shown
    title = {"title": mark.note} if mark.note else {}
    label = tag("small", mark.label[:LONGEST])
    return tag("mark", shown, label, class_=f"m{color % len(LINES_LIGHT)}", **title)


def page(document: Document) -> str:
    """Return the HTML page of a document."""
    body = [tag("h1", _line(document.title)), *(drawn(block, document.title) for block in document.blocks)]
    moving = [block for block in document.blocks if isinstance(block, doc.Interactive)]
    scripted = [block for block in moving if block.script()]
    assert len(scripted) <= 1, "a page has one script at most"
    policy, behind = POLICY, list[Markup]()
    marked = MARKED if any('class="marked"' in part for part in body) else ""
    for block in scripted:
        script, data = block.script(), json.dumps(block.data(), ensure_ascii=False, allow_nan=False)
        policy += f"; script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        behind.append(tag("script", Markup(data.replace("<", "\\u003c")), id="data", type="application/json"))
        behind.append(tag("script", Markup(script)))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", document.title[:LONGEST]),
        tag(
            "style",
            Markup(STYLES + marked + "".join({block.rules: 0 for block in moving})),
            style_sheet(together(body)),
        ),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', tag('main', *body), *behind))}\n"


def framed(document: Document) -> str:
    """Return the page of a document inside an iframe, so that its style does not leak; for notebooks."""
    page = document.html()
    height = min(TALLEST, 90 + sum(map(_height, document.blocks)))
    sandbox = 'sandbox="allow-scripts"' if "<script" in page else "sandbox"  # safe: content is escaped
    return f'<iframe {sandbox} srcdoc="{html.escape(page)}" style="width:100%;height:{height}px;border:0"></iframe>'


def _height(block: DocumentBlock) -> int:
    """Estimate the pixels of a block: a frame without scripts cannot say how tall it is."""
    match block:
        case doc.TableBlock(heads, rows):
            lines = sum(max(len(lines_of(cell)) for cell in row) for row in rows)
            return 24 + 37 * (lines + any(heads))
        case doc.Heading():
            return 75
        case doc.Details():
            return 38
        case doc.Paragraph(line) | doc.Aside(line):
            return 8 + 23 * -(-sum(map(len, spans(line))) // 110)
    return TALLEST


def _line(line: Line) -> Markup:
    return together(map(_span, spans(line)))


def _span(span: str) -> Markup:
    """Return a span, truncated if very long, with its text direction isolated."""
    if isinstance(span, Mark):
        return tag("b", SIGNS[span], class_=f"mark {span}")
    text = span[:LONGEST]
    shown = tag("bdi", text) if isolated(text) != text else together([text])
    return tag("code", shown) if isinstance(span, Code) else shown


def drawn(block: DocumentBlock, title: str = "") -> Markup:
    """Return the markup of a block; a figure does not repeat the page title."""
    match block:
        case doc.Heading(line, level):
            return tag(f"h{level}", _line(line))
        case doc.Paragraph(line):
            return tag("p", _line(line))
        case doc.Aside(line):
            return tag("p", _line(line), class_="soft")
        case doc.Callout(line, verdict):
            return tag("div", _line(line), class_=f"verdict {verdict}")
        case doc.Bullets(lines):
            return tag("ul", *(tag("li", _line(line)) for line in lines))
        case doc.Quote(lines):
            return tag("blockquote", *(tag("p", _line(line)) for line in lines))
        case doc.MarkedText():
            return tag("p", *(_marked(*part) for part in block.parts()), class_="marked")
        case doc.CodeBlock(text):
            text = text if len(text) <= LONGEST_FILE else f"{text[:LONGEST_FILE]}\n…"
            return tag("pre", tag("code", *(part for line in text.split("\n") for part in (line, Markup("\n")))))
        case doc.KeyFigures(figures):
            shown = [(one if isinstance(one, str) else number(one), _line(words)) for one, words in figures]
            cards = [tag("div", tag("b", one), tag("span", words), class_="card") for one, words in shown]
            return tag("div", *cards, class_="cards")
        case doc.Pictures(figures):
            pictures = [
                tag("figure", one.drawn(styled=False, titled=one.title != title), class_=one.kind) for one in figures
            ]
            return tag("div", *pictures, class_="figures") if len(pictures) > 1 else pictures[0]
        case doc.Details(title, blocks):
            return tag("details", tag("summary", _line(title)), *map(drawn, blocks))
        case doc.TableBlock():
            return _table(block)
        case doc.Interactive():
            return together(block.markup())
    raise TypeError(block)


def _table(table: doc.TableBlock) -> Markup:
    """Return the table; without headers its first column holds names, and numbers are placed close to them."""
    short = [all(map(_is_short, column)) for column in zip(*table.rows, strict=True)]
    if any(table.heads):
        texts = ["name" if one else "wide" for one in short]
        looks = ["number" if numeric else text for numeric, text in zip(table.numeric, texts, strict=True)]
        head = [tag("thead", _row("th", table.heads, looks))]
    else:
        looks, head = ["name", *["wide"] * (len(table.numeric) - 1)], []
    rows = [_row("td", row, looks) for row in table.rows]
    look = "short" if all(short) else "long"
    return tag("div", tag("table", *head, tag("tbody", *rows), class_=look), class_="scroll")


def _is_short(cell: TableCell) -> bool:
    """Whether a cell is short enough not to be wrapped."""
    lines = lines_of(cell)
    return not isinstance(cell, Bar) and len(lines) == 1 and sum(map(len, spans(lines[0]))) <= SHORT


def _row(name: str, cells: Sequence[TableCell], looks: Sequence[str]) -> Markup:
    return tag("tr", *(tag(name, _cell(cell), class_=look) for cell, look in zip(cells, looks, strict=True)))


def _cell(cell: TableCell) -> Markup:
    if isinstance(cell, Bar):
        bar = tag("span", Markup(""), style=f"width:{100 * cell.share:.1f}%")
        return tag("span", bar if cell.share else Markup(""), class_="track")
    lines = lines_of(cell)
    return _line(lines[0]) if len(lines) == 1 else together(tag("p", _line(line)) for line in lines)
