"""Packed documents: each in a row of its own for layers that know nothing of packing, and back.

    packed     [ a a a a a a a a | b b ]          groups     [ a a a a a a a a ]     [ b b ]
               [ c c c | d d | e e e e ]                     [ e e e e . . . . ]     [ d d ]
                                                                                     [ c c c ]

`by_document` sorts the documents of a batch by length into a few groups, each as long as its longest document. With one
group, a single long document would make every short one as expensive as itself. The groups are computed on the host,
once for all layers of a batch (`Layout`); on a GPU from the copy that the batch was moved from, so nothing waits.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.nn.types import NO_DOCUMENT, Layout, Padded, places_of

CLASSES = 2  # candidate borders of groups for each doubling of the length
# What a group costs besides its elements, in elements: a call, and each of its time steps.
CALL, STEP = 128, 4


class DocumentGroup(NamedTuple):
    """Documents of similar length, each to be read as a row."""

    layout: Layout  # of the rows [N,L]
    full: bool  # every row has L elements
    take: Tensor  # [M] the elements of these documents in the packed batch, seen as [B*T]
    place: Tensor | None  # [M] their places in the rows, seen as [N*L]; None: these are 0..M-1

    def rows(self, flat: Tensor) -> Padded:
        """These documents as rows, out of the elements [B*T,...] of a packed batch."""
        layout, taken = self.layout, flat.index_select(0, self.take)
        if self.place is not None:
            empty = taken.new_zeros(len(layout.lengths) * layout.time, *taken.shape[1:])
            taken = empty.index_copy(0, self.place, taken)
        values = taken.view(len(layout.lengths), layout.time, *taken.shape[1:])
        return Padded(values, layout.lengths, None, self.full, layout)

    def elements(self, rows: Padded) -> Tensor:
        """[M,...] the real elements of results computed on `rows`."""
        flat = rows.values.flatten(0, 1)
        return flat if self.place is None else flat.index_select(0, self.place)


class DocumentGroups(NamedTuple):
    """All documents of a packed batch in groups."""

    groups: tuple[DocumentGroup, ...]  # none if there is no element
    take: Tensor  # [M] the elements of all groups in the packed batch


def by_document(run: Callable[[Padded], Padded], x: Padded, *, at_once: bool = False) -> Padded:
    """Return `run(x)` with every document in a separate row, for mixers without support for packing.

    Args:
        run: computes something for each row, independently of other rows.
        x: a batch, packed or not.
        at_once: whether `run` must see all documents in a single call.
    """
    if x.segments is None:
        return run(x)
    layout = x.layout
    groups, take = layout.once(("documents", at_once), lambda: _grouped(layout, at_once))
    if not groups:
        return x.with_values(run(x._replace(segments=None, shared=None)).values)
    flat = x.values.flatten(0, 1)
    elements = [group.elements(run(group.rows(flat))) for group in groups]
    together = torch.cat(elements) if len(elements) > 1 else elements[0]
    packed = together.new_zeros(len(flat), *together.shape[1:]).index_copy(0, take, together)
    return x.with_any(packed.view(*x.values.shape[:2], *together.shape[1:]))


def _grouped(layout: Layout, at_once: bool) -> DocumentGroups:
    """The groups of the documents of a batch; without a copy of it on the host, a GPU is waited for here."""
    lengths, segments = layout.host or (
        layout.lengths.cpu(),
        None if layout.segments is None else layout.segments.cpu(),
    )
    assert segments is not None, "the batch is packed"
    starts, sizes = _documents(lengths.numpy(), segments.numpy())
    order = np.argsort(sizes, kind="stable")
    borders = [len(order)] if at_once else _borders(sizes[order])
    parts = np.split(order, borders[:-1]) if len(order) else []
    groups = tuple(_group(starts[part], sizes[part], layout.lengths.device) for part in parts)
    takes = [group.take for group in groups]
    return DocumentGroups(groups, torch.cat(takes) if takes else layout.lengths.new_zeros(0))


def _documents(lengths: np.ndarray, segments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[N] the first element of each document in the batch seen as [B*T], and [N] its length."""
    time = segments.shape[1]
    real = np.arange(time) < lengths[:, None]
    first = real.copy()
    first[:, 1:] &= segments[:, 1:] != segments[:, :-1]
    starts = np.flatnonzero(first)
    after = np.append(starts[1:], first.size)  # the next document; the last one of a row ends with its row
    ends = np.minimum(after, starts // max(1, time) * time + lengths[starts // max(1, time)])
    return starts, ends - starts


def _borders(sizes: np.ndarray) -> list[int]:
    """The ends of the groups of documents, sorted by length [N], that cost least.

    A group costs its rows x its length, a call, and a fixed amount for each time step. Borders are tried between
    classes of lengths that differ by a factor of at least 2 ** (1 / CLASSES).
    """
    if not len(sizes):
        return [0]
    of_class = np.ceil(np.log2(sizes) * CLASSES)
    ends = [*(np.flatnonzero(np.diff(of_class)) + 1).tolist(), len(sizes)]
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]  # the cost of the first n classes, and their borders
    for last, end in enumerate(ends):
        longest = int(sizes[end - 1])
        choices = [
            (best[first][0] + CALL + (end - (ends[first - 1] if first else 0) + STEP) * longest, first)
            for first in range(last + 1)
        ]
        cost, first = min(choices)
        best.append((cost, (*best[first][1], end)))
    return list(best[-1][1])


def _group(starts: np.ndarray, sizes: np.ndarray, device: torch.device) -> DocumentGroup:
    longest = int(sizes.max())
    row = np.repeat(np.arange(len(sizes)), sizes)  # of every element
    column = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    full = bool((sizes == longest).all())
    take, place = starts[row] + column, None if full else _moved(row * longest + column, device)
    lengths = _moved(sizes, device)
    return DocumentGroup(Layout(lengths, None, time=longest), full, _moved(take, device), place)


def _moved(numbers: np.ndarray, device: torch.device) -> Tensor:
    """The numbers on a device; to a GPU they are copied asynchronously."""
    tensor = torch.from_numpy(np.ascontiguousarray(numbers, np.int64))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class Unpacked(NamedTuple):
    """One document per row, and the new position of each element of the packed batch."""

    rows: Padded  # [N,T',...]: documents in reading order, row by row
    document: Tensor  # [B,T] the row of `rows` that holds the element
    position: Tensor  # [B,T] its column there

    def repack(self, rows: Padded, packed: Padded) -> Padded:
        """Put results computed on `rows` back at the positions of the packed batch."""
        return packed.with_values(rows.values[self.document, self.position])


def unpack(x: Padded) -> Unpacked:
    """Return every document of a batch as a separate row.

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
    # at least one column, because padding points at column 0
    values = x.values.new_zeros(len(lengths), max(1, int(lengths.max())), *x.values.shape[2:])
    values = values.index_put((document[valid], position[valid]), x.values[valid])
    return Unpacked(Padded(values, lengths), document, position)


def documents_per_row(x: Padded) -> Tensor:
    """[B] the number of documents in each row; an empty row has one empty document."""
    first = x.valid & (places_of(x).positions == 0)
    return first.sum(dim=1).clamp(min=1)


class PackedRun(NamedTuple):
    """The n-th document of every row, moved to the left; rows without one are empty."""

    block: Padded  # [B,T'] without segments
    segment: Tensor  # [B] its number, NO_DOCUMENT where there is none
    columns: Tensor  # [B,T'] where each element came from


def runs(x: Padded) -> Iterator[PackedRun]:
    """Yield the documents of a packed batch in reading order: the first of each row, then the second, and so on."""
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
