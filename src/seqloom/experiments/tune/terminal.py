"""The results of a tuning for a terminal."""

from seqloom.experiments.tune.figures import figures_of
from seqloom.experiments.tune.results import Results
from seqloom.experiments.tune.words import counts, marked, parameters, score, too_few, verdict
from seqloom.report.figures.labels import cell, wrap
from seqloom.training.pages.words import duration

SHOWN = 8  # trials


def written(results: Results, width: int, colour: bool) -> str:
    """The verdict, the best trials, and the figures."""
    lines = [f"{verdict(results)} ({counts(results)}).", ""]
    for trial in results.done[:SHOWN]:
        head = f"{cell(marked(trial), 13)} {cell(score(trial), 8)} {cell(duration(trial.seconds), 12)} "
        first, *rest = wrap(parameters(trial), max(20, width - len(head))) or [""]
        lines += [head + first, *(" " * len(head) + line for line in rest)]
    lines += [too_few(results)] if too_few(results) else []
    for figure in figures_of(results):
        lines += ["", figure.text(width=width, colour=colour)]
    return "\n".join(line.rstrip() for line in lines)
