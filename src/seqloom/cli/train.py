"""`seqloom train`: from data to a model that is kept, in one command that may be stopped and repeated at any time."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer
from rich.text import Text

from seqloom.cli import train_options as options
from seqloom.cli.asking import Asked, asked_for
from seqloom.cli.data_options import DataOptions
from seqloom.cli.following import drawn, followed, last_of, reading_bar, summary
from seqloom.cli.progress import duration
from seqloom.cli.screen import Screen
from seqloom.cli.sharing import shares
from seqloom.durable import make_folder
from seqloom.training.places import CONFIG, require_free, require_writable

if TYPE_CHECKING:
    from seqloom.training.front import Resolved, Wishes

RUNS = Path("runs")
NARROWEST = 40  # columns of a figure


@shares(DataOptions)
def train(
    context: typer.Context,
    data: options.Data = None,
    out: options.Out = None,
    config: options.ConfigFile = None,
    validate_every: options.ValidateEvery = None,
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
    _require_room(out, find_lr=find_lr)
    if processes > 1:
        raise typer.Exit(_launched(values))
    _run(values, asked)


def _require_room(out: Path | None, *, find_lr: bool) -> None:
    """Refuse a run folder in which this command may not write, before anything is read."""
    if out is None:
        require_writable(RUNS)
    elif not find_lr and os.environ.get("RANK", "0") == "0":  # of several processes the first one holds it
        require_free(out)


def _launched(values: dict[str, Any]) -> int:
    """The exit code of so many processes, each of which runs this command alone."""
    from seqloom.training.launching import launch

    rest = _without(sys.argv[1:], "--processes", "--max-restarts")
    return launch(rest, values["processes"], max_restarts=values["max_restarts"])


def _without(arguments: list[str], *flags: str) -> list[str]:
    """The arguments without some flags and their values.

    >>> _without(["train", "a.csv", "--processes", "2", "--max-restarts=1", "--json"], "--processes", "--max-restarts")
    ['train', 'a.csv', '--json']
    """
    kept, skip = [], False
    for argument in arguments:
        if not skip and argument not in flags and argument.partition("=")[0] not in flags:
            kept.append(argument)
        skip = not skip and argument in flags
    return kept


def _run(values: dict[str, Any], asked: Asked) -> None:
    """Read the data, train, and tell how it ended."""
    from seqloom.training.devices import choose_device
    from seqloom.training.front import Wishes, resolve, train_run
    from seqloom.training.processes import joined

    screen = Screen(stderr=True)
    precision = asked.training.get("precision", values["precision"])
    device = choose_device(values["device"], precision, asked.training.get("deterministic", False))
    wishes = Wishes(training={**asked.training, "precision": device.precision}, encoding=asked.encoding, **asked.model)
    begun = None if values["find_lr"] else values["out"]
    with reading_bar(screen) as watch:
        resolved = resolve(asked.data, wishes, out=begun, bad_rows=asked.bad_rows, watch=watch)
    if values["find_lr"]:
        return _find_rate(resolved, device, json=values["json"])
    out, metric = values["out"] or default_folder(resolved, wishes), resolved.task.metric.name
    if values["out"] is None:
        make_folder(RUNS)
    with joined(sharded=values["shard"], device=device.torch.type) as ranks:
        if ranks.count == 1 and not (out / CONFIG).exists():
            _estimate(resolved, device, screen)
        reports = train_run(out, resolved, ranks=ranks, device=device, workers=values["workers"])
        if ranks.rank != 0:
            raise typer.Exit(last_of(reports).exit_code)
        ended = followed(drawn(reports, out) if values["tensorboard"] else reports, screen, metric)
    summary(out, ended, metric, json=values["json"])
    raise typer.Exit(ended.exit_code)


def _estimate(resolved: "Resolved", device: Any, screen: Screen) -> None:
    """Tell how long a new run will take, before it begins."""
    from seqloom.training.rehearsing import expected_seconds

    seconds = expected_seconds(resolved, device)
    if seconds is not None:
        screen.print(f"about {duration(seconds)} of training here, by a few steps that were tried", markup=False)


def default_folder(resolved: "Resolved", wishes: "Wishes") -> Path:
    """Where a run goes that was given no folder: runs/NAME-TASK-MODEL."""
    name = Path(resolved.config.data.train[0]).name.partition(".")[0] or "data"
    model = wishes.model if isinstance(wishes.model, str) else resolved.config.model.kind()
    recipe = resolved.task.recipes()[0] if wishes.model is None and resolved.init is None else model
    return RUNS / f"{name}-{resolved.task.name}-{recipe}"


def _find_rate(resolved: "Resolved", device: Any, *, json: bool) -> None:
    """Try rates from small to large, and draw what the loss does."""
    from seqloom.diagnosis.range_test import range_test
    from seqloom.training.front import built_model

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
