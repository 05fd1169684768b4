"""Known data sets by name: what they are, whose they are, where their files lie, and how they are read.

    name ──▶ registry ──▶ Source ──▶ shelves ──▶ paths ──▶ DataConfig
                             └────── fetching: only when asked to, `seqloom data get NAME`

    source.py    what is known about a set        classes, tagging, pairs, running, meaning: the sets
    shelves.py   where files are looked for       sums.py: their files, each with its sum
    fetching.py  copying and downloading          reading.py: one part or table of a set, read by name
    verifying.py  whether a file still holds what its name promises

Looking for a set never downloads anything, and nothing is read under its name that it does not hold.
"""

from pathlib import Path
from typing import Any

import msgspec

from seqloom.config.data import DataConfig, FoldSplit, ReadingConfig
from seqloom.data.sources.registry import SOURCES
from seqloom.data.sources.shelves import Shelves, usual_shelves
from seqloom.data.sources.source import Files, Source, SourceFile
from seqloom.errors import ConfigError, did_you_mean

__all__ = [
    "SOURCES",
    "Files",
    "Shelves",
    "Source",
    "SourceFile",
    "find_source",
    "resolve",
    "source_config",
    "source_named",
    "usual_shelves",
]


def source_named(name: str) -> Source:
    """The set with this name; ConfigError with the nearest name if there is none."""
    if name not in SOURCES:
        raise ConfigError(f"there is no known set '{name}'", fix=did_you_mean(name, SOURCES))
    return SOURCES[name]


def find_source(name: str, shelves: Shelves | None = None) -> dict[str, tuple[Path, ...]]:
    """The paths of every part or table of a set; DataError says what was looked for where, and what to do."""
    return (shelves or usual_shelves()).find_all(source_named(name))


def source_config(name: str, shelves: Shelves | None = None) -> DataConfig:
    """How a set is read from where it lies."""
    return source_named(name).config(find_source(name, shelves))


def resolve(config: DataConfig, shelves: Shelves | None = None) -> DataConfig:
    """The configuration of the set that `train` names, with the user's own settings on top; paths stay as they are.

    A setting that equals its default counts as not given: of a set whose files have no header, `header=True` says
    nothing. Such a set is read in another way by the paths of its files.
    """
    if len(config.train) != 1 or config.train[0] not in SOURCES or Path(config.train[0]).exists():
        return config
    known = source_config(config.train[0], shelves)
    own = _settings(config) | {"train": known.train, "reading": _on_top(known.reading, config.reading)}
    if own.keys() & {"dev", "test"}:  # the set's own rule would still draw what is given now
        own = {"split": None} | own
    if isinstance(config.split, FoldSplit):  # the folds of train take turns as dev
        own = {"dev": ()} | own
    return msgspec.structs.replace(known, **own)


def _on_top(known: ReadingConfig, given: ReadingConfig) -> ReadingConfig:
    return msgspec.structs.replace(known, **_settings(given))


def _settings(config: DataConfig | ReadingConfig) -> dict[str, Any]:
    """What was set to something else than its default."""
    fields = msgspec.structs.fields(type(config))
    return {field.name: value for field in fields if (value := getattr(config, field.name)) != field.default}
