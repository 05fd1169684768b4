"""The typed configurations that the options of training become.

What was not given stays out, and is left to be inferred; what is given twice or cannot mean anything is refused here,
before a file is read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, get_args

from seqloom.cli import data_options
from seqloom.config.base import Config
from seqloom.config.heads import HeadKind, Pooling
from seqloom.config.inputs import Letters
from seqloom.config.models import AnyModel
from seqloom.config.objectives import OBJECTIVES
from seqloom.config.reading import from_data, read
from seqloom.config.training import (
    AdamWConfig,
    AnyFeed,
    AnyLength,
    AnyOptimiser,
    AnySchedule,
    ByLengthConfig,
    EpochsConfig,
    NewtonConfig,
    PacksConfig,
    SecondsConfig,
    StepsConfig,
    StreamsConfig,
    SymbolsConfig,
    TrainingConfig,
)
from seqloom.errors import ConfigError, did_you_mean
from seqloom.recipes.bodies import SIZES
from seqloom.recipes.families import RECIPES
from seqloom.training.wishes import Wishes, frozen

OPTIMISERS: dict[str, type[AnyOptimiser]] = {kind.kind(): kind for kind in get_args(AnyOptimiser)}
SCHEDULES: dict[str, type[AnySchedule]] = {kind.kind(): kind for kind in get_args(AnySchedule)}
LENGTHS: dict[str, type[AnyLength]] = {
    "epochs": EpochsConfig,
    "steps": StepsConfig,
    "symbols": SymbolsConfig,
    "seconds": SecondsConfig,
}
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
LETTERS: tuple[str, ...] = (*get_args(Letters), "none")
BALANCED = "balanced"
HEADS: tuple[HeadKind, ...] = get_args(HeadKind)
DEVICES, PRECISIONS = ("auto", "cpu", "cuda", "mps"), ("auto", "float32", "bf16", "fp16")
AnyPart = TypeVar("AnyPart", bound=Config)


def model_wishes(values: dict[str, Any]) -> dict[str, Any]:
    """What the options say about the model, by the names of `Wishes`; what was not given is not in it."""
    if values["size"] is not None and values["size"] not in SIZES:
        raise ConfigError(f"--size {values['size']!r}", fix=did_you_mean(values["size"], SIZES))
    for name, known in (("head", HEADS), ("pooling", POOLINGS), ("objective", OBJECTIVES)):
        if values[name] is not None and values[name] not in known:
            raise ConfigError(f"--{name} {values[name]!r}", fix=did_you_mean(values[name], known))
    if values["rows_at_once"] is not None and values["rows_at_once"] < 1:
        raise ConfigError(f"--rows-at-once {values['rows_at_once']}", fix="take at least 1")
    for name in ("dropout", "smoothing"):
        if values[name] is not None and not 0 <= values[name] < 1:
            raise ConfigError(f"--{name} {values[name]:g} is no rate", fix="give a number from 0 to below 1")
    wishes = {name: values[name] for name in ("size", "dropout", "smoothing", "head") if values[name] is not None}
    if values["class_weights"] is not None:
        wishes["class_weights"] = class_weights(values["class_weights"])
    if values["letters"] is not None and values["letters"] not in LETTERS:
        raise ConfigError(f"--letters {values['letters']!r}", fix=did_you_mean(values["letters"], LETTERS))
    further = ("letters", "vectors", "vector_words", "pooling", "objective", "rows_at_once")
    wishes |= {name: values[name] for name in further if values[name] is not None}
    if values["model"] is not None:
        own = str(values["model"]).endswith((".toml", ".json"))
        wishes["model"] = read(values["model"], AnyModel) if own else _recipe(values["model"])
    if names := Wishes(training={"init": values["init"]}, **wishes).in_vain():
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        source = values["model"] or "the model of --init"
        raise ConfigError(f"{flags} would change {source}", fix="name a recipe with --model, or change it in a file")
    return wishes


def _recipe(name: str) -> str:
    if name not in RECIPES:
        raise ConfigError(f"--model {name!r} is no recipe", fix=f"{did_you_mean(name, RECIPES)} Or give a .toml file")
    return name


def training_settings(values: dict[str, Any]) -> dict[str, Any]:
    """The settings of `TrainingConfig` that options gave, checked; what was not given is not in it."""
    plain = ("rate", "clip", "pieces", "validate_every", "patience", "save_every", "keep", "average", "average_last")
    settings: dict[str, Any] = {
        name: values[name] for name in (*plain, "init", "seed", "metric") if values[name] is not None
    }
    parts = {
        "length": length(values),
        "feed": feed(values["batch"], values["streams"], values["packs"]),
        "optimiser": optimiser(values["optimiser"], values["momentum"], values["decay"]),
        "schedule": schedule(values["schedule"], values["warm_up"]),
        "freeze": frozen(values["freeze"] or (), vectors=values["freeze_vectors"]) or None,
        "compile": values["compile_"] or None,
        "deterministic": values["deterministic"] or None,
    }
    settings |= {name: part for name, part in parts.items() if part is not None}
    with flags_named():
        from_data(settings, TrainingConfig)  # what is out of range is refused now, by the name of its flag
    return settings


def require_machine(values: dict[str, Any]) -> None:
    """Refuse what no machine is or has."""
    for name, known in (("device", DEVICES), ("precision", PRECISIONS)):
        if values[name] not in known:
            raise ConfigError(f"--{name} {values[name]!r}", fix=did_you_mean(values[name], known))
    for name, least in (("workers", 0), ("processes", 1), ("max_restarts", 0)):
        if values[name] < least:
            raise ConfigError(f"--{name.replace('_', '-')} {values[name]}", fix=f"take at least {least}")
    if values["max_restarts"] and values["processes"] == 1:
        raise ConfigError("--max-restarts is for several processes", fix="add --processes 2, or leave it out")


def length(values: dict[str, Any]) -> AnyLength | None:
    """How long a run is; one of the four options may say so."""
    given = [name for name in LENGTHS if values[name] is not None]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(f'--{name}' for name in given)} both say how long", fix="give one of them")
    return _made(LENGTHS[given[0]], f"--{given[0]}", count=values[given[0]]) if given else None


def feed(batch: int | None, streams: str | None, packs: str | None) -> AnyFeed | None:
    """How batches are made; one of the three options may say so."""
    given = {"--batch": batch, "--streams": streams, "--packs": packs}
    named = [flag for flag, value in given.items() if value is not None]
    if len(named) > 1:
        raise ConfigError(f"{' and '.join(named)} both say how batches are made", fix="give one of them")
    if batch is not None:
        return _made(ByLengthConfig, "--batch", budget=batch)
    if streams is not None:
        return _made(StreamsConfig, "--streams", **_rectangle(streams, "--streams"))
    return None if packs is None else _made(PacksConfig, "--packs", **_rectangle(packs, "--packs"))


def _rectangle(text: str, flag: str) -> dict[str, int]:
    """The rows and symbols of a size such as 32x64."""
    rows, across, symbols = text.partition("x")
    if not (across and rows.isdecimal() and symbols.isdecimal()):
        raise ConfigError(f"{flag} {text!r} is no size", fix="write it like 32x64: rows x symbols")
    return {"rows": int(rows), "length": int(symbols)}


def optimiser(name: str | None, momentum: float | None, decay: float | None) -> AnyOptimiser | None:
    """The optimiser; its settings alone mean the usual one."""
    if name is not None and name not in OPTIMISERS:
        raise ConfigError(f"--optimiser {name!r}", fix=did_you_mean(name, OPTIMISERS))
    if momentum is not None and name != "sgd":
        raise ConfigError("--momentum is a setting of sgd", fix="add --optimiser sgd, or leave it out")
    if name is None and decay is None:
        return None
    settings = {"momentum": momentum, "decay": decay}
    given = {setting: value for setting, value in settings.items() if value is not None}
    kind = OPTIMISERS[name] if name is not None else AdamWConfig
    if kind is NewtonConfig and decay is not None:
        raise ConfigError("--decay beside newton, which tries strengths of its own", fix="leave one of them out")
    return _made(kind, "--momentum" if "momentum" in given else "--decay", **given)


def schedule(name: str | None, warm_up: int | None) -> AnySchedule | None:
    """The schedule of the rate; a warm-up alone keeps the usual one."""
    if name is not None and name not in SCHEDULES:
        raise ConfigError(f"--schedule {name!r}", fix=did_you_mean(name, SCHEDULES))
    if name is None and warm_up is None:
        return None
    kind = SCHEDULES[name] if name is not None else type(TrainingConfig().schedule)
    return _made(kind, "--warm-up", **({} if warm_up is None else {"warm_up": warm_up}))


def class_weights(text: str) -> str | tuple[float, ...]:
    """How much each label counts."""
    if text == BALANCED:
        return text
    try:
        weights = tuple(float(number) for number in text.split(","))
    except ValueError:
        weights = ()
    if not weights or not all(0 <= weight <= 1e6 for weight in weights):
        raise ConfigError(f"--class-weights {text!r}", fix="write balanced, or a number for each label such as 1,2.5")
    return weights


def _made(kind: type[AnyPart], flag: str, **settings: Any) -> AnyPart:
    """A configuration; what it refuses is called by its flag."""
    try:
        return kind(**settings)
    except ConfigError as error:
        raise ConfigError(f"{flag}: {error.problem.partition(': ')[2] or error.problem}", fix=error.fix) from None


@contextmanager
def flags_named() -> Iterator[None]:
    """Inside, a setting of training that is refused is called by the flag that people typed."""
    try:
        with data_options.flags_named():
            yield
    except ConfigError as error:
        place, colon, rest = error.problem.partition(": ")
        name = place.rpartition(".")[2].partition("[")[0]
        if not colon or name not in TrainingConfig.__struct_fields__:
            raise
        raise ConfigError(f"--{name.replace('_', '-')}: {rest}", fix=error.fix) from None
