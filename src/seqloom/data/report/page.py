"""The data report as HTML: the first screen answers whether the data is all right, and what is in it."""

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from seqloom.data.checks.duplicates import Twins
from seqloom.data.report.findings import DataFinding, FindingSample
from seqloom.data.report.measures import ColumnMeasure, LabelCount
from seqloom.data.report.words import (
    VERDICTS,
    bin_names,
    described,
    label_shown,
    labels_title,
    leak_said,
    number,
    percent,
    plural,
    repeated,
    sampled_said,
    samples_of,
    share,
    shares,
    title_of,
    twin_texts,
    twins_said,
    verdict_said,
)
from seqloom.report.excerpts import excerpt
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.markup import Markup, tag, together

if TYPE_CHECKING:
    from seqloom.data.report.report import DataReport

MOST_LABELS = 40
LONGEST_LABEL, LONGEST_TEXT = 60, 240
RULES = (
    ":root{--soft:#59616d;--rule:#e1e4e8;--panel:#f6f7f9;--bar:#336d9c;--fine:#1f7a4d;--warn:#96590a;--reject:#b3261e;"
    "--note:#59616d}"
    "@media (prefers-color-scheme:dark){:root{--soft:#a2abb8;--rule:#2d333c;--panel:#1b1f26;--bar:#3f86b8;"
    "--fine:#6cc496;--warn:#e2a95a;--reject:#f08a80;--note:#a2abb8}}"
    "main{max-width:960px;font-size:15px;line-height:1.5}h1{margin:8px 0 0;font-size:28px;overflow-wrap:anywhere}"
    "h2{font-size:17px;margin:40px 0 12px}p{margin:4px 0}.soft{color:var(--soft)}"
    ".verdict{display:flex;gap:12px;align-items:baseline;margin:20px 0;padding:14px 18px;border-radius:8px;"
    "background:var(--panel);border-left:5px solid var(--fine);font-weight:600}"
    ".verdict.warn{border-color:var(--warn)}.verdict.reject{border-color:var(--reject)}"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px;margin:20px 0}"
    ".card{padding:12px 16px;border:1px solid var(--rule);border-radius:8px}.card b{display:block;font-size:22px;"
    "font-weight:600;line-height:1.3}.card span{color:var(--soft);font-size:13px}"
    "table{border-collapse:collapse;width:100%;font-size:14px}th{font-weight:500;color:var(--soft);text-align:left}"
    "th,td{padding:7px 14px 7px 0;border-bottom:1px solid var(--rule);vertical-align:top}"
    ".number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;width:1%;padding-left:14px}"
    ".name,.label{white-space:nowrap;width:1%}.wide{overflow-wrap:anywhere}.scroll{overflow-x:auto}"
    "td p{margin:0 0 2px}"
    "code{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:13px}"
    "i.dot{display:inline-block;width:9px;height:9px;border-radius:50%;margin-right:9px;background:var(--note)}"
    "i.warn{background:var(--warn)}i.reject{background:var(--reject)}"
    ".track{display:block;height:12px;margin-top:5px;min-width:120px}.track span{display:block;height:12px;"
    "border-radius:2px;background:var(--bar);min-width:2px}"
    "td .fix{color:var(--soft);margin-bottom:8px}details{margin-top:4px}summary{color:var(--soft);cursor:pointer}"
    ".twins{border-left:3px solid var(--rule);padding:2px 0 2px 14px;margin:12px 0}.twins p{overflow-wrap:anywhere}"
    "ul{margin:4px 0;padding-left:20px}figure{margin:16px -16px}"
    "@media (max-width:640px){.label{white-space:normal;min-width:90px;overflow-wrap:anywhere;width:auto}"
    ".track{min-width:50px}.number{padding-left:6px}th,td{padding-right:6px}th.number{white-space:normal}}"
)


def body(report: "DataReport") -> list[Markup]:
    """The parts of the page, one after the other."""
    look, _ = VERDICTS[report.verdict]
    return [
        tag("h1", isolate(report.name, LONGEST_TEXT)),
        tag("p", described(report), class_="soft"),
        tag("div", verdict_said(report), class_=f"verdict {look}"),
        tag("div", *_cards(report), class_="cards"),
        *_section("Findings", _findings(report.findings)),
        *_section("Read as", _inferred(report.inferred)),
        *_section(labels_title(report.target), _labels(report)),
        *(part for measure in report.measures for part in _measure(measure)),
        *_section("Duplicates", _duplicates(report)),
        *_section("Batches", _batches(report)),
    ]


def framed(document: str) -> str:
    """The page in a frame of its own, so that its style stays inside; for notebooks."""
    style = "width:100%;height:720px;border:0"
    return f'<iframe sandbox srcdoc="{html.escape(document)}" style="{style}"></iframe>'


def isolate(text: str, width: int) -> Markup:
    """A text of a user: cut, nothing hidden in it, and its direction kept to itself."""
    return tag("bdi", excerpt(text, width))


def _section(title: str, content: Sequence[Markup]) -> list[Markup]:
    return [tag("h2", title), *content] if content else []


def _cards(report: "DataReport") -> list[Markup]:
    found = report.duplicates
    cards = [_card(number(part.rows), f"{plural(part.rows, 'row', 'rows')} of {part.name}") for part in report.parts]
    if report.labels:
        title = labels_title(report.target).lower()
        count = len(report.labels)
        cards.append(_card(number(count), f"different {plural(count, title.removesuffix('s'), title)}"))
    cards += [_card(number(one.summaries[0].median), f"{one.name}, median") for one in report.measures[:1]]
    cards.append(_card(percent(sum(one.exact for one in found.repeats), report.rows), "rows repeat another"))
    first = report.parts[0].name
    leaks = [leak for leak in found.leaks if leak.first == first]
    return cards + [_card(percent(leak.exact, leak.rows), leak_said(leak)) for leak in leaks]


def _card(figure: str, text: str) -> Markup:
    return tag("div", tag("b", figure), tag("span", text), class_="card")


def _table(heads: Sequence[str], rows: Iterable[Sequence[Markup]], classes: Sequence[str]) -> Markup:
    head = tag("tr", *(tag("th", text or Markup(""), class_=look) for text, look in zip(heads, classes, strict=True)))
    lines = [tag("tr", *(tag("td", c, class_=look) for c, look in zip(row, classes, strict=True))) for row in rows]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *lines)), class_="scroll")


def _findings(found: Sequence[DataFinding]) -> list[Markup]:
    rows = [
        [
            together([tag("i", Markup(""), class_=f"dot {one.severity}"), tag("code", one.code)]),
            together([f"{one.rows:,}" if one.rows else ""]),
            together([*map(_sample, one.shown(1)[0]), *_more(one.shown(1)[1])]),
        ]
        for one in found
    ]
    return [_table(["finding", "rows", "cases"], rows, ["name", "number", "wide"])] if rows else []


def _sample(sample: FindingSample) -> Markup:
    place = [tag("code", isolate(sample.place, LONGEST_TEXT)), Markup(" ")] if sample.place else []
    fix = [tag("p", f"Fix: {sample.fix}", class_="fix")] if sample.fix else []
    return together([tag("p", *place, isolate(sample.text, 2 * LONGEST_TEXT)), *fix])


def _more(samples: Sequence[FindingSample]) -> list[Markup]:
    if not samples:
        return []
    cases = [_sample(sample._replace(fix="")) for sample in samples]
    return [tag("details", tag("summary", f"{len(samples)} more"), *cases)]


def _inferred(lines: Sequence[str]) -> list[Markup]:
    return [tag("ul", *(tag("li", isolate(line, LONGEST_TEXT)) for line in lines))] if lines else []


def _labels(report: "DataReport") -> list[Markup]:
    if not report.labels:
        return []
    totals = [max(1, sum(column)) for column in zip(*(entry.counts for entry in report.labels), strict=True)]
    largest = max(entry.counts[0] for entry in report.labels) or 1
    heads = ["", f"share of {report.parts[0].name}", *(part.name for part in report.parts)]
    rows = [_label(entry, largest, totals) for entry in report.labels[:MOST_LABELS]]
    classes = ["label", "", *("number" for _ in report.parts)]
    more = len(report.labels) - MOST_LABELS
    note = [tag("p", f"and {more:,} more", class_="soft")] if more > 0 else []
    return [_table(heads, rows, classes), *note]


def _label(entry: LabelCount, largest: int, totals: Sequence[int]) -> list[Markup]:
    bar = tag("span", Markup(""), style=f"width:{100 * entry.counts[0] / largest:.1f}%")
    counts = [together([share(count, total)]) for count, total in zip(entry.counts, totals, strict=True)]
    track = tag("span", bar if entry.counts[0] else Markup(""), class_="track")
    return [tag("bdi", label_shown(entry.label, LONGEST_LABEL)), track, *counts]


def _measure(measure: ColumnMeasure) -> list[Markup]:
    heads = ["", "least", "median", "mean", "95 %", "most"]
    rows = [
        [isolate(summary.part, LONGEST_LABEL), *(together([number(value)]) for value in summary[1:])]
        for summary in measure.summaries
    ]
    name = f"% of the rows of {measure.summaries[0].part}"
    figure = Bars(title="", labels=bin_names(measure), values=shares(measure.counts[0]), x_label=name)
    table = _table(heads, rows, ["wide", *["number"] * 5])
    return _section(title_of(measure), [table, tag("figure", figure.drawn(styled=False))])


def _duplicates(report: "DataReport") -> list[Markup]:
    found = report.duplicates
    rows = [[together([text]) for text in line] for line in repeated(found)]
    table = _table(["", "rows", "repeat another", "have a near twin"], rows, ["wide", *["number"] * 3])
    note = [tag("p", said, class_="soft")] if (said := sampled_said(found)) else []
    samples = [
        tag("details", tag("summary", f"samples: {name}"), *map(_twins, twins))
        for name, twins in samples_of(found).items()
        if twins
    ]
    return [table, *note, *samples]


def _twins(twins: Twins) -> Markup:
    texts = [tag("p", tag("bdi", text)) for text in twin_texts(twins, LONGEST_TEXT // 2)]
    return tag("div", tag("p", twins_said(twins), class_="soft"), *texts, class_="twins")


def _batches(report: "DataReport") -> list[Markup]:
    if report.batching is None:
        return []
    padding, fill, batches, again = report.batching
    figures = [
        (number(batches), f"{plural(batches, 'batch', 'batches')} in an epoch"),
        (f"{fill:.1%}", "full"),
        (f"{padding:.1%}", "padding"),
        (f"{again:.0%}", "of the rows that share a batch share one in the next epoch too"),
    ]
    return [tag("div", *(_card(figure, text) for figure, text in figures), class_="cards")]
