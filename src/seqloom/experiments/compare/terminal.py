"""The results of a comparison for a terminal."""

from seqloom.experiments.compare.figures import figures_of
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
from seqloom.report.figures.labels import cell, wrap
from seqloom.training.pages.words import duration

MOST_PAIRS = 15
SHOWN_FIGURES = 2  # the scores, and quality against speed


def written(found: Comparison, width: int, colour: bool) -> str:
    """The sentence, a table of models, a table of pairs, the figures and the notes."""
    lines = [*wrap(sentence(found), width), "", *wrap(setting(found), width), ""]
    lines += _models(found, width)
    lines += ["", *_pairs(found, width)] if found.pairs else []
    lines += wrap(told, width) if (told := corrected(found)) else []
    for figure in figures_of(found)[:SHOWN_FIGURES]:
        lines += ["", figure.text(width=width, colour=colour)]
    lines += ["", *(line for note in notes(found) for line in wrap(note, width))]
    return "\n".join(line.rstrip() for line in lines)


def _models(found: Comparison, width: int) -> list[str]:
    heads = ["model", found.metric, "95 %", "parameters", "trained", "answer", "memory", "disk"]
    return _table([heads, *(_model(one) for one in found.models)], width)


def _model(one: ModelResult) -> list[str]:
    row = [one.name, number(one.score.value), between(one.score), f"{one.parameters:,}", duration(one.seconds)]
    if one.cost is None:
        return [*row, "", "", ""]
    return [*row, f"{number(one.cost.latency.median)} ms", size(one.cost.memory), size(one.cost.disk)]


def _pairs(found: Comparison, width: int) -> list[str]:
    heads = ["pair", "difference", "verdict", "95 %, pair alone", "p (Holm)"]
    return _table([heads, *(_pair(one) for one in found.pairs[:MOST_PAIRS])], width)


def _pair(one: PairResult) -> list[str]:
    gap = one.difference
    named = f"{one.one} - {one.other}"
    return [named, f"{gap.value:+.4g}", verdict(one), f"{gap.low:+.4g} to {gap.high:+.4g}", probability(one.p_adjusted)]


def _table(rows: list[list[str]], width: int) -> list[str]:
    """Columns as wide as they need; those that do not fit any more are left out, the first ones never."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    kept, used = 0, 0
    while kept < len(widths) and (kept < 3 or used + widths[kept] + 2 <= width):
        used += widths[kept] + 2
        kept += 1
    return ["  ".join(cell(row[at], widths[at]) for at in range(kept)) for row in rows]
