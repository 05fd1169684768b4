"""What every way of cutting text shares: the contract of a segmenter, what it gives, and texts in blocks.

    text ──▶ normalizer ──▶ segmenter ──▶ tokens
                 │             └── spans in the normalized text
                 └── where each of its characters stood in the original

A *segmenter* sees normalized text only and gives the numbers of our tokens: those of `tokens` come first, so piece n of
its vocabulary is token n + COUNT.
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

BLOCK = 4_096  # texts that are worked on together
BLOCK_CHARACTERS = 2**22  # of them, unless a single text has more


class TokenSpans(NamedTuple):
    """The tokens of one text, and what each stands for: text[start:stop]."""

    tokens: np.ndarray  # [n] int32
    spans: np.ndarray  # [n, 2] int64: start and stop in characters; several pieces of one character share its span


class Segmenter(Protocol):
    """Cuts normalized texts into pieces of a fixed vocabulary; all numbers are tokens, the special ones included."""

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, with the special ones."""

    def encode(self, texts: Sequence[str]) -> Ragged:
        """The tokens of each text."""

    def encode_with_offsets(self, text: str) -> TokenSpans:
        """The same tokens for one text, each with its span."""

    def decode(self, tokens: np.ndarray) -> str:
        """The text of tokens, none of which is special."""

    def piece(self, token: int) -> str:
        """One piece as it is shown to people."""

    def data(self) -> msgspec.Struct:
        """What must be stored beside the configuration to make the same segmenter again."""


def blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    """The texts in lists of bounded size, each text checked; what is not text is refused with its number."""
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
        text = f"{what}, character {error.start + 1:,}: {half} is half of a surrogate pair"
        raise DataError(text, fix="write the whole character") from None


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


# Normalizing: unicode forms and lower case, with the way back to the original text.
#
# Most text is ASCII, where every form leaves it alone and lower case changes no length. For the rest the rules, and the
# record of which character came from where, are those of the `tokenizers` library. Lower case can undo a form (the
# decomposed capital of `ǰ` has no composed one), so the form is applied before and after it.

FORMS: dict[UnicodeForm, list[type[normalizers.Normalizer]]] = {
    "as-is": [],
    "nfc": [normalizers.NFC],
    "nfd": [normalizers.NFD],
    "nfkc": [normalizers.NFKC],
    "nfkd": [normalizers.NFKD],
}


class Normalized(NamedTuple):
    """A normalized text; its character i stands for original[starts[i]:stops[i]]."""

    text: str
    starts: np.ndarray  # [characters] int64, never falling
    stops: np.ndarray  # [characters] int64, never falling

    def original(self, spans: np.ndarray) -> np.ndarray:
        """[n, 2] spans of the original for spans of this text; an empty span stays empty."""
        starts = np.append(self.starts, self.stops[-1:] if len(self.stops) else 0)[spans[:, 0]]
        stops = np.append(0, self.stops)[spans[:, 1]]
        return np.stack([starts, np.where(spans[:, 0] < spans[:, 1], stops, starts)], axis=1)


class Normalizer:
    """Turns texts into the form that a tokenizer was asked to cut."""

    def __init__(self, config: TokenizerConfig) -> None:
        self._lower = config.lowercase
        self._changes = config.lowercase or config.normalize != "as-is"
        self._aligner = _aligner(config.normalize, config.lowercase)

    def apply(self, texts: Sequence[str]) -> Sequence[str]:
        """The texts, normalized."""
        return [self._one(text) for text in texts] if self._changes else texts

    def _one(self, text: str) -> str:
        if text.isascii() or not self._changes:
            return text.lower() if self._lower else text
        normalizer = self._aligner.normalizer
        assert normalizer is not None
        return str(normalizer.normalize_str(text))

    def apply_with_offsets(self, text: str) -> Normalized:
        """The text, normalized, with the way back."""
        if text.isascii() or not self._changes:
            places = np.arange(len(text))
            return Normalized(self._one(text), places, places + 1)
        spans = np.array(self._aligner.encode(text).offsets, np.int64).reshape(-1, 2)
        # They cover the whole original: an accent that was composed belongs to the letter before it.
        starts = np.maximum.accumulate(spans[:, 0])
        starts[0] = 0
        stops = np.maximum.accumulate(np.maximum(spans[:, 1], np.append(starts[1:], len(text))))
        return Normalized(self._one(text), starts, stops)


@cache
def _aligner(form: UnicodeForm, lower: bool) -> Library:
    """A tokenizer that gives one unknown token for each normalized character, and so the place it came from."""
    aligner = Library(models.BPE(vocab={"unknown": 0}, merges=[], unk_token="unknown", fuse_unk=False))
    steps = [*FORMS[form], normalizers.Lowercase, *FORMS[form]] if lower else FORMS[form]
    aligner.normalizer = normalizers.Sequence([step() for step in steps])
    return aligner


# Frames: some encoders read every text between two tokens, BEGIN and END (Devlin et al. 2019: [CLS] and [SEP]).
#
#     BEGIN  the  cat  sat  END                   a text
#     BEGIN  the  cat  END                        the same, cut to four: END stays
#     BEGIN  the  END  SEPARATOR  BEGIN  a  END   two texts
#
# A tokenizer whose configuration is `framed` gives every text so; no other token of it is special.


def framed(rows: Ragged) -> Ragged:
    """Each row between BEGIN and END.

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
    """The same of one text of so many characters; BEGIN and END stand for none of them."""
    tokens = np.concatenate([[BEGIN], pieces.tokens, [END]]).astype(pieces.tokens.dtype)
    return TokenSpans(tokens, np.concatenate([[[0, 0]], pieces.spans, [[length, length]]]))


def closed(rows: Ragged) -> Ragged:
    """Framed rows, some of them cut, whose every text ends with END again: it takes the place of the last token left.

    >>> closed(Ragged.of([[BEGIN, 7, 8], [BEGIN, 7, SEPARATOR, BEGIN, END]], np.int32)).values.tolist()
    [2, 7, 3, 2, 3, 5, 2, 3]
    """
    values = rows.values.copy()
    last = np.zeros(len(values), bool)
    last[rows.starts[1:][rows.lengths > 0] - 1] = True
    last[np.maximum(np.flatnonzero(values == SEPARATOR) - 1, 0)] = True
    values[last & (values != SEPARATOR)] = END
    return Ragged(values, rows.starts)
