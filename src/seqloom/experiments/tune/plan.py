"""A tuning as a value: what is searched, on which data, how long, and where it is kept. Workers get it as JSON.

A space speaks of shares, because data differ: batches of half, once and twice the usual size, a warm-up of a tenth of
the steps. Here shares become numbers, parameters are drawn from the space, and drawn ones become the wishes of an
ordinary run. What somebody fixed is not searched: a setting of the plan has its say after the parameters.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from seqloom.config.base import dropouts
from seqloom.config.training import (
    AdamWConfig,
    AnyFeed,
    AnySchedule,
    ByLengthConfig,
    ConstantConfig,
    CosineConfig,
    LinearConfig,
    PlateauConfig,
    RangeConfig,
    RunConfig,
    SpaceConfig,
)
from seqloom.errors import ConfigError
from seqloom.experiments.tune.results import Results, TrialState
from seqloom.experiments.workers import RunsPlan, Why
from seqloom.recipes.families import Size
from seqloom.tasks.task import HeadSettings
from seqloom.training.events import Report
from seqloom.training.learning_rate import expected_steps, training_symbols
from seqloom.training.resolve import Resolved
from seqloom.training.wishes import Wishes

if TYPE_CHECKING:
    from optuna.trial import Trial

MOST_TRIALS = 1_000_000

Params = dict[str, str | int | float]
PrunerName = Literal["median", "hyperband", "none"]


class TuningPlan(RunsPlan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a worker needs to know; `settings` are not searched."""

    storage: str = ""  # sqlite:///FILE or postgresql://...; a file in the folder where nothing is said
    study: str = ""  # the name of the folder where nothing is said
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
        fill = msgspec.structs.force_setattr
        fill(self, "storage", self.storage or f"sqlite:///{self.folder / 'study.db'}")
        fill(self, "study", self.study or self.folder.resolve().name)
        fill(self, "settings", {"keep": 1} | self.settings)

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
        return expected_steps(training.length, loader.plan, training_symbols(prepared)) or UNKNOWN

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


SCHEDULES: dict[str, type[AnySchedule]] = {
    kind.kind(): kind for kind in (ConstantConfig, LinearConfig, CosineConfig, PlateauConfig)
}
FIXED_BY = {  # a setting: the parameters that it fixes
    "rate": ("rate",),
    "feed": ("batch",),
    "schedule": ("schedule", "warm_up"),
    "optimiser": ("decay",),
}


def drawn(trial: "Trial", plan: TuningPlan) -> Params:
    """The parameters of a trial from a space that is filled; what the plan fixes is left out."""
    space = plan.space
    params: Params = {
        "model": _choice(trial, "model", space.models),
        "size": _choice(trial, "size", space.sizes),
        "dropout": _number(trial, "dropout", space.dropout),
    }
    if "rate" not in plan.settings:
        params["rate"] = _number(trial, "rate", space.rate)
    if "feed" not in plan.settings:
        params["batch"] = _choice(trial, "batch", space.batch)
    if "optimiser" not in plan.settings:
        params["decay"] = _number(trial, "decay", space.decay)
    if "schedule" not in plan.settings:
        params["schedule"] = _choice(trial, "schedule", space.schedules)
        params["warm_up"] = _number(trial, "warm_up", space.warm_up)
    return params


def _choice(trial: "Trial", name: str, choices: tuple[Any, ...]) -> Any:
    return choices[0] if len(choices) == 1 else trial.suggest_categorical(name, choices)


def _number(trial: "Trial", name: str, within: RangeConfig) -> float:
    if within.low == within.high:
        return within.low
    return trial.suggest_float(name, within.low, within.high, log=within.log)


def wishes_of(params: Mapping[str, Any], plan: TuningPlan, ground: DataGround) -> Wishes:
    """What the parameters ask of a run; the share of its steps that it warms up becomes so many of them."""
    settings: dict[str, Any] = {}
    feed = ground.feed(params["batch"]) if "batch" in params else ground.first.config.training.feed
    if "rate" in params:
        settings["rate"] = params["rate"]
    if "batch" in params:
        settings["feed"] = feed
    if "decay" in params:
        settings["optimiser"] = AdamWConfig(decay=params["decay"])
    if "schedule" in params:
        settings["schedule"] = SCHEDULES[params["schedule"]](warm_up=round(params["warm_up"] * ground.steps(feed)))
    model, size, dropout = params["model"], params["size"], params["dropout"]
    return Wishes(model, size, dropout=dropout, training=settings | plan.shared, encoding=plan.encoding)


def default_wishes(plan: TuningPlan) -> Wishes:
    """What a run is without tuning, with the first of the models, or the usual one of its task."""
    sizes: tuple[Size, ...] = plan.space.sizes
    size: Size = "small" if "small" in sizes else sizes[0]
    return Wishes(model=next(iter(plan.space.models), None), size=size, training=plan.shared, encoding=plan.encoding)


def used(config: RunConfig, wishes: Wishes, plan: TuningPlan) -> Params:
    """The parameters as they stand in the configuration of a trial; what the plan fixes is left out."""
    training = config.training
    # The dropout of a model; of one whose parts differ, all of them
    found = sorted(set(dropouts(config.model)))
    dropout = "/".join(f"{value:g}" for value in found) if len(found) > 1 else next(iter(found), 0.0)
    params: Params = {"model": str(wishes.model), "size": str(wishes.size), "dropout": dropout}
    params |= {"rate": training.rate, "batch": symbols_of(training.feed), "decay": training.optimiser.decay}
    params |= {"schedule": training.schedule.kind(), "warm_up": training.schedule.warm_up}
    return {name: value for name, value in params.items() if name not in _taken(plan)}


def near(config: RunConfig, wishes: Wishes, plan: TuningPlan, ground: DataGround) -> Params:
    """The parameters of the space that are nearest to a run: what the search may learn from it."""
    space, training = plan.space, config.training
    params = used(config, wishes, plan) | {"dropout": max(dropouts(config.model), default=0.0)}
    if "batch" in params:
        params["batch"] = min(space.batch, key=lambda choice: abs(math.log(choice / symbols_of(training.feed))))
    if "schedule" in params:
        params["warm_up"] = training.schedule.warm_up / ground.steps(training.feed)
        kind = training.schedule.kind()
        params["schedule"] = kind if kind in space.schedules else space.schedules[0]
    for name in ("dropout", "rate", "decay", "warm_up"):
        if name in params:
            bounds = getattr(space, name)
            params[name] = min(max(float(params[name]), bounds.low), bounds.high)
    return {name: value for name, value in params.items() if _is_searched(name, space)}


def _is_searched(name: str, space: SpaceConfig) -> bool:
    held = getattr(space, {"model": "models", "size": "sizes", "schedule": "schedules"}.get(name, name))
    if isinstance(held, RangeConfig):
        return held.low < held.high
    return len(held) > 1 or (name == "batch" and not held)  # empty: several around the usual one


def _taken(plan: TuningPlan) -> set[str]:
    """The parameters that settings of the plan have fixed."""
    return {name for setting in plan.settings for name in FIXED_BY.get(setting, ())}


def require_searchable(plan: TuningPlan) -> None:
    """Refuse a plan that fixes all there is to search."""
    names = ("model", "size", "dropout", "rate", "batch", "decay", "schedule", "warm_up")
    if not any(_is_searched(name, plan.space) for name in names if name not in _taken(plan)):
        raise ConfigError("everything is fixed: there is nothing to search", fix="leave a range or two choices open")


# What a tuning says while it goes on.
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
    state: TrialState
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
