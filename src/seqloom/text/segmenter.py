"""The segmenter interface, normalization, and framing, shared by all tokenizers.

    text ──▶ normalizer ──▶ segmenter ──▶ tokens
                 │             └── spans in the normalized text
                 └── position of each character in the original text

A *segmenter* sees only normalized text and returns Seqloom's token ids. Special tokens have the first ids, so piece n
of the segmenter's vocabulary is token n + COUNT.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers

from seqloom.config.tokenizers import TokenizerConfig, UnicodeForm
from seqloom.errors import DataError
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import BEGIN, END, SEPARATOR

CHARACTER_BYTES = 4  # most bytes of a character in UTF-8
BLOCK = 4_096  # texts processed together
BLOCK_CHARACTERS = 2**22  # maximum characters per block, unless a single text has more


class TokenSpans(NamedTuple):
    """The tokens of one text and the span of each: text[start:stop]."""

    tokens: np.ndarray  # [n] int32
    spans: np.ndarray  # [n, 2] int64: start and stop in characters; several pieces of one character share its span


class Segmenter(Protocol):
    """Splits normalized texts into pieces of a fixed vocabulary; all ids are token ids, including special tokens."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens, including special tokens."""

    def encode(self, texts: Sequence[str]) -> Ragged:
        """Return the tokens of each text."""

    def encode_with_offsets(self, text: str) -> TokenSpans:
        """Return the tokens of one text, each with its span."""

    def decode(self, tokens: np.ndarray) -> str:
        """Return the text of tokens, which must not include special tokens."""

    def context(self, tokens: Sequence[int]) -> list[int]:
        """Return a few of these tokens, after which further ones are written as after all; some may be UNKNOWN."""

    def piece(self, token: int) -> str:
        """Return one piece as a printable string."""

    def data(self) -> msgspec.Struct:
        """Return the data to store with the configuration so that the segmenter can be rebuilt."""


def blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the texts in lists of bounded size; raise DataError with the text's number if one is not valid text."""
    if isinstance(texts, str):
        raise DataError("expected several texts, found one", fix="put it in a list")
    block: list[str] = []
    characters = before = 0
    for text in texts:
        if not isinstance(text, str):
            raise DataError(
                f"text {before + len(block):,} is not a string but {type(text).__name__}", fix="give str only"
            )
        if block and (len(block) == BLOCK or characters + len(text) > BLOCK_CHARACTERS):
            yield _whole(block, before)
            before, block, characters = before + len(block), [], 0
        block.append(text)
        characters += len(text)
    if block:
        yield _whole(block, before)


def _whole(block: list[str], before: int) -> list[str]:
    """Return the block if every text in it can be encoded as UTF-8."""
    try:
        "".join(block).encode()
    except UnicodeEncodeError:
        for number, text in enumerate(block, start=before):
            require_whole(text, f"text {number:,}")
    return block


def require_whole(text: str, what: str = "the text") -> None:
    """Raise DataError if the text contains an unpaired surrogate, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}"
        text = f"{what}, character {error.start + 1:,}: {half} is half of a surrogate pair"
        raise DataError(text, fix="write the whole character") from None


def spans_of_bytes(text: bytes, lengths: np.ndarray) -> np.ndarray:
    """Return the character spans [n, 2] of consecutive pieces, given their lengths in bytes.

    A piece may begin or end inside a character; the character then belongs to both pieces.

    >>> spans_of_bytes("aé".encode(), np.array([2, 1])).tolist()
    [[0, 2], [1, 2]]
    """
    begins = (np.frombuffer(text, np.uint8) & 0xC0) != 0x80  # true at the first byte of each character
    before = np.concatenate([[0], np.cumsum(begins)])  # number of characters that begin before each byte
    stops = np.cumsum(lengths)
    starts = stops - lengths
    first = np.minimum(starts + 1, stops)  # an empty piece has an empty span
    return np.stack([before[first] - (lengths > 0), before[stops]], axis=1)


# Normalization: Unicode forms and lowercasing, with offsets into the original text.
#
# Most text is ASCII, which no Unicode form changes and whose length lowercasing keeps. All other text goes through the
# `tokenizers` library, which also records the source of each character. Lowercasing can undo a form (the decomposed
# capital of `ǰ` has no composed form), so the form is applied before and after it.

FORMS: dict[UnicodeForm, list[type[normalizers.Normalizer]]] = {
    "as-is": [],
    "nfc": [normalizers.NFC],
    "nfd": [normalizers.NFD],
    "nfkc": [normalizers.NFKC],
    "nfkd": [normalizers.NFKD],
}


class Normalized(NamedTuple):
    """A normalized text; its character i comes from original[starts[i]:stops[i]]."""

    text: str
    starts: np.ndarray  # [characters] int64, non-decreasing
    stops: np.ndarray  # [characters] int64, non-decreasing

    def original(self, spans: np.ndarray) -> np.ndarray:
        """Convert spans [n, 2] of the normalized text to spans of the original; an empty span stays empty."""
        starts = np.append(self.starts, self.stops[-1:] if len(self.stops) else 0)[spans[:, 0]]
        stops = np.append(0, self.stops)[spans[:, 1]]
        return np.stack([starts, np.where(spans[:, 0] < spans[:, 1], stops, starts)], axis=1)


class Normalizer:
    """Applies the Unicode form and lowercasing that a tokenizer is configured with."""

    def __init__(self, config: TokenizerConfig) -> None:
        self._lower = config.lowercase
        self._changes = config.lowercase or config.normalize != "as-is"
        self._aligner = _aligner(config.normalize, config.lowercase)

    def apply(self, texts: Sequence[str]) -> Sequence[str]:
        """Return the normalized texts."""
        return [self._one(text) for text in texts] if self._changes else texts

    def _one(self, text: str) -> str:
        if text.isascii() or not self._changes:
            return text.lower() if self._lower else text
        normalizer = self._aligner.normalizer
        assert normalizer is not None
        return str(normalizer.normalize_str(text))

    def apply_with_offsets(self, text: str) -> Normalized:
        """Return the normalized text with offsets into the original."""
        if text.isascii() or not self._changes:
            places = np.arange(len(text))
            return Normalized(self._one(text), places, places + 1)
        spans = np.array(self._aligner.encode(text).offsets, np.int64).reshape(-1, 2)
        # The spans must cover the original completely: a composed accent belongs to the letter before it.
        starts = np.maximum.accumulate(spans[:, 0])
        starts[0] = 0
        stops = np.maximum.accumulate(np.maximum(spans[:, 1], np.append(starts[1:], len(text))))
        return Normalized(self._one(text), starts, stops)


@cache
def _aligner(form: UnicodeForm, lower: bool) -> Library:
    """Return a library tokenizer with one unknown token per normalized character, so that its offsets can be read."""
    aligner = Library(models.BPE(vocab={"unknown": 0}, merges=[], unk_token="unknown", fuse_unk=False))
    steps = [*FORMS[form], normalizers.Lowercase, *FORMS[form]] if lower else FORMS[form]
    aligner.normalizer = normalizers.Sequence([step() for step in steps])
    return aligner


# Framing: some encoders expect every text between two tokens, BEGIN and END (Devlin et al. 2019: [CLS] and [SEP]).
#
#     BEGIN  the  cat  sat  END                   a text
#     BEGIN  the  cat  END                        the same text truncated to four tokens: END stays
#     BEGIN  the  END  SEPARATOR  BEGIN  a  END   two texts
#
# A tokenizer configured as `framed` adds these two tokens to every text and no other special token.


def framed(rows: Ragged) -> Ragged:
    """Add BEGIN and END to each row.

    >>> framed(Ragged.of([[7, 8], []], np.int32)).values.tolist() == [BEGIN, 7, 8, END, BEGIN, END]
    True
    """
    starts = rows.starts - rows.starts[0] + 2 * np.arange(rows.rows + 1)
    values = np.empty(starts[-1], rows.values.dtype)
    values[starts[:-1]], values[starts[1:] - 1] = BEGIN, END
    inner = np.ones(len(values), bool)
    inner[starts[:-1]] = inner[starts[1:] - 1] = False
    values[inner] = rows.values[rows.starts[0] : rows.starts[-1]]
    return Ragged(values, starts)


def framed_spans(pieces: TokenSpans, length: int) -> TokenSpans:
    """Add BEGIN and END to one text of `length` characters; both get empty spans."""
    tokens = np.concatenate([[BEGIN], pieces.tokens, [END]]).astype(pieces.tokens.dtype)
    return TokenSpans(tokens, np.concatenate([[[0, 0]], pieces.spans, [[length, length]]]))


def closed(rows: Ragged) -> Ragged:
    """Make every text in framed, possibly truncated rows end with END again, in place of its last remaining token.

    >>> closed(Ragged.of([[BEGIN, 7, 8], [BEGIN, 7, SEPARATOR, BEGIN, END]], np.int32)).values.tolist()
    [2, 7, 3, 2, 3, 5, 2, 3]
    """
    values = rows.values.copy()
    last = np.zeros(len(values), bool)
    last[rows.starts[1:][rows.lengths > 0] - 1] = True
    last[np.maximum(np.flatnonzero(values == SEPARATOR) - 1, 0)] = True
    values[last & (values != SEPARATOR)] = END
    return Ragged(values, rows.starts)
