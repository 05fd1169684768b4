"""Data from Python in one call: what the command line does, with the same words."""

from pathlib import Path
from typing import Any

import msgspec

from seqloom.config.data import DataConfig, EncodingConfig, ReadingConfig
from seqloom.data.dataset import open_data
from seqloom.data.preparing import Prepared, prepare
from seqloom.data.problems import Ledger
from seqloom.data.report.looking import look
from seqloom.data.report.report import DataReport
from seqloom.errors import ConfigError

LISTS = ("train", "dev", "test", "input", "target")  # the settings that are one name or several


def load_data(
    *train: str | Path,
    encoding: EncodingConfig = EncodingConfig(),  # noqa: B008  # frozen
    cache: str | Path | None = None,
    **settings: Any,
) -> Prepared:
    """Data read, checked and encoded: a file, a folder, two files of parallel text, or the name of a set.

    `settings` are those of `DataConfig`: `dev`, `test`, `task`, `input`, `target`, `split`, `reading`, `bad_rows` ...
    """
    config = data_config(train, settings)
    ledger = Ledger(config.bad_rows)
    folder = None if cache is None else Path(cache)
    return prepare(open_data(config, ledger), encoding, ledger, cache=folder)


def check_data(
    *train: str | Path,
    encoding: EncodingConfig = EncodingConfig(),  # noqa: B008
    budget: int = 8_192,
    **settings: Any,
) -> DataReport:
    """The data report, which draws itself in a notebook; `settings` as for `load_data`."""
    config = data_config(train, settings)
    return look(config, encoding, Ledger(config.bad_rows), budget=budget)


def data_config(
    train: tuple[str | Path, ...], settings: dict[str, Any], before: DataConfig | None = None
) -> DataConfig:
    """What the data is, from files and settings as a call in Python gives them; all else is as it was `before`."""
    for name in settings:
        if name in ReadingConfig.__struct_fields__:
            fix = f"reading=ReadingConfig({name}=...)"
            raise ConfigError(f"'{name}' says how a file is read, and has a place of its own", fix=fix)
    given = {"train": train} | settings
    named = {name: _names(value) if name in LISTS else value for name, value in given.items()}
    return DataConfig(**named) if before is None else msgspec.structs.replace(before, **named)


def _names(value: Any) -> Any:
    """One name or several, as texts; anything else is left for the configuration to refuse."""
    if isinstance(value, str | Path):
        return (str(value),)
    return (
        tuple(str(one) if isinstance(one, Path) else one for one in value) if isinstance(value, list | tuple) else value
    )
