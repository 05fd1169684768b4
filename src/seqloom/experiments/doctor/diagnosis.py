"""A run folder looked at from beginning to end: its lines, its model, and a few batches of its dev part.

    RUN/metrics.jsonl, events.jsonl ──▶ curves, costs
    RUN/data.json                   ──▶ labels, parts
    RUN/model + the dev part        ──▶ inside, labels        left out, and said so, where one of them is missing

The test part is never read.
"""

from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from seqloom.bundle import built, read_bundle
from seqloom.config.base import dropouts
from seqloom.config.training import RunConfig
from seqloom.data.checks.check import DataFinding
from seqloom.data.run_files import located
from seqloom.errors import ConfigError, DamagedError, SeqloomError, near_name
from seqloom.experiments.doctor.curves import ENOUGH, STEPS, Story, curve_findings, losses_drawn, told
from seqloom.experiments.doctor.data import BALANCED, Confusion, cost_findings, label_findings, parts_said
from seqloom.experiments.doctor.findings import Diagnosis, Finding
from seqloom.experiments.doctor.inside import ModelInside, inside_figures, inside_findings, look_inside
from seqloom.files.layouts import RunFile
from seqloom.inference.evaluation import origin_for, own_data
from seqloom.report.figures.figure import Figure
from seqloom.tasks.evaluation import evaluate
from seqloom.tasks.registry import task_of
from seqloom.training.run_folder import RunFolder

OF_STEPS = ("--find-lr", "--rate", "--schedule", "--warm-up", "--clip", "--batch", "--decay")
BATCHES = 8  # of the dev part: enough to see whether units ever wake, and little to wait for


class ModelLook(NamedTuple):
    """What was seen of a run's model on its dev part."""

    inside: ModelInside = ModelInside()
    confusion: Confusion = ()
    lengths: tuple[int, ...] = ()  # of the rows of the dev part
    has_weights: bool = False  # whether its labels can be given weights that balance them


def diagnose(run: str | Path) -> Diagnosis:
    """What is wrong with a run, if anything, and what to change."""
    folder = RunFolder(run)
    if not (folder.path / RunFile.CONFIG).is_file():
        fix = f"give the folder of a run; {near_name(folder.path)}" if not folder.path.exists() else "give a run folder"
        raise ConfigError(f"{folder.path} is not the folder of a run: it has no {RunFile.CONFIG}", fix=fix)
    config, story = folder.config(), told(folder.metrics(), folder.events())
    short = f"after {story.steps:,} steps a curve has no form yet; {STEPS * ENOUGH} steps or more are needed"
    said = [] if story.is_long_enough or config.training.strengths else [short]
    looked, warned = ModelLook(), tuple[DataFinding, ...]()
    try:
        warned = data_findings(folder)
        looked = look(folder, config)
    except SeqloomError as error:
        said.append(f"the model was not looked into: {error.in_brief}")
    said += parts_said(warned, len(looked.lengths))
    return diagnosis(folder.path.name, config, story, looked, warned, said=tuple(said))


def data_findings(folder: RunFolder) -> tuple[DataFinding, ...]:
    """What the data check found before training; DamagedError if the folder does not tell."""
    try:
        return msgspec.convert(folder.data().findings, tuple[DataFinding, ...])
    except msgspec.ValidationError as error:
        raise DamagedError(
            f"{folder.path / RunFile.DATA}: expected findings as training writes them, found others ({error})",
            fix="restore it from a copy, or train again",
        ) from None


def diagnosis(
    name: str,
    config: RunConfig,
    story: Story,
    looked: ModelLook,
    warned: tuple[DataFinding, ...] = (),
    *,
    said: tuple[str, ...] = (),
) -> Diagnosis:
    """The findings of all rules together."""
    solved = bool(config.training.strengths)  # along strengths, a curve is no descent to be judged
    findings: tuple[Finding, ...] = (
        *(() if solved else curve_findings(story, config.training, dropout=max(dropouts(config.model), default=0.0))),
        *inside_findings(looked.inside, story),
        *label_findings(looked.confusion, warned, weighing=(BALANCED,) if looked.has_weights else ()),
        *(() if solved else cost_findings(story, config.training, looked.lengths)),
    )
    if solved:  # no advice about steps by batches, which a model that is solved does not take
        kept = [tuple(advice for advice in one.advice if advice.flag not in OF_STEPS) for one in findings]
        findings = tuple(one._replace(advice=advice) for one, advice in zip(findings, kept, strict=True))
    curves: tuple[Figure, ...] = (losses_drawn(story, "Loss"),) if story.blocks else ()
    findings, figures = drawn_once(findings, (*curves, *inside_figures(looked.inside)))
    return Diagnosis(name=name, findings=findings, figures=figures, said=said, judged=solved or story.is_long_enough)


def drawn_once(
    findings: tuple[Finding, ...], figures: tuple[Figure, ...]
) -> tuple[tuple[Finding, ...], tuple[Figure, ...]]:
    """The same without pictures that stand before, under another title: a curve is drawn where it is first told of."""
    shown: list[dict[str, object]] = []

    def is_new(figure: Figure | None) -> bool:
        picture = {} if figure is None else {**figure.data(), "title": ""}
        known = picture in shown
        shown.append(picture)
        return not known

    kept = tuple(one if is_new(one.figure) else one._replace(figure=None) for one in findings)
    return kept, tuple(figure for figure in figures if is_new(figure))


def look(folder: RunFolder, config: RunConfig) -> ModelLook:
    """What the model of a run does on its dev part; SeqloomError where model or data are not there any more."""
    bundle = read_bundle(folder.model)
    model, task = built(bundle), task_of(bundle.meaning).deciding_by(config.training.metric)
    origin = origin_for(own_data(located(folder.path, config), "dev"), "dev", bundle.meaning, config.encoding)
    prepared = origin.prepared
    loader = task.loader(prepared, "dev", config.training.feed, seed=0, workers=0)
    batches = list(islice((step.batch for step in loader.steps(until=1) if step.batch is not None), BATCHES))
    if not batches:
        raise ConfigError("the run has no dev part", fix="train with --dev FILE, or --shares 10%,10%")
    lengths = prepared.columns["input"].select(prepared.parts["dev"]).lengths
    # What --init brings keeps its own head.
    weighed = "class_weights" in task.settings and prepared.schema.target.one_label and not config.training.init
    inside, confusion = look_inside(task, model, batches), evaluate(task, model, batches).confusion
    return ModelLook(inside, confusion, tuple(lengths.tolist()), weighed)
