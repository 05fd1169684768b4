"""Figures, or any markup, as one HTML file that needs nothing else: no address, one style sheet, at most one script.

A script is named by its sum in the policy of the page, so that nothing else can run; what it reads stands beside it as
JSON, in which no `<` can end the element early.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from seqloom.report.figures import checks
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.markup import FONT, Markup, style_sheet, tag, together

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
MOST_FIGURES = 1000
PAGE_RULES = (
    f":root{{color-scheme:light dark}}body{{margin:0;background:#fff;color:#1c2026;font-family:{FONT}}}"
    "main{max-width:1280px;margin:0 auto;padding:24px 16px}h1{font-size:24px;margin:16px 20px}figure{margin:0 0 24px}"
    "svg{display:block;max-width:100%;height:auto}"
    "@media (prefers-color-scheme:dark){body{background:#14171c;color:#e6e8eb}}"
)
# Of a page of figures: words begin where the pictures do, whose own margin is 20; pictures stand side by side where
# there is room, and on a wide window they are larger.
SHEET = (
    "main>*{margin-left:20px;margin-right:20px}main>p{line-height:1.4;max-width:960px}"
    "main>figure{display:inline-block;vertical-align:top;max-width:100%;margin:0 0 24px}"
    "@media (min-width:1000px){main>figure{margin-left:-4px}main>figure>svg{zoom:1.2}}"
)


def page(title: str, figures: Sequence[Figure]) -> str:
    """One self-contained HTML document with the figures below each other.

    >>> from seqloom.report.figures import Bars
    >>> document = page("Results", [Bars(title="Accuracy", labels=["a"], values=[0.9])])
    >>> document.startswith("<!DOCTYPE html>") and "<script" not in document
    True
    """
    checks.text(title, "title")
    shown = checks.instances(figures, Figure, "figures")  # type: ignore[type-abstract]
    checks.some(shown, "figures", largest=MOST_FIGURES)
    return document(title, [tag("h1", title), *framed(title, shown)], SHEET)


def framed(title: str, figures: Sequence[Figure]) -> list[Markup]:
    """The figures as they stand on a page of this title, which none of them repeats."""
    return [tag("figure", figure.drawn(styled=False, titled=figure.title != title)) for figure in figures]


def document(
    title: str, body: Sequence[Markup], rules: str = "", *, script: str = "", data: Mapping[str, Any] | None = None
) -> str:
    """One self-contained HTML document around markup made with `tag`; `rules` are added to the style sheet.

    `script` is code of ours, never of a user's; it finds `data` in the element `data`.
    """
    policy = POLICY if not script else f"{POLICY}; script-src 'sha256-{_sum_of(script)}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(PAGE_RULES + rules), style_sheet(together(body))),
    )
    behind = [*([_as_json(data)] if data is not None else []), *([tag("script", Markup(script))] if script else [])]
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', tag('main', *body), *behind))}\n"


def _sum_of(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _as_json(data: Mapping[str, Any]) -> Markup:
    """Data that a script reads, in an element of its own; `<` is written as an escape of JSON."""
    written = json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return tag("script", Markup(written), id="data", type="application/json")
