"""Batches: the rows of some columns as tensors, contiguous streams, packed rows, and how large each row is.

Symbols and classes are int64, everything else float32; what the tensors of a kind are, the kind says (`data/kinds`).
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom.data.kinds.kind import Columns
from seqloom.data.kinds.targets.nothing import BYTES
from seqloom.data.kinds.targets.text import REFERENCE, References
from seqloom.data.kinds.tensors import filled, padded
from seqloom.data.order import Cut, Streams
from seqloom.data.schema import Schema
from seqloom.errors import DataError
from seqloom.nn.types import Batch, Padded
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import BEGIN, END

STEPS_OF_EPOCH = 100  # at least, for small data: batches are made smaller
SMALLEST_BATCH, LARGEST_BATCH = 128, 8_192  # symbols

AnyBatch = Batch[Any, Any]


def collate(schema: Schema, columns: Columns, rows: np.ndarray) -> AnyBatch:
    """The batch of the chosen rows, in their order; its ids are their numbers."""
    if not len(rows):
        raise DataError("the batch has no rows", fix="give at least one")
    chosen = {name: column.select(rows) for name, column in columns.items() if name != REFERENCE}
    inputs, targets = schema.target.collate(schema.input.collate(chosen), chosen, len(schema.labels))
    references = References(columns[REFERENCE], rows) if REFERENCE in columns else ()
    return Batch(inputs, targets, tuple(map(str, rows.tolist())), references, _bytes(chosen))


def unseen_labels(columns: Columns, rows: np.ndarray) -> np.ndarray:
    """[B] how many labels of each row training never saw.

    They have no column in the targets of a batch, so no model can say them: an evaluation of several labels counts
    each as one that was missed.
    """
    target = columns["target"].select(rows)
    of_row = np.repeat(np.arange(target.rows), target.lengths)
    return np.bincount(of_row[target.values < 0], minlength=target.rows)


def stream_batch(streams: Streams, cut: Cut, sizes: np.ndarray | None = None) -> Batch[Padded, Tensor]:
    """The batch of one step of contiguous streams; its ids are the numbers of the rows, `sizes` [N] in bytes."""
    read, said = streams.read(cut)
    places = cut.starts[:, None] + np.minimum(np.arange(cut.width), cut.lengths[:, None] - 1)
    documents, offsets = streams.locate(np.clip(places, 0, streams.total - 1))
    worth = _dealt(sizes, streams.symbols, documents, offsets)
    ids = tuple(map(str, cut.rows.tolist()))
    return Batch(padded(read, cut.lengths), torch.from_numpy(said), ids, bytes=worth)


def packed_batch(symbols: Ragged, rows: Ragged, sizes: np.ndarray | None = None) -> Batch[Padded, Tensor]:
    """The batch of rows of packed pieces, isolated by segments; its ids are the documents in reading order.

    `rows` come from `Packs.share`, `sizes` [N] are those of all documents in bytes.
    """
    documents, starts, lengths = rows.values.T
    ends = np.cumsum(lengths)
    piece = np.repeat(np.arange(len(lengths)), lengths)  # of every element
    offset = np.arange(len(piece)) - (ends - lengths)[piece] + starts[piece]  # in the document: 0 reads BEGIN
    place = symbols.starts[documents][piece] + offset  # of the symbol that is said
    begins, stops = offset == 0, place == symbols.starts[documents + 1][piece]
    read, said = np.full(len(piece), BEGIN, np.int64), np.full(len(piece), END, np.int64)
    read[~begins], said[~stops] = symbols.values[place[~begins] - 1], symbols.values[place[~stops]]
    # Rows of pieces become rows of elements.
    row_starts = np.concatenate([[0], ends])[rows.starts]
    in_row = np.arange(len(lengths)) - np.repeat(rows.starts[:-1], rows.lengths)
    columns = (read, said, in_row[piece], documents[piece], offset)
    read, said, segments, owners, offset = (filled(Ragged(flat, row_starts), np.int64) for flat in columns)
    inputs = padded(read, np.diff(row_starts))._replace(segments=torch.from_numpy(segments))
    worth = _dealt(sizes, symbols, owners, offset)
    return Batch(inputs, torch.from_numpy(said), tuple(map(str, documents.tolist())), bytes=worth)


def _bytes(columns: Columns) -> Tensor | None:
    """[B,T] how many bytes each symbol and END of whole texts stands for; None where nobody counted them."""
    if BYTES not in columns:
        return None
    symbols = columns["input"]
    rows, longest = np.arange(symbols.rows)[:, None], int(symbols.lengths.max(initial=0))
    offsets = np.minimum(np.arange(longest + 1), symbols.lengths[:, None])
    return _dealt(columns[BYTES].values, symbols, np.broadcast_to(rows, offsets.shape), offsets)


def dealt(total: np.ndarray, count: np.ndarray, places: np.ndarray) -> np.ndarray:
    """What each of the places 0..count-1 gets of a total that is dealt out evenly, in whole numbers.

    >>> dealt(np.array(7), np.array(3), np.arange(3)).tolist()
    [2, 2, 3]
    """
    return np.asarray((places + 1) * total // count - places * total // count)


def _dealt(sizes: np.ndarray | None, symbols: Ragged, documents: np.ndarray, offsets: np.ndarray) -> Tensor | None:
    """[B,T] the bytes of the symbols at offsets of documents; anything in the padding."""
    if sizes is None:
        return None
    return torch.from_numpy(dealt(sizes[documents], symbols.lengths[documents] + 1, offsets))
