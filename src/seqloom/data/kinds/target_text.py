"""A text that is written: a translation, an answer, a caption."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from seqloom.data.kinds.kind import Coding, Columns, TargetKind, shifted, tokens
from seqloom.data.kinds.text import fitted
from seqloom.data.values import Read, Remarks, text_of
from seqloom.text.ragged import Ragged, starts_of

if TYPE_CHECKING:
    from torch import Tensor

    from seqloom.data.roles import Roles


# The true answers of a task that writes, as they stood in the data.
#
# Symbols forget: a vocabulary of words has no room for rare ones, lower case no capitals, a limit no ends. An answer is
# scored against the original text, so prepared data keeps it, as bytes in a column of its own. Training never reads it:
# a batch holds the way to its texts, and who asks for one reads it then.

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


class TextTarget(TargetKind):
    """Columns "target": its tokens; REFERENCE: the original in bytes. In a batch: [B,T] tokens and END.

    The inputs of a batch are a Pair: what is translated, and BEGIN and the tokens.
    """

    name = "text"
    task = "translate"
    usual = ("target", "tgt", "translation", "output", "caption")
    is_text = True

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """What takes the text of a row."""
        (column,) = roles.target
        return lambda values: text_of(values[column], column)

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        return {"characters of a target": np.array(list(map(len, values)), np.int32)}

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        """The tokens, and the text itself."""
        return {"target": fitted(coding.target_tokenizer).encode(values), REFERENCE: reference_column(values)}

    def lengths(self, columns: Columns) -> np.ndarray:
        return columns["target"].lengths

    def cut(self, columns: Columns, most: int) -> dict[str, Ragged]:
        return {"target": columns["target"].shorten(np.full(columns["target"].rows, most))}

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """What is read on both sides, and what is to be said."""
        from seqloom.nn.types import Pair

        read, said = shifted(tokens(columns["target"]))
        return Pair(inputs, read), said

    def sizes(self, columns: Columns) -> np.ndarray:
        return np.stack([columns["input"].lengths, columns["target"].lengths + 1], axis=1)
