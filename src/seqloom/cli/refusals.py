"""A run that is refused because its folder holds another one: told in the flags that people typed, with the way out.

    training.feed.budget was 256 and is now 512                  it was --batch 256 and is now --batch 512
    model.encoder.dropout was 0.2 and is now 0.3; ...    ──▶     --dropout was 0.2 and is now 0.3

The way out is the whole command, to be copied, in a folder that is free: what was typed, and what the run was told
about its data before, which a new folder does not know.
"""

import shlex
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from seqloom.config.data import PARTS, DataConfig
from seqloom.config.options import own, typed, typed_changes
from seqloom.config.training import RunConfig, TrainingConfig
from seqloom.data.run_files import with_known_starts
from seqloom.errors import ConfigError
from seqloom.training.home import Home, OtherRunError, changed, free_name
from seqloom.training.wishes import Wishes

SHOWN = 4  # changes that have no flag
KEPT = ("the file ", "of the split,", "of the vocabulary,")  # how changes begin that are none of settings


def require_same(home: Home, data: DataConfig, named: Mapping[str, Any], given: Collection[str]) -> None:
    """Raise ConfigError for settings that a run in a named folder cannot take, before its data is read.

    Those of training, and, if it is given its own files, those of reading them; what a split comes to is known later.
    """
    run = home.own_run()
    if run is None or home.named is None:
        return
    before, there = run
    now = msgspec.structs.replace(before, training=msgspec.structs.replace(before.training, **named))
    same = home.own_data(data.train) is not None
    if same:
        known = {name: getattr(before.data, name) for name in (*PARTS, "split")}
        now = msgspec.structs.replace(now, data=msgspec.structs.replace(data, **known))
    now = with_known_starts(now, before, there)
    if changes := list(dict.fromkeys(_flagged(before, now, ()))):
        raise _refusal(home.named, changes, list(typed_changes(there.data, given)) if same else [])


def told_in_flags(error: OtherRunError, given: Collection[str]) -> ConfigError:
    """The same refusal in flags; `given` are the options that were typed."""
    folder, _, rest = error.problem.partition(" holds another run: ")
    others = [part for part in rest.split("; ") if part.startswith(KEPT)]
    changes = [*others, *dict.fromkeys(_flagged(error.before, error.now, given))]
    same = error.before.data.train == error.now.data.train
    return _refusal(Path(folder), changes, list(typed_changes(error.now.data, given)) if same else [])


def _refusal(folder: Path, changes: list[str], told: list[str]) -> ConfigError:
    again = shlex.join(["seqloom", *without(sys.argv[1:], "--out")])
    command = " ".join([again, *told, shlex.join(["--out", str(free_name(folder))])])
    return ConfigError(
        f"{folder} holds another run: {'; '.join(changes)}",
        fix=f"ask for what it was, or train in a new folder with `{command}`",
    )


def _flagged(before: RunConfig, now: RunConfig, given: Collection[str]) -> Iterator[str]:
    """What changed, in flags where there are any; the first few of what has none."""
    others, flags = list[str](), {one.field: one for one in (*own(TrainingConfig), *own(Wishes))}
    for change in changed(before, now):
        table, name, *inner = change.setting.split(".")
        one = flags.get([name, *inner][-1] if table == "model" else name)
        if one is None or table not in ("model", "training") or (table == "model" and one.name not in given):
            others.append(str(change))
        elif table == "training" and one.parts:
            old, new = (typed(one, getattr(config.training, name)) for config in (before, now))
            yield f"it was {old} and is now {new}"
        else:
            yield str(change.called(one.flag))
    made = [flags[name].flag for name in ("model", "size", "init") if name in given and now.model != before.model]
    yield from [f"{', '.join(made)}: that is another model"] if made else []
    yield from others[:SHOWN]
    yield from [f"and {len(others) - SHOWN} more"] if len(others) > SHOWN else []


def without(arguments: list[str], *flags: str) -> list[str]:
    """The arguments without some flags and their values.

    >>> without(["train", "a.csv", "--processes", "2", "--max-restarts=1", "--json"], "--processes", "--max-restarts")
    ['train', 'a.csv', '--json']
    """
    kept, skip = [], False
    for argument in arguments:
        if not skip and argument not in flags and argument.partition("=")[0] not in flags:
            kept.append(argument)
        skip = not skip and argument in flags
    return kept
