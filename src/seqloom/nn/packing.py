"""Documents packed into shared rows, taken apart into rows of their own and put back."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.nn.types import NO_DOCUMENT, Padded, places_of


class Unpacked(NamedTuple):
    """One document per row, and where each element of the packed batch went."""

    rows: Padded  # [N,T',...]: documents in reading order, row by row
    document: Tensor  # [B,T] the row of `rows` that holds the element
    position: Tensor  # [B,T] its column there

    def repack(self, rows: Padded, packed: Padded) -> Padded:
        """Results computed on `rows`, back in the places of the packed batch."""
        return packed.with_values(rows.values[self.document, self.position])


def unpack(x: Padded) -> Unpacked:
    """Every document of a batch as a row of its own.

    >>> packed = Padded.of(torch.tensor([[5, 6, 7]]), segments=torch.tensor([[0, 0, 1]]))
    >>> unpack(packed).rows.values.tolist()
    [[5, 6], [7, 0]]
    """
    places, valid = places_of(x), x.valid
    first = valid & (places.positions == 0)
    counts = documents_per_row(x)
    before = counts.cumsum(0) - counts  # [B] documents in earlier rows
    document = before[:, None] + (first.cumsum(dim=1) - 1).clamp(min=0)
    position = places.positions.masked_fill(~valid, 0)
    lengths = torch.bincount(document[valid], minlength=int(counts.sum()))
    # at least one column, so that padding, which points at column 0, points at something
    values = x.values.new_zeros(len(lengths), max(1, int(lengths.max())), *x.values.shape[2:])
    values = values.index_put((document[valid], position[valid]), x.values[valid])
    return Unpacked(Padded(values, lengths), document, position)


def documents_per_row(x: Padded) -> Tensor:
    """[B] how many documents each row holds; an empty row holds one, which is empty."""
    first = x.valid & (places_of(x).positions == 0)
    return first.sum(dim=1).clamp(min=1)


def by_document(run: Callable[[Padded], Padded], x: Padded) -> Padded:
    """`run(x)` with every document in a row of its own, for mixers that know rows only."""
    if x.segments is None:
        return run(x)
    unpacked = unpack(x)
    return unpacked.repack(run(unpacked.rows), x)


class PackedRun(NamedTuple):
    """The n-th document of every row, moved to the left; rows that have none are empty."""

    block: Padded  # [B,T'] without segments
    segment: Tensor  # [B] its number, NO_DOCUMENT where there is none
    columns: Tensor  # [B,T'] where each element came from


def runs(x: Padded) -> Iterator[PackedRun]:
    """The documents of a packed batch in reading order: first the first ones of all rows, then the second ones..."""
    assert x.segments is not None
    valid, rows = x.valid, torch.arange(len(x.lengths), device=x.values.device)
    first = valid & (places_of(x).positions == 0)
    ordinal = (first.cumsum(dim=1) - 1).masked_fill(~valid, -1)  # [B,T]
    for number in range(int(ordinal.max()) + 1 if ordinal.numel() else 0):
        lengths = (ordinal == number).sum(dim=1)
        start = (ordinal == number).int().argmax(dim=1)
        offsets = torch.arange(int(lengths.max()), device=x.values.device)
        columns = (start[:, None] + offsets).clamp(max=x.values.shape[1] - 1)
        segment = torch.where(lengths > 0, x.segments[rows, start], NO_DOCUMENT)
        yield PackedRun(Padded.of(x.values[rows[:, None], columns], lengths), segment, columns)
