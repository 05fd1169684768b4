"""Distributed training: `Ranks` over torch.distributed, under torchrun.

    torchrun ──▶ rank 0 ─┐ every step: each computes the gradient of its share of the examples; gradients and
             ──▶ rank 1 ─┤ sums are added up over all; all take the same step
             ──▶ rank 2 ─┘

Bytes are sent as uint8 tensors: nothing is pickled, so a peer cannot send code. Communication within a step must finish
within `timeout` seconds; a checkpoint or a validation may take `PATIENCE` times as long. If a peer ends or hangs, the
others end too, each with one line; torchrun can then restart all from the newest checkpoint.
"""

import inspect
import json
import os
import re
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import FileStore, GradBucket, Store
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from seqloom.errors import ConfigError, SeqloomWarning
from seqloom.training.devices import Alone, Ranks, is_launched, own_gpu
from seqloom.training.launcher import MEETING
from seqloom.training.watchdog import Peer, Watch, show_stacks

# A module in distributed training: the same weights in each process (DDP), or a part in each (`fully_shard`).
#
#     forward, backward of a piece ── `held_back`: the gradient stays here ──┐
#     forward, backward of the last piece ───────────────────────────────────┴─▶ sums over pieces and processes
#
# Gradients are summed, not averaged: the step divides once, by the weight of all examples of all processes.


def replicated(module: nn.Module) -> DistributedDataParallel:
    """The module in DDP: each process has all weights."""
    known = inspect.signature(DistributedDataParallel).parameters
    unsynced = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # torch 2.13 and 2.11
    settings: dict[str, Any] = {unsynced: False, "gradient_as_bucket_view": True}

    def summed(_: None, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        done: torch.futures.Future[Tensor] = work.get_future().then(lambda future: future.value()[0])
        return done

    wrapped = DistributedDataParallel(module, **settings)
    wrapped.register_comm_hook(None, summed)
    _settle(wrapped)
    return wrapped


def _settle(wrapped: DistributedDataParallel) -> None:
    """Fix the layout of DDP's buckets.

    DDP derives it from the first backward pass. With three or more processes it decides the order of additions, so a
    resumed run must start with the same layout.
    """
    wrapped.reducer.prepare_for_backward([])
    trained = [weight for weight in wrapped.parameters() if weight.requires_grad]
    torch.stack([weight.sum() * 0 for weight in trained]).sum().backward()  # type: ignore[no-untyped-call]
    wrapped.reducer._rebuild_buckets()
    for weight in trained:
        weight.grad = None


def cut_over(module: nn.Module, count: int) -> nn.Module:
    """The module with sharded weights, which are gathered for all micro-batches of a step."""
    device = next(module.parameters()).device.type
    fully_shard(module, mesh=init_device_mesh(device, (count,)), reshard_after_forward=False)
    assert isinstance(module, FSDPModule)
    module.set_gradient_divide_factor(1.0)  # sums, as above
    module.set_force_sum_reduction_for_comms(True)
    return module


def held_back(wrapped: nn.Module) -> AbstractContextManager[None]:
    """A context without gradient synchronization."""
    if isinstance(wrapped, DistributedDataParallel):
        unsynced: AbstractContextManager[None] = wrapped.no_sync()
        return unsynced
    assert isinstance(wrapped, FSDPModule), "a module that was wrapped here"
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
    """A context in which the module has its complete weights, for any method and for its `state_dict`."""
    if not isinstance(wrapped, FSDPModule):
        yield
        return
    wrapped.reshard()
    sharded = [
        (owner, name, weight)
        for owner in wrapped.modules()
        for name, weight in owner._parameters.items()
        if weight is not None
    ]
    with torch.no_grad():
        full = {
            weight: weight.full_tensor() if isinstance(weight, DTensor) else weight.detach()
            for weight in wrapped.parameters()
        }
    whole = {weight: nn.Parameter(tensor, weight.requires_grad) for weight, tensor in full.items()}
    try:
        for owner, name, weight in sharded:
            owner._parameters[name] = whole[weight]  # a shared weight stays shared
        yield
    finally:
        for owner, name, weight in sharded:
            owner._parameters[name] = weight


TIMEOUT = 60.0  # seconds for communication within a step
PATIENCE = 10  # times as long for validations and checkpoints
JOINING = timedelta(minutes=30)  # until the last process has read its data

LOOPBACK = re.compile(r"localhost|127\.[\d.]+|::1")
# A gloo thread may need the GIL to release a tensor, while the code that drops the last reference to its group waits
# for that thread. A reference from Python releases the GIL meanwhile, one from C++ does not, and both wait for ever. So
# the last reference is kept here, in Python, until the process ends.
GROUPS: list[object] = []
LINGERING = 1.0  # seconds: the first failure should be visible before those that follow from it


class LostRank(SystemExit):  # Python prints its text to stderr and exits with 1
    """Ends this process, because another one is gone or hangs."""


class Processes:
    """The processes of this run, seen from one of them."""

    def __init__(self, *, sharded: bool, timeout: float, device: str) -> None:
        self.rank, self.count, self.sharded = dist.get_rank(), dist.get_world_size(), sharded
        self.name = f"rank {self.rank} of {self.count}"
        self.timeout, self.device = timeout, device
        self.host = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout)) if device == "cuda" else None
        GROUPS.append(self.host)
        self.watch = Watch(self.name, timeout + 5)  # an exception comes first, and names the peer
        self.peers = [Peer(*json.loads(data)) for data in self.gather(json.dumps(Peer.own(self.rank)).encode())]
        self.watch.peers = self.peers

    def sum(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor, group=None if tensor.is_cuda else self.host)
        self.watch.alive()
        return tensor

    def share(self, data: bytes) -> bytes:
        self.wait("data of rank 0")
        size = torch.tensor([len(data)])
        dist.broadcast(size, 0, group=self.host)
        sent = _tensor(data, int(size)) if self.rank == 0 else torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(sent, 0, group=self.host)
        return sent.numpy().tobytes()

    def gather(self, data: bytes) -> list[bytes]:
        self.wait("data of all ranks")
        sizes = [torch.empty(1, dtype=torch.int64) for _ in range(self.count)]
        dist.all_gather(sizes, torch.tensor([len(data)]), group=self.host)
        longest = max(int(size) for size in sizes)
        found = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.count)]
        dist.all_gather(found, _tensor(data, longest), group=self.host)
        return [each[: int(size)].numpy().tobytes() for each, size in zip(found, sizes, strict=True)]

    def wait(self, what: str) -> None:
        """Wait for all processes; between steps they may take longer."""
        seconds = self.timeout * PATIENCE
        with self.watch.patient(seconds + 5):
            dist.monitored_barrier(group=self.host, timeout=timedelta(seconds=seconds))

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module, wrapped so that a backward pass sums (or shards) gradients over processes."""
        return cut_over(module, self.count) if self.sharded else replicated(module)

    def apart(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        return held_back(wrapped)

    @contextmanager
    def whole(self, wrapped: nn.Module) -> Iterator[None]:
        """A context in which every process has all weights, with a longer timeout."""
        with self.watch.patient(self.timeout * PATIENCE), unsharded(wrapped):
            yield

    def lost(self, error: Exception) -> LostRank:
        """The exit after a failed collective: it names the rank that is gone, or prints the stacks of a hanging one."""
        until = time.monotonic() + LINGERING
        while not (ended := [peer for peer in self.peers if peer.ended]) and time.monotonic() < until:
            time.sleep(0.05)
        stopped = [peer for peer in self.peers if peer.stopped]
        if not ended and "imed out" in str(error):
            show_stacks(self.name, self.peers)
        time.sleep(max(0.0, until - time.monotonic()))
        line = next((line.strip() for line in str(error).split("\n") if line.strip()), type(error).__name__)
        found = (
            _named(ended, "has ended")
            or _named(stopped, "was stopped")
            or f"lost the connection to another rank ({line})"
        )
        return LostRank(
            f"error: {self.name}: {found}. Fix: run the same command again; it resumes from the newest checkpoint."
        )


def _named(peers: list[Peer], what: str) -> str:
    return f"{' and '.join(f'rank {peer.rank}' for peer in peers)} {what} before the run was over" if peers else ""


def _tensor(data: bytes, size: int) -> Tensor:
    """Bytes as a tensor of this size."""
    tensor = torch.zeros(size, dtype=torch.uint8)
    if data:
        tensor[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return tensor


@contextmanager
def joined(*, sharded: bool = False, timeout: float = TIMEOUT, device: str = "cpu") -> Iterator[Ranks]:
    """A context with the processes that torchrun started; without torchrun, with `Alone`.

    Processes may enter it up to half an hour apart, because some prepare data longer.
    """
    if not is_launched():
        if sharded:
            raise ConfigError("--shard needs several processes", fix="add --processes 2, or use torchrun")
        yield Alone()
        return
    _join(timeout, device)
    try:
        ranks = Processes(sharded=sharded, timeout=timeout, device=device)
        with ranks.watch, _losses_told(ranks):
            yield ranks
    finally:
        with suppress(RuntimeError):  # peers are gone
            dist.destroy_process_group()


@contextmanager
def _losses_told(ranks: Processes) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, dist.DistError) as error:
        if not isinstance(error, dist.DistError) and not re.search("gloo|onnection|monitoredBarrier", str(error)):
            raise
        lost = ranks.lost(error)
    else:
        return
    raise lost from None


def _join(timeout: float, device: str) -> None:
    """Create the process group once all processes are here."""
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if device == "cuda":
        torch.cuda.set_device(own_gpu())
    store = _store(rank, count)
    # Wait for all: preparing data may take longer than the timeout of a step.
    store.set(f"came-{rank}", "yes")
    store.wait([f"came-{other}" for other in range(count)], JOINING)
    # NCCL aborts a process that waits too long; our watchdog comes first and prints where it was.
    limit = timeout + 30 if device == "cuda" else timeout
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        store=store,
        rank=rank,
        world_size=count,
        timeout=timedelta(seconds=limit),
    )
    GROUPS.append(dist.group.WORLD)


def _store(rank: int, count: int) -> Store:
    """The store through which processes find each other; on one machine no other machine can reach it."""
    if folder := os.environ.get(MEETING):
        return FileStore(str(Path(folder, "ranks")), count)
    address = os.environ.get("MASTER_ADDR", "")
    if rank == 0 and not LOOPBACK.fullmatch(address):
        warnings.warn(
            f"the processes connect through {address}, which any machine can join: use a network that you trust",
            SeqloomWarning,
            stacklevel=2,
        )
    store: Store = next(rendezvous("env://", timeout=JOINING))[0]
    return store
