"""How large each example is in a batch: what an order counts."""

from collections.abc import Mapping

import numpy as np

from seqloom.data.schema import Schema
from seqloom.ragged import Ragged


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
