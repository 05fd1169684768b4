"""Character and byte segmenters, which need no fitted model beyond a character list, and words as byte arrays.

`letters_of` encodes words as UTF-8 bytes, so no letter is unknown and no alphabet has to be fitted:

cat       99  97 116   0   0 ...
naïve    110  97 195 175 118 101   0 ...

A word longer than `MOST` bytes keeps its beginning and its end, which say most about its meaning and form.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from seqloom.config.tokenizers import BytesConfig, CharactersConfig
from seqloom.errors import DataError
from seqloom.text.ragged import Ragged, starts_of
from seqloom.text.segmenter import CHARACTER_BYTES, TokenSpans, spans_of_bytes
from seqloom.text.special_tokens import COUNT, UNKNOWN
from seqloom.text.words import most_frequent

CODE_POINTS = 0x110000


class CharactersData(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The stored vocabulary of a character segmenter: all its characters in one string."""

    characters: str


class CharacterSegmenter:
    """Segmenter with one token per character; characters outside the vocabulary become UNKNOWN."""

    def __init__(self, config: CharactersConfig, data: CharactersData) -> None:
        known = data.characters
        if COUNT + len(known) > config.vocab_size:
            raise DataError(
                f"the vocabulary has {len(known):,} characters and {COUNT} special tokens; the limit is "
                f"{config.vocab_size:,}"
            )
        if len(set(known)) < len(known):
            raise DataError("a character occurs twice in the vocabulary")
        self._known = known
        self._tokens = np.full(CODE_POINTS, UNKNOWN, np.int32)  # indexed by code point
        self._tokens[_codes(known)] = np.arange(COUNT, COUNT + len(known))

    @property
    def vocab_size(self) -> int:
        return COUNT + len(self._known)

    def encode(self, texts: Sequence[str]) -> Ragged:
        return Ragged(self._tokens[_codes("".join(texts))], starts_of([len(text) for text in texts]))

    def encode_with_offsets(self, text: str) -> TokenSpans:
        places = np.arange(len(text))
        return TokenSpans(self._tokens[_codes(text)], np.stack([places, places + 1], axis=1))

    def decode(self, tokens: np.ndarray) -> str:
        return self.text([self.piece(token) for token in tokens.tolist()])

    def context(self, tokens: Sequence[int]) -> list[int]:
        """Return the last token: characters do not depend on one another."""
        return list(tokens[-1:])

    def text(self, characters: Sequence[str]) -> str:
        """Return the text of these characters, which may be outside the vocabulary."""
        return "".join(characters)

    def piece(self, token: int) -> str:
        return self._known[token - COUNT]

    def data(self) -> CharactersData:
        return CharactersData(self._known)


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def fit_characters(config: CharactersConfig, texts: Iterator[Sequence[str]]) -> tuple[CharacterSegmenter, int]:
    """Fit a vocabulary of the most frequent characters; return the segmenter and the number of characters dropped."""
    totals = np.zeros(CODE_POINTS, np.int64)
    for block in texts:
        codes, counts = np.unique(_codes("".join(block)), return_counts=True)
        totals[codes] += counts
    seen = Counter({chr(code): int(totals[code]) for code in np.flatnonzero(totals)})
    known = most_frequent(seen, config.vocab_size - COUNT, config.min_count)
    return CharacterSegmenter(config, CharactersData("".join(known))), len(seen) - len(known)


class BytesData(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The stored data of a byte segmenter: empty, because all bytes are known."""


class ByteSegmenter:
    """Segmenter with one token per UTF-8 byte: byte b is token b + COUNT."""

    def __init__(self, config: BytesConfig, data: BytesData) -> None:
        self._data = data

    @property
    def vocab_size(self) -> int:
        return COUNT + 256

    def encode(self, texts: Sequence[str]) -> Ragged:
        encoded = [text.encode() for text in texts]
        values = np.frombuffer(b"".join(encoded), np.uint8).astype(np.int32) + COUNT
        return Ragged(values, starts_of([len(text) for text in encoded]))

    def encode_with_offsets(self, text: str) -> TokenSpans:
        """Return one token per byte, with the span of the character that the byte belongs to."""
        encoded = text.encode()
        return TokenSpans(self.encode([text]).values, spans_of_bytes(encoded, np.ones(len(encoded), np.int64)))

    def decode(self, tokens: np.ndarray) -> str:
        r"""Decode bytes to text; bytes that are not valid UTF-8 are written as \xNN."""
        return (tokens - COUNT).astype(np.uint8).tobytes().decode("utf-8", errors="backslashreplace")

    def context(self, tokens: Sequence[int]) -> list[int]:
        """Return the last bytes, with which a character may begin."""
        return list(tokens[-CHARACTER_BYTES:])

    def piece(self, token: int) -> str:
        return bytes([token - COUNT]).decode("ascii", errors="backslashreplace")

    def data(self) -> BytesData:
        """Return the data to store, which is empty."""
        return self._data


def fit_bytes(config: BytesConfig, texts: Iterator[Sequence[str]]) -> tuple[ByteSegmenter, int]:
    """Return the byte segmenter and 0 dropped characters; the texts are only validated."""
    for _ in texts:
        pass
    return ByteSegmenter(config, BytesData()), 0


MOST = 32  # bytes of a word


def letters_of(words: Sequence[str]) -> np.ndarray:
    """Return the bytes of words as a zero-padded uint8 array [words, MOST].

    >>> letters_of(["cat", "a"])[:, :4].tolist()
    [[99, 97, 116, 0], [97, 0, 0, 0]]
    """
    numbers: dict[str, int] = {}  # encode each distinct word once
    of_word = [numbers.setdefault(word, len(numbers)) for word in words]
    spelled = b"".join(_spelled(word).ljust(MOST, b"\0") for word in numbers)
    table: np.ndarray = np.frombuffer(spelled, np.uint8).reshape(-1, MOST)[np.array(of_word, np.int64)]
    return table


def _spelled(word: str) -> bytes:
    letters = word.encode("utf-8", "replace")
    return letters if len(letters) <= MOST else letters[: MOST // 2] + letters[-MOST // 2 :]
