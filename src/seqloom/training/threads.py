"""The number of threads of a run on the CPU: the fastest one in a rehearsal of the first step.

More threads are not always faster: they wait for one another after every small operator, and on a busy machine for
other programs too. So the loss and gradient of the first batch are computed with 1 thread, half of them and all, a few
times in turn. No weight changes, and no random number of the run is used.

The number of threads can change the last bits of a sum. A resumed run therefore uses the number in its checkpoint, and
a number that the user set with OMP_NUM_THREADS is not changed.
"""

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from seqloom.report.numbers import counted
from seqloom.training.devices import Device, is_launched, ran_out
from seqloom.training.run_folder import RunFolder
from seqloom.training.session import Session
from seqloom.training.step import LossOf, drawing

SET_BY_USER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
ROUNDS = 3
LONGEST = 1.0  # seconds after which no further round starts; a step that takes as long uses all threads
EVEN = 1.05  # fewer threads are chosen if they take at most this much longer


@contextmanager
def threads_kept() -> Iterator[None]:
    """A context at whose end torch has its number of threads again."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def resume_threads(folder: RunFolder, device: Device) -> None:
    """Use as many threads as the checkpoint of a run, if this machine has them."""
    machine = folder.machine() if _is_free(device) else None
    if machine is not None and 1 <= machine.environment.threads < torch.get_num_threads():
        torch.set_num_threads(machine.environment.threads)


def rehearse_threads(session: Session) -> tuple[str, ...]:
    """Choose the number of threads for a new run, and return a message about it; none if there is no choice."""
    everything, config = torch.get_num_threads(), session.config.training
    if everything == 1 or not _is_free(session.device) or config.deterministic or config.compile or config.strengths:
        return ()
    try:
        seconds = _measured(session, sorted({1, max(1, everything // 2), everything}))
    except (RuntimeError, MemoryError) as error:
        if not ran_out(error):
            raise
        return ()  # the run itself divides its batches
    finally:
        torch.set_num_threads(everything)
        session.model.zero_grad(set_to_none=True)
    if not seconds:
        return ()
    threads = chosen_threads(seconds)
    torch.set_num_threads(threads)
    measured = ", ".join(f"{one}: {1_000 * takes:.3g} ms" for one, takes in seconds.items())
    return (f"{counted(threads, 'thread')} of {everything}, the fastest for the first batch ({measured})",)


def chosen_threads(seconds: dict[int, float]) -> int:
    """The fastest number of threads, or a smaller one that is about as fast.

    >>> chosen_threads({1: 0.102, 2: 0.1, 4: 0.3})
    1
    """
    limit = EVEN * min(seconds.values())
    return min(threads for threads, takes in seconds.items() if takes <= limit)


def _is_free(device: Device) -> bool:
    """Whether the number of threads may be chosen: on the CPU, for one process, unless the user set it."""
    return device.torch.type == "cpu" and not is_launched() and not any(name in os.environ for name in SET_BY_USER)


def _measured(session: Session, counts: list[int]) -> dict[int, float]:
    """The median seconds of a step without its update, by the number of threads; empty for a long step."""
    config, device = session.config.training, session.device.torch
    loader = session.task.loader(session.prepared, "train", config.batching, seed=config.seed, workers=0)
    batch = next(iter(loader.steps())).batch
    division = session.task.divided(session.model, config.accumulate)
    loss = LossOf(session.model, session.device)
    session.model.train()

    def seconds(threads: int) -> float:
        torch.set_num_threads(threads)
        began = time.perf_counter()
        with drawing(config.seed, 0, 0, 0, device):
            loss(division.task, batch, None)[0].backward()
        return time.perf_counter() - began

    if batch is None or division.micro_batches > 1 or (first := seconds(counts[-1])) > LONGEST:
        return {}
    spent, taken = first, {threads: list[float]() for threads in counts}
    for _ in range(ROUNDS):
        for threads in counts:
            taken[threads].append(seconds(threads))
        spent += sum(times[-1] for times in taken.values())
        if spent > LONGEST:
            break
    return {threads: statistics.median(times) for threads, times in taken.items()}
