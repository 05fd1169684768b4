"""What ranks do in the tests: each function runs in a process of its own, and answers with JSON."""

import os
import signal
import sys
import threading
import time
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.training.checkpoint import part_of, put_whole, whole_of
from seqloom.training.devices import Ranks
from seqloom.training.distributed import Processes, joined


def network(seed: int = 0) -> nn.Module:
    """Seven rows and three: cut into two or three parts, they are not equal; the last part of three rows is empty."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3), nn.LayerNorm(3))


def examples(rows: int = 12) -> Tensor:
    return torch.randn(rows, 5, generator=torch.Generator().manual_seed(1))


def total(scores: Tensor) -> Tensor:
    return (scores * torch.tensor([1.0, -2.0, 0.5])).square().sum()


def travelling(size: int) -> dict[str, Any]:
    """What `sum`, `share` and `gather` bring to each rank."""
    with joined() as ranks:
        mine = bytes(range(256))[: size * ranks.rank]
        return {
            "sum": ranks.sum(torch.full((2,), float(ranks.rank + 1))).tolist(),
            "share": ranks.share(b"from 0" * size if ranks.rank == 0 else b"").decode(),
            "gather": [list(data) for data in ranks.gather(mine)],
            "count": [ranks.rank, ranks.count],
        }


def gradient(sharded: bool, pieces: list[int]) -> list[list[float]]:
    """The whole gradient after one step, in which rank r reads its rows in `pieces[r]` pieces."""
    with joined(sharded=sharded) as ranks:
        model = network()
        wrapped = ranks.wrap(model)
        for _ in range(2):  # the second step finds what the first one left behind
            model.zero_grad(set_to_none=True)
            cut = examples()[ranks.rank :: ranks.count].chunk(pieces[ranks.rank])
            for piece in cut[:-1]:
                with ranks.apart(wrapped):
                    total(wrapped(piece)).backward()
            total(wrapped(cut[-1])).backward()
        return [_whole(weight.grad).flatten().tolist() for weight in model.parameters()]


def gradient_alone() -> list[list[float]]:
    """The gradient of all rows in one process."""
    model = network()
    total(model(examples())).backward()
    return [weight.grad.flatten().tolist() for weight in model.parameters() if weight.grad is not None]


def _whole(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def trained(model: nn.Module, wrapped: nn.Module, ranks: Ranks, steps: int, first: int = 0) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, fused=True)
    for step in range(first, first + steps):
        optimizer.zero_grad(set_to_none=True)
        rows = examples().roll(step, 0)[ranks.rank :: ranks.count]
        total(wrapped(rows)).backward()
        optimizer.step()
    return optimizer


def weights_after(sharded: bool, steps: int) -> list[list[float]]:
    """The weights after some steps, as every rank has them."""
    with joined(sharded=sharded) as ranks:
        model = network()
        wrapped = ranks.wrap(model)
        trained(model, wrapped, ranks, steps)
        with ranks.whole(wrapped):
            assert not any(hasattr(value, "full_tensor") for value in model.state_dict().values())
            return [value.flatten().tolist() for value in model.state_dict().values()]


def rewrapped(steps: int, settled: bool) -> list[list[float]]:
    """The weights after some steps, the module wrapped anew before each as a run that goes on does."""
    from seqloom.training import distributed as processes

    if not settled:
        processes._settle = lambda _: None
    with joined() as ranks:
        model = wide()
        wrapped = ranks.wrap(model)
        for step in range(steps):
            if os.environ.get("ANEW") == "1":
                wrapped = ranks.wrap(model)
            rows = torch.randn(9, 8, generator=torch.Generator().manual_seed(step))[ranks.rank :: ranks.count]
            wrapped(rows).square().sum().backward()
            with torch.no_grad():
                for weight in model.parameters():
                    weight -= 1e-3 * weight.grad
                    weight.grad = None
        return [weight.flatten().tolist() for weight in model.parameters()]


def wide() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 300), nn.Tanh(), nn.Linear(300, 200), nn.Tanh(), nn.Linear(200, 1))


def rewrapped_anew(steps: int, settled: bool) -> list[list[float]]:
    os.environ["ANEW"] = "1"
    return rewrapped(steps, settled)


def parts() -> dict[str, Any]:
    """The part of each tensor that this rank holds, of weights and of one moment beside them."""
    with joined(sharded=True) as ranks:
        model = network()
        wrapped = ranks.wrap(model)
        optimizer = trained(model, wrapped, ranks, 2)
        moments = {f"{name}.exp_avg": optimizer.state[weight]["exp_avg"] for name, weight in model.named_parameters()}
        both = part_of(dict(model.named_parameters()) | moments)
        with ranks.whole(wrapped):
            whole = {name: weight.tolist() for name, weight in model.state_dict().items()}
        return {
            "tensors": {name: tensor.tolist() for name, tensor in both.tensors.items()},
            "places": both.places,
            "whole": whole,
        }


def loaded(whole: dict[str, Any]) -> dict[str, Any]:
    """The weights again, after each rank took its part of the whole."""
    with joined(sharded=True) as ranks:
        model = network(seed=1)
        wrapped = ranks.wrap(model)
        for name, weight in model.named_parameters():
            put_whole(weight, torch.tensor(whole[name]))
        with ranks.whole(wrapped):
            return {name: weight.tolist() for name, weight in model.state_dict().items()}


def failing(how: str, who: int, timeout: float = 60.0) -> str:
    """Steps without end, in the midst of which one rank fails."""
    with joined(timeout=timeout) as ranks:
        assert isinstance(ranks, Processes)
        model = network()
        wrapped = ranks.wrap(model)
        for step in range(1_000_000):
            total(wrapped(examples()[ranks.rank :: ranks.count])).backward()
            ranks.sum(torch.zeros(1))
            if step == 3 and ranks.rank == who:
                FAILURES[how]()
    return "the end"


def _raise() -> None:
    raise ValueError("something else")


def _stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


FAILURES: dict[str, Any] = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stopped": _stopped,
    "asked to end": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "raises": _raise,
    "hangs": lambda: threading.Event().wait(),
    "exits": lambda: sys.exit(5),
}


def late(seconds: float, timeout: float) -> str:
    """One rank comes later to a `wait` than a step may take, and that is no failure."""
    with joined(timeout=timeout) as ranks:
        time.sleep(seconds * ranks.rank)
        ranks.wait("a checkpoint")
        return "all here"


def whole_again(parts_: list[Any]) -> dict[str, Tensor]:
    from seqloom.training.checkpoint import ShardPart, ShardPlace

    made = [
        ShardPart(
            {
                name: torch.tensor(value).reshape(-1, *part["places"][name][1][1:])
                for name, value in part["tensors"].items()
            },
            {name: ShardPlace(first, tuple(shape)) for name, (first, shape) in part["places"].items()},
        )
        for part in parts_
    ]
    return whole_of(made)
