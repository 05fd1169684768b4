"""Where the files of known sets are looked for: a folder of sets that the user has, then our own.

    SEQLOOM_DATA    a folder of sets: only read
    SEQLOOM_CACHE   ours, ~/.cache/seqloom if it is not set; sets lie in data/ below it

In both, a file lies at the path of the registry, plain or packed: sst2/train.txt, sst2/train.txt.xz or .gz.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from seqloom.data.sources.source import PACKED, Source, SourceFile
from seqloom.errors import DataError


class Shelves(NamedTuple):
    """The folders in which sets lie."""

    mirror: Path | None  # only read
    own: Path

    def find(self, file: SourceFile) -> Path | None:
        """Where a file lies, the user's folder first; None if it is nowhere. What it holds is not looked at."""
        return next((found for folder in self.folders() if (found := found_in(folder, file))), None)

    def find_all(self, source: Source) -> dict[str, tuple[Path, ...]]:
        """The paths of every part of a set; DataError says what is missing and what to do."""
        missing = [file for file in source.every_file() if self.find(file) is None]
        if missing:
            raise DataError(self._absent(source, missing), fix=self._cure(source))
        return {
            part: tuple(path for file in files if (path := self.find(file))) for part, files in source.files.items()
        }

    def folders(self) -> list[Path]:
        """The folders in the order in which they are searched."""
        return [self.own] if self.mirror is None else [self.mirror, self.own]

    def _absent(self, source: Source, missing: list[SourceFile]) -> str:
        looked = " and ".join(f"{one}{'' if one.is_dir() else ' (no such folder)'}" for one in self.folders())
        unset = "; SEQLOOM_DATA is not set" if self.mirror is None else ""
        return f"the set '{source.name}' is not here: no {names_of(missing)} in {looked}{unset}"

    def _cure(self, source: Source) -> str:
        return f"run `seqloom data get {source.name}`" if source.has_addresses() else self.by_hand(source)

    def by_hand(self, source: Source) -> str:
        """What to put where when nothing can be fetched."""
        return (
            f"put {names_of(list(source.every_file()))}, plain or packed as .xz or .gz, below {self.own}, "
            f"or set SEQLOOM_DATA to a folder that has them (they come from {source.origin})"
        )


def names_of(files: list[SourceFile]) -> str:
    """The plain names of files, in words."""
    return ", ".join(file.plain for file in files)


def found_in(folder: Path, file: SourceFile) -> Path | None:
    """The file in this folder, plain or packed."""
    try:
        return next((path for suffix in ("", *PACKED) if (path := folder / f"{file.plain}{suffix}").is_file()), None)
    except OSError as error:  # no right to look, or a name that no file system takes
        fix = "change its rights, or name another folder"
        raise DataError(f"cannot look for {file.plain} in {folder}: {error.strerror}", fix=fix) from None


def usual_shelves(environment: Mapping[str, str] | None = None) -> Shelves:
    """The folders that the environment names."""
    given = os.environ if environment is None else environment
    mirror = given.get("SEQLOOM_DATA")
    return Shelves(Path(mirror) if mirror else None, cache_folder(given) / "data")


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The folder for what can be had again: fetched sets, prepared data."""
    given = os.environ if environment is None else environment
    if named := given.get("SEQLOOM_CACHE"):
        return Path(named)
    general = Path(given.get("XDG_CACHE_HOME", ""))
    if general.is_absolute():  # a relative one is to be ignored, says the XDG standard
        return general / "seqloom"
    try:
        return Path.home() / ".cache" / "seqloom"
    except RuntimeError:
        raise DataError("there is no home folder to keep data sets in", fix="set SEQLOOM_CACHE to a folder") from None
