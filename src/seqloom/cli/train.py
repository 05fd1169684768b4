"""`seqloom train`: from data to a model that is kept, in one command that may be stopped and repeated at any time."""

import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import typer
from rich.text import Text

from seqloom.cli import train_options as options
from seqloom.cli.data_options import DataOptions
from seqloom.cli.follow import followed, last_of, summary
from seqloom.cli.progress import duration
from seqloom.cli.refusals import require_same, told_in_flags, without
from seqloom.cli.requests import TrainRequest, asked_for
from seqloom.cli.shared_options import shares
from seqloom.cli.terminal import Screen, followed_work
from seqloom.files.layouts import RunFile
from seqloom.training.changes import OtherRunError
from seqloom.training.home import Home

if TYPE_CHECKING:
    from seqloom.data.dataset import Dataset
    from seqloom.training.devices import Device
    from seqloom.training.resolve import Resolved

NARROWEST = 40  # columns of a figure


@shares(DataOptions)
def train(
    context: typer.Context,
    data: options.Data = None,
    out: options.Out = None,
    config: options.ConfigFile = None,
    validate_every: options.ValidateEvery = None,
    metric: options.MetricName = None,
    save_every: options.SaveEvery = None,
    keep: options.Keep = None,
    tensorboard: options.TensorBoard = False,
    find_lr: options.FindRate = False,
    json: options.Json = False,
    model: options.Model = None,
    size: options.SizeName = None,
    dropout: options.Dropout = None,
    smoothing: options.Smoothing = None,
    class_weights: options.ClassWeights = None,
    head: options.HeadName = None,
    pooling: options.PoolingName = None,
    objective: options.ObjectiveName = None,
    rows_at_once: options.RowsAtOnce = None,
    letters: options.LettersName = None,
    vectors: options.VectorFile = None,
    vector_words: options.VectorWords = None,
    freeze_vectors: options.FreezeVectors = False,
    init: options.Init = None,
    freeze: options.Freeze = None,
    epochs: options.Epochs = None,
    steps: options.Steps = None,
    symbols: options.Symbols = None,
    seconds: options.Seconds = None,
    patience: options.Patience = None,
    batch: options.Batch = None,
    streams: options.Streams = None,
    packs: options.Packs = None,
    pieces: options.Pieces = None,
    rate: options.Rate = None,
    optimiser: options.Optimiser = None,
    momentum: options.Momentum = None,
    decay: options.Decay = None,
    schedule: options.Schedule = None,
    warm_up: options.WarmUp = None,
    clip: options.Clip = None,
    average: options.Average = None,
    average_last: options.AverageLast = None,
    seed: options.SeedNumber = None,
    device: options.DeviceName = "auto",
    precision: options.Precision = "auto",
    compile_: options.Compile = False,
    deterministic: options.Deterministic = False,
    workers: options.Workers = 2,
    processes: options.Processes = 1,
    max_restarts: options.MaxRestarts = 0,
    shard: options.Shard = False,
    *,
    shared: DataOptions,
) -> None:
    """Train a model on data: everything that is not said is chosen, told, and written to config.toml.

    The same command again goes on with a run that was stopped; a larger --epochs goes on with one that is done.
    """
    values = dict(locals())
    asked = asked_for(values, shared, options.given(context))
    if not find_lr:
        _require_room(Home(out), asked)
    dataset = _opened(asked)
    if processes > 1:
        raise typer.Exit(_launched(values))
    try:
        _run(values, asked, dataset)
    except OtherRunError as error:
        raise told_in_flags(error, options.given(context)) from None


def _require_room(home: Home, asked: TrainRequest) -> None:
    """Refuse a run folder in which this command may not write, or which holds another run, before anything is read."""
    if os.environ.get("RANK", "0") == "0":  # of several processes the first one holds it
        home.require_room()
    require_same(home, asked.data, asked.training)


def _opened(asked: TrainRequest) -> "Dataset":
    """The data; what is not there or cannot be understood is refused before torch is loaded: that takes seconds."""
    from seqloom.data.dataset import open_sealed
    from seqloom.data.problems import Ledger

    return open_sealed(asked.data, Ledger(asked.data.bad_rows))


def _launched(values: dict[str, Any]) -> int:
    """The exit code of so many processes, each of which runs this command alone."""
    from seqloom.training.launcher import launch

    rest = without(sys.argv[1:], "--processes", "--max-restarts")
    return launch(rest, values["processes"], max_restarts=values["max_restarts"])


def _run(values: dict[str, Any], asked: TrainRequest, dataset: "Dataset") -> None:
    """Read the data, train, and tell how it ended."""
    from seqloom.cli.data_warnings import warnings_said
    from seqloom.training.devices import choose_device
    from seqloom.training.processes import joined
    from seqloom.training.resolve import resolving
    from seqloom.training.run import train_run
    from seqloom.training.tensorboard import drawn, require_tensorboard
    from seqloom.training.wishes import Wishes

    screen, home = Screen(stderr=True), Home(values["out"])
    choose_device(values["device"])  # refused before data is read
    if values["tensorboard"]:
        require_tensorboard()
    wishes = Wishes(training=asked.training, encoding=asked.encoding, **asked.model)
    place = None if values["find_lr"] else home
    resolved = followed_work(resolving(asked.data, wishes, home=place, dataset=dataset))
    resolved, device = _placed(resolved, values["device"], asked.training.get("precision", values["precision"]))
    if values["find_lr"]:
        return _find_rate(resolved, device, json=values["json"])
    assert resolved.folder is not None, "a run with a home has a folder"
    out, metric = resolved.folder, resolved.task.metric.name
    home.make()
    with joined(sharded=values["shard"], device=device.torch.type) as ranks:
        estimate = _estimate(resolved, device) if ranks.count == 1 and resolved.before is None else ()
        reports = train_run(out, resolved, ranks=ranks, device=device, workers=values["workers"])
        if ranks.rank != 0:
            raise typer.Exit(last_of(reports).exit_code)
        for line in warnings_said(resolved.prepared.findings):
            screen.print(line, style="yellow", markup=False, soft_wrap=True)
        reports = drawn(reports, out / RunFile.TENSORBOARD) if values["tensorboard"] else reports
        ended = followed(reports, screen, metric, estimate)
    summary(out, ended, resolved.task, json=values["json"])
    raise typer.Exit(ended.exit_code)


def _placed(resolved: "Resolved", name: str, precision: str) -> "tuple[Resolved, Device]":
    """The run in the precision that was asked for, else that of the run which is there, else what its device likes."""
    from seqloom.training.devices import choose_device

    if precision == "auto" and resolved.before is not None:
        precision = resolved.before.training.precision
    device = choose_device(name, precision, resolved.config.training.deterministic)  # type: ignore[arg-type]  # checked
    training = msgspec.structs.replace(resolved.config.training, precision=device.precision)
    return resolved._replace(config=msgspec.structs.replace(resolved.config, training=training)), device


def _estimate(resolved: "Resolved", device: "Device") -> tuple[str, ...]:
    """How long a new run will take, in one line; none where that cannot be known."""
    from seqloom.training.rehearsal import expected_seconds

    seconds = expected_seconds(resolved, device)
    return (
        ()
        if seconds is None or seconds < 1
        else (f"about {duration(seconds)} of training here, by a few steps that were tried",)
    )


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
        screen.print(msgspec.json.encode(found.to_json()).decode(), markup=False, soft_wrap=True)
        return
    coloured = screen.color_system is not None and not screen.no_color
    screen.print(Text.from_ansi(found.figure.text(width=max(NARROWEST, screen.width), colour=coloured)), soft_wrap=True)
