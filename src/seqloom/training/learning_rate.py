"""How long and how fast a run learns: the rate of each step, what it is where nobody says, and how far a run is.

    rate_at = rate x warm-up(step) x schedule(step, share) x factor

    rate           `TrainingConfig.rate`, as the user says; else `default_rate`, by model and size, but with --init no
                   more than `notes["rate"]` of that model: what it learned at, or of an imported one what it may go on
                   at (`importing/bert.py`); 1 where newton solves, whatever it starts from
    warm-up        rises along a line to 1 over the first steps
    constant       1
    linear         1 -> final along a line over the share of the run that is done
    cosine         1 -> final along half a cosine (Loshchilov and Hutter 2017)
    inverse-root   sqrt(warm-up steps / step) behind the warm-up (Vaswani et al. 2017)
    plateau        1; its `factor` shrinks when validations stop getting better

`loop.py` asks `rate_at` before each step, and `apply` in `optimizers.py` puts the rate into the optimiser.

All are pure functions of where the run stands. Nothing is counted here, so a run that goes on from a checkpoint has the
same rates: there is no state to forget. What nobody named (`default_training`) are rules of thumb, written into
`config.toml` like everything else; `seqloom doctor`, `--find-lr` and `seqloom tune` go on from them.
"""

import math
from collections.abc import Mapping
from typing import Any

from seqloom.config.training import (
    AnyLength,
    ByLengthConfig,
    ConstantConfig,
    CosineConfig,
    EpochsConfig,
    InverseRootConfig,
    LinearConfig,
    NewtonConfig,
    PacksConfig,
    PlateauConfig,
    SecondsConfig,
    StepsConfig,
    SymbolsConfig,
    TrainingConfig,
)
from seqloom.data.loader import BatchPlan
from seqloom.data.order import usual_budget
from seqloom.data.prepared import Prepared
from seqloom.errors import ConfigError
from seqloom.recipes.families import Size
from seqloom.training.state import TrainingState
from seqloom.training.wishes import is_solved

STEPS = 2_000  # in all, for data of middling size: minutes on a processor for a small model
FEWEST, MOST = 3, 60  # epochs
ROW = 256  # symbols of a row of packed documents
PATIENCE = 5  # validations
SOLVED_PATIENCE, SOLVED_BATCH = 2, 32_768  # strengths, and symbols that are read at a time: no step depends on them
WARM_UP = 100  # steps, or a tenth of all
COUNTED = 5_000  # steps, after which an epoch is taken to be like those before it

# The wider a model, the smaller its rate; attention wants less than recurrence, and counting wants more.
_RATES: dict[Size, float] = {"tiny": 5e-3, "small": 1e-3, "base": 5e-4, "big": 2e-4}
_FASTER = {"linear": 10.0, "bag": 3.0, "mlp": 1.0, "lstm": 2.0, "gru": 2.0, "rnn": 1.0, "bilstm": 2.0}


def default_rate(recipe: str, size: Size) -> float:
    """A rate at which this family usually learns."""
    return _RATES[size] * _FASTER.get(recipe, 1.0)


def default_schedule(recipe: str, length: AnyLength, steps: int, budget: int) -> ConstantConfig | LinearConfig:
    """Down along a line, for epochs of so many steps and batches of so many symbols; a linear model needs no schedule.

    The warm-up is a tenth of all steps: a rate that rises longer than a short run lasts is never reached.
    """
    if recipe == "linear":
        return ConstantConfig()
    match length:
        case EpochsConfig():
            total = length.count * steps
        case StepsConfig():
            total = length.count
        case SymbolsConfig():
            total = length.count // budget
        case SecondsConfig():  # nobody knows
            return LinearConfig(warm_up=WARM_UP)
    return LinearConfig(warm_up=min(WARM_UP, total // 10))


def rate_at(config: TrainingConfig, step: int, share: float, factor: float) -> float:
    """The rate of the step after `step` steps, when `share` (0..1) of the run is done.

    >>> config = TrainingConfig(rate=1.0, schedule=LinearConfig(warm_up=4))
    >>> [rate_at(config, step, step / 8, 1.0) for step in (0, 3, 4, 8)]
    [0.25, 0.625, 0.5, 0.0]
    """
    warm_up = config.schedule.warm_up
    warmth = min(1.0, (step + 1) / warm_up) if warm_up else 1.0
    match config.schedule:
        case LinearConfig(final=final):
            shape = 1 - (1 - final) * share
        case CosineConfig(final=final):
            shape = final + (1 - final) * (1 + math.cos(math.pi * share)) / 2
        case InverseRootConfig():
            first = max(1, warm_up)
            shape = math.sqrt(first / max(first, step + 1))
        case ConstantConfig() | PlateauConfig():
            shape = 1.0
    return config.rate * warmth * shape * factor


def plateau(config: TrainingConfig, standing: TrainingState, better: bool) -> None:
    """Make `standing.factor` smaller after so many validations in a row that were not better."""
    if not isinstance(config.schedule, PlateauConfig):
        return
    standing.plateau = 0 if better else standing.plateau + 1
    if standing.plateau == config.schedule.patience:
        standing.factor *= config.schedule.factor
        standing.plateau = 0


def share_done(length: AnyLength, standing: TrainingState, plan: BatchPlan[Any], seconds: float) -> float:
    """The share of the run that is done, 0..1: what schedules and the display go by."""
    match length:
        case EpochsConfig():
            done = standing.epoch + standing.index / plan.count(standing.epoch) if standing.index else standing.epoch
        case StepsConfig():
            done = standing.step
        case SymbolsConfig():
            done = standing.symbols
        case SecondsConfig():
            done = seconds
    return min(1.0, done / length.count) if length.count else 1.0


def is_over(length: AnyLength, standing: TrainingState, seconds: float) -> bool:
    """Whether nothing is left to do."""
    match length:
        case EpochsConfig():
            return standing.epoch >= length.count
        case StepsConfig():
            return standing.step >= length.count
        case SymbolsConfig():
            return standing.symbols >= length.count
        case SecondsConfig():
            return seconds >= length.count


def expected_steps(length: AnyLength, plan: BatchPlan[Any], symbols: int) -> int | None:
    """About how many steps there will be; None where a clock decides. `symbols` are those of one epoch.

    Batches are drawn anew in each epoch, so one may have a step more than another. They are counted up to a limit: the
    epochs of large data are drawn in seconds, and too many to be counted.
    """
    match length:
        case EpochsConfig():
            epoch, steps = 0, 0
            while epoch < length.count and steps < COUNTED:
                steps += plan.count(epoch)
                epoch += 1
            return round(length.count * steps / epoch)
        case StepsConfig():
            return length.count
        case SymbolsConfig():
            return max(1, round(length.count / max(1, symbols) * plan.count(0)))
        case SecondsConfig():
            return None


def default_training(
    prepared: Prepared, recipe: str, size: Size, named: Mapping[str, Any], learned_at: float = math.inf
) -> dict[str, Any]:
    """The settings of `TrainingConfig` that depend on the data, the model, and those that were named.

    `linear` is solved, unless a setting of steps by batches is named. `learned_at` is the rate of the model that the
    run starts from: a larger one would soon lose what it knows. What is solved loses nothing by whole steps.
    """
    if is_solved(recipe, named):
        return _solving(prepared, named.get("optimiser"))
    symbols = training_symbols(prepared)
    budget = usual_budget(symbols)
    steps = max(1, symbols // budget)
    length = named.get("length") or EpochsConfig(count=usual_epochs(symbols))
    longest = int(prepared.columns["input"].lengths[prepared.parts["train"]].max(initial=0))
    # Rows of one length; running text with documents that fill a batch alone is cut into packs instead.
    packed = prepared.schema.target.is_running and longest > budget // 4
    feed = PacksConfig(rows=max(1, budget // ROW), length=ROW) if packed else ByLengthConfig(budget=budget)
    return {
        "feed": feed,
        "length": length,
        "rate": min(default_rate(recipe, size), learned_at),
        "schedule": default_schedule(recipe, length, steps, budget),
        "patience": PATIENCE,
    }


def training_symbols(prepared: Prepared) -> int:
    """The symbols of one epoch."""
    return int(prepared.schema.target.sizes(prepared.columns)[prepared.parts["train"]].sum())


def usual_epochs(symbols: int) -> int:
    """How often a training set of so many symbols is usually read."""
    return max(FEWEST, min(MOST, round(STEPS / max(1, symbols // usual_budget(symbols)))))


def _solving(prepared: Prepared, named: NewtonConfig | None) -> dict[str, Any]:
    """Every strength once, until the dev part likes none better; without one, the strength that is usual."""
    judged = bool(len(prepared.parts["dev"]))
    if named is not None and not judged and len(named.strengths) > 1:
        raise ConfigError(
            f"there is no dev part to choose among {len(named.strengths)} strengths of newton by",
            fix="give --dev FILE or --shares, or leave --optimiser out: the strength is 1 then",
        )
    optimiser = named or (NewtonConfig() if judged else NewtonConfig(strengths=(1.0,)))
    return {
        "feed": ByLengthConfig(budget=SOLVED_BATCH),
        "length": EpochsConfig(count=len(optimiser.strengths)),
        "optimiser": optimiser,
        "rate": 1.0,  # whole steps; the objective decides whether to halve one
        "schedule": ConstantConfig(),
        "clip": 0.0,
        "patience": SOLVED_PATIENCE,
        "report_every": 1,
    }


def told(settings: TrainingConfig) -> str:
    """How long, by which batches and at which rate a run learns, in one line.

    >>> told(TrainingConfig(patience=5))
    'training: 10 epochs, batches of 4,096 symbols, rate 0.001 (adamw, linear, warm-up 100), patience 5'
    >>> newton = NewtonConfig(strengths=(1.0, 0.1))
    >>> told(TrainingConfig(optimiser=newton, rate=1.0, schedule=ConstantConfig())).partition("; ")[2]
    'it ends with the last of them, not after 10 epochs'
    """
    length, feed, schedule = settings.length, settings.feed, settings.schedule
    patience = f"patience {settings.patience}" if settings.patience else "no end before that"
    if settings.strengths:
        strengths = ", ".join(f"{strength:g}" for strength in settings.strengths)
        long = isinstance(length, EpochsConfig) and length.count > len(settings.strengths)
        ends = f"; it ends with the last of them, not after {length.count:,} epochs" if long else ""
        return f"training: solved by newton, one epoch for each L2 strength of {strengths}, {patience}{ends}"
    size = f"{feed.budget:,}" if isinstance(feed, ByLengthConfig) else f"{feed.rows:,} x {feed.length:,}"
    kind = "" if isinstance(feed, ByLengthConfig) else f" in {feed.kind()}"
    rises = f", warm-up {schedule.warm_up:,}" if schedule.warm_up else ""
    rate = f"rate {settings.rate:g} ({settings.optimiser.kind()}, {schedule.kind()}{rises})"
    return f"training: {length.count:,} {length.kind()}, batches of {size} symbols{kind}, {rate}, {patience}"
