"""No target column: a language model predicts the next token of the text, or a masked one.

The loss is summed over tokens and reported per byte of the original text. A loss per token depends on the tokenizer:
words are harder to predict than characters, and there are fewer of them. With a loss per byte, models with different
tokenizers can be compared. An END counts as one byte, for the line break or end of file that it stands for:

    bits per byte = (loss of all tokens and ENDs) / log 2 / (bytes of all texts + number of texts)

The bytes of a text are distributed evenly over its tokens, in integers. So steps, rows and ranks add up exactly to the
bytes of a complete split, for any batching.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.data.kinds.kind import Coding, Columns, TargetKind, shifted
from seqloom.data.kinds.text import fitted
from seqloom.data.values import Read, ReadMany, Remarks
from seqloom.text.ragged import Ragged
from seqloom.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from seqloom.data.roles import Roles


BYTES = "bytes"  # the column with the bytes of each text


class NoTarget(TargetKind):
    """Column BYTES: the bytes of the text; missing for inputs without targets.

    In a batch: [B,T] tokens and END; the inputs are BEGIN and the tokens.
    """

    name = "nothing"
    task = "lm"
    is_running = True

    def readers(self, roles: "Roles", remarks: Remarks) -> tuple[Read, ReadMany]:
        return self.reader(roles, remarks), lambda columns: [None] * len(columns[0])

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        """The bytes of each text, up to the maximum length."""
        if not coding.kind.is_text:
            return {}
        whole = coding.lengths <= coding.longest
        sizes = [
            bytes_of(text) if all_of_it else bytes_of_first(fitted(coding.tokenizer), text, coding.longest)
            for text, all_of_it in zip(coding.inputs, whole, strict=True)
        ]
        return {BYTES: Ragged(np.array(sizes, np.int64), np.arange(len(sizes) + 1))}

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """The inputs, and the next tokens as targets."""
        return shifted(inputs)

    def sizes(self, columns: Columns) -> np.ndarray:
        return (columns["input"].lengths + 1)[:, None]


def bytes_of(text: str) -> int:
    """The bytes of a text, and one for its END.

    >>> bytes_of("naïve")
    7
    """
    return len(text.encode()) + 1


def bytes_of_first(tokenizer: Tokenizer, text: str, tokens: int) -> int:
    """The same for a text of which only the first `tokens` tokens are read."""
    _, stop = tokenizer.encode_with_offsets(text).spans[tokens - 1].tolist()
    return bytes_of(text[:stop])


class MaskedTarget(TargetKind):
    """No column: tokens are masked later, at random. In a batch: [B,T] the tokens; of words, all their subwords."""

    name = "masked"
    task = "masked"
    exclusive = True
    is_running = True

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        from seqloom.nn.types import Subwords

        tokens = inputs.pieces if isinstance(inputs, Subwords) else inputs
        return tokens, tokens.values
