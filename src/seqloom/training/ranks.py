"""The processes that train one model together, as the loop sees them. Alone is the usual case, and costs nothing.

The loop speaks only to `Ranks`; `training.processes` has the one that speaks to torch.distributed.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from torch import Tensor, nn


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
        """Nothing, when all have come here."""

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
        """Nothing to hold back."""
        return nullcontext()

    def whole(self, wrapped: nn.Module) -> AbstractContextManager[None]:
        """They are."""
        return nullcontext()
