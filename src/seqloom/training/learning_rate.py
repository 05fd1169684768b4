"""Learning rate and duration: the learning rate of each step, defaults, and the progress of a run.

    lr_at = lr x warmup(step) x schedule(step, progress) x factor

    lr             `TrainingConfig.lr` if the user gives one; else `default_lr`, by model, size and batch. With --init
                   this default is at most `notes["lr"]` of that model: what it was trained with, or what an imported
                   model should be fine-tuned with (`importing/bert.py`). 1 for newton
    warmup         rises linearly to 1 over the first steps
    constant       1
    linear         1 -> final, linearly with the progress of the run
    cosine         1 -> final, along half a cosine (Loshchilov and Hutter 2017)
    inverse-sqrt   sqrt(warmup / step) after the warmup (Vaswani et al. 2017)
    plateau        1; `factor` shrinks when validations stop improving

`loop.py` calls `lr_at` before each step, and `apply` in `optimizers.py` sets it in the optimizer.

All are pure functions of the training state, so a resumed run has the same learning rates. Defaults
(`default_training`) are rules of thumb, written into `config.toml` like everything else; `seqloom doctor`, `--find-lr`
and `seqloom tune` find better ones.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import numpy as np

from seqloom.config.training import (
    AnyBatching,
    AnyDuration,
    ByLengthConfig,
    ConstantConfig,
    CosineConfig,
    EpochsConfig,
    InverseSqrtConfig,
    LinearConfig,
    NewtonConfig,
    PacksConfig,
    PlateauConfig,
    SecondsConfig,
    StepsConfig,
    StreamsConfig,
    TokenCountConfig,
    TrainingConfig,
)
from seqloom.data.loader import BatchPlan
from seqloom.data.order import default_batch_tokens
from seqloom.data.prepared import Prepared
from seqloom.errors import ConfigError
from seqloom.recipes.families import RECIPES, SIZES, AnySize, Dimensions, Size, recipe_called
from seqloom.training.request import is_solved
from seqloom.training.state import TrainingState

STEPS = 2_000  # in all, for data of medium size: minutes on a CPU for a small model
TOKEN_STEPS = 6_000  # for models that predict tokens: after 2,000 steps they still improve with every epoch
FEWEST, MOST = 3, 60  # epochs
ROW, STREAM = 256, 64  # tokens of a row of packed documents, and of a step of a stream
PATIENCE = 5  # validations
SOLVED_PATIENCE, SOLVED_BATCH = 2, 32_768  # strengths, and tokens that are read at a time: results do not depend on it
WARMUP = 100  # steps, or a tenth of all
COUNTED = 5_000  # steps; later epochs are assumed to be as long as those before

# Wider models get a lower learning rate; recipes have their own factors (`Recipe.lr`).
HIGHEST_LR = 0.01  # of models with a target for every step
_RATES: dict[Size, float] = {"nano": 5e-3, "tiny": 2e-3, "small": 1e-3, "base": 5e-4, "big": 2e-4}

Predicted = Literal["sequence", "steps", "tokens", "characters"]  # an answer for all or each step, or the next token


def default_lr(recipe: str, size: AnySize, predicted: Predicted = "sequence", batch_tokens: int = 2**20) -> float:
    """Return a learning rate that usually works for this family, size and batch.

    >>> default_lr("lstm", "small"), default_lr("lstm", "small", "steps"), default_lr("gpt", "small", "tokens")
    (0.002, 0.006, 0.003)
    >>> default_lr("rnn", "small", "tokens"), default_lr("rnn", "small", "characters")
    (0.003, 0.009)
    >>> default_lr("transformer", Dimensions("small", width=256))
    0.00082
    >>> default_lr("transformer", "small", "tokens", 4096), default_lr("transformer", "small", "tokens", 256)
    (0.003, 0.00075)
    """
    named, factors = Dimensions.of(size), recipe_called(recipe).lr
    rate = _rate(recipe, named)
    if predicted != "steps" and not factors.wide and _is_wide(recipe, named):
        return rate
    found: float = rate * getattr(factors, predicted)
    highest = {"tokens": factors.highest, "characters": factors.highest_characters}.get(predicted, HIGHEST_LR)
    if predicted in ("tokens", "characters") and batch_tokens < factors.full_batch:
        return float(f"{found * math.sqrt(batch_tokens / factors.full_batch):.2g}")
    if predicted == "sequence":
        return max(rate, min(factors.highest_sequence, found))
    if found <= rate * factors.sequence:
        return found
    return min(highest, round(found, 6))


def _is_wide(recipe: str, size: Dimensions) -> bool:
    """Whether it is wider than `small`."""
    widths = RECIPES[recipe].sizes
    return (size.width or widths[size.size].width) > widths["small"].width


def _rate(recipe: str, size: Dimensions) -> float:
    """The rate of a size, or that of another width: between those of the sizes, linear in the logarithms."""
    if size.width is None:
        return _RATES[size.size]
    widths = [math.log(RECIPES[recipe].sizes[one].width) for one in SIZES]
    rates = [math.log(_RATES[one]) for one in SIZES]
    return float(f"{math.exp(np.interp(math.log(size.width), widths, rates)):.2g}")


def default_warmup(duration: AnyDuration, steps: int, batch_tokens: int) -> int:
    """A tenth of all steps, at most 100.

    Args:
        duration: how long the run lasts.
        steps: the number of steps in an epoch.
        batch_tokens: the size of a batch.

    >>> default_warmup(StepsConfig(steps=300), 0, 0), default_warmup(EpochsConfig(epochs=20), 500, 0)
    (30, 100)
    """
    match duration:
        case EpochsConfig():
            total = duration.epochs * steps
        case StepsConfig():
            total = duration.steps
        case TokenCountConfig():
            total = duration.tokens // batch_tokens
        case SecondsConfig():  # the number of steps is not known
            return WARMUP
    return min(WARMUP, total // 10)


def with_default_warmup(config: TrainingConfig, prepared: Prepared) -> TrainingConfig:
    """The same configuration; a schedule that leaves its warmup open (linear, cosine) gets the default."""
    if config.schedule.warmup is not None:
        return config
    tokens, batch_tokens = training_tokens(prepared), _batch_size(config.batching)
    warmup = default_warmup(config.duration, max(1, math.ceil(tokens / batch_tokens)), batch_tokens)
    return msgspec.structs.replace(config, schedule=msgspec.structs.replace(config.schedule, warmup=warmup))


def lr_at(config: TrainingConfig, step: int, share: float, factor: float) -> float:
    """The learning rate of the step after `step` steps; `share` (0..1) is the progress of the run.

    >>> config = TrainingConfig(lr=1.0, schedule=LinearConfig(warmup=4))
    >>> [lr_at(config, step, step / 8, 1.0) for step in (0, 3, 4, 8)]
    [0.25, 0.625, 0.5, 0.0]
    """
    warmup = config.schedule.warmup or 0
    rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
    match config.schedule:
        case LinearConfig(final=final):
            shape = 1 - (1 - final) * share
        case CosineConfig(final=final):
            shape = final + (1 - final) * (1 + math.cos(math.pi * share)) / 2
        case InverseSqrtConfig():
            first = max(1, warmup)
            shape = math.sqrt(first / max(first, step + 1))
        case ConstantConfig() | PlateauConfig():
            shape = 1.0
    return config.lr * rise * shape * factor


def update_plateau(config: TrainingConfig, run_state: TrainingState, better: bool) -> None:
    """Reduce `run_state.plateau_factor` after `patience` validations in a row without improvement."""
    if not isinstance(config.schedule, PlateauConfig):
        return
    run_state.plateau_count = 0 if better else run_state.plateau_count + 1
    if run_state.plateau_count == config.schedule.patience:
        run_state.plateau_factor *= config.schedule.factor
        run_state.plateau_count = 0


def progress_of(length: AnyDuration, run_state: TrainingState, plan: BatchPlan[Any], seconds: float) -> float:
    """The progress of the run, 0..1: used by schedules and the progress bar."""
    match length:
        case EpochsConfig():
            done = (
                run_state.epoch + run_state.index / plan.count(run_state.epoch) if run_state.index else run_state.epoch
            )
        case StepsConfig():
            done = run_state.step
        case TokenCountConfig():
            done = run_state.tokens
        case SecondsConfig():
            done = seconds
    return min(1.0, done / length.amount) if length.amount else 1.0


def is_over(length: AnyDuration, run_state: TrainingState, seconds: float) -> bool:
    """Whether the run has reached its duration."""
    match length:
        case EpochsConfig():
            return run_state.epoch >= length.epochs
        case StepsConfig():
            return run_state.step >= length.steps
        case TokenCountConfig():
            return run_state.tokens >= length.tokens
        case SecondsConfig():
            return seconds >= length.seconds


def expected_steps(length: AnyDuration, plan: BatchPlan[Any], tokens: int) -> int | None:
    """About how many steps the run will have; None if its duration is in seconds. `tokens` are those of one epoch.

    Batches are shuffled in each epoch, so one may have a step more than another. They are counted up to a limit,
    because shuffling large data takes seconds per epoch.
    """
    match length:
        case EpochsConfig():
            epoch, steps = 0, 0
            while epoch < length.epochs and steps < COUNTED:
                steps += plan.count(epoch)
                epoch += 1
            return round(length.epochs * steps / epoch)
        case StepsConfig():
            return length.steps
        case TokenCountConfig():
            return max(1, round(length.tokens / max(1, tokens) * plan.count(0)))
        case SecondsConfig():
            return None


def default_training(
    prepared: Prepared,
    recipe: str,
    size: AnySize,
    named: Mapping[str, Any],
    learned_at: float = math.inf,
    *,
    runs_on: bool = False,
    carries_state: bool = False,
) -> dict[str, Any]:
    """Defaults of `TrainingConfig` that depend on the data, the model, and the settings that the user named.

    Args:
        prepared: the data.
        recipe: the name of the recipe; empty for a model of the user's own.
        size: the size of the recipe.
        named: the settings of `TrainingConfig` that the user gave.
        learned_at: the learning rate of the model that the run starts from. A higher one would soon destroy what that
            model has learned.
        runs_on: whether the data is running text, whose documents belong together.
        carries_state: whether the model reads a text in consecutive pieces as well as at once.

    The recipe `linear` is solved by newton, unless the user names a setting of gradient descent.
    """
    if is_solved(recipe, named):
        return _solving(prepared, named.get("optimizer"))
    tokens, target = training_tokens(prepared), prepared.schema.target
    batch_tokens = default_batch_tokens(tokens)
    predicted = _predicted(prepared)
    fed = named.get("batching") or ByLengthConfig(batch_tokens=batch_tokens)
    duration = named.get("duration") or EpochsConfig(
        epochs=default_epochs(tokens, TOKEN_STEPS if target.predicts_tokens else STEPS)
    )
    return {
        "batching": default_batching(prepared, batch_tokens, runs_on=runs_on, carries_state=carries_state),
        "duration": duration,
        "lr": min(default_lr(recipe, size, predicted, _batch_size(fed)), learned_at),
        "schedule": ConstantConfig() if recipe_called(recipe).counts_tokens else LinearConfig(),
        "patience": PATIENCE,
    }


def _predicted(prepared: Prepared) -> Predicted:
    target, tokenizer = prepared.schema.target, prepared.target_tokenizer or prepared.tokenizer
    if not target.predicts_tokens:
        return "steps" if target.of_steps else "sequence"
    return "characters" if tokenizer is not None and tokenizer.config.of_characters else "tokens"


def default_batching(prepared: Prepared, batch_tokens: int, *, runs_on: bool, carries_state: bool) -> AnyBatching:
    """Batches by length; running text, and documents that would fill a batch alone, in streams or packs.

    Models that carry a state read streams: it is passed on from row to row. For others documents are packed.
    """
    longest = int(prepared.columns["input"].lengths[prepared.splits["train"]].max(initial=0))
    if not prepared.schema.target.is_running or not (runs_on or longest > batch_tokens // 4):
        return ByLengthConfig(batch_tokens=batch_tokens)
    if carries_state:
        return StreamsConfig(batch_rows=max(1, batch_tokens // STREAM), row_length=STREAM)
    return PacksConfig(batch_rows=max(1, batch_tokens // ROW), row_length=ROW)


def batching_message(batching: AnyBatching, prepared: Prepared, *, runs_on: bool) -> str:
    """Why the default is not batches by length, and how to choose them; empty if it is."""
    if isinstance(batching, ByLengthConfig):
        return ""
    longest = int(prepared.columns["input"].lengths[prepared.splits["train"]].max(initial=0))
    size = default_batch_tokens(training_tokens(prepared))
    found = f"the longest document has {longest:,} tokens, more than a quarter of a batch by length ({size:,} tokens)"
    why = "the documents are parts of one text" if runs_on else found
    return f"batching: {batching.kind()}, because {why} (--batching by-length reads each document by itself)"


def training_tokens(prepared: Prepared) -> int:
    """The number of tokens in an epoch."""
    return int(prepared.schema.target.sizes(prepared.columns)[prepared.splits["train"]].sum())


def default_epochs(tokens: int, steps: int) -> int:
    """The number of epochs in about this many steps, for a training set of this size."""
    return max(FEWEST, min(MOST, round(steps / max(1, tokens // default_batch_tokens(tokens)))))


def expected_epochs(duration: AnyDuration | None, tokens: int, batching: AnyBatching | None) -> float:
    """About how often a model that predicts tokens reads the training set; 0 if the duration is in seconds.

    Args:
        duration: None means the default.
        tokens: the size of the training set.
        batching: None means the default.

    >>> expected_epochs(None, 100_000, None), expected_epochs(StepsConfig(steps=50), 100_000, None)
    (60, 0.5)
    """
    match duration:
        case None:
            return default_epochs(tokens, TOKEN_STEPS)
        case EpochsConfig():
            return duration.epochs
        case StepsConfig():
            fed = batching or ByLengthConfig(batch_tokens=default_batch_tokens(tokens))
            return duration.steps * _batch_size(fed) / max(1, tokens)
        case TokenCountConfig():
            return duration.tokens / max(1, tokens)
        case SecondsConfig():
            return 0.0


def _batch_size(batching: AnyBatching) -> int:
    """The number of tokens in a batch."""
    return batching.batch_tokens if isinstance(batching, ByLengthConfig) else batching.batch_rows * batching.row_length


def _solving(prepared: Prepared, named: NewtonConfig | None) -> dict[str, Any]:
    """One epoch for each strength, until the dev score stops improving; without a dev set, strength 1."""
    has_dev = bool(len(prepared.splits["dev"]))
    if named is not None and not has_dev and len(named.l2) > 1:
        raise ConfigError(
            f"newton has {len(named.l2)} strengths to choose from, but there is no dev set",
            fix="give one with --l2 1, or --dev FILE or --dev-size 10%",
        )
    optimizer = named or (NewtonConfig() if has_dev else NewtonConfig(l2=(1.0,)))
    return {
        "batching": ByLengthConfig(batch_tokens=SOLVED_BATCH),
        "duration": EpochsConfig(epochs=len(optimizer.l2)),
        "optimizer": optimizer,
        "lr": 1.0,  # full Newton steps; the line search may halve one
        "schedule": ConstantConfig(),
        "clip_norm": 0.0,
        "patience": SOLVED_PATIENCE,
        "log_every": 1,
    }


def training_line(settings: TrainingConfig) -> str:
    """Duration, batches, learning rate and patience in one line.

    >>> training_line(TrainingConfig(patience=5))
    'training: 10 epochs, batches of 4,096 tokens, lr 0.001 (adamw, linear, warmup 100), patience 5'
    >>> newton = NewtonConfig(l2=(1.0, 0.1))
    >>> training_line(TrainingConfig(optimizer=newton, lr=1.0, schedule=ConstantConfig())).rpartition("; ")[2]
    'training stops after 2 epochs, not 10'
    """
    length, feed, schedule = settings.duration, settings.batching, settings.schedule
    patience = f"patience {settings.patience}" if settings.patience else "no early stopping"
    if settings.strengths:
        strengths = ", ".join(f"{strength:g}" for strength in settings.strengths)
        long = isinstance(length, EpochsConfig) and length.epochs > len(settings.strengths)
        ends = f"; training stops after {len(settings.strengths)} epochs, not {length.amount:,}" if long else ""
        return f"training: newton, one epoch for each L2 strength: {strengths}; {patience}{ends}"
    size = (
        f"{feed.batch_tokens:,}" if isinstance(feed, ByLengthConfig) else f"{feed.batch_rows:,} x {feed.row_length:,}"
    )
    kind = "" if isinstance(feed, ByLengthConfig) else f" in {feed.kind()}"
    rises = f", warmup {schedule.warmup:,}" if schedule.warmup else ""
    rate = f"lr {settings.lr:g} ({settings.optimizer.kind()}, {schedule.kind()}{rises})"
    return f"training: {length.amount:,} {length.unit}, batches of {size} tokens{kind}, {rate}, {patience}"
