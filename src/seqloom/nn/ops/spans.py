"""Masks as spans: for each query the range of keys that it may read, and for each key the range of its readers.

Of one sequence, most masks are such ranges, so a kernel compares two numbers instead of reading a matrix, and skips
keys out of range:

    causal & document      window(1, 1)       keys of query 3: [3, 4) and [2, 5)
        x . . . . .        x x . . . .        readers of key 3: [3, 6) and [2, 5)
        x x . . . .        x x x . . .
        x x x . . .        . x x x . .
        . . . x . .        . . x x x .
        . . . x x .        . . . x x x
        . . . x x x        . . . . x x

A query reads a key if the key is in the query's range, the query is in the key's range, and the sparse pattern (if any)
allows their distance.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.nn.ops.masks import (
    BlockLocal,
    BothMasks,
    Causal,
    DocumentMask,
    Either,
    Everything,
    Mask,
    Padding,
    Prefix,
    Strided,
    WindowMask,
)
from seqloom.nn.types import Places


class Sparse(NamedTuple):
    """Keys in the same block of `local` positions, or a multiple of `stride` positions away; 0 for neither."""

    local: int = 0
    stride: int = 0


class KeySpans(NamedTuple):
    """A mask as ranges; [1,T] if all rows of the batch have the same. Empty ranges are [end, 0)."""

    first: Tensor  # [B or 1,T] int32, the first key that a query may read
    last: Tensor  # [B or 1,T] int32, one after the last
    first_reader: Tensor  # [B or 1,S] int32, the first query that may read a key
    last_reader: Tensor  # [B or 1,S] int32
    origin: Tensor  # [B or 1,T] int32, the index of position 0 of each element's document
    sparse: Sparse = Sparse()
    holes: bool = False  # keys inside the range of a query may be forbidden by their own ranges


class _Range(NamedTuple):
    """One side of a span while it is made; None is no bound."""

    first: Tensor | None = None
    last: Tensor | None = None


_Both = tuple[_Range, _Range]  # of queries over keys, of keys over queries


def sparse_of(mask: Mask) -> Sparse | None:
    """Return the sparse pattern that a mask is, or None if it is not one."""
    if isinstance(mask, Strided):
        return Sparse(stride=mask.stride)
    if isinstance(mask, Either):
        pair = {type(part): part for part in (mask.left, mask.right)}
        local, strided = pair.get(BlockLocal), pair.get(Strided)
        if isinstance(local, BlockLocal) and isinstance(strided, Strided):
            return Sparse(local.size, strided.stride)
    return None


def spans_refuse(mask: Mask, *, aligned: bool) -> str | None:
    """Return why a mask is not a range of keys for each query, or None if it is."""
    parts = mask.parts()
    if not aligned:
        if all(isinstance(part, Everything | Padding) for part in parts):
            return None
        return "queries and keys are different sequences, so the visible keys are not a range"
    patterns = [part for part in parts if sparse_of(part) is not None]
    if len(patterns) > 1:
        return "the mask has more than one sparse pattern"
    if all(sparse_of(part) is not None or _is_range(part) for part in parts):
        return None
    return "the visible keys of a query are not a range"


def _is_range(mask: Mask) -> bool:
    if isinstance(mask, BothMasks):
        return _is_range(mask.left) and _is_range(mask.right)
    if isinstance(mask, Either):  # both begin with the first key, so the longer one contains the other
        return all(isinstance(part, Causal | Prefix) for part in (mask.left, mask.right))
    return isinstance(mask, Everything | Causal | Padding | DocumentMask | WindowMask | Prefix | BlockLocal)


def spans_of(mask: Mask, query: Places, key: Places, *, aligned: bool) -> KeySpans:
    """Return a mask that `spans_refuse` accepts as ranges."""
    time, size = query.valid.shape[1], key.valid.shape[1]
    if not aligned:
        masked = any(isinstance(part, Padding) for part in mask.parts())
        keys = _Range()
        readers = _only(key.valid, time) if masked else _Range()
        return _spans(keys, readers, query, key, Sparse(), holes=masked)
    ranges: _Both = (_Range(), _Range())
    sparse = Sparse()
    for part in mask.parts():
        if (pattern := sparse_of(part)) is not None:
            sparse = pattern
        else:
            ranges = _within(ranges, _ranges(part, query, time))
    assert time == size, "aligned queries and keys are one sequence"
    return _spans(*ranges, query, key, sparse, holes=False)


def _ranges(mask: Mask, places: Places, time: int) -> _Both:
    index = torch.arange(time, device=places.valid.device)[None]
    if isinstance(mask, Causal):
        return _Range(last=index + 1), _Range(first=index)
    if isinstance(mask, WindowMask):
        return (
            _Range(index - mask.before, index + mask.after + 1),
            _Range(index - mask.after, index + mask.before + 1),
        )
    if isinstance(mask, Padding):
        return _Range(last=places.valid.sum(dim=1, keepdim=True).expand(-1, time)), _only(places.valid, time)
    if isinstance(mask, DocumentMask):
        document = _document(places.segments, index)
        return document, document
    if isinstance(mask, BlockLocal):
        start = index - places.positions % mask.size
        block = _Range(start, start + mask.size)
        return block, block
    if isinstance(mask, Prefix):
        return _Range(last=index - places.positions + mask.length), _only(places.positions < mask.length, time)
    if isinstance(mask, Either):
        return _joined(_ranges(mask.left, places, time), _ranges(mask.right, places, time))
    assert isinstance(mask, Everything)
    return _Range(), _Range()


def _only(allowed: Tensor, time: int) -> _Range:
    """Every query reads the keys that are allowed, [B,S], and none reads the others."""
    return _Range(torch.where(allowed, 0, time), torch.where(allowed, time, 0))


def _document(segments: Tensor, index: Tensor) -> _Range:
    """The range of the document of each element: where the number of the segment does not change."""
    time = segments.shape[1]
    changes = torch.ones_like(segments, dtype=torch.bool)
    changes[:, 1:] = segments[:, 1:] != segments[:, :-1]
    if not time:
        return _Range()
    first = torch.where(changes, index, 0).cummax(dim=1).values
    ends = torch.where(changes, index, time).roll(-1, dims=1)  # where the next element begins a document
    ends[:, -1] = time
    last = ends.flip(1).cummin(dim=1).values.flip(1)
    return _Range(first, last)


def _within(one: _Both, other: _Both) -> _Both:
    def both(a: _Range, b: _Range) -> _Range:
        return _Range(_bound(torch.maximum, a.first, b.first), _bound(torch.minimum, a.last, b.last))

    return both(one[0], other[0]), both(one[1], other[1])


def _joined(one: _Both, other: _Both) -> _Both:
    """The union of two masks that let every query read from the first key on."""

    def outer(farther: Callable[[Tensor, Tensor], Tensor], a: Tensor | None, b: Tensor | None) -> Tensor | None:
        return None if a is None or b is None else farther(a, b)

    def either(a: _Range, b: _Range) -> _Range:
        return _Range(outer(torch.minimum, a.first, b.first), outer(torch.maximum, a.last, b.last))

    return either(one[0], other[0]), either(one[1], other[1])


def _bound(nearer: Callable[[Tensor, Tensor], Tensor], one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if one is None else one if other is None else nearer(one, other)


def _spans(keys: _Range, readers: _Range, query: Places, key: Places, sparse: Sparse, *, holes: bool) -> KeySpans:
    time, size = query.valid.shape[1], key.valid.shape[1]
    device = query.valid.device
    origin = (torch.arange(time, device=device)[None] - query.positions).int()
    return KeySpans(
        *_ended(keys, time, size, device), *_ended(readers, size, time, device), origin, sparse=sparse, holes=holes
    )


def _ended(bounds: _Range, count: int, end: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Both bounds [B or 1,count] as int32 in 0..end; empty ranges are [end, 0)."""
    none = torch.zeros(1, count, dtype=torch.int64, device=device)
    first = none if bounds.first is None else bounds.first.clamp(min=0)
    last = none + end if bounds.last is None else bounds.last.clamp(max=end)
    empty = first >= last
    return torch.where(empty, end, first).int(), torch.where(empty, 0, last).int()
