"""The plan of a search: search space, data, number of trials and storage. Workers get it as JSON.

Some parameters of a space are relative, because data differ: batches of half, once and twice the default size, a warmup
of a tenth of the steps. Here they become numbers, parameters are drawn, and they become the request of an ordinary
run. Settings that the user fixes are not searched.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from seqloom.config.base import dropouts
from seqloom.config.training import (
    AdamWConfig,
    AnyBatching,
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
from seqloom.training.learning_rate import expected_steps, training_tokens
from seqloom.training.request import RunRequest, is_solved
from seqloom.training.resolve import Resolved

if TYPE_CHECKING:
    from optuna.trial import Trial

MOST_TRIALS = 1_000_000

Params = dict[str, str | int | float]
PrunerName = Literal["median", "hyperband", "none"]


class TuningPlan(RunsPlan, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a worker needs to know. `settings` are fixed, and not searched."""

    storage: str = ""  # sqlite:///FILE or postgresql://... (default: a file in the folder)
    study: str = ""  # default: the name of the folder
    space: SpaceConfig = SpaceConfig()
    trials: int = 20  # in all, over all processes and machines
    seconds: float = 0.0  # after which all trials stop; 0: no limit
    pruner: PrunerName = "median"
    seed: int = 0  # of the sampler

    def __post_init__(self) -> None:
        if not 1 <= self.trials <= MOST_TRIALS:
            raise ConfigError(f"--trials {self.trials:,}", fix=f"give 1 to {MOST_TRIALS:,}")
        if not 0 <= self.seconds < float("inf"):
            raise ConfigError(f"--seconds {self.seconds:g}", fix="give a positive number, or 0 for no limit")
        fill = msgspec.structs.force_setattr
        fill(self, "storage", self.storage or f"sqlite:///{self.folder / 'study.db'}")
        fill(self, "study", self.study or self.folder.resolve().name)
        fill(self, "settings", {"keep_checkpoints": 1} | self.settings)

    @property
    def solved(self) -> tuple[str, ...]:
        """The models that newton solves. It tries its own strengths, so each is run once and its settings not drawn."""
        return tuple(name for name in self.space.models if is_solved(name, self.shared))

    def trial_folder(self, number: int) -> Path:
        return self.folder / "trials" / f"{number:03d}"


AROUND = (0.5, 1.0, 2.0)  # times the default batch size
UNKNOWN = 1_000  # steps, if the duration is in seconds


class DataGround(NamedTuple):
    """The run with default settings, which all trials start from."""

    first: Resolved

    @property
    def batch(self) -> int:
        """The number of tokens in its batch."""
        return tokens_of(self.first.config.training.batching)

    def feed(self, tokens: int) -> AnyBatching:
        """Its batching with this many tokens in a batch."""
        feed = self.first.config.training.batching
        if isinstance(feed, ByLengthConfig):
            return ByLengthConfig(batch_tokens=tokens)
        return msgspec.structs.replace(feed, batch_rows=max(1, tokens // feed.row_length))

    def steps(self, feed: AnyBatching) -> int:
        """About how many steps a trial with this batching has."""
        training, prepared = self.first.config.training, self.first.prepared
        loader = self.first.task.loader(prepared, "train", feed, seed=training.seed, workers=0)
        return expected_steps(training.duration, loader.plan, training_tokens(prepared)) or UNKNOWN

    def filled(self, space: SpaceConfig) -> SpaceConfig:
        """The space with defaults from the task and the data."""
        models = space.models or tuple(self.first.task.recipes()[:1])
        batch = space.batch_tokens or tuple(sorted({max(1, round(times * self.batch)) for times in AROUND}))
        made = [  # raises for a recipe that cannot do the task
            [self.first.task.model(name, size, HeadSettings()) for size in space.sizes] for name in models
        ]
        differ = any(one != sizes[0] for sizes in made for one in sizes)
        sizes = space.sizes if differ else (default_size(space),)  # linear has only one
        return msgspec.structs.replace(space, models=models, sizes=sizes, batch_tokens=batch)


def tokens_of(feed: AnyBatching) -> int:
    """The number of tokens in a batch.

    >>> tokens_of(ByLengthConfig(batch_tokens=512))
    512
    """
    return feed.batch_tokens if isinstance(feed, ByLengthConfig) else feed.batch_rows * feed.row_length


SCHEDULES: dict[str, type[AnySchedule]] = {
    kind.kind(): kind for kind in (ConstantConfig, LinearConfig, CosineConfig, PlateauConfig)
}
FIXED_BY = {  # setting: the parameters that it fixes
    "lr": ("lr",),
    "batching": ("batch_tokens",),
    "schedule": ("schedule", "warmup"),
    "optimizer": ("weight_decay",),
}


def drawn(trial: "Trial", plan: TuningPlan) -> Params:
    """Draw the parameters of a trial; those that the plan fixes are left out."""
    space = plan.space
    params: Params = {
        "model": _choice(trial, "model", tuple(name for name in space.models if name not in plan.solved)),
        "size": _choice(trial, "size", space.sizes),
        "dropout": _number(trial, "dropout", space.dropout),
    }
    if "lr" not in plan.settings:
        params["lr"] = _number(trial, "lr", space.lr)
    if "batching" not in plan.settings:
        params["batch_tokens"] = _choice(trial, "batch_tokens", space.batch_tokens)
    if "optimizer" not in plan.settings:
        params["weight_decay"] = _number(trial, "weight_decay", space.weight_decay)
    if "schedule" not in plan.settings:
        params["schedule"] = _choice(trial, "schedule", space.schedules)
        params["warmup"] = _number(trial, "warmup", space.warmup)
    return params


def _choice(trial: "Trial", name: str, choices: tuple[Any, ...]) -> Any:
    return choices[0] if len(choices) == 1 else trial.suggest_categorical(name, choices)


def _number(trial: "Trial", name: str, within: RangeConfig) -> float:
    if within.low == within.high:
        return within.low
    return trial.suggest_float(name, within.low, within.high, log=within.log)


def request_of(params: Mapping[str, Any], plan: TuningPlan, ground: DataGround) -> RunRequest:
    """The request of a run with these parameters; `warmup` is a share of the steps here."""
    settings: dict[str, Any] = {}
    feed = ground.feed(params["batch_tokens"]) if "batch_tokens" in params else ground.first.config.training.batching
    if "lr" in params:
        settings["lr"] = params["lr"]
    if "batch_tokens" in params:
        settings["batching"] = feed
    if "weight_decay" in params:
        settings["optimizer"] = AdamWConfig(weight_decay=params["weight_decay"])
    if "schedule" in params:
        settings["schedule"] = SCHEDULES[params["schedule"]](warmup=round(params["warmup"] * ground.steps(feed)))
    model, size, dropout = params["model"], params["size"], params["dropout"]
    return RunRequest(model, size, dropout=dropout, training=settings | plan.shared, encoding=plan.encoding)


def default_size(space: SpaceConfig) -> Size:
    """The size of the run with default settings."""
    sizes: tuple[Size, ...] = space.sizes
    return "small" if "small" in sizes else sizes[0]


def default_request(plan: TuningPlan, model: str | None = None) -> RunRequest:
    """The request with default settings and this model, or the first one, or the default of the task."""
    return RunRequest(
        model=model or next(iter(plan.space.models), None),
        size=default_size(plan.space),
        training=plan.shared,
        encoding=plan.encoding,
    )


def used(config: RunConfig, request: RunRequest, plan: TuningPlan) -> Params:
    """The parameters in the configuration of a trial; those that the plan fixes are left out."""
    if request.model in plan.solved:
        return {"model": str(request.model), "size": str(request.size)}
    training = config.training
    # several values if the parts of the model differ
    found = sorted(set(dropouts(config.model)))
    dropout = "/".join(f"{value:g}" for value in found) if len(found) > 1 else next(iter(found), 0.0)
    params: Params = {"model": str(request.model), "size": str(request.size), "dropout": dropout}
    params |= {
        "lr": training.lr,
        "batch_tokens": tokens_of(training.batching),
        "weight_decay": training.optimizer.weight_decay,
    }
    params |= {"schedule": training.schedule.kind(), "warmup": training.schedule.warmup or 0}
    return {name: value for name, value in params.items() if name not in _taken(plan)}


def near(config: RunConfig, request: RunRequest, plan: TuningPlan, ground: DataGround) -> Params:
    """The parameters of the space that are nearest to a run, so that the sampler can learn from it."""
    space, training = plan.space, config.training
    params = used(config, request, plan) | {"dropout": max(dropouts(config.model), default=0.0)}
    if "batch_tokens" in params:
        params["batch_tokens"] = min(
            space.batch_tokens, key=lambda choice: abs(math.log(choice / tokens_of(training.batching)))
        )
    if "schedule" in params:
        params["warmup"] = (training.schedule.warmup or 0) / ground.steps(training.batching)
        kind = training.schedule.kind()
        params["schedule"] = kind if kind in space.schedules else space.schedules[0]
    for name in ("dropout", "lr", "weight_decay", "warmup"):
        if name in params:
            bounds = getattr(space, name)
            params[name] = min(max(float(params[name]), bounds.low), bounds.high)
    return {name: value for name, value in params.items() if _is_searched(name, space)}


def _is_searched(name: str, space: SpaceConfig) -> bool:
    values = getattr(space, {"model": "models", "size": "sizes", "schedule": "schedules"}.get(name, name))
    if isinstance(values, RangeConfig):
        return values.low < values.high
    return len(values) > 1 or (name == "batch_tokens" and not values)  # empty: several around the default


def _taken(plan: TuningPlan) -> set[str]:
    """The parameters that the plan fixes."""
    return {name for setting in plan.settings for name in FIXED_BY.get(setting, ())}


def require_searchable(plan: TuningPlan) -> None:
    """Raise ConfigError for a plan that leaves nothing to search."""
    if plan.solved and len(plan.solved) == len(plan.space.models):
        name = plan.solved[0]
        raise ConfigError(
            f"{name} is solved exactly, so tune has nothing to search",
            fix=f"give another model; `seqloom train --model {name}` chooses the strength of its penalty itself",
        )
    names = ("model", "size", "dropout", "lr", "batch_tokens", "weight_decay", "schedule", "warmup")
    if not any(_is_searched(name, plan.space) for name in names if name not in _taken(plan)):
        raise ConfigError(
            "all parameters are fixed, so there is nothing to search", fix="leave a range or two choices open"
        )


# The events of a search.
class TuningStarted(NamedTuple):
    """A search starts or is resumed."""

    folder: Path
    study: str
    storage: str  # without its password
    wanted: int  # trials in all
    finished: int  # trials that are finished already
    messages: tuple[str, ...]


class TrialStarted(NamedTuple):
    """A trial starts, or is resumed after an interruption."""

    number: int
    folder: Path
    params: Params
    is_default: bool


class TrialReport(NamedTuple):
    """An event of the run of a trial."""

    number: int
    report: Report


class TrialEnded(NamedTuple):
    """A trial has ended; `value` is its best dev score, if it has one."""

    number: int
    state: TrialState
    value: float | None
    best: bool  # of all so far
    problem: str = ""


class TuningWorkerLost(NamedTuple):
    """One of several workers died; the others continue."""

    problem: str


class TuningEnded(NamedTuple):
    """The search has ended."""

    reason: Why
    results: Results
    exit_code: int  # 0, 128 + signal, 4 for a disk


TuningReport = TuningStarted | TrialStarted | TrialReport | TrialEnded | TuningWorkerLost | TuningEnded
