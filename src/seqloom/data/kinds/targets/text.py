"""A text that is written: a translation, an answer, a caption."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.data.kinds.inputs.text import fitted
from seqloom.data.kinds.kind import Coding, Columns, TargetKind
from seqloom.data.references import REFERENCE, reference_column
from seqloom.data.values import Read, Remarks, text_of
from seqloom.text.ragged import Ragged

if TYPE_CHECKING:
    from torch import Tensor

    from seqloom.data.roles import Roles


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
        """Characters."""
        return {"characters of a target": np.array(list(map(len, values)), np.int32)}

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        """The tokens, and the text itself."""
        return {"target": fitted(coding.target_tokenizer).encode(values), REFERENCE: reference_column(values)}

    def lengths(self, columns: Columns) -> np.ndarray:
        """The tokens."""
        return columns["target"].lengths

    def cut(self, columns: Columns, most: int) -> dict[str, Ragged]:
        """The first tokens."""
        return {"target": columns["target"].shorten(np.full(columns["target"].rows, most))}

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """What is read on both sides, and what is to be said."""
        from seqloom.data.kinds import tensors
        from seqloom.nn.types import Pair

        read, said = tensors.shifted(tensors.tokens(columns["target"]))
        return Pair(inputs, read), said

    def sizes(self, columns: Columns) -> np.ndarray:
        """Both sides, and END."""
        return np.stack([columns["input"].lengths, columns["target"].lengths + 1], axis=1)
