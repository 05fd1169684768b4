"""Rules about scores: a run must beat simple predictions, and must have learned its training set.

    constant    ignores its input: the most frequent label, the mean, token frequencies       the task's
    simple      the most frequent tag of each word, token pairs, a copy of the source,        the task's
                shared words
    linear      the recipe `linear`, trained here on some thousand rows                       where the task has it

All are learned from the training set of the run and evaluated on the same batches of its dev set as its model, so that
examples can be compared one by one. A constant must simply be beaten. The others are reported only if they are better
by more than chance: in 975 of 1,000 resamples of the examples (paired bootstrap, Koehn 2004).
"""

import math
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple, cast

import numpy as np
from torch import nn

from seqloom.config.models import AnyModel
from seqloom.config.options import typed_changes, typed_settings
from seqloom.config.tokenizers import AnyTokenizer, WordsConfig
from seqloom.config.training import NewtonConfig, RunConfig, TrainingConfig
from seqloom.data.prepared import Prepared
from seqloom.errors import ConfigError
from seqloom.experiments.doctor.curves import (
    FURTHER,
    OVERFITS,
    Story,
    further_descent,
    longer,
    regularizing,
    rounded,
    short,
    unfinished,
)
from seqloom.experiments.doctor.findings import Advice, Finding
from seqloom.metrics.bootstrap import resampled_sums
from seqloom.nn.models import SequenceModel
from seqloom.nn.types import Batch
from seqloom.recipes.families import SIZES, Size
from seqloom.report.figures.bars import Bars
from seqloom.report.numbers import number
from seqloom.tasks.evaluation import Evaluation, evaluate
from seqloom.tasks.task import LOSS, Baseline, Calibrator, HeadSettings, Metric, ModelSpec, Task, task_of
from seqloom.training.data_defaults import with_affordable_pairs
from seqloom.training.newton import solutions, training_texts

LINEAR = "linear"
LINEAR_ROWS = 5_000  # of the training set
LINEAR_WEIGHTED = 10_000_000  # tokens of these rows x scores of each: fewer rows are used where it would be more
ROWS, TOKENS = 50, 1_000  # of the dev batches: enough of either to compare scores
RESAMPLES, SURE = 1_000, 0.975  # of them, in which a baseline must be better
HIGH = 0.85  # of the loss of a constant: a model above it has learned almost nothing from its input
SMALLEST = 0.1  # loss of a constant; below it nearly all labels are the same, and little can be learned
FITS, APART = 0.5, 0.5  # of the loss of a constant, and of the gain over it that is lost on the dev set: overfitting
FASTER = 3.0  # times the learning rate
UNLEARNED = 0.1  # of the loss of a constant, on the training set: a model of the smallest size left it
GOOD = 0.9  # accuracy, F1 and other shares that leave little to a larger model
POOR = 0.8  # the same: below it, a run whose loss still falls fast has not ended well

AnyBatch = Batch[Any, Any]


class BaselineScore(NamedTuple):
    """The score of a baseline on the dev batches, and whether the run should have been better."""

    name: str
    score: float
    wins: bool
    recipe: str | None = None  # that makes it
    loses: bool = True  # whether the run is better by more than chance


class Scores(NamedTuple):
    """The scores of a run and of its baselines on the same batches of the dev set."""

    metric: Metric = LOSS
    own: float = math.nan
    baselines: tuple[BaselineScore, ...] = ()
    floor: float | None = None  # scores below it are useless for any data
    weak: float | None = None  # below it a score is low
    train_loss: float = math.nan  # without dropout
    dev_loss: float = math.nan
    constant_loss: float = math.nan
    larger: Size | None = None  # the next size of the recipe
    problem: str = ""  # why there are no baselines to compare with
    memorized: bool = False  # whether the curves show that the run overfits

    @property
    def overfits(self) -> bool:
        """Whether the training set was learned, and the dev set was not."""
        if self.memorized:
            return True
        gained = self.constant_loss - self.train_loss
        return self.train_loss <= FITS * self.constant_loss and self.dev_loss - self.train_loss >= APART * gained

    @property
    def good(self) -> bool:
        """Whether the score leaves little to learn."""
        return self.metric.higher_is_better and GOOD <= self.own <= 1


def measure_scores(
    task: Task, model: nn.Module, config: TrainingConfig, prepared: Prepared, batches: "ScoreBatches", own: Evaluation
) -> Scores:
    """Score the baselines on the dev batches on which the model was evaluated as `own`."""
    metric = task.metric
    scores = Scores(metric, own.metrics[metric.name], (), dev_loss=own.metrics["loss"])
    if not math.isfinite(scores.own):
        return scores._replace(problem=f"the {metric.name} of the run is not a finite number")
    if own.rows < ROWS and own.statistics[:, -1].sum() < TOKENS:
        target, rows, tokens = prepared.schema.target, f"{ROWS} rows", f"{TOKENS:,} tokens"
        needed = tokens if target.is_running else f"{rows} or {tokens}" if target.of_steps else rows
        size = "" if target.is_running else f", and this one has {own.rows}"
        return scores._replace(problem=f"that needs a dev set of at least {needed}{size}")
    plain = task_of(ModelSpec.of(prepared)).with_metric(metric.name)  # without the calibration of the model
    constant = plain.constant_baseline(batches.train, batches.dev)
    others = [plain.simple_baseline(batches.train, batches.dev)]
    if not config.strengths:  # the run is not itself the solution of a linear model
        others.append(linear_baseline(plain, config, prepared, batches.dev))
    found = [_scored(plain, other, own) for other in others if other is not None]
    if constant is not None:
        figures = plain.measure(plain.summed(constant.statistics))
        score = float(figures[metric.name])
        found.insert(0, BaselineScore(constant.name, score, not metric.better(scores.own, score)))
        # All three are losses of evaluation, without label smoothing, class weights and calibration.
        calibrated, learned = isinstance(task, Calibrator), batches.train[: len(batches.dev)]
        dev_loss = evaluate(plain, model, batches.dev, keep=0).metrics["loss"] if calibrated else scores.dev_loss
        train_loss = evaluate(plain, model, learned, keep=0).metrics["loss"]
        scores = scores._replace(constant_loss=float(figures["loss"]), train_loss=train_loss, dev_loss=dev_loss)
    return scores._replace(
        baselines=tuple(found),
        floor=task.floors.get(metric.name),
        weak=task.weak.get(metric.name),
        larger=larger_size(plain, model_config(model)),
    )


class ScoreBatches(NamedTuple):
    """Batches of both sets."""

    train: Sequence[AnyBatch]
    dev: Sequence[AnyBatch]


def model_config(model: nn.Module) -> AnyModel:
    """The configuration of a built model."""
    return cast(AnyModel, cast(Any, model).config)


def _scored(task: Task, baseline: Baseline, own: Evaluation) -> BaselineScore:
    """The score of a baseline; it wins or loses if it is better or worse than the run in nearly all resamples."""
    name, sign = task.metric.name, 1 if task.metric.higher_is_better else -1
    found = float(task.measure(task.summed(baseline.statistics))[name])
    # Equal seeds draw equal examples.
    theirs, ours = (
        task.measure(resampled_sums(rows, RESAMPLES, np.random.Generator(np.random.PCG64(0)), task.summed))[name]
        for rows in (baseline.statistics, own.statistics)
    )
    ahead = sign * (theirs - ours)
    wins, loses = (float(sure.mean()) >= SURE for sure in (ahead > 0, ahead < 0))
    return BaselineScore(baseline.name, found, wins, baseline.recipe, loses)


def linear_baseline(task: Task, config: TrainingConfig, prepared: Prepared, dev: Sequence[AnyBatch]) -> Baseline | None:
    """The recipe `linear`, solved in memory on evenly spaced rows; the L2 strength is chosen on the dev batches."""
    if LINEAR not in task.recipes():
        return None
    rows = prepared.splits["train"]
    some = rows[:: max(1, math.ceil(len(rows) / linear_rows(prepared)))]
    capped = prepared._replace(splits={**prepared.splits, "train": some})
    model = with_affordable_pairs(task.model(LINEAR, "small", HeadSettings()), capped)
    built = cast(SequenceModel, model.build())
    best: Evaluation | None = None
    for _ in solutions(task, built, list(training_texts(task, capped, config.batching)), NewtonConfig()):
        judge = task.for_validation(built, dev) if isinstance(task, Calibrator) else task
        found, name = evaluate(judge, built, dev, keep=0), task.metric.name
        if best is None or task.metric.better(found.metrics[name], best.metrics[name]):
            best = found
    assert best is not None, "there is at least one strength"
    said = "" if len(some) == len(rows) else f" on {len(some):,} of {len(rows):,} training rows"
    return Baseline(f"the recipe {LINEAR}{said}", best.statistics, LINEAR)


def linear_rows(prepared: Prepared) -> int:
    """How many training rows a linear model is solved on: the time grows with their tokens and with the scores.

    It is no limit in seconds, so that a diagnosis is the same on a busy machine.
    """
    tokens = float(prepared.columns["input"].lengths[prepared.splits["train"]].mean())
    scores = max(1, len(prepared.schema.labels))
    return max(1, min(LINEAR_ROWS, int(LINEAR_WEIGHTED / (max(1.0, tokens) * scores))))


def larger_size(task: Task, model: AnyModel) -> Size | None:
    """The next size of the recipe that makes a model with as many parameters; None if none does."""
    count = model.parameters()
    for recipe, head in product(task.recipes(), task.heads):
        for size, larger in pairwise(SIZES):
            try:
                sizes = [task.model(recipe, one, HeadSettings(kind=head)).parameters() for one in (size, larger)]
            except ConfigError:  # a recipe that does not fit the data
                continue
            if sizes[0] == count < sizes[1]:
                return larger
    return None


def score_findings(
    scores: Scores, story: Story, config: TrainingConfig, *, dropout: float = 0.0
) -> tuple[Finding, ...]:
    """Findings about the scores of a run."""
    advice = cures(scores, story, config, dropout)
    few = None if scores.good or config.strengths else short(story, config)
    found = (few, at_floor(scores, advice) or beaten(scores, advice), hardly_learned(scores, advice))
    told = tuple(finding for finding in found if finding is not None)
    others = overfitted(scores, story, config, advice), too_small(scores, advice), undertrained(scores, story, advice)
    return told or tuple(finding for finding in others if finding is not None)[:1]


def cures(scores: Scores, story: Story, config: TrainingConfig, dropout: float) -> tuple[Advice, ...]:
    """What to change: regularize a model that overfits; else train longer, a larger model, or with larger steps."""
    if scores.overfits:
        return regularizing(config, dropout)
    more = f"{FASTER:g} times {config.lr:g}"
    larger = () if scores.larger is None else (Advice("--size", scores.larger, "the next larger model"),)
    # A larger model learns more slowly still; only the smallest size, made for tests, is always too small.
    size = larger if scores.larger == SIZES[1] or not still_learns(story, config) else ()
    return (longer(story, config), *size, Advice("--lr", rounded(config.lr * FASTER), more))


def still_learns(story: Story, config: TrainingConfig) -> bool:
    """Whether the loss would fall much further in a longer run."""
    if not story.is_long_enough:
        return False
    return unfinished(story, config) is not None or further_descent(story, least=0.0) >= FURTHER


def at_floor(scores: Scores, advice: tuple[Advice, ...]) -> Finding | None:
    """The score is useless for any data."""
    if scores.floor is None or scores.own >= scores.floor:
        return None
    name = scores.metric.name
    return Finding(
        "score.floor",
        "The predictions are useless",
        f"A {name} of {scores.own:.3g} on the dev set means that almost no prediction is right. {_cause(scores)}",
        {name: scores.own, "useful from": scores.floor, "training loss": scores.train_loss},
        None,
        advice,
    )


def beaten(scores: Scores, advice: tuple[Advice, ...]) -> Finding | None:
    """A simple prediction is as good as the run, or better."""
    winners = [one for one in scores.baselines if one.wins]
    if not winners:
        return None
    sign, name = 1 if scores.metric.higher_is_better else -1, scores.metric.name
    best = max(winners, key=lambda one: sign * one.score)
    own = () if best.recipe is None else (Advice("--model", best.recipe, "is trained in seconds"),)
    labels = ["this run", *(one.name for one in scores.baselines)]
    losses = ("training loss", scores.train_loss), ("dev loss", scores.dev_loss)
    return Finding(
        "score.baseline",
        "The run is no better than a simple baseline",
        f"On the same rows of the dev set, the {name} of {best.name} is {best.score:.4g}; that of this run is "
        f"{scores.own:.4g}. "
        f"{_cause(scores, simpler=best.recipe is not None)}",
        {name: scores.own, best.name: best.score, **{name: loss for name, loss in losses if math.isfinite(loss)}},
        Bars(
            title=f"{name} on the dev set", labels=labels, values=[scores.own, *(one.score for one in scores.baselines)]
        ),
        (*own, *advice) if scores.overfits else (*advice, *own),
    )


def as_good(scores: Scores) -> Iterator[str]:
    """A message about a recipe that is cheaper than the run, which is not better by more than chance."""
    for one in scores.baselines:
        if one.recipe is not None and not one.wins and not one.loses:
            yield (
                f"this run is not better by more than chance than {one.name}, which is trained in seconds: their "
                f"{scores.metric.name} is {number(scores.own)} and {number(one.score)}; if that is good enough, use "
                f"--model {one.recipe} (see Next)"
            )


def cheaper_runs(scores: Scores, config: RunConfig) -> tuple[str, ...]:
    """The commands that train recipes which are cheaper than the run and not worse, on its data and by its metric."""
    recipes = [one.recipe for one in scores.baselines if one.recipe is not None and not one.loses]
    given = [*map(shlex.quote, config.data.train), *filter(None, typed_changes(config.data))]
    given += [*token_flags(config.encoding.tokenizer), *typed_settings(config.training, ["metric"])]
    return tuple(" ".join(["seqloom train", *given, f"--model {recipe}"]) for recipe in recipes)


def token_flags(tokenizer: AnyTokenizer) -> Iterator[str]:
    """The flags of these tokens, for a recipe that drops the case of words by default.

    >>> from seqloom.config.tokenizers import BpeConfig
    >>> list(token_flags(WordsConfig(min_count=1))), list(token_flags(BpeConfig(vocab_size=500, lowercase=True)))
    (['--no-lowercase'], ['--tokenizer bpe', '--lowercase', '--vocab-size 500'])
    """
    if tokenizer.kind() != WordsConfig.kind():
        yield f"--tokenizer {tokenizer.kind()}"
    yield from typed_changes(tokenizer, ["min_count"] if getattr(tokenizer, "min_count", None) == 1 else ())
    if not tokenizer.lowercase:
        yield "--no-lowercase"


def hardly_learned(scores: Scores, advice: tuple[Advice, ...]) -> Finding | None:
    """The loss is high on the training set too."""
    if not scores.train_loss >= HIGH * scores.constant_loss or scores.constant_loss < SMALLEST:
        return None
    return Finding(
        "loss.high",
        "The model underfits",
        "The loss on the training set is about as high as without looking at the input. The model is too small, was "
        "trained too briefly, or learns too slowly; or the inputs say nothing about the targets.",
        {"training loss": scores.train_loss, "loss without looking at the input": scores.constant_loss},
        None,
        advice,
    )


def overfitted(scores: Scores, story: Story, config: TrainingConfig, advice: tuple[Advice, ...]) -> Finding | None:
    """The loss of the dev set is far above that of the training set, in a run whose curves are too short to show it.

    A linear model that was solved is not told: its L2 strength is the best of several on the dev set.
    """
    if not scores.overfits or scores.good or config.strengths or story.has_dev_curve:
        return None
    return Finding(
        "dev.gap",
        OVERFITS,
        "The model has learned its training set, but the loss on the dev set is far higher. Regularize the model or "
        "stop earlier; more data helps most.",
        {
            "training loss": scores.train_loss,
            "dev loss": scores.dev_loss,
            "loss without looking at the input": scores.constant_loss,
        },
        None,
        advice,
    )


def too_small(scores: Scores, advice: tuple[Advice, ...]) -> Finding | None:
    """A model of the smallest size, made for tests, has left much of the training set unlearned.

    It is told of that size alone: no default chooses it, and with larger ones the rest may be noise.
    """
    smallest = scores.larger == SIZES[1]
    left = scores.train_loss >= max(SMALLEST, UNLEARNED * scores.constant_loss)
    if not smallest or not left or scores.overfits or scores.good:
        return None
    return Finding(
        "model.small",
        "The model is small",
        f"Size {SIZES[0]} is for tests. The model has not learned its training set: the loss there is still "
        f"{scores.train_loss / scores.constant_loss:.0%} of the loss without looking at the input. A larger model has "
        f"room for more.",
        {
            "training loss": scores.train_loss,
            "dev loss": scores.dev_loss,
            "loss without looking at the input": scores.constant_loss,
        },
        None,
        tuple(sorted(advice, key=lambda one: one.flag != "--size")),
    )


def undertrained(scores: Scores, story: Story, advice: tuple[Advice, ...]) -> Finding | None:
    """The score is poor, and the training loss was still falling fast, however far it had fallen."""
    poor = scores.metric.higher_is_better and 0 <= scores.own < POOR
    left = scores.train_loss >= UNLEARNED * scores.constant_loss
    if not poor or not left or scores.overfits or not story.is_long_enough:
        return None
    ahead = further_descent(story, least=0.0)
    if ahead < FURTHER:
        return None
    name = scores.metric.name
    return Finding(
        "loss.unfinished",
        "The run ended while it was learning",
        f"A {name} of {scores.own:.3g} on the dev set is far from what a good model has, and after {story.steps:,} "
        "steps the training loss was still falling fast. Train longer.",
        {
            name: scores.own,
            "training loss": scores.train_loss,
            "loss without looking at the input": scores.constant_loss,
            "expected further decrease in three times the steps": ahead,
            "steps": float(story.steps),
        },
        None,
        advice,
    )


def low_score(scores: Scores, story: Story, config: TrainingConfig, dropout: float) -> Finding | None:
    """The score is low, although the run beats its baselines: for runs whose curves and scores show nothing else.

    The advice follows from where the loss is. What is missing on the training set too asks for more training or a
    larger model, what is missing on the dev set alone for regularization.
    """
    if scores.weak is None or scores.own >= scores.weak or config.strengths:
        return None
    name, missing = scores.metric.name, scores.dev_loss - scores.train_loss
    memorized = scores.train_loss <= FITS * scores.constant_loss and missing > scores.train_loss
    regular = regularizing(config, dropout) if memorized else ()
    advice = regular or cures(scores, story, config, dropout)
    if not still_learns(story, config):  # longer would change little
        advice = tuple(sorted(advice, key=lambda one: one.flag != "--size"))
    cause = (
        "Most of the loss is on the dev set alone: regularize the model; more data helps most."
        if regular
        else "Much of the loss is on the training set too: train a larger model, longer, or with larger steps."
    )
    return Finding(
        "score.weak",
        "The score is low",
        f"A {name} of {scores.own:.3g} on the dev set is better than simple predictions, but many predictions are "
        f"still wrong. {cause}",
        {
            name: scores.own,
            "weak below": scores.weak,
            "training loss": scores.train_loss,
            "dev loss": scores.dev_loss,
            "loss without looking at the input": scores.constant_loss,
        },
        None,
        advice,
    )


def _cause(scores: Scores, *, simpler: bool = False) -> str:
    """Why the score is low, and what to do; `simpler` is whether a simpler model is better."""
    if scores.overfits:
        cure = "use the simpler model, or regularize this one" if simpler else "regularize the model"
        return f"The training set was learned, but not what it has in common with other rows: {cure}."
    if scores.train_loss > FITS * scores.constant_loss:
        return "The training set was not learned either: train longer, or a larger model."
    return "Train longer, or use the simpler model." if simpler else "Train longer."


def scores_table(scores: Scores, score_of_all: tuple[tuple[str, float], ...] = ()) -> tuple[tuple[str, float], ...]:
    """The run and its baselines with their scores, and the score of the run on the complete dev set."""
    own = () if math.isnan(scores.own) else (("this run", scores.own), *score_of_all)
    return (*own, *((one.name, one.score) for one in scores.baselines))
