"""Settings that nobody named: good starting points from the task, the recipe and the size of the data.

They are rules of thumb, written into `config.toml` like everything else, and `seqloom doctor`, `--find-lr` and
`seqloom tune` go on from them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from seqloom.config.data import EncodingConfig
from seqloom.config.tokenizers import FittedTokenizer, WordsConfig
from seqloom.config.training import (
    AnyFeed,
    AnyLength,
    ByLengthConfig,
    ConstantConfig,
    EpochsConfig,
    LinearConfig,
    NewtonConfig,
    PacksConfig,
    SecondsConfig,
    StepsConfig,
    SymbolsConfig,
    TrainingConfig,
)
from seqloom.data.order import usual_budget
from seqloom.data.prepared import Prepared
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError
from seqloom.recipes.families import Size
from seqloom.tasks.registry import BY_TARGET
from seqloom.training.wishes import Wishes, is_solved

STEPS = 2_000  # in all, for data of middling size: minutes on a processor for a small model
FEWEST, MOST = 3, 60  # epochs
ROW = 256  # symbols of a row of packed documents
PATIENCE = 5  # validations
SOLVED_PATIENCE, SOLVED_BATCH = 2, 32_768  # strengths, and symbols that are read at a time: no step depends on them
WARM_UP = 100  # steps, or a tenth of all

# The wider a model, the smaller its rate; attention wants less than recurrence, and counting wants more.
_RATES: dict[Size, float] = {"tiny": 5e-3, "small": 1e-3, "base": 5e-4, "big": 2e-4}
_FASTER = {"linear": 10.0, "bag": 3.0, "mlp": 1.0, "lstm": 2.0, "gru": 2.0, "rnn": 1.0, "bilstm": 2.0}


def default_counts(encoding: EncodingConfig, schema: Schema) -> EncodingConfig:
    """The encoding with how often words must occur, where it does not say so.

    Where words are said, in running text or as an answer, those that occur once are UNKNOWN: so the model learns how
    likely a new word is. With every word in the vocabulary UNKNOWN would never be said in training, and a new word
    would cost more than any other.
    """
    first, second = encoding.tokenizer, encoding.target_tokenizer
    said = schema.target.is_running or (schema.target.is_text and second is None)
    first, second = _counted(first, 2 if said else 1), second if second is None else _counted(second, 2)
    return msgspec.structs.replace(encoding, tokenizer=first, target_tokenizer=second)


def _counted(tokenizer: FittedTokenizer, least: int) -> FittedTokenizer:
    unsaid = isinstance(tokenizer, WordsConfig) and tokenizer.least is None
    return msgspec.structs.replace(tokenizer, least=least) if unsaid else tokenizer


def default_letters(wishes: Wishes, tokenizer: FittedTokenizer, schema: Schema) -> bool:
    """Whether a recipe reads the letters of words where nobody says so: taggers do, who meet many new words."""
    recipe = wishes.model is None or isinstance(wishes.model, str)
    reading = schema.input.in_words and "letters" in BY_TARGET[schema.target.name].settings
    return recipe and reading and isinstance(tokenizer, WordsConfig) and not wishes.training.get("init")


def default_rate(recipe: str, size: Size) -> float:
    """A rate at which this family usually learns."""
    return _RATES[size] * _FASTER.get(recipe, 1.0)


def default_training(prepared: Prepared, recipe: str, size: Size, named: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of `TrainingConfig` that depend on the data, the model, and those that were named.

    `linear` is solved, unless a setting of steps by batches is named.
    """
    if is_solved(recipe, named):
        return _solving(prepared, named.get("optimiser"))
    symbols = int(prepared.schema.target.sizes(prepared.columns)[prepared.parts["train"]].sum())
    budget = usual_budget(symbols)
    steps = max(1, symbols // budget)
    length = named.get("length") or EpochsConfig(count=usual_epochs(symbols))
    rate = default_rate(recipe, size)
    schedule = ConstantConfig() if recipe == "linear" else LinearConfig(warm_up=_warm_up(length, steps, budget))
    return {
        "feed": _feed(prepared, budget),
        "length": length,
        "rate": rate,
        "schedule": schedule,
        "patience": PATIENCE,
    }


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


def _warm_up(length: AnyLength, steps: int, budget: int) -> int:
    """A tenth of all steps: a rate that rises longer than a short run lasts is never reached."""
    match length:
        case EpochsConfig():
            total = length.count * steps
        case StepsConfig():
            total = length.count
        case SymbolsConfig():
            total = length.count // budget
        case SecondsConfig():  # nobody knows
            return WARM_UP
    return min(WARM_UP, total // 10)


def _feed(prepared: Prepared, budget: int) -> AnyFeed:
    """Rows of one length; running text with documents that fill a batch alone is cut into packs instead."""
    longest = int(prepared.columns["input"].lengths[prepared.parts["train"]].max(initial=0))
    if prepared.schema.target.is_running and longest > budget // 4:
        return PacksConfig(rows=max(1, budget // ROW), length=ROW)
    return ByLengthConfig(budget=budget)
