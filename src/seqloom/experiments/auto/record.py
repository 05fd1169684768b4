"""The record of a race: what was decided, in auto.json, and the time spent, in spent.json.

A decision is written before anything is done about it, and never made again. So a race that is killed trains the same
runs as one that is not. The time is a file of its own, because it changes all the while.
"""

import time
from pathlib import Path
from typing import Any

import msgspec

from seqloom.errors import ConfigError, DamagedError
from seqloom.experiments.auto.budget import Probe
from seqloom.experiments.auto.plan import AutoPlan, Entry
from seqloom.experiments.compare.comparison import changes
from seqloom.files.disk import write_file
from seqloom.files.layouts import RunFile

DECISIONS, SPENT = "auto.json", "spent.json"
BETWEEN = 5.0  # seconds between two writes of the time
TOLD = 4  # changes in an error
TIME_UP = "not run: the time was up"

now = time.monotonic


class Rung(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rung: the runs, the seconds that were left before it, and how much slower steps are than measured."""

    number: int
    entries: tuple[Entry, ...]
    left: float
    pace: float = 1.0
    dropped: tuple[str, ...] = ()  # candidates of the rung before that do not go on

    @property
    def planned_left(self) -> float:
        """The seconds that are left after it, if all runs take as long as expected."""
        return self.left - sum(entry.seconds for entry in self.entries)


class Decisions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that was decided so far."""

    asked: dict[str, Any]
    seconds: float  # of the whole race
    baseline: tuple[Entry, ...] = ()
    probes: dict[str, Probe] = {}
    rungs: tuple[Rung, ...] = ()
    variants: tuple[Entry, ...] = ()
    problems: dict[str, str] = {}  # runs without a result, and why
    finished: bool = False

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All runs that were decided, in order."""
        return (*self.baseline, *(entry for rung in self.rungs for entry in rung.entries), *self.variants)


class RaceRecord:
    """The decisions of a race in its folder; each change is written at once."""

    def __init__(self, folder: Path, decided: Decisions) -> None:
        self.folder, self.decided = folder, decided
        self._before, self._began, self._kept = _spent(folder), now(), now()

    def decide(self, **changed: Any) -> Decisions:
        """Write a decision."""
        self.decided = msgspec.structs.replace(self.decided, **changed)
        self.keep_time()
        write_file(self.folder / DECISIONS, msgspec.json.format(msgspec.json.encode(self.decided), indent=2))
        return self.decided

    @property
    def spent(self) -> float:
        """Seconds of this start and of those before it."""
        return self._before + now() - self._began

    @property
    def left(self) -> float:
        """Seconds that are left of the race."""
        return self.decided.seconds - self.spent

    def keep_time(self, between: float = 0.0) -> None:
        """Write the time spent, if the last time was so many seconds ago."""
        if now() - self._kept >= between:
            self._kept = now()
            write_file(self.folder / SPENT, msgspec.json.encode({"seconds": round(self.spent, 3)}))


def _spent(folder: Path) -> float:
    path = folder / SPENT
    return msgspec.json.decode(path.read_bytes(), type=dict[str, float])["seconds"] if path.is_file() else 0.0


def opened_record(plan: AutoPlan, asked: dict[str, Any]) -> RaceRecord:
    """The record of the race in the folder, or of a new one; ConfigError if the folder has something else in it."""
    path, plain = plan.folder / DECISIONS, msgspec.json.decode(msgspec.json.encode(asked))
    if not path.is_file():
        record = RaceRecord(plan.folder, Decisions(asked=plain, seconds=plan.seconds))
        record.decide()
        return record
    try:
        decided = msgspec.json.decode(path.read_bytes(), type=Decisions)
    except msgspec.DecodeError as error:
        raise DamagedError(f"{path} is not readable ({error})", fix="restore it, or give another --out") from error
    if changed := changes(decided.asked, plain):
        more = f"; and {len(changed) - TOLD} more" if len(changed) > TOLD else ""
        raise ConfigError(
            f"{plan.folder} contains a different race: {'; '.join(changed[:TOLD])}{more}",
            fix="give another --out, or the same settings to resume it",
        )
    if plan.seconds < decided.seconds:
        raise ConfigError(
            f"{plan.folder} contains a race of {decided.seconds / 60:g} minutes, and --minutes is {plan.minutes:g}",
            fix="give the same minutes or more, or another --out",
        )
    record = RaceRecord(plan.folder, decided)
    if plan.seconds > decided.seconds:  # it goes on, with the runs for which there was no time
        problems = {name: why for name, why in decided.problems.items() if why != TIME_UP}
        record.decide(seconds=plan.seconds, problems=problems, finished=False)
    return record


def require_own_folder(folder: Path) -> None:
    """Raise ConfigError if the folder has something other than a race in it. Nothing is written."""
    if not folder.exists() or (folder / DECISIONS).is_file():
        return
    if not folder.is_dir():
        raise ConfigError(f"{folder} is a file; a race needs a folder", fix="choose another name")
    names = sorted(inner.name for inner in folder.iterdir() if not inner.name.startswith("."))
    if RunFile.CONFIG in names:
        raise ConfigError(f"{folder} contains a run, not a race", fix="give another --out")
    if strays := [name for name in names if name not in ("runs", "evaluations", "prepared", SPENT)]:
        raise ConfigError(f"{folder} contains {strays[0]}, so it is not the folder of a race", fix="give another --out")
