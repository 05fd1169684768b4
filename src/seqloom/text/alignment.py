"""Words and their subwords: the one place where the two are lined up, for training and for serving.

text      No    way   !           spans of words: given by the data, or found by `split_words`
symbols   Ġ No  Ġwa y Ġ!          every word is cut by itself
firsts    0     2     4           tags belong to the first symbol of each word
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from seqloom.errors import DataError
from seqloom.text.cutter import BLOCK, framed
from seqloom.text.ragged import Ragged, starts_of
from seqloom.text.special_tokens import UNKNOWN
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


def encode_words(tokenizer: "Tokenizer", sentences: Sequence[Sequence[str]]) -> tuple[Ragged, Ragged]:
    """The symbols of each sentence, every word cut by itself, and the place of each word's first one.

    A word that gives no piece gives UNKNOWN once, so that every word has a place. A frame stands around the sentence.
    """
    parts = [_encode_block(tokenizer, block) for block in _blocks(sentences)]
    symbols = Ragged.joined([symbols for symbols, _ in parts], np.int32)
    firsts = Ragged.joined([firsts for _, firsts in parts], np.int32)
    if not tokenizer.config.framed:
        return symbols, firsts
    return framed(symbols), firsts._replace(values=firsts.values + np.int32(1))


def align(tokenizer: "Tokenizer", text: str, spans: Sequence[tuple[int, int]]) -> Aligned:
    """The symbols that `encode_words` gives for the words of a text, and the part of the text each stands for."""
    _require_spans(text, spans)
    symbols, firsts = encode_words(tokenizer, [[text[start:stop] for start, stop in spans]])
    offsets = [_offsets(tokenizer, text, start, stop) for start, stop in spans]
    if tokenizer.config.framed:
        offsets = [np.zeros((1, 2), np.int64), *offsets, np.full((1, 2), len(text), np.int64)]
    found = np.concatenate(offsets) if offsets else np.empty((0, 2), np.int64)
    assert len(found) == len(symbols.values), "a word has other pieces with offsets than without"
    return Aligned(symbols.values, firsts.values, found)


def _offsets(tokenizer: "Tokenizer", text: str, start: int, stop: int) -> np.ndarray:
    spans = tokenizer.inner_with_offsets(text[start:stop]).spans + start
    return spans if len(spans) else np.array([[start, stop]], np.int64)


def _blocks(sentences: Sequence[Sequence[str]]) -> Iterator[Sequence[Sequence[str]]]:
    """The sentences in blocks; one that is a text, not a list of words, is refused."""
    for start in range(0, len(sentences), BLOCK):
        block = sentences[start : start + BLOCK]
        for number, words in enumerate(block, start=start):
            if isinstance(words, str):
                raise DataError(f"sentence {number:,} is one text", fix="give its words in a list")
        yield block


def _encode_block(tokenizer: "Tokenizer", sentences: Sequence[Sequence[str]]) -> tuple[Ragged, Ragged]:
    numbers: dict[str, int] = {}  # of the different words, in the order in which they come
    flat = np.array([numbers.setdefault(word, len(numbers)) for words in sentences for word in words], np.int64)
    words = _at_least_one(tokenizer.encode_inner(list(numbers))).select(flat)
    word_counts = np.array([len(words) for words in sentences], np.int64)
    sentence_words = starts_of(word_counts)
    starts = words.starts[sentence_words]
    firsts = (words.starts[:-1] - np.repeat(starts[:-1], word_counts)).astype(np.int32)
    return Ragged(words.values, starts), Ragged(firsts, sentence_words)


def _at_least_one(rows: Ragged) -> Ragged:
    """The rows, those without a symbol filled with UNKNOWN."""
    lengths = rows.lengths
    empty = rows.starts[:-1][lengths == 0]
    starts = starts_of(np.maximum(lengths, 1))
    return Ragged(np.insert(rows.values, empty, UNKNOWN), starts)


def _require_spans(text: str, spans: Sequence[tuple[int, int]]) -> None:
    for start, stop in spans:
        if not 0 <= start <= stop <= len(text):
            raise DataError(f"a word from {start} to {stop} does not lie in a text of {len(text):,} characters")
    for (_, stop), (start, after) in pairwise(spans):
        if start < stop:
            raise DataError(f"the word {start}..{after} begins before the word in front of it ends, at {stop}")
