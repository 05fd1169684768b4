"""Tokens: what a model reads, one by one, with the part of the text that each stands for.

Every view names its rows and columns by tokens. A piece of a word shows the letters that it stands for in the text
that was given, so upper case, accents and spaces are seen as they were written; a special symbol shows its name.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from seqloom.text.special_tokens import COUNT, NAMES, UNKNOWN
from seqloom.text.tokenizer import Tokenizer

NO_WORD = -1
STAND_IN = "\ufffd"  # for a word or a character that the vocabulary lacks


class Token(NamedTuple):
    """One element that a model reads."""

    text: str  # as it is shown
    start: int = 0  # text[start:stop] of what was given; nothing of it for a special symbol
    stop: int = 0
    word: int = NO_WORD  # the number of the word that it is a part of
    symbol: int | None = None  # in the vocabulary; None for vectors and patches
    spaced: int = NO_WORD  # the number of the word as text.split() counts; space belongs to the word behind it

    @property
    def is_special(self) -> bool:
        """Whether it stands for nothing that was written: BEGIN, END, a separator."""
        return self.symbol is not None and self.symbol < COUNT and self.symbol != UNKNOWN


def text_tokens(tokenizer: Tokenizer, text: str) -> tuple[Token, ...]:
    """The tokens of one text as its tokeniser cuts it."""
    pieces, words = tokenizer.encode_with_offsets(text), (_words_at(text), _spaced_at(text))
    return tuple(
        _token(tokenizer, int(symbol), text, (int(start), int(stop)), words)
        for symbol, (start, stop) in zip(pieces.symbols, pieces.spans, strict=True)
    )


def symbol_tokens(tokenizer: Tokenizer, symbols: Sequence[int] | np.ndarray) -> tuple[Token, ...]:
    """Tokens of symbols whose text is not at hand: each by the name that its piece has, each a word of its own."""
    return tuple(
        Token(tokenizer.piece(int(symbol)), word=number if int(symbol) >= COUNT else NO_WORD, symbol=int(symbol))
        for number, symbol in enumerate(symbols)
    )


def written_tokens(tokenizer: Tokenizer, symbols: Sequence[int]) -> tuple[Token, ...]:
    """Tokens of symbols that a model wrote, with their words in the text that these make.

    A model may cut a word as its tokeniser never would. Pieces have their spaces in them then, which tell the words.
    """
    plain = [symbol for symbol in symbols if symbol >= COUNT or symbol == UNKNOWN]
    text = tokenizer.decode_copying(plain, [STAND_IN] * len(plain))
    cut = [token for token in text_tokens(tokenizer, text) if not token.is_special]
    known = [token._replace(text=NAMES[UNKNOWN]) if token.symbol == UNKNOWN else token for token in cut]
    if [token.symbol for token in known] != plain:
        known = _by_pieces(tokenizer, plain, len(text.split()))
    left = iter(known)
    return tuple(
        next(left) if symbol >= COUNT or symbol == UNKNOWN else Token(NAMES[symbol], symbol=symbol)
        for symbol in symbols
    )


def _by_pieces(tokenizer: Tokenizer, symbols: Sequence[int], count: int) -> list[Token]:
    """Tokens whose words are told by the spaces in their pieces; each one by itself where that is not what is read."""
    found, begun, going_on = list[Token](), 0, False
    for symbol in symbols:
        piece = tokenizer.piece(symbol)
        words = len(piece.split())
        first = begun - 1 if words and going_on and not piece[0].isspace() else begun
        found.append(Token(piece, word=min(first, count - 1), symbol=symbol, spaced=min(first, count - 1)))
        begun, going_on = (first + words, not piece[-1].isspace()) if words else (begun, False)
    return found if begun == count else list(symbol_tokens(tokenizer, symbols))


def numbered(count: int) -> tuple[Token, ...]:
    """Tokens of elements that have no text: steps of vectors, patches of a picture."""
    return tuple(Token(str(number), word=number, spaced=number) for number in range(count))


def _token(
    tokenizer: Tokenizer,
    symbol: int,
    text: str,
    span: tuple[int, int],
    words: tuple[list[int], list[int]],
) -> Token:
    start, stop = span
    if symbol < COUNT and symbol != UNKNOWN:
        return Token(NAMES[symbol], start, start, NO_WORD, symbol)
    inside = [word for word in words[0][start:stop] if word != NO_WORD]
    spaced = words[1][min(start, len(text) - 1)] if text else NO_WORD
    shown = text[start:stop] if start < stop else tokenizer.piece(symbol)
    return Token(shown, start, stop, inside[0] if inside else NO_WORD, symbol, spaced)


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


def _spaced_at(text: str) -> list[int]:
    """The number of the word, as `text.split()` counts, of each character; space has that of the word behind it.

    >>> _spaced_at("No way! ")
    [0, 0, 1, 1, 1, 1, 1, 1]
    """
    number, found = 0, list[int]()
    for at, letter in enumerate(text):
        number += letter.isspace() and at > 0 and not text[at - 1].isspace()
        found.append(number)
    last = len(text.split()) - 1
    return [min(one, last) for one in found]
