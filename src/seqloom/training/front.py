"""Training from Python in one call, and the two halves of it that the command line takes one by one.

wishes ──▶ resolve ──▶ Resolved: data, task, and a configuration with nothing left open
                          │
                          └──▶ train_run ──▶ reports; RUN has its model, report and card at the end
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from torch import nn

from seqloom.bundle import Bundle, read_bundle
from seqloom.config.changing import with_setting
from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.config.models import AnyModel
from seqloom.config.training import RunConfig, TrainingConfig
from seqloom.data.dataset import Dataset, open_data
from seqloom.data.preparing import Given, Prepared, prepare
from seqloom.data.problems import BadRows, Ledger
from seqloom.data.sources.shelves import cache_folder
from seqloom.data.survey import Watch
from seqloom.errors import ConfigError, SeqloomError
from seqloom.recipes import Size
from seqloom.tasks.choosing import task_of
from seqloom.tasks.contract import HeadSettings, Meaning, Task
from seqloom.training import checkpoints
from seqloom.training.defaults import default_encoding, default_training
from seqloom.training.devices import Device, DeviceName, choose_device
from seqloom.training.folder import DataFacts, RunFolder
from seqloom.training.loop import training
from seqloom.training.pages.writing import write_pages
from seqloom.training.ranks import Alone, Ranks
from seqloom.training.reports import Ended, Report
from seqloom.training.session import Session
from seqloom.training.signals import Stopping
from seqloom.training.starting import freeze, start_from


class Wishes(NamedTuple):
    """What somebody wants; what is None is chosen and said aloud."""

    model: str | AnyModel | None = None  # a recipe, or a model of one's own
    size: Size | None = None
    dropout: float | None = None
    smoothing: float = 0.0
    class_weights: str | tuple[float, ...] = ()  # "balanced": as rare labels deserve
    training: dict[str, Any] = {}  # noqa: RUF012  # settings of `TrainingConfig` that were named
    encoding: EncodingConfig | None = None


class Resolved(NamedTuple):
    """A run with nothing left open."""

    config: RunConfig
    prepared: Prepared  # its test part is sealed: no row of it is here
    task: Task
    facts: DataFacts
    said: tuple[str, ...]
    init: Bundle | None = None


def resolve(
    data: DataConfig,
    wishes: Wishes,
    *,
    bad_rows: BadRows = BadRows(),  # noqa: B008  # frozen
    cache: Path | None = None,
    watch: Watch | None = None,
) -> Resolved:
    """The data read and encoded, and everything chosen that was left open; nothing is written but the cache."""
    ledger = Ledger(bad_rows)
    dataset = open_data(data, ledger)
    init = read_bundle(Path(name)) if (name := wishes.training.get("init")) else None
    encoding = wishes.encoding or default_encoding(dataset.schema.task)
    given = None if init is None else _given(init, dataset)
    place = cache if cache is not None else cache_folder() / "prepared"
    prepared = prepare(dataset, encoding, ledger, cache=place, watch=watch, given=given)
    facts = DataFacts.of(dataset, prepared)
    prepared = sealed(prepared)
    task = task_of(Meaning.of(prepared))
    model, recipe, said = _model(task, wishes, prepared, init)
    settings = default_training(prepared, recipe, wishes.size or "small") | wishes.training
    config = RunConfig(
        task=task.name, data=dataset.config, encoding=encoding, model=model, training=TrainingConfig(**settings)
    )
    return Resolved(config, prepared, task, facts, (*dataset.said, *said), init)


def sealed(prepared: Prepared) -> Prepared:
    """The same data without its test part: training and tuning cannot read what they do not have."""
    return prepared._replace(parts={**prepared.parts, "test": np.empty(0, np.int64)})


def _given(init: Bundle, dataset: Dataset) -> Given:
    """The tokenisers of a model that training starts from; labels are those of the data."""
    if init.meaning.schema.input != dataset.schema.input:
        raise ConfigError(
            f"--init reads {init.meaning.schema.input}, and the data has {dataset.schema.input}",
            fix="start from a model of the same kind of input",
        )
    return Given(None, init.meaning.tokenizer, init.meaning.target_tokenizer)


def _model(
    task: Task, wishes: Wishes, prepared: Prepared, init: Bundle | None
) -> tuple[AnyModel, str, tuple[str, ...]]:
    """The configuration of the model, the name of its recipe, and what was chosen."""
    if wishes.model is not None and not isinstance(wishes.model, str):
        task.require(wishes.model)
        return wishes.model, "", ()
    if init is not None and wishes.model is None:
        model = task.adapted(init.config)
        return model, "", (f"the model is that of --init: {type(model).__name__}",)
    recipe, size = wishes.model or task.recipes()[0], wishes.size or "small"
    weights = class_weights(wishes.class_weights, prepared)
    model = task.model(recipe, size, HeadSettings(wishes.smoothing, weights))
    if wishes.dropout is not None:
        model = with_setting(model, "dropout", wishes.dropout)
    said = () if wishes.model and wishes.size else (f"model: {recipe}, size {size}, {model.parameters():,} parameters",)
    return model, recipe, said


def class_weights(asked: str | tuple[float, ...], prepared: Prepared) -> tuple[float, ...]:
    """The weight of each label: as given, or such that all labels weigh the same together."""
    if not isinstance(asked, str):
        return asked
    if asked != "balanced" or prepared.schema.target != "label":
        raise ConfigError(f"class weights {asked!r}", fix="'balanced', for data with one label each, or numbers")
    labels = prepared.columns["target"].select(prepared.parts["train"]).values
    counts = np.bincount(labels[labels >= 0], minlength=len(prepared.schema.labels))
    return tuple((counts.sum() / np.maximum(1, counts) / len(counts)).tolist())


def train_run(
    out: Path,
    resolved: Resolved,
    *,
    ranks: Ranks = Alone(),  # noqa: B008  # has no state
    device: Device | None = None,
    workers: int = 2,
) -> Iterator[Report]:
    """The reports of a run in a folder: a new one, or the one that is there, which goes on."""
    place = device or choose_device("auto", resolved.config.training.precision)
    folder, main = RunFolder(out), ranks.rank == 0
    with Stopping() as stopping, folder.held() if main else nullcontext():
        warned = _started(folder, resolved, place, ranks)
        checkpoint, skipped = checkpoints.newest(folder.checkpoints, ranks)
        model, said = built_model(resolved, place)
        resolved.task.require_feed(model, resolved.config.training.feed)
        session = Session(
            folder, resolved.config, resolved.prepared, resolved.task, model, ranks, place, stopping, workers
        )
        session = session._replace(said=(*resolved.said, *place.said, *said, *warned, *skipped))
        for report in training(session, checkpoint):
            if isinstance(report, Ended) and main:
                write_pages(folder)
            yield report


def _started(folder: RunFolder, resolved: Resolved, device: Device, ranks: Ranks) -> tuple[str, ...]:
    """What process 0 found when it began or took up the run; what it refuses, all refuse."""
    told: dict[str, Any] = {}
    if ranks.rank == 0:
        try:
            told["warned"] = folder.start(resolved.config, resolved.facts, resolved.task.meaning, device, ranks)
        except SeqloomError as error:
            if ranks.count == 1:
                raise
            told = {"problem": error.problem, "fix": error.fix}
    told = msgspec.json.decode(ranks.share(msgspec.json.encode(told)))
    if "problem" in told:
        raise ConfigError(told["problem"], fix=told["fix"])
    return tuple(told["warned"])


def built_model(resolved: Resolved, device: Device) -> tuple[nn.Module, tuple[str, ...]]:
    """A model with its first weights, drawn on the processor so that they are the same for every device."""
    settings = resolved.config.training
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = resolved.config.model.build()
    said = start_from(model, resolved.init) if resolved.init is not None else ()
    said = (*said, *freeze(model, settings.freeze))
    return model.to(device.torch), said


class Trained(NamedTuple):
    """A run that has ended."""

    folder: Path
    ended: Ended

    @property
    def metrics(self) -> dict[str, float]:
        """Of the best validation."""
        return self.ended.metrics


def train(
    *data: str | Path,
    out: str | Path,
    model: str | AnyModel | None = None,
    size: Size | None = None,
    device: DeviceName = "auto",
    show: Callable[[Report], None] | None = None,
    **settings: Any,
) -> Trained:
    """Train a model and leave it in `out`; the folder is taken up again if it is there.

    `settings` are those of `DataConfig` (dev, task, input, ...), of `TrainingConfig` (length, rate, seed, ...) and of
    `Wishes` (dropout, encoding, ...), each by its name.
    """
    config, wishes = _sorted(data, model, size, settings)
    resolved = resolve(config, wishes)
    chosen = choose_device(device, resolved.config.training.precision)
    for report in train_run(Path(out), resolved, device=chosen):
        if show is not None:
            show(report)
    assert isinstance(report, Ended), "the last report"
    return Trained(Path(out), report)


def _sorted(
    data: tuple[str | Path, ...], model: str | AnyModel | None, size: Size | None, settings: dict[str, Any]
) -> tuple[DataConfig, Wishes]:
    """The settings by where they belong."""
    from seqloom.data.front import data_config

    of_data = {name: value for name, value in settings.items() if name in DataConfig.__struct_fields__}
    of_wishes = {name: value for name, value in settings.items() if name in Wishes._fields and name != "training"}
    of_training = {name: settings[name] for name in settings if name not in of_data and name not in of_wishes}
    return data_config(data, of_data), Wishes(model=model, size=size, training=of_training, **of_wishes)
