"""Several workers on this machine: processes with the same plan, which share nothing but the storage.

The one who started them watches the storage and tells what happens there, trials of other machines included. A worker
that cannot go on says why through a pipe; the others take up its trial, and only when all are gone that is an error.
"""

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

from seqloom.errors import RepeatError, SeqloomError
from seqloom.training.signals import Stopping
from seqloom.training.workers import end
from seqloom.tuning.plan import Plan
from seqloom.tuning.reports import State, TrialBegun, TrialEnded, TuningEnded, TuningReport, Why, WorkerLost
from seqloom.tuning.results import Results, TrialResult
from seqloom.tuning.working import Opening, work

POLL = 0.3  # seconds
STOPPED, DISK = 128, 4
ENDED: dict[str, State] = {"done": "done", "pruned": "pruned", "failed": "failed"}


class Worker(NamedTuple):
    """A process, and the end of the pipe on which its last words come."""

    process: BaseProcess
    words: Connection

    @classmethod
    def of(cls, context: SpawnContext, *given: object) -> "Worker":
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


def watched(opening: Opening, jobs: int) -> Iterator[TuningReport]:
    """The reports of all trials of a study while workers are at it; RepeatError if they ended before their work."""
    context = multiprocessing.get_context("spawn")  # nothing of this process is in them but the text of the plan
    plan = msgspec.json.encode(opening.plan).decode()
    remaining = max(0.0, opening.deadline - time.monotonic())
    workers = [Worker.of(context, plan, jobs, remaining) for _ in range(jobs)]
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
    whole = msgspec.json.decode(plan, type=Plan)
    if whole.seconds:
        whole = msgspec.structs.replace(whole, seconds=max(0.001, remaining))
    code = 0
    try:
        with closing(Opening(whole)) as opening:
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


def _ended(opening: Opening, codes: list[int], stopped: int | None) -> TuningEnded:
    why: Why = "done"
    if time.monotonic() > opening.deadline:
        why = "seconds"
    if any(code == DISK for code in codes):
        why = "disk"
    if stopped is not None:
        return TuningEnded("stopped", opening.study.results(), STOPPED + stopped)
    return TuningEnded(why, opening.study.results(), DISK if why == "disk" else 0)
