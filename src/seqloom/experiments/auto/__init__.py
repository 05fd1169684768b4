"""Auto: find the best model for a data file within a time limit.

    portfolio ──▶ probe: seconds per step ──▶ rung 1: a time slice for each ──▶ the better half, with more steps ──▶ ...
                                                                                                                      │
    FOLDER/model, leaderboard.html        ◀── variants of the best candidates, while there is time  ◀────────────────┘

Every run is an ordinary run folder with a fixed number of steps and a learning rate schedule of that length. So after
an interruption it resumes and ends with the same bytes. The speed of each candidate is measured once and recorded; the
number of steps of a run follows from the recorded speeds, and is written to auto.json before the run starts. All
candidates are compared on the dev set. The test set is never read.

    plan      data, time, candidates and events          runs      train and evaluate one run; keep the winner
    budget    convert measured seconds to steps          leaders   rank the evaluated runs
    record    the decisions and the time spent           results   the leaderboard and its display
    variants  changed settings of the best candidates    race      the complete race in one call
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.experiments.auto.plan import AutoPlan
    from seqloom.experiments.auto.race import auto, race
    from seqloom.experiments.auto.results import Leaderboard

HOMES = {  # each public name is loaded from its module on first use
    "plan": ("AutoPlan",),
    "race": ("auto", "race"),
    "results": ("Leaderboard",),
}
__all__ = ["AutoPlan", "Leaderboard", "auto", "race"]

__getattr__ = loading(__name__, HOMES)


def __dir__() -> list[str]:
    return __all__
