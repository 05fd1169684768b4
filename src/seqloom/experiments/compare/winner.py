"""The winner of a comparison: its best run, its model folder, and the commands for the next steps."""

import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np

from seqloom.config.base import Config
from seqloom.config.data import EncodingConfig, EncodingOptions, RandomSplit
from seqloom.config.options import own, settings, typed, typed_changes
from seqloom.config.training import NewtonConfig, TrainingConfig
from seqloom.errors import ConfigError, SeqloomError
from seqloom.experiments.compare.plan import ComparisonPlan, PlannedModel
from seqloom.experiments.compare.results import Comparison
from seqloom.experiments.compare.runs import read_evaluation
from seqloom.files.disk import make_folder
from seqloom.files.folders import read_folder, replace_folder, verify_folder
from seqloom.files.layouts import ModelFile, RunFile
from seqloom.training import checkpoint as checkpoints
from seqloom.training.devices import Alone
from seqloom.training.request import RunRequest, is_solved
from seqloom.training.resolve import Resolved
from seqloom.training.run_summary import summary_of

OF_VERB = frozenset({"duration", "validate_every", "metric"})  # settings of training that `seqloom compare` takes


def best_run(plan: ComparisonPlan, comparison: Comparison, model: str) -> PlannedModel:
    """The run of a model whose seed has the best dev score; of equal ones the first."""
    sign = -1.0 if comparison.higher_is_better else 1.0
    entries = [PlannedModel(model, seed) for seed in range(comparison.seeds)]
    scores = [_dev_score(plan, entry, comparison.metric) for entry in entries]
    worth = [sign * score if score is not None and math.isfinite(score) else math.inf for score in scores]
    return entries[int(np.argmin(worth))]


def _dev_score(plan: ComparisonPlan, entry: PlannedModel, metric: str) -> float | None:
    """The dev score of a run: as evaluated, or that of its best validation if only the test set was evaluated."""
    found = read_evaluation(plan.folder / "evaluations" / "dev" / entry.name)
    if found is not None:
        return found.facts.metrics[metric]
    checkpoint, _ = checkpoints.newest(plan.run_folder(entry) / RunFile.CHECKPOINTS, Alone())
    best = None if checkpoint is None else checkpoint.run_state.best
    return None if best is None else best.metrics.get(metric)


def require_shippable(folder: Path, split: str) -> None:
    """Raise ConfigError if there is anything but a model folder at `folder`, or if the winner is that of the test set.

    This writes nothing.
    """
    if split == "test":
        raise ConfigError(
            "--ship with --split test, which would choose the model on the test set",
            fix="leave --split out to choose on the dev set, then evaluate with --split test without --ship",
        )
    if not folder.exists() and not folder.is_symlink():
        return
    try:
        is_model = not folder.is_symlink() and ModelFile.WEIGHTS in verify_folder(folder).files
    except SeqloomError:
        is_model = False
    if not is_model:
        raise ConfigError(
            f"--ship {folder}: this exists and is not a model folder, so it is not replaced",
            fix="give a new name, or move it elsewhere",
        )


def ship_winner(plan: ComparisonPlan, comparison: Comparison, folder: Path) -> PlannedModel:
    """Write the model of the winner's best run to a folder, completely or not at all; a model there is replaced."""
    if comparison.winner is None:
        raise ConfigError(
            f"there is no model to ship: {comparison.no_winner}",
            fix=f"see {plan.folder / 'report.html'}; give more data or a larger budget",
        )
    require_shippable(folder, plan.split)
    entry = best_run(plan, comparison, comparison.winner.name)
    make_folder(folder.absolute().parent)
    replace_folder(folder, dict(read_folder(plan.run_folder(entry) / RunFile.MODEL)))
    return entry


def next_commands(
    plan: ComparisonPlan,
    comparison: Comparison,
    first: Resolved,
    *,
    has_test: bool,
    shipped: Path | None = None,
    added: str = "",
) -> tuple[str, ...]:
    """Commands for the next steps with the winner, or to find out why the best model asked for is not one.

    Its model folder is `shipped`, if it is given; only the run folder knows the test set. `added` is the baseline, if
    nobody asked for it.
    """
    data = shlex.join(plan.data.train)
    shared = [data, *filter(None, typed_changes(plan.data))]
    if comparison.winner is None:
        names = [one.name for one in comparison.models if one.name != added]  # the best one first
        run = shlex.quote(str(plan.run_folder(PlannedModel(names[0], 0))))
        return (" ".join(["seqloom data check", *shared]), f"seqloom doctor {run}")
    name, encoding = comparison.winner.name, list(_encoding_flags(plan))
    folder = plan.run_folder(best_run(plan, comparison, name))
    run = shlex.quote(str(folder))
    commands = [
        first.task.usage.file.replace("RUN", run if shipped is None else shlex.quote(str(shipped))),
        f"seqloom evaluate {run} " + ("--split test" if has_test else "FILE"),
    ]
    if not (solved := is_solved(name, plan.shared)):  # newton has nothing to search
        tuned = [*shared, *encoding, f"--models {name} --out {shlex.quote(f'{plan.out}-tuned')}"]
        commands.append(" ".join(["seqloom tune", *tuned]))
    split = first.config.data.split
    if isinstance(split, RandomSplit) and not plan.data.dev and plan.budget.kind != "parameters":
        sizes = ("dev_size", "test_size", "split_seed")
        changes = filter(None, typed_changes(plan.data, sizes))
        whole = [data, *changes, *encoding, f"--model {name} --size {plan.size}"]
        if solved:  # there is no dev set to choose the strength again
            chosen = NewtonConfig(l2=(cast(float, summary_of(folder).l2),))
            whole.append(typed(next(one for one in own(TrainingConfig) if one.name == "optimizer"), chosen))
        elif plan.budget.amount is not None:
            whole.append(f"--{plan.budget.kind} {round(plan.budget.amount)}")
        whole += [*_training_flags(plan), f"--dev-size 0 --test-size 0 --out {shlex.quote(f'{plan.out}-final')}"]
        commands.append(" ".join(["seqloom train", *whole]))
    if shipped is None and not plan.model_settings and plan.settings.keys() <= OF_VERB:
        given = [*shared, *encoding, *_comparison_flags(plan), f"--ship {shlex.quote(f'{plan.out}-model')}"]
        commands.append(" ".join(["seqloom compare", *given]))
    return tuple(commands)


def _comparison_flags(plan: ComparisonPlan) -> Iterator[str]:
    """The flags of the same comparison on the dev set, without those of its data."""
    yield f"--models {','.join(plan.models)} --seeds {plan.seeds} --size {plan.size}"
    if plan.budget.amount is not None:
        yield f"--{plan.budget.kind} {plan.budget.amount:.15g}"
    if plan.margin is not None:
        yield f"--margin {plan.margin:.15g}"
    if plan.device != "auto":
        yield f"--device {plan.device}"
    training = TrainingConfig(**plan.shared)
    for setting in own(TrainingConfig):
        if setting.name in plan.settings:
            value = getattr(training, setting.name)
            yield typed(setting, value) if isinstance(value, Config) else setting.typed(training)
    yield f"--out {shlex.quote(plan.out)}"


def _encoding_flags(plan: ComparisonPlan) -> Iterator[str]:
    """The settings of tokens as flags, if there are any; the default depends on the task."""
    if plan.encoding is None:
        return
    if isinstance(plan.encoding, EncodingOptions):
        named = SimpleNamespace(**plan.encoding.named)
        yield from (setting.typed(named) for setting in settings(EncodingConfig, *plan.encoding.named).values())
        return
    for setting in own(EncodingConfig):
        value = getattr(plan.encoding, setting.name)
        if isinstance(value, Config):
            yield typed(setting, value)
        elif value != setting.default:
            yield setting.typed(plan.encoding)


def _training_flags(plan: ComparisonPlan) -> Iterator[str]:
    """The settings of all runs as flags; those that are configurations of their own have none."""
    training = TrainingConfig(**plan.shared)
    for setting in own(TrainingConfig):
        if setting.name in plan.settings and not isinstance(getattr(training, setting.name), Config):
            yield setting.typed(training)
    request = RunRequest()._replace(**plan.model_settings)
    for setting in own(RunRequest):
        if setting.name in plan.model_settings and not isinstance(getattr(request, setting.name), Config):
            yield setting.typed(request)
