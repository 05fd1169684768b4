"""What the tests of checkpoints and run folders share: small checkpoints, and several processes played by threads."""

import json
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from seqloom.training.checkpoint import Checkpoint
from seqloom.training.devices import Alone
from seqloom.training.state import Environment, Machine, TrainingState, Validation

ALONE = Alone()
HERE = Environment(
    seqloom="1", torch="2.13", python="3.11", device="cpu", capability="AVX2", threads=1, ranks=1, sharded=False
)


def tensors_of(seed: int) -> dict[str, dict[str, Tensor]]:
    """Every kind of tensor that a run keeps: tied, 0-d, bf16, whole numbers, views, empty ones."""
    draw = torch.Generator().manual_seed(seed)
    weight, buffer = torch.randn(7, 4, generator=draw), torch.randn(40, generator=draw)
    model = {
        "embedding.weight": weight,
        "head.weight": weight,  # tied
        "norm": torch.randn(4, generator=draw).bfloat16(),
        "turned": torch.randn(5, 3, generator=draw).T,  # not contiguous
        "view.one": buffer[:16].view(4, 4),
        "view.two": buffer[16:],
        "empty.one": torch.empty(0, 4),
        "empty.two": torch.empty(0, 4),
        "steps": torch.tensor(seed),
    }
    moments = {f"0/{name}": torch.randn(7, 4, generator=draw) for name in ("exp_avg", "exp_avg_sq")}
    return {
        "model": model,
        "optimizer": {**moments, "0/step": torch.tensor(float(seed))},
        "ema": {"embedding.weight": weight / 2},
        "carried": {"0": torch.randn(2, 3, generator=draw)},
    }


def checkpoint(step: int) -> Checkpoint:
    """A small checkpoint of a step."""
    best = Validation(step=max(0, step - 10), metrics={"loss": 1 / (step + 1)}, lr=0.1)
    run_state = TrainingState(
        step=step, epoch=1, index=step, seed=5, order_hash="ab" * 32, best=best, loss_scale=65536.0
    )
    return Checkpoint(run_state, Machine(environment=HERE, seconds=float(step)), tensors_of(step))


def same(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two checkpoints are equal, bit for bit."""
    if (one.run_state, one.machine) != (other.run_state, other.machine) or one.tensors.keys() != other.tensors.keys():
        return False
    pairs = [(one.tensors[group], other.tensors[group]) for group in one.tensors]
    return all(
        left.keys() == right.keys()
        and all(left[name].dtype == right[name].dtype and torch.equal(left[name], right[name]) for name in left)
        for left, right in pairs
    )


class Together:
    """One of several processes that are threads here; they meet in `gather` as real ones do."""

    def __init__(self, rank: int, count: int, meeting: dict[str, Any], *, sharded: bool) -> None:
        self.rank, self.count, self.sharded, self.meeting = rank, count, sharded, meeting

    def gather(self, data: bytes) -> list[bytes]:
        self.meeting["told"][self.rank] = data
        self.meeting["barrier"].wait(10)
        answers = list(self.meeting["told"])
        self.meeting["barrier"].wait(10)
        return answers

    def share(self, data: bytes) -> bytes:
        return self.gather(data)[0]

    def wait(self, what: str) -> None:
        self.gather(json.dumps(what).encode())

    def sum(self, tensor: Tensor) -> Tensor:
        raise NotImplementedError

    def wrap(self, module: torch.nn.Module) -> torch.nn.Module:
        return module

    def apart(self, wrapped: torch.nn.Module) -> Any:
        return nullcontext()

    def whole(self, wrapped: torch.nn.Module) -> Any:
        return nullcontext()


def in_processes(count: int, work: Callable[[Together], Any], *, sharded: bool = False) -> list[Any]:
    """What each of several processes gave, or the error that ended it."""
    meeting: dict[str, Any] = {"told": [b""] * count, "barrier": threading.Barrier(count)}
    results: list[Any] = [None] * count

    def run(rank: int) -> None:
        try:
            results[rank] = work(Together(rank, count, meeting, sharded=sharded))
        except Exception as error:
            results[rank] = error
            if not hasattr(error, "fix"):  # nobody waits for one that died of something unexpected
                meeting["barrier"].abort()

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank-{rank}") for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results
