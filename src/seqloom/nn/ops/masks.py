"""Attention masks: values that combine with & and |.

A mask is defined once, element by element, on the positions of a query and a key. The dense matrix, the blocks of the
blockwise kernel and the predicate of a fused kernel all evaluate this one definition on different shapes.

        causal        window(2)      block-local(2)   strided(2)     prefix(2) | causal
        x . . . .     x . . . .      x . . . .        x . . . .      x x . . .
        x x . . .     x x . . .      x x . . .        . x . . .      x x . . .
        x x x . .     . x x . .      . . x . .        x . x . .      x x x . .
        x x x x .     . . x x .      . . x x .        . x . x .      x x x x .
        x x x x x     . . . x x      . . . . x        x . x . x      x x x x x
                      (each & causal)
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from seqloom.errors import DataError
from seqloom.nn.types import Places

Reach = tuple[int | None, int | None]  # how far a query may see before and after itself; None: unlimited
_STRIDE = 2**31  # node numbers of an edge list are below this, so that a pair fits one int64


class Mask:
    """Base class of all masks: `allows` compares query positions [B,T,1] with key positions [B,1,S]."""

    def allows(self, query: Places, key: Places) -> Tensor:
        """True where the query may read the key, [B,T,S]; an axis that does not matter may be 1."""
        raise NotImplementedError

    def reach(self) -> Reach:
        """Return a bound on the distance, in elements of one document, that a query can see."""
        return None, None

    def __and__(self, other: "Mask") -> "Mask":
        if isinstance(other, Everything):
            return self
        return other if isinstance(self, Everything) else BothMasks(self, other)

    def __or__(self, other: "Mask") -> "Mask":
        return self if isinstance(self, Everything) else other if isinstance(other, Everything) else Either(self, other)

    def parts(self) -> tuple["Mask", ...]:
        """Return the masks whose intersection this is."""
        return (self,)


@dataclass(frozen=True)
class Everything(Mask):
    """Every query reads every key."""

    def allows(self, query: Places, key: Places) -> Tensor:
        return torch.ones_like(key.valid)


@dataclass(frozen=True)
class Causal(Mask):
    """No query reads a key that comes after it."""

    def allows(self, query: Places, key: Places) -> Tensor:
        return key.positions <= query.positions

    def reach(self) -> Reach:
        return None, 0


@dataclass(frozen=True)
class Padding(Mask):
    """Only real keys are read."""

    def allows(self, query: Places, key: Places) -> Tensor:
        return key.valid


@dataclass(frozen=True)
class DocumentMask(Mask):
    """Packed documents do not see one another."""

    def allows(self, query: Places, key: Places) -> Tensor:
        return query.segments == key.segments


@dataclass(frozen=True)
class WindowMask(Mask):
    """Keys at most `before` elements back and `after` elements ahead (Beltagy et al. 2020)."""

    before: int
    after: int

    def allows(self, query: Places, key: Places) -> Tensor:
        distance = query.positions - key.positions
        return (distance <= self.before) & (distance >= -self.after)

    def reach(self) -> Reach:
        return self.before, self.after


@dataclass(frozen=True)
class Prefix(Mask):
    """All queries read the first `length` keys; with | Causal() this is a prefix language model."""

    length: int

    def allows(self, query: Places, key: Places) -> Tensor:
        return key.positions < self.length


@dataclass(frozen=True)
class BlockLocal(Mask):
    """Keys in the same block of `size` elements (the first factor of Child et al. 2019, fixed pattern)."""

    size: int

    def allows(self, query: Places, key: Places) -> Tensor:
        return query.positions // self.size == key.positions // self.size

    def reach(self) -> Reach:
        return self.size - 1, self.size - 1


@dataclass(frozen=True)
class Strided(Mask):
    """Keys a multiple of `stride` away (the second factor of Child et al. 2019, strided pattern)."""

    stride: int

    def allows(self, query: Places, key: Places) -> Tensor:
        return (query.positions - key.positions) % self.stride == 0


@dataclass(frozen=True, eq=False)
class Edges(Mask):
    """A graph as a mask: query i reads key j when (i, j) is in the list; nodes are numbered by position."""

    pairs: Tensor  # [E,2] int64

    def __post_init__(self) -> None:
        if self.pairs.ndim != 2 or self.pairs.shape[1] != 2 or self.pairs.dtype != torch.int64:
            found = f"{self.pairs.dtype} {list(self.pairs.shape)}"
            raise DataError(f"an edge list is a tensor [edges, 2] of int64, found {found}")
        if self.pairs.numel() and not 0 <= int(self.pairs.min()) <= int(self.pairs.max()) < _STRIDE:
            raise DataError("an edge list has a node number below 0 or beyond 2^31")

    def allows(self, query: Places, key: Places) -> Tensor:
        wanted = query.positions * _STRIDE + key.positions
        return torch.isin(wanted, self.pairs[:, 0] * _STRIDE + self.pairs[:, 1])


@dataclass(frozen=True, eq=False)
class Neighbors(Mask):
    """One graph per row: a query reads itself and the keys that its edges lead to. Nodes are numbered by position."""

    pairs: Tensor  # [B,E,2] int64: the node that reads and the node that is read; negative where there is no edge
    nodes: int  # in the longest row

    def matrix(self) -> Tensor:
        """[B,N,N] bool: true at [b,i,j] if node i reads node j."""
        rows, size = len(self.pairs), self.nodes + 1  # pairs that are no edge go into an extra row and column
        reader, read = self.pairs.masked_fill(self.pairs < 0, self.nodes).unbind(dim=2)  # [B,E]
        whole = torch.eye(size, dtype=torch.bool, device=self.pairs.device).expand(rows, size, size).flatten(1)
        whole = whole.scatter(1, reader * size + read, True).view(rows, size, size)
        return whole[:, : self.nodes, : self.nodes]

    def allows(self, query: Places, key: Places) -> Tensor:
        rows = torch.arange(len(self.pairs), device=self.pairs.device)[:, None, None]
        return self.matrix()[rows, query.positions, key.positions]


@dataclass(frozen=True)
class BothMasks(Mask):
    """The intersection of two masks."""

    left: Mask
    right: Mask

    def allows(self, query: Places, key: Places) -> Tensor:
        return self.left.allows(query, key) & self.right.allows(query, key)

    def reach(self) -> Reach:
        (before, after), (other_before, other_after) = self.left.reach(), self.right.reach()
        return _nearer(before, other_before), _nearer(after, other_after)

    def parts(self) -> tuple[Mask, ...]:
        return self.left.parts() + self.right.parts()


@dataclass(frozen=True)
class Either(Mask):
    """The union of two masks."""

    left: Mask
    right: Mask

    def allows(self, query: Places, key: Places) -> Tensor:
        return self.left.allows(query, key) | self.right.allows(query, key)

    def reach(self) -> Reach:
        (before, after), (other_before, other_after) = self.left.reach(), self.right.reach()
        return _farther(before, other_before), _farther(after, other_after)


def _nearer(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _farther(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


def compact(mask: Mask, query: Places, key: Places) -> Tensor:
    """Return the mask [B,1,T,S], or [B,1,1,S] if it is the same for all queries; bool."""
    return mask.allows(query.column(), key.row())[:, None]


def dense(mask: Mask, query: Places, key: Places) -> Tensor:
    """Return the full mask [B,1,T,S], bool; quadratic in the length."""
    return compact(mask, query, key).expand(-1, -1, query.valid.shape[1], -1)
