"""Tuning: a search for hyperparameters that scores each trial on the dev set.

    tune ──▶ study in a storage (SQLite, PostgreSQL) ◀── further processes and machines
              │ ask: parameters of a trial
              ▼
             FOLDER/trials/007, an ordinary run ── Validated ──▶ continues, or is pruned
              │ tell: its best dev score
              ▼
             Results: the best trial, which parameters mattered;  best.toml, model/, report.html

The test set is never read. After an interruption the same command resumes: finished trials are in the storage,
unfinished ones are run folders that resume.

    plan      search space, data; events                 study    the storage, and the next trial
    trials    one trial, and the files that are kept     results  the results, and how they are shown
    tuning    workers, and the search in one call
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.experiments.tune.plan import TuningPlan
    from seqloom.experiments.tune.results import Results
    from seqloom.experiments.tune.tuning import search, tune

HOMES = {  # each public name is loaded from here at its first use
    "plan": ("TuningPlan",),
    "results": ("Results",),
    "tuning": ("search", "tune"),
}
__all__ = ["Results", "TuningPlan", "search", "tune"]

__getattr__ = loading(__name__, HOMES)


def __dir__() -> list[str]:
    return __all__
