"""Words and their subwords: the one place where the two are lined up, for training and for serving.

text      No    way   !           spans of words: given by the data, or found by `split_words`
symbols   Ġ No  Ġwa y Ġ!          every word is cut by itself
firsts    0     2     4           tags belong to the first symbol of each word
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from seqloom.errors import DataError
from seqloom.text.contract import Pieces
from seqloom.text.symbols import UNKNOWN
from seqloom.text.words import word_pattern

if TYPE_CHECKING:
    from seqloom.text.tokenizer import Tokenizer


class Aligned(NamedTuple):
    """The symbols of a text that was cut into words."""

    symbols: np.ndarray  # [n] int32
    firsts: np.ndarray  # [words] int32, the place of each word's first symbol
    spans: np.ndarray  # [n, 2] int64, where each symbol stands in the text, in characters


def split_words(text: str) -> tuple[tuple[int, int], ...]:
    """The spans of the words and marks of a raw text.

    >>> split_words("No way!")
    ((0, 2), (3, 6), (6, 7))
    """
    return tuple(found.span() for found in word_pattern().finditer(text))


def align(tokenizer: "Tokenizer", text: str, spans: Sequence[tuple[int, int]]) -> Aligned:
    """The symbols of the words of a text; a word that gives no piece gives UNKNOWN once.

    `Tokenizer.encode_words` gives the same symbols for many sentences at once.
    """
    _require_spans(text, spans)
    words = [_pieces(tokenizer, text, start, stop) for start, stop in spans]
    if not words:
        return Aligned(np.empty(0, np.int32), np.empty(0, np.int32), np.empty((0, 2), np.int64))
    counts = [len(word.symbols) for word in words]
    firsts = (np.cumsum(counts) - counts).astype(np.int32)
    symbols = np.concatenate([word.symbols for word in words])
    return Aligned(symbols, firsts, np.concatenate([word.spans for word in words]))


def _pieces(tokenizer: "Tokenizer", text: str, start: int, stop: int) -> Pieces:
    symbols, spans = tokenizer.encode_with_offsets(text[start:stop])
    if not len(symbols):
        return Pieces(np.array([UNKNOWN], np.int32), np.array([[start, stop]], np.int64))
    return Pieces(symbols, spans + start)


def _require_spans(text: str, spans: Sequence[tuple[int, int]]) -> None:
    for start, stop in spans:
        if not 0 <= start <= stop <= len(text):
            raise DataError(f"a word from {start} to {stop} does not lie in a text of {len(text):,} characters")
    for (_, stop), (start, after) in pairwise(spans):
        if start < stop:
            raise DataError(f"the word {start}..{after} begins before the word in front of it ends, at {stop}")
