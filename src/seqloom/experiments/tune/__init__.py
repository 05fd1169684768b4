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

    reports  what a tuning says while it goes on      storage  where studies are kept
    space    parameters drawn, and what they mean     study    which trial is next
    ground   what the data says about batches and steps
    trials   one trial                                working  trials one after the other
    results  what came out, and how it is shown       tuning   the whole in one call
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqloom.experiments.tune.plan import TuningPlan
    from seqloom.experiments.tune.results import Results
    from seqloom.experiments.tune.tuning import search, tune

__all__ = ["Results", "TuningPlan", "search", "tune"]


def __getattr__(name: str) -> Any:
    if name in ("search", "tune"):
        from seqloom.experiments.tune import tuning

        return getattr(tuning, name)
    if name == "TuningPlan":
        from seqloom.experiments.tune import plan

        return getattr(plan, name)
    if name == "Results":
        from seqloom.experiments.tune import results

        return getattr(results, name)
    raise AttributeError(f"module 'seqloom.experiments.tune' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
