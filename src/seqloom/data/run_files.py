"""The data files of a run: finds them again from any working directory, even after a move.

    RUN/config.toml    paths as they were typed, so that equal runs have equal bytes
    RUN/paths.json     the same paths relative to the run folder, and absolute
    RUN/data.json      fingerprints of the files

The path relative to the run folder is tried first, so that a renamed or copied project reads its own data; then the
absolute path, for a run folder that was moved alone; then the path as it was typed. If there are different files at
these places, the one with the right fingerprint is used.
"""

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from seqloom.config.data import SPLITS, DataConfig
from seqloom.config.training import RunConfig
from seqloom.data.readers.files import are_same, fingerprint, is_file, is_folder
from seqloom.errors import DamagedError
from seqloom.files.disk import existing, write_file
from seqloom.files.layouts import RunFile


class FilePlace(msgspec.Struct, frozen=True):
    """The path of a file or folder when a run last read it."""

    beside: str  # relative to the run folder
    absolute: str


class RunData(NamedTuple):
    """A run's configuration with the current paths of its files, and messages about files at unexpected places."""

    config: RunConfig
    messages: tuple[str, ...] = ()


def keep_places(folder: Path, read: Mapping[str, str]) -> None:
    """Write the paths of a run's files to its folder, by their names in the configuration."""
    home, kept = folder.resolve(), existing(folder / RunFile.PATHS)
    given = {name: Path(path) for name, path in read.items()}
    # The full path; a link keeps its own name, because the extension decides the format.
    full = {name: path.parent.resolve() / path.name for name, path in given.items() if path.exists()}
    places = {name: FilePlace(os.path.relpath(place, home), str(place)) for name, place in full.items()}
    data = msgspec.json.format(msgspec.json.encode(places), indent=2)
    if places and not (kept.is_file() and kept.read_bytes() == data):
        write_file(kept, data)


def located(folder: Path, config: RunConfig) -> RunData:
    """Return the configuration of a run with the current paths of its files."""
    search = _FileSearch(folder)
    found = {part: tuple(map(search.found, getattr(config.data, part))) for part in SPLITS}
    messages, training, encoding = tuple(search.messages), config.training, config.encoding
    if training.init is not None:
        training = msgspec.structs.replace(training, init=search.found(training.init))
    if encoding.word_vectors is not None:
        file = msgspec.structs.replace(encoding.word_vectors, path=search.found(encoding.word_vectors.path))
        encoding = msgspec.structs.replace(encoding, word_vectors=file)
    data = msgspec.structs.replace(config.data, **found)
    return RunData(msgspec.structs.replace(config, data=data, training=training, encoding=encoding), messages)


class _FileSearch:
    """Finds the files of one run, and reports those at unexpected places."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.messages, self.places = folder, list[str](), _places(folder)

    def found(self, name: str) -> str:
        """The current path of a file; as it was typed, if that still works."""
        if name not in self.places:
            return name
        beside, absolute = (self.folder.resolve() / self.places[name].beside, Path(self.places[name].absolute))
        first = Path(os.path.normpath(beside))
        there = [path for path in (first, absolute, Path(name)) if is_file(path) or is_folder(path)]
        if not there:
            return str(absolute)
        taken = self._chosen(name, there)
        shown = name if are_same(Path(name), taken) else str(taken)
        if not are_same(first, taken):
            why = "has other contents" if first in there else "does not exist"
            self.messages.append(f"data: reading {shown}, because {first} {why}")
        if not are_same(absolute, taken) and self.is_other(name, taken):
            self.messages.append(f"data: {shown} has other contents than the file that training read")
        return shown

    def _chosen(self, name: str, there: list[Path]) -> Path:
        """The first path; if the files differ, the first one with the fingerprint that training recorded."""
        others = [path for path in there[1:] if not are_same(path, there[0])]
        if not others:
            return there[0]
        return next((path for path in (there[0], *others) if self.has_sums(name, path)), there[0])

    def is_other(self, name: str, path: Path) -> bool:
        """Whether training recorded another fingerprint for this file."""
        return bool(dict(_below(self.sums, name))) and not self.has_sums(name, path)

    def has_sums(self, name: str, path: Path) -> bool:
        """Whether the path has the recorded fingerprint: of the file, or of every file in a folder."""
        known = dict(_below(self.sums, name))
        inner = {rest: path / rest if rest else path for rest in known}
        return bool(known) and all(
            is_file(file) and list(fingerprint(file)) == known[rest] for rest, file in inner.items()
        )

    @cached_property
    def sums(self) -> dict[str, Any]:
        """Size and sha256 of every file, as recorded by training; empty if they cannot be read."""
        try:
            return dict(msgspec.json.decode((self.folder / RunFile.DATA).read_bytes())["fingerprints"])
        except (OSError, msgspec.DecodeError, KeyError, TypeError):
            return {}


def _places(folder: Path) -> dict[str, FilePlace]:
    """The recorded paths of the files of a run; empty for runs of an earlier version."""
    path = existing(folder / RunFile.PATHS)
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, FilePlace])
    except msgspec.DecodeError as error:
        fix = "delete it; the paths in config.toml are used then"
        raise DamagedError(f"{path}: expected the paths of data files, found {error}", fix=fix) from None


def _below(sums: Mapping[str, Any], root: str) -> Iterator[tuple[str, Any]]:
    """The fingerprints of a file, or of the files in a folder, by their names relative to it."""
    root = str(Path(root))  # ./a.csv is recorded as a.csv
    for name, value in sums.items():
        if name == root or name.startswith(f"{root}/"):
            yield name[len(root) + 1 :], value


def names_of(folder: Path, before: DataConfig, own: DataConfig, now: DataConfig) -> dict[str, str]:
    """Map the given files to the names that a run has for them: the same file, or one with the same content.

    `before` has the names of the run, `own` the current paths of its files.
    """
    search, found = _FileSearch(folder), dict[str, str]()
    for part in SPLITS:
        names, places, paths = (getattr(one, part) for one in (before, own, now))
        for name, place, path in zip(names, places, paths, strict=True) if len(names) == len(paths) else ():
            if is_one(path, place) or search.has_sums(name, Path(path)):
                found[path] = name
    return found


def is_one(path: str, other: str) -> bool:
    """Whether two paths are equal or lead to the same file."""
    return path == other or are_same(Path(path), Path(other))


def with_known_starts(config: RunConfig, before: RunConfig, own: RunConfig) -> RunConfig:
    """The configuration with the run's own names of its initial model and its word vectors."""
    training, encoding = config.training, config.encoding
    if training.init and own.training.init and is_one(training.init, own.training.init):
        training = msgspec.structs.replace(training, init=before.training.init)
    mine, theirs = encoding.word_vectors, own.encoding.word_vectors
    if mine is not None and theirs is not None and before.encoding.word_vectors is not None:
        name = before.encoding.word_vectors.path if is_one(mine.path, theirs.path) else mine.path
        encoding = msgspec.structs.replace(encoding, word_vectors=msgspec.structs.replace(mine, path=name))
    return msgspec.structs.replace(config, training=training, encoding=encoding)
