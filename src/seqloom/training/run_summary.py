"""The summary of a run: all that its folder contains, read once. Report, card and notebooks are made from it.

config.toml ─┐
data.json ───┤
metrics.jsonl┼──▶ RunSummary ──▶ report.html, card.md, JSON, notebook
events.jsonl ┤
test_evaluations.jsonl ─┤
model/ ──────┘   its notes have the scores of its weights
"""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from seqloom.config.base import Config, read
from seqloom.config.models import AnyModel
from seqloom.config.stacks import StackConfig
from seqloom.config.training import RunConfig
from seqloom.errors import ConfigError, DamagedError, DataError, near_name
from seqloom.files.disk import existing, write_file
from seqloom.files.jsonl import read_lines
from seqloom.files.layouts import RunFile, VocabularyFile
from seqloom.recipes.families import RECIPES, SIZES, AnySize, Dimensions, Size
from seqloom.report.document import Document, Shown
from seqloom.tasks.task import HeadSettings, Metric, Task, task_of
from seqloom.training.events import WrittenText, read_log
from seqloom.training.run_folder import RunFolder
from seqloom.training.state import Environment

# The lines of the two logs as typed values; keys that a later version adds are ignored.

Kind = TypeVar("Kind")


class StepLine(msgspec.Struct, frozen=True):
    """A summary of some steps: see `events.Stepped`. A number that was not finite is None."""

    step: int
    epoch: int
    loss: float | None
    lr: float
    grad_norm: float | None
    max_grad_norm: float | None
    clipped: float
    skipped: int
    tokens: int
    padding: float
    progress: float = 0.0


class SampleLine(msgspec.Struct, frozen=True):
    """One example of a validation."""

    input: str
    predicted: str
    expected: str
    correct: bool | None


class ValidationLine(msgspec.Struct, frozen=True):
    """A validation."""

    step: int
    epoch: int
    metrics: dict[str, float | None]
    best: bool
    samples: tuple[SampleLine, ...] = ()
    chosen: bool | None = None  # None in old logs: there the best one was chosen


class WrittenLine(msgspec.Struct, frozen=True):
    """A prompt, and the continuation that a language model wrote."""

    prompt: str
    text: str


class TextsLine(msgspec.Struct, frozen=True):
    """What a language model writes at the end of its training."""

    step: int
    texts: tuple[WrittenLine, ...]


class EndLine(msgspec.Struct, frozen=True):
    """The run is finished, or stopped for now."""

    step: int
    reason: str
    best_step: int = 0
    chosen_step: int = 0
    metrics: dict[str, float | None] = {}


class StartLine(msgspec.Struct, frozen=True):
    """The run started or was resumed."""

    step: int
    parameters: int
    trainable: int
    checkpoint_bytes: int
    environment: Environment
    steps: int | None = None
    messages: tuple[str, ...] = ()


class SpeedLine(msgspec.Struct, frozen=True):
    """How fast training was."""

    step: int
    seconds: float
    tokens_per_second: float | None = None
    data_wait: float | None = None
    memory: int = 0


class NoticeLine(msgspec.Struct, frozen=True):
    """Something the user should know."""

    step: int
    code: str
    text: str
    fix: str = ""


class SavedLine(msgspec.Struct, frozen=True):
    """A checkpoint was saved, or could not be."""

    step: int
    problem: str = ""


class TestEvaluationLine(msgspec.Struct, frozen=True):
    """One evaluation on the test set."""

    metrics: dict[str, float | None]
    intervals: dict[str, tuple[float | None, float | None]] = {}
    when: str = ""
    seqloom: str = ""
    model_sha256: str = ""
    rows: int = 0  # of the test set


def of_kind(records: Iterable[dict[str, Any]], kind: str, line: type[Kind], path: Path) -> tuple[Kind, ...]:
    """The lines of one kind, typed; DamagedError if one lacks a field."""
    return tuple(typed(record, line, path) for record in records if record.get("kind") == kind)


def typed(record: dict[str, Any], line: type[Kind], path: Path) -> Kind:
    try:
        return msgspec.convert(record, line)
    except msgspec.ValidationError as error:
        raise DamagedError(f"{path}: a line is not readable: {error}", fix="restore the file from a backup") from None


def speeds_of_steps(records: Iterable[dict[str, Any]], reported: Collection[int], path: Path) -> tuple[SpeedLine, ...]:
    """The speed at each of the logged steps that the events contain, in order.

        events   start  S10  S20 V20  V25  S30 | start  S30  S40      S: a log of steps, V: a validation; | a kill
        speeds           10   20                         30   40

    A validation has a line of the kind "speed" too, for the few steps since the last log, often none, which would show
    a speed of 0. Of two lines for a step in one session, the first is that of the steps. Of steps that were repeated
    after a kill, the last line counts.
    """
    found: dict[int, SpeedLine] = {}
    before: int | None = None  # the step of the line before, in the same session
    for record in records:
        if record.get("kind") == "start":
            before = None
        elif record.get("kind") == "speed":
            pace = typed(record, SpeedLine, path)
            if pace.step in reported and pace.step != before:
                found[pace.step] = pace
            before = pace.step
    return tuple(found[step] for step in sorted(found))


# Scores on the dev set: metrics, confidence intervals and the confusion matrix.
#
# They are in the notes of the model folder, because they belong to its weights: both are replaced together.

Interval = tuple[float | None, float | None]


class StoredConfusion(msgspec.Struct, frozen=True, array_like=True):
    """An entry of the confusion matrix."""

    expected: str
    predicted: str
    count: int


class RunScores(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of the weights of a step with their 95% intervals; a number that is not finite is None."""

    step: int
    dev: dict[str, float | None] = {}
    dev_rows: int = 0
    intervals: dict[str, Interval] = {}
    confusion: tuple[StoredConfusion, ...] = ()
    per_class: dict[str, dict[str, float | None]] = {}  # precision, recall, f1 and support of each label or type
    cross_fitted: bool = False  # whether each half of the dev set was scored with the calibration of the other half
    settled: bool = True  # whether the run had ended: before that there is no calibration and there are no intervals


def scores_of(notes: Mapping[str, Any]) -> RunScores:
    """The scores in the notes of a model.

    >>> scores_of({"step": 20, "dev": {"accuracy": 0.5}, "intervals": {"accuracy": [0.4, float("nan")]}}).intervals
    {'accuracy': (0.4, None)}
    """
    return msgspec.convert(_finite(notes), RunScores)


def read_scores(model: Path) -> RunScores | None:
    """The scores in a model folder; None if there is no model yet."""
    path = model / "config.json"
    if not path.exists():
        return None
    try:
        return scores_of(msgspec.json.decode(path.read_bytes())["notes"])
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise DamagedError(f"{path} is not readable: {error}", fix="restore the file from a backup") from None


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# The name of a model: its recipe and size, or its layers.
#
# config.toml has the layers that a recipe made, not its name. Users know the name ("bilstm, nano"), so it is found
# again: the recipe that makes the same layers for the same task.

SET_BESIDE = ("dropout", "head")  # set by other flags, independent of the recipe


@lru_cache(maxsize=1)  # it is called for each model that a run saves
def model_named(model: AnyModel, task: Task) -> str:
    """The recipe and size that make this model for its task; for a custom model, its layers."""
    layers = _without(msgspec.to_builtins(model))

    def makes(recipe: str, size: AnySize) -> bool:
        try:
            return bool(_without(msgspec.to_builtins(task.model(recipe, size, HeadSettings()))) == layers)
        except ConfigError:  # not every recipe reads every kind of input
            return False

    for recipe in task.recipes():
        sizes = [size for size in SIZES if makes(recipe, size)]
        if sizes:
            return f"{recipe}, {sizes[0]}" if len(sizes) == 1 else recipe  # some have one size only
    for recipe in task.recipes():
        near = sorted((_near(model, recipe, size) for size in SIZES), key=lambda one: _distance(one, recipe))
        if (made := next((one for one in near if makes(recipe, one)), None)) is not None:
            return f"{recipe}, {made}"
    return layers_text(model)


def _near(model: AnyModel, recipe: str, size: Size) -> Dimensions:
    """The size with the width, layers and heads of this model where they are others."""
    parts = [getattr(model, name) for name in model.__struct_fields__]
    stack = next(part for part in parts if isinstance(part, StackConfig))
    mixer = getattr(next(iter(stack.stack()), None), "mixer", None)
    hidden = getattr(model, "hidden", ())
    found = {"width": stack.width, "layers": len(hidden) or stack.repeat, "heads": getattr(mixer, "num_heads", None)}
    usual = RECIPES[recipe].sizes[size]
    return Dimensions(
        size, **{name: found[name] for name in RECIPES[recipe].dimensions if found[name] != getattr(usual, name)}
    )


def _distance(size: Dimensions, recipe: str) -> tuple[int, float]:
    """The number of changes, and how much the width is changed."""
    usual = RECIPES[recipe].sizes[size.size].width
    return len(size.changed()), abs(math.log((size.width or usual) / usual))


def layers_text(model: AnyModel) -> str:
    """The layers of a model as text.

    >>> from seqloom import recipes
    >>> from seqloom.config.inputs import TokensConfig
    >>> layers_text(recipes.tagger("bilstm", inputs=TokensConfig(vocab_size=9), num_tags=3, size="nano"))
    '2 x bidirectional lstm, width 12'
    >>> layers_text(recipes.translator("seq2seq-dot", source=TokensConfig(vocab_size=9), target_vocab_size=9))
    '2 x bidirectional lstm, width 200; 2 x seeded lstm, 1 x alignment, width 200'
    """
    parts = [getattr(model, name) for name in model.__struct_fields__]
    listed = []
    for stack in (part for part in parts if isinstance(part, StackConfig)):
        counts = Counter(_layer_text(layer) for layer in stack.stack())
        layers = [f"{count * stack.repeat} x {name}" for name, count in counts.items()] or ["no layers"]
        listed.append(f"{', '.join(layers)}, width {stack.width:,}")
    return "; ".join(listed)


def _layer_text(layer: Config) -> str:
    """The kinds in a layer from the outside in, without the word block."""
    inner: Config | None = getattr(layer, "mixer", None)
    names = [layer.kind() if layer.kind() != "block" else "", _layer_text(inner) if inner is not None else ""]
    return " ".join(filter(None, names))


def _without(data: Any) -> Any:
    """The model as plain data, without other flags; of inputs, whose sizes depend on the data, only the kind."""
    if isinstance(data, dict):
        kept = {name: part for name, part in data.items() if name not in SET_BESIDE}
        return {name: part["kind"] if name == "input" else _without(part) for name, part in kept.items()}
    return [_without(part) for part in data] if isinstance(data, list | tuple) else data


class RunFinding(msgspec.Struct, frozen=True):
    """A finding of the data checks before training."""

    severity: str
    code: str
    rows: int
    text: str


class DataSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a run: files, rows in each set, labels, findings."""

    files: tuple[str, ...] = ()
    rows: dict[str, int] = {}
    labels: tuple[str, ...] = ()
    findings: tuple[RunFinding, ...] = ()
    messages: tuple[str, ...] = ()


def read_validations(run: Path) -> tuple[ValidationLine, ...]:
    """The validations of a run, in order."""
    path = run / RunFile.METRICS
    return of_kind(read_log(path), "validation", ValidationLine, path)


def best_of(validations: Sequence[ValidationLine]) -> ValidationLine | None:
    """The validation with the best score."""
    return next((one for one in reversed(validations) if one.best), None)


def chosen_of(validations: Sequence[ValidationLine]) -> ValidationLine | None:
    """The validation whose weights are in RUN/model: the best one, or a later one that is as good."""
    return next((one for one in reversed(validations) if (one.best if one.chosen is None else one.chosen)), None)


AnyRun = str | Path | RunFolder


class RunSummary(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """A run: its configuration, its course and its results."""

    name: str
    config: RunConfig
    model: str  # its recipe and size, or its layers
    metric: Metric  # the one that chooses the best checkpoint
    asking: str  # the command that predicts for a file; RUN stands for the folder
    span_types: tuple[str, ...] = ()  # of a tagger whose tags mark spans
    data: DataSummary
    start: StartLine | None
    steps: tuple[StepLine, ...]
    validations: tuple[ValidationLine, ...]
    end: EndLine | None  # None while it runs, or if it was killed
    speeds: tuple[SpeedLine, ...]  # of logged steps
    seconds: float  # of training, without the time between a stop and its resume
    notices: tuple[NoticeLine, ...]
    saves: tuple[SavedLine, ...]
    written: tuple[WrittenText, ...]
    scores: RunScores | None
    test_evaluations: tuple[TestEvaluationLine, ...]
    disk: dict[str, int]  # bytes of each part of the folder

    @property
    def best(self) -> ValidationLine | None:
        """The validation with the best score."""
        return best_of(self.validations)

    @property
    def chosen(self) -> ValidationLine | None:
        """The validation whose weights are in RUN/model: the best one, or a later one that is as good."""
        return chosen_of(self.validations)

    @property
    def l2(self) -> float | None:
        """The L2 strength of the chosen weights, if newton trained them: each epoch has one."""
        strengths, chosen = self.config.training.strengths, self.chosen
        return strengths[min(chosen.epoch, len(strengths)) - 1] if strengths and chosen is not None else None

    @property
    def reached(self) -> int:
        """The last step of the run; it may be later than the last logged one."""
        ends = () if self.end is None else (self.end,)
        return max((one.step for one in (*self.steps, *self.validations, *ends)), default=0)

    @property
    def chosen_scores(self) -> RunScores | None:
        """The metrics of the chosen weights, with intervals if they are in RUN/model."""
        if self.chosen is None:
            return None
        if self.scores is not None and self.scores.step == self.chosen.step:
            return self.scores
        return RunScores(step=self.chosen.step, dev=self.chosen.metrics, dev_rows=self.data.rows.get("dev", 0))

    def document(self) -> Document:
        """The report on the run, as in report.html."""
        from seqloom.training.run_report import run_document

        return run_document(self)

    def card(self) -> Document:
        """The card of its model, as in card.md."""
        from seqloom.training.run_report import card_document

        return card_document(self)


def write_pages(run: AnyRun) -> RunSummary:
    """Write RUN/report.html and RUN/card.md, and return the summary that they show.

    This happens whenever a run ends, and after each evaluation on the test set.
    """
    path, summary = _path(run), summary_of(run)
    write_file(path / RunFile.REPORT, summary.html())
    write_file(path / RunFile.CARD, summary.card().markdown())
    return summary


def _path(run: AnyRun) -> Path:
    return Path(run) if isinstance(run, str | Path) else run.path


def summary_of(
    run: AnyRun, notes: Mapping[str, Any] | None = None, known: tuple[RunConfig, Task] | None = None
) -> RunSummary:
    """The summary of a run, finished or not.

    Args:
        run: the run folder.
        notes: the notes of a model that is about to be saved (default: those in RUN/model).
        known: the configuration and task of the run, if the caller has them (default: they are read).
    """
    path = _path(run)
    if not (path / RunFile.CONFIG).is_file():
        fix = near_name(path) if not path.exists() else "give the folder of `seqloom train --out`"
        raise DataError(f"{path} is not a run folder: it has no config.toml", fix=fix)
    config, task = known or read_settings(path)
    tested, sizes = existing(path / RunFile.TEST_EVALUATIONS), {}
    for folder in (RunFile.CHECKPOINTS, RunFile.MODEL, RunFile.VOCABULARY):
        sizes[str(folder)] = sum(map(_file_size, (path / folder).rglob("*"))) if (path / folder).is_dir() else 0
    sizes["logs and report"] = sum(map(_file_size, path.iterdir()))
    return RunSummary(
        name=path.resolve().name,
        config=config,
        model=model_named(config.model, task),
        data=data_summary(path),
        metric=task.metric,
        asking=task.usage.file,
        span_types=task.span_types,
        scores=read_scores(path / RunFile.MODEL) if notes is None else scores_of(notes),
        test_evaluations=tuple(typed(record, TestEvaluationLine, tested) for record in read_lines(tested).records),
        disk={name: size for name, size in sizes.items() if size},
        **_journals(path / RunFile.METRICS, path / RunFile.EVENTS),
    )


def read_settings(path: Path) -> tuple[RunConfig, Task]:
    """The configuration and the task of a run."""
    config: RunConfig = read(path / RunFile.CONFIG, RunConfig)
    return config, task_of(RunFolder(path).spec()).with_metric(config.training.metric)


def _journals(metrics: Path, events: Path) -> dict[str, Any]:
    """The content of the two logs by the names of the summary."""
    shared, own = read_log(metrics), read_log(events)
    ended = shared[-1:] if shared and shared[-1].get("kind") == "end" else ()  # a run that was resumed has not ended
    steps, begun = of_kind(shared, "step", StepLine, metrics), of_kind(own, "start", StartLine, events)
    paces = of_kind(own, "speed", SpeedLine, events)
    notices = {(one.step, one.code, one.text): one for one in of_kind(own, "notice", NoticeLine, events)}
    texts = of_kind(own, "texts", TextsLine, events)
    return {
        "steps": steps,
        "validations": of_kind(shared, "validation", ValidationLine, metrics),
        "end": next(iter(of_kind(ended, "end", EndLine, metrics)), None),
        "start": begun[-1] if begun else None,
        "speeds": speeds_of_steps(own, {one.step for one in steps}, events),
        "seconds": paces[-1].seconds if paces else 0.0,
        "notices": tuple(notices.values()),
        "saves": of_kind(own, "checkpoint", SavedLine, events),
        "written": tuple(WrittenText(one.prompt, one.text) for one in (texts[-1].texts if texts else ())),
    }


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # a checkpoint that is removed at this moment
        return 0


def data_summary(run: Path) -> DataSummary:
    """The data of a run; empty if the folder has no record of it."""
    facts = _json(run / RunFile.DATA) or {}
    labels = _json(run / RunFile.VOCABULARY / VocabularyFile.LABELS) or []
    try:
        return DataSummary(
            files=tuple(facts.get("fingerprints", {})),
            rows=dict(facts.get("split", {}).get("counts", {})),
            labels=tuple(map(str, labels["labels"] if isinstance(labels, dict) else labels)),
            findings=tuple(map(_finding, facts.get("findings", []))),
            messages=tuple(map(str, facts.get("messages", facts.get("said", [])))),  # earlier versions wrote "said"
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(
            f"{run / 'data.json'} is not readable: {error}", fix="restore the file from a backup"
        ) from None


def _finding(value: Any) -> RunFinding:
    """A finding with the text of its first example; a named tuple is an array in JSON."""
    if isinstance(value, dict):
        value = [value["severity"], value["code"], value["rows"], value.get("samples", [])]
    severity, code, rows, samples = value
    first = samples[0] if samples else {}
    text = first.get("text", "") if isinstance(first, dict) else first[1]
    return RunFinding(str(severity), str(code), int(rows), str(text))


def _json(path: Path) -> Any:
    if not path.exists():
        return None
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is not JSON: {error}", fix="restore the file from a backup") from None
