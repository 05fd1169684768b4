"""A diagnosis as HTML: the verdict, then a card for each finding with its sentence, numbers, picture and flags."""

import html
from typing import TYPE_CHECKING

from seqloom.experiments.doctor.words import number, verdict_said
from seqloom.report.figures.markup import Markup, tag

if TYPE_CHECKING:
    from seqloom.experiments.doctor.findings import Diagnosis, Finding

RULES = (
    ":root{--soft:#59616d;--line:#e1e4e8;--panel:#f6f7f9;--fine:#1f7a4d;--warn:#96590a}"
    "@media (prefers-color-scheme:dark){:root{--soft:#a2abb8;--line:#2d333c;--panel:#1b1f26;--fine:#6cc496;"
    "--warn:#e2a95a}}"
    "main{max-width:960px;font-size:15px;line-height:1.5}h1{font-size:26px;overflow-wrap:anywhere}"
    ".verdict{margin:20px 0;padding:14px 18px;border-radius:8px;background:var(--panel);font-weight:600;"
    "border-left:5px solid var(--fine)}.verdict.warn{border-color:var(--warn)}"
    "section{margin:32px 0;padding-top:8px;border-top:1px solid var(--line)}h2{font-size:18px;margin:8px 0}"
    ".soft,dt{color:var(--soft)}dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;font-size:14px}"
    "dd{margin:0;font-variant-numeric:tabular-nums}code{background:var(--panel);padding:2px 6px;border-radius:4px}"
    "ul{padding-left:20px}"
)


def body(diagnosis: "Diagnosis") -> list[Markup]:
    """The parts of the page, one after the other."""
    look = "verdict" if diagnosis.judged and not diagnosis.findings else "verdict warn"
    pictures = [tag("figure", figure.drawn(styled=False)) for figure in diagnosis.figures]
    return [
        tag("h1", tag("bdi", diagnosis.name)),
        tag("div", verdict_said(diagnosis), class_=look),
        *map(_finding, diagnosis.findings),
        *([tag("section", tag("h2", "Pictures"), *pictures)] if pictures else []),
        *(tag("p", tag("bdi", text), class_="soft") for text in diagnosis.said),
    ]


def framed(document: str) -> str:
    """The page in a frame of its own, so that its style stays inside; for notebooks."""
    return f'<iframe sandbox srcdoc="{html.escape(document)}" style="width:100%;height:720px;border:0"></iframe>'


def _finding(finding: "Finding") -> Markup:
    numbers = [part for name, value in finding.evidence.items() for part in (tag("dt", name), tag("dd", number(value)))]
    flags = [tag("li", tag("code", one.said), f" {one.why}" if one.why else "") for one in finding.advice]
    return tag(
        "section",
        tag("h2", finding.title),
        tag("p", tag("code", finding.code), class_="soft"),
        tag("p", tag("bdi", finding.text)),
        *([tag("dl", *numbers)] if numbers else []),
        *([tag("p", "What to change:"), tag("ul", *flags)] if flags else []),
        *([tag("figure", finding.figure.drawn(styled=False))] if finding.figure is not None else []),
    )
