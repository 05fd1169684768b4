"""`seqloom train`: from data to a model that is kept, in one command that may be stopped and repeated at any time.

A run that is written down, in the folder of `--out` or in the file of `--config`, says everything itself; only options
that do not decide which weights come out may stand beside it. A run that is refused because its folder holds another is
told in the flags that people typed, with the way out: the whole command, to be copied, in a folder that is free.

    training.feed.budget was 256 and is now 512                  it was --batch 256 and is now --batch 512
    model.encoder.dropout was 0.2 and is now 0.3; ...    ──▶     --dropout was 0.2 and is now 0.3
"""

import os
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from seqloom.cli.options import DATA, DeviceName, Given, encoded, option, require_device, takes
from seqloom.cli.progress import followed, last_of, summary
from seqloom.cli.terminal import Screen, followed_work
from seqloom.config.base import read
from seqloom.config.data import PARTS, DataConfig
from seqloom.config.options import MACHINE, RUN, own, said, settings, typed, typed_changes, with_flags
from seqloom.config.training import ConstantConfig, RunConfig, TrainingConfig
from seqloom.data.run_files import located, with_known_starts
from seqloom.errors import ConfigError
from seqloom.files.layouts import RunFile
from seqloom.report.numbers import duration
from seqloom.training.home import Home, OtherRunError, changed, free_name
from seqloom.training.wishes import Wishes, is_solved

if TYPE_CHECKING:
    from seqloom.data.dataset import Dataset
    from seqloom.training.devices import Device, Ranks
    from seqloom.training.resolve import Resolved

NARROWEST = 40  # columns of a figure
FLAGS = settings(Wishes) | settings(TrainingConfig) | DATA


@takes(FLAGS)
def train(
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="A file, a folder, two files of parallel text, or the name of a set."),
    ] = None,
    out: Annotated[
        Path | None, option("--out", "RUN", "The run folder; alone, it goes on with the run that is there.", RUN)
    ] = None,
    config: Annotated[
        Path | None, option("--config", "FILE", "Everything from the config.toml of a run, instead of options.", RUN)
    ] = None,
    tensorboard: Annotated[
        bool, option("--tensorboard", None, "Also write curves for TensorBoard (its extra) into the run folder.", RUN)
    ] = False,
    find_lr: Annotated[
        bool, option("--find-lr", None, "Train nothing: try rates from small to large, and draw it.", RUN)
    ] = False,
    json: Annotated[bool, option("--json", None, "Print how it ended as JSON.", RUN)] = False,
    *,
    given: Given,
    device: DeviceName = "auto",
    workers: Annotated[int, option("--workers", "COUNT", "Threads that make batches ahead of time.", MACHINE)] = 2,
    processes: Annotated[
        int, option("--processes", "COUNT", "Train in so many processes on this machine.", MACHINE)
    ] = 1,
    max_restarts: Annotated[
        int, option("--max-restarts", "COUNT", "How often processes that died are started again.", MACHINE)
    ] = 0,
    shard: Annotated[
        bool, option("--shard", None, "Each process keeps only its part of the weights.", MACHINE)
    ] = False,
) -> None:
    """Train a model on data: everything that is not said is chosen, told, and written to config.toml.

    The same command again goes on with a run that was stopped; a larger --epochs goes on with one that is done.
    """
    _require_machine(device, workers, processes, max_restarts)
    home = Home(None if find_lr else out)
    asked, wishes = _asked(data, home, given) if data and config is None else _written(data, out, config, given)
    if not find_lr:
        if os.environ.get("RANK", "0") == "0":  # of several processes the first one holds it
            home.require_room()
        require_same(home, asked, wishes.training, given)
    # The data; what is not there or cannot be understood is refused before torch is loaded: that takes seconds.
    from seqloom.data.dataset import open_sealed
    from seqloom.data.problems import Ledger

    dataset = open_sealed(asked, Ledger(asked.bad_rows))
    if processes > 1:
        raise typer.Exit(_launched(home, wishes, processes, max_restarts))
    try:
        _run(
            home,
            asked,
            wishes,
            dataset,
            device,
            workers,
            shard=shard,
            find_lr=find_lr,
            tensorboard=tensorboard,
            json=json,
        )
    except OtherRunError as error:
        raise told_in_flags(error, given) from None


def _require_machine(device: str, workers: int, processes: int, max_restarts: int) -> None:
    """Refuse what no machine is or has."""
    require_device(device)
    for flag, value, least in (("workers", workers, 0), ("processes", processes, 1), ("max-restarts", max_restarts, 0)):
        if value < least:
            raise ConfigError(f"--{flag} {value}", fix=f"take at least {least}")
    if max_restarts and processes == 1:
        raise ConfigError("--max-restarts is for several processes", fix="add --processes 2, or leave it out")


def _asked(data: list[str], home: Home, given: Given) -> tuple[DataConfig, Wishes]:
    """What the options say about data that is named, checked before a file of it is read."""
    training, model = said(TrainingConfig, given), said(Wishes, given)
    solved: Given = {"rate": 1.0, "schedule": ConstantConfig()} if is_solved(None, training) else {}
    TrainingConfig(**solved | training)  # contradictions are refused now
    wishes = Wishes(training=training, encoding=encoded(given), **model)
    if names := wishes.in_vain():
        flags = ", ".join(FLAGS[name].flag for name in names)
        source = given.get("model", "the model of --init")
        raise ConfigError(f"{flags} would change {source}", fix="name a recipe with --model, or change it in a file")
    usual = home.own_data(data) or DataConfig(train=tuple(data))
    return with_flags(msgspec.structs.replace(usual, train=tuple(data)), given), wishes


def _written(data: list[str] | None, out: Path | None, config: Path | None, given: Given) -> tuple[DataConfig, Wishes]:
    """The run that is written down, in a file or in the folder of a run, with what may be said beside it."""
    if config is None and out is None:
        raise ConfigError("nothing to train on", fix="name a file of data, or a run to go on with: --out RUN")
    path = config or Path(out or "") / RunFile.CONFIG
    if config is None and not path.is_file():
        raise ConfigError(f"{out} holds no run to go on with", fix="name a file of data before --out")
    others = ["the data"] if data else []
    others += [FLAGS[name].flag for name in given if not FLAGS[name].described.free]
    if others:
        raise ConfigError(
            f"{path} says everything, and so would {', '.join(others)}", fix="leave one out, or change the file"
        )
    run = located(path.parent, read(path, RunConfig)).config
    training = msgspec.structs.asdict(run.training) | said(TrainingConfig, given)
    return with_flags(run.data, given), Wishes(model=run.model, training=training, encoding=run.encoding)


def _launched(home: Home, wishes: Wishes, processes: int, max_restarts: int) -> int:
    """The exit code of so many processes, each of which runs this command alone."""
    from seqloom.training.launcher import launch

    run = home.own_run()
    named = {"optimiser": run[0].training.optimiser} if run is not None else {}
    if is_solved(wishes.model, named | wishes.training):
        fix = "leave --processes out, or take --optimiser adamw"
        raise ConfigError(f"newton solves in one process, and there are {processes}", fix=fix)
    rest = without(sys.argv[1:], "--processes", "--max-restarts")
    return launch(rest, processes, max_restarts=max_restarts)


def _run(
    home: Home,
    asked: DataConfig,
    wishes: Wishes,
    dataset: "Dataset",
    device_name: str,
    workers: int,
    *,
    shard: bool,
    find_lr: bool,
    tensorboard: bool,
    json: bool,
) -> None:
    """Read the data, train, and tell how it ended."""
    from seqloom.cli.progress import warnings_said
    from seqloom.training.devices import Alone, choose_device, is_launched
    from seqloom.training.events import drawn, require_tensorboard
    from seqloom.training.resolve import resolving
    from seqloom.training.run import expected_seconds, train_run

    screen = Screen(stderr=True)
    choose_device(device_name)  # type: ignore[arg-type]  # checked; what is not there is refused before data is read
    if tensorboard:
        require_tensorboard()
    resolved = followed_work(resolving(asked, wishes, home=None if find_lr else home, dataset=dataset))
    resolved, device = _placed(resolved, device_name, wishes.training.get("precision", "auto"))
    if find_lr:
        return _find_rate(resolved, device, json=json)
    assert resolved.folder is not None, "a run with a home has a folder"
    out, metric = resolved.folder, resolved.task.metric.name
    home.make()
    joining: AbstractContextManager[Ranks] = nullcontext(Alone())
    if shard or is_launched():
        from seqloom.training.distributed import joined

        joining = joined(sharded=shard, device=device.torch.type)
    with joining as ranks:
        seconds = expected_seconds(resolved, device) if ranks.count == 1 and resolved.before is None else None
        told = f"about {duration(seconds or 0)} of training here, by a few steps that were tried"
        reports = train_run(out, resolved, ranks=ranks, device=device, workers=workers)
        if ranks.rank != 0:
            raise typer.Exit(last_of(reports).exit_code)
        for line in warnings_said(resolved.prepared.findings):
            screen.print(line, style="yellow", markup=False, soft_wrap=True)
        reports = drawn(reports, out / RunFile.TENSORBOARD) if tensorboard else reports
        ended = followed(reports, screen, metric, (told,) if seconds is not None and seconds >= 1 else ())
    summary(out, ended, resolved.task, json=json)
    raise typer.Exit(ended.exit_code)


def _placed(resolved: "Resolved", name: str, precision: str) -> "tuple[Resolved, Device]":
    """The run in the precision that was asked for, else that of the run which is there, else what its device likes."""
    from seqloom.training.devices import choose_device

    if precision == "auto" and resolved.before is not None:
        precision = resolved.before.training.precision
    device = choose_device(name, precision, resolved.config.training.deterministic)  # type: ignore[arg-type]  # checked
    training = msgspec.structs.replace(resolved.config.training, precision=device.precision)
    return resolved._replace(config=msgspec.structs.replace(resolved.config, training=training)), device


def _find_rate(resolved: "Resolved", device: Any, *, json: bool) -> None:
    """Try rates from small to large, and draw what the loss does."""
    from seqloom.experiments.doctor.range_test import range_test
    from seqloom.training.run import built_model

    settings, task = resolved.config.training, resolved.task
    model, _ = built_model(resolved, device)
    loader = task.loader(resolved.prepared, "train", settings.feed, seed=settings.seed, workers=0)
    found = range_test(task, model, settings, loader.steps(), device)
    screen = Screen()
    if json:
        return screen.say_json(found.to_json())
    return screen.show(found.figure, screen.width, NARROWEST)


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
