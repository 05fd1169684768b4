"""Where a run may be: asked before any work, so that nobody waits for data to be read and is refused then."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from seqloom import files
from seqloom.config.base import read
from seqloom.config.data import DataConfig
from seqloom.config.training import RunConfig
from seqloom.data.run_files import located, names_of
from seqloom.errors import ConfigError, near_name
from seqloom.files.layouts import RunFile
from seqloom.files.lock import LOCK

BEFORE_CONFIG = (RunFile.DATA, RunFile.VOCABULARY)  # what a start that was interrupted may leave
RUNS = Path("runs")


class Home(NamedTuple):
    """Where a run shall be: in the folder that was named, else in runs/NAME-TASK-MODEL."""

    named: Path | None = None

    def folder(self, data: str, task: str, model: str) -> Path:
        """The folder of the run.

        >>> Home().folder("data/reviews.csv", "classify", "cnn").as_posix()
        'runs/reviews-classify-cnn'
        """
        name = Path(data).name.partition(".")[0] or "data"
        return self.named or RUNS / f"{name}-{task}-{model}"

    def own_run(self) -> tuple[RunConfig, RunConfig] | None:
        """The run that goes on here, as it was told and with its files where they lie now; None where there is none."""
        if self.named is None or not (self.named / RunFile.CONFIG).is_file() or not has_kept(self.named):
            return None
        before: RunConfig = read(self.named / RunFile.CONFIG, RunConfig)
        return before, located(self.named, before).config

    def own_data(self, given: Iterable[str | Path]) -> DataConfig | None:
        """What the run that goes on here was told about its data; None if other files are given than it knows."""
        run = self.own_run()
        if run is None or self.named is None:
            return None
        before, own = (config.data for config in run)
        now = msgspec.structs.replace(own, train=tuple(map(str, given)))
        known = names_of(self.named, before, own, now)
        return own if all(path in known for path in now.train) and len(now.train) == len(own.train) else None

    def require_room(self) -> None:
        """Raise ConfigError where no run can be, and HeldError where another process is at one."""
        if self.named is None:
            require_writable(RUNS)
        else:
            require_free(self.named)

    def make(self) -> None:
        """Make the folder of runs, where one is needed that nobody named."""
        if self.named is None:
            files.make_folder(RUNS)


def require_free(path: Path) -> None:
    """Raise ConfigError where no run can be, and HeldError where another process is at one."""
    require_place(path)
    if (path / LOCK).exists():
        with files.hold(path):
            pass


def require_place(path: Path) -> None:
    """Raise ConfigError where no run can be, without writing anything."""
    require_writable(path)
    if not path.exists() or (path / RunFile.CONFIG).exists():
        return
    names = sorted(inner.name for inner in path.iterdir())
    strays = [name for name in names if name not in BEFORE_CONFIG and not name.startswith(".")]
    if strays:
        raise ConfigError(
            f"{path} holds {strays[0]} and no {RunFile.CONFIG}, so it is not the folder of a run",
            fix=f"train in a new folder: {free_name(path)}",
        )


def has_kept(path: Path) -> bool:
    """Whether a run has left something in a folder that another one would take the place of."""
    inner = (path / RunFile.CHECKPOINTS).iterdir() if (path / RunFile.CHECKPOINTS).is_dir() else ()
    whole = any(not one.name.startswith(".") or ".old-" in one.name for one in inner)  # others are half written
    return whole or (path / RunFile.MODEL).exists() or (path / RunFile.LOOKS).exists()


def require_writable(path: Path) -> None:
    """Raise ConfigError where no folder can be made, or none can be written in."""
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path} is a file, and a run needs a folder", fix="choose another name")
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {path.parent}", fix=f"make it, or {near_name(path.parent)}")
    existing = path if path.exists() else path.parent
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(f"{existing} cannot be written", fix="choose another folder, or change its permissions")


def new_name(path: Path) -> Path:
    """This folder, or one beside it that is not there yet."""
    return free_name(path) if path.exists() else path


def free_name(path: Path) -> Path:
    """A folder beside this one that is not there yet: RUN-2, RUN-3, ..."""
    number = 2
    while (other := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return other
