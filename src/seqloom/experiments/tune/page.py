"""The results of a tuning as one HTML page."""

from seqloom.data.report.page import RULES, isolate
from seqloom.experiments.tune.figures import figures_of
from seqloom.experiments.tune.results import Results, TrialResult
from seqloom.experiments.tune.words import counts, marked, score, shown, too_few, verdict
from seqloom.report.figures.markup import Markup, tag
from seqloom.report.figures.page import document
from seqloom.training.pages.words import duration

LONGEST, MOST_ROWS, LONGEST_CONFIG = 120, 500, 40_000
STYLES = RULES + (
    "main{max-width:1240px}.curves{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,560px),1fr))}"
    ".curves figure{margin:8px 0}td{white-space:nowrap}"
    "pre{background:var(--panel);padding:14px 18px;border-radius:8px;overflow:auto;max-height:480px;font-size:13px}"
)


def results_html(results: Results) -> str:
    """The results as one self-contained HTML document, light or dark as the reader prefers."""
    figures = [tag("figure", figure.drawn(styled=False)) for figure in figures_of(results)]
    body = [
        tag("h1", isolate(results.study, LONGEST)),
        tag("p", f"{counts(results)}; every score is one on dev", class_="soft"),
        tag("div", verdict(results), class_=f"verdict {'fine' if results.best else 'warn'}"),
        *([tag("p", too_few(results), class_="soft")] if too_few(results) else []),
        *([tag("div", *figures, class_="curves")] if figures else []),
        tag("h2", "Trials"),
        _table(results),
        *_configuration(results.best),
    ]
    return document(f"Tuning {results.study[:LONGEST]}", body, STYLES)


def _table(results: Results) -> Markup:
    """All trials, the finished ones first, the best at the top."""
    names = list(dict.fromkeys(name for one in results.trials for name in one.params))
    heads = ["trial", "state", results.metric, "time", *names]
    others = [one for one in results.trials if one not in results.done]
    rows = [_row(one, names) for one in [*results.done, *others][:MOST_ROWS]]
    head = tag("tr", *(tag("th", name) for name in heads))
    return tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="scroll")


def _row(trial: TrialResult, names: list[str]) -> Markup:
    state = f"{trial.state}: {trial.problem[:LONGEST]}" if trial.problem else trial.state
    fixed = [marked(trial), state, score(trial), duration(trial.seconds)]
    params = [isolate(shown(trial.params[name]), LONGEST) if name in trial.params else Markup("") for name in names]
    return tag("tr", *(tag("td", text or Markup("")) for text in (*fixed, *params)))


def _configuration(best: TrialResult | None) -> list[Markup]:
    if best is None or not best.config:
        return []
    lines = [part for line in best.config[:LONGEST_CONFIG].split("\n") for part in (line, Markup("\n"))]
    return [tag("h2", f"The configuration of trial {best.number}"), tag("pre", tag("code", *lines))]
