"""Auto: the best model for a file that this machine finds in a given time.

    portfolio ──▶ probe: seconds of a step ──▶ rung 1: a slice for each ──▶ the better half, with more steps ──▶ ...
                                                                                                                  │
    FOLDER/model, leaderboard.html         ◀── variants of the best ones, while there is time  ◀──────────────────┘

Every run is an ordinary run folder with a fixed number of steps and a learning rate schedule of that length, so it
resumes to the same bytes. Time decides how many steps a run gets, once: the decision is written to auto.json before
the run starts, and a resumed race reads it. All candidates are compared on the dev set; the test set is never read.

    plan      what is raced, on what data; events        runs      one run of a candidate, and what is kept of it
    budget    from measured seconds to steps             leaders   from evaluated runs to a leaderboard
    record    what was decided, and the time spent       results   the leaderboard, and how it is shown
    variants  what is tried of the best ones             race      the whole in one call
"""

from typing import TYPE_CHECKING

from seqloom.lazy import loading

if TYPE_CHECKING:
    from seqloom.experiments.auto.plan import AutoPlan
    from seqloom.experiments.auto.race import auto, race
    from seqloom.experiments.auto.results import Leaderboard

HOMES = {  # each public name is loaded from here when it is first asked for
    "plan": ("AutoPlan",),
    "race": ("auto", "race"),
    "results": ("Leaderboard",),
}
__all__ = ["AutoPlan", "Leaderboard", "auto", "race"]

__getattr__ = loading(__name__, HOMES)


def __dir__() -> list[str]:
    return __all__
