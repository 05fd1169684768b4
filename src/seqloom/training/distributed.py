"""The processes that train one model together, as the loop sees them. Alone is the usual case, and costs nothing.

The loop speaks only to `Ranks`; `training.processes` has the one that speaks to torch.distributed.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from seqloom.errors import DamagedError, DurableError


class Ranks(Protocol):
    """Several processes that take every step together, each with its share of the examples."""

    @property
    def rank(self) -> int:
        """The number of this process."""

    @property
    def count(self) -> int:
        """How many there are."""

    @property
    def sharded(self) -> bool:
        """Whether each process keeps a part of the weights only."""

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""

    def share(self, data: bytes) -> bytes:
        """What process 0 gave, on all."""

    def gather(self, data: bytes) -> list[bytes]:
        """What each process gave, on all, in the order of their numbers."""

    def wait(self, what: str) -> None:
        """Wait until all have come here."""

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module such that a backward pass sums (or shards) gradients over processes."""

    def apart(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """A block whose backward passes stay in this process: all but the last of a step."""

    def whole(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """A block in which every process has all weights, as validation and shipping need them."""


class Alone:
    """One process."""

    rank, count, sharded = 0, 1, False

    def sum(self, tensor: Tensor) -> Tensor:
        """The tensor."""
        return tensor

    def share(self, data: bytes) -> bytes:
        """The same."""
        return data

    def gather(self, data: bytes) -> list[bytes]:
        """The one."""
        return [data]

    def wait(self, what: str) -> None:
        """Nobody to wait for."""

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module."""
        return module

    def apart(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """Hold nothing back."""
        return nullcontext()

    def whole(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """They are."""
        return nullcontext()


# Work on a disk that several processes do together: one that fails is told to all, and all go the same way.

Result = TypeVar("Result")


def agreed(ranks: Ranks, work: Callable[[], Result]) -> tuple[Result | None, str]:
    """What the work gave here, or None and what the disk said to the first process that failed.

    Whoever went on while another process has failed would wait for it in vain.

    >>> from seqloom.training.distributed import Alone
    >>> agreed(Alone(), lambda: 3)
    (3, '')
    """
    result, problem = None, ""
    try:
        result = work()
    except DurableError as error:
        problem = str(error)
    told = next(filter(None, ranks.gather(problem.encode())), b"").decode()
    return (None, told) if told else (result, "")


# Weights in parts: what one of several processes holds, and the whole again from the parts of all.
#
# `fully_shard` cuts each tensor along its first axis, one part for each process; tensors that are not cut (counters,
# and everything of a run that is not sharded) are whole everywhere. The place of a part is three numbers, so a
# checkpoint of two processes opens in one or in three: its parts are put together, and each process takes its own
# again.
#
#     rank 0  [rows 0..4)  ┐                    ┌ rank 0 of 3  [0..3)
#     rank 1  [rows 4..7)  ┘──▶ whole [7 rows] ─┼ rank 1 of 3  [3..6)
#                                               └ rank 2 of 3  [6..7)


class ShardPlace(NamedTuple):
    """Where a part lies in the whole: its first row, and the shape of the whole."""

    first: int
    shape: tuple[int, ...]


class ShardPart(NamedTuple):
    """The tensors that one process holds; those that have a place are parts of larger ones."""

    tensors: dict[str, Tensor]
    places: dict[str, ShardPlace]


def part_of(tensors: Mapping[str, Tensor]) -> ShardPart:
    """What this process holds of each tensor, and where it lies."""
    places = {name: _place(tensor) for name, tensor in tensors.items() if isinstance(tensor, DTensor)}
    return ShardPart({name: _own(tensor.detach()) for name, tensor in tensors.items()}, places)


def _own(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _place(tensor: DTensor) -> ShardPlace:
    if tensor.placements != (Shard(0),):
        raise NotImplementedError(f"a tensor cut as {tensor.placements}")  # fully_shard on one axis of devices cuts so
    offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)[1]
    return ShardPlace(min(offset[0], tensor.shape[0]), tuple(tensor.shape))


def whole_of(parts: Sequence[ShardPart]) -> dict[str, Tensor]:
    """The whole tensors that the parts of all processes make; DamagedError if rows are missing or there twice."""
    first, whole = parts[0], {}
    for name, tensor in first.tensors.items():
        if name in first.places:
            pieces = sorted(((part.places[name].first, part.tensors[name]) for part in parts), key=lambda one: one[0])
            whole[name] = _joined(name, first.places[name].shape, pieces)
        else:
            whole[name] = tensor
    return whole


def _joined(name: str, shape: tuple[int, ...], pieces: Sequence[tuple[int, Tensor]]) -> Tensor:
    row = 0
    for first, piece in pieces:
        if len(piece) and first != row:
            raise DamagedError(f"{name}: expected a part from row {row} on, found one from row {first} on")
        row += len(piece)
    joined = torch.cat([piece for _, piece in pieces])
    if tuple(joined.shape) != shape:
        raise DamagedError(f"{name}: expected {list(shape)}, found parts that make {list(joined.shape)}")
    return joined


def put(target: Tensor, whole: Tensor) -> None:
    """Give a weight, or this process's part of it, the values of the whole tensor, or of one cut alike."""
    with torch.no_grad():
        if isinstance(target, DTensor) and not isinstance(whole, DTensor):
            own, first = target.to_local(), _place(target).first
            own.copy_(whole[first : first + len(own)])
        else:
            target.copy_(whole)
