"""A run in one value: all that its folder says, read once, typed. The page, the card and notebooks draw it.

config.toml ─┐
data.json ───┤
metrics.jsonl┼──▶ RunSummary ──▶ report.html, card.md, JSON, notebook
events.jsonl ┤
looks.jsonl ─┤
model/ ──────┘   the scores of the shipped weights are among its notes
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from seqloom.config.reading import read
from seqloom.config.training import RunConfig
from seqloom.errors import DamagedError, DataError, near_name
from seqloom.files.disk import write_file
from seqloom.files.layouts import RunFile, VocabularyFile
from seqloom.report.document import Document, Shown
from seqloom.tasks.registry import task_of
from seqloom.tasks.task import Metric
from seqloom.training.pages.lines import (
    BegunLine,
    EndLine,
    NoticeLine,
    PaceLine,
    SavedLine,
    StepLine,
    TestLook,
    ValidationLine,
    of_kind,
    paces_of_steps,
    records_of,
    typed,
)
from seqloom.training.pages.naming import model_named
from seqloom.training.pages.scores import RunScores, read_scores, scores_of
from seqloom.training.run_folder import RunFolder


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


class HasPath(Protocol):
    """A run folder, as `training.folder` has it."""

    @property
    def path(self) -> Path:
        """Where it lies."""


AnyRun = str | Path | HasPath


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
        from seqloom.training.pages.report import run_document

        return run_document(self)

    def card(self) -> Document:
        """The card of its model."""
        from seqloom.training.pages.card import card_document

        return card_document(self)


def write_pages(run: AnyRun) -> RunSummary:
    """The summary from which RUN/report.html and RUN/card.md were written; both replace what was there.

    They are written whenever a run ends, and after each look at the test part.
    """
    path, summary = path_of(run), summary_of(run)
    write_file(path / RunFile.REPORT, summary.html())
    write_file(path / RunFile.CARD, summary.card().markdown())
    return summary


def path_of(run: AnyRun) -> Path:
    """The folder of a run."""
    return Path(run) if isinstance(run, str | Path) else run.path


def summary_of(run: AnyRun, notes: Mapping[str, Any] | None = None) -> RunSummary:
    """The summary of a run, finished or not; `notes` are those of a model that is about to be shipped."""
    path = path_of(run)
    if not (path / RunFile.CONFIG).is_file():
        fix = near_name(path) if not path.exists() else "name the folder that `seqloom train --out` made"
        raise DataError(f"{path} is no run folder: it has no config.toml", fix=fix)
    config: RunConfig = read(path / RunFile.CONFIG, RunConfig)
    task = task_of(RunFolder(path).meaning()).deciding_by(config.training.metric)
    metrics, looks = _metrics(path / RunFile.METRICS), path / RunFile.LOOKS
    return RunSummary(
        name=path.resolve().name,
        config=config,
        model=model_named(config.model, task),
        data=data_summary(path),
        metric=task.metric,
        asking=task.asking.file,
        scores=read_scores(path / RunFile.MODEL) if notes is None else scores_of(notes),
        looks=tuple(typed(record, TestLook, looks) for record in records_of(looks)),
        disk=_disk(path),
        **metrics,
        **_events(path / RunFile.EVENTS, {one.step for one in metrics["steps"]}),
    )


def _metrics(path: Path) -> dict[str, Any]:
    records = records_of(path)
    ended = records[-1:] if records and records[-1].get("kind") == "end" else ()  # a run that went on has not ended
    return {
        "steps": of_kind(records, "step", StepLine, path),
        "validations": of_kind(records, "validation", ValidationLine, path),
        "end": next(iter(of_kind(ended, "end", EndLine, path)), None),
    }


def _events(path: Path, steps: Collection[int]) -> dict[str, Any]:
    records = records_of(path)
    begun = of_kind(records, "begun", BegunLine, path)
    paces = of_kind(records, "pace", PaceLine, path)
    notices = {(one.step, one.code, one.text): one for one in of_kind(records, "notice", NoticeLine, path)}
    return {
        "begun": begun[-1] if begun else None,
        "paces": paces_of_steps(records, steps, path),
        "seconds": paces[-1].seconds if paces else 0.0,
        "notices": tuple(notices.values()),
        "saves": of_kind(records, "saved", SavedLine, path),
    }


def _disk(run: Path) -> dict[str, int]:
    """Bytes of the folders of a run, and of its other files together."""
    sizes = {str(folder): _size(run / folder) for folder in (RunFile.CHECKPOINTS, RunFile.MODEL, RunFile.VOCABULARY)}
    sizes["journals and pages"] = sum(_file_size(path) for path in run.iterdir())
    return {name: size for name, size in sizes.items() if size}


def _size(folder: Path) -> int:
    return sum(map(_file_size, folder.rglob("*"))) if folder.is_dir() else 0


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
