"""`seqloom train`: from data to a model that is kept, in one command that may be stopped and repeated at any time."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from seqloom.cli import data_options as reading
from seqloom.cli import train_options as options
from seqloom.cli.progress import display, duration, score
from seqloom.cli.screen import Screen
from seqloom.config.reading import read
from seqloom.config.training import RunConfig
from seqloom.data.problems import counted, escaped
from seqloom.durable import make_folder
from seqloom.errors import ConfigError
from seqloom.training.reports import Begun, Ended, Report, Stepped

if TYPE_CHECKING:
    from seqloom.data.survey import Progress as Stage
    from seqloom.data.survey import Watch
    from seqloom.training.front import Resolved, Wishes

RUNS = Path("runs")
CONFIG = "config.toml"
NARROWEST = 40  # columns of a figure
ENCODING = ("tokenizer", "vocabulary", "lower", "unicode", "longest", "too_long")
# Beside a run that is written down: where, how long, and what does not decide which weights come out.
FREE = {"out", "config", *options.LENGTHS, "bad_rows", "max_bad", "tensorboard", "find_lr", "json", "device", "workers"}
FREE |= {"processes", "max_restarts", "shard"}
WHY = {
    "done": "done",
    "patience": "ended early: the dev part saw nothing better",
    "stopped": "stopped; the same command goes on from here",
    "not-finite": "ended: numbers were not finite",
    "disk": "ended: checkpoints could not be written",
}


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
    dev: reading.Dev = None,
    test: reading.Test = None,
    task: reading.TaskName = None,
    input_: reading.Input = None,
    target: reading.Target = None,
    id_: reading.Id = None,
    label_separator: reading.LabelSeparator = None,
    sequence: reading.Sequence = None,
    format_: reading.FormatName = None,
    encoding: reading.Encoding = "utf-8",
    delimiter: reading.Delimiter = None,
    header: reading.Header = True,
    template: reading.Template = None,
    unit: reading.UnitName = "line",
    split_column: reading.SplitColumn = None,
    shares: reading.Shares = None,
    fold: reading.Folds = None,
    group: reading.Group = None,
    split_seed: reading.Seed = 0,
    bad_rows: reading.BadRowsRule = "strict",
    max_bad: reading.MaxBad = "0.1%",
    tokenizer: reading.Tokeniser = "words",
    vocabulary: reading.Vocabulary = None,
    lower: reading.Lower = False,
    unicode: reading.Unicode = "as-is",
    longest: reading.Longest = 2**20,
    too_long: reading.TooLong = "cut",
) -> None:
    """Train a model on data: everything that is not said is chosen, told, and written to config.toml.

    The same command again goes on with a run that was stopped; a larger --epochs goes on with one that is done.
    """
    values = dict(locals())
    given = [
        name for name in context.params if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]
    asked = _asked(values, given)
    require_room(out)
    if processes > 1:
        raise typer.Exit(_launched(values))
    _run(values, asked)


class _Asked(msgspec.Struct, frozen=True):
    """What the options say, checked, and nothing read yet but configurations."""

    data: Any  # DataConfig
    encoding: Any  # EncodingConfig, or None: by the task
    model: dict[str, Any]
    training: dict[str, Any]
    bad_rows: Any


def _asked(values: dict[str, Any], given: list[str]) -> _Asked:
    """The typed form of the options, or of the run that they name."""
    options.require_machine(values)
    written = _written(values, given)
    rule = reading.bad_rows(values["bad_rows"], values["max_bad"])
    if written is not None:
        length = options.length(values)
        training = msgspec.structs.asdict(written.training) | ({} if length is None else {"length": length})
        return _Asked(written.data, written.encoding, {"model": written.model}, training, rule)
    model, training = options.model_wishes(values), options.training_settings(values)
    with reading.flags_named():
        data = _data_config(values)
        how = reading.encoding_config(*(values[name] for name in ENCODING)) if set(ENCODING) & set(given) else None
    return _Asked(data, how, model, training, rule)


def _written(values: dict[str, Any], given: list[str]) -> RunConfig | None:
    """The configuration that was written down, if the options name one instead of data."""
    if values["data"] and values["config"] is None:
        return None
    path = values["config"]
    if path is None:
        if values["out"] is None:
            raise ConfigError("nothing to train on", fix="name a file of data, or a run to go on with: --out RUN")
        path = values["out"] / CONFIG
        if not path.is_file():
            raise ConfigError(f"{values['out']} holds no run to go on with", fix="name a file of data before --out")
    if others := [name for name in given if name not in FREE]:
        flags = ", ".join("the data" if name == "data" else f"--{name.strip('_').replace('_', '-')}" for name in others)
        raise ConfigError(f"{path} says everything, and so would {flags}", fix="leave one out, or change the file")
    config: RunConfig = read(path, RunConfig)
    return config


def _data_config(values: dict[str, Any]) -> Any:
    plain = ("dev", "test", "task", "target", "label_separator", "sequence")
    how = ("format_", "encoding", "delimiter", "header", "template", "unit")
    parts = ("split_column", "shares", "fold", "group", "split_seed")
    return reading.data_config(
        train=values["data"],
        input=values["input_"],
        id=values["id_"],
        reading=reading.reading(*(values[name] for name in how)),
        split=reading.split(*(values[name] for name in parts)),
        **{name: values[name] for name in plain},
    )


def require_room(out: Path | None) -> None:
    """Refuse a run folder that cannot be written before anything is read."""
    place = (out if out is not None else RUNS).absolute()
    if not place.parent.is_dir():
        raise ConfigError(f"{out}: there is no folder {place.parent}", fix="make it, or check the path")
    existing = place if place.exists() else place.parent
    if not existing.is_dir():
        raise ConfigError(f"{existing} is a file, not a folder", fix="choose another --out")
    if not os.access(existing, os.W_OK):
        raise ConfigError(f"{existing} may not be written to", fix="choose another --out, or change its permissions")


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


def _run(values: dict[str, Any], asked: _Asked) -> None:
    """Read the data, train, and tell how it ended."""
    from seqloom.training.devices import choose_device
    from seqloom.training.front import Wishes, resolve, train_run
    from seqloom.training.processes import joined

    screen = Screen(stderr=True)
    precision = asked.training.get("precision", values["precision"])
    device = choose_device(values["device"], precision, asked.training.get("deterministic", False))
    wishes = Wishes(training={**asked.training, "precision": device.precision}, encoding=asked.encoding, **asked.model)
    with reading_bar(screen) as watch:
        resolved = resolve(asked.data, wishes, bad_rows=asked.bad_rows, watch=watch)
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
        ended = followed(_told(reports, out, values["tensorboard"]), screen, metric)
    summary(out, ended, metric, json=values["json"])
    raise typer.Exit(ended.exit_code)


def _estimate(resolved: "Resolved", device: Any, screen: Screen) -> None:
    """Tell how long a new run will take, before it begins."""
    from seqloom.training.rehearsing import expected_seconds

    seconds = expected_seconds(resolved, device)
    if seconds is not None:
        screen.print(f"about {duration(seconds)} of training here, by a few steps that were tried", markup=False)


@contextmanager
def reading_bar(screen: Screen) -> Iterator["Watch"]:
    """Something that shows how far the reading of data is; of several processes the first one shows it."""
    quiet = not screen.is_terminal or os.environ.get("RANK", "0") != "0"
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rows]}"))
    with Progress(*columns, console=screen, transient=True, disable=quiet) as bar:
        work = bar.add_task("reading", total=None, rows="")

        def show(stage: "Stage") -> None:
            total = None if stage.share is None else 1.0
            rows = counted(stage.rows, "row")
            bar.update(work, description=stage.stage, rows=rows, total=total, completed=stage.share)

        yield show


def default_folder(resolved: "Resolved", wishes: "Wishes") -> Path:
    """Where a run goes that was given no folder: runs/NAME-TASK-MODEL."""
    name = Path(resolved.config.data.train[0]).name.partition(".")[0] or "data"
    model = wishes.model if isinstance(wishes.model, str) else resolved.config.model.kind()
    recipe = resolved.task.recipes()[0] if wishes.model is None and resolved.init is None else model
    return RUNS / f"{name}-{resolved.task.name}-{recipe}"


def _told(reports: Iterator[Report], out: Path, tensorboard: bool) -> Iterator[Report]:
    """The reports, which TensorBoard also gets if that is wanted."""
    if not tensorboard:
        yield from reports
        return
    from seqloom.training.tensorboard import Events

    events = Events(out / "tensorboard")
    for report in reports:
        events.take(report)
        yield report


def last_of(reports: Iterator[Report]) -> Ended:
    """The end of a run that nobody watches."""
    *_, last = reports
    assert isinstance(last, Ended), "a run ends with its end"
    return last


def followed(reports: Iterator[Report], screen: Screen, metric: str) -> Ended:
    """The end of a run, every report of which was shown."""
    begun, stepped = None, False
    with display(screen, metric) as lines:
        for report in reports:
            lines.take(report)
            begun = report if isinstance(report, Begun) else begun
            stepped = stepped or isinstance(report, Stepped)
    assert isinstance(report, Ended), "a run ends with its end"
    if begun is not None and report.why in ("done", "patience") and report.step == begun.step and not stepped:
        screen.print("this run is done already; a larger --epochs goes on with it", markup=False)
    return report


def summary(out: Path, ended: Ended, metric: str, *, json: bool) -> None:
    """Tell how a run ended, where everything lies, and what to type next."""
    places = {"model": out / "model", "report": out / "report.html", "card": out / "card.md"}
    if json:
        facts = {"run": str(out), "why": ended.why, "step": ended.step, "best_step": ended.best_step}
        facts |= {"metrics": ended.metrics, "seconds": ended.pace.seconds}
        record = facts | {name: str(place) for name, place in places.items()}
        Screen().print(msgspec.json.encode(record).decode(), markup=False, soft_wrap=True)
        return
    scores = [score(ended.metrics, name) for name in dict.fromkeys((metric, *ended.metrics)) if name in ended.metrics]
    best = (
        f"best on the dev part, at step {ended.best_step:,}: {', '.join(scores)}" if scores else "no dev part to score"
    )
    lines = [f"{WHY[ended.why]} after {ended.step:,} steps, {duration(ended.pace.seconds)}", best]
    lines += [f"  {name:7} {place}" for name, place in places.items() if place.exists()]
    shown = escaped(str(out))
    lines += ["next:", f"  seqloom predict {shown} FILE", f"  seqloom evaluate {shown}", f"  seqloom doctor {shown}"]
    for line in lines:
        Screen().print(line, markup=False, soft_wrap=True)


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
