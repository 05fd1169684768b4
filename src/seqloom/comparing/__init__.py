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
    results     what came out      words, figures, terminal, page: shown      front  the whole in one call
"""

from seqloom.comparing.distances import Distances, referee_distances
from seqloom.comparing.front import compare, referee
from seqloom.comparing.plan import Budget, Plan
from seqloom.comparing.results import Comparison

__all__ = ["Budget", "Comparison", "Distances", "Plan", "compare", "referee", "referee_distances"]
