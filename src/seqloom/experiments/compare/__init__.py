"""Comparing models with the same budget, with tests of which differences are significant.

    compare ──▶ DIR/runs/MODEL-SEED, ordinary runs with equal budgets ──▶ DIR/evaluations: every example of every run
                                                                              │
                scores with intervals, a test for every pair (Holm)     ◀────┘
                latency, memory, size, time; scores by length; leaks
                 │
                 ▼
                Comparison: a sentence, a table, report.html, results.jsonl

Runs are evaluated on the dev set, and on the test set only on request: each such evaluation is recorded. After an
interruption the same command resumes: finished runs stay finished, unfinished ones are run folders that resume.

    plan         models, data, budget; events               statistics   bootstrap, randomization, McNemar, Holm
    runs         one run, and several in parallel            verdicts     from evaluated runs to results; leaks
    costs        time, memory and space of a model           results      the results, and how they are shown
    distances    the same at several dependency distances    comparison   all of it in one call
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.experiments.compare.comparison import compare, run_comparison
    from seqloom.experiments.compare.distances import Distances, run_distances
    from seqloom.experiments.compare.plan import Budget, ComparisonPlan
    from seqloom.experiments.compare.results import Comparison

HOMES = {  # each public name is loaded from here at its first use
    "comparison": ("compare", "run_comparison"),
    "distances": ("Distances", "run_distances"),
    "plan": ("Budget", "ComparisonPlan"),
    "results": ("Comparison",),
}
__all__ = ["Budget", "Comparison", "ComparisonPlan", "Distances", "compare", "run_comparison", "run_distances"]

__getattr__ = loading(__name__, HOMES)


def __dir__() -> list[str]:
    return __all__
