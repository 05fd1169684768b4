"""What a call of `train` in Python says, sorted by where it belongs; what is unknown is refused with the nearest name.

dev, task, input, ...              what the data is                     DataConfig
rate, seed, patience, ...          how it is trained                    TrainingConfig
dropout, letters, vectors, ...     what a recipe is told                Wishes
epochs, steps, symbols, seconds    how long, as on the command line     length=EpochsConfig(count=...), ...
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

from seqloom.config.base import Config
from seqloom.config.data import DataConfig
from seqloom.config.models import AnyModel
from seqloom.config.training import AnyLength, TrainingConfig
from seqloom.data.front import data_config
from seqloom.errors import ConfigError, did_you_mean
from seqloom.recipes import Size
from seqloom.training.wishes import Wishes, frozen

LENGTHS: dict[str, type[AnyLength]] = {kind.kind(): kind for kind in get_args(AnyLength)}
OF_DATA = DataConfig.__struct_fields__
OF_TRAINING = TrainingConfig.__struct_fields__
OF_WISHES = tuple(name for name in Wishes._fields if name not in ("model", "size", "training"))
FREEZE_VECTORS = "freeze_vectors"  # short for one more pattern of `freeze`
OF_TRAIN = ("out", "model", "size", "device", "show")  # parameters by their own names


def settings_of(
    data: tuple[str | Path, ...],
    model: str | AnyModel | None,
    size: Size | None,
    settings: dict[str, Any],
    before: DataConfig | None = None,
) -> tuple[DataConfig, Wishes]:
    """What the data is, as `before` where nothing is said of a run that goes on, and what is wanted of the run."""
    for name in settings:
        _require_known(name)
    training = {**_those(settings, OF_TRAINING), **_length(settings)}
    if settings.get(FREEZE_VECTORS):
        training["freeze"] = frozen(training.get("freeze", ()), vectors=True)
    wishes = Wishes(model=model, size=size, training=training, **_those(settings, OF_WISHES))
    return data_config(data, _those(settings, OF_DATA), before), wishes


def _those(settings: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: settings[name] for name in names if name in settings}


def _require_known(name: str) -> None:
    known = [*OF_TRAIN, *LENGTHS, FREEZE_VECTORS, *OF_WISHES, *OF_TRAINING, *OF_DATA]
    if name not in known:
        raise ConfigError(f"train has no setting '{name}'", fix=did_you_mean(name, known))


def _length(settings: dict[str, Any]) -> dict[str, AnyLength]:
    """How long a run is, under its name; nothing where nothing is said.

    >>> _length({"epochs": 3})
    {'length': EpochsConfig(count=3)}
    """
    given = [name for name in ("length", *LENGTHS) if name in settings]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} both say how long", fix="give one of them")
    for name in given:
        value = settings[name]
        if name in LENGTHS:
            return {"length": LENGTHS[name](count=value)}
        if not isinstance(value, Config | dict):
            raise ConfigError(f"length={value!r} does not say of what", fix="write epochs=3, or steps=1000")
    return _those(settings, given)
