"""Distribute windows over a Ray cluster and collect the vectors in file order.

The driver reads, stores and joins; each worker loads the model and computes vectors. Workers load the model from the
path that the driver uses, so on several machines it must be on a shared disk. A worker has as many threads as the
driver, because sums may depend on that; then the bytes are the same as those of one process.

The cluster is that of RAY_ADDRESS, or the one on this machine, or a new one that ends with the job. Ray moves windows
and vectors between processes as pickles: whoever can write to the cluster can run code in it, so join only clusters
that you trust. Files of Seqloom are never pickles.
"""

import os
import socket
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from seqloom.bundle import identity_of
from seqloom.errors import ConfigError, DataError, RepeatError, SeqloomError, needing
from seqloom.inference.model import LoadedModel
from seqloom.search.embedding.windows import Window, WindowVectors, WindowWorker, WorkerSetup

AHEAD = 2  # windows queued per worker, so that none waits for the driver
PATIENCE = 300.0  # seconds until the first worker is ready
BEHIND = 60.0  # seconds that the other workers may take longer
ANSWERS = 10.0  # seconds until a running cluster has answered
QUIET = "RAY_USAGE_STATS_ENABLED"


class WorkerFailure(NamedTuple):
    """The message of an error."""

    problem: str
    fix: str


class RayWorker:
    """A worker in its own process. It returns the messages of Seqloom errors, which cannot be pickled."""

    def __init__(self, setup: WorkerSetup, identity: str) -> None:
        self.setup, self.identity = setup, identity

    def ready(self) -> WorkerFailure | None:
        """Load the model; returns why that failed, or None."""
        torch.set_num_threads(self.setup.threads)
        machine, fix = socket.gethostname(), "put the model on a disk that all machines of the cluster share"
        try:
            if identity_of(Path(self.setup.model)) != self.identity:
                return WorkerFailure(f"on {machine}, {self.setup.model} is a different model than here", fix)
            self.worker = WindowWorker(self.setup)
        except (SeqloomError, OSError) as error:
            return WorkerFailure(f"on {machine}: {error.problem if isinstance(error, SeqloomError) else error}", fix)
        return None

    def made(self, work: Window) -> WindowVectors | WorkerFailure:
        """Return the vectors of a window, or why it failed."""
        try:
            return self.worker.made(work)
        except SeqloomError as error:
            return WorkerFailure(error.problem, error.fix)


def ray_engine(setup: WorkerSetup, _: LoadedModel, works: Iterable[Window]) -> Iterator[WindowVectors]:
    """Compute windows on as many workers as the cluster has room for, and yield the vectors in order."""
    with needing("ray"):
        import ray
    with _joined(ray), _cluster_failures(ray):
        yield from _spread(ray, _workers(ray, setup), works)


@contextmanager
def _joined(ray: Any) -> Iterator[None]:
    """A context in a Ray cluster: that of the caller, or one that is left at the end."""
    if ray.is_initialized():
        yield
        return
    before = dict(os.environ)
    try:
        try:
            os.environ.setdefault(QUIET, "0")  # send no usage statistics; processes that Ray starts inherit this
            _join(ray)
        finally:  # Ray sets variables of its own; later changes come from others
            changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
        yield
    finally:
        ray.shutdown()
        for name, value in changed.items():  # restore the environment where nobody else has changed it
            if os.environ.get(name) == value:
                del os.environ[name]
                os.environ.update({name: before[name]} if name in before else {})


def _join(ray: Any) -> None:
    """Join or start a cluster; ConfigError if that fails."""
    address = os.environ.get("RAY_ADDRESS", "a cluster on this machine")
    try:
        _require_reachable(address)
        ray.init(log_to_driver=False, logging_level="error", include_dashboard=False)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        shown, fix = without_secrets(address), "check RAY_ADDRESS and the cluster, or leave out --engine ray"
        message = _first_line(error).replace(address, shown)
        raise ConfigError(f"Ray cannot join {shown}: {message}", fix=fix) from None  # the cause shows the address


def without_secrets(address: str) -> str:
    """Return an address without user, password and control characters.

    >>> without_secrets("ray://me:secret@host:10001"), without_secrets("10.0.0.1:6379")
    ('ray://host:10001', '10.0.0.1:6379')
    """
    scheme, mark, rest = address.partition("://") if "://" in address else ("", "", address)
    shown = f"{scheme}{mark}{rest.rpartition('@')[2]}"[:200]
    return "".join(one if one.isprintable() else "?" for one in shown)


def _require_reachable(address: str) -> None:
    """Raise OSError if nothing listens at HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS).close()


@contextmanager
def _cluster_failures(ray: Any) -> Iterator[None]:
    """A context in which failures of the cluster become Seqloom errors; finished windows are kept."""
    try:
        yield
    except ray.exceptions.RayError as error:
        fix = "check the cluster, then run the same command to resume"
        raise RepeatError(f"the Ray cluster failed: {_first_line(error)}", fix=fix) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().split("\n") if str(error).strip() else [type(error).__name__]
    return lines[0][:200].rstrip(".:")


def room(setup: WorkerSetup, nodes: Sequence[Mapping[str, Any]]) -> tuple[int, dict[str, int]]:
    """Return the number of workers that fit on the machines, and the resources of each; ConfigError if none fits."""
    on_gpus = setup.device.startswith("cuda")
    kind, each = ("GPU", 1) if on_gpus else ("CPU", setup.threads)
    found = [int(node["Resources"].get(kind, 0)) for node in nodes if node["Alive"]]
    count, most = sum(one // each for one in found), max(found, default=0)
    if not count and on_gpus:
        raise ConfigError("the model is on a GPU, but no machine of the Ray cluster has one", fix="--device cpu")
    if not count:
        text = f"a worker needs as many threads as this process, {each:,}, but no machine of the Ray cluster has"
        raise ConfigError(f"{text} more than {most} cores", fix=f"set OMP_NUM_THREADS={max(1, most)}")
    return count, {"num_gpus": 1} if on_gpus else {"num_cpus": each}


def free_places(needed: Mapping[str, int], available: Mapping[str, float]) -> int:
    """Return how many workers fit into the free resources; Ray leaves out resources of which nothing is free.

    >>> free_places({"num_cpus": 2}, {"CPU": 7.0}), free_places({"num_gpus": 1}, {"CPU": 7.0})
    (3, 0)
    """
    ((name, each),) = needed.items()
    return int(available.get(name.removeprefix("num_").removesuffix("s").upper(), 0)) // each


def _workers(ray: Any, setup: WorkerSetup) -> list[Any]:
    """Start workers and return those that are ready in time; the others are stopped.

    It waits for as many as there is room for now, at least one.
    """
    count, needed = room(setup, ray.nodes())
    free = min(count, max(1, free_places(needed, ray.available_resources())))
    begun = ray.remote(RayWorker).options(**needed)
    there = setup._replace(device=setup.device.partition(":")[0])  # Ray shows each worker one GPU, numbered 0
    identity = identity_of(Path(setup.model))
    asked = {worker.ready.remote(): worker for worker in (begun.remote(there, identity) for _ in range(count))}
    first, _ = ray.wait(list(asked), num_returns=1, timeout=PATIENCE)
    ray.wait(list(asked), num_returns=free, timeout=BEHIND if first else 0)
    done, late = ray.wait(list(asked), num_returns=count, timeout=0)
    for one in late:
        ray.kill(asked[one])
    if not done:
        text = f"no worker was ready within {PATIENCE:.0f} seconds: the Ray cluster may be busy"
        raise RepeatError(text, fix="run the same command later to resume")
    for answer in ray.get(done):
        _required(answer)
    return [asked[one] for one in done]


def _spread(ray: Any, workers: Sequence[Any], works: Iterable[Window]) -> Iterator[WindowVectors]:
    waiting: deque[Any] = deque()
    for number, work in enumerate(works):
        waiting.append(workers[number % len(workers)].made.remote(work))
        if len(waiting) == AHEAD * len(workers):
            yield _required(ray.get(waiting.popleft()))
    while waiting:
        yield _required(ray.get(waiting.popleft()))


def _required(answer: Any) -> Any:
    """Return the answer; raise its error if it is a failure."""
    if isinstance(answer, WorkerFailure):
        raise DataError(answer.problem, fix=answer.fix)
    return answer
