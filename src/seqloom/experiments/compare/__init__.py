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

    plan        what is compared      tables            statistics    bootstrap over seeds and examples
    scaling     equal numbers of parameters             significance  randomisation, McNemar, Holm
    opening     data, baseline and budget               weighing      from judged runs to results
    running     one run    jobs: several at once        costs, lengths, leaks: what else is measured
    distances   the same at several dependency distances
    results     what came out      figures, document: how it is shown      comparison  the whole in one call
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqloom.experiments.compare.comparison import compare, referee
    from seqloom.experiments.compare.distances import Distances, referee_distances
    from seqloom.experiments.compare.plan import Budget, ComparisonPlan
    from seqloom.experiments.compare.results import Comparison

__all__ = ["Budget", "Comparison", "ComparisonPlan", "Distances", "compare", "referee", "referee_distances"]


def __getattr__(name: str) -> Any:
    if name in ("Distances", "referee_distances"):
        from seqloom.experiments.compare import distances

        return getattr(distances, name)
    if name in ("compare", "referee"):
        from seqloom.experiments.compare import comparison

        return getattr(comparison, name)
    if name in ("Budget", "ComparisonPlan"):
        from seqloom.experiments.compare import plan

        return getattr(plan, name)
    if name == "Comparison":
        from seqloom.experiments.compare import results

        return getattr(results, name)
    raise AttributeError(f"module 'seqloom.experiments.compare' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
