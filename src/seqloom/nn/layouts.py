"""Layouts: where the elements of a batch stand, asked by every layer and made once.

    Padded ──with_values──▶ Padded ──with_values──▶ Padded
       └────────────────┬─────┴───────────────────────┘
                     Layout: valid, places, masks, tables of sines

Masks, positions and tables depend on lengths and documents alone, never on values. A GPU would otherwise make them for
each layer again, and a small model spends more time on launching such kernels than on its own.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

Made = TypeVar("Made")


class Places(NamedTuple):
    """Where each element stands: its position inside its document, the document, and whether it is real at all."""

    positions: Tensor  # [B,T] int64
    segments: Tensor  # [B,T] int64, the how-many-eth document of the row, -1 in the padding of packed rows
    valid: Tensor  # [B,T] bool

    def cut(self, start: int, stop: int) -> "Places":
        """The places of columns start..stop."""
        return Places(*(field[:, start:stop] for field in self))

    def column(self) -> "Places":
        """Shaped [B,T,1], to be compared with keys along the last axis."""
        return Places(*(field[:, :, None] for field in self))

    def row(self) -> "Places":
        """Shaped [B,1,S], to be compared with queries along the middle axis."""
        return Places(*(field[:, None, :] for field in self))


class Layout:
    """Where the elements of a batch stand, and whatever else is the same for all layers that read it.

    Masks, positions and tables are asked for by every layer and depend on no values: whoever asks first makes them, the
    others find them here. A layout travels with its batch (`Padded.shared`) and ends with it.

    >>> layout = Layout(torch.tensor([2, 1]), None, time=2)
    >>> layout.valid.tolist(), layout.valid is layout.valid
    ([[True, True], [True, False]], True)
    """

    __slots__ = ("_made", "lengths", "segments", "time")

    def __init__(self, lengths: Tensor, segments: Tensor | None, *, time: int) -> None:
        self.lengths, self.segments, self.time = lengths, segments, time
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` gave when it was first asked for under this key; it must depend on the key and this layout alone.

        A tensor in a key stands for itself, not for its numbers.
        """
        if key not in self._made:
            self._made[key] = make()
        found: Made = self._made[key]
        return found

    @property
    def valid(self) -> Tensor:
        """[B,T] true where an element is real."""
        return self.once("valid", lambda: self._steps() < self.lengths[:, None])

    @property
    def beyond(self) -> Tensor:
        """[B,T] true in the padding."""
        return self.once("beyond", lambda: ~self.valid)

    @property
    def places(self) -> Places:
        """Where the elements stand in their documents."""
        return self.once("places", self._places)

    def _steps(self) -> Tensor:
        return torch.arange(self.time, device=self.lengths.device)

    def _places(self) -> Places:
        steps = self._steps().expand(len(self.lengths), self.time)
        if self.segments is None:
            return Places(steps, torch.zeros_like(steps), self.valid)
        changes = torch.ones_like(self.segments, dtype=torch.bool)
        changes[:, 1:] = self.segments[:, 1:] != self.segments[:, :-1]
        began = torch.where(changes, steps, 0).cummax(dim=1).values if self.time else steps
        # Counted anew, so that a number used twice, or one that stands in the padding, never joins two documents.
        return Places(steps - began, changes.cumsum(dim=1).masked_fill(self.beyond, -1), self.valid)
