"""Several workers on this machine: processes with the same plan, which share nothing but the storage.

The one who started them watches the storage and tells what happens there, trials of other machines included.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec

from seqloom.errors import SeqloomError
from seqloom.training.signals import Stopping
from seqloom.tuning.plan import Plan
from seqloom.tuning.reports import State, TrialBegun, TrialEnded, TuningEnded, TuningReport, Why
from seqloom.tuning.results import Results, TrialResult
from seqloom.tuning.working import Opening, work

POLL = 0.3  # seconds
STOPPED, DISK = 128, 4
ENDED: dict[str, State] = {"done": "done", "pruned": "pruned", "failed": "failed"}


def watched(opening: Opening, jobs: int) -> Iterator[TuningReport]:
    """The reports of all trials of a study while workers are at it."""
    context = multiprocessing.get_context("spawn")  # nothing of this process is in them but the text of the plan
    plan = msgspec.json.encode(opening.plan).decode()
    remaining = max(0.0, opening.deadline - time.monotonic())
    workers: list[BaseProcess] = [
        context.Process(target=_worker, args=(plan, jobs, remaining), daemon=False) for _ in range(jobs)
    ]
    seen: dict[int, str] = {one.number: one.state for one in opening.study.results().trials}
    with Stopping() as stopping:
        for worker in workers:
            worker.start()
        try:
            while any(worker.is_alive() for worker in workers):
                time.sleep(POLL)
                if stopping.signal is not None:
                    _end(workers)
                yield from _news(opening.study.results(), seen)
        finally:
            _end(workers)
    yield from _news(opening.study.results(), seen)
    yield _ended(opening, [worker.exitcode or 0 for worker in workers], stopping.signal)


def _worker(plan: str, jobs: int, remaining: float) -> None:
    """Trials until none is left; the exit code says why it ended."""
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
    except SeqloomError:
        code = 1
    raise SystemExit(code)


def _end(workers: list[BaseProcess]) -> None:
    """Ask those that still run to save and leave, and wait for them."""
    for worker in workers:
        if worker.is_alive() and worker.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGTERM)
    for worker in workers:
        worker.join()


def _news(results: Results, seen: dict[int, str]) -> Iterator[TuningReport]:
    """What changed since the last look."""
    for one in results.trials:
        before = seen.get(one.number)
        if one.state == before or not one.config:
            continue
        if before in (None, "waiting"):
            yield TrialBegun(one.number, Path(one.folder), one.params, one.is_default)
        if one.state in ENDED:
            yield TrialEnded(one.number, ENDED[one.state], one.value, best=_is_best(one, results))
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
        why = "stopped"
    failed = next((code for code in codes if code > 0 and why != "stopped"), 0)
    return TuningEnded(why, opening.study.results(), STOPPED + stopped if stopped is not None else failed)
