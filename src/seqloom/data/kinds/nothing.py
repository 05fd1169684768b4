"""No target: the text goes on by itself, and a language model says the next token, or one that was hidden.

What a model says is counted in symbols, and told per byte of the original text: a loss per symbol depends on how the
text was cut, for words are harder to guess than characters, and there are fewer of them. A loss per byte does not, so
models with different tokenisers can be compared by it. An END counts as one byte, the line break or the end of file
that it stands for:

    bits per byte = (loss of all symbols and ENDs) / log 2 / (bytes of all texts + number of texts)

A text's bytes are dealt out to its symbols evenly, in whole numbers. So what a step, a row or a rank has read adds up
to exactly the bytes of a whole part, however it was cut; what one piece of a text was worth is known roughly.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.data.kinds.kind import Coding, Columns, TargetKind, shifted
from seqloom.data.kinds.text import fitted
from seqloom.text.ragged import Ragged
from seqloom.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor


BYTES = "bytes"  # the column that says how many each text is worth


class NoTarget(TargetKind):
    """Column BYTES: those of the text; none beside inputs that are only to be answered.

    In a batch: [B,T] tokens and END; the inputs are BEGIN and the tokens.
    """

    name = "nothing"
    task = "lm"
    is_running = True

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        """The bytes of each text, as far as it is read."""
        if not coding.kind.is_text:
            return {}
        whole = coding.lengths <= coding.longest
        sizes = [
            bytes_of(text) if all_of_it else bytes_of_first(fitted(coding.tokenizer), text, coding.longest)
            for text, all_of_it in zip(coding.inputs, whole, strict=True)
        ]
        return {BYTES: Ragged(np.array(sizes, np.int64), np.arange(len(sizes) + 1))}

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """What is read, and what comes next."""
        return shifted(inputs)

    def sizes(self, columns: Columns) -> np.ndarray:
        return (columns["input"].lengths + 1)[:, None]


def bytes_of(text: str) -> int:
    """How many bytes a text is worth: its own, and one for its END.

    >>> bytes_of("naïve")
    7
    """
    return len(text.encode()) + 1


def bytes_of_first(tokenizer: Tokenizer, text: str, symbols: int) -> int:
    """The same of a text of which only so many symbols are read."""
    _, stop = tokenizer.encode_with_offsets(text).spans[symbols - 1].tolist()
    return bytes_of(text[:stop])


class MaskedTarget(TargetKind):
    """No column: what is hidden is drawn later. In a batch: [B,T] the tokens; of words all pieces are the inputs."""

    name = "masked"
    task = "masked"
    exclusive = True
    is_running = True

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        from seqloom.nn.types import Subwords

        tokens = inputs.pieces if isinstance(inputs, Subwords) else inputs
        return tokens, tokens.values
