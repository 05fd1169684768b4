"""Training from Python in one call, and its two halves, which the command line calls one after the other.

request ──▶ resolve ──▶ Resolved: data, task, and a complete configuration
                          │
                          └──▶ train_run ──▶ events; at the end RUN has its model, report and card

Batching that does not fit the task or model is refused first, before the run folder is made or compared.
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
from seqloom.config.data import Format, Overlong, Task, Unit
from seqloom.config.heads import HeadKind, Pooling
from seqloom.config.inputs import CharEncoderName
from seqloom.config.models import AnyModel, AnyObjective
from seqloom.config.options import as_arguments, stated, strict
from seqloom.config.tokenizers import FittedTokenizer, UnicodeForm, WordSplit
from seqloom.config.training import AnyBatching, AnyOptimizer, AnySchedule, SecondsConfig
from seqloom.data.check import Names
from seqloom.data.prepared import Prepared
from seqloom.data.run_files import keep_places
from seqloom.data.word_vectors import read_vectors, wanted_words
from seqloom.errors import ConfigError, DurableError, SeqloomError
from seqloom.files.layouts import RunFile
from seqloom.nn.inputs import Tfidf
from seqloom.recipes.families import Size
from seqloom.report.document import Document, Shown
from seqloom.report.frames import data_frame
from seqloom.report.notebook import notebook_display
from seqloom.report.numbers import counted, rounded_duration
from seqloom.tasks.tables import brief_scores
from seqloom.text.special_tokens import COUNT
from seqloom.training import checkpoint as checkpoints
from seqloom.training.checkpoint import put, weights_of
from seqloom.training.devices import Alone, Device, DeviceName, Ranks, choose_device, machine_of
from seqloom.training.estimate import Pace, Processor
from seqloom.training.events import Ended, Report, Wrote
from seqloom.training.learning_rate import expected_steps, training_tokens
from seqloom.training.loop import training
from seqloom.training.newton import training_texts
from seqloom.training.notebook import NotebookProgress
from seqloom.training.request import WORD_VECTORS, requested
from seqloom.training.resolve import Resolved, init_bundle, resolve, with_known_names
from seqloom.training.run_folder import RunFolder
from seqloom.training.run_location import RunLocation, RunMismatchError, changed, patience_messages
from seqloom.training.run_summary import RunSummary, read_scores, read_settings, summary_of, write_pages
from seqloom.training.session import Session, StopSignals
from seqloom.training.state import TrainingState
from seqloom.training.step import Update
from seqloom.training.threads import rehearse_threads, resume_threads, threads_kept
from seqloom.training.written_texts import written_texts


def train_run(
    out: Path,
    resolved: Resolved,
    *,
    ranks: Ranks = Alone(),  # noqa: B008  # has no state
    device: Device | None = None,
    workers: int = 2,
) -> Iterator[Report]:
    """Yield the events of a new run in a folder, or of the existing run, which is resumed."""
    place = device or choose_device("auto", resolved.config.training.precision)
    folder, main = RunFolder(out), ranks.rank == 0
    resolved, drawn = with_known_names(folder, resolved), _drawn(resolved)
    resolved.task.require_batching(drawn, resolved.config.training.batching)
    with StopSignals() as stopping, folder.held() if main else nullcontext(), threads_kept():
        resume_threads(folder, place)
        warned = _started(folder, resolved, place, ranks)
        checkpoint, skipped = checkpoints.newest(folder.checkpoints, ranks)
        init = resolved.config.training.init
        if checkpoint is not None:  # a resumed run has weights of its own
            warned += patience_messages(checkpoint.run_state, resolved.config.training)
            resolved = resolved._replace(init=None, vectors=None)
        elif not init or resolved.init is None:
            resolved = resolved._replace(init=init_bundle(resolved.files.get(init, init)) if init else None)
        model, about_weights = _prepared(drawn, resolved, place)
        session = Session(
            folder, resolved.config, resolved.prepared, resolved.task, model, ranks, place, stopping, workers
        )
        about_threads = () if checkpoint is not None else rehearse_threads(session)
        messages = (*resolved.messages, *place.messages, *about_threads, *about_weights, *warned, *skipped)
        session = session._replace(messages=messages)
        for report in training(session, checkpoint):
            if isinstance(report, Ended) and main:
                if report.reason in ("done", "patience") and (
                    texts := written_texts(folder.model, resolved.task, resolved.prepared, place)
                ):
                    wrote = Wrote(report.step, texts)
                    with suppress(DurableError):  # the texts are only shown
                        folder.log(wrote)
                    yield wrote
                with suppress(DurableError) if report.reason == "disk" else nullcontext():  # it was reported before
                    write_pages(folder, (resolved.config, resolved.task))
            yield report


def _started(folder: RunFolder, resolved: Resolved, device: Device, ranks: Ranks) -> tuple[str, ...]:
    """The messages of process 0 when it started or resumed the run; an error of it is an error of all."""
    found: dict[str, Any] = {}
    if ranks.rank == 0:
        try:
            found["warned"] = folder.start(resolved.config, resolved.facts, resolved.task.spec, device, ranks)
            keep_places(folder.path, resolved.files)
        except SeqloomError as error:
            before, now = resolved.before, resolved.config
            if ranks.count == 1 and isinstance(error, ConfigError) and before and any(changed(before, now)):
                raise RunMismatchError(error.problem, fix=error.fix, before=before, now=now) from error.__cause__
            if ranks.count == 1:
                raise
            found = {"problem": error.problem, "fix": error.fix}
    found = msgspec.json.decode(ranks.share(msgspec.json.encode(found)))
    if "problem" in found:
        raise ConfigError(found["problem"], fix=found["fix"])
    return tuple(found["warned"])


def built_model(resolved: Resolved, device: Device) -> tuple[nn.Module, tuple[str, ...]]:
    """A model with the initial weights of a new run, and messages about them."""
    return _prepared(_drawn(resolved), resolved, device)


def _drawn(resolved: Resolved) -> nn.Module:
    """A model with random initial weights, drawn on the CPU so that they are the same for every device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(resolved.config.training.seed)
        return resolved.config.model.build()


def _prepared(model: nn.Module, resolved: Resolved, device: Device) -> tuple[nn.Module, tuple[str, ...]]:
    """The model on its device, with weights of --init or of a word vector file, and frozen weights."""
    for module in model.modules():
        if isinstance(module, Tfidf):  # it weights n-grams by their document frequency in the training set
            texts = training_texts(resolved.task, resolved.prepared, resolved.config.training.batching)
            module.fit(batch.inputs for batch in texts)
    messages = start_from(model, resolved.init) if resolved.init is not None else ()
    if resolved.vectors is not None:
        file = resolved.files.get(resolved.vectors, resolved.vectors)
        messages = (*messages, start_from_vectors(model, file, resolved.prepared, resolved.config.training.seed))
    messages = (*messages, *freeze(model, resolved.config.training.freeze))
    return model.to(device.torch), messages


# Initial weights that are not random, and frozen weights.
#
#     --init MODEL          weights with equal names and shapes are copied; the others stay random, and are reported
#     --word-vectors FILE   word vectors are copied; those of other words are drawn with the same spread
#     --freeze PATTERN      weights whose names match are never changed: "encoder.*", "*.table"
#
# A fine-tuned model usually has another head than the one it starts from, so some weights may not fit. It is an error
# if none does.

SHOWN = 3  # names in a message


def start_from(model: nn.Module, bundle: Bundle) -> tuple[str, ...]:
    """Copy fitting weights from a bundle; returns messages about copied and random ones. ConfigError if none fits."""
    mine, given = weights_of(model), bundle.weights
    fitting = {name: mine[name] for name in mine if name in given and mine[name].shape == given[name].shape}
    if not fitting:
        raise ConfigError(
            f"none of the {len(mine)} weights of this model has the same name and shape in the model of --init",
            fix="start from a model with the same recipe and size, or leave --init out",
        )
    put(fitting, given)
    # In parameters too, because tensors differ much in size.
    taken, of = (sum(weight.numel() for weight in weights.values()) for weights in (fitting, mine))
    text = (
        f"initialized {len(fitting)} of {len(mine)} tensors ({taken:,} of {of:,} parameters) from the model of --init"
    )
    if 2 * taken < of:
        text += "; most parameters are random, because that model has another architecture or size"
    fresh = [
        f"{name} (shape {list(given[name].shape)}, expected {list(mine[name].shape)})"
        if name in given
        else f"{name} (not in that model)"
        for name in mine
        if name not in fitting
    ]
    return (text, f"random: {_some(fresh)}") if fresh else (text,)


def start_from_vectors(model: nn.Module, path: str, prepared: Prepared, seed: int) -> str:
    """Copy word vectors from a file; returns a message about how many words of the training set were found."""
    assert prepared.tokenizer is not None, "word vectors need a tokenizer of words"
    table = read_vectors(path, wanted_words(prepared.tokenizer)).table(prepared.tokenizer, seed)
    put({WORD_VECTORS: weights_of(model)[WORD_VECTORS]}, {WORD_VECTORS: torch.from_numpy(table.rows)})
    tokens = np.unique(prepared.columns["input"].select(prepared.splits["train"]).values)
    words = tokens[tokens >= COUNT]
    own, lowered = int(table.own[words].sum()), int(table.lowered[words].sum())
    further = len(table.rows) - COUNT - len(words)
    return (
        f"word vectors: {own:,} of {len(words):,} words of the training set found, {lowered:,} more in lowercase, "
        f"{len(words) - own - lowered:,} not found; {further:,} other words were added to the vocabulary"
    )


def freeze(model: nn.Module, patterns: Sequence[str]) -> tuple[str, ...]:
    """Freeze weights; returns a message. ConfigError if a pattern matches nothing, or if nothing is left to train."""
    weights = dict(model.named_parameters())
    frozen: set[str] = set()
    for pattern in patterns:
        fitting = {name for name in weights if fnmatchcase(name, pattern)}
        if not fitting:
            near = _some(difflib.get_close_matches(pattern, weights, n=SHOWN, cutoff=0.3) or list(weights))
            fix = f"give a name or a pattern such as 'encoder.*'; some names are {near}"
            raise ConfigError(f"--freeze '{pattern}' matches no weight", fix=fix)
        frozen |= fitting
    if len(frozen) == len(weights):
        raise ConfigError(
            f"--freeze {', '.join(patterns)} freezes all {len(weights)} weights", fix="leave some to train"
        )
    for name in frozen:
        weights[name].requires_grad_(False)
    return (f"frozen: {len(frozen)} of {len(weights)} tensors ({_some(sorted(frozen))})",) if frozen else ()


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


@dataclass(frozen=True, repr=False)
class TrainedRun(Shown):
    """A finished run, or one that was stopped. A notebook shows its report.

    `folder` is the run folder; `end` says why and when the run ended; `metrics` are its validation metrics.
    """

    folder: Path
    end: Ended

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics on the dev set, of the weights in RUN/model."""
        return self.end.metrics

    @property
    def summary(self) -> RunSummary:
        """All that the run folder contains: settings, losses, validations, scores with intervals."""
        return summary_of(self.folder)

    def document(self) -> Document:
        """The report on the run, as in report.html."""
        return self.summary.document()

    def to_json(self) -> dict[str, Any]:
        """The summary of the run as plain values."""
        return self.summary.to_json()

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each validation: `step`, `epoch`, the metrics, `best` and `chosen`."""
        rows = [
            {"step": one.step, "epoch": one.epoch, **one.metrics, "best": one.best, "chosen": one.chosen}
            for one in self.summary.validations
        ]
        return data_frame(rows)

    def __repr__(self) -> str:
        ends, main = None, next(iter(self.metrics), "")
        with suppress(SeqloomError, OSError):  # the folder may have been moved or removed since
            _, task = read_settings(self.folder)
            main = task.metric.name
            scores = read_scores(self.folder / RunFile.MODEL)
            # The interval is of the calibrated scores, so it is shown only if calibration did not change the metric.
            if scores is not None and scores.dev.get(main) == self.metrics.get(main):
                ends = scores.intervals.get(main)
        is_saved = (self.folder / RunFile.MODEL).exists()
        scored = "no dev set" if is_saved else "no model yet"
        if self.metrics:
            scored = f"dev {brief_scores(self.metrics, main, ends)}"
        return f"TrainedRun({scored}; {self.end.reason} after {counted(self.end.step, 'step')}; {self.folder})"


@strict
def train(
    *data: str | Path,
    out: str | Path | None = None,
    model: str | AnyModel | None = None,
    size: Size | None = None,
    width: int | None = None,
    layers: int | None = None,
    heads: int | None = None,
    device: DeviceName = "auto",
    show: Callable[[Report], None] | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    tokens: int | None = None,
    seconds: float | None = None,
    dev: Names | None = None,
    test: Names | None = None,
    task: Task | None = None,
    input: Names | None = None,
    target: Names | None = None,
    id: str | None = None,
    label_separator: str | None = None,
    sequence: str | None = None,
    split_column: str | None = None,
    dev_size: float | str | None = None,
    test_size: float | str | None = None,
    split_seed: int | None = None,
    group: str | None = None,
    folds: int | None = None,
    fold: int | None = None,
    format: Format | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    template: str | None = None,
    unit: Unit | None = None,
    skip_bad_rows: bool | None = None,
    max_bad_rows: float | str | None = None,
    tokenizer: str | FittedTokenizer | None = None,
    target_tokenizer: str | FittedTokenizer | None = None,
    normalize: UnicodeForm | None = None,
    lowercase: bool | None = None,
    vocab_size: int | None = None,
    min_count: int | None = None,
    word_split: WordSplit | None = None,
    max_length: int | None = None,
    overlong: Overlong | None = None,
    dropout: float | None = None,
    label_smoothing: float | None = None,
    class_weights: str | Sequence[float] | None = None,
    head: HeadKind | None = None,
    pooling: Pooling | None = None,
    objective: str | AnyObjective | None = None,
    micro_batch: int | None = None,
    char_encoder: CharEncoderName | None = None,
    word_vectors: str | Path | None = None,
    word_vectors_limit: int | None = None,
    freeze_word_vectors: bool | None = None,
    batching: str | AnyBatching | None = None,
    batch_tokens: int | None = None,
    batch_rows: int | None = None,
    row_length: int | None = None,
    optimizer: str | AnyOptimizer | None = None,
    momentum: float | None = None,
    weight_decay: float | None = None,
    l2: float | str | Sequence[float] | None = None,
    lr: float | None = None,
    schedule: str | AnySchedule | None = None,
    warmup: int | None = None,
    clip_norm: float | None = None,
    accumulate: int | None = None,
    validate_every: int | None = None,
    metric: str | None = None,
    patience: int | None = None,
    save_every: int | None = None,
    keep_checkpoints: int | None = None,
    ema: float | None = None,
    average_checkpoints: int | None = None,
    precision: str | None = None,
    compile: bool | None = None,
    cuda_graphs: bool | None = None,
    init: str | Path | None = None,
    freeze: str | Sequence[str] | None = None,
    log_every: int | None = None,
    seed: int | None = None,
    deterministic: bool | None = None,
) -> TrainedRun:
    """Train a model and return the run: its folder and its validation metrics.

    Args:
        data: a file, a folder, two files of parallel text, or the name of a dataset.
        out: the run folder (default: runs/NAME-TASK-MODEL). A run that is there is resumed.
        model: the name of a recipe, or a model configuration (default: chosen by the task).
        size: the size of the recipe (default: small; tiny if training would take longer than five minutes on the CPU).
        width: the width of the layers (default: from the size).
        layers: the number of layers (default: from the size).
        heads: the number of attention heads (default: from the size).
        device: auto, cpu, cuda or mps.
        show: called with every event of the training (default: in a notebook, a live display of the progress).

    All other arguments are the options of `seqloom train`, with the same names; `seqloom train --help-all` lists them.
    An argument that is None is chosen by the data and the model.
    """
    named: dict[str, Any] = {
        "model": model,
        "size": size,
        "width": width,
        "layers": layers,
        "heads": heads,
        "epochs": epochs,
        "steps": steps,
        "tokens": tokens,
        "seconds": seconds,
    }
    named |= {"dev": dev, "test": test, "task": task, "input": input, "target": target, "id": id}
    named |= {"label_separator": label_separator, "sequence": sequence, "split_column": split_column}
    named |= {"dev_size": dev_size, "test_size": test_size, "split_seed": split_seed, "group": group, "folds": folds}
    named |= {"fold": fold, "format": format, "encoding": encoding, "delimiter": delimiter, "header": header}
    named |= {"template": template, "unit": unit, "skip_bad_rows": skip_bad_rows, "max_bad_rows": max_bad_rows}
    named |= {"tokenizer": tokenizer, "target_tokenizer": target_tokenizer, "normalize": normalize}
    named |= {"lowercase": lowercase, "vocab_size": vocab_size, "min_count": min_count, "word_split": word_split}
    named |= {"max_length": max_length, "overlong": overlong, "dropout": dropout, "label_smoothing": label_smoothing}
    named |= {"class_weights": class_weights, "head": head, "pooling": pooling, "objective": objective}
    named |= {"micro_batch": micro_batch, "char_encoder": char_encoder, "word_vectors": word_vectors}
    named |= {"word_vectors_limit": word_vectors_limit, "freeze_word_vectors": freeze_word_vectors}
    named |= {"batching": batching, "batch_tokens": batch_tokens, "batch_rows": batch_rows, "row_length": row_length}
    named |= {"optimizer": optimizer, "momentum": momentum, "weight_decay": weight_decay, "lr": lr}
    named["l2"] = l2
    named |= {"schedule": schedule, "warmup": warmup, "clip_norm": clip_norm, "accumulate": accumulate}
    named |= {"validate_every": validate_every, "metric": metric, "patience": patience, "save_every": save_every}
    named |= {"keep_checkpoints": keep_checkpoints, "ema": ema, "average_checkpoints": average_checkpoints}
    named |= {"precision": precision, "compile": compile, "init": init, "freeze": freeze, "log_every": log_every}
    named |= {"seed": seed, "deterministic": deterministic, "cuda_graphs": cuda_graphs}
    location = RunLocation(None if out is None else Path(out))
    config, request = requested(data, stated(named), location)
    location.require_usable()
    resolved = resolve(config, request, location=location, machine=machine_of(choose_device(device)))
    chosen = choose_device(device, resolved.config.training.precision)
    location.make()
    assert resolved.folder is not None, "a run with a location has a folder"
    if show is None and (display := notebook_display()) is not None:
        progress = NotebookProgress(resolved.task.metric.name, display, reword=lambda text: as_arguments(text, train))
        show = progress.take
    for report in train_run(resolved.folder, resolved, device=chosen):
        if show is not None:
            show(report)
    assert isinstance(report, Ended), "the last report"
    return TrainedRun(resolved.folder, report)


# How long a run will take, estimated before it starts: a few steps with a second model, which is thrown away.

STEPS = 4  # the first one warms up
PATIENCE = 10.0  # seconds after which no further step is tried
TRIES, LONG_ENOUGH, FAR = 8, 20.0, 1.5  # on a CPU: steps, seconds of a run, and a factor that is told
MOST_WEIGHTS = 50_000_000  # larger models are not allocated twice for an estimate


def expected_seconds(resolved: Resolved, device: Device) -> float | None:
    """Estimate the seconds of all steps of the run; None if a trial would be expensive."""
    config, prepared = resolved.config.training, resolved.prepared
    if isinstance(config.duration, SecondsConfig):
        return config.duration.seconds
    if config.compile or config.cuda_graphs or resolved.config.model.parameters() > MOST_WEIGHTS:
        return None
    if config.strengths:  # the number of steps of a strength is not known
        return None
    loader = resolved.task.loader(prepared, "train", config.batching, seed=config.seed, workers=0)
    steps = expected_steps(config.duration, loader.plan, training_tokens(prepared))
    return None if steps is None else steps * statistics.median(timed_steps(resolved, device))


def measured_line(resolved: Resolved, device: Device, machine: Processor) -> str:
    """The time by a few trial steps, in one line; empty for a short run, or if the estimate is not far from it.

    The estimate itself does not depend on the load of the machine, because it decides about size and epochs.
    """
    config = resolved.config.training
    estimate = Pace.of(resolved.config.model, config, resolved.prepared, machine).seconds(config.duration)
    return trial_line(resolved, device, machine, estimate)


def trial_line(resolved: Resolved, device: Device, machine: Processor, estimate: float) -> str:
    """The same for an estimate of several runs, of which this one is tried."""
    config, model = resolved.config.training, resolved.config.model
    if isinstance(config.duration, SecondsConfig) or config.compile or config.strengths:
        return ""
    if estimate < LONG_ENOUGH or model.parameters() > MOST_WEIGHTS:
        return ""
    usual = Pace.of(model, config, resolved.prepared, machine).step
    factor = statistics.median(timed_steps(resolved, device, tries=TRIES, patience=PATIENCE / 5)) / usual
    if 1 / FAR < factor < FAR:
        return ""
    speed = "slower, or busy" if factor > 1 else "faster"
    return f"this machine is {speed}: about {rounded_duration(factor * estimate)} by a few trial steps"


def timed_steps(resolved: Resolved, device: Device, *, tries: int = STEPS, patience: float = PATIENCE) -> list[float]:
    """Return the seconds of each of a few steps, without the first; start no further step after `patience` seconds."""
    config = resolved.config.training
    loader = resolved.task.loader(resolved.prepared, "train", config.batching, seed=config.seed, workers=0)
    update = Update(resolved.task, built_model(resolved, device)[0], config, Alone(), device)
    run_state, taken, began = (
        TrainingState(seed=config.seed, micro_batches=config.accumulate),
        list[float](),
        time.monotonic(),
    )
    for step in loader.steps():
        start = time.monotonic()
        update.step(step.batch, carried=step.carried, run_state=run_state, lr=0.0)
        update.read()
        taken.append(time.monotonic() - start)
        if len(taken) == tries or time.monotonic() - began > patience:
            break
    return taken[1:] or taken
