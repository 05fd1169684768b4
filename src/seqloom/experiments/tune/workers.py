"""Several workers on this machine: processes with the same plan, which share nothing but the storage.

The one who started them watches the storage and tells what happens there, trials of other machines included. A worker
that cannot go on says why through a pipe; the others take up its trial, and only when all are gone that is an error.
"""

import math
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

import msgspec

from seqloom.config.training import AdamWConfig
from seqloom.errors import ConfigError, RepeatError, SeqloomError
from seqloom.experiments.tune.events import (
    State,
    TrialBegun,
    TrialEnded,
    TuningBegun,
    TuningEnded,
    TuningReport,
    Why,
    WorkerLost,
)
from seqloom.experiments.tune.folder import tidy
from seqloom.experiments.tune.plan import DataGround, TuningPlan
from seqloom.experiments.tune.results import Results, TrialResult
from seqloom.experiments.tune.space import default_wishes, near, require_searchable
from seqloom.experiments.tune.storage import open_storage
from seqloom.experiments.tune.study import Study
from seqloom.experiments.tune.trials import TrialInterrupted, cache_of, run_trial
from seqloom.training.launcher import end
from seqloom.training.resolve import Resolved, resolve
from seqloom.training.signals import Stopping

# -----------------------------------------------------------------------------
# Trials one after the other, as long as the study wants one and there is time.
# -----------------------------------------------------------------------------

MOST_FAILURES = 3  # in a row: then it is not the parameters


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
                raise TrialInterrupted("seconds", 0)
            with study.claim() as claimed:
                if claimed is None:
                    break
                for report in run_trial(claimed, study, opening.plan, opening.ground, opening.deadline):
                    yield report
                    if isinstance(report, TrialEnded):
                        failures = failures + 1 if report.state == "failed" else 0
                        _require_some_success(failures, report)
            tidy(opening.plan, study.results())
    except TrialInterrupted as interruption:
        why, code = interruption.why, interruption.exit_code
    yield TuningEnded(why, study.results(), code)


def _require_some_success(failures: int, last: TrialEnded) -> None:
    if failures >= MOST_FAILURES:
        raise ConfigError(f"{failures} trials in a row failed; the last one: {last.problem}", fix="mend that first")


POLL = 0.3  # seconds
STOPPED, DISK = 128, 4
ENDED: dict[str, State] = {"done": "done", "pruned": "pruned", "failed": "failed"}


class TuningWorker(NamedTuple):
    """A process, and the end of the pipe on which its last words come."""

    process: BaseProcess
    words: Connection

    @classmethod
    def of(cls, context: SpawnContext, *given: object) -> "TuningWorker":
        """A worker that is not started yet."""
        words, mouth = context.Pipe(duplex=False)
        return cls(context.Process(target=_worker, args=(mouth, *given), daemon=False), words)

    def lost(self) -> str:
        """Why it ended before its time; empty if it did not."""
        code = self.process.exitcode or 0
        with suppress(EOFError):  # it said nothing
            return self.words.recv_bytes().decode()
        if code in (0, DISK):
            return ""
        number = -code if code < 0 else code - STOPPED
        named = signal.Signals(number).name if number in signal.valid_signals() else f"an error, exit code {code}"
        return f"a worker was ended by {named}"


def watched(opening: OpenTuning, jobs: int) -> Iterator[TuningReport]:
    """The reports of all trials of a study while workers are at it; RepeatError if they ended before their work."""
    context = multiprocessing.get_context("spawn")  # nothing of this process is in them but the text of the plan
    plan = msgspec.json.encode(opening.plan).decode()
    remaining = max(0.0, opening.deadline - time.monotonic())
    workers = [TuningWorker.of(context, plan, jobs, remaining) for _ in range(jobs)]
    seen: dict[int, str] = {one.number: one.state for one in opening.study.results().trials}
    with Stopping() as stopping:
        for worker in workers:
            worker.process.start()
        try:
            while any(worker.process.is_alive() for worker in workers):
                time.sleep(POLL)
                if stopping.signal is not None:
                    end([worker.process for worker in workers])
                yield from _news(opening.study.results(), seen)
        finally:
            end([worker.process for worker in workers])
    yield from _news(opening.study.results(), seen)
    lost = [words for worker in workers if (words := worker.lost()) and stopping.signal is None]
    yield from map(WorkerLost, lost)
    ended = _ended(opening, [worker.process.exitcode or 0 for worker in workers], stopping.signal)
    yield ended
    if lost and ended.why == "done" and opening.study.finished() < opening.plan.trials:
        raise RepeatError(f"workers ended before all trials did: {lost[0]}", fix="mend that; the same command goes on")


def _worker(mouth: Connection, plan: str, jobs: int, remaining: float) -> None:
    """Trials until none is left; the exit code says why it ended."""
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to all; who watches says it once, by SIGTERM
        signal.signal(number, signal.SIG_IGN)
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // jobs))
    whole = msgspec.json.decode(plan, type=TuningPlan)
    if whole.seconds:
        whole = msgspec.structs.replace(whole, seconds=max(0.001, remaining))
    code = 0
    try:
        with closing(OpenTuning(whole)) as opening:
            for report in work(opening):
                if isinstance(report, TuningEnded):
                    code = report.exit_code
    except SeqloomError as error:
        mouth.send_bytes(str(error).encode(errors="replace"))
        code = 1
    raise SystemExit(code)


def _news(results: Results, seen: dict[int, str]) -> Iterator[TuningReport]:
    """What changed since the last look."""
    for one in results.trials:
        before = seen.get(one.number)
        if one.state == before or not (one.config or one.problem):
            continue
        if before in (None, "waiting"):
            yield TrialBegun(one.number, Path(one.folder), one.params, one.is_default)
        if one.state in ENDED:
            yield TrialEnded(one.number, ENDED[one.state], one.value, _is_best(one, results), one.problem)
        seen[one.number] = one.state


def _is_best(one: TrialResult, results: Results) -> bool:
    return results.best is not None and results.best.number == one.number


def _ended(opening: OpenTuning, codes: list[int], stopped: int | None) -> TuningEnded:
    why: Why = "done"
    if time.monotonic() > opening.deadline:
        why = "seconds"
    if any(code == DISK for code in codes):
        why = "disk"
    if stopped is not None:
        return TuningEnded("stopped", opening.study.results(), STOPPED + stopped)
    return TuningEnded(why, opening.study.results(), DISK if why == "disk" else 0)
