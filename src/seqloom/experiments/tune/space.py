"""Parameters of a trial: drawn from the space, and turned into the wishes of an ordinary run.

What somebody fixed is not searched: a setting of the plan has its say after the parameters.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from seqloom.config.base import dropouts
from seqloom.config.training import (
    AdamWConfig,
    AnySchedule,
    ConstantConfig,
    CosineConfig,
    LinearConfig,
    PlateauConfig,
    RangeConfig,
    RunConfig,
    SpaceConfig,
    TrainingConfig,
)
from seqloom.errors import ConfigError
from seqloom.experiments.tune.plan import DataGround, Params, TuningPlan, symbols_of
from seqloom.recipes.families import Size
from seqloom.training.wishes import Wishes

if TYPE_CHECKING:
    from optuna.trial import Trial

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


def fixed(plan: TuningPlan) -> dict[str, Any]:
    """The settings that all trials share, as what they are: a plan holds them as plain values, for its workers."""
    config = TrainingConfig(**plan.settings)
    return {name: getattr(config, name) for name in plan.settings}


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
    size: Size = params["size"]
    return Wishes(
        model=params["model"],
        size=size,
        dropout=params["dropout"],
        training=settings | fixed(plan),
        encoding=plan.encoding,
    )


def default_wishes(plan: TuningPlan) -> Wishes:
    """What a run is without tuning, with the first of the models, or the usual one of its task."""
    sizes: tuple[Size, ...] = plan.space.sizes
    size: Size = "small" if "small" in sizes else sizes[0]
    return Wishes(model=next(iter(plan.space.models), None), size=size, training=fixed(plan), encoding=plan.encoding)


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
