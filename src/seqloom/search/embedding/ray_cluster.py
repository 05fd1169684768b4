"""The windows spread over a Ray cluster, and what comes of them in the order of the file.

The driver reads, keeps and joins; workers hold a model each and make vectors. They read the model from the folder that
the driver names, so on a cluster of several machines it lies on a disk that all of them see. A worker has as many
threads as the driver, for sums may depend on that: then the bytes are those of one process.

The cluster is the one of RAY_ADDRESS, else the one on this machine, else a new one that ends with the work. Ray moves
windows and vectors between its processes as pickles: whoever can write to the cluster can run code in it, so join one
that you trust. No file of ours is one.
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
from seqloom.search.embedding.windows import Setup, WindowVectors, WindowWorker, Work

AHEAD = 2  # windows that wait for each worker, so that none of them waits for the driver
PATIENCE = 300.0  # seconds until the first worker has a place and a model
BEHIND = 60.0  # seconds that the others may take longer
ANSWERS = 10.0  # seconds until a cluster that is there has answered
QUIET = "RAY_USAGE_STATS_ENABLED"


class Refused(NamedTuple):
    """The words of an error."""

    problem: str
    fix: str


class RayWorker:
    """A worker in a process of its own. Our errors do not travel, their words do."""

    def __init__(self, setup: Setup, identity: str) -> None:
        self.setup, self.identity = setup, identity

    def ready(self) -> Refused | None:
        """Why there is no model to ask; None when there is one."""
        torch.set_num_threads(self.setup.threads)
        machine, fix = socket.gethostname(), "put the model on a disk that all machines of the cluster see"
        try:
            if identity_of(Path(self.setup.model)) != self.identity:
                return Refused(f"on {machine}, {self.setup.model} is another model than here", fix)
            self.worker = WindowWorker(self.setup)
        except (SeqloomError, OSError) as error:
            return Refused(f"on {machine}: {error.problem if isinstance(error, SeqloomError) else error}", fix)
        return None

    def made(self, work: Work) -> WindowVectors | Refused:
        """The vectors of a window, or why there are none."""
        try:
            return self.worker.made(work)
        except SeqloomError as error:
            return Refused(error.problem, error.fix)


def on_ray(setup: Setup, _: LoadedModel, works: Iterable[Work]) -> Iterator[WindowVectors]:
    """What comes of the windows, in their order, from all workers that the cluster has room for."""
    with needing("ray"):
        import ray
    with _joined(ray), _failures_told(ray):
        yield from _spread(ray, _workers(ray, setup), works)


@contextmanager
def _joined(ray: Any) -> Iterator[None]:
    """A block in a cluster: the caller's, who has joined one, or one that is left behind the block."""
    if ray.is_initialized():
        yield
        return
    before = dict(os.environ)
    try:
        try:
            os.environ.setdefault(QUIET, "0")  # nothing is sent anywhere: the processes that Ray begins read it
            _join(ray)
        finally:  # Ray sets some of its own; what is set later is not of its doing
            told = {name: value for name, value in os.environ.items() if before.get(name) != value}
        yield
    finally:
        ray.shutdown()
        for name, value in told.items():  # the environment is as it was, where nobody else has changed it since
            if os.environ.get(name) == value:
                del os.environ[name]
                os.environ.update({name: before[name]} if name in before else {})


def _join(ray: Any) -> None:
    """Join a cluster, or begin one; ConfigError where neither is possible."""
    address = os.environ.get("RAY_ADDRESS", "a cluster on this machine")
    try:
        _require_reachable(address)
        ray.init(log_to_driver=False, logging_level="error", include_dashboard=False)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        shown, fix = without_secrets(address), "check RAY_ADDRESS and the cluster, or leave --engine ray out"
        told = _first_line(error).replace(address, shown)
        raise ConfigError(f"Ray cannot join {shown}: {told}", fix=fix) from None  # the cause shows the address


def without_secrets(address: str) -> str:
    """An address without the name and password of a user, and without what could steer a terminal.

    >>> without_secrets("ray://me:secret@host:10001"), without_secrets("10.0.0.1:6379")
    ('ray://host:10001', '10.0.0.1:6379')
    """
    scheme, mark, rest = address.partition("://") if "://" in address else ("", "", address)
    shown = f"{scheme}{mark}{rest.rpartition('@')[2]}"[:200]
    return "".join(one if one.isprintable() else "?" for one in shown)


def _require_reachable(address: str) -> None:
    """Raise OSError if nobody listens at HOST:PORT: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS).close()


@contextmanager
def _failures_told(ray: Any) -> Iterator[None]:
    """Inside the `with`, failures of the cluster become an error of ours; what is done is kept."""
    try:
        yield
    except ray.exceptions.RayError as error:
        fix = "look at the cluster; the same command goes on"
        raise RepeatError(f"the Ray cluster failed: {_first_line(error)}", fix=fix) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().split("\n") if str(error).strip() else [type(error).__name__]
    return lines[0][:200].rstrip(".:")


def room(setup: Setup, nodes: Sequence[Mapping[str, Any]]) -> tuple[int, dict[str, int]]:
    """How many workers the machines hold, each on one of them, and what a worker takes; ConfigError for none."""
    on_gpus = setup.device.startswith("cuda")
    kind, each = ("GPU", 1) if on_gpus else ("CPU", setup.threads)
    found = [int(node["Resources"].get(kind, 0)) for node in nodes if node["Alive"]]
    count, most = sum(one // each for one in found), max(found, default=0)
    if not count and on_gpus:
        raise ConfigError("no machine of the Ray cluster has a GPU, and the model is on one", fix="--device cpu")
    if not count:
        text = f"a worker has as many threads as this process, {each:,}, and no machine of the Ray cluster has"
        raise ConfigError(f"{text} more than {most} cores", fix=f"set OMP_NUM_THREADS={max(1, most)}")
    return count, {"num_gpus": 1} if on_gpus else {"num_cpus": each}


def free_places(needed: Mapping[str, int], available: Mapping[str, float]) -> int:
    """How many workers find what they need in what nobody uses; Ray leaves out of which there is nothing.

    >>> free_places({"num_cpus": 2}, {"CPU": 7.0}), free_places({"num_gpus": 1}, {"CPU": 7.0})
    (3, 0)
    """
    ((name, each),) = needed.items()
    return int(available.get(name.removeprefix("num_").removesuffix("s").upper(), 0)) // each


def _workers(ray: Any, setup: Setup) -> list[Any]:
    """The workers that have a place and a model in time; those that others keep from their place are given up.

    As many are waited for as there is room for now, at least one; others that are ready by then help too.
    """
    count, needed = room(setup, ray.nodes())
    free = min(count, max(1, free_places(needed, ray.available_resources())))
    begun = ray.remote(RayWorker).options(**needed)
    there = setup._replace(device=setup.device.partition(":")[0])  # Ray shows each worker one GPU, its first
    identity = identity_of(Path(setup.model))
    asked = {worker.ready.remote(): worker for worker in (begun.remote(there, identity) for _ in range(count))}
    first, _ = ray.wait(list(asked), num_returns=1, timeout=PATIENCE)
    ray.wait(list(asked), num_returns=free, timeout=BEHIND if first else 0)
    done, late = ray.wait(list(asked), num_returns=count, timeout=0)
    for one in late:
        ray.kill(asked[one])
    if not done:
        text = f"no worker was ready within {PATIENCE:.0f} seconds: others may use the cores of the Ray cluster"
        raise RepeatError(text, fix="the same command goes on when they are free")
    for answer in ray.get(done):
        _required(answer)
    return [asked[one] for one in done]


def _spread(ray: Any, workers: Sequence[Any], works: Iterable[Work]) -> Iterator[WindowVectors]:
    waiting: deque[Any] = deque()
    for number, work in enumerate(works):
        waiting.append(workers[number % len(workers)].made.remote(work))
        if len(waiting) == AHEAD * len(workers):
            yield _required(ray.get(waiting.popleft()))
    while waiting:
        yield _required(ray.get(waiting.popleft()))


def _required(answer: Any) -> Any:
    """The answer, if it is one."""
    if isinstance(answer, Refused):
        raise DataError(answer.problem, fix=answer.fix)
    return answer
