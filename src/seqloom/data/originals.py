"""How much of the original text each symbol of a language model stands for, in bytes of UTF-8.

A loss per symbol depends on how the text was cut: words are harder to guess than characters, and there are fewer of
them. A loss per byte of the original does not, so models with different tokenisers can be compared by it. An END counts
as one byte, the line break or the end of file that it stands for:

    bits per byte = (loss of all symbols and ENDs) / log 2 / (bytes of all texts + number of texts)

A text's bytes are dealt out to its symbols evenly, in whole numbers. So what a step, a row or a rank has read adds up
to exactly the bytes of a whole part, however it was cut; what one piece of a text was worth is known roughly.
"""

import numpy as np

from seqloom.text.tokenizer import Tokenizer

BYTES = "bytes"  # the column that says how many each text is worth


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


def dealt(total: np.ndarray, count: np.ndarray, places: np.ndarray) -> np.ndarray:
    """What each of the places 0..count-1 gets of a total that is dealt out evenly, in whole numbers.

    >>> dealt(np.array(7), np.array(3), np.arange(3)).tolist()
    [2, 2, 3]
    """
    return np.asarray((places + 1) * total // count - places * total // count)
