"""Tuning from Python in one call, and the generator behind it that the command line shows.

Trials run one after the other, as long as the study wants one and there is time, or by several workers that share
nothing but the storage.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from seqloom.config.data import AnySplit, BadRows, EncodingConfig, ReadingConfig, Task
from seqloom.config.options import stated, strict
from seqloom.config.training import AdamWConfig, AnyFeed, AnyLength, AnyOptimiser, AnySchedule, Precision
from seqloom.config.tuning import SpaceConfig
from seqloom.data.check import Names
from seqloom.errors import ConfigError, RepeatError, SeqloomError
from seqloom.experiments.tune.plan import (
    DataGround,
    PrunerName,
    TrialBegun,
    TrialEnded,
    TuningBegun,
    TuningEnded,
    TuningPlan,
    TuningReport,
    WorkerLost,
    default_wishes,
    near,
    require_searchable,
)
from seqloom.experiments.tune.results import Results
from seqloom.experiments.tune.study import Study, open_storage
from seqloom.experiments.tune.trials import keep as keep_results
from seqloom.experiments.tune.trials import run_trial, tidy
from seqloom.experiments.workers import Interrupted, Why, Worker, Workers, require_jobs
from seqloom.files.disk import make_folder
from seqloom.training.resolve import resolve
from seqloom.training.wishes import settings_of

MOST_FAILURES = 3  # in a row: then it is not the parameters


class OpenTuning:
    """A tuning that is ready to begin: data read without its test part, study opened, and everything checked."""

    def __init__(self, plan: TuningPlan) -> None:
        self.plan, self.began = plan, time.monotonic()
        require_searchable(plan)
        wishes = default_wishes(plan)
        first = resolve(plan.data, wishes, cache=plan.cache)  # the run that nobody tuned reads the data once for all
        if first.config.training.strengths:  # searched are steps by batches
            wishes = wishes._replace(training={**wishes.training, "optimiser": AdamWConfig()})
            first = resolve(plan.data, wishes, cache=plan.cache)
        if not len(first.prepared.parts["dev"]):
            raise ConfigError("there is no dev part to tune on", fix="give --dev FILE, or --shares 10%,10%")
        self.ground = DataGround(first)
        self.plan = plan = msgspec.structs.replace(plan, space=self.ground.filled(plan.space))
        self.study = Study(plan, first.task.metric, open_storage(plan.storage))
        try:
            self.study.require_same(plan.asked(first) | {"space": plan.space})
            self.study.offer_first(near(first.config, default_wishes(plan), plan, self.ground))
        except BaseException:
            self.close()
            raise
        self.said = (*first.said, *self.study.opened.said)

    def begun(self) -> TuningBegun:
        """The first report."""
        plan, study = self.plan, self.study
        return TuningBegun(plan.folder, plan.study, study.opened.shown, plan.trials, study.finished(), self.said)

    def close(self) -> None:
        """Let go of the storage."""
        self.study.opened.close()

    @property
    def deadline(self) -> float:
        """When time is up."""
        return self.began + self.plan.seconds if self.plan.seconds else math.inf


def work(opening: OpenTuning) -> Iterator[TuningReport]:
    """The reports of trials until no more is wanted; the last report is `TuningEnded`."""
    study, failures, ended = opening.study, 0, Interrupted("done", 0)
    try:
        while True:
            if time.monotonic() > opening.deadline:
                raise Interrupted("seconds", 0)
            with study.claim() as claimed:
                if claimed is None:
                    break
                for report in run_trial(claimed, study, opening.plan, opening.ground, opening.deadline):
                    yield report
                    if isinstance(report, TrialEnded):
                        failures = failures + 1 if report.state == "failed" else 0
                        if failures >= MOST_FAILURES:
                            problem = f"{failures} trials in a row failed; the last one: {report.problem}"
                            raise ConfigError(problem, fix="mend that first")
            tidy(opening.plan, study.results())
    except Interrupted as interruption:
        ended = interruption
    yield TuningEnded(ended.why, study.results(), ended.exit_code)


def watched(opening: OpenTuning, jobs: int) -> Iterator[TuningReport]:
    """The reports of all trials of a study while workers are at it; RepeatError if they ended before their work.

    Workers share nothing but the storage, which is watched: trials of other machines are told too. One that cannot go
    on says why; the others take up its trial, and only when all are gone that is an error.
    """
    plan = msgspec.json.encode(opening.plan).decode()
    workers = Workers(jobs, _trials, plan, max(0.0, opening.deadline - time.monotonic()))
    seen: dict[int, str] = {one.number: one.state for one in opening.study.results().trials}
    words = dict[Worker, str]()
    with closing(workers.said()) as said:  # type: ignore[type-var]
        for one in said:
            if one is not None:
                words[one[0]] = one[1].decode()
            yield from _news(opening.study.results(), seen)
    yield from _news(opening.study.results(), seen)
    lost = [words.get(worker) or worker.lost() for worker in workers.all if workers.stopped is None]
    lost = [problem for problem in lost if problem]
    yield from map(WorkerLost, lost)
    late: Why = "seconds" if time.monotonic() > opening.deadline else "done"
    ended = workers.interruption() or Interrupted(late, 0)
    yield TuningEnded(ended.why, opening.study.results(), ended.exit_code)
    if lost and ended.why == "done" and opening.study.finished() < opening.plan.trials:
        raise RepeatError(f"workers ended before all trials did: {lost[0]}", fix="mend that; the same command goes on")


def _trials(_: Callable[[], bytes], plan: str, remaining: float) -> Iterator[bytes]:
    """What a worker says: nothing while all goes well, for its trials are in the storage; why it cannot go on."""
    whole = msgspec.json.decode(plan, type=TuningPlan)
    if whole.seconds:
        whole = msgspec.structs.replace(whole, seconds=max(0.001, remaining))
    try:
        with closing(OpenTuning(whole)) as opening:
            for report in work(opening):
                last = report
    except SeqloomError as error:
        yield str(error).encode(errors="replace")
        raise SystemExit(1) from None
    assert isinstance(last, TuningEnded), "the last report"
    raise SystemExit(last.exit_code)


def _news(results: Results, seen: dict[int, str]) -> Iterator[TuningReport]:
    """What changed since the last look."""
    for one in results.trials:
        before = seen.get(one.number)
        if one.state == before or not (one.config or one.problem):
            continue
        if before in (None, "waiting"):
            yield TrialBegun(one.number, Path(one.folder), one.params, one.is_default)
        if one.state in ("done", "pruned", "failed"):
            yield TrialEnded(one.number, one.state, one.value, results.best == one, one.problem)
        seen[one.number] = one.state


def search(plan: TuningPlan, jobs: int = 1) -> Iterator[TuningReport]:
    """The reports of a tuning that begins or goes on; at the last one, `TuningEnded`, the folder has its results."""
    require_jobs(jobs)
    make_folder(plan.folder / "trials")
    with closing(OpenTuning(plan)) as opening:
        yield opening.begun()
        for report in work(opening) if jobs == 1 else watched(opening, jobs):
            if isinstance(report, TuningEnded):
                keep_results(plan, report.results)
                tidy(plan, report.results)
            yield report


@strict
def tune(
    *data: str | Path,
    out: str | Path,
    models: Sequence[str] = (),
    trials: int = 20,
    seconds: float = 0.0,
    storage: str | None = None,
    study: str | None = None,
    space: SpaceConfig = SpaceConfig(),  # noqa: B008  # frozen
    pruner: PrunerName = "median",
    jobs: int = 1,
    seed: int = 0,
    device: str = "auto",
    encoding: EncodingConfig | None = None,
    show: Callable[[TuningReport], None] | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    symbols: int | None = None,
    length: AnyLength | None = None,
    dev: Names | None = None,
    test: Names | None = None,
    reading: ReadingConfig | None = None,
    task: Task | None = None,
    input: Names | None = None,
    target: Names | None = None,
    id: str | None = None,
    label_separator: str | None = None,
    sequence: str | None = None,
    split: AnySplit | None = None,
    bad_rows: BadRows | None = None,
    feed: AnyFeed | None = None,
    optimiser: AnyOptimiser | None = None,
    rate: float | None = None,
    schedule: AnySchedule | None = None,
    clip: float | None = None,
    pieces: int | None = None,
    validate_every: int | None = None,
    metric: str | None = None,
    patience: int | None = None,
    save_every: int | None = None,
    keep: int | None = None,
    average: float | None = None,
    average_last: int | None = None,
    precision: Precision | None = None,
    compile: bool | None = None,
    init: str | None = None,
    freeze: Sequence[str] | None = None,
    report_every: int | None = None,
    deterministic: bool | None = None,
) -> Results:
    """The results of many trials on the dev part; `out` has them and the best model. What is there goes on.

    `seconds` end the search, and `seed` is that of its draws. From `epochs` on, settings are those of `DataConfig` and
    of `TrainingConfig`, the same in every trial.
    """
    named: dict[str, Any] = {"dev": dev, "test": test, "reading": reading, "task": task, "input": input, "id": id}
    named |= {"target": target, "label_separator": label_separator, "sequence": sequence, "split": split}
    named |= {"bad_rows": bad_rows}
    named |= {"length": length, "feed": feed, "optimiser": optimiser, "rate": rate, "schedule": schedule}
    named |= {"clip": clip, "pieces": pieces, "validate_every": validate_every, "metric": metric, "keep": keep}
    named |= {"patience": patience, "save_every": save_every, "average": average, "average_last": average_last}
    named |= {"precision": precision, "compile": compile, "init": init, "freeze": freeze}
    named |= {"report_every": report_every, "deterministic": deterministic}
    named |= {"epochs": epochs, "steps": steps, "symbols": symbols}
    config, wishes = settings_of(data, stated(named))
    plan = TuningPlan(
        data=config,
        out=str(out),
        storage=storage or "",
        study=study or "",
        space=msgspec.structs.replace(space, models=tuple(models)) if models else space,
        trials=trials,
        seconds=seconds,
        pruner=pruner,
        seed=seed,
        device=device,
        encoding=encoding,
        settings=msgspec.to_builtins(wishes.training),
    )
    for report in search(plan, jobs):
        if show is not None:
            show(report)
    assert isinstance(report, TuningEnded), "the last report"
    return report.results
