"""Parameters of a trial: drawn from the space, and turned into the wishes of an ordinary run.

What somebody fixed is not searched: a setting of the plan has its say after the parameters.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from seqloom.config.training import (
    AdamWConfig,
    AnySchedule,
    ByLengthConfig,
    ConstantConfig,
    CosineConfig,
    LinearConfig,
    PlateauConfig,
    RunConfig,
    TrainingConfig,
)
from seqloom.config.tuning import RangeConfig, SpaceConfig
from seqloom.errors import ConfigError
from seqloom.recipes import Size
from seqloom.tasks.contract import HeadSettings, Task
from seqloom.training.front import Wishes
from seqloom.tuning.plan import Plan
from seqloom.tuning.reports import Params

if TYPE_CHECKING:
    from optuna.trial import Trial

SCHEDULES: dict[str, type[AnySchedule]] = {
    kind.kind(): kind for kind in (ConstantConfig, LinearConfig, CosineConfig, PlateauConfig)
}
FIXED_BY = {"rate": "rate", "feed": "batch", "schedule": "schedule", "optimiser": "decay"}  # setting: parameter


def models_of(space: SpaceConfig, task: Task) -> tuple[str, ...]:
    """The recipes that are searched; ConfigError for one that cannot do the task in every size that is searched."""
    models = space.models or (task.recipes()[0],)
    for name in models:
        for size in space.sizes:
            task.model(name, size, HeadSettings())
    return models


def drawn(trial: "Trial", plan: Plan, models: tuple[str, ...]) -> Params:
    """The parameters of a trial; what the plan fixes is left out."""
    space = plan.space
    params: Params = {
        "model": _choice(trial, "model", models),
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
        params["warm_up"] = round(_number(trial, "warm_up", space.warm_up))
    return params


def _choice(trial: "Trial", name: str, choices: tuple[Any, ...]) -> Any:
    return choices[0] if len(choices) == 1 else trial.suggest_categorical(name, choices)


def _number(trial: "Trial", name: str, within: RangeConfig) -> float:
    if within.low == within.high:
        return within.low
    return trial.suggest_float(name, within.low, within.high, log=within.log)


def fixed(plan: Plan) -> dict[str, Any]:
    """The settings that all trials share, as what they are: a plan holds them as plain values, for its workers."""
    config = TrainingConfig(**plan.settings)
    return {name: getattr(config, name) for name in plan.settings}


def wishes_of(params: Mapping[str, Any], plan: Plan) -> Wishes:
    """What the parameters ask of a run."""
    settings: dict[str, Any] = {}
    if "rate" in params:
        settings["rate"] = params["rate"]
    if "batch" in params:
        settings["feed"] = ByLengthConfig(budget=params["batch"])
    if "decay" in params:
        settings["optimiser"] = AdamWConfig(decay=params["decay"])
    if "schedule" in params:
        settings["schedule"] = SCHEDULES[params["schedule"]](warm_up=params["warm_up"])
    size: Size = params["size"]
    return Wishes(
        model=params["model"],
        size=size,
        dropout=params["dropout"],
        training=settings | fixed(plan),
        encoding=plan.encoding,
    )


def default_wishes(plan: Plan, models: tuple[str, ...]) -> Wishes:
    """What a run is without tuning, with the first of the models."""
    sizes: tuple[Size, ...] = plan.space.sizes
    size: Size = "small" if "small" in sizes else sizes[0]
    return Wishes(model=models[0], size=size, training=fixed(plan), encoding=plan.encoding)


def near(config: RunConfig, wishes: Wishes, plan: Plan) -> Params:
    """The parameters of the space that are nearest to a run: what the search may learn from it."""
    training, space = config.training, plan.space
    params: Params = {"model": str(wishes.model), "size": str(wishes.size), "dropout": _within(0.1, space.dropout)}
    if "rate" not in plan.settings:
        params["rate"] = _within(training.rate, space.rate)
    if "feed" not in plan.settings and isinstance(training.feed, ByLengthConfig):
        budget = training.feed.budget
        params["batch"] = min(space.batch, key=lambda choice: abs(math.log(choice / budget)))
    if "optimiser" not in plan.settings:
        params["decay"] = _within(training.optimiser.decay, space.decay)
    if "schedule" not in plan.settings:
        kind = training.schedule.kind()
        params["schedule"] = kind if kind in space.schedules else space.schedules[0]
        params["warm_up"] = _within(training.schedule.warm_up, space.warm_up)
    return {name: value for name, value in params.items() if _is_searched(name, space)}


def _within(value: float, bounds: RangeConfig) -> float:
    return min(max(value, bounds.low), bounds.high)


def _is_searched(name: str, space: SpaceConfig) -> bool:
    held = getattr(space, {"model": "models", "size": "sizes", "schedule": "schedules"}.get(name, name))
    return held.low < held.high if isinstance(held, RangeConfig) else len(held) > 1


def require_searchable(plan: Plan) -> None:
    """Refuse a plan that fixes all there is to search."""
    names = ("model", "size", "dropout", "rate", "batch", "decay", "schedule", "warm_up")
    taken = {FIXED_BY.get(setting) for setting in plan.settings} | (
        {"warm_up"} if "schedule" in plan.settings else set()
    )
    if not any(_is_searched(name, plan.space) for name in names if name not in taken):
        raise ConfigError("everything is fixed: there is nothing to search", fix="leave a range or two choices open")
