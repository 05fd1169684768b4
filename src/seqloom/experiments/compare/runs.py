"""One run of a comparison: an ordinary run folder, trained with its budget, then judged and kept example by example.

    DIR/runs/cnn-0            the run: it resumes as any run does
    DIR/judged/dev/cnn-0      facts.json and the statistics of every example; there, the run is finished

Judging is the last thing that happens and is written at once, so a finished run is never trained or judged again.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import msgspec
import numpy as np
from safetensors import numpy as safetensors

from seqloom.config.training import EpochsConfig, SecondsConfig, SymbolsConfig
from seqloom.errors import ConfigError, DamagedError, DataError, KernelError, RepeatError, SeqloomError
from seqloom.experiments.compare.plan import ComparisonPlan, PlannedModel, RunBegun, RunEnded, scaled
from seqloom.experiments.workers import Workers
from seqloom.files.disk import make_folder
from seqloom.files.folders import commit_folder, read_file_of
from seqloom.files.layouts import RunFile
from seqloom.inference.model import load
from seqloom.tasks.evaluation import Evaluation
from seqloom.training import checkpoint as checkpoints
from seqloom.training.distributed import Alone
from seqloom.training.events import Begun, Ended
from seqloom.training.resolve import Resolved, resolve
from seqloom.training.wishes import Wishes

FACTS, STATISTICS = "facts.json", "statistics.safetensors"


class RunCosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known about a run that is judged: a line of results.jsonl."""

    model: str
    seed: int
    part: str
    task: str
    metric: str
    metrics: dict[str, float | None]
    rows: int
    parameters: int
    steps: int
    symbols: int
    seconds: float  # of training
    ended: str  # why training ended
    device: str
    together: int = 1  # runs that shared the machine with it, itself among them


class Judgement(msgspec.Struct, frozen=True):
    """A finished run: its facts, and the statistics [N,S] of every example in the order of their numbers."""

    facts: RunCosts
    ids: np.ndarray  # [N] numbers of rows
    statistics: np.ndarray


def wishes_of(plan: ComparisonPlan, model: str, seed: int) -> Wishes:
    """What is wanted of a run: the recipe, its seed, and the budget where that is a length."""
    settings = {"keep": 1, "patience": 0} | plan.shared | {"seed": seed}
    if plan.budget.amount is not None and plan.budget.kind != "parameters":
        length = SymbolsConfig if plan.budget.kind == "symbols" else SecondsConfig
        settings["length"] = length(count=max(1, round(plan.budget.amount)))
    told: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in plan.wishes.items()
    }
    return Wishes(model=model, size=plan.size, training=settings, encoding=plan.encoding)._replace(**told)


def resolved_run(plan: ComparisonPlan, entry: PlannedModel) -> tuple[Resolved, str]:
    """The run of an entry with nothing left open, and what is to be known about its size."""
    wishes = wishes_of(plan, entry.model, entry.seed)
    resolved = resolve(plan.data, wishes, cache=plan.cache)
    training = resolved.config.training
    if plan.budget.kind == "symbols" and training.strengths:
        # a budget would end it before it is solved, and what is solved has no use for more
        solved = msgspec.structs.replace(training, length=EpochsConfig(count=len(training.strengths)))
        return resolved._replace(config=msgspec.structs.replace(resolved.config, training=solved)), ""
    if plan.budget.kind != "parameters" or plan.budget.amount is None:
        return resolved, ""
    model, said = scaled(resolved.config.model, round(plan.budget.amount))
    config = msgspec.structs.replace(resolved.config, model=model)
    return resolved._replace(config=config), f"{entry.model} {said}" if said else ""


def run(plan: ComparisonPlan, entry: PlannedModel, together: int = 1) -> Iterator[RunBegun | RunEnded]:
    """The beginning and the end of a run that is trained and judged; Interrupted where it is to go on later.

    `together` runs share the machine: they wait for each other's cores, and who reads their seconds should know.
    """
    try:
        resolved, said = resolved_run(plan, entry)
        yield RunBegun(entry, said or f"{resolved.config.model.parameters():,} parameters")
        for report in plan.trained(plan.run_folder(entry), resolved):
            if isinstance(report, Begun):
                make_folder(plan.judged_folder(entry).parent)
        assert isinstance(report, Ended), "the last report"
        facts = judge(plan, entry, report, resolved, together)
        yield RunEnded(entry, facts.metrics[facts.metric], facts.seconds)
    except (ConfigError, DataError, KernelError) as error:  # a disk concerns the whole comparison
        yield RunEnded(entry, None, 0.0, str(error))


def judge(plan: ComparisonPlan, entry: PlannedModel, ended: Ended, resolved: Resolved, together: int) -> RunCosts:
    """The facts of a trained run; when they come back, they and the statistics are on the disk."""
    device = plan.chosen_device(resolved.config.training.precision)
    loaded = load(plan.run_folder(entry), device=device.torch)
    evaluation = loaded.evaluate(part=plan.part)
    checkpoint, _ = checkpoints.newest(plan.run_folder(entry) / RunFile.CHECKPOINTS, Alone())
    facts = RunCosts(
        model=entry.model,
        seed=entry.seed,
        part=plan.part,
        task=resolved.task.name,
        metric=resolved.task.metric.name,
        metrics={name: float(value) if np.isfinite(value) else None for name, value in evaluation.metrics.items()},
        rows=evaluation.rows,
        parameters=resolved.config.model.parameters(),
        steps=ended.step,
        symbols=0 if checkpoint is None else checkpoint.standing.symbols,
        seconds=ended.pace.seconds,
        ended=ended.why,
        device=str(device.torch),
        together=together,
    )
    ids, statistics = by_example(evaluation)
    tensors = safetensors.save({"ids": ids, "statistics": statistics})
    commit_folder(plan.judged_folder(entry), {FACTS: msgspec.json.encode(facts), STATISTICS: tensors})
    return facts


def by_example(evaluation: Evaluation) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the judged rows, sorted, and the summed statistics of each: a long text comes in pieces."""
    ids, place = np.unique(np.array(evaluation.ids, dtype=np.int64), return_inverse=True)
    statistics = np.zeros((len(ids), evaluation.statistics.shape[1]))
    np.add.at(statistics, place, evaluation.statistics)
    return ids, statistics


def judgement(plan: ComparisonPlan, entry: PlannedModel) -> Judgement | None:
    """What came of a run; None if it is not finished."""
    folder = plan.judged_folder(entry)
    if not folder.is_dir():
        return None
    try:
        facts = msgspec.json.decode(read_file_of(folder, FACTS), type=RunCosts)
        tensors = safetensors.load(read_file_of(folder, STATISTICS))
        return Judgement(facts, tensors["ids"], tensors["statistics"])
    except (msgspec.DecodeError, KeyError) as error:
        raise DamagedError(
            f"{folder}: expected a judged run, found something else ({error})",
            fix="remove the folder: it is judged anew",
        ) from error


def together(plan: ComparisonPlan, entries: list[PlannedModel], jobs: int) -> Iterator[RunBegun | RunEnded]:
    """The reports of runs in `jobs` processes, which ask for one after the other; RepeatError if a process is lost."""
    waiting, jobs = list(entries), min(jobs, len(entries))
    workers = Workers(jobs, _runs, msgspec.json.encode(plan).decode(), jobs)
    with closing(workers.said()) as said:  # type: ignore[type-var]
        for worker, text in filter(None, said):
            told = msgspec.json.decode(text)
            if told is None:  # it asks for a run
                worker.give(msgspec.json.encode(waiting.pop(0) if waiting and workers.stopped is None else None))
            else:
                kind, (entry, *fields) = told
                yield (RunBegun if kind == "begun" else RunEnded)(PlannedModel(*entry), *fields)
    if (interruption := workers.interruption()) is not None:
        raise interruption
    for worker in workers.all:
        if lost := worker.lost():
            raise RepeatError(lost, fix="the same command goes on")


def _runs(receive: Callable[[], bytes], plan: str, jobs: int) -> Iterator[bytes]:
    """What a worker says: null when it asks for a run, then how that goes, until there is none."""
    whole = msgspec.json.decode(plan, type=ComparisonPlan)
    while True:
        yield b"null"
        entry = msgspec.json.decode(receive(), type=PlannedModel | None)
        if entry is None:
            return
        try:
            for report in run(whole, entry, jobs):
                kind = "begun" if isinstance(report, RunBegun) else "ended"
                yield msgspec.json.encode((kind, tuple(report)))
        except SeqloomError as error:
            yield msgspec.json.encode(("ended", (entry, None, 0.0, str(error))))
            raise SystemExit(1) from None
