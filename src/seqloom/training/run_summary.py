"""A run in one value: all that its folder says, read once, typed. The page, the card and notebooks draw it.

config.toml ─┐
data.json ───┤
metrics.jsonl┼──▶ RunSummary ──▶ report.html, card.md, JSON, notebook
events.jsonl ┤
looks.jsonl ─┤
model/ ──────┘   the scores of the shipped weights are among its notes
"""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from seqloom.config.base import Config, read
from seqloom.config.models import AnyModel
from seqloom.config.stacks import StackConfig
from seqloom.config.training import RunConfig
from seqloom.errors import ConfigError, DamagedError, DataError, near_name
from seqloom.files.disk import write_file
from seqloom.files.jsonl import read_lines
from seqloom.files.layouts import RunFile, VocabularyFile
from seqloom.recipes.families import SIZES, Size
from seqloom.report.document import Document, Shown
from seqloom.tasks.registry import task_of
from seqloom.tasks.task import HeadSettings, Metric, Task
from seqloom.training.run_folder import RunFolder
from seqloom.training.state import Environment

# The lines of a run's journals as typed values; what a later version adds to a line is passed over.

Kind = TypeVar("Kind")


class StepLine(msgspec.Struct, frozen=True):
    """Some steps: see `events.Stepped`; None where a number was not finite."""

    step: int
    epoch: int
    loss: float | None
    rate: float
    norm: float | None
    largest: float | None
    clipped: float
    skipped: int
    symbols: int
    padding: float
    share: float = 0.0


class SampleLine(msgspec.Struct, frozen=True):
    """One example of a validation."""

    input: str
    said: str
    true: str
    right: bool | None


class ValidationLine(msgspec.Struct, frozen=True):
    """A look at the dev part."""

    step: int
    epoch: int
    metrics: dict[str, float | None]
    best: bool
    samples: tuple[SampleLine, ...] = ()
    chosen: bool | None = None  # None in the journals of old runs, which shipped the best


class EndLine(msgspec.Struct, frozen=True):
    """The run is over, or stopped for now."""

    step: int
    why: str
    best_step: int = 0
    chosen_step: int = 0
    metrics: dict[str, float | None] = {}


class BegunLine(msgspec.Struct, frozen=True):
    """The run began or went on."""

    step: int
    parameters: int
    trained: int
    checkpoint_bytes: int
    environment: Environment
    steps: int | None = None
    said: tuple[str, ...] = ()


class PaceLine(msgspec.Struct, frozen=True):
    """How fast it went."""

    step: int
    seconds: float
    symbols_per_second: float | None = None
    waited: float | None = None
    memory: int = 0


class NoticeLine(msgspec.Struct, frozen=True):
    """Something that people should know."""

    step: int
    code: str
    text: str
    fix: str = ""


class SavedLine(msgspec.Struct, frozen=True):
    """A checkpoint was written, or could not be."""

    step: int
    problem: str = ""


class TestLook(msgspec.Struct, frozen=True):
    """One look at the test part."""

    metrics: dict[str, float | None]
    intervals: dict[str, tuple[float | None, float | None]] = {}
    when: str = ""
    seqloom: str = ""
    model_sha256: str = ""


def of_kind(records: Iterable[dict[str, Any]], kind: str, line: type[Kind], path: Path) -> tuple[Kind, ...]:
    """The records of one kind, typed; DamagedError for one that lacks what such a line has."""
    return tuple(typed(record, line, path) for record in records if record.get("kind") == kind)


def typed(record: dict[str, Any], line: type[Kind], path: Path) -> Kind:
    """A record as a typed value."""
    try:
        return msgspec.convert(record, line)
    except msgspec.ValidationError as error:
        raise DamagedError(f"{path}: a line is not what training writes: {error}", fix="train again") from None


def paces_of_steps(records: Iterable[dict[str, Any]], reported: Collection[int], path: Path) -> tuple[PaceLine, ...]:
    """The pace at each of the reported steps that the events know, in order.

        events   begun  S10  S20 V20  V25  S30 | begun  S30  S40      S: a report of steps, V: a validation; | a kill
        paces            10   20                         30   40

    A validation has a line of the kind "pace" too, of the few steps since the report before it, often of none, which
    would draw a pace of 0. Of two lines for a step in one start the first is of the steps; and of steps that were taken
    again, after a kill, the last time counts.
    """
    found: dict[int, PaceLine] = {}
    before: int | None = None  # the step of the pace before this one, in the same start
    for record in records:
        if record.get("kind") == "begun":
            before = None
        elif record.get("kind") == "pace":
            pace = typed(record, PaceLine, path)
            if pace.step in reported and pace.step != before:
                found[pace.step] = pace
            before = pace.step
    return tuple(found[step] for step in sorted(found))


# Scores of the shipped weights on dev: the metrics, how sure they are, and what was taken for what.
#
# They are among the notes of the model folder, because they belong to its weights: both are replaced together.

Interval = tuple[float | None, float | None]


class Confused(msgspec.Struct, frozen=True, array_like=True):
    """How often one answer was given where another was right; the two may be the same."""

    true: str
    said: str
    count: int


class RunScores(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of the weights of a step with their 95 % intervals; a number that is not finite is None."""

    step: int
    dev: dict[str, float | None] = {}
    dev_rows: int = 0
    intervals: dict[str, Interval] = {}
    confusion: tuple[Confused, ...] = ()
    cross_fitted: bool = False  # whether each half of dev was read with the calibration of the other


def scores_of(notes: Mapping[str, Any]) -> RunScores:
    """The scores among the notes of a model.

    >>> scores_of({"step": 20, "dev": {"accuracy": 0.5}, "intervals": {"accuracy": [0.4, float("nan")]}}).intervals
    {'accuracy': (0.4, None)}
    """
    return msgspec.convert(_finite(notes), RunScores)


def read_scores(model: Path) -> RunScores | None:
    """The scores in a model folder; None where there is none yet."""
    path = model / "config.json"
    if not path.exists():
        return None
    try:
        return scores_of(msgspec.json.decode(path.read_bytes())["notes"])
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise DamagedError(f"{path} is not what training wrote: {error}", fix="train again") from None


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# What to call a model: its recipe and size, or its layers in words.
#
# A run's file holds the layers that a recipe made, not the recipe's name: layers are what counts. People asked for
# "bilstm, tiny", so the name is found again: it is that of the recipe that makes the same layers for the same task.

SET_BESIDE = ("dropout", "head")  # flags of training set them, whatever the recipe


def model_named(model: AnyModel, task: Task) -> str:
    """The recipe and the size that make this model for its task; of a model of somebody's own, its layers."""
    layers = _without(msgspec.to_builtins(model))

    def makes(recipe: str, size: Size) -> bool:
        try:
            return bool(_without(msgspec.to_builtins(task.model(recipe, size, HeadSettings()))) == layers)
        except ConfigError:  # not every recipe reads every kind of input
            return False

    for recipe in task.recipes():
        sizes = [size for size in SIZES if makes(recipe, size)]
        if sizes:
            return f"{recipe}, {sizes[0]}" if len(sizes) == 1 else recipe  # some have one size only
    return layers_said(model)


def layers_said(model: AnyModel) -> str:
    """The layers of a model in words.

    >>> from seqloom import recipes
    >>> from seqloom.config.inputs import TokensConfig
    >>> layers_said(recipes.tagger("bilstm", inputs=TokensConfig(vocab_size=9), num_tags=3, size="tiny"))
    '2 x bidirectional lstm, width 12'
    >>> layers_said(recipes.translator("seq2seq-dot", source=TokensConfig(vocab_size=9), target_vocab_size=9))
    '2 x bidirectional lstm, width 200; 2 x seeded lstm, 1 x alignment, width 200'
    """
    parts = [getattr(model, name) for name in model.__struct_fields__]
    told = []
    for stack in (part for part in parts if isinstance(part, StackConfig)):
        counts = Counter(_layer_said(layer) for layer in stack.stack())
        layers = [f"{count * stack.repeat} x {said}" for said, count in counts.items()] or ["no layers"]
        told.append(f"{', '.join(layers)}, width {stack.width:,}")
    return "; ".join(told)


def _layer_said(layer: Config) -> str:
    """The kinds in a layer from the outside in; a block is only what holds a mixer."""
    inner: Config | None = getattr(layer, "mixer", None)
    names = [layer.kind() if layer.kind() != "block" else "", _layer_said(inner) if inner is not None else ""]
    return " ".join(filter(None, names))


def _without(data: Any) -> Any:
    """The plain data of a model without what training sets; of inputs, whose sizes are those of the data, the kind."""
    if isinstance(data, dict):
        kept = {name: part for name, part in data.items() if name not in SET_BESIDE}
        return {name: part["kind"] if name == "input" else _without(part) for name, part in kept.items()}
    return [_without(part) for part in data] if isinstance(data, list | tuple) else data


class RunFinding(msgspec.Struct, frozen=True):
    """Something that was found in the data before training."""

    severity: str
    code: str
    rows: int
    text: str


class DataSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a run: files, rows of each part, labels, findings."""

    files: tuple[str, ...] = ()
    rows: dict[str, int] = {}
    labels: tuple[str, ...] = ()
    findings: tuple[RunFinding, ...] = ()
    said: tuple[str, ...] = ()


AnyRun = str | Path | RunFolder


class RunSummary(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """What a run is, how it went, and what came out."""

    name: str
    config: RunConfig
    model: str  # its recipe and size, or its layers
    metric: Metric  # the one that decides which weights are shipped
    asking: str  # the command that answers a file; RUN stands for the folder
    data: DataSummary
    begun: BegunLine | None
    steps: tuple[StepLine, ...]
    validations: tuple[ValidationLine, ...]
    end: EndLine | None  # None while it goes on, or where it was cut off
    paces: tuple[PaceLine, ...]  # of reports of steps
    seconds: float  # of training, stops not counted
    notices: tuple[NoticeLine, ...]
    saves: tuple[SavedLine, ...]
    scores: RunScores | None
    looks: tuple[TestLook, ...]
    disk: dict[str, int]  # bytes of each part of the folder

    @property
    def best(self) -> ValidationLine | None:
        """The validation with the best score."""
        return next((one for one in reversed(self.validations) if one.best), None)

    @property
    def chosen(self) -> ValidationLine | None:
        """The validation whose weights are shipped: the best one, or a later one that is as good."""
        looks = reversed(self.validations)
        return next((one for one in looks if (one.best if one.chosen is None else one.chosen)), None)

    @property
    def reached(self) -> int:
        """The step that the run came to; steps are reported every so often, so the last report may lie before it."""
        ends = () if self.end is None else (self.end,)
        return max((one.step for one in (*self.steps, *self.validations, *ends)), default=0)

    @property
    def chosen_scores(self) -> RunScores | None:
        """The metrics of the chosen weights: with intervals where the shipped ones are those, else of the look."""
        if self.chosen is None:
            return None
        if self.scores is not None and self.scores.step == self.chosen.step:
            return self.scores
        return RunScores(step=self.chosen.step, dev=self.chosen.metrics, dev_rows=self.data.rows.get("dev", 0))

    def document(self) -> Document:
        """The report on the run."""
        from seqloom.training.run_report import run_document

        return run_document(self)

    def card(self) -> Document:
        """The card of its model."""
        from seqloom.training.run_report import card_document

        return card_document(self)


def write_pages(run: AnyRun) -> RunSummary:
    """The summary from which RUN/report.html and RUN/card.md were written; both replace what was there.

    They are written whenever a run ends, and after each look at the test part.
    """
    path, summary = _path(run), summary_of(run)
    write_file(path / RunFile.REPORT, summary.html())
    write_file(path / RunFile.CARD, summary.card().markdown())
    return summary


def _path(run: AnyRun) -> Path:
    return Path(run) if isinstance(run, str | Path) else run.path


def summary_of(run: AnyRun, notes: Mapping[str, Any] | None = None) -> RunSummary:
    """The summary of a run, finished or not; `notes` are those of a model that is about to be shipped."""
    path = _path(run)
    if not (path / RunFile.CONFIG).is_file():
        fix = near_name(path) if not path.exists() else "name the folder that `seqloom train --out` made"
        raise DataError(f"{path} is no run folder: it has no config.toml", fix=fix)
    config: RunConfig = read(path / RunFile.CONFIG, RunConfig)
    task = task_of(RunFolder(path).meaning()).deciding_by(config.training.metric)
    looks, sizes = path / RunFile.LOOKS, {}
    for folder in (RunFile.CHECKPOINTS, RunFile.MODEL, RunFile.VOCABULARY):
        sizes[str(folder)] = sum(map(_file_size, (path / folder).rglob("*"))) if (path / folder).is_dir() else 0
    sizes["journals and pages"] = sum(map(_file_size, path.iterdir()))
    return RunSummary(
        name=path.resolve().name,
        config=config,
        model=model_named(config.model, task),
        data=data_summary(path),
        metric=task.metric,
        asking=task.asking.file,
        scores=read_scores(path / RunFile.MODEL) if notes is None else scores_of(notes),
        looks=tuple(typed(record, TestLook, looks) for record in read_lines(looks).records),
        disk={name: size for name, size in sizes.items() if size},
        **_journals(path / RunFile.METRICS, path / RunFile.EVENTS),
    )


def _journals(metrics: Path, events: Path) -> dict[str, Any]:
    """What the two journals of a run tell, by the names of the summary."""
    shared, own = read_lines(metrics).records, read_lines(events).records
    ended = shared[-1:] if shared and shared[-1].get("kind") == "end" else ()  # a run that went on has not ended
    steps, begun = of_kind(shared, "step", StepLine, metrics), of_kind(own, "begun", BegunLine, events)
    paces = of_kind(own, "pace", PaceLine, events)
    notices = {(one.step, one.code, one.text): one for one in of_kind(own, "notice", NoticeLine, events)}
    return {
        "steps": steps,
        "validations": of_kind(shared, "validation", ValidationLine, metrics),
        "end": next(iter(of_kind(ended, "end", EndLine, metrics)), None),
        "begun": begun[-1] if begun else None,
        "paces": paces_of_steps(own, {one.step for one in steps}, events),
        "seconds": paces[-1].seconds if paces else 0.0,
        "notices": tuple(notices.values()),
        "saves": of_kind(own, "saved", SavedLine, events),
    }


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # a checkpoint that retention takes away while we look
        return 0


def data_summary(run: Path) -> DataSummary:
    """The data of a run; empty where the folder does not say."""
    facts = _json(run / RunFile.DATA) or {}
    labels = _json(run / RunFile.VOCABULARY / VocabularyFile.LABELS) or []
    try:
        return DataSummary(
            files=tuple(facts.get("fingerprints", {})),
            rows=dict(facts.get("split", {}).get("counts", {})),
            labels=tuple(map(str, labels["labels"] if isinstance(labels, dict) else labels)),
            findings=tuple(map(_finding, facts.get("findings", []))),
            said=tuple(map(str, facts.get("said", []))),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedError(f"{run / 'data.json'} is not what training wrote: {error}", fix="train again") from None


def _finding(value: Any) -> RunFinding:
    """A finding with the text of its first case; a named tuple is an array in JSON."""
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
        raise DamagedError(f"{path} is not JSON: {error}", fix="train again") from None
