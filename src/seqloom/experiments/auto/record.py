"""The record of a race: its decisions in auto.json and the time spent in spent.json.

A decision is written before it is carried out, and it is never changed. Decisions follow from other recorded facts:
scores, the measured speeds, and a planned clock that counts the runs by these speeds. So a race that was killed and
resumed trains the same runs as an uninterrupted race. The measured time only ends a race that is far too long. It has
a separate file, because it is written every few seconds.
"""

import time
from pathlib import Path
from typing import Any

import msgspec

from seqloom.errors import ConfigError, DamagedError
from seqloom.experiments.auto.budget import Probe
from seqloom.experiments.auto.plan import AutoPlan, Entry, RaceCandidate
from seqloom.experiments.compare.comparison import changes
from seqloom.files.disk import write_file
from seqloom.files.layouts import RunFile

DECISIONS, SPENT = "auto.json", "spent.json"
BETWEEN = 5.0  # seconds between two writes of the time spent
SHOWN = 4  # most changes that an error message lists
OVERTIME, LEAST_OVERTIME = 0.1, 5.0  # share of the time limit, and seconds, after which a run is stopped

# Reasons why a candidate has no result. They are given up when the race continues with more time.
TIME_UP = "not run: the time was up"
NOT_MEASURED = "not run: no time was left to measure its speed"
TOO_SLOW = "not run: a step takes {}, too slow for the time"
NOT_VALIDATED = "the time was up before its first validation"

now = time.monotonic


class Rung(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rung: its runs, and the planned seconds left and the pace before it."""

    number: int
    entries: tuple[Entry, ...]
    left: float
    pace: float = 1.0
    dropped: tuple[str, ...] = ()  # candidates of the previous rung that do not continue


class RaceDecisions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All decisions so far."""

    settings: dict[str, Any] = msgspec.field(name="asked")  # a race is only resumed with the same settings
    seconds: float  # the time limit
    baseline: tuple[Entry, ...] = ()
    probes: dict[str, Probe] = {}
    rungs: tuple[Rung, ...] = ()
    variants: tuple[Entry, ...] = ()
    problems: dict[str, str] = {}  # runs without a result, with the reason
    cuts: dict[str, int] = {}  # the last step of each run that was stopped because the time was up
    extra: float | None = None  # seconds spent on all but the runs with measured speeds; None: nothing is planned yet
    pace: float = 1.0  # seconds of these runs / those that follow from the measured speeds
    finished: bool = False

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All planned runs, in order."""
        return (*self.baseline, *(entry for rung in self.rungs for entry in rung.entries), *self.variants)

    def probe_of(self, candidate: RaceCandidate) -> Probe | None:
        """The measured speed of a candidate; a variant without a probe of its own has that of its parent."""
        return self.probes.get(candidate.name) or self.probes.get(candidate.variant_of)


class _Spent(msgspec.Struct, frozen=True):
    """The content of spent.json."""

    seconds: float


class RaceRecord:
    """The decisions of a race in its folder; each change is written immediately."""

    def __init__(self, folder: Path, decided: RaceDecisions, began: float) -> None:
        self.folder, self.decided = folder, decided
        self._before, self._began, self._written = _spent(folder), began, now()

    def decide(self, **changed: Any) -> RaceDecisions:
        """Change some decisions and write all of them."""
        self.decided = msgspec.structs.replace(self.decided, **changed)
        self.keep_time()
        write_file(self.folder / DECISIONS, msgspec.json.format(msgspec.json.encode(self.decided), indent=2))
        return self.decided

    @property
    def spent(self) -> float:
        """Seconds spent since this start and in all earlier starts."""
        return self._before + now() - self._began

    @property
    def left(self) -> float:
        """Seconds left in the race."""
        return self.decided.seconds - self.spent

    def is_over(self, ending: float = 0.0) -> bool:
        """Whether the race has taken so much longer than its time that no run may go on.

        `ending` is how many seconds of the overtime the end of the run needs. It never shortens the time itself.
        """
        return self.left <= -max(0.0, max(LEAST_OVERTIME, OVERTIME * self.decided.seconds) - ending)

    def keep_time(self, between: float = 0.0) -> None:
        """Write the time spent, if at least this many seconds have passed since the last write."""
        if now() - self._written >= between:
            self._written = now()
            write_file(self.folder / SPENT, msgspec.json.encode({"seconds": round(self.spent, 3)}))


def _spent(folder: Path) -> float:
    path = folder / SPENT
    if not path.is_file():
        return 0.0
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Spent).seconds
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedError(
            f"{path} cannot be read ({error})", fix="restore it, or delete it to count the time from 0"
        ) from error


def is_lack_of_time(why: str) -> bool:
    """Whether a candidate has no result only because the time was too short.

    >>> is_lack_of_time(TOO_SLOW.format("2 s")), is_lack_of_time("cnn.csv is a file")
    (True, False)
    """
    return why in (TIME_UP, NOT_MEASURED) or why.startswith(NOT_VALIDATED) or why.endswith(TOO_SLOW.partition("{}")[2])


def earlier_decisions(plan: AutoPlan, settings: dict[str, Any]) -> RaceDecisions | None:
    """The decisions of the race in the folder, if there is one; ConfigError for a different race or less time."""
    path, plain = plan.folder / DECISIONS, msgspec.json.decode(msgspec.json.encode(settings))
    if not path.is_file():
        return None
    try:
        decided = msgspec.json.decode(path.read_bytes(), type=RaceDecisions)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedError(f"{path} cannot be read ({error})", fix="restore it, or give another --out") from error
    if changed := changes(decided.settings, plain):
        more = f"; and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        raise ConfigError(
            f"{plan.folder} contains a different race: {'; '.join(changed[:SHOWN])}{more}",
            fix="give another --out, or the same settings to resume it",
        )
    if plan.seconds < decided.seconds:
        raise ConfigError(
            f"{plan.folder} contains a race of {decided.seconds / 60:g} minutes, and --minutes is {plan.minutes:g}",
            fix="give the same minutes or more, or another --out",
        )
    return decided


def opened_record(plan: AutoPlan, settings: dict[str, Any], decided: RaceDecisions | None, began: float) -> RaceRecord:
    """The record of a race with these decisions, or of a new race; `began` is when this start of it began, by `now`."""
    if decided is None:
        plain = msgspec.json.decode(msgspec.json.encode(settings))
        record = RaceRecord(plan.folder, RaceDecisions(settings=plain, seconds=plan.seconds), began)
        record.decide()
        return record
    record = RaceRecord(plan.folder, decided, began)
    if plan.seconds > decided.seconds:  # continue it; whatever lacked time gets another chance
        late = {name for name, why in decided.problems.items() if is_lack_of_time(why)}
        problems = {name: why for name, why in decided.problems.items() if name not in late}
        cuts = {name: step for name, step in decided.cuts.items() if name not in late}
        record.decide(seconds=plan.seconds, problems=problems, cuts=cuts, finished=False)
    return record


def require_own_folder(folder: Path) -> None:
    """Raise ConfigError if the folder contains anything other than a race. This writes nothing."""
    if not folder.exists() or (folder / DECISIONS).is_file():
        return
    if not folder.is_dir():
        raise ConfigError(f"{folder} is a file; a race needs a folder", fix="choose another name")
    names = sorted(inner.name for inner in folder.iterdir() if not inner.name.startswith("."))
    if RunFile.CONFIG in names:
        raise ConfigError(f"{folder} contains a run, not a race", fix="give another --out")
    if strays := [name for name in names if name not in ("runs", "evaluations", "prepared", SPENT)]:
        raise ConfigError(f"{folder} contains {strays[0]}, so it is not the folder of a race", fix="give another --out")
