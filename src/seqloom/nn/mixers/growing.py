"""Tensors that grow by appending, without copying everything each time.

    [ k1 k2 k3 | . . . ]   ──▶   [ k1 k2 k3 k4 | . . ]

Attention adds one key and one value for every generated token. Copying all of them each time takes quadratic time; a
buffer that doubles when it is full takes linear time. A tensor is still an immutable value: the free space behind it is
used by the first append, and any later append to the same tensor copies it.
"""

import torch
from torch import Tensor

TIME = 2  # the axis that grows, of [B,H,S,D]
MORE = 8  # elements that find room behind selected rows


class _Room:
    """A buffer and how much of it is used."""

    def __init__(self, buffer: Tensor) -> None:
        self.buffer, self.taken = buffer, buffer.shape[TIME]


class Growing(tuple[Tensor]):
    """One tensor [B,H,S,D] in a state; merging rows returns one without free space.

    >>> one = Growing([torch.zeros(1, 1, 2, 3)])
    >>> two, other = one.followed_by(torch.ones(1, 1, 1, 3)), one.followed_by(torch.zeros(1, 1, 4, 3))
    >>> one.held.shape[2], two.held.shape[2], other.held.shape[2], two.held.sum().item()
    (2, 3, 6, 3.0)
    """

    _room: _Room | None = None

    @property
    def held(self) -> Tensor:
        return self[0]

    def selected_rows(self, rows: Tensor) -> "Growing":
        """Return the tensor of these rows, with room for a few more elements: a beam selects rows for every token."""
        held = self.held
        if held.requires_grad or not held.shape[TIME]:
            return Growing([held.index_select(0, rows)])
        size = held.shape[TIME]
        room = _Room(held.new_empty(len(rows), *held.shape[1:TIME], size + MORE, *held.shape[TIME + 1 :]))
        room.taken = size
        torch.index_select(held, 0, rows, out=room.buffer.narrow(TIME, 0, size))
        return _in(room, size)

    def followed_by(self, more: Tensor) -> "Growing":
        """Return the tensor with more appended along the third axis."""
        start, stop = self.held.shape[TIME], self.held.shape[TIME] + more.shape[TIME]
        room = self._room
        if room is None or room.taken != start or self.held.requires_grad or _unlike(more, self.held):
            return _beginning(torch.cat([self.held, more], dim=TIME))
        if stop > room.buffer.shape[TIME]:
            room = _doubled(self.held, stop)
        room.buffer.narrow(TIME, start, stop - start).copy_(more)
        room.taken = stop
        return _in(room, stop)


def _in(room: _Room, size: int) -> Growing:
    """Return the first elements of a buffer, with the room behind them."""
    grown = Growing([room.buffer.narrow(TIME, 0, size)])
    grown._room = room
    return grown


def _unlike(one: Tensor, other: Tensor) -> bool:
    """Whether one tensor cannot be appended in place: it needs gradients, or dtypes or devices differ."""
    return one.requires_grad or one.dtype != other.dtype or one.device != other.device


def _beginning(whole: Tensor) -> Growing:
    """Return a tensor that was concatenated once; the next append gets a buffer."""
    grown = Growing([whole])
    grown._room = None if whole.requires_grad else _Room(whole)
    return grown


def _doubled(tensor: Tensor, needed: int) -> _Room:
    """Return a buffer of twice the needed size that begins with the given tensor."""
    room = _Room(tensor.new_empty(*tensor.shape[:TIME], 2 * needed, *tensor.shape[TIME + 1 :]))
    room.buffer.narrow(TIME, 0, tensor.shape[TIME]).copy_(tensor)
    return room
