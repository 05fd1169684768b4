"""The true answers of a task that writes, as they stood in the data.

Symbols forget: a vocabulary of words has no room for rare ones, lower case no capitals, a limit no ends. An answer is
scored against the original text, so prepared data keeps it, as bytes in a column of its own. Training never reads it:
a batch holds the way to its texts, and who asks for one reads it then.
"""

from collections.abc import Sequence
from typing import overload

import numpy as np

from seqloom.text.ragged import Ragged, starts_of

REFERENCE = "reference"  # the column: UTF-8


def reference_column(texts: Sequence[str]) -> Ragged:
    """The column of some texts.

    >>> References(reference_column(["é", "", "ab"]), np.array([2, 0]))[1]
    'é'
    """
    encoded = [text.encode() for text in texts]
    values = np.frombuffer(b"".join(encoded), np.uint8)
    return Ragged(values, starts_of([len(text) for text in encoded]))


class References(Sequence[str]):
    """The texts of some rows of the column, each read when it is asked for."""

    def __init__(self, column: Ragged, rows: np.ndarray) -> None:
        self.column, self.rows = column, rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "References": ...
    def __getitem__(self, index: int | slice) -> "str | References":
        """The text of a row, or the texts of some."""
        if isinstance(index, slice):
            return References(self.column, self.rows[index])
        return self.column.row(int(self.rows[index])).tobytes().decode()
