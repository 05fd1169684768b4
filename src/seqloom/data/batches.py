"""From columns to tensors: the batch of some rows, whatever the kinds of input and target are.

    input     tensors                                     target    tensors
    text      Padded symbols [B,T]                        label     [B]
    pair      Padded symbols [B,T]                        labels    zeros and ones [B,K]
    words     Subwords: pieces [B,T], firsts [B,W]        numbers   [B,K]
    vectors   Padded [B,T,D]                              tags      [B,W] or [B,T], 0 in the padding
    picture   [B,H,W,C], bytes scaled to 0..1             text      [B,T] symbols and END; inputs Pair(input, BEGIN ...)
                                                          nothing   [B,T] symbols and END; inputs BEGIN and symbols

Symbols and classes are int64, everything else float32. A kind is an entry in a table, not a branch.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.data.schema import InputKind, Schema, TargetKind
from seqloom.data.streams import Cut, Packs, Streams
from seqloom.errors import DataError
from seqloom.ragged import Ragged
from seqloom.text.symbols import BEGIN, END
from seqloom.types import Batch, Padded, Pair, Subwords

Columns = Mapping[str, Ragged]  # of the rows of one batch
AnyBatch = Batch[Any, Any]


def collate(schema: Schema, columns: Columns, rows: np.ndarray) -> AnyBatch:
    """The batch of the chosen rows, in their order; its ids are their numbers."""
    if not len(rows):
        raise DataError("the batch has no rows", fix="give at least one")
    chosen = {name: column.select(rows) for name, column in columns.items()}
    inputs = INPUTS[schema.input](chosen)
    inputs, targets = TARGETS[schema.target](Question(inputs, chosen, len(schema.labels)))
    return Batch(inputs, targets, tuple(map(str, rows.tolist())))


def unseen_labels(columns: Columns, rows: np.ndarray) -> np.ndarray:
    """[B] how many labels of each row training never saw.

    They have no column in the targets of a batch, so no model can say them: an evaluation of several labels counts
    each as one that was missed.
    """
    target = columns["target"].select(rows)
    of_row = np.repeat(np.arange(target.rows), target.lengths)
    return np.bincount(of_row[target.values < 0], minlength=target.rows)


def stream_batch(streams: Streams, cut: Cut) -> Batch[Padded, Tensor]:
    """The batch of one step of contiguous streams; its ids are the numbers of the rows."""
    read, said = streams.read(cut)
    return Batch(_padded(read, cut.lengths), torch.from_numpy(said), tuple(map(str, cut.rows.tolist())))


def packed_batch(symbols: Ragged, packs: Packs, rows: Ragged) -> Batch[Padded, Tensor]:
    """The batch of rows of packed documents, isolated by segments; its ids are the documents in reading order."""
    documents, starts, sizes = (field[rows.values] for field in packs.pieces)
    ends = np.cumsum(sizes)
    piece = np.repeat(np.arange(len(sizes)), sizes)  # of every element
    offset = np.arange(len(piece)) - (ends - sizes)[piece] + starts[piece]  # in the document: 0 reads BEGIN
    place = symbols.starts[documents][piece] + offset  # of the symbol that is said
    begins, stops = offset == 0, place == symbols.starts[documents + 1][piece]
    read, said = np.full(len(piece), BEGIN, np.int64), np.full(len(piece), END, np.int64)
    read[~begins], said[~stops] = symbols.values[place[~begins] - 1], symbols.values[place[~stops]]
    # Rows of pieces become rows of elements.
    row_starts = np.concatenate([[0], ends])[rows.starts]
    in_row = np.arange(len(sizes)) - np.repeat(rows.starts[:-1], rows.lengths)
    read, said, segments = (_filled(Ragged(flat, row_starts), np.int64) for flat in (read, said, in_row[piece]))
    inputs = _padded(read, np.diff(row_starts))._replace(segments=torch.from_numpy(segments))
    return Batch(inputs, torch.from_numpy(said), tuple(map(str, documents.tolist())))


def _filled(column: Ragged, dtype: type[np.generic]) -> np.ndarray:
    """[B,T,...] rows side by side, zeros behind the short ones."""
    lengths = column.lengths
    matrix = np.zeros((len(lengths), int(lengths.max()), *column.values.shape[1:]), dtype)
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = column.values
    return matrix


def _padded(matrix: np.ndarray, lengths: np.ndarray) -> Padded:
    full = bool((lengths == matrix.shape[1]).all())
    return Padded(torch.from_numpy(matrix), torch.from_numpy(np.asarray(lengths, np.int64)), None, full)


def _symbols(column: Ragged) -> Padded:
    return _padded(_filled(column, np.int64), column.lengths)


def _shifted(symbols: Padded) -> tuple[Padded, Tensor]:
    """What is read, BEGIN and the symbols, and what is to be said there, the symbols and END."""
    batch, lengths = len(symbols.lengths), symbols.lengths
    read = torch.cat([torch.full((batch, 1), BEGIN), symbols.values], dim=1)
    said = torch.cat([symbols.values, torch.zeros(batch, 1, dtype=torch.int64)], dim=1)
    said[torch.arange(batch), lengths] = END
    return Padded(read, lengths + 1, None, symbols.full), said


def _even(column: Ragged, what: str) -> np.ndarray:
    """[B,T,...] rows that must have one length."""
    lengths = column.lengths
    if int(lengths.min()) != int(lengths.max()):
        raise DataError(
            f"{what} of one size were expected, found {int(lengths.min())} and {int(lengths.max())}",
            fix="bring all examples to one size",
        )
    return column.values.reshape(len(lengths), int(lengths[0]), *column.values.shape[1:])


def _text(columns: Columns) -> Padded:
    return _symbols(columns["input"])


def _words(columns: Columns) -> Subwords:
    return Subwords(_symbols(columns["input"]), _symbols(columns["firsts"]))


def _vectors(columns: Columns) -> Padded:
    return _padded(_filled(columns["input"], np.float32), columns["input"].lengths)


def _picture(columns: Columns) -> Tensor:
    pixels = _even(columns["input"], "pictures")
    scaled = pixels.astype(np.float32) / np.float32(255) if pixels.dtype == np.uint8 else pixels.astype(np.float32)
    return torch.from_numpy(scaled)


class Question(NamedTuple):
    """What targets are made from."""

    inputs: Any
    columns: Columns
    classes: int


Answer = tuple[Any, Tensor]  # inputs and targets: what is to be said may also be read


def _label(asked: Question) -> Answer:
    return asked.inputs, torch.from_numpy(_even(asked.columns["target"], "labels")[:, 0].astype(np.int64))


def _labels(asked: Question) -> Answer:
    """Labels that training never saw have no column; `unseen_labels` counts them for an evaluation."""
    target, classes = asked.columns["target"], asked.classes
    if target.values.size and not -1 <= int(target.values.min()) <= int(target.values.max()) < classes:
        raise DataError(f"labels are numbers below {classes}, found {int(target.values.max())}")
    rows, known = np.repeat(np.arange(target.rows), target.lengths), target.values >= 0
    hot = np.zeros((target.rows, classes), np.float32)
    hot[rows[known], target.values[known]] = 1
    return asked.inputs, torch.from_numpy(hot)


def _numbers(asked: Question) -> Answer:
    return asked.inputs, torch.from_numpy(_even(asked.columns["target"], "rows of numbers").astype(np.float32))


def _tags(asked: Question) -> Answer:
    return asked.inputs, torch.from_numpy(_filled(asked.columns["target"], np.int64))


def _target_text(asked: Question) -> Answer:
    read, said = _shifted(_symbols(asked.columns["target"]))
    return Pair(asked.inputs, read), said


def _nothing(asked: Question) -> Answer:
    return _shifted(asked.inputs)


INPUTS: Mapping[InputKind, Callable[[Columns], Any]] = {
    "text": _text,
    "pair": _text,
    "words": _words,
    "vectors": _vectors,
    "picture": _picture,
}
TARGETS: Mapping[TargetKind, Callable[[Question], Answer]] = {
    "label": _label,
    "labels": _labels,
    "numbers": _numbers,
    "tags": _tags,
    "text": _target_text,
    "nothing": _nothing,
}
