"""What a tuning says while it goes on."""

from pathlib import Path
from typing import Literal, NamedTuple

from seqloom.experiments.plan import Why
from seqloom.experiments.tune.results import Results
from seqloom.training.events import Report

Params = dict[str, str | int | float]
State = Literal["done", "pruned", "failed"]


class TuningBegun(NamedTuple):
    """A tuning begins or goes on."""

    folder: Path
    study: str
    storage: str  # without its password
    wanted: int  # trials in all
    finished: int  # trials that are in the storage already
    said: tuple[str, ...]


class TrialBegun(NamedTuple):
    """A trial begins, or goes on after it was interrupted."""

    number: int
    folder: Path
    params: Params
    is_default: bool


class TrialTold(NamedTuple):
    """A report of the run of a trial."""

    number: int
    report: Report


class TrialEnded(NamedTuple):
    """A trial is over; `value` is its best score on dev, if it came to one."""

    number: int
    state: State
    value: float | None
    best: bool  # of all so far
    problem: str = ""


class WorkerLost(NamedTuple):
    """One of several workers ended before its time; the others go on."""

    problem: str


class TuningEnded(NamedTuple):
    """No more trials for now."""

    why: Why
    results: Results
    exit_code: int  # 0, 128 + signal, 4 for a disk


TuningReport = TuningBegun | TrialBegun | TrialTold | TrialEnded | WorkerLost | TuningEnded
