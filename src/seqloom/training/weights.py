"""The tensors of a run by name: what is kept in a checkpoint, and put back from one."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from seqloom.errors import DamagedError, DurableError


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Weights and buffers of a model as they are; what is known by two names (a tied table) comes under the first."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor))
    return {name: tensor.detach() for name, tensor in found.values()}


@torch.no_grad()
def put(mine: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Copy the numbers of `given` into `mine`."""
    for name, tensor in mine.items():
        put_whole(tensor, given[name])


def copy_all(part: str, mine: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Put every tensor of a part back. DurableError if one is missing, unknown, or of another shape."""
    wrong = sorted(mine.keys() ^ given.keys())
    wrong = wrong or [name for name, tensor in mine.items() if tensor.shape != given[name].shape]
    if wrong:
        raise DurableError(
            f"the part '{part}' of the checkpoint does not fit this run: {', '.join(wrong[:3])}"
            f"{' and so on' if len(wrong) > 3 else ''} {'is' if len(wrong) == 1 else 'are'} not on both sides alike",
            fix="go on with the model and the optimiser of the run, or begin in a new folder",
        )
    put(mine, given)


def leaves_of(state: Any) -> list[Tensor]:
    """The tensors of a nest of tuples, from left to right."""
    return [state] if isinstance(state, Tensor) else [leaf for part in state for leaf in leaves_of(part)]


def plain(tensor: Tensor) -> Tensor:
    """The tensor, whole: one that is spread over ranks is gathered."""
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole


# Weights averaged over time: along the way (exponential moving average), or over the last checkpoints.
#
#     average <- average + (1 - decay) (weights - average)                       Polyak and Juditsky 1992
#     decay of step n = min(decay, (1 + n) / (10 + n))       so that the random start is soon forgotten
#
# Averaged weights are what is validated and shipped; training goes on from its own.


class Average:
    """The moving average of a model's weights, on their device."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._weights = [weight.detach() for weight in trained.values()]
        self.values = {name: weight.detach().clone() for name, weight in trained.items()}

    @torch.no_grad()
    def follow(self, step: int, hold: Tensor) -> None:
        """Move the average a little nearer to the weights, or leave it bit for bit if `hold` is 1."""
        values = list(self.values.values())
        pace = (1 - min(self.decay, (1 + step) / (10 + step))) * (1 - hold)
        change = torch._foreach_sub(self._weights, values)
        torch._foreach_mul_(change, pace)
        torch._foreach_add_(values, change)


def mean_of(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several models' weights, name by name; whole numbers are those of the last.

    >>> mean_of([{"w": torch.tensor([1.0, 4.0])}, {"w": torch.tensor([3.0, 4.0])}])
    {'w': tensor([2., 4.])}
    """
    last = weights[-1]
    return {
        name: _mean([one[name] for one in weights]) if last[name].is_floating_point() else last[name] for name in last
    }


def _mean(tensors: list[Tensor]) -> Tensor:
    """The mean, added up in float64 where the device has it, so that it does not depend on the order."""
    wide = torch.float32 if tensors[0].device.type == "mps" else torch.float64
    total = torch.zeros_like(tensors[0], dtype=wide)
    for tensor in tensors:
        total += tensor.to(total.device)
    return (total / len(tensors)).to(tensors[0].dtype)


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
    held = {name: tensor.detach() for name, tensor in tensors.items()}
    own = {name: tensor.to_local() if isinstance(tensor, DTensor) else tensor for name, tensor in held.items()}
    return ShardPart(own, places)


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


def put_whole(target: Tensor, whole: Tensor) -> None:
    """Give a weight, or this process's part of it, the values of the whole tensor, or of one cut alike."""
    with torch.no_grad():
        if isinstance(target, DTensor) and not isinstance(whole, DTensor):
            own, first = target.to_local(), _place(target).first
            own.copy_(whole[first : first + len(own)])
        else:
            target.copy_(whole)
