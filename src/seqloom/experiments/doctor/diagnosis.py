"""The diagnosis of a run folder: its logs, its model, and some batches of its training and dev sets.

    RUN/metrics.jsonl, events.jsonl ──▶ curves, costs
    RUN/data.json                   ──▶ labels, parts
    RUN/model + the dev set         ──▶ inside, labels       skipped with a message if one of them is missing
    ... + the training set          ──▶ scores               the same

The test set is never read.
"""

import math
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from seqloom.bundle import built, read_bundle
from seqloom.config.base import dropouts
from seqloom.config.data import AnySplit, RandomSplit
from seqloom.config.options import strict
from seqloom.config.training import RunConfig
from seqloom.data.checks.check import DataFinding
from seqloom.data.dataset import open_without_test
from seqloom.data.prepared import GivenEncoding, Prepared, prepare
from seqloom.data.problems import Ledger
from seqloom.data.readers.files import cache_folder
from seqloom.data.run_files import RunData, located
from seqloom.errors import ConfigError, DamagedError, DataError, SeqloomError, near_name
from seqloom.experiments.baselines import batches_of, training_batches
from seqloom.experiments.doctor.curves import (
    ENOUGH,
    OVERFITS,
    STEPS,
    Story,
    curve_findings,
    losses_drawn,
    risen_dev_loss,
    story_of,
)
from seqloom.experiments.doctor.data import (
    BALANCED,
    Confusion,
    cost_findings,
    label_findings,
    never_found,
    never_scored,
    split_messages,
)
from seqloom.experiments.doctor.findings import Diagnosis, Finding
from seqloom.experiments.doctor.inside import ModelInside, inside_figures, inside_findings, measure_inside
from seqloom.experiments.doctor.scores import (
    ROWS,
    AnyBatch,
    ScoreBatches,
    Scores,
    as_good,
    cheaper_runs,
    low_score,
    measure_scores,
    score_findings,
    scores_table,
)
from seqloom.files.layouts import RunFile
from seqloom.inference.evaluation import origin_for, own_data
from seqloom.report.figures.figure import Figure
from seqloom.report.numbers import share
from seqloom.tasks.evaluation import evaluate
from seqloom.tasks.task import LOSS, Metric, ModelSpec, task_of
from seqloom.training.run_folder import RunFolder
from seqloom.training.run_summary import RunScores, read_scores
from seqloom.training.step import elements_of

OF_STEPS = (
    *("--find-lr", "--lr", "--schedule", "--warmup", "--clip-norm", "--batch-tokens", "--weight-decay"),
    *("--epochs", "--steps", "--patience", "--size", "--dropout"),
)
LARGEST_DEV = 50  # percent of the rows that are suggested for the dev set
BATCHES = 8  # of the dev set: enough to see whether units are dead, and quick
SCORED_TOKENS = 8_192  # of the dev set on which scores are compared, and at least ROWS rows: small sets are complete


class ModelMeasurements(NamedTuple):
    """Measurements of a run's model on its dev set."""

    inside: ModelInside = ModelInside()
    confusion: Confusion = ()
    lengths: tuple[int, ...] = ()  # of the rows of the dev set
    metric: Metric = LOSS
    scored_rows: int = 0  # of the dev set; 0 where tokens are scored, not rows
    has_weights: bool = False  # whether --class-weights can be used
    scores: Scores = Scores()
    scored_on: str = "the dev set"
    score_of_all: tuple[tuple[str, float], ...] = ()  # of the run, if `scored_on` is a part of the dev set
    messages: tuple[str, ...] = ()
    checked: bool = True  # False: the model or the dev set is missing
    compared: bool = True  # False: the dev set is too small, or the training set is missing
    next: tuple[str, ...] = ()  # commands that train a cheaper model


@strict
def diagnose(run: str | Path) -> Diagnosis:
    """Find problems in a run, and what to change. Returns a Diagnosis; the test set is never read."""
    folder = RunFolder(run)
    if not (folder.path / RunFile.CONFIG).is_file():
        fix = near_name(folder.path) if not folder.path.exists() else "give the folder of `seqloom train --out`"
        raise ConfigError(f"{folder.path} is not a run folder: it has no {RunFile.CONFIG}", fix=fix)
    config, story = folder.config(), story_of(folder.metrics(), folder.events())
    short = f"the run has {story.steps:,} steps; its curves can be checked from {STEPS * ENOUGH} steps on"
    messages = [] if story.is_long_enough or config.training.strengths else [short]
    measured, warned = ModelMeasurements(checked=False), tuple[DataFinding, ...]()
    try:
        warned = data_findings(folder)
        measured = measure(folder, config)
    except SeqloomError as error:
        messages.append(f"the model was not checked: {error.in_brief}")
    messages += measured.messages
    messages += risen_dev_loss(story, measured.metric)
    messages += split_messages(warned, measured.scored_rows, measured.metric)
    if not story.end_reason and story.progress < 1:
        messages.append(f"the run has not ended: {share(story.progress)} of its training is done")
    found = diagnosis(folder.path.name, config, story, measured, warned, messages=tuple(messages))
    if not found.findings and config.data.has_test:
        found = replace(found, next=(*found.next, f"seqloom evaluate {shlex.quote(str(folder.path))} --split test"))
    return replace(found, findings=(*stopped(story, folder.path), *found.findings))


def stopped(story: Story, path: Path) -> tuple[Finding, ...]:
    """The finding about a run that was stopped before its end, and not resumed."""
    if story.end_reason != "stopped" or not story.progress < 1:
        return ()
    done = share(story.progress)
    finding = Finding(
        "run.stopped",
        "The run was stopped before its end",
        f"Only {done} of the training is done. Resume it: seqloom train --out {shlex.quote(str(path))}",
        {"share of the training": story.progress, "steps": float(story.steps)},
    )
    return (finding,)


def data_findings(folder: RunFolder) -> tuple[DataFinding, ...]:
    """The findings of the data check before training."""
    try:
        return msgspec.convert(folder.data().findings, tuple[DataFinding, ...])
    except msgspec.ValidationError as error:
        raise DamagedError(
            f"{folder.path / RunFile.DATA}: the findings are not readable ({error})",
            fix="restore the file from a backup, or train again",
        ) from None


def diagnosis(
    name: str,
    config: RunConfig,
    story: Story,
    measured: ModelMeasurements,
    warned: tuple[DataFinding, ...] = (),
    *,
    messages: tuple[str, ...] = (),
) -> Diagnosis:
    """The findings of all rules."""
    solved = bool(config.training.strengths)  # the curve of newton is no gradient descent
    dropout = max(dropouts(config.model), default=0.0)
    curves = () if solved else curve_findings(story, config.training, dropout=dropout)
    scores = measured.scores._replace(memorized=any(one.title == OVERFITS for one in curves))
    learning = (*curves, *score_findings(scores, story, config.training, dropout=dropout))
    if any(
        one.code == "score.baseline" for one in learning
    ):  # it is the first: a simpler model needs no regularization
        learning = tuple(sorted(learning, key=lambda one: one.title == OVERFITS))
    low = None if learning else low_score(measured.scores, story, config.training, dropout)
    findings: tuple[Finding, ...] = (
        *(learning if low is None else (low,)),
        *inside_findings(measured.inside, story),
        *label_findings(measured.confusion, warned, weighing=(BALANCED,) if measured.has_weights else ()),
        *(() if solved else cost_findings(story, config.training, measured.lengths)),
    )
    codes = [one.code for one in findings]  # a curve and a score may say the same; the curve has the picture
    findings = tuple(one for at, one in enumerate(findings) if one.code not in codes[:at])
    if solved:  # no advice about gradient descent
        kept = [tuple(advice for advice in one.advice if advice.flag not in OF_STEPS) for one in findings]
        findings = tuple(one._replace(advice=advice) for one, advice in zip(findings, kept, strict=True))
    pictures: tuple[Figure, ...] = (losses_drawn(story, "Loss"),) if story.blocks else ()
    findings, figures = drawn_once(findings, (*pictures, *inside_figures(measured.inside)))
    return Diagnosis(
        name=name,
        findings=findings,
        metric=measured.scores.metric.name,
        scores=scores_table(measured.scores, measured.score_of_all),
        scored_on=measured.scored_on,
        figures=figures,
        messages=messages,
        long_enough=solved or story.is_long_enough,
        model_checked=measured.checked,
        scores_compared=measured.compared,
        next=measured.next,
    )


def drawn_once(
    findings: tuple[Finding, ...], figures: tuple[Figure, ...]
) -> tuple[tuple[Finding, ...], tuple[Figure, ...]]:
    """The same without repeated figures: each is drawn where it appears first."""
    shown: list[dict[str, object]] = []

    def is_new(figure: Figure | None) -> bool:
        picture = {} if figure is None else {**figure.data(), "title": ""}
        known = picture in shown
        shown.append(picture)
        return not known

    kept = tuple(one if is_new(one.figure) else one._replace(figure=None) for one in findings)
    return kept, tuple(figure for figure in figures if is_new(figure))


def measure(folder: RunFolder, config: RunConfig) -> ModelMeasurements:
    """Measure the model of a run on its dev set; SeqloomError if the model or the data is missing."""
    bundle = read_bundle(folder.model)
    model, task = built(bundle), task_of(bundle.spec).with_metric(config.training.metric)
    run, messages = located(folder.path, config), tuple[str, ...]()
    both: Prepared | None = None
    try:
        both = both_sets(run, bundle.spec)
    except SeqloomError as error:
        messages = (f"the scores were not compared with baselines: {error.in_brief}",)
    prepared = both or origin_for(own_data(run, "dev"), "dev", bundle.spec, config.encoding).prepared
    every = batches_of(task, prepared, "dev", config.training.batching)
    batches = scored_batches(every)
    if not batches:
        raise ConfigError("the run has no dev set", fix="train with --dev FILE, or --dev-size 10% --test-size 10%")
    lengths = prepared.columns["input"].select(prepared.splits["dev"]).lengths
    # A model of --init keeps its own head.
    weighed = "class_weights" in task.settings and prepared.schema.target.one_label and not config.training.init
    inside, own = measure_inside(task, model, batches[:BATCHES]), evaluate(task, model, batches)
    scores, running = Scores(), prepared.schema.target.is_running
    if both is not None:
        train = training_batches(task, both, config.training.batching)
        scores = measure_scores(task, model, config.training, both, ScoreBatches(train, batches), own)
        fix = more_dev_rows(config.data.split, own.rows) if own.rows < ROWS and not running else ""
        messages = (f"the scores were not compared with baselines: {scores.problem}{fix}",) if scores.problem else ()
    scored_on, of_all = "the dev set", tuple[tuple[str, float], ...]()
    known = read_scores(folder.model) or RunScores(step=0)
    if next(every, None) is not None:
        scored_on = "a part of the dev set" if running else f"{own.rows:,} of {len(lengths):,} dev rows"
        score = known.dev.get(task.metric.name)
        named = "this run on the complete dev set" if running else f"this run on all {len(lengths):,} dev rows"
        of_all = () if score is None else ((named, score),)
    uncompared = bool(messages)
    missing = () if both is None else never_scored(both, task.span_types)
    found = never_found(known.per_class, spans=prepared.schema.target.of_steps)
    messages = (*messages, *found, *missing, *as_good(scores))
    # Confusions of spans say nothing about the frequency of labels.
    confusion = own.confusion if prepared.schema.target.one_label else ()
    return ModelMeasurements(
        inside,
        confusion,
        tuple(lengths.tolist()),
        metric=task.metric,
        scored_rows=0 if running else len(lengths),
        has_weights=weighed,
        scores=scores,
        scored_on=scored_on,
        score_of_all=of_all,
        messages=messages,
        compared=not uncompared,
        next=cheaper_runs(scores, run.config),
    )


def more_dev_rows(split: AnySplit | None, rows: int) -> str:
    """How a new run gets a dev set that is large enough, as the end of a sentence.

    >>> more_dev_rows(RandomSplit(dev_size=0.1), 32)
    '; train a new run with --dev-size 16%, or on more data'
    >>> more_dev_rows(None, 32), more_dev_rows(RandomSplit(dev_size=0.1), 2)
    ('; train a new run with a larger dev set', '; train a new run on more data')
    """
    if not isinstance(split, RandomSplit):
        return "; train a new run with a larger dev set"
    needed = math.ceil(100 * split.dev_size * ROWS / max(1, rows))
    return f"; train a new run {f'with --dev-size {needed}%, or ' if needed <= LARGEST_DEV else ''}on more data"


def scored_batches(every: Iterator[AnyBatch]) -> list[AnyBatch]:
    """The first batches of the dev set, enough to look inside the model and to compare its scores."""
    found, rows, tokens = list[AnyBatch](), 0, 0
    for batch in every:
        found.append(batch)
        rows, tokens = rows + len(batch.ids), tokens + elements_of(batch)[1]
        if len(found) >= BATCHES and rows >= ROWS and tokens >= SCORED_TOKENS:
            break
    return found


def both_sets(run: RunData, spec: ModelSpec) -> Prepared:
    """The training and dev sets of a run as it read them, from its cache if they are there."""
    config, ledger = run.config, Ledger.of(run.config.data)
    kept = config.training.init or config.encoding.word_vectors is not None
    given = GivenEncoding(None, spec.tokenizer, spec.target_tokenizer) if kept else None
    dataset = open_without_test(config.data, ledger)
    prepared = prepare(dataset, config.encoding, ledger, cache=cache_folder() / "prepared", given=given)
    pairs = ((prepared.tokenizer, spec.tokenizer), (prepared.target_tokenizer, spec.target_tokenizer))
    same = all((mine and mine.to_json()) == (its and its.to_json()) for mine, its in pairs)
    if not same or prepared.schema != spec.schema:
        raise DataError("the data has changed since training", fix="train again")
    return prepared
