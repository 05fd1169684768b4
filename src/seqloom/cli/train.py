"""`seqloom train`: from data to a trained model, in one command that can be stopped and resumed at any time.

A run folder (`--out`) or a file (`--config`) has all settings of a run; with it, only options that do not change the
weights may be given. If the folder contains a different run, the error lists the flags that differ, and the complete
command for a free folder.

    training.batching.batch_tokens was 256 and is now 512        it was --batch-tokens 256 and is now --batch-tokens 512
    model.encoder.dropout was 0.2 and is now 0.3; ...    ──▶     --dropout was 0.2 and is now 0.3
"""

import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import msgspec
import typer

from seqloom.cli.options import DeviceName, Given, Typed, option, require_device, takes
from seqloom.cli.terminal import Screen, followed, followed_work, last_of, summary, warnings_said
from seqloom.config.base import Config, read
from seqloom.config.data import SPLITS, AnySplit, DataConfig, EncodingConfig
from seqloom.config.options import MACHINE, RUN, own, said, settings, typed_changes, with_flags
from seqloom.config.options import typed as typed_part
from seqloom.config.training import RunConfig, TrainingConfig
from seqloom.data.run_files import located, with_known_starts
from seqloom.errors import ConfigError, SeqloomError
from seqloom.files.layouts import RunFile
from seqloom.report.numbers import duration
from seqloom.training.request import FLAGS, RunRequest, is_solved, requested
from seqloom.training.run_location import (
    CHANGED_FILE,
    CHANGED_SPLIT,
    CHANGED_VOCABULARY,
    DIFFERENT,
    Change,
    RunLocation,
    RunMismatchError,
    brief_changes,
    changed,
    free_name,
)

if TYPE_CHECKING:
    from seqloom.data.dataset import Dataset
    from seqloom.training.devices import Device, Ranks
    from seqloom.training.resolve import Resolved

NARROWEST = 40  # columns of a figure


@takes(
    FLAGS,
    common=("out", "dev", "input", "target", "model", "size", "epochs", "lr", "batch_tokens", "device"),
    examples=(
        "seqloom train reviews.csv",
        "seqloom train train.csv --dev dev.csv --model lstm --epochs 20 --out runs/lstm",
    ),
)
def train(
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="A file, a folder, two files of parallel text, or the name of a dataset (required, unless --config or "
            "the --out of an existing run is given).",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "--out -o",
            "RUN",
            "Run folder; an existing run is resumed (default: runs/DATA-TASK-MODEL, such as "
            "runs/reviews-classify-cnn).",
            RUN,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        option(
            "--config",
            "FILE",
            "Read all settings from the config.toml of a run, instead of options (default: off).",
            RUN,
        ),
    ] = None,
    tensorboard: Annotated[
        bool,
        option("--tensorboard", None, "Also write TensorBoard logs into the run folder (default: off).", RUN),
    ] = False,
    find_lr: Annotated[
        bool,
        option(
            "--find-lr",
            None,
            "Run a learning rate range test instead of training, and plot the loss (default: off).",
            RUN,
        ),
    ] = False,
    json: Annotated[bool, option("--json", None, "Print the result as JSON (default: text).", RUN)] = False,
    *,
    given: Given,
    typed: Typed,
    device: DeviceName = "auto",
    workers: Annotated[
        int, option("--workers", "COUNT", "Number of threads that prepare batches (default: 2).", MACHINE)
    ] = 2,
    processes: Annotated[
        int,
        option(
            "--processes",
            "COUNT",
            "Number of data-parallel processes on this machine, one per GPU (default: 1).",
            MACHINE,
        ),
    ] = 1,
    max_restarts: Annotated[
        int,
        option("--max-restarts", "COUNT", "Maximum number of restarts after a process has died (default: 0).", MACHINE),
    ] = 0,
    shard: Annotated[
        bool, option("--shard", None, "Shard the weights across the processes with FSDP (default: off).", MACHINE)
    ] = False,
) -> None:
    """Train a model on your data.

    Settings that you leave out are chosen automatically, printed, and written to config.toml.

    Run the same command again to resume a run that was stopped, or with more --epochs to train a finished one longer.
    """
    _require_machine(device, workers, processes, max_restarts)
    home = RunLocation(None if find_lr else out)
    asked, request = requested(data, given, home) if data and config is None else _written(data, out, config, given)
    if not find_lr:
        if os.environ.get("RANK", "0") == "0":  # other ranks would find the lock of rank 0
            home.require_usable()
        require_same(home, asked, request, given, typed)
    # Open the data; missing or unreadable data is reported before torch is loaded, which takes seconds.
    from seqloom.data.dataset import open_without_test
    from seqloom.data.problems import Ledger

    dataset = open_without_test(asked, Ledger.of(asked))
    if processes > 1:
        raise typer.Exit(_launched(home, request, typed, processes, max_restarts))
    try:
        _run(
            home,
            asked,
            request,
            dataset,
            device,
            workers,
            shard=shard,
            find_lr=find_lr,
            tensorboard=tensorboard,
            json=json,
        )
    except RunMismatchError as error:
        raise error_in_flags(error, given, typed) from None


def _require_machine(device: str, workers: int, processes: int, max_restarts: int) -> None:
    """Raise ConfigError for impossible devices and numbers of processes."""
    require_device(device)
    for flag, value, least in (("workers", workers, 0), ("processes", processes, 1), ("max-restarts", max_restarts, 0)):
        if value < least:
            raise ConfigError(f"--{flag} {value}", fix=f"use at least {least}")
    if max_restarts and processes == 1:
        raise ConfigError("--max-restarts needs several processes", fix="add --processes 2, or leave it out")


def _written(
    data: list[str] | None, out: Path | None, config: Path | None, given: Given
) -> tuple[DataConfig, RunRequest]:
    """Return the run of a file or a run folder, with the options that may be changed."""
    if config is None and out is None:
        raise ConfigError("there is no data to train on", fix="give a data file, or a run to resume: --out RUN")
    path = config or Path(out or "") / RunFile.CONFIG
    if config is None and not path.is_file():
        raise ConfigError(f"{out} contains no run to resume", fix="give a data file before --out")
    others = ["the data"] if data else []
    others += [FLAGS[name].flag for name in given if not FLAGS[name].described.changeable]
    if others:
        raise ConfigError(
            f"{path} contains all settings of the run, and {', '.join(others)} would change them",
            fix="leave one out, or edit the file",
        )
    run = located(path.parent, read(path, RunConfig)).config
    training = msgspec.structs.asdict(run.training) | said(TrainingConfig, given)
    return with_flags(run.data, given), RunRequest(model=run.model, training=training, encoding=run.encoding)


def _launched(home: RunLocation, request: RunRequest, typed: Typed, processes: int, max_restarts: int) -> int:
    """Run this command in several processes and return the exit code."""
    from seqloom.training.launcher import launch

    run = home.existing_run()
    named = {"optimizer": run[0].training.optimizer} if run is not None else {}
    if is_solved(request.model, named | request.training):
        fix = "leave --processes out, or use --optimizer adamw"
        raise ConfigError(f"newton runs in one process, but --processes is {processes}", fix=fix)
    return launch(without(typed, "--processes", "--max-restarts"), processes, max_restarts=max_restarts)


def _run(
    home: RunLocation,
    asked: DataConfig,
    request: RunRequest,
    dataset: "Dataset",
    device_name: str,
    workers: int,
    *,
    shard: bool,
    find_lr: bool,
    tensorboard: bool,
    json: bool,
) -> None:
    """Read the data, train, and print the result."""
    from seqloom.training.devices import Alone, choose_device, is_launched, machine_of
    from seqloom.training.events import drawn, require_tensorboard
    from seqloom.training.resolve import resolving
    from seqloom.training.run import expected_seconds, measured_line, train_run

    screen = Screen(stderr=True)
    machine = machine_of(choose_device(device_name))  # type: ignore[arg-type]  # checked; raises before data is read
    if tensorboard:
        require_tensorboard()
    place = None if find_lr else home
    resolved = followed_work(resolving(asked, request, location=place, dataset=dataset, machine=machine))
    resolved, device = _placed(resolved, device_name, request.training.get("precision", "auto"))
    if find_lr:
        return _find_lr(resolved, device, json=json)
    assert resolved.folder is not None, "a run with a home has a folder"
    out, metric = resolved.folder, resolved.task.metric.name
    home.make()
    joining: AbstractContextManager[Ranks] = nullcontext(Alone())
    if shard or is_launched():
        from seqloom.training.distributed import joined

        joining = joined(sharded=shard, device=device.torch.type)
    with joining as ranks:
        tried = ranks.count == 1 and resolved.before is None
        seconds = expected_seconds(resolved, device) if tried and machine is None else None
        expected = f"estimated training time: {duration(seconds or 0)}, from a few trial steps"
        told = [expected] if seconds is not None and seconds >= 1 else []
        told += [measured_line(resolved, device, machine)] if tried and machine is not None else []
        reports = train_run(out, resolved, ranks=ranks, device=device, workers=workers)
        if ranks.rank != 0:
            raise typer.Exit(last_of(reports).exit_code)
        for line in warnings_said(resolved.prepared.findings):
            screen.print(line, style="yellow", markup=False, soft_wrap=True)
        reports = drawn(reports, out / RunFile.TENSORBOARD) if tensorboard else reports
        ended = followed(reports, screen, metric, tuple(filter(None, told)))
    summary(out, ended, resolved.task, json=json)
    raise typer.Exit(ended.exit_code)


def _placed(resolved: "Resolved", name: str, precision: str) -> "tuple[Resolved, Device]":
    """Return the run and its device; the precision is the requested one, that of the existing run, or the default."""
    from seqloom.training.devices import choose_device

    if precision == "auto" and resolved.before is not None:
        precision = resolved.before.training.precision
    device = choose_device(name, precision, resolved.config.training.deterministic)  # type: ignore[arg-type]  # checked
    training = msgspec.structs.replace(resolved.config.training, precision=device.precision)
    return resolved._replace(config=msgspec.structs.replace(resolved.config, training=training)), device


def _find_lr(resolved: "Resolved", device: Any, *, json: bool) -> None:
    """Run the learning rate range test and draw the loss."""
    from seqloom.experiments.doctor.range_test import range_test
    from seqloom.training.run import built_model

    settings, task = resolved.config.training, resolved.task
    model, _ = built_model(resolved, device)
    loader = task.loader(resolved.prepared, "train", settings.batching, seed=settings.seed, workers=0)
    found = range_test(task, model, settings, loader.steps(), device)
    screen = Screen()
    if json:
        return screen.say_json(found.to_json())
    return screen.show(found.figure, screen.width, NARROWEST)


READING = {"data": settings(DataConfig), "encoding": settings(EncodingConfig)}
DIVIDING = {"dev", "test", *(name for part in get_args(AnySplit) for name in settings(part))}


def require_same(
    home: RunLocation, data: DataConfig, request: RunRequest, given: Mapping[str, Any], typed: Typed
) -> None:
    """Raise ConfigError for settings that the run in a named folder cannot accept, before its data is read.

    It checks settings of training and tokens and, if the run's own files are given, of reading. If splits are given, or
    settings with which the model must be built first, all is compared later, because one error lists all differences.
    """
    run = home.existing_run()
    if run is None or home.named is None:
        return
    before, there = run
    filled = request.filled(there)
    if filled.model is None or isinstance(filled.model, str) or DIVIDING & given.keys():
        return
    named = msgspec.structs.replace(before.training, **request.training)
    now = msgspec.structs.replace(before, training=named, model=filled.model)
    same = home.existing_data(data.train) is not None
    if same:
        known = {name: getattr(before.data, name) for name in (*SPLITS, "split")}
        now = msgspec.structs.replace(now, data=msgspec.structs.replace(data, **known))
    now = with_known_starts(now, before, there)
    if changes := list(dict.fromkeys([*_flagged(before, now, given), *_encoding_changes(before.encoding, given)])):
        unnamed = not {*data.train, "--config"} & {*typed}  # the run is named by its folder alone
        options = [f"--config {shlex.quote(str(home.named / RunFile.CONFIG))}"] if unnamed else []
        options += _reading_options(there.data, given) if same and not unnamed else []
        raise _refusal(home.named, changes, options, typed)


def error_in_flags(error: RunMismatchError, given: Mapping[str, Any], typed: Typed) -> ConfigError:
    """Return the error in terms of flags; `given` are the options of the command, `typed` is the command."""
    folder, _, rest = error.problem.partition(DIFFERENT)
    flagged = list(dict.fromkeys(_flagged(error.before, error.now, given)))
    changes = [*_outside(rest.split("; "), flagged), *flagged]
    same = error.before.data.train == error.now.data.train
    return _refusal(Path(folder), changes, _reading_options(error.now.data, given) if same else [], typed)


def _reading_options(data: DataConfig, given: Mapping[str, Any]) -> list[str]:
    """Return the options that read these files in the same way, without those that are found from the files anyway."""
    from seqloom.data.dataset import open_without_test
    from seqloom.data.problems import Ledger

    found = with_flags(DataConfig(train=data.train), given)
    with suppress(SeqloomError):
        found = open_without_test(found, Ledger.of(found)).config
    known = set(typed_changes(found, given))
    return [option for option in typed_changes(data, given) if option not in known]


def _outside(parts: list[str], flagged: Collection[str]) -> list[str]:
    """Return what has changed outside the settings, without what follows from it.

    >>> sums = ["file a.csv was 9 bytes, sha256 f1 and is now 8 bytes, sha256 e3", "vocabulary: tokenizer.json was 4"]
    >>> _outside(sums, []), _outside(sums[1:], []), _outside(sums[1:], ["--vocab-size was 9 and is now 8"])
    (['the file a.csv has changed'], ['the vocabulary has changed'], [])
    """
    files = [part.removeprefix(f"{CHANGED_FILE} ") for part in parts if part.startswith(f"{CHANGED_FILE} ")]
    if files or flagged:
        return [f"the file {part.partition(' was ')[0]} {_fate(part)}" for part in files]
    kinds = {CHANGED_SPLIT: "split", CHANGED_VOCABULARY: "vocabulary"}
    return [f"the {name} has changed" for mark, name in kinds.items() if any(part.startswith(mark) for part in parts)]


def _fate(part: str) -> str:
    if part.endswith(" is now missing"):
        return "belongs to the run"
    return "does not" if " was missing and " in part else "has changed"


def _refusal(folder: Path, changes: list[str], options: list[str], typed: Typed) -> ConfigError:
    again = shlex.join(["seqloom", *without(typed, "--out", "-o")])
    command = " ".join([again, *options, shlex.join(["--out", str(free_name(folder))])])
    return ConfigError(
        f"{folder}{DIFFERENT}{'; '.join(changes)}",
        fix=f"use the same options as before, or train in a new folder: `{command}`",
    )


def _encoding_changes(before: EncodingConfig, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the given settings of tokens that differ from those of the run."""
    now = EncodingConfig(**said(EncodingConfig, given))
    for name in (name for name in settings(EncodingConfig) if name in given):
        values = [getattr(one if hasattr(one, name) else one.tokenizer, name, None) for one in (before, now)]
        then, wanted = (value.kind() if isinstance(value, Config) else value for value in values)
        if then != wanted:
            yield str(Change(FLAGS[name].flag, then, wanted))


def _flagged(before: RunConfig, now: RunConfig, given: Collection[str]) -> Iterator[str]:
    """Yield the changes as flags, and those that have no flag.

    What changes inside a model is left out if flags would make another one; else only the first few are listed. The
    size of the vocabulary follows from the data.
    """
    others, flags = list[str](), {one.name: one for one in (*own(TrainingConfig), *own(RunRequest))}
    found = [change for change in changed(before, now) if not change.setting.endswith(".vocab_size")]
    making = ("model", "size", "layers", "heads", "init")  # a changed width is among the changes
    inside = any(change.setting.startswith("model.") for change in found)
    made = [flags[name].flag for name in making if name in given and inside]
    layered: dict[str, list[Change]] = {}  # one flag may set many layers
    for change in found:
        table, name, *inner = change.setting.split(".")
        if table in READING:
            *owners, last = change.setting.removesuffix(".kind").split(".")
            known = None if "target_tokenizer" in owners else READING[table].get(last)
            others.append(str(change if known is None else change.called(known.flag)))
            continue
        one = flags.get([name, *inner][-1] if table == "model" else name)
        if one is None or table not in ("model", "training") or (table == "model" and one.name not in given):
            others.append(str(change))
        elif table == "training" and one.parts:
            old, new = (typed_part(one, getattr(config.training, name)) for config in (before, now))
            yield f"it was {old} and is now {new}"
        elif table == "model":
            layered.setdefault(one.flag, []).append(change)
        else:
            yield str(change.called(one.flag))
    for flag, changes in layered.items():
        _, *values = zip(*changes, strict=True)
        yield str(Change(flag, *map(_over_layers, values)))
    yield from [f"{', '.join(made)} would make a different model"] if made else []
    yield from brief_changes(one for one in others if not (made and one.startswith("model.")))


def _over_layers(values: Sequence[Any]) -> Any:
    """The value of all layers, or the values of different ones as text.

    >>> _over_layers([0.2, 0.2]), _over_layers([0.2, 0.3, 0.2])
    (0.2, '0.2 and 0.3 in different layers')
    """
    if all(value == values[0] for value in values):
        return values[0]
    return f"{' and '.join(dict.fromkeys(map(str, values)))} in different layers"


def without(arguments: Sequence[str], *flags: str) -> list[str]:
    """Remove some flags and their values from the arguments.

    >>> without(["train", "a.csv", "--processes", "2", "--max-restarts=1", "--json"], "--processes", "--max-restarts")
    ['train', 'a.csv', '--json']
    """
    kept, skip = [], False
    for argument in arguments:
        if not skip and argument not in flags and argument.partition("=")[0] not in flags:
            kept.append(argument)
        skip = not skip and argument in flags
    return kept
