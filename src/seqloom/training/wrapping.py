"""A module as several processes train it: the same weights in each (DDP), or a part of them in each (`fully_shard`).

    forward, backward of a piece ── `held_back`: the gradient stays here ──┐
    forward, backward of the last piece ───────────────────────────────────┴─▶ sums over pieces and processes

Gradients are summed, not averaged: the step divides once, by the weight of all examples of all processes.
"""

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel


def replicated(module: nn.Module) -> DistributedDataParallel:
    """The module, of which each process has all weights."""
    known = inspect.signature(DistributedDataParallel).parameters
    unsynced = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # torch 2.13 and 2.11
    settings: dict[str, Any] = {unsynced: False, "gradient_as_bucket_view": True}
    wrapped = DistributedDataParallel(module, **settings)
    wrapped.register_comm_hook(None, _total)
    _settle(wrapped)
    return wrapped


def _total(_: None, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """The sum of a bucket's gradients; the loss is divided once, by the weight of all examples of all processes."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    done: torch.futures.Future[Tensor] = work.get_future().then(lambda future: future.value()[0])
    return done


def _settle(wrapped: DistributedDataParallel) -> None:
    """Nothing; the layout of the buckets is final.

    It follows the order in which the first backward pass reaches the weights. The layout decides in which order three
    and more processes add up, so a run that goes on must not begin with another one than it had before.
    """
    wrapped.reducer.prepare_for_backward([])
    trained = [weight for weight in wrapped.parameters() if weight.requires_grad]
    torch.stack([weight.sum() * 0 for weight in trained]).sum().backward()  # type: ignore[no-untyped-call]
    wrapped.reducer._rebuild_buckets()
    for weight in trained:
        weight.grad = None


def cut_over(module: nn.Module, count: int) -> nn.Module:
    """The module with each weight cut over the processes; whole from the first piece of a step to the last."""
    device = next(module.parameters()).device.type
    fully_shard(module, mesh=init_device_mesh(device, (count,)), reshard_after_forward=False)
    assert isinstance(module, FSDPModule)
    module.set_gradient_divide_factor(1.0)  # sums, as above
    module.set_force_sum_reduction_for_comms(True)
    return module


def held_back(wrapped: nn.Module) -> AbstractContextManager[None]:
    """A block whose backward passes stay in this process."""
    if isinstance(wrapped, DistributedDataParallel):
        held: AbstractContextManager[None] = wrapped.no_sync()
        return held
    assert isinstance(wrapped, FSDPModule), "a module that was not wrapped here"
    return _kept_whole(wrapped)


@contextmanager
def _kept_whole(wrapped: FSDPModule) -> Iterator[None]:
    wrapped.set_requires_gradient_sync(False)
    wrapped.set_reshard_after_backward(False)
    try:
        yield
    finally:
        wrapped.set_requires_gradient_sync(True)
        wrapped.set_reshard_after_backward(True)


@contextmanager
def unsharded(wrapped: nn.Module) -> Iterator[None]:
    """A block in which the module's weights are plain and whole, for any method of it and for its `state_dict`."""
    if not isinstance(wrapped, FSDPModule):
        yield
        return
    wrapped.reshard()
    held = [
        (owner, name, weight)
        for owner in wrapped.modules()
        for name, weight in owner._parameters.items()
        if weight is not None
    ]
    whole = {weight: nn.Parameter(_full(weight), weight.requires_grad) for weight in wrapped.parameters()}
    try:
        for owner, name, weight in held:
            owner._parameters[name] = whole[weight]  # one that is shared stays shared
        yield
    finally:
        for owner, name, weight in held:
            owner._parameters[name] = weight


def _full(weight: Tensor) -> Tensor:
    if not isinstance(weight, DTensor):
        return weight.detach()
    with torch.no_grad():
        full: Tensor = weight.full_tensor()
    return full
