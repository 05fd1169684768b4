"""A text as target: a translation, an answer, a caption."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from seqloom.config.tokenizers import BpeConfig
from seqloom.data.kinds.kind import Coding, Columns, TargetKind, shifted, tokens
from seqloom.data.kinds.text import fitted
from seqloom.data.values import Read, ReadMany, Remarks, text_of, texts_of
from seqloom.text.ragged import Ragged, starts_of

if TYPE_CHECKING:
    from torch import Tensor

    from seqloom.data.roles import Roles


# References: the original target texts.
#
# Tokens lose information: rare words are unknown, lowercasing removes capitals, truncation removes ends. Generated
# texts are scored against the original text, so prepared data keeps it as bytes in a separate column. Training does not
# read it: a batch only knows the rows, and texts are read when they are needed.

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
    """The texts of some rows of the column, read on access."""

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

    The inputs of a batch are a Pair: the source, and BEGIN and the target tokens.
    """

    name = "text"
    task = "translate"
    column_names = ("target", "tgt", "translation", "output", "caption")
    is_text = True
    default_tokenizer = BpeConfig()  # a model can write new words with it

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """A function that reads the text of a row."""
        (column,) = roles.target
        return lambda values: text_of(values[column], column)

    def readers(self, roles: "Roles", remarks: Remarks) -> tuple[Read, ReadMany]:
        (column,) = roles.target
        return self.reader(roles, remarks), lambda columns: texts_of(list(columns[column]))

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        return {"characters per target": np.array(list(map(len, values)), np.int32)}

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        """The tokens, and the text itself."""
        return {"target": fitted(coding.target_tokenizer).encode(values), REFERENCE: reference_column(values)}

    def lengths(self, columns: Columns) -> np.ndarray:
        return columns["target"].lengths

    def cut(self, columns: Columns, most: int) -> dict[str, Ragged]:
        return {"target": columns["target"].shorten(np.full(columns["target"].rows, most))}

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """Source and shifted target as inputs, and the target."""
        from seqloom.nn.types import Pair

        read, target = shifted(tokens(columns["target"]))
        return Pair(inputs, read), target

    def sizes(self, columns: Columns) -> np.ndarray:
        return np.stack([columns["input"].lengths, columns["target"].lengths + 1], axis=1)
