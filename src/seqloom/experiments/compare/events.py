"""What a comparison says while it goes on."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seqloom.experiments.compare.plan import PlannedModel
from seqloom.experiments.plan import Why

if TYPE_CHECKING:
    from seqloom.experiments.compare.results import Comparison


class ComparisonBegun(NamedTuple):
    """A comparison begins or goes on."""

    folder: Path
    wanted: int  # runs in all
    finished: int  # runs that are judged already
    said: tuple[str, ...]
    together: int = 1  # of those that are left, at the same time


class RunBegun(NamedTuple):
    """A run begins, or goes on after it was interrupted."""

    entry: PlannedModel
    said: str  # its size


class RunEnded(NamedTuple):
    """A run is trained and judged, or came to nothing: then `problem` says why."""

    entry: PlannedModel
    score: float | None
    seconds: float
    problem: str = ""


class Measuring(NamedTuple):
    """All runs are judged; now their speed and size are measured."""

    models: int


class ComparisonEnded(NamedTuple):
    """Nothing more for now; `comparison` is None as long as runs are missing."""

    why: Why
    comparison: "Comparison | None"
    exit_code: int  # 0, 128 + signal, 4 for a disk


ComparisonReport = ComparisonBegun | RunBegun | RunEnded | Measuring | ComparisonEnded
