"""Tuning: many short runs on the dev part, each drawn from what the ones before it gave.

    tune ──▶ study in a storage (SQLite, PostgreSQL) ◀── further processes and machines
              │ ask: parameters of a trial
              ▼
             FOLDER/trials/007, an ordinary run ── Validated ──▶ goes on, or is pruned
              │ tell: its best score on dev
              ▼
             Results: what was best, what mattered;  best.toml, model/, report.html

The test part is taken away before anything begins. Whatever stops a tuning, the next start goes on: finished trials
are in the storage, unfinished ones are run folders that resume.

    plan      what is searched, on what data; events     study    where it is kept, and which trial is next
    trials    one trial, and what is kept of it          results  what came out, and how it is shown
    tuning    several of them, and the whole in one call
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.experiments.tune.plan import TuningPlan
    from seqloom.experiments.tune.results import Results
    from seqloom.experiments.tune.tuning import search, tune

HOMES = {  # each public name is loaded from here when it is first asked for
    "plan": ("TuningPlan",),
    "results": ("Results",),
    "tuning": ("search", "tune"),
}
__all__ = ["Results", "TuningPlan", "search", "tune"]

__getattr__ = loading(__name__, HOMES)


def __dir__() -> list[str]:
    return __all__
