"""What every way of cutting text shares: the contract of a cutter, what it gives, and texts in blocks.

    text ──▶ normaliser ──▶ cutter ──▶ symbols
                 │             └── spans in the normalised text
                 └── where each of its characters stood in the original

A *cutter* sees normalised text only and gives the numbers of our symbols: those of `symbols` come first, so piece n of
its vocabulary is symbol n + COUNT.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from seqloom.errors import DataError
from seqloom.text.ragged import Ragged

BLOCK = 4_096  # texts that are worked on together
BLOCK_CHARACTERS = 2**22  # of them, unless a single text has more


class Pieces(NamedTuple):
    """The symbols of one text, and what each stands for: text[start:stop]."""

    symbols: np.ndarray  # [n] int32
    spans: np.ndarray  # [n, 2] int64: start and stop in characters; several pieces of one character share its span


class Cutter(Protocol):
    """Cuts normalised texts into pieces of a fixed vocabulary; all numbers are symbols, the special ones included."""

    @property
    def vocab_size(self) -> int:
        """How many symbols there are, with the special ones."""

    def encode(self, texts: Sequence[str]) -> Ragged:
        """The symbols of each text."""

    def encode_with_offsets(self, text: str) -> Pieces:
        """The same symbols for one text, each with its span."""

    def decode(self, symbols: np.ndarray) -> str:
        """The text of symbols, none of which is special."""

    def piece(self, symbol: int) -> str:
        """One piece as it is shown to people."""

    def data(self) -> msgspec.Struct:
        """What must be stored beside the configuration to make the same cutter again."""


def blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in lists of bounded size, each text checked; what is not text is refused with its number."""
    if isinstance(texts, str):
        raise DataError("expected several texts, found one", fix="put it in a list")
    block: list[str] = []
    characters = before = 0
    for text in texts:
        if not isinstance(text, str):
            raise DataError(f"text {before + len(block):,} is no text but {type(text).__name__}", fix="give str only")
        if block and (len(block) == BLOCK or characters + len(text) > BLOCK_CHARACTERS):
            yield _whole(block, before)
            before, block, characters = before + len(block), [], 0
        block.append(text)
        characters += len(text)
    if block:
        yield _whole(block, before)


def _whole(block: list[str], before: int) -> list[str]:
    """The block, if every text in it can be written as UTF-8."""
    try:
        "".join(block).encode()
    except UnicodeEncodeError:
        for number, text in enumerate(block, start=before):
            require_whole(text, f"text {number:,}")
    return block


def require_whole(text: str, what: str = "the text") -> None:
    """Raise DataError for half of a surrogate pair: no bytes stand for it, and no file holds it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}"
        raise DataError(
            f"{what}, character {error.start + 1:,}: {half} is half of a surrogate pair",
            fix="write the whole character",
        ) from None


def spans_of_bytes(text: bytes, lengths: np.ndarray) -> np.ndarray:
    """[n, 2] the characters that pieces touch, where the pieces lie one behind the other in the bytes of a text.

    A piece may begin or end inside a character, which then belongs to both.

    >>> spans_of_bytes("aé".encode(), np.array([2, 1])).tolist()
    [[0, 2], [1, 2]]
    """
    begins = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80  # true at the first byte of each character
    before = np.concatenate([[0], np.cumsum(begins)])  # characters that begin before each byte
    stops = np.cumsum(lengths)
    starts = stops - lengths
    first = np.minimum(starts + 1, stops)  # a piece without bytes touches nothing
    return np.stack([before[first] - (lengths > 0), before[stops]], axis=1)
