"""Where a run is written, and whether an existing run may be resumed. It is checked before any work.

Changes that a resumed run accepts:

other settings, data or vocabulary             refused: the weights would belong to neither configuration
a longer duration in the same unit             accepted, also after the run has ended
more micro-batches per step (`accumulate`)     accepted: less memory, the same gradient
`patience`                                     accepted: it decides when to stop, not what is learned
`keep_checkpoints`                             accepted: it decides which checkpoints stay, not what is in them
another rule for bad rows                      accepted: it decides whether data is refused, not which rows are read
torch, python, device, threads, processes      accepted with a warning: the result may differ in the last bits
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from seqloom.config.base import read
from seqloom.config.data import DataConfig
from seqloom.config.options import changeable_places
from seqloom.config.training import CosineConfig, LinearConfig, RunConfig, TrainingConfig
from seqloom.data.run_files import located, names_of
from seqloom.errors import ConfigError
from seqloom.files.disk import existing, make_folder
from seqloom.files.layouts import OLD_STATE, RunFile
from seqloom.files.lock import LOCK, hold
from seqloom.training.state import Environment, TrainingState

BEFORE_CONFIG = (RunFile.DATA, RunFile.VOCABULARY)  # files that an interrupted start may leave
RUNS = Path("runs")


class RunLocation(NamedTuple):
    """Where a run is written: the folder that the user named, else runs/NAME-TASK-MODEL."""

    named: Path | None = None

    def folder(self, data: str, task: str, model: str) -> Path:
        """The run folder.

        >>> RunLocation().folder("data/reviews.csv", "classify", "cnn").as_posix()
        'runs/reviews-classify-cnn'
        """
        name = Path(data).name.partition(".")[0] or "data"
        return self.named or RUNS / f"{name}-{task}-{model}"

    def existing_run(self) -> tuple[RunConfig, RunConfig] | None:
        """The configuration of the run in this folder, as written and with the present paths of its files; or None."""
        if self.named is None or not (self.named / RunFile.CONFIG).is_file() or not has_results(self.named):
            return None
        _require_resumable(self.named)
        before: RunConfig = read(self.named / RunFile.CONFIG, RunConfig)
        return before, located(self.named, before).config

    def existing_data(self, given: Iterable[str | Path]) -> DataConfig | None:
        """The data settings of the run in this folder; None if the given files are not its own."""
        run = self.existing_run()
        if run is None or self.named is None:
            return None
        before, own = (config.data for config in run)
        now = msgspec.structs.replace(own, train=tuple(map(str, given)))
        known = names_of(self.named, before, own, now)
        return own if all(path in known for path in now.train) and len(now.train) == len(own.train) else None

    def require_usable(self) -> None:
        """Raise ConfigError if no run can be written here, HeldError if another process is writing one."""
        if self.named is None:
            require_writable(RUNS)
        else:
            require_free(self.named)

    def make(self) -> None:
        """Make the folder runs/ if the user named no folder."""
        if self.named is None:
            make_folder(RUNS)


DEFAULT_LOCATION = RunLocation()


def _require_resumable(path: Path) -> None:
    """Raise ConfigError for a run of an earlier version, whose checkpoints have other names and other contents."""
    if any((path / RunFile.CHECKPOINTS).glob(f"*/{OLD_STATE}")):
        raise ConfigError(
            f"{path} was trained by an earlier version of Seqloom, and this version cannot resume it",
            fix=f"start from its weights: --init {path} --out {free_name(path)}; predict and evaluate still read it",
        )


def require_free(path: Path) -> None:
    """Raise ConfigError if no run can be written here, HeldError if another process is writing one."""
    require_run_folder(path)
    if (path / LOCK).exists():
        with hold(path):
            pass


def require_run_folder(path: Path) -> None:
    """Raise ConfigError if no run can be written here. Nothing is written."""
    require_writable(path)
    if not path.exists() or (path / RunFile.CONFIG).exists():
        return
    names = sorted(inner.name for inner in path.iterdir())
    strays = [name for name in names if name not in BEFORE_CONFIG and not name.startswith(".")]
    if strays:
        raise ConfigError(
            f"{path} contains {strays[0]} but no {RunFile.CONFIG}, so it is not a run folder",
            fix=f"train in a new folder: {free_name(path)}",
        )


def has_results(path: Path) -> bool:
    """Whether the run in this folder has saved anything that a new run would replace."""
    inner = (path / RunFile.CHECKPOINTS).iterdir() if (path / RunFile.CHECKPOINTS).is_dir() else ()
    whole = any(not one.name.startswith(".") or ".old-" in one.name for one in inner)  # the others are incomplete
    return whole or (path / RunFile.MODEL).exists() or existing(path / RunFile.TEST_EVALUATIONS).exists()


def require_writable(path: Path) -> None:
    """Raise ConfigError if this folder cannot be created or written; folders above it may be missing."""
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not existing.is_dir():
        raise ConfigError(f"{existing} is a file; a run needs a folder", fix="choose another name")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(f"{existing} is not writable", fix="choose another folder, or change its permissions")


def new_name(path: Path) -> Path:
    """This path, or RUN-2, RUN-3, ... if it exists."""
    return free_name(path) if path.exists() else path


def free_name(path: Path) -> Path:
    """The first of RUN-2, RUN-3, ... that does not exist."""
    number = 2
    while (other := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return other


# Which changes a resumed run accepts.

ACCUMULATE = "training.accumulate"  # may grow
DURATIONS = frozenset(place for place in changeable_places(RunConfig) if place.startswith("training.duration."))
CHANGEABLE = frozenset(changeable_places(RunConfig)) - DURATIONS - {ACCUMULATE}


class Change(NamedTuple):
    """A setting with a new value."""

    setting: str  # "training.lr"
    before: Any
    now: Any

    def __str__(self) -> str:
        """Both values in a sentence."""
        return f"{self.setting} was {_shown(self.before)} and is now {_shown(self.now)}"

    def called(self, name: str) -> "Change":
        """The same change under the name that users know."""
        return self._replace(setting=name)


LAYERS = 4  # changes inside a model that a message lists
DIFFERENT = " contains a different run: "  # between the folder and the changes
CHANGED_FILE, CHANGED_SPLIT, CHANGED_VOCABULARY = "file", "split:", "vocabulary:"  # how changes outside settings begin


class RunMismatchError(ConfigError):
    """The folder contains a different run than the requested one. `before` and `now` are both configurations."""

    def __init__(self, problem: str, *, fix: str, before: RunConfig, now: RunConfig) -> None:
        super().__init__(problem, fix=fix)
        self.before, self.now = before, now


def changed(before: RunConfig, now: RunConfig) -> Iterator[Change]:
    """The changed settings that would change the weights or the log."""
    old, new = _flat(msgspec.to_builtins(before), ""), _flat(msgspec.to_builtins(now), "")
    finer = before.training.accumulate < now.training.accumulate
    free = CHANGEABLE | (DURATIONS if is_longer(before, now) else set()) | ({ACCUMULATE} if finer else set())
    for name in dict.fromkeys([*old, *new]):
        if name not in free and old.get(name) != new.get(name):
            yield Change(name, old.get(name), new.get(name))


def brief_changes(changes: Iterable[str]) -> list[str]:
    """All changes, but only the first few of the layers of a model: one setting can change hundreds of them.

    >>> brief_changes(["training.lr was 1 and is now 2", *(f"model.blocks.{n}.width was 8" for n in range(9))])[-2:]
    ['model.blocks.3.width was 8', 'and 5 more in the layers of the model']
    """
    every = list(changes)
    inner = [change for change in every if change.startswith("model.")]
    hidden = set(inner[LAYERS:])
    listed = [change for change in every if change not in hidden]
    return [*listed, f"and {len(hidden)} more in the layers of the model"] if hidden else listed


def is_longer(before: RunConfig, now: RunConfig) -> bool:
    """Whether the new duration is longer, in the same unit."""
    old, new = before.training.duration, now.training.duration
    return type(old) is type(new) and old.amount < new.amount


def resume_messages(before: RunConfig, now: RunConfig) -> Iterator[str]:
    """Messages about accepted changes: duration, patience, accumulate."""
    patience, pieces = (
        (before.training.patience, now.training.patience),
        (before.training.accumulate, now.training.accumulate),
    )
    if patience[0] != patience[1]:
        now_, then = (f"patience {one}" if one else "no early stopping" for one in (patience[1], patience[0]))
        yield f"this run now has {now_}; before it had {then}"
    if is_longer(before, now):
        old, new = before.training.duration, now.training.duration
        text = f"the run continues to {new.amount:,} {new.unit} (before: {old.amount:,})"
        stretched = isinstance(now.training.schedule, LinearConfig | CosineConfig)
        yield f"{text}; the learning rate schedule is stretched accordingly" if stretched else text
    if pieces[0] < pieces[1]:
        yield (
            f"each step now accumulates {pieces[1]} micro-batches (before: {pieces[0]}): less memory, the same "
            "gradient, different dropout masks"
        )


def patience_messages(run_state: TrainingState, now: TrainingConfig) -> tuple[str, ...]:
    """A message about a run that stopped early and was only made longer; with more patience it continues silently."""
    if run_state.end_reason != "patience":
        return ()
    if not now.patience or run_state.patience_count < now.patience:
        run_state.end_reason = ""
        return ()
    text = (
        f"this run stopped early after {run_state.patience_count} validations without improvement. It will stop again "
        "at the next one without improvement, unless you raise --patience"
    )
    return (text,) if run_state.end_amount < now.duration.amount else ()


def changed_entries(what: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """The entries that are different, new or missing, each with both values."""
    for name in dict.fromkeys([*before, *now]):
        if before.get(name) != now.get(name):
            yield f"{what} {name} was {_shown(before.get(name))} and is now {_shown(now.get(name))}"


def changed_environment(before: Environment, now: Environment) -> tuple[str, ...]:
    """One warning for each difference in machine or library versions."""
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(now)
    return tuple(
        f"{name}: {old[name]} when the checkpoint was saved, {new[name]} now; "
        "the run continues, but the result may differ in the last bits"
        for name in old
        if old[name] != new[name]
    )


def _flat(data: Any, place: str) -> dict[str, Any]:
    """The values of nested tables by their dotted names.

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
    """A value as text.

    >>> _plain({"train": 90, "dev": 10}), _plain(["text"]), _plain(()), _plain(True)
    ('train 90, dev 10', 'text', 'empty', 'yes')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items()) or "empty"
    return ", ".join(map(_plain, value)) or "empty" if isinstance(value, list | tuple) else str(value)


def _shown(value: Any) -> str:
    """A value in few characters; a file by its size and hash."""
    if value is None:
        return "missing"
    if isinstance(value, bytes):
        value = [len(value), hashlib.sha256(value).hexdigest()]
    if isinstance(value, list | tuple) and [*map(type, value)] == [int, str] and len(value[1]) == 64:
        return f"{value[0]:,} bytes, sha256 {value[1][:12]}"
    text = _plain(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
