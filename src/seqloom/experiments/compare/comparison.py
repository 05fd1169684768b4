"""Comparing from Python in one call, and the generator of events behind it.

Before the first run, the data is read without its test set, and all settings are checked. A baseline is always among
the models: `linear` if the task has it, else `bag`, `mlp`, or the recipe with the fewest parameters.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import msgspec

from seqloom.config.data import Format, Overlong, Unit
from seqloom.config.data import Task as TaskName
from seqloom.config.heads import HeadKind, Pooling
from seqloom.config.inputs import CharEncoderName
from seqloom.config.models import AnyObjective
from seqloom.config.old_names import renamed
from seqloom.config.options import stated, strict
from seqloom.config.tokenizers import FittedTokenizer, UnicodeForm, WordSplit
from seqloom.config.training import AnyBatching, AnyOptimizer, AnySchedule
from seqloom.data.check import Names
from seqloom.data.prepared import Prepared
from seqloom.errors import ConfigError, DurableError, SeqloomError
from seqloom.experiments.baselines import batches_of, training_batches
from seqloom.experiments.compare.costs import measure_costs
from seqloom.experiments.compare.plan import (
    Budget,
    BudgetKind,
    ComparisonEnded,
    ComparisonPlan,
    ComparisonReport,
    ComparisonStarted,
    Measuring,
    PlannedModel,
    RunEnded,
    RunStarted,
)
from seqloom.experiments.compare.progress import told
from seqloom.experiments.compare.results import Comparison, Cost
from seqloom.experiments.compare.runs import RunEvaluation, request_of, resolved_run, run, run_evaluation, together
from seqloom.experiments.compare.verdicts import ComparedScores, count_leaks
from seqloom.experiments.compare.winner import next_commands, require_shippable, ship_winner
from seqloom.experiments.progress import watcher
from seqloom.experiments.workers import Interrupted, require_jobs
from seqloom.files.disk import make_folder, remove_empty, write_file
from seqloom.files.jsonl import append_lines, read_lines
from seqloom.files.lock import empty_held, hold, is_unused
from seqloom.inference.model import LoadedModel, load
from seqloom.metrics.bootstrap import SHARES
from seqloom.recipes.families import Size
from seqloom.report.numbers import rounded_duration
from seqloom.tasks.task import HeadSettings, Task
from seqloom.training.devices import machine_of
from seqloom.training.estimate import Pace, Processor
from seqloom.training.learning_rate import STEPS, default_epochs, training_tokens
from seqloom.training.request import RunRequest, is_solved, requested
from seqloom.training.resolve import Resolved, resolve
from seqloom.training.run import trial_line

ASKED, LINES = "comparison.json", "results.jsonl"
BASELINES = ("linear", "bag", "mlp")  # the first that the task has
TOLD = 4  # changes in an error
LONGEST = 40  # characters of a value in an error
SECONDS = 60.0  # of training, by default
LARGEST_MARGIN = 0.5  # of a share, exclusive


class OpenedComparison:
    """A comparison before its first run: data read, models and settings checked."""

    def __init__(self, plan: ComparisonPlan) -> None:
        models = plan.models
        first = resolve(plan.data, request_of(plan, models[0], 0), cache=plan.cache)
        self.first, self.first_model, self.task = first, models[0], first.task
        if plan.margin is not None and plan.margin >= LARGEST_MARGIN and self.task.metric.name in SHARES:
            raise ConfigError(
                f"--margin {plan.margin:g}, but {self.task.metric.name} is between 0 and 1",
                fix="give --margin 0.01 for 1 point",
            )
        for name in models:  # raises for a recipe that cannot do the task
            self.task.model(name, plan.size, HeadSettings())
        # raises now, and not after hours of training; the test set is not read for it
        self.has_test = first.config.data.has_test
        if not (len(first.prepared.splits["dev"]) if plan.split == "dev" else self.has_test):
            fix = f"give --{plan.split} FILE, or --{plan.split}-size 10%"
            raise ConfigError(f"there is no {plan.split} set to evaluate on", fix=fix)
        self.baseline, why = baseline_of(self.task, plan)
        models = models if self.baseline in models else (self.baseline, *models)
        budget = Budget(kind=plan.budget.kind, amount=plan.budget.amount or usual(plan, first))
        added = "" if self.baseline in plan.models else self.baseline
        self.plan = plan = msgspec.structs.replace(plan, models=models, budget=budget, added=added)
        solved = [name for name in models if budget.kind == "tokens" and is_solved(name, plan.settings_of(name))]
        outside = [f"{name} is solved: it reads the data as often as it needs, outside the budget" for name in solved]
        self.notes = (*filter(None, (why,)), *outside)
        line = f"baseline: {self.baseline}, trained beside the named models to compare them with"
        self.said = (*first.messages[:-1], *(() if why or not added else (line,)), *self.notes)
        # raises for settings that a recipe refuses
        self.resolved = {name: resolved_run(plan, PlannedModel(name, 0))[0] for name in models}
        self._require_same(first)

    def _require_same(self, first: Resolved) -> None:
        """Record the settings, or refuse to mix different ones in one folder; models and seeds may be added."""
        plan, path = self.plan, self.plan.folder / ASKED
        wanted = plan.asked(first) | {"budget": plan.budget, "size": plan.size, "model_settings": plan.model_settings}
        wanted["encoding"] = plan.encoding  # as given: what is left open may differ between models
        plain = msgspec.json.decode(msgspec.json.encode(wanted))
        if not path.exists():
            write_file(path, msgspec.json.format(msgspec.json.encode(plain), indent=2))
            return
        before = msgspec.json.decode(path.read_bytes())
        if "wishes" in before or renamed(before) != before:
            raise ConfigError(
                f"{plan.folder} contains a comparison of an earlier version of Seqloom, which cannot be resumed",
                fix="give another --out",
            )
        if changed := changes(before, plain):
            more = f"; and {len(changed) - TOLD} more" if len(changed) > TOLD else ""
            raise ConfigError(
                f"{plan.folder} contains a different comparison: {'; '.join(changed[:TOLD])}{more}",
                fix="give another --out, or the same settings to resume it",
            )


def changes(before: Any, now: Any, name: str = "") -> list[str]:
    """The changed values as text.

    >>> changes({"budget": {"kind": "tokens", "amount": 8000.0}}, {"budget": {"kind": "tokens", "amount": 900.0}})
    ['budget amount was 8000.0 and is now 900.0']
    """
    if isinstance(before, dict) and isinstance(now, dict):
        names = dict.fromkeys([*now, *before])
        return [one for key in names for one in changes(before.get(key), now.get(key), f"{name} {key}".strip())]
    return [] if before == now else [f"{name} was {_short(before)} and is now {_short(now)}"]


def _short(value: Any) -> str:
    """A value in few characters."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return "not given" if value is None else text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def baseline_of(task: Task, plan: ComparisonPlan) -> tuple[str, str]:
    """The baseline, and a message if it is not `linear`."""
    names, usual = task.recipes(), BASELINES[0]
    known = next((name for name in BASELINES if name in names), None)
    if known == usual:
        return usual, ""
    if known is not None:
        return known, f"baseline: {known} ({usual} is not available for {task.name})"
    smallest = min(names, key=lambda name: task.model(name, plan.size, HeadSettings()).parameters())
    return smallest, f"baseline: {smallest}, the smallest recipe ({usual} is not available for {task.name})"


def usual(plan: ComparisonPlan, first: Resolved) -> float:
    """The default budget: the size of the default recipe, or as many tokens as 2,000 steps read."""
    if plan.budget.kind == "seconds":
        return SECONDS
    if plan.budget.kind == "parameters":
        recipe = first.task.recipes()[0]  # its vocabulary may differ from that of the first model
        task = resolve(plan.data, request_of(plan, recipe, 0), cache=plan.cache).task
        return float(task.model(recipe, plan.size, HeadSettings()).parameters())
    tokens = training_tokens(first.prepared)
    return float(tokens * default_epochs(tokens, STEPS))


def run_comparison(plan: ComparisonPlan, jobs: int = 1, *, ship: Path | None = None) -> Iterator[ComparisonReport]:
    """Start or resume a comparison; yields its events. At the last one, `ComparisonEnded`, the results are written.

    `ship` is where the caller then leaves the model of the winner, for the commands of the next steps.
    """
    require_jobs(jobs)
    new = [folder for folder in (plan.folder, *plan.folder.parents) if not folder.exists()]
    try:
        yield from _held_comparison(plan, jobs, ship, unused=is_unused(plan.folder))
    finally:
        remove_empty(new)  # those that remain after an error in the data or the options


def _held_comparison(plan: ComparisonPlan, jobs: int, ship: Path | None, *, unused: bool) -> Iterator[ComparisonReport]:
    with hold(plan.folder):
        try:
            opening = OpenedComparison(plan)
        except SeqloomError:
            if unused:  # wrong data or options leave nothing behind
                empty_held(plan.folder)
            raise
        make_folder(plan.folder / "runs")
        plan = opening.plan
        waiting = [entry for entry in plan.entries() if run_evaluation(plan, entry) is None]
        wanted, abreast = len(plan.entries()), min(jobs, len(waiting))
        trained = sum(map(plan.was_evaluated, waiting))
        times = RunTimes(plan, opening.resolved, waiting, max(1, abreast))
        said = (*opening.said, *times.estimate())
        yield ComparisonStarted(plan.folder, wanted, wanted - len(waiting), said, abreast, trained)
        _write_lines(plan)
        alone = chain.from_iterable(run(plan, entry) for entry in waiting)
        try:
            for report in together(plan, waiting, jobs) if abreast > 1 else alone:
                _write_lines(plan)
                yield times.follow(report)
                # a comparison needs all of its runs
                if isinstance(report, RunEnded) and report.problem:
                    raise ConfigError(f"{report.entry.name}: {report.problem}", fix="fix that, or leave the model out")
        except Interrupted as interruption:
            yield ComparisonEnded(interruption.why, None, interruption.exit_code)
            return
        yield Measuring(len(plan.models))
        yield ComparisonEnded("done", _weigh(opening, ship), 0)


class RunTimes:
    """The time that runs take: estimated before the first one, then by those that have ended.

    Args:
        plan: the comparison.
        resolved: the settings and data of each model.
        waiting: the runs that are left; those that are only evaluated take no time.
        jobs: how many are trained at the same time.
        clock: the time in seconds.
    """

    def __init__(
        self,
        plan: ComparisonPlan,
        resolved: Mapping[str, Resolved],
        waiting: Sequence[PlannedModel],
        jobs: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan, self.left, self.jobs, self.clock = plan, list(waiting), jobs, clock
        self.device = plan.chosen_device()
        self.machine = machine_of(self.device)
        cores = os.cpu_count() or 1
        self.abreast = min(jobs, cores)  # more share the same cores
        # as many as a worker uses
        self.share = Processor(max(1, cores // jobs)) if jobs > 1 or self.machine is None else self.machine
        self.begun: dict[PlannedModel, float] = {}
        self.spent = self.expected = 0.0  # seconds of ended runs, and what was expected for them
        self.first = resolved
        each = {name: self._seconds(one) for name, one in resolved.items()}
        self.seconds = {entry: 0.0 if plan.was_evaluated(entry) else each[entry.model] for entry in waiting}

    def _seconds(self, resolved: Resolved) -> float:
        """The seconds of a run; those of newton do not count, and on a GPU all runs count the same."""
        training = resolved.config.training
        if training.strengths or self.machine is None:
            return 0.0 if training.strengths else 1.0
        return Pace.of(resolved.config.model, training, resolved.prepared, self.share).seconds(training.duration)

    def estimate(self) -> tuple[str, ...]:
        """The estimated time of all runs on a CPU, and what a few trial steps say if that is far from it."""
        seconds = sum(self.seconds[entry] for entry in self.left) / self.abreast
        if self.machine is None or not seconds:
            return ()
        longest = max(self.first, key=lambda name: sum(self.seconds[one] for one in self.left if one.model == name))
        trial = trial_line(self.first[longest], self.device, self.machine, seconds)
        number, cores = self.jobs if self.jobs > 1 else "one", Processor(self.abreast * self.share.cores)
        told = f"estimated time of all runs: about {rounded_duration(seconds)}, {number} at a time on {cores}"
        return (told, *([trial] if trial else []))

    def follow(self, report: RunStarted | RunEnded) -> RunStarted | RunEnded:
        """The event of a run; at its end with the time that the others still need."""
        if isinstance(report, RunStarted):
            self.begun[report.entry] = self.clock()
            return report
        now, expected = self.clock(), self.seconds[report.entry]
        self.left.remove(report.entry)
        began = self.begun.pop(report.entry, None)
        if expected and began is not None:
            self.spent, self.expected = self.spent + now - began, self.expected + expected
        seconds = None
        if self.expected:
            whole = self.spent / self.expected * sum(self.seconds[entry] for entry in self.left)
            done = sum(now - began for entry, began in self.begun.items() if self.seconds[entry])
            seconds = max(0.0, whole - done) / self.jobs  # a run that shares its core took longer already
        return report._replace(runs_left=len(self.left), seconds_left=seconds)


def _write_lines(plan: ComparisonPlan) -> None:
    """Append the runs that are evaluated to results.jsonl."""
    path = plan.folder / LINES
    known = {(one.get("split"), one.get("model"), one.get("seed")) for one in read_lines(path).records}
    fresh = [entry for entry in plan.entries() if (plan.split, *entry) not in known]
    found = [one.facts for entry in fresh if (one := run_evaluation(plan, entry)) is not None]
    append_lines(path, [{"kind": "run", **msgspec.to_builtins(facts)} for facts in found])


def _weigh(opening: OpenedComparison, ship: Path | None) -> Comparison:
    """The results, which are also written to the folder."""
    plan = opening.plan
    runs: dict[str, list[RunEvaluation]] = {name: [] for name in plan.models}
    for entry in plan.entries():
        found = run_evaluation(plan, entry)
        assert found is not None, "every run is evaluated by now"
        runs[entry.model].append(found)
    firsts = [PlannedModel(name, 0) for name in plan.models]
    device = plan.chosen_device().torch
    models = {entry.model: load(plan.run_folder(entry), device=device) for entry in firsts}
    rows = {name: one.own_rows(plan.split) for name, one in models.items()}  # each with the model's tokenizer
    # messages about models that are not near the requested size
    sizes = [resolved_run(plan, entry)[1] for entry in firsts] if plan.budget.kind == "parameters" else []
    weighed = ComparedScores(runs, opening.task, plan.margin)
    comparison = weighed.comparison(
        rows[opening.first_model].columns["input"].lengths[weighed.ids],
        data=" + ".join(plan.data.train),
        split=plan.split,
        budget=plan.budget.shown(),
        seeds=plan.seeds,
        baseline=opening.baseline,
        leak=count_leaks(plan.data, plan.split),
        messages=(*opening.notes, *filter(None, sizes)),
    )
    costs = _costs(plan, models, rows)
    results = tuple(msgspec.structs.replace(one, cost=costs[one.name]) for one in comparison.models)
    # The tokenizer of the training data, which the baseline is learned from, is that of the first model.
    evaluated = opening.first.prepared if plan.split == "dev" else rows[opening.first_model]
    comparison = msgspec.structs.replace(comparison, models=results, **floors_of(opening, evaluated))
    commands = next_commands(
        plan, comparison, opening.first, has_test=opening.has_test, shipped=ship, added=opening.plan.added
    )
    comparison = msgspec.structs.replace(comparison, commands=commands)
    plan.write(comparison)
    return comparison


def floors_of(opening: OpenedComparison, evaluated: Prepared) -> dict[str, Any]:
    """The scores that a useful model exceeds, as fields of a comparison: that of a constant, and the task's limit."""
    task, first, split = opening.task, opening.first, opening.plan.split
    name, batching = task.metric.name, first.config.training.batching
    found: dict[str, Any] = {"useful_from": task.floors.get(name)}
    learned = training_batches(task, first.prepared, batching)
    constant = task.constant_baseline(learned, list(batches_of(task, evaluated, split, batching)))
    if constant is None:
        return found
    score = float(task.measure(task.summed(constant.statistics))[name])
    return found | ({"floor": score, "floor_answer": constant.name} if math.isfinite(score) else {})


def _costs(plan: ComparisonPlan, models: dict[str, LoadedModel], prepared: dict[str, Prepared]) -> dict[str, Cost]:
    """The costs of each model: measured now, all together, or as recorded before."""
    path = plan.folder / LINES
    lines = [one for one in read_lines(path).records if one.get("kind") == "cost"]
    known = {one["model"]: msgspec.convert(one["cost"], Cost) for one in lines}
    if known.keys() >= models.keys():
        return known
    fresh = measure_costs(models, prepared, plan.split)
    append_lines(path, [{"kind": "cost", "model": n, "cost": msgspec.to_builtins(cost)} for n, cost in fresh.items()])
    return fresh


@strict
def compare(
    *data: str | Path,
    out: str | Path,
    models: Sequence[str],
    budget: BudgetKind | None = None,
    tokens: int | None = None,
    parameters: int | None = None,
    seconds: float | None = None,
    seeds: int = 3,
    split: Literal["dev", "test"] = "dev",
    size: Size = "small",
    margin: float | None = None,
    jobs: int = 1,
    ship: str | Path | None = None,
    device: str = "auto",
    show: Callable[[ComparisonReport], None] | None = None,
    epochs: int | None = None,
    test: Names | None = None,
    dev: Names | None = None,
    task: TaskName | None = None,
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
    freeze: str | Sequence[str] | None = None,
    log_every: int | None = None,
    seed: int | None = None,
    deterministic: bool | None = None,
) -> Comparison:
    """Train models with the same budget and return the comparison of their scores.

    Args:
        data: a file, a folder, two files of parallel text, or the name of a dataset.
        models: names of recipes; a baseline is always added.
        out: the folder of runs, results.jsonl and report.html. A comparison that is there is resumed.
        budget: what is equal for all models: tokens, parameters or seconds (default: tokens).
        tokens, parameters, seconds: how much of it each model gets; give one (default: chosen by the data).
        seeds: runs of each model.
        split: the set that models are evaluated on: dev or test.
        size: the size of the recipes.
        margin: models whose scores differ by less are equal (default: 1 point, or 1 % of the best score).
        jobs: runs at the same time.
        ship: a folder for the model of the winner: the model with the best score, or a cheaper one that is equal to
            it within the margin. It is the run with the best dev score.
        device: auto, cpu, cuda or mps.
        show: called with every event (default: in a notebook, a live display of the progress).

    All other arguments are options of `seqloom train`, the same for every model in `models`. The baseline is one more
    model: if it is not named there and is `linear`, arguments that newton cannot use do not apply to it.
    """
    named: dict[str, Any] = {
        "epochs": epochs,
        "test": test,
        "dev": dev,
        "task": task,
        "input": input,
        "target": target,
        "id": id,
    }
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
    named |= {"precision": precision, "compile": compile, "freeze": freeze, "log_every": log_every, "seed": seed}
    named |= {"deterministic": deterministic, "cuda_graphs": cuda_graphs}
    amounts = {"tokens": tokens, "parameters": parameters, "seconds": seconds}
    if ship is not None:
        require_shippable(Path(ship), split)
    config, request = requested(data, stated(named))
    chosen = {name: getattr(request, name) for name in named if name in RunRequest._fields and named[name] is not None}
    plan = ComparisonPlan(
        data=config,
        out=str(out),
        models=tuple(models),
        budget=Budget.of(budget, stated(amounts), epochs=epochs is not None),
        seeds=seeds,
        split=split,
        size=size,
        margin=margin,
        settings=msgspec.to_builtins(request.training),
        model_settings=chosen,
        encoding=request.encoding,
        device=device,
    )
    watch = watcher(show, told)
    for report in run_comparison(plan, jobs, ship=None if ship is None else Path(ship)):
        if watch is not None:
            watch(report)
    assert isinstance(report, ComparisonEnded), "the last report"
    if report.reason == "disk":
        raise DurableError(
            f"the comparison in {plan.folder} stopped: checkpoints could not be saved",
            fix="free disk space, and make the same call again to resume",
        )
    if report.comparison is None:
        raise KeyboardInterrupt
    if ship is not None:
        ship_winner(plan, report.comparison, Path(ship))
    return report.comparison
