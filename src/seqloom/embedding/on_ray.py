"""The windows spread over a Ray cluster, and what comes of them in the order of the file.

The driver reads, keeps and joins; workers hold a model each and make vectors. They read the model from the folder that
the driver names, so on a cluster of several machines it lies on a disk that all of them see. A worker has as many
threads as the driver, for sums may depend on that: then the bytes are those of one process.

The cluster is the one of RAY_ADDRESS, else the one on this machine, else a new one that ends with the work.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from seqloom.embedding.windows import Made, Setup, Work, Worker
from seqloom.errors import DataError, SeqloomError, needing
from seqloom.loaded import LoadedModel

AHEAD = 2  # windows that wait for each worker, so that none of them waits for the driver


class Refused(NamedTuple):
    """The words of an error."""

    problem: str
    fix: str


class RayWorker:
    """A worker in a process of its own."""

    def __init__(self, setup: Setup) -> None:
        torch.set_num_threads(setup.threads)
        self.worker = Worker(setup)

    def made(self, work: Work) -> Made | Refused:
        """The vectors of a window, or why there are none: our errors do not travel, their words do."""
        try:
            return self.worker.made(work)
        except SeqloomError as error:
            return Refused(error.problem, error.fix)


def on_ray(setup: Setup, _: LoadedModel, works: Iterable[Work]) -> Iterator[Made]:
    """What comes of the windows, in their order, from all workers that the cluster has room for."""
    with needing("ray"):
        import ray
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    begun = not ray.is_initialized()
    if begun:
        ray.init(log_to_driver=False, logging_level="error", include_dashboard=False)
    try:
        yield from _spread(ray, setup, works)
    finally:
        if begun:
            ray.shutdown()


def _spread(ray: Any, setup: Setup, works: Iterable[Work]) -> Iterator[Made]:
    found = ray.cluster_resources()
    cores, gpus = int(found.get("CPU", 1)), int(found.get("GPU", 0)) if setup.device.startswith("cuda") else 0
    count = gpus or max(1, cores // setup.threads)
    needed = {"num_gpus": 1} if gpus else {"num_cpus": min(cores, setup.threads)}
    workers = [ray.remote(RayWorker).options(**needed).remote(setup) for _ in range(count)]
    waiting: deque[Any] = deque()
    for number, work in enumerate(works):
        waiting.append(workers[number % count].made.remote(work))
        if len(waiting) == AHEAD * count:
            yield _required(ray.get(waiting.popleft()))
    while waiting:
        yield _required(ray.get(waiting.popleft()))


def _required(answer: Made | Refused) -> Made:
    if isinstance(answer, Refused):
        raise DataError(answer.problem, fix=answer.fix)
    return answer
