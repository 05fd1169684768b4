"""Reads further files with the settings of training, unless options override them.

A run knows the delimiter, the encoding and the columns of its data. A file of the same format for predict or evaluate
is read the same way. Given options win, and a message lists the reused settings as flags.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from seqloom.config.data import DataConfig, Format, ReadingConfig
from seqloom.config.options import typed_changes
from seqloom.config.training import RunConfig
from seqloom.data.readers.files import is_folder, known_format
from seqloom.data.readers.text import Template


class FileReading(NamedTuple):
    """How files are read, and the flags that were reused from training."""

    config: ReadingConfig
    reused: tuple[str, ...] = ()

    @property
    def messages(self) -> tuple[str, ...]:
        """One sentence with all reused settings; empty if there are none."""
        return (f"read as in training: {' '.join(self.reused)}",) if self.reused else ()


def reading_as_trained(run: RunConfig | None, paths: tuple[Path, ...], given: Mapping[str, Any]) -> FileReading:
    """Return how to read files: by the given settings, else as in training if they have the same format.

    A format that was given for training also applies to files with the same suffix or an unknown suffix.
    """
    if run is None:
        return FileReading(ReadingConfig(**given))
    own, trained = run.data.reading, tuple(map(Path, run.data.train))
    was, endings = _format(trained, own.format), {path.suffix.lower() for path in trained}
    alike = all(path.suffix.lower() in endings or known_format(path) is None for path in paths)
    known = own.format if alike and len(paths) == len(trained) else None
    if (_format(paths, given.get("format", known)) or was) != was:
        return FileReading(ReadingConfig(**given))
    reading = msgspec.structs.replace(own, **({"format": known} | dict(given)))
    return FileReading(reading, tuple(typed_changes(reading, given)))


def inputs_as_trained(run: RunConfig | None, path: Path, given: Mapping[str, Any]) -> FileReading:
    """The same for a file of inputs without targets: a template that names the target is left out."""
    template = None if run is None else run.data.reading.template
    if run is None or template is None or "template" in given:
        return reading_as_trained(run, (path,), given)
    labeled = {*Template.parse(template).fields} & {*run.data.target}
    plain = msgspec.structs.replace(run.data.reading, template=None) if labeled else run.data.reading
    data = msgspec.structs.replace(run.data, reading=plain)
    return reading_as_trained(msgspec.structs.replace(run, data=data), (path,), given)


def _format(paths: tuple[Path, ...], known: Format | None = None) -> Format | None:
    """The format of files by their names; parallel text is lines of text."""
    if len(paths) > 1 or known == "parallel":
        return "text"
    return known or known_format(paths[0]) or ("folder" if is_folder(paths[0]) else None)


def columns_as_trained(run: RunConfig | None, columns: tuple[str, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """The column settings of training, if a table has these columns and no others are given."""
    if run is None or not run.data.input:
        return {}
    wanted = {name: given.get(name, getattr(run.data, name)) for name in ("input", "target")}
    names = {one for value in wanted.values() for one in ((value,) if isinstance(value, str) else value)}
    if not names <= set(columns):
        return {}
    kept = ("input", "target", "label_separator", "sequence")
    return {name: getattr(run.data, name) for name in kept if name not in given}


def columns_said(columns: Mapping[str, Any]) -> tuple[str, ...]:
    """Column settings as flags."""
    return tuple(typed_changes(DataConfig(train=(), **columns)))
