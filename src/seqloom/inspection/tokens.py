"""Tokens: what a model reads, one by one, with the part of the text that each stands for.

Every view names its rows and columns by tokens. A piece of a word shows the letters that it stands for in the text
that was given, so upper case, accents and spaces are seen as they were written; a special symbol shows its name.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from seqloom.text.symbols import COUNT, NAMES, UNKNOWN
from seqloom.text.tokenizer import Tokenizer

NO_WORD = -1


class Token(NamedTuple):
    """One element that a model reads."""

    text: str  # as it is shown
    start: int = 0  # text[start:stop] of what was given; nothing of it for a special symbol
    stop: int = 0
    word: int = NO_WORD  # the number of the word that it is a part of
    symbol: int | None = None  # in the vocabulary; None for vectors and patches

    @property
    def is_special(self) -> bool:
        """Whether it stands for nothing that was written: BEGIN, END, a separator."""
        return self.symbol is not None and self.symbol < COUNT and self.symbol != UNKNOWN


def text_tokens(tokenizer: Tokenizer, text: str, *, first_word: int = 0) -> tuple[Token, ...]:
    """The tokens of one text as its tokeniser cuts it, words counted from `first_word`."""
    pieces, words = tokenizer.encode_with_offsets(text), _words_at(text)
    return tuple(
        _token(tokenizer, int(symbol), text, (int(start), int(stop)), words, first_word)
        for symbol, (start, stop) in zip(pieces.symbols, pieces.spans, strict=True)
    )


def symbol_tokens(tokenizer: Tokenizer, symbols: Sequence[int] | np.ndarray) -> tuple[Token, ...]:
    """Tokens of symbols whose text is not at hand: each by the name that its piece has, each a word of its own."""
    return tuple(
        Token(tokenizer.piece(int(symbol)), word=number if int(symbol) >= COUNT else NO_WORD, symbol=int(symbol))
        for number, symbol in enumerate(symbols)
    )


def numbered(count: int) -> tuple[Token, ...]:
    """Tokens of elements that have no text: steps of vectors, patches of a picture."""
    return tuple(Token(str(number), word=number) for number in range(count))


def _token(
    tokenizer: Tokenizer, symbol: int, text: str, span: tuple[int, int], words: list[int], first_word: int
) -> Token:
    start, stop = span
    if symbol < COUNT and symbol != UNKNOWN:
        return Token(NAMES[symbol], start, start, NO_WORD, symbol)
    inside = [word for word in words[start:stop] if word != NO_WORD]
    word = inside[0] + first_word if inside else NO_WORD
    shown = text[start:stop] if start < stop else tokenizer.piece(symbol)
    return Token(shown, start, stop, word, symbol)


def _words_at(text: str) -> list[int]:
    """The number of the word that each character belongs to; a mark of punctuation is a word, space is none.

    >>> _words_at("No way!")
    [0, 0, -1, 1, 1, 1, 2]
    """
    return list(_numbered_words(text))


def _numbered_words(text: str) -> Iterator[int]:
    number, going_on = -1, False
    for letter in text:
        within = unicodedata.category(letter)[0] in "LMN"
        if letter.isspace():
            yield NO_WORD
        else:
            number += 0 if within and going_on else 1
            yield number
        going_on = within
