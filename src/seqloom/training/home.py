"""Where a run may be, and whether the one that is there goes on: asked before any work, so that nobody waits in vain.

another configuration, data or vocabulary      refused: the weights would be those of neither
a greater length of the same kind              goes on, also behind its end
a step in more pieces                          goes on: less memory, the same gradient
another patience                               goes on: it decides when to stop, not what was trained
`keep`                                         goes on: it decides which checkpoints stay, not what is in them
another rule for bad rows                      goes on: it decides whether data is refused, not which rows are read
torch, python, device, threads, processes      goes on and says so: right, but perhaps not to the last bit
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from seqloom.config.base import read
from seqloom.config.data import DataConfig
from seqloom.config.options import free_places
from seqloom.config.training import CosineConfig, LinearConfig, RunConfig, TrainingConfig
from seqloom.data.run_files import located, names_of
from seqloom.errors import ConfigError, near_name
from seqloom.files.disk import make_folder
from seqloom.files.layouts import RunFile
from seqloom.files.lock import LOCK, hold
from seqloom.training.state import Environment, TrainingState

BEFORE_CONFIG = (RunFile.DATA, RunFile.VOCABULARY)  # what a start that was interrupted may leave
RUNS = Path("runs")
LENGTH, PIECES = "training.length.count", "training.pieces"  # free where they grow
FREE = frozenset(free_places(RunConfig)) - {LENGTH, PIECES}


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
            make_folder(RUNS)


def require_free(path: Path) -> None:
    """Raise ConfigError where no run can be, and HeldError where another process is at one."""
    require_place(path)
    if (path / LOCK).exists():
        with hold(path):
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


class Change(NamedTuple):
    """A setting that is another one now."""

    setting: str  # "training.rate"
    before: Any
    now: Any

    def __str__(self) -> str:
        """Both values, in words."""
        return f"{self.setting} was {_shown(self.before)} and is now {_shown(self.now)}"

    def called(self, name: str) -> "Change":
        """The same change of something that people call by another name."""
        return self._replace(setting=name)


class OtherRunError(ConfigError):
    """A folder holds another run than the one that is asked for: both are here, to be told in words of one's own."""

    def __init__(self, problem: str, *, fix: str, before: RunConfig, now: RunConfig) -> None:
        super().__init__(problem, fix=fix)
        self.before, self.now = before, now


def changed(before: RunConfig, now: RunConfig) -> Iterator[Change]:
    """The settings whose change would change the weights or the log."""
    old, new = _flat(msgspec.to_builtins(before), ""), _flat(msgspec.to_builtins(now), "")
    finer = before.training.pieces < now.training.pieces
    free = FREE | ({LENGTH} if is_longer(before, now) else set()) | ({PIECES} if finer else set())
    for name in dict.fromkeys([*old, *new]):
        if name not in free and old.get(name) != new.get(name):
            yield Change(name, old.get(name), new.get(name))


def is_longer(before: RunConfig, now: RunConfig) -> bool:
    """Whether a run is asked for that goes on longer, measured in the same way."""
    old, new = before.training.length, now.training.length
    return type(old) is type(new) and old.count < new.count


def going_on(before: RunConfig, now: RunConfig) -> Iterator[str]:
    """What is said about a run that becomes longer or more patient, or whose steps are cut finer."""
    patience, pieces = (before.training.patience, now.training.patience), (before.training.pieces, now.training.pieces)
    if patience[0] != patience[1]:
        waits = f"ends early after {patience[1]} validations without a better one" if patience[1] else ""
        yield f"the run {waits or 'does not end early'}; its patience was {patience[0] or 'without end'}"
    if is_longer(before, now):
        old, new = before.training.length, now.training.length
        text = f"the run goes on to {new.count:,} {new.kind()}; it was begun for {old.count:,}"
        stretched = isinstance(now.training.schedule, LinearConfig | CosineConfig)
        yield f"{text}, and its rate follows the longer course from here on" if stretched else text
    if pieces[0] < pieces[1]:
        yield (
            f"each step is computed in {pieces[1]} pieces, before in {pieces[0]}: less memory, the same gradient, "
            "other dropout"
        )


def wait_on(standing: TrainingState, now: TrainingConfig) -> tuple[str, ...]:
    """What is said about a run that patience ended and that was made longer only; one that is more patient goes on."""
    if standing.ended != "patience":
        return ()
    if not now.patience or standing.waited < now.patience:
        standing.ended = ""
        return ()
    text = (
        f"patience ended this run: {standing.waited} validations in a row saw nothing better. It ends again at the "
        "next one that does not, unless --patience is larger"
    )
    return (text,) if standing.asked < now.length.count else ()


def changed_entries(what: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The entries that are different, new or missing, each with both values."""
    for name in dict.fromkeys([*before, *now]):
        if before.get(name) != now.get(name):
            yield f"{what} {name} was {_shown(before.get(name))} and is now {_shown(now.get(name))}"


def changed_environment(before: Environment, now: Environment) -> tuple[str, ...]:
    """What is different about the machine and the libraries, one warning for each."""
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(now)
    return tuple(
        f"{name}: {old[name]} when the checkpoint was saved, {new[name]} now; "
        "the run goes on, but not to the last bit as it would have"
        for name in old
        if old[name] != new[name]
    )


def _flat(data: Any, place: str) -> dict[str, Any]:
    """The leaves of nested tables and arrays of tables by their dotted names.

    >>> _flat({"model": {"width": 8, "blocks": [{"kind": "gru"}]}}, "")
    {'model.width': 8, 'model.blocks.0.kind': 'gru'}
    """
    if isinstance(data, list | tuple) and any(isinstance(item, dict) for item in data):
        data = {str(number): item for number, item in enumerate(data)}
    if not isinstance(data, dict):
        return {place: data}
    inner = f"{place}." if place else ""
    return {name: leaf for key, item in data.items() for name, leaf in _flat(item, f"{inner}{key}").items()}


def _plain(value: Any) -> str:
    """A value as people write it: names with their values, and one thing behind the other.

    >>> _plain({"train": 90, "dev": 10}), _plain(["text"]), _plain(()), _plain(True)
    ('train 90, dev 10', 'text', 'nothing', 'yes')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items()) or "nothing"
    return ", ".join(map(_plain, value)) or "nothing" if isinstance(value, list | tuple) else str(value)


def _shown(value: Any) -> str:
    """A value in a few words; a long one by its size and sum."""
    if value is None:
        return "not there"
    if isinstance(value, bytes):
        value = [len(value), hashlib.sha256(value).hexdigest()]
    if isinstance(value, list | tuple) and [*map(type, value)] == [int, str] and len(value[1]) == 64:
        return f"{value[0]:,} bytes, sha256 {value[1][:12]}"
    text = _plain(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
