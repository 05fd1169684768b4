"""How large each example is in a batch: what an order counts; and how large a batch is where nobody says it."""

from collections.abc import Mapping

import numpy as np

from seqloom.data.schema import Schema
from seqloom.ragged import Ragged

STEPS_OF_EPOCH = 100  # at least, for small data: batches are made smaller
SMALLEST_BATCH, LARGEST_BATCH = 128, 8_192  # symbols


def usual_budget(symbols: int) -> int:
    """The symbols of a batch for a training part of so many, padding included.

    >>> usual_budget(900), usual_budget(50_000), usual_budget(10**9)
    (128, 500, 8192)
    """
    return max(SMALLEST_BATCH, min(LARGEST_BATCH, symbols // STEPS_OF_EPOCH))


def sizes_of(schema: Schema, columns: Mapping[str, Ragged]) -> np.ndarray:
    """[N,S] how many elements the batch will hold for each row, on each side: what an Order counts.

    A picture counts its rows of pixels. BEGIN and END count where they are added.
    """
    lengths = columns["input"].lengths
    if schema.target == "nothing":
        return (lengths + 1)[:, None]
    if schema.target == "text":
        return np.stack([lengths, columns["target"].lengths + 1], axis=1)
    return lengths[:, None]
