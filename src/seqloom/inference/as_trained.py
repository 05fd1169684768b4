"""Reads further files with the settings of training, unless options override them.

A run knows the delimiter, the encoding and the columns of its data. Every verb that takes a run reads a file of the
same format in the same way. Given options win, and a message lists the reused settings:

    reads new.csv as this run did: csv, delimiter ';', input review, target stars
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from seqloom.bundle import model_folder, run_of
from seqloom.config.base import read
from seqloom.config.data import ANY_ROWS, DataConfig, Format, ReadingConfig
from seqloom.config.options import worded_changes
from seqloom.config.training import RunConfig
from seqloom.data.problems import Ledger
from seqloom.data.readers.files import is_file, is_folder, known_format
from seqloom.data.readers.guess import has_sentences
from seqloom.data.readers.registry import read_table
from seqloom.data.readers.text import Template
from seqloom.errors import SeqloomError
from seqloom.files.layouts import RunFile


class FileReading(NamedTuple):
    """How files are read, and the settings that were reused from training, in words."""

    config: ReadingConfig
    files: tuple[Path, ...] = ()
    reused: tuple[str, ...] = ()
    as_trained: bool = False  # whether the files are tables in the format of training

    @property
    def messages(self) -> tuple[str, ...]:
        """One sentence with all reused settings; empty if there are none."""
        if not self.reused:
            return ()
        kind = _format(self.files, self.config.format)
        listed = ", ".join([*([] if kind is None else [kind]), *self.reused])
        return (f"reads {' and '.join(map(str, self.files))} as this run did: {listed}",)


def run_config(model: Path) -> RunConfig | None:
    """The configuration of the run of a model, without its weights; None outside a run."""
    folder = run_of(model_folder(model))
    return None if folder is None else cast(RunConfig, read(folder / RunFile.CONFIG, RunConfig))


def reading_as_trained(run: RunConfig | None, paths: tuple[Path, ...], given: Mapping[str, Any]) -> FileReading:
    """Return how to read files: by the given settings, else as in training if they have the same format.

    A format that was given for training also applies to files with the same suffix or an unknown suffix. Without one,
    a file with an unknown suffix has lines of text or cannot be read: settings of a table do not apply to it.
    """
    if run is None:
        return FileReading(ReadingConfig(**given))
    own, trained = run.data.reading, tuple(map(Path, run.data.train))
    was, endings = trained_format(run), {path.suffix.lower() for path in trained}
    alike = all(path.suffix.lower() in endings or known_format(path) is None for path in paths)
    known = own.format if alike and len(paths) == len(trained) else None
    if (_format(paths, given.get("format", known)) or "text") != was:
        return FileReading(ReadingConfig(**given))
    reading = msgspec.structs.replace(own, **({"format": known} | dict(given)))
    reused = tuple(worded_changes(reading, {"format", *given}))
    return FileReading(reading, paths, reused, as_trained=was not in (None, "text"))


def trained_format(run: RunConfig) -> Format | None:
    """The format of the training data; None if it is not known."""
    return _format(tuple(map(Path, run.data.train)), run.data.reading.format)


def inputs_as_trained(
    run: RunConfig | None,
    path: Path,
    given: Mapping[str, Any],
    columns: tuple[str, ...] = (),
    identity: str | None = None,
    labels: tuple[str, ...] = (),
) -> FileReading:
    """The same for a file of inputs without targets: a template that names the target is left out.

    `columns` are the input columns of training, and `identity` that of its ids; they are reused if the file has them
    and others. `labels` are those of the model: by them, words with tags are told from sentences.
    """
    template = None if run is None else run.data.reading.template
    if run is not None and template is not None and "template" not in given:
        labeled = {*Template.parse(template).fields} & {*run.data.target}
        plain = msgspec.structs.replace(run.data.reading, template=None) if labeled else run.data.reading
        run = msgspec.structs.replace(run, data=msgspec.structs.replace(run.data, reading=plain))
    found = reading_as_trained(run, (path,), given)
    if run is None or not columns or not is_file(path):
        return found
    # A tagger was trained on words and tags in a .txt file; sentences in one are raw text.
    in_columns = found.config.format in ("conll", "conllu") and "format" not in given
    if (
        in_columns
        and known_format(path) == "text"
        and has_sentences(path, ReadingConfig(encoding=found.config.encoding), labels)
    ):
        return FileReading(ReadingConfig(**{"encoding": found.config.encoding} | dict(given)))
    with suppress(SeqloomError):  # it is reported when the file is read
        there = read_table((path,), found.config, Ledger(ANY_ROWS)).columns
        if len(there) > 1 and {*columns} <= {*there}:
            reused = worded_changes(DataConfig(train=(), input=columns, id=identity if identity in there else None))
            return found._replace(files=(path,), reused=(*found.reused, *reused))
    return found


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


def worded_columns(columns: Mapping[str, Any]) -> tuple[str, ...]:
    """Column settings in words."""
    return tuple(worded_changes(DataConfig(train=(), **columns)))
