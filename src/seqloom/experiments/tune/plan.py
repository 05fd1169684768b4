"""A tuning as a value: what is searched, on which data, how long, and where it is kept. Workers get it as JSON.

What the data says before any trial: how large a batch is usual for it, and how many steps a trial has.

A space speaks of shares, because data differ: batches of half, once and twice the usual size, a warm-up of a tenth of
the steps. Here shares become the numbers of a configuration.
"""

from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from seqloom.config.training import AnyFeed, ByLengthConfig, SpaceConfig
from seqloom.errors import ConfigError
from seqloom.experiments.plan import RunsPlan, Why
from seqloom.experiments.tune.results import Results
from seqloom.tasks.task import HeadSettings
from seqloom.training.events import Report
from seqloom.training.length import expected_steps
from seqloom.training.resolve import Resolved

MOST_TRIALS, MOST_JOBS = 1_000_000, 256

PrunerName = Literal["median", "hyperband", "none"]


class TuningPlan(RunsPlan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a worker needs to know; `settings` are not searched."""

    storage: str  # sqlite:///FILE or postgresql://...
    study: str
    space: SpaceConfig = SpaceConfig()
    trials: int = 20  # in all, over all processes and machines
    seconds: float = 0.0  # after which no trial begins or goes on; 0: no limit
    pruner: PrunerName = "median"
    seed: int = 0  # of the draws

    def __post_init__(self) -> None:
        if not 1 <= self.trials <= MOST_TRIALS:
            raise ConfigError(f"{self.trials:,} trials", fix=f"take 1 to {MOST_TRIALS:,}")
        if not 0 <= self.seconds < float("inf"):
            raise ConfigError(f"{self.seconds:g} seconds", fix="take a positive number, or 0 for no limit")

    def trial_folder(self, number: int) -> Path:
        """The run folder of a trial."""
        return self.folder / "trials" / f"{number:03d}"


AROUND = (0.5, 1.0, 2.0)  # times the usual batch
UNKNOWN = 1_000  # steps, where a clock decides how many there are


class DataGround(NamedTuple):
    """The run that nobody tuned, which all trials start from."""

    first: Resolved

    @property
    def batch(self) -> int:
        """The symbols of its batch."""
        return symbols_of(self.first.config.training.feed)

    def feed(self, symbols: int) -> AnyFeed:
        """Its feed with so many symbols in a batch."""
        feed = self.first.config.training.feed
        if isinstance(feed, ByLengthConfig):
            return ByLengthConfig(budget=symbols)
        return msgspec.structs.replace(feed, rows=max(1, symbols // feed.length))

    def steps(self, feed: AnyFeed) -> int:
        """About how many steps a trial with this feed has."""
        training, prepared = self.first.config.training, self.first.prepared
        loader = self.first.task.loader(prepared, "train", feed, seed=training.seed, workers=0)
        symbols = int(prepared.schema.target.sizes(prepared.columns)[prepared.parts["train"]].sum())
        return expected_steps(training.length, loader.plan, symbols) or UNKNOWN

    def filled(self, space: SpaceConfig) -> SpaceConfig:
        """The space with what it leaves to the task and to the data."""
        models = space.models or tuple(self.first.task.recipes()[:1])
        batch = space.batch or tuple(sorted({max(1, round(times * self.batch)) for times in AROUND}))
        for name in models:  # one that cannot do the task in a size is refused
            for size in space.sizes:
                self.first.task.model(name, size, HeadSettings())
        return msgspec.structs.replace(space, models=models, batch=batch)


def symbols_of(feed: AnyFeed) -> int:
    """How many symbols a batch has.

    >>> symbols_of(ByLengthConfig(budget=512))
    512
    """
    return feed.budget if isinstance(feed, ByLengthConfig) else feed.rows * feed.length


# What a tuning says while it goes on.

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
