"""A page around markup that is no document yet, with rules of its own."""

from collections.abc import Sequence

from seqloom.report.figures.markup import FONT, Markup, style_sheet, tag, together

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
PAGE_RULES = (
    f":root{{color-scheme:light dark}}body{{margin:0;background:#fff;color:#1c2026;font-family:{FONT}}}"
    "main{max-width:1280px;margin:0 auto;padding:24px 16px}h1{font-size:24px;margin:16px 20px}figure{margin:0 0 24px}"
    "svg{display:block;max-width:100%;height:auto}"
    "@media (prefers-color-scheme:dark){body{background:#14171c;color:#e6e8eb}}"
)


def document(title: str, body: Sequence[Markup], rules: str = "") -> str:
    """One self-contained HTML document around markup made with `tag`; `rules` are added to the style sheet."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(PAGE_RULES + rules), style_sheet(together(body))),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', tag('main', *body)))}\n"
