"""What the options of `seqloom train` ask for, checked and typed, before any data is read.

A run that is written down, in the folder of `--out` or in the file of `--config`, says everything itself; only options
that do not decide which weights come out may stand beside it.
"""

from typing import Any

import msgspec

from seqloom.cli import train_settings
from seqloom.cli.data_options import DataOptions
from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.config.reading import read
from seqloom.config.training import RunConfig
from seqloom.data.run_files import located
from seqloom.errors import ConfigError
from seqloom.training.home import CONFIG, Home

# Beside a run that is written down: where, how long, and what does not decide which weights come out.
FREE = {"out", "config", *train_settings.LENGTHS, "patience", "pieces", "keep", "bad_rows", "max_bad"}
FREE |= {"tensorboard", "find_lr", "json", "device", "workers", "processes", "max_restarts", "shard"}


class TrainRequest(msgspec.Struct, frozen=True):
    """What the options say, checked, and nothing read yet but configurations."""

    data: DataConfig
    encoding: EncodingConfig | None  # None: by the task
    model: dict[str, Any]  # by the names of `Wishes`
    training: dict[str, Any]  # by the names of `TrainingConfig`


def asked_for(values: dict[str, Any], reading: DataOptions, given: list[str]) -> TrainRequest:
    """The typed form of the options, or of the run that they name."""
    train_settings.require_machine(values)
    written = _written(values, given)
    if written is not None:
        training = msgspec.structs.asdict(written.training) | train_settings.training_settings(values)
        data = reading.data(list(written.data.train), written.data)
        return TrainRequest(data, written.encoding, {"model": written.model}, training)
    model, training = train_settings.model_wishes(values), train_settings.training_settings(values)
    home = Home(None if values["find_lr"] else values["out"])
    data = reading.data(values["data"], home.own_data(values["data"]))
    return TrainRequest(data, reading.encoded(given), model, training)


def _written(values: dict[str, Any], given: list[str]) -> RunConfig | None:
    """The configuration that was written down, if the options name one instead of data."""
    if values["data"] and values["config"] is None:
        return None
    path = values["config"]
    if path is None:
        if values["out"] is None:
            raise ConfigError("nothing to train on", fix="name a file of data, or a run to go on with: --out RUN")
        path = values["out"] / CONFIG
        if not path.is_file():
            raise ConfigError(f"{values['out']} holds no run to go on with", fix="name a file of data before --out")
    if others := [name for name in given if name not in FREE]:
        flags = ", ".join("the data" if name == "data" else f"--{name.strip('_').replace('_', '-')}" for name in others)
        raise ConfigError(f"{path} says everything, and so would {flags}", fix="leave one out, or change the file")
    config: RunConfig = read(path, RunConfig)
    return located(path.parent, config).config
