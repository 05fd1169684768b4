"""From prepared data to steps of training: an order, a way to make batches, and a loader over both.

feed           rows of about one length, up to a budget of symbols      every task
feed_streams   running text in parallel rows that go on from step to step      language models with carried state
feed_packs     whole documents side by side in full rows, kept apart           language models without it
"""

from typing import Any

import numpy as np

from seqloom.data.batches import collate, packed_batch, stream_batch
from seqloom.data.loader import Loader
from seqloom.data.order import Order
from seqloom.data.originals import BYTES
from seqloom.data.preparing import Prepared
from seqloom.data.schema import RUNNING, Part
from seqloom.data.sizes import sizes_of
from seqloom.data.streams import Packs, Streams
from seqloom.errors import DataError, did_you_mean
from seqloom.ragged import Ragged


def feed(prepared: Prepared, part: Part, *, budget: int = 8_192, seed: int = 0, **how: Any) -> Loader[Any, Any]:
    """Batches of a part, each of at most `budget` symbols with its padding; `how` is for the `Loader`."""
    rows = _rows(prepared, part)
    order = Order(sizes_of(prepared.schema, prepared.columns)[rows], budget, seed)
    return Loader(order, lambda chosen: collate(prepared.schema, prepared.columns, rows[chosen]), **how)


def feed_streams(prepared: Prepared, part: Part, *, rows: int, length: int, **how: Any) -> Loader[Any, Any]:
    """Running text in so many rows, so many symbols a step; the next step goes on where the last one stopped."""
    streams, sizes = Streams(_running(prepared, part), rows, length), _sizes(prepared, part)
    return Loader(streams, lambda cut: stream_batch(streams, cut, sizes), **how)


def feed_packs(
    prepared: Prepared, part: Part, *, rows: int, length: int, seed: int = 0, **how: Any
) -> Loader[Any, Any]:
    """Whole documents packed into rows of so many symbols; nothing flows from one document into another."""
    symbols, sizes = _running(prepared, part), _sizes(prepared, part)
    packs = Packs(symbols.lengths + 1, length, rows, seed)
    return Loader(packs, lambda chosen: packed_batch(symbols, chosen, sizes), **how)


def _rows(prepared: Prepared, part: Part) -> np.ndarray:
    if part not in prepared.parts:
        raise DataError(f"there is no part '{part}'", fix=did_you_mean(part, prepared.parts))
    rows = prepared.parts[part]
    if not len(rows):
        raise DataError(f"the part {part} has no rows", fix="give a file for it, or let one be drawn")
    return rows


def _sizes(prepared: Prepared, part: Part) -> np.ndarray | None:
    """[N] the bytes of each text of a part, where they were counted."""
    return np.asarray(prepared.columns[BYTES].values[prepared.parts[part]]) if BYTES in prepared.columns else None


def _running(prepared: Prepared, part: Part) -> Ragged:
    """The texts of a part in their order; neighbouring rows are not copied."""
    if prepared.schema.target not in RUNNING:
        raise DataError(
            f"the task is {prepared.schema.task}; streams and packs are for lm", fix="load it with task='lm'"
        )
    rows, column = _rows(prepared, part), prepared.columns["input"]
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 != len(rows):
        return column.select(rows)
    starts = np.asarray(column.starts[first : last + 2])
    return Ragged(column.values[starts[0] : starts[-1]], starts - starts[0])
