"""Ragged arrays: rows of different lengths in one flat array, used by tokenizers and data columns."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np


class Ragged(NamedTuple):
    """Rows of different lengths in one flat array: row i is values[starts[i]:starts[i + 1]].

    >>> column = Ragged.of([[5, 6, 7], [], [8]], np.int32)
    >>> column.row(0).tolist(), column.rows, column.lengths.tolist()
    ([5, 6, 7], 3, [3, 0, 1])
    """

    values: np.ndarray  # [total, ...]; may be a read-only memory map
    starts: np.ndarray  # [rows + 1] int64

    @classmethod
    def of(cls, rows: Sequence[Sequence[float] | np.ndarray], dtype: np.typing.DTypeLike) -> "Ragged":
        """Build a ragged array from a sequence of rows."""
        starts = starts_of([len(row) for row in rows])
        if any(isinstance(row, np.ndarray) for row in rows):
            return cls(np.concatenate([np.asarray(row, dtype) for row in rows]), starts)
        return cls(np.array(list(chain.from_iterable(rows)), dtype), starts)  # one call for all lists is twice as fast

    @classmethod
    def joined(cls, blocks: "Sequence[Ragged]", dtype: np.typing.DTypeLike | None = None) -> "Ragged":
        """Concatenate the rows of several blocks; without blocks, return zero rows with values of `dtype`.

        >>> Ragged.joined([Ragged.of([[5], []], np.int32), Ragged.of([[6, 7]], np.int32)]).starts.tolist()
        [0, 1, 1, 3]
        """
        if not blocks:
            if dtype is None:
                raise ValueError("no blocks to join, and no dtype for a column without rows")
            return cls.of([], dtype)
        lengths = np.concatenate([block.lengths for block in blocks])
        values = np.concatenate([block.values[block.starts[0] : block.starts[-1]] for block in blocks])
        return cls(values, starts_of(lengths))

    def row(self, index: int) -> np.ndarray:
        return self.values[self.starts[index] : self.starts[index + 1]]

    def select(self, rows: np.ndarray) -> "Ragged":
        """Return the rows with these indices, in this order.

        >>> Ragged.of([[5, 6], [], [8]], np.int32).select(np.array([2, 0])).values.tolist()
        [8, 5, 6]
        """
        begins = self.starts[rows]  # `lengths` would read all rows to select a few
        return self._gather(begins, self.starts[rows + 1] - begins)

    def shorten(self, lengths: np.ndarray) -> "Ragged":
        """Truncate row i to at most lengths[i] elements.

        >>> Ragged.of([[5, 6, 7], [], [8]], np.int32).shorten(np.array([2, 2, 0])).values.tolist()
        [5, 6]
        """
        return self._gather(self.starts[:-1], np.minimum(self.lengths, lengths))

    def _gather(self, begins: np.ndarray, lengths: np.ndarray) -> "Ragged":
        starts = starts_of(lengths)
        places = np.arange(starts[-1]) + np.repeat(begins - starts[:-1], lengths)
        return Ragged(self.values[places], starts)

    @property
    def lengths(self) -> np.ndarray:
        """The number of elements in each row."""
        return np.diff(self.starts)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.starts) - 1


def starts_of(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the start of each row plus the end of the last one, as int64 [rows + 1].

    >>> starts_of([3, 0, 1]).tolist()
    [0, 3, 3, 4]
    """
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts
