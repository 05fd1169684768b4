"""Comparing: models side by side with the same budget, and a referee who says which differences are more than chance.

    compare ──▶ DIR/runs/MODEL-SEED, ordinary runs with equal budgets ──▶ DIR/judged: every example of every run
                                                                              │
                scores with intervals, every pair tested, Holm over all  ◀────┘
                latency, memory, size, time; scores by length; leaks
                 │
                 ▼
                Comparison: a sentence, a table, report.html, results.jsonl

Runs are judged on dev, and on test only where somebody asks for it: each look is written down. Whatever stops a
comparison, the same command goes on: finished runs stay finished, unfinished ones are run folders that resume.

    plan         what is compared, and its events            statistics   bootstrap, randomisation, McNemar, Holm
    runs         one run, and several at once                verdicts     from judged runs to results; leaks
    costs        time, memory and space of a model           results      what came out, and how it is shown
    distances    the same at several dependency distances    comparison   the whole in one call
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.experiments.compare.comparison import compare, referee
    from seqloom.experiments.compare.distances import Distances, referee_distances
    from seqloom.experiments.compare.plan import Budget, ComparisonPlan
    from seqloom.experiments.compare.results import Comparison

HOMES = {  # each public name is loaded from here when it is first asked for
    "comparison": ("compare", "referee"),
    "distances": ("Distances", "referee_distances"),
    "plan": ("Budget", "ComparisonPlan"),
    "results": ("Comparison",),
}
__all__ = ["Budget", "Comparison", "ComparisonPlan", "Distances", "compare", "referee", "referee_distances"]

__getattr__ = loading(__name__, HOMES)


def __dir__() -> list[str]:
    return __all__
