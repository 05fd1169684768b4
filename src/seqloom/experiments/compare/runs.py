"""One run of a comparison: an ordinary run folder, trained with its budget, then evaluated example by example.

    DIR/runs/cnn-0            the run, which resumes like any run
    DIR/evaluations/dev/cnn-0 facts.json and the statistics of every example; if it exists, the run is finished

The evaluation comes last and is written atomically, so a finished run is never trained or evaluated again.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from safetensors import numpy as safetensors

from seqloom.config.training import EpochsConfig, SecondsConfig, TokenCountConfig
from seqloom.errors import DamagedError, RepeatError, SeqloomError
from seqloom.experiments.compare.plan import ComparisonPlan, PlannedModel, RunEnded, RunStarted, scaled
from seqloom.experiments.workers import FAILURES, Workers, reason_of
from seqloom.files.disk import make_folder
from seqloom.files.folders import commit_folder, read_file_of
from seqloom.files.layouts import RunFile
from seqloom.inference.model import load
from seqloom.tasks.evaluation import Evaluation
from seqloom.training import checkpoint as checkpoints
from seqloom.training.devices import Alone, Device
from seqloom.training.events import Ended, Started
from seqloom.training.request import RunRequest
from seqloom.training.resolve import Resolved, resolve

FACTS, STATISTICS = "facts.json", "statistics.safetensors"


class RunFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts about an evaluated run: a line of results.jsonl."""

    model: str
    seed: int
    split: str
    task: str
    metric: str
    metrics: dict[str, float | None]
    rows: int
    parameters: int
    steps: int
    tokens: int
    seconds: float  # of training
    end_reason: str  # of training
    device: str
    jobs: int = 1  # runs at the same time, this one included


class RunEvaluation(msgspec.Struct, frozen=True):
    """A finished run: its facts, and the statistics [N,S] of every example in the order of their numbers."""

    facts: RunFacts
    ids: np.ndarray  # [N] numbers of rows
    statistics: np.ndarray


def request_of(plan: ComparisonPlan, model: str, seed: int) -> RunRequest:
    """The request for a run: recipe, seed, and the budget if it is a duration."""
    settings = {"keep_checkpoints": 1, "patience": 0} | plan.settings_of(model) | {"seed": seed}
    if plan.budget.amount is not None and plan.budget.kind != "parameters":
        amount = max(1, round(plan.budget.amount))
        in_tokens = plan.budget.kind == "tokens"
        settings["duration"] = TokenCountConfig(tokens=amount) if in_tokens else SecondsConfig(seconds=amount)
    request = RunRequest(model=model, size=plan.size, training=settings, encoding=plan.encoding)
    return request._replace(**plan.model_settings_of(model))


def resolved_run(plan: ComparisonPlan, entry: PlannedModel) -> tuple[Resolved, str]:
    """The resolved run of an entry, and a message about its size."""
    request = request_of(plan, entry.model, entry.seed)
    resolved = resolve(plan.data, request, cache=plan.cache)
    training = resolved.config.training
    if plan.budget.kind == "tokens" and training.strengths:
        # newton stops when it has converged, independent of the budget
        solved = msgspec.structs.replace(training, duration=EpochsConfig(epochs=len(training.strengths)))
        return resolved._replace(config=msgspec.structs.replace(resolved.config, training=solved)), ""
    if plan.budget.kind != "parameters" or plan.budget.amount is None:
        return resolved, ""
    model, message = scaled(resolved.config.model, round(plan.budget.amount))
    config = msgspec.structs.replace(resolved.config, model=model)
    return resolved._replace(config=config), f"{entry.model} {message}" if message else ""


def run(plan: ComparisonPlan, entry: PlannedModel, together: int = 1) -> Iterator[RunStarted | RunEnded]:
    """Train and evaluate a run; yields its start and its end. Interrupted if it is to be resumed later.

    A run that was trained and evaluated before, on the other split, only ends.

    `together` is the number of runs at the same time, which is recorded because it affects the training time.
    """
    try:
        was_trained = plan.was_evaluated(entry)
        resolved, message = resolved_run(plan, entry)
        if not was_trained:
            yield RunStarted(entry, message or f"{resolved.config.model.parameters():,} parameters")
        for report in plan.trained(plan.run_folder(entry), resolved):
            if isinstance(report, Started):
                make_folder(plan.evaluation_folder(entry).parent)
        assert isinstance(report, Ended), "the last report"
        facts = evaluate_run(plan, entry, report, resolved, together)
        seconds = None if was_trained else facts.seconds
        yield RunEnded(entry, facts.metrics[facts.metric], seconds, metric=facts.metric)
    except FAILURES as error:  # a disk error stops the comparison
        yield RunEnded(entry, None, 0.0, str(error) if isinstance(error, SeqloomError) else reason_of(error))


def evaluate_run(
    plan: ComparisonPlan, entry: PlannedModel, ended: Ended, resolved: Resolved, together: int
) -> RunFacts:
    """Evaluate a trained run; returns its facts, which are on disk with the statistics."""
    device = plan.chosen_device(resolved.config.training.precision)
    return evaluate_folder(
        plan.run_folder(entry), plan.evaluation_folder(entry), entry, ended, resolved, device, plan.split, together
    )


def evaluate_folder(
    run_folder: Path,
    into: Path,
    entry: PlannedModel,
    ended: Ended,
    resolved: Resolved,
    device: Device,
    split: Literal["dev", "test"] = "dev",
    together: int = 1,
) -> RunFacts:
    """Evaluate the model in a run folder; returns its facts, which are in the folder `into` with the statistics."""
    loaded = load(run_folder, device=device.torch)
    evaluation = loaded.evaluate(split=split)
    checkpoint, _ = checkpoints.newest(run_folder / RunFile.CHECKPOINTS, Alone())
    facts = RunFacts(
        model=entry.model,
        seed=entry.seed,
        split=split,
        task=resolved.task.name,
        metric=resolved.task.metric.name,
        metrics={name: float(value) if np.isfinite(value) else None for name, value in evaluation.metrics.items()},
        rows=evaluation.rows,
        parameters=resolved.config.model.parameters(),
        steps=ended.step,
        tokens=0 if checkpoint is None else checkpoint.run_state.tokens,
        seconds=ended.speed.seconds,
        end_reason=ended.reason,
        device=str(device.torch),
        jobs=together,
    )
    ids, statistics = by_example(evaluation)
    tensors = safetensors.save({"ids": ids, "statistics": statistics})
    commit_folder(into, {FACTS: msgspec.json.encode(facts), STATISTICS: tensors})
    return facts


def by_example(evaluation: Evaluation) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the evaluated rows, sorted, and their summed statistics: a long text comes in several windows."""
    ids, place = np.unique(np.array(evaluation.ids, dtype=np.int64), return_inverse=True)
    statistics = np.zeros((len(ids), evaluation.statistics.shape[1]))
    np.add.at(statistics, place, evaluation.statistics)
    return ids, statistics


def run_evaluation(plan: ComparisonPlan, entry: PlannedModel) -> RunEvaluation | None:
    """The evaluation of a run; None if it is not finished."""
    return read_evaluation(plan.evaluation_folder(entry))


def read_evaluation(folder: Path) -> RunEvaluation | None:
    """The evaluation in a folder; None if there is none."""
    if not folder.is_dir():
        return None
    try:
        facts = msgspec.json.decode(read_file_of(folder, FACTS), type=RunFacts)
        tensors = safetensors.load(read_file_of(folder, STATISTICS))
        return RunEvaluation(facts, tensors["ids"], tensors["statistics"])
    except (msgspec.DecodeError, KeyError) as error:
        raise DamagedError(
            f"{folder}: this evaluation is not readable ({error})",
            fix="remove the folder; the run is then evaluated again",
        ) from error


def together(plan: ComparisonPlan, entries: list[PlannedModel], jobs: int) -> Iterator[RunStarted | RunEnded]:
    """The events of runs in `jobs` processes; RepeatError if a process dies."""
    waiting, jobs = list(entries), min(jobs, len(entries))
    workers = Workers(jobs, _runs, msgspec.json.encode(plan).decode(), jobs)
    with closing(workers.messages()) as messages:  # type: ignore[type-var]
        for worker, text in filter(None, messages):
            message = msgspec.json.decode(text)
            if message is None:  # the worker asks for a run
                worker.give(msgspec.json.encode(waiting.pop(0) if waiting and workers.stopped is None else None))
            else:
                kind, (entry, *fields) = message
                yield (RunStarted if kind == "begun" else RunEnded)(PlannedModel(*entry), *fields)
    if (interruption := workers.interruption()) is not None:
        raise interruption
    for worker in workers.all:
        if lost := worker.lost():
            raise RepeatError(lost, fix="run the same command again to resume")


def _runs(receive: Callable[[], bytes], plan: str, jobs: int) -> Iterator[bytes]:
    """The messages of a worker: null to ask for a run, then the events of that run, until there are no more."""
    whole = msgspec.json.decode(plan, type=ComparisonPlan)
    while True:
        yield b"null"
        entry = msgspec.json.decode(receive(), type=PlannedModel | None)
        if entry is None:
            return
        try:
            for report in run(whole, entry, jobs):
                kind = "begun" if isinstance(report, RunStarted) else "ended"
                yield msgspec.json.encode((kind, tuple(report)))
        except SeqloomError as error:
            yield msgspec.json.encode(("ended", (entry, None, 0.0, str(error))))
            raise SystemExit(1) from None
