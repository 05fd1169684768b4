"""The files of a run: where they lie now, from whatever folder and after whatever move.

    RUN/config.toml    the files as they were typed, so that equal runs have equal bytes
    RUN/places.json    where they lay: seen from the run folder, and in full
    RUN/data.json      their sums

The place seen from the run folder comes first: a project that was renamed or copied reads its own data. The full path
is for a run folder that was moved alone, and the name as it was typed, from here, for all else. Where different files
stand at several of these places, the one that has the sums is taken.
"""

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from seqloom.config.data import PARTS, DataConfig
from seqloom.config.training import RunConfig
from seqloom.data.readers.files import are_same, fingerprint, is_file, is_folder
from seqloom.errors import DamagedError
from seqloom.files.disk import write_file
from seqloom.files.layouts import RunFile


class FilePlace(msgspec.Struct, frozen=True):
    """Where a file or a folder lay when a run last read it."""

    beside: str  # seen from the run folder
    absolute: str


class RunData(NamedTuple):
    """A run's configuration with its files where they lie now, and which place was taken if it is not the first."""

    config: RunConfig
    said: tuple[str, ...] = ()


def keep_places(folder: Path, read: Mapping[str, str]) -> None:
    """Keep in the run folder where the files lie that its configuration knows by these names."""
    home, kept = folder.resolve(), folder / RunFile.PLACES
    given = {name: Path(path) for name, path in read.items()}
    # The whole path; a link keeps its name, for the ending says how the file is read.
    full = {name: path.parent.resolve() / path.name for name, path in given.items() if path.exists()}
    places = {name: FilePlace(os.path.relpath(place, home), str(place)) for name, place in full.items()}
    data = msgspec.json.format(msgspec.json.encode(places), indent=2)
    if places and not (kept.is_file() and kept.read_bytes() == data):
        write_file(kept, data)


def located(folder: Path, config: RunConfig) -> RunData:
    """The configuration of a run with every file where it lies now; the folder may hold nothing about places."""
    search = _FileSearch(folder)
    found = {part: tuple(map(search.found, getattr(config.data, part))) for part in PARTS}
    said, training, encoding = tuple(search.said), config.training, config.encoding
    if training.init is not None:
        training = msgspec.structs.replace(training, init=search.found(training.init))
    if encoding.vectors is not None:
        file = msgspec.structs.replace(encoding.vectors, path=search.found(encoding.vectors.path))
        encoding = msgspec.structs.replace(encoding, vectors=file)
    data = msgspec.structs.replace(config.data, **found)
    return RunData(msgspec.structs.replace(config, data=data, training=training, encoding=encoding), said)


class _FileSearch:
    """Looks for the files of one run, and says where it found those that are not at the first place."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said, self.places = folder, list[str](), _places(folder)

    def found(self, name: str) -> str:
        """The path of the file of this name, as it was typed if that leads there from here."""
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
            why = "holds something else" if first in there else "is not there"
            self.said.append(f"data: {shown}; {first}, its place seen from the run, {why}")
        if not are_same(absolute, taken) and self.is_other(name, taken):
            self.said.append(f"data: {shown} is not what training read: the contents differ")
        return shown

    def _chosen(self, name: str, there: list[Path]) -> Path:
        """The first place, or of several that hold different files the first one with the sums that training saw."""
        others = [path for path in there[1:] if not are_same(path, there[0])]
        if not others:
            return there[0]
        return next((path for path in (there[0], *others) if self.has_sums(name, path)), there[0])

    def is_other(self, name: str, path: Path) -> bool:
        """Whether training is known to have read something else by this name."""
        return bool(dict(_below(self.sums, name))) and not self.has_sums(name, path)

    def has_sums(self, name: str, path: Path) -> bool:
        """Whether there is what training read by this name: the file, or every file of a folder."""
        known = dict(_below(self.sums, name))
        inner = {rest: path / rest if rest else path for rest in known}
        return bool(known) and all(
            is_file(file) and list(fingerprint(file)) == known[rest] for rest, file in inner.items()
        )

    @cached_property
    def sums(self) -> dict[str, Any]:
        """Size and sha256 of every file, by the names that training knew; none where they cannot be read."""
        try:
            return dict(msgspec.json.decode((self.folder / RunFile.DATA).read_bytes())["fingerprints"])
        except (OSError, msgspec.DecodeError, KeyError, TypeError):
            return {}


def _places(folder: Path) -> dict[str, FilePlace]:
    """Where the files of a run lay; of a run of an earlier version nothing is known."""
    path = folder / RunFile.PLACES
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, FilePlace])
    except msgspec.DecodeError as error:
        fix = "delete it: the data is then looked for as it was typed"
        raise DamagedError(
            f"{path}: expected the places of the data, found something else ({error})", fix=fix
        ) from None


def _below(sums: Mapping[str, Any], root: str) -> Iterator[tuple[str, Any]]:
    """The sums of a file, or of the files in a folder, by their names seen from it."""
    root = str(Path(root))  # ./a.csv is summed as a.csv
    for name, value in sums.items():
        if name == root or name.startswith(f"{root}/"):
            yield name[len(root) + 1 :], value


def names_of(folder: Path, before: DataConfig, own: DataConfig, now: DataConfig) -> dict[str, str]:
    """The names by which a run knows the files that it is given now: the same file, or one with the same content.

    `before` has the names, `own` says where their files lie.
    """
    search, found = _FileSearch(folder), dict[str, str]()
    for part in PARTS:
        names, places, paths = (getattr(one, part) for one in (before, own, now))
        for name, place, path in zip(names, places, paths, strict=True) if len(names) == len(paths) else ():
            if is_one(path, place) or search.has_sums(name, Path(path)):
                found[path] = name
    return found


def is_one(path: str, other: str) -> bool:
    """Whether two paths mean one file, which may be gone."""
    return path == other or are_same(Path(path), Path(other))


def with_known_starts(config: RunConfig, before: RunConfig, own: RunConfig) -> RunConfig:
    """The configuration with the names that a run knows for what it started from: another model, a file of vectors."""
    training, encoding = config.training, config.encoding
    if training.init and own.training.init and is_one(training.init, own.training.init):
        training = msgspec.structs.replace(training, init=before.training.init)
    mine, theirs = encoding.vectors, own.encoding.vectors
    if mine is not None and theirs is not None and before.encoding.vectors is not None:
        name = before.encoding.vectors.path if is_one(mine.path, theirs.path) else mine.path
        encoding = msgspec.structs.replace(encoding, vectors=msgspec.structs.replace(mine, path=name))
    return msgspec.structs.replace(config, training=training, encoding=encoding)
