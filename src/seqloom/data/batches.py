"""From columns to tensors: the batch of some rows, whatever the kinds of input and target are.

    input     tensors                                     target    tensors
    text      Padded symbols [B,T]                        label     [B]
    pair      Padded symbols [B,T]                        labels    zeros and ones [B,K]
    words     Subwords: pieces [B,T], firsts [B,W]; where letters are kept, Spelled: words [B,T], letters [B,T,L]
                                                          numbers   [B,K]
    vectors   Padded [B,T,D]                              tags      [B,W] or [B,T], 0 in the padding
                                                          series    [B,W,K] or [B,T,K], 0 in the padding
    picture   [B,H,W,C], bytes scaled to 0..1             text      [B,T] symbols and END; inputs Pair(input, BEGIN ...)
                                                          nothing   [B,T] symbols and END; inputs BEGIN and symbols
    triple    Padded symbols [B,T]                        masked    [B,T] symbols; of words all pieces are inputs
                                                          related   [B,0]; inputs Both or Triple, text by text
                                                          similarity  [B]; inputs Both

Symbols and classes are int64, everything else float32. A kind is an entry in a table, not a branch.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.data.encoding import BYTES, LETTERS, dealt
from seqloom.data.references import REFERENCE, References
from seqloom.data.schema import InputKind, Schema, TargetKind
from seqloom.data.streams import Cut, Streams
from seqloom.errors import DataError
from seqloom.nn.types import Batch, Both, Padded, Pair, Spelled, Subwords, Triple
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import BEGIN, END, SEPARATOR

Columns = Mapping[str, Ragged]  # of the rows of one batch
AnyBatch = Batch[Any, Any]


def collate(schema: Schema, columns: Columns, rows: np.ndarray) -> AnyBatch:
    """The batch of the chosen rows, in their order; its ids are their numbers."""
    if not len(rows):
        raise DataError("the batch has no rows", fix="give at least one")
    chosen = {name: column.select(rows) for name, column in columns.items() if name != REFERENCE}
    inputs = INPUTS[schema.input](chosen)
    inputs, targets = TARGETS[schema.target](BatchQuestion(inputs, chosen, len(schema.labels)))
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
    return Batch(_padded(read, cut.lengths), torch.from_numpy(said), ids, bytes=worth)


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
    read, said, segments, owners, offset = (_filled(Ragged(flat, row_starts), np.int64) for flat in columns)
    inputs = _padded(read, np.diff(row_starts))._replace(segments=torch.from_numpy(segments))
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


def _dealt(sizes: np.ndarray | None, symbols: Ragged, documents: np.ndarray, offsets: np.ndarray) -> Tensor | None:
    """[B,T] the bytes of the symbols at offsets of documents; anything in the padding."""
    if sizes is None:
        return None
    return torch.from_numpy(dealt(sizes[documents], symbols.lengths[documents] + 1, offsets))


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


def _words(columns: Columns) -> Subwords | Spelled:
    if LETTERS in columns:
        return Spelled(_symbols(columns["input"]), torch.from_numpy(_spelled(columns[LETTERS])))
    return Subwords(_symbols(columns["input"]), _symbols(columns["firsts"]))


def _spelled(column: Ragged) -> np.ndarray:
    """[B,T,L] the letters of each word, as far as the longest word of the batch goes."""
    used = np.flatnonzero(column.values.any(axis=0))
    longest = int(used[-1]) + 1 if len(used) else 1
    return _filled(Ragged(column.values[:, :longest], column.starts), np.uint8)


def _vectors(columns: Columns) -> Padded:
    return _padded(_filled(columns["input"], np.float32), columns["input"].lengths)


def _picture(columns: Columns) -> Tensor:
    pixels = _even(columns["input"], "pictures")
    scaled = pixels.astype(np.float32) / np.float32(255) if pixels.dtype == np.uint8 else pixels.astype(np.float32)
    return torch.from_numpy(scaled)


class BatchQuestion(NamedTuple):
    """What targets are made from."""

    inputs: Any
    columns: Columns
    classes: int


Answer = tuple[Any, Tensor]  # inputs and targets: what is to be said may also be read


def _label(asked: BatchQuestion) -> Answer:
    return asked.inputs, torch.from_numpy(_even(asked.columns["target"], "labels")[:, 0].astype(np.int64))


def _labels(asked: BatchQuestion) -> Answer:
    """Labels that training never saw have no column; `unseen_labels` counts them for an evaluation."""
    target, classes = asked.columns["target"], asked.classes
    if target.values.size and not -1 <= int(target.values.min()) <= int(target.values.max()) < classes:
        raise DataError(f"labels are numbers below {classes}, found {int(target.values.max())}")
    rows, known = np.repeat(np.arange(target.rows), target.lengths), target.values >= 0
    hot = np.zeros((target.rows, classes), np.float32)
    hot[rows[known], target.values[known]] = 1
    return asked.inputs, torch.from_numpy(hot)


def _numbers(asked: BatchQuestion) -> Answer:
    return asked.inputs, torch.from_numpy(_even(asked.columns["target"], "rows of numbers").astype(np.float32))


def _tags(asked: BatchQuestion) -> Answer:
    return asked.inputs, torch.from_numpy(_filled(asked.columns["target"], np.int64))


def _series(asked: BatchQuestion) -> Answer:
    return asked.inputs, torch.from_numpy(_filled(asked.columns["target"], np.float32))


def _target_text(asked: BatchQuestion) -> Answer:
    read, said = _shifted(_symbols(asked.columns["target"]))
    return Pair(asked.inputs, read), said


def _nothing(asked: BatchQuestion) -> Answer:
    return _shifted(asked.inputs)


def _masked(asked: BatchQuestion) -> Answer:
    symbols = asked.inputs.pieces if isinstance(asked.inputs, Subwords) else asked.inputs
    return symbols, symbols.values


def cut_apart(joined: Ragged) -> list[Ragged]:
    """The texts of each row, which SEPARATORs keep apart: as many as the first row has; no text holds one.

    >>> [text.values.tolist() for text in cut_apart(Ragged.of([[7, SEPARATOR, 8, 9], [SEPARATOR, 8]], np.int32))]
    [[7], [8, 9, 8]]
    """
    borders = joined.values == SEPARATOR
    count = int(borders[: joined.starts[1]].sum()) + 1
    passed = np.concatenate([[0], np.cumsum(borders)])
    number = passed[:-1] - np.repeat(passed[joined.starts[:-1]], joined.lengths)  # of the text of each symbol
    chosen = [(number == text) & ~borders for text in range(count)]
    return [Ragged(joined.values[mine], np.concatenate([[0], np.cumsum(mine)])[joined.starts]) for mine in chosen]


def _together(columns: Columns) -> Padded | Both | Triple:
    texts = [_symbols(text) for text in cut_apart(columns["input"])]
    return texts[0] if len(texts) == 1 else Both(*texts) if len(texts) == 2 else Triple(*texts)


def _related(asked: BatchQuestion) -> Answer:
    return _together(asked.columns), torch.empty(asked.columns["input"].rows, 0)


def _similarity(asked: BatchQuestion) -> Answer:
    scores = _even(asked.columns["target"], "scores")[:, 0].astype(np.float32)
    return _together(asked.columns), torch.from_numpy(scores)


INPUTS: Mapping[InputKind, Callable[[Columns], Any]] = {
    "text": _text,
    "pair": _text,
    "triple": _text,
    "words": _words,
    "vectors": _vectors,
    "picture": _picture,
}
TARGETS: Mapping[TargetKind, Callable[[BatchQuestion], Answer]] = {
    "label": _label,
    "labels": _labels,
    "numbers": _numbers,
    "tags": _tags,
    "series": _series,
    "text": _target_text,
    "nothing": _nothing,
    "masked": _masked,
    "related": _related,
    "similarity": _similarity,
}
