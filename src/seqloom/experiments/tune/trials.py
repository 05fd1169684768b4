"""Trials: ordinary runs whose validations are told to the study, which may give them up.

One trial; trials one after the other, as long as the study wants one and there is time; and by several workers.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from seqloom.config.training import AdamWConfig
from seqloom.errors import ConfigError, DataError, KernelError, RepeatError, SeqloomError
from seqloom.experiments.plan import Why
from seqloom.experiments.tune.folder import tidy
from seqloom.experiments.tune.plan import (
    DataGround,
    Params,
    State,
    TrialBegun,
    TrialEnded,
    TrialTold,
    TuningBegun,
    TuningEnded,
    TuningPlan,
    TuningReport,
    WorkerLost,
)
from seqloom.experiments.tune.results import Results
from seqloom.experiments.tune.space import default_wishes, drawn, near, require_searchable, used, wishes_of
from seqloom.experiments.tune.storage import HEARTBEAT, open_storage
from seqloom.experiments.tune.study import CONFIG, FOLDER, Claimed, Study
from seqloom.experiments.workers import DISK, STOPPED, Interrupted, Worker, Workers
from seqloom.files.jsonl import read_lines
from seqloom.files.layouts import RunFile
from seqloom.training.devices import choose_device
from seqloom.training.events import Begun, Ended, Validated
from seqloom.training.resolve import Resolved, resolve
from seqloom.training.run import train_run

MOST_FAILURES = 3  # in a row: then it is not the parameters
ENDED: dict[str, State] = {"done": "done", "pruned": "pruned", "failed": "failed"}


def run_trial(
    claimed: Claimed, study: Study, plan: TuningPlan, ground: DataGround, deadline: float
) -> Iterator[TuningReport]:
    """The reports of one trial; Interrupted where it is to go on later."""
    try:
        params, resolved = _resolved(claimed, plan, ground)
        folder = plan.trial_folder(claimed.number)
        for name, value in (("params", params), (CONFIG, resolved.config.to_toml()), (FOLDER, str(folder.resolve()))):
            claimed.trial.set_user_attr(name, value)
        yield TrialBegun(claimed.number, folder, params, claimed.is_default)
        yield from _trained(claimed, study, plan, resolved, deadline)
    except (ConfigError, DataError, KernelError) as error:  # a disk concerns the whole tuning
        study.failed(claimed.trial, error.in_brief)
        yield TrialEnded(claimed.number, "failed", None, False, error.in_brief)


def _resolved(claimed: Claimed, plan: TuningPlan, ground: DataGround) -> tuple[Params, Resolved]:
    """The run of a trial, and its parameters as they stand in it."""
    params = drawn(claimed.trial, plan)
    wishes = default_wishes(plan) if claimed.is_default else wishes_of(params, plan, ground)
    resolved = resolve(plan.data, wishes, cache=cache_of(plan))
    return used(resolved.config, wishes, plan), resolved


def cache_of(plan: TuningPlan) -> Path:
    """Where prepared data is kept between trials: beside them, so that it is read once."""
    return plan.folder / "prepared"


def _trained(
    claimed: Claimed, study: Study, plan: TuningPlan, resolved: Resolved, deadline: float
) -> Iterator[TuningReport]:
    folder, trial, moment, told = plan.trial_folder(claimed.number), claimed.trial, 0, time.monotonic()
    device = choose_device(plan.device, resolved.config.training.precision)  # type: ignore[arg-type]
    name = study.metric.name
    with closing(train_run(folder, resolved, device=device, workers=plan.workers)) as reports:  # type: ignore[type-var]
        for report in reports:
            yield TrialTold(claimed.number, report)
            if time.monotonic() - told > HEARTBEAT:
                study.alive(trial)
                told = time.monotonic()
            if isinstance(report, Begun):  # a run that goes on has validated before
                moment = len(
                    [one for one in read_lines(folder / RunFile.METRICS).records if one.get("kind") == "validation"]
                )
            if isinstance(report, Validated):
                moment += 1
                if study.is_hopeless(trial, report.metrics.get(name, float("nan")), moment):
                    study.pruned(trial)
                    yield _ended(claimed, study, "pruned")
                    return
            if isinstance(report, Ended):
                yield _told(claimed, study, report)
                return
            if time.monotonic() > deadline:
                raise Interrupted("seconds", 0)


def _told(claimed: Claimed, study: Study, report: Ended) -> TrialEnded:
    """The end of a run, told to the study; numbers that are not finite are as bad as a trial can be."""
    if report.why in ("stopped", "disk"):
        raise Interrupted(report.why, report.exit_code)
    value = report.metrics.get(study.metric.name)
    if value is None or report.why == "not-finite":
        study.pruned(claimed.trial)
        return _ended(claimed, study, "pruned")
    study.done(claimed.trial, value)
    return _ended(claimed, study, "done")


def _ended(claimed: Claimed, study: Study, state: Any) -> TrialEnded:
    results = study.results()
    found = next(one for one in results.trials if one.number == claimed.number)
    return TrialEnded(claimed.number, state, found.value, best=results.best == found)


class OpenTuning:
    """A tuning that is ready to begin: data read without its test part, study opened, and everything checked."""

    def __init__(self, plan: TuningPlan) -> None:
        self.plan, self.began = plan, time.monotonic()
        require_searchable(plan)
        first = self._resolved()
        self.ground = DataGround(first)
        self.plan = plan = msgspec.structs.replace(plan, space=self.ground.filled(plan.space))
        self.study = Study(plan, first.task.metric, open_storage(plan.storage))
        try:
            self.study.require_same(_asked(plan, first))
            self.study.offer_first(near(first.config, default_wishes(plan), plan, self.ground))
        except BaseException:
            self.close()
            raise
        self.said = (*first.said, *self.study.opened.said)

    def _resolved(self) -> Resolved:
        """The run that nobody tuned: it reads the data once for all."""
        plan = self.plan
        wishes = default_wishes(plan)
        resolved = resolve(plan.data, wishes, cache=cache_of(plan))
        if resolved.config.training.strengths:  # searched are steps by batches
            wishes = wishes._replace(training={**wishes.training, "optimiser": AdamWConfig()})
            resolved = resolve(plan.data, wishes, cache=cache_of(plan))
        if not len(resolved.prepared.parts["dev"]):
            raise ConfigError("there is no dev part to tune on", fix="give --dev FILE, or --shares 10%,10%")
        return resolved

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


def _asked(plan: TuningPlan, first: Resolved) -> dict[str, object]:
    """What makes two tunings the same search; where files lie may differ between machines."""
    facts = first.facts
    return {
        "task": first.config.task,
        "data": sorted(str(sum_) for sum_ in facts.fingerprints.values()),
        "split": facts.split,
        "space": plan.space,
        "settings": plan.settings,
        "encoding": first.config.encoding,
    }


def work(opening: OpenTuning) -> Iterator[TuningReport]:
    """The reports of trials until no more is wanted; the last report is `TuningEnded`."""
    study, failures = opening.study, 0
    why: Why = "done"
    code = 0
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
        why, code = interruption.why, interruption.exit_code
    yield TuningEnded(why, study.results(), code)


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
    why, code = _why(opening, workers)
    yield TuningEnded(why, opening.study.results(), code)
    if lost and why == "done" and opening.study.finished() < opening.plan.trials:
        raise RepeatError(f"workers ended before all trials did: {lost[0]}", fix="mend that; the same command goes on")


def _why(opening: OpenTuning, workers: Workers) -> tuple[Why, int]:
    """Why workers ended, and the exit code that says so."""
    if workers.stopped is not None:
        return "stopped", STOPPED + workers.stopped
    if workers.has_full_disk():
        return "disk", DISK
    return ("seconds" if time.monotonic() > opening.deadline else "done"), 0


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
        if one.state in ENDED:
            is_best = results.best is not None and results.best.number == one.number
            yield TrialEnded(one.number, ENDED[one.state], one.value, is_best, one.problem)
        seen[one.number] = one.state
