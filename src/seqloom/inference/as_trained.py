"""How files are read that somebody names beside a run: as training was told, unless something else is said.

A run was told a delimiter, an encoding, columns. Whoever judges or asks its model with another file of the same format
need not repeat them; what is given wins, and what was taken over is told in flags, to be copied and changed.
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
    """How files are read, and which of it is as in training, in flags."""

    config: ReadingConfig
    reused: tuple[str, ...] = ()

    @property
    def said(self) -> tuple[str, ...]:
        """One sentence with all that is as in training; none where nothing is."""
        return (f"read as in training: {' '.join(self.reused)}",) if self.reused else ()


def reading_as_trained(run: RunConfig | None, paths: tuple[Path, ...], given: Mapping[str, Any]) -> FileReading:
    """How files are read that somebody names: as is given, else as in training if they have the same format.

    A format that training was told is that of files with the same ending, and of those whose ending stands for none.
    """
    if run is None:
        return FileReading(ReadingConfig(**given))
    own, trained = run.data.reading, tuple(map(Path, run.data.train))
    was, endings = _format(trained, own.format), {path.suffix.lower() for path in trained}
    alike = all(path.suffix.lower() in endings or known_format(path) is None for path in paths)
    told = own.format if alike and len(paths) == len(trained) else None
    if (_format(paths, given.get("format", told)) or was) != was:
        return FileReading(ReadingConfig(**given))
    reading = msgspec.structs.replace(own, **({"format": told} | dict(given)))
    return FileReading(reading, tuple(typed_changes(reading, given)))


def inputs_as_trained(run: RunConfig | None, path: Path, given: Mapping[str, Any]) -> FileReading:
    """The same for a file of inputs: a template that also names the target is that of other lines."""
    template = None if run is None else run.data.reading.template
    if run is None or template is None or "template" in given:
        return reading_as_trained(run, (path,), given)
    labelled = {*Template.parse(template).fields} & {*run.data.target}
    plain = msgspec.structs.replace(run.data.reading, template=None) if labelled else run.data.reading
    data = msgspec.structs.replace(run.data, reading=plain)
    return reading_as_trained(msgspec.structs.replace(run, data=data), (path,), given)


def _format(paths: tuple[Path, ...], told: Format | None = None) -> Format | None:
    """The format of files, as far as their names say; parallel text is lines of text."""
    if len(paths) > 1 or told == "parallel":
        return "text"
    return told or known_format(paths[0]) or ("folder" if is_folder(paths[0]) else None)


def columns_as_trained(run: RunConfig | None, columns: tuple[str, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """What training said about its columns, where a table has them and nothing else is given."""
    if run is None or not run.data.input:
        return {}
    wanted = {name: given.get(name, getattr(run.data, name)) for name in ("input", "target")}
    names = {one for value in wanted.values() for one in ((value,) if isinstance(value, str) else value)}
    if not names <= set(columns):
        return {}
    kept = ("input", "target", "label_separator", "sequence")
    return {name: getattr(run.data, name) for name in kept if name not in given}


def columns_said(columns: Mapping[str, Any]) -> tuple[str, ...]:
    """Columns that are read as in training, in flags."""
    return tuple(typed_changes(DataConfig(train=(), **columns)))
