"""Training from Python in one call, and the two halves of it that the command line takes one by one.

wishes ──▶ resolve ──▶ Resolved: data, task, and a configuration with nothing left open
                          │
                          └──▶ train_run ──▶ reports; RUN has its model, report and card at the end

A feed that is not for this task or model is refused first, before the folder of the run is made or compared.
"""

import difflib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import nn

from seqloom.bundle import Bundle
from seqloom.config.data import AnySplit, BadRows, EncodingConfig, ReadingConfig, Task
from seqloom.config.heads import HeadKind, Pooling
from seqloom.config.inputs import LettersWish
from seqloom.config.models import AnyModel, AnyObjective
from seqloom.config.options import stated, strict
from seqloom.config.training import AnyFeed, AnyLength, AnyOptimiser, AnySchedule, Precision, SecondsConfig
from seqloom.data.check import Names
from seqloom.data.prepared import Prepared
from seqloom.data.run_files import keep_places
from seqloom.data.word_vectors import read_vectors, wanted_words
from seqloom.errors import ConfigError, DurableError, SeqloomError
from seqloom.nn.inputs import Tfidf
from seqloom.recipes.families import Size
from seqloom.text.special_tokens import COUNT
from seqloom.training import checkpoint as checkpoints
from seqloom.training.checkpoint import put, weights_of
from seqloom.training.devices import Alone, Device, DeviceName, Ranks, choose_device
from seqloom.training.events import Ended, Report
from seqloom.training.home import Home, OtherRunError, changed, wait_on
from seqloom.training.learning_rate import expected_steps, training_symbols
from seqloom.training.loop import training
from seqloom.training.newton import training_texts
from seqloom.training.resolve import Resolved, init_bundle, resolve, with_known_names
from seqloom.training.run_folder import RunFolder
from seqloom.training.run_summary import write_pages
from seqloom.training.session import Session, Stopping
from seqloom.training.state import TrainingState
from seqloom.training.step import Update
from seqloom.training.wishes import WORD_VECTORS, settings_of


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
    resolved, drawn = with_known_names(folder, resolved), _drawn(resolved)
    resolved.task.require_feed(drawn, resolved.config.training.feed)
    with Stopping() as stopping, folder.held() if main else nullcontext():
        warned = _started(folder, resolved, place, ranks)
        checkpoint, skipped = checkpoints.newest(folder.checkpoints, ranks)
        init = resolved.config.training.init
        if checkpoint is not None:  # it has weights of its own
            warned += wait_on(checkpoint.standing, resolved.config.training)
            resolved = resolved._replace(init=None, vectors=None)
        elif not init or resolved.init is None:
            resolved = resolved._replace(init=init_bundle(resolved.files.get(init, init)) if init else None)
        model, said = _prepared(drawn, resolved, place)
        session = Session(
            folder, resolved.config, resolved.prepared, resolved.task, model, ranks, place, stopping, workers
        )
        session = session._replace(said=(*resolved.said, *place.said, *said, *warned, *skipped))
        for report in training(session, checkpoint):
            if isinstance(report, Ended) and main:
                with suppress(DurableError) if report.why == "disk" else nullcontext():  # a full disk was told already
                    write_pages(folder)
            yield report


def _started(folder: RunFolder, resolved: Resolved, device: Device, ranks: Ranks) -> tuple[str, ...]:
    """What process 0 found when it began or took up the run; what it refuses, all refuse."""
    told: dict[str, Any] = {}
    if ranks.rank == 0:
        try:
            told["warned"] = folder.start(resolved.config, resolved.facts, resolved.task.meaning, device, ranks)
            keep_places(folder.path, resolved.files)
        except SeqloomError as error:
            before, now = resolved.before, resolved.config
            if ranks.count == 1 and isinstance(error, ConfigError) and before and any(changed(before, now)):
                raise OtherRunError(error.problem, fix=error.fix, before=before, now=now) from error.__cause__
            if ranks.count == 1:
                raise
            told = {"problem": error.problem, "fix": error.fix}
    told = msgspec.json.decode(ranks.share(msgspec.json.encode(told)))
    if "problem" in told:
        raise ConfigError(told["problem"], fix=told["fix"])
    return tuple(told["warned"])


def built_model(resolved: Resolved, device: Device) -> tuple[nn.Module, tuple[str, ...]]:
    """A model with the weights that a new run starts from, and what is said about them."""
    return _prepared(_drawn(resolved), resolved, device)


def _drawn(resolved: Resolved) -> nn.Module:
    """A model with its first weights, drawn on the processor so that they are the same for every device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(resolved.config.training.seed)
        return resolved.config.model.build()


def _prepared(model: nn.Module, resolved: Resolved, device: Device) -> tuple[nn.Module, tuple[str, ...]]:
    """The model on its device, some weights taken from another one or from a file of vectors, some held fast."""
    for module in model.modules():
        if isinstance(module, Tfidf):  # it weighs n-grams by the number of texts of the training part that have them
            texts = training_texts(resolved.task, resolved.prepared, resolved.config.training.feed)
            module.fit(batch.inputs for batch in texts)
    said = start_from(model, resolved.init) if resolved.init is not None else ()
    if resolved.vectors is not None:
        file = resolved.files.get(resolved.vectors, resolved.vectors)
        said = (*said, start_from_vectors(model, file, resolved.prepared, resolved.config.training.seed))
    said = (*said, *freeze(model, resolved.config.training.freeze))
    return model.to(device.torch), said


# Where training starts when it does not start at random: the weights of another model, some of them held fast.
#
#     --init MODEL        weights with equal names and shapes are copied; the others stay fresh, and are named
#     --vectors FILE      the vectors of words are copied; those of other words are drawn as wide as they
#     --freeze PATTERN    weights whose names fit are never changed: "encoder.*", "*.table"
#
# A fine-tuned model usually has another head than the one it starts from. That is no error; that nothing fits at all
# is.

SHOWN = 3  # names in a sentence


def start_from(model: nn.Module, bundle: Bundle) -> tuple[str, ...]:
    """What was taken over from a bundle and what stayed fresh, in sentences; ConfigError if nothing fits."""
    mine, given = weights_of(model), bundle.weights
    fitting = {name: mine[name] for name in mine if name in given and mine[name].shape == given[name].shape}
    if not fitting:
        raise ConfigError(
            f"none of the {len(mine)} weights of this model has the name and shape of one of the {len(given)} given",
            fix="start from a model of the same recipe and size, or leave --init out",
        )
    put(fitting, given)
    # In numbers too: a name that fits may be of three numbers or of three million.
    taken, of = (sum(weight.numel() for weight in weights.values()) for weights in (fitting, mine))
    text = f"{len(fitting)} of {len(mine)} weights ({taken:,} of {of:,} numbers) start from the given model"
    if 2 * taken < of:
        text += "; most are fresh: it is of another kind or size, and little of what it learned is left"
    fresh = [
        f"{name} ({list(given[name].shape)} given, {list(mine[name].shape)} needed)"
        if name in given
        else f"{name} (not given)"
        for name in mine
        if name not in fitting
    ]
    return (text, f"fresh: {_some(fresh)}") if fresh else (text,)


def start_from_vectors(model: nn.Module, path: str, prepared: Prepared, seed: int) -> str:
    """How many of the words of the training part were found in a file of vectors, from which the model's now start."""
    assert prepared.tokenizer is not None, "vectors are refused where no words are read"
    table = read_vectors(path, wanted_words(prepared.tokenizer)).table(prepared.tokenizer, seed)
    put({WORD_VECTORS: weights_of(model)[WORD_VECTORS]}, {WORD_VECTORS: torch.from_numpy(table.rows)})
    symbols = np.unique(prepared.columns["input"].select(prepared.parts["train"]).values)
    words = symbols[symbols >= COUNT]
    own, lowered = int(table.own[words].sum()), int(table.lowered[words].sum())
    further = len(table.rows) - COUNT - len(words)
    return (
        f"vectors: {own:,} of {len(words):,} words of the training part have one as they stand, {lowered:,} in lower "
        f"case, {len(words) - own - lowered:,} none; {further:,} further words are known"
    )


def freeze(model: nn.Module, patterns: Sequence[str]) -> tuple[str, ...]:
    """What is held fast, in sentences; ConfigError for a pattern that fits nothing, and if nothing is left to train."""
    weights = dict(model.named_parameters())
    held: set[str] = set()
    for pattern in patterns:
        fitting = {name for name in weights if fnmatchcase(name, pattern)}
        if not fitting:
            near = _some(difflib.get_close_matches(pattern, weights, n=SHOWN, cutoff=0.3) or list(weights))
            fix = f"take a name, or a pattern as in shells ('encoder.*'), such as fits {near}"
            raise ConfigError(f"no weight has a name like '{pattern}'", fix=fix)
        held |= fitting
    if len(held) == len(weights):
        raise ConfigError(f"{', '.join(patterns)} freeze all {len(weights)} weights", fix="leave some to be trained")
    for name in held:
        weights[name].requires_grad_(False)
    return (f"{len(held)} of {len(weights)} weights are frozen: {_some(sorted(held))}",) if held else ()


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


@dataclass(frozen=True)
class Trained:
    """A run that has ended."""

    folder: Path
    ended: Ended

    @property
    def metrics(self) -> dict[str, float]:
        """Of the validation whose weights are shipped."""
        return self.ended.metrics


@strict
def train(
    *data: str | Path,
    out: str | Path | None = None,
    model: str | AnyModel | None = None,
    size: Size | None = None,
    device: DeviceName = "auto",
    show: Callable[[Report], None] | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    symbols: int | None = None,
    seconds: float | None = None,
    length: AnyLength | None = None,
    dev: Names | None = None,
    test: Names | None = None,
    reading: ReadingConfig | None = None,
    task: Task | None = None,
    input: Names | None = None,
    target: Names | None = None,
    id: str | None = None,
    label_separator: str | None = None,
    sequence: str | None = None,
    split: AnySplit | None = None,
    bad_rows: BadRows | None = None,
    encoding: EncodingConfig | None = None,
    dropout: float | None = None,
    smoothing: float | None = None,
    class_weights: str | Sequence[float] | None = None,
    head: HeadKind | None = None,
    pooling: Pooling | None = None,
    objective: str | AnyObjective | None = None,
    rows_at_once: int | None = None,
    letters: LettersWish | None = None,
    vectors: str | Path | None = None,
    vector_words: int | None = None,
    freeze_vectors: bool | None = None,
    feed: AnyFeed | None = None,
    optimiser: AnyOptimiser | None = None,
    rate: float | None = None,
    schedule: AnySchedule | None = None,
    clip: float | None = None,
    pieces: int | None = None,
    validate_every: int | None = None,
    metric: str | None = None,
    patience: int | None = None,
    save_every: int | None = None,
    keep: int | None = None,
    average: float | None = None,
    average_last: int | None = None,
    precision: Precision | None = None,
    compile: bool | None = None,
    init: str | None = None,
    freeze: Sequence[str] | None = None,
    report_every: int | None = None,
    seed: int | None = None,
    deterministic: bool | None = None,
) -> Trained:
    """Train a model and leave it in `out`, else in runs/NAME-TASK-MODEL; a run that is there already goes on.

    One of epochs, steps, symbols, seconds and `length` says how long. What is None is chosen by the data and the
    model. The settings are those of `DataConfig`, `EncodingConfig`, `Wishes` and `TrainingConfig`.
    """
    named: dict[str, Any] = {"dev": dev, "test": test, "reading": reading, "task": task, "input": input, "id": id}
    named |= {"target": target, "label_separator": label_separator, "sequence": sequence, "split": split}
    named |= {"bad_rows": bad_rows}
    named |= {"model": model, "size": size}
    named |= {"dropout": dropout, "smoothing": smoothing, "head": head, "pooling": pooling, "objective": objective}
    named |= {"class_weights": class_weights, "rows_at_once": rows_at_once, "letters": letters, "encoding": encoding}
    named |= {"vectors": vectors, "vector_words": vector_words, "freeze_vectors": freeze_vectors}
    named |= {"length": length, "feed": feed, "optimiser": optimiser, "rate": rate, "schedule": schedule}
    named |= {"clip": clip, "pieces": pieces, "validate_every": validate_every, "metric": metric, "keep": keep}
    named |= {"patience": patience, "save_every": save_every, "average": average, "average_last": average_last}
    named |= {"precision": precision, "compile": compile, "init": init, "freeze": freeze, "seed": seed}
    named |= {"report_every": report_every, "deterministic": deterministic}
    named |= {"epochs": epochs, "steps": steps, "symbols": symbols, "seconds": seconds}
    home = Home(None if out is None else Path(out))
    config, wishes = settings_of(data, stated(named), home.own_data(data))
    home.require_room()
    resolved = resolve(config, wishes, home=home)
    chosen = choose_device(device, resolved.config.training.precision)
    home.make()
    assert resolved.folder is not None, "a run with a home has a folder"
    for report in train_run(resolved.folder, resolved, device=chosen):
        if show is not None:
            show(report)
    assert isinstance(report, Ended), "the last report"
    return Trained(resolved.folder, report)


# How long a run will take, found out before it begins: a few steps with a model of its own, which is thrown away.

STEPS = 4  # the first one warms up
PATIENCE = 10.0  # seconds after which no further step is tried
MOST_WEIGHTS = 50_000_000  # more of them are not allocated twice for an estimate


def expected_seconds(resolved: Resolved, device: Device) -> float | None:
    """About how long the steps of the whole run take; None where it cannot be tried cheaply."""
    config, prepared = resolved.config.training, resolved.prepared
    if isinstance(config.length, SecondsConfig):
        return config.length.count
    if config.compile or resolved.config.model.parameters() > MOST_WEIGHTS:
        return None
    if config.strengths:  # one strength takes two steps, another twenty
        return None
    loader = resolved.task.loader(prepared, "train", config.feed, seed=config.seed, workers=0)
    steps = expected_steps(config.length, loader.plan, training_symbols(prepared))
    update = Update(resolved.task, built_model(resolved, device)[0], config, Alone(), device)
    standing, taken, began = TrainingState(seed=config.seed, pieces=config.pieces), list[float](), time.monotonic()
    for step in loader.steps():
        start = time.monotonic()
        update.step(step.batch, carried=step.carried, standing=standing, rate=0.0)
        update.read()
        taken.append(time.monotonic() - start)
        if len(taken) == STEPS or time.monotonic() - began > PATIENCE:
            break
    return None if steps is None else steps * statistics.median(taken[1:] or taken)
