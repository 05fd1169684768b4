"""Documents in batches of text: which one each element belongs to, whether rows hold one each or several, packed."""

from typing import Any

import numpy as np
from torch import Tensor

from seqloom.data.loader import Loader
from seqloom.nn.types import Batch, Padded, places_of


def document_numbers(inputs: Padded) -> np.ndarray:
    """[B,T] the document that each element belongs to, counted in reading order; rows are one each unless packed."""
    rows, time = inputs.values.shape[:2]
    if inputs.segments is None:
        return np.repeat(np.arange(rows), time).reshape(rows, time)
    within = places_of(inputs).segments.cpu().numpy()  # 1, 2, ... in each row, -1 in the padding
    counts = within.max(axis=1)
    before: np.ndarray = np.cumsum(counts) - counts - 1
    return np.asarray(within + before[:, None])


def summed(values: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    """[count] the sums of values that share a number, in float64."""
    return np.bincount(numbers, weights=values, minlength=count)


def named_packs(loader: Loader[Any, Any], rows: np.ndarray) -> Loader[Any, Any]:
    """The same steps; documents are called by their rows of the prepared data, not by their numbers in the part."""
    make_batch = loader.make_batch

    def named(packed: Any) -> Batch[Padded, Tensor]:
        batch = make_batch(packed)
        return batch._replace(ids=tuple(str(rows[int(id_)]) for id_ in batch.ids))  # type: ignore[no-any-return]

    loader.make_batch = named
    return loader
