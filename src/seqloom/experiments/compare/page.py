"""The results of a comparison as one HTML page."""

from seqloom.data.report.page import RULES, isolate
from seqloom.experiments.compare.figures import figures_of
from seqloom.experiments.compare.leaks import LeakCount
from seqloom.experiments.compare.results import Comparison, ModelResult, PairResult
from seqloom.experiments.compare.words import (
    between,
    corrected,
    notes,
    number,
    probability,
    sentence,
    setting,
    size,
    verdict,
)
from seqloom.report.figures.markup import Markup, tag
from seqloom.report.figures.page import document
from seqloom.training.pages.words import duration

LONGEST = 160
STYLES = RULES + (
    "main{max-width:1240px}.curves{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,560px),1fr))}"
    ".curves figure{margin:8px 0}td{white-space:nowrap}td bdi{white-space:normal}"
)


def comparison_html(found: Comparison) -> str:
    """The results as one self-contained HTML document, light or dark as the reader prefers."""
    figures = [tag("figure", figure.drawn(styled=False)) for figure in figures_of(found)]
    body = [
        tag("h1", isolate(f"{found.data}: {len(found.models)} models", LONGEST)),
        tag("p", setting(found), class_="soft"),
        tag("div", sentence(found), class_=f"verdict {'fine' if len(found.rivals) == 1 else 'warn'}"),
        tag("h2", "Models"),
        _models(found),
        *_pairs(found),
        tag("h2", "Pictures"),
        tag("div", *figures, class_="curves"),
        tag("h2", "What to know"),
        tag("ul", *(tag("li", note) for note in notes(found))),
        *_leaks(found.leak),
    ]
    return document(f"Comparison: {found.data[:LONGEST]}", body, STYLES)


def _table(heads: list[str], rows: list[list[str]]) -> Markup:
    head = tag("tr", *(tag("th", text) for text in heads))
    drawn = [tag("tr", *(tag("td", text or Markup("")) for text in row)) for row in rows]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *drawn)), class_="scroll")


def _models(found: Comparison) -> Markup:
    heads = ["model", found.metric, "95 %", "each seed", "parameters", "symbols read", "trained"]
    heads += ["ms for an answer", "answers per second", "memory", "on disk"]
    return _table(heads, [_model(one) for one in found.models])


def _model(one: ModelResult) -> list[str]:
    row = [one.name, number(one.score.value), between(one.score), ", ".join(map(number, one.seeds))]
    row += [f"{one.parameters:,}", f"{one.symbols:,}", duration(one.seconds)]
    if one.cost is None:
        return [*row, "", "", "", ""]
    latency, throughput = one.cost.latency, one.cost.throughput
    return [
        *row,
        f"{latency.median:.3g} ({latency.low:.3g} to {latency.high:.3g})",
        f"{throughput.median:,.0f} ({throughput.low:,.0f} to {throughput.high:,.0f})",
        size(one.cost.memory),
        size(one.cost.disk),
    ]


def _pairs(found: Comparison) -> list[Markup]:
    if not found.pairs:
        return []
    heads = ["", "difference", "95 %, pair alone", "p, seeds and examples", "p, examples", "p (Holm)", "verdict"]
    mcnemar = found.pairs[0].p_mcnemar is not None
    rows = [_pair(one, mcnemar) for one in found.pairs]
    table = _table([*heads, *(["McNemar, first seeds only"] if mcnemar else [])], rows)
    told = corrected(found)
    return [tag("h2", "Pairs"), table, *([tag("p", told, class_="soft")] if told else [])]


def _pair(one: PairResult, mcnemar: bool) -> list[str]:
    gap = one.difference
    row = [f"{one.one} - {one.other}", f"{gap.value:+.4g}", f"{gap.low:+.4g} to {gap.high:+.4g}"]
    row += [probability(one.p), probability(one.p_examples), probability(one.p_adjusted), verdict(one)]
    return [*row, probability(one.p_mcnemar)] if mcnemar else row


def _leaks(leak: LeakCount | None) -> list[Markup]:
    if leak is None or not leak.samples:
        return []
    heads = ["in the training part", f"in {leak.part}"]
    rows = [[isolate(first, LONGEST), isolate(second, LONGEST)] for first, second in leak.samples]
    return [tag("h2", "Rows that are in both parts"), _table(heads, rows)]  # type: ignore[arg-type]
