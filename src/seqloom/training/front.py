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
import torch
from torch import nn

from seqloom.config.data import DataConfig
from seqloom.config.models import AnyModel
from seqloom.data.front import data_config
from seqloom.errors import ConfigError, SeqloomError
from seqloom.recipes import Size
from seqloom.training import checkpoints
from seqloom.training.devices import Device, DeviceName, choose_device
from seqloom.training.folder import RunFolder
from seqloom.training.loop import training
from seqloom.training.pages.writing import write_pages
from seqloom.training.places import require_free
from seqloom.training.ranks import Alone, Ranks
from seqloom.training.reports import Ended, Report
from seqloom.training.resolving import Resolved, init_bundle, resolve
from seqloom.training.session import Session
from seqloom.training.signals import Stopping
from seqloom.training.starting import freeze, start_from
from seqloom.training.wishes import Wishes

__all__ = ["Resolved", "Trained", "Wishes", "built_model", "resolve", "train", "train_run"]


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
        model, said = built_model(_started_from(resolved, new=checkpoint is None), place)
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


def _started_from(resolved: Resolved, *, new: bool) -> Resolved:
    """The run with the model that it starts from if it has no weights yet, and without it if it has."""
    init = resolved.config.training.init
    if not (new and init):
        return resolved._replace(init=None)
    return resolved if resolved.init is not None else resolved._replace(init=init_bundle(init))


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
    require_free(Path(out))
    resolved = resolve(config, wishes, out=Path(out))
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
    of_data = {name: value for name, value in settings.items() if name in DataConfig.__struct_fields__}
    of_wishes = {name: value for name, value in settings.items() if name in Wishes._fields and name != "training"}
    of_training = {name: settings[name] for name in settings if name not in of_data and name not in of_wishes}
    return data_config(data, of_data), Wishes(model=model, size=size, training=of_training, **of_wishes)
