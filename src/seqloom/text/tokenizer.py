"""Tokenizers: one class for all kinds, with a segmenter that does the splitting.

>>> from seqloom.config.tokenizers import WordsConfig
>>> tokenizer = fit(WordsConfig(lowercase=True), ["The cat sat.", "A cat!"])
>>> tokenizer.encode(["A CAT sat <pad>"]).row(0).tolist()
[9, 6, 10, 1, 1, 1]
>>> tokenizer.decode([9, 6, 10])
'a cat sat'

A tokenizer is saved as one JSON document with its format, version, configuration and segmenter data:

    {"format": "seqloom-tokenizer", "version": 1, "config": {"kind": "bpe", ...}, "dropped": 0, "data": {...}}

Only Seqloom's own data is stored, not the library's serialized objects. Seqloom rebuilds those, so a document cannot
add special tokens, patterns or steps and does not depend on the library's version.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

import msgspec
import numpy as np

from seqloom.config.base import taken
from seqloom.config.old_names import renamed
from seqloom.config.tokenizers import AnyTokenizer, FittedTokenizer
from seqloom.errors import ConfigError, DataError
from seqloom.text.characters import (
    BytesData,
    ByteSegmenter,
    CharactersData,
    CharacterSegmenter,
    fit_bytes,
    fit_characters,
)
from seqloom.text.ragged import Ragged, starts_of
from seqloom.text.segmenter import BLOCK, Normalizer, Segmenter, TokenSpans, blocks, framed, framed_spans, require_whole
from seqloom.text.special_tokens import COUNT, NAMES, UNKNOWN
from seqloom.text.subwords import (
    BpeData,
    BpeSegmenter,
    UnigramData,
    UnigramSegmenter,
    WordpieceData,
    WordpieceSegmenter,
    fit_bpe,
    fit_unigram,
)
from seqloom.text.words import WordsData, WordSegmenter, fit_words, word_pattern

FORMAT = "seqloom-tokenizer"
VERSION = 1
MAX_CHARACTERS = 2**30
DATA: dict[str, type[msgspec.Struct]] = {
    "words": WordsData,
    "characters": CharactersData,
    "bytes": BytesData,
    "bpe": BpeData,
    "unigram": UnigramData,
    "wordpiece": WordpieceData,
}
FIX = "use the file that was written with the model, or fit the tokenizer again"


class TokenizerDocument(msgspec.Struct, forbid_unknown_fields=True):
    """The saved document; `config` and `data` are decoded once the version and the kind are known."""

    format: str
    version: int
    config: msgspec.Raw
    dropped: int
    data: msgspec.Raw


Fitting = Callable[[Any, Iterator[Sequence[str]]], tuple[Segmenter, int]]

SEGMENTERS: dict[str, Callable[[Any, Any], Segmenter]] = {
    "words": WordSegmenter,
    "characters": CharacterSegmenter,
    "bytes": ByteSegmenter,
    "bpe": BpeSegmenter,
    "unigram": UnigramSegmenter,
    "wordpiece": WordpieceSegmenter,
}
FITTINGS: dict[str, Fitting] = {
    "words": fit_words,
    "characters": fit_characters,
    "bytes": fit_bytes,
    "bpe": fit_bpe,
    "unigram": fit_unigram,
}


class Tokenizer:
    """A fitted tokenizer. No text produces a special token; UNKNOWN replaces what is not in the vocabulary."""

    def __init__(self, config: AnyTokenizer, segmenter: Segmenter, dropped: int = 0) -> None:
        self.config = config
        self.dropped = dropped  # number of distinct words or characters that the vocabulary leaves out
        self.segmenter = segmenter
        self._normalizer = Normalizer(config)

    def __repr__(self) -> str:
        return f"Tokenizer({self.config.kind()}, {self.vocab_size:,} tokens)"

    @property
    def vocab_size(self) -> int:
        """The number of tokens, including special tokens."""
        return self.segmenter.vocab_size

    def encode(self, texts: Sequence[str]) -> Ragged:
        """Return the tokens of each text; the only special tokens added are BEGIN and END of a framed tokenizer."""
        inner = self.encode_inner(texts)
        return framed(inner) if self.config.framed else inner

    def encode_inner(self, texts: Sequence[str]) -> Ragged:
        """Return tokens without BEGIN and END, for parts of texts that are joined later."""
        return Ragged.joined(
            [self.segmenter.encode(self._normalizer.apply(block)) for block in blocks(texts)], np.int32
        )

    def split(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the words of each text, one for each token of `encode`; only for a tokenizer of words."""
        assert isinstance(self.segmenter, WordSegmenter), "other tokens are no words"
        split = self.segmenter.split
        return [split(text) for block in blocks(texts) for text in self._normalizer.apply(block)]

    def encode_with_offsets(self, text: str) -> TokenSpans:
        """Return the tokens of one text, each with its span in the original text."""
        inner = self.inner_with_offsets(text)
        return framed_spans(inner, len(text)) if self.config.framed else inner

    def inner_with_offsets(self, text: str) -> TokenSpans:
        """Return the tokens of `encode_inner` for one text, with spans."""
        require_whole(text)
        normalized = self._normalizer.apply_with_offsets(text)
        pieces = self.segmenter.encode_with_offsets(normalized.text)
        return pieces._replace(spans=normalized.original(pieces.spans))

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> tuple[Ragged, Ragged]:
        """Return the tokens of each sentence, encoded word by word, and the position of each word's first token.

        A word without pieces becomes one UNKNOWN, so that every word has a position. A framed tokenizer adds BEGIN and
        END around the sentence.
        """
        for number, words in enumerate(sentences):
            if isinstance(words, str):
                raise DataError(f"sentence {number:,} is one text", fix="give its words in a list")
        blocks_of = (sentences[start : start + BLOCK] for start in range(0, len(sentences), BLOCK))
        parts = [self._encode_words(block) for block in blocks_of]
        tokens = Ragged.joined([tokens for tokens, _ in parts], np.int32)
        firsts = Ragged.joined([firsts for _, firsts in parts], np.int32)
        if not self.config.framed:
            return tokens, firsts
        return framed(tokens), firsts._replace(values=firsts.values + np.int32(1))

    def _encode_words(self, sentences: Sequence[Sequence[str]]) -> tuple[Ragged, Ragged]:
        numbers: dict[str, int] = {}  # distinct words, in order of appearance
        flat = np.array([numbers.setdefault(word, len(numbers)) for words in sentences for word in words], np.int64)
        cut = self.encode_inner(list(numbers))
        filled = np.insert(cut.values, cut.starts[:-1][cut.lengths == 0], UNKNOWN)
        words = Ragged(filled, starts_of(np.maximum(cut.lengths, 1))).select(flat)
        word_counts = np.array([len(words) for words in sentences], np.int64)
        sentence_words = starts_of(word_counts)
        starts = words.starts[sentence_words]
        firsts = (words.starts[:-1] - np.repeat(starts[:-1], word_counts)).astype(np.int32)
        return Ragged(words.values, starts), Ragged(firsts, sentence_words)

    def decode(self, tokens: Sequence[int] | np.ndarray) -> str:
        """Return the text of tokens without the special tokens.

        Byte, character, BPE and unigram tokenizers return exactly the encoded text if it was not normalized and had no
        unknown characters.
        """
        return self.segmenter.decode(self._plain(tokens))

    def tokenized(self, tokens: Sequence[int] | np.ndarray) -> str:
        """Return the text with a space between words and marks if tokens are words; else the same text as `decode`."""
        plain = self._plain(tokens)
        return (
            self.segmenter.spaced(plain) if isinstance(self.segmenter, WordSegmenter) else self.segmenter.decode(plain)
        )

    @property
    def has_unknown(self) -> bool:
        """Whether texts can have unknown tokens: true for words and characters, false for bytes and subwords."""
        return isinstance(self.segmenter, WordSegmenter | CharacterSegmenter)

    def decode_copying(self, tokens: Sequence[int], copies: Sequence[str]) -> str:
        """Return the text of tokens, replacing each UNKNOWN with the next of these words or characters."""
        if not isinstance(self.segmenter, WordSegmenter | CharacterSegmenter):
            return self.decode(tokens)
        given, known = iter(copies), [token for token in tokens if token == UNKNOWN or token >= COUNT]
        return self.segmenter.text([next(given) if token == UNKNOWN else self.piece(token) for token in known])

    def context(self, tokens: Sequence[int]) -> list[int]:
        """Return a few of these tokens, after which further ones have the same text as after all of them."""
        least = UNKNOWN if self.has_unknown else COUNT
        return self.segmenter.context([token for token in tokens if token >= COUNT or token == least])

    def _plain(self, tokens: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the tokens without special tokens; raise DataError for an id outside the vocabulary."""
        numbers = np.asarray(tokens, np.int64).reshape(-1)
        for token in numbers[(numbers < 0) | (numbers >= self.vocab_size)][:1].tolist():
            self._require_token(token)
        return numbers[numbers >= COUNT]

    def normalized(self, texts: Sequence[str]) -> Sequence[str]:
        """Return the texts in the Unicode form and case that the tokenizer uses."""
        return self._normalizer.apply(texts)

    def piece(self, token: int) -> str:
        """Return one token as a printable string."""
        self._require_token(token)
        return NAMES[token] if token < COUNT else self.segmenter.piece(token)

    def _require_token(self, token: int) -> None:
        if not 0 <= token < self.vocab_size:
            raise DataError(f"{token} is not a token id of this tokenizer; the ids are 0 to {self.vocab_size - 1}")

    def to_json(self) -> str:
        """Return the tokenizer as a JSON document; equal tokenizers give equal bytes."""
        config, data = (msgspec.Raw(msgspec.json.encode(one)) for one in (self.config, self.segmenter.data()))
        return msgspec.json.encode(TokenizerDocument(FORMAT, VERSION, config, self.dropped, data)).decode()

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """Load and validate a tokenizer from a JSON document."""
        try:
            if len(text) > MAX_CHARACTERS:
                raise DataError(f"the text has {len(text):,} characters; the limit is {MAX_CHARACTERS:,}")
            document = msgspec.json.decode(text.encode(), type=TokenizerDocument)
            if document.format != FORMAT or document.version != VERSION:
                raise DataError(f"expected {FORMAT} {VERSION}, found {document.format[:40]!r} {document.version}")
            if document.dropped < 0:
                raise DataError(f"{document.dropped} words were dropped")
            given = msgspec.json.decode(document.config)
            config = taken(renamed(given) if isinstance(given, dict) else given, AnyTokenizer, "config")
            data = msgspec.json.decode(document.data, type=DATA[config.kind()])
            return cls(config, SEGMENTERS[config.kind()](config, data), document.dropped)
        except (msgspec.DecodeError, ConfigError, DataError, UnicodeError, RecursionError) as error:
            problem = error.problem if isinstance(error, ConfigError | DataError) else str(error)
            raise DataError(f"this is not a tokenizer file: {problem.rstrip('.')}", fix=FIX) from None


def fit(config: FittedTokenizer, texts: Iterable[str]) -> Tokenizer:
    """Fit a tokenizer on these texts, which must be training data; they are read once."""
    normalizer = Normalizer(config)
    segmenter, dropped = FITTINGS[config.kind()](config, map(normalizer.apply, blocks(texts)))
    return Tokenizer(config, segmenter, dropped)


class TokenizerFit:
    """Fits a tokenizer on texts that are added a few at a time.

    Fitting pulls its texts from an iterator, so it runs in its own thread. It reads the texts that were added last
    while the caller finds the next ones; its errors are raised in the caller, at the next call.

    >>> from seqloom.config.tokenizers import WordsConfig
    >>> with TokenizerFit(WordsConfig()) as fitting:
    ...     fitting.add(["the cat", "the dog"])
    ...     fitting.add(["the cat"])
    ...     fitting.tokenizer().vocab_size - COUNT
    3
    """

    def __init__(self, config: AnyTokenizer) -> None:
        self._given = SimpleQueue[Sequence[str] | None]()  # None: no more texts
        self._results = SimpleQueue[Tokenizer | BaseException | None]()  # None: waiting for more texts
        self._thread = Thread(target=self._fit, args=(config,), name="fitting a tokenizer", daemon=True)
        self._left = False

    def __enter__(self) -> "TokenizerFit":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._left = True
        self._given.put(None)
        if kind is None:  # otherwise do not wait for a fit that may take minutes: the thread ends with the process
            self._thread.join()

    def add(self, texts: Sequence[str]) -> None:
        """Add more texts, which are read while the caller goes on; an error in those before them is raised here."""
        self._answer()
        self._given.put(texts)

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer fitted on all added texts."""
        self._answer()
        self._given.put(None)
        fitted = self._answer()
        assert fitted is not None, "it was told that there are no more"
        return fitted

    def _answer(self) -> Tokenizer | None:
        result = self._results.get()
        if isinstance(result, BaseException):
            raise result
        return result

    def _fit(self, config: AnyTokenizer) -> None:
        try:
            self._results.put(config.fit(chain.from_iterable(self._blocks())))
        except BaseException as error:
            self._results.put(error)

    def _blocks(self) -> Iterator[Sequence[str]]:
        while True:
            self._results.put(None)
            block = self._given.get()
            if self._left:
                raise InterruptedError("nobody waits for the tokenizer any more")
            if block is None:
                return
            yield block


# Alignment of words with subword tokens, the same in training and serving.
#
# text      No    way   !           word spans: given by the data, or found by `split_words`
# tokens   Ġ No  Ġwa y Ġ!          every word is encoded separately
# firsts    0     2     4           tags belong to the first token of each word


class Aligned(NamedTuple):
    """The tokens of a text that is split into words."""

    tokens: np.ndarray  # [n] int32
    firsts: np.ndarray  # [words] int32, the position of each word's first token
    spans: np.ndarray  # [n, 2] int64, the character span of each token in the text


def split_words(text: str) -> tuple[tuple[int, int], ...]:
    """Return the spans of the words and marks in a raw text.

    >>> split_words("No way!")
    ((0, 2), (3, 6), (6, 7))
    """
    return tuple(found.span() for found in word_pattern().finditer(text))


def align(tokenizer: Tokenizer, text: str, spans: Sequence[tuple[int, int]]) -> Aligned:
    """Return the tokens of `encode_words` for one text, with the span of each."""
    for start, stop in spans:
        if not 0 <= start <= stop <= len(text):
            raise DataError(f"a word from {start} to {stop} is outside a text of {len(text):,} characters")
    for (_, stop), (start, after) in pairwise(spans):
        if start < stop:
            raise DataError(f"the word from {start} to {after} begins before the previous word ends, at {stop}")
    tokens, firsts = tokenizer.encode_words([[text[start:stop] for start, stop in spans]])
    offsets = [tokenizer.inner_with_offsets(text[start:stop]).spans + start for start, stop in spans]
    # A word without pieces is one UNKNOWN
    offsets = [one if len(one) else np.array([word], np.int64) for one, word in zip(offsets, spans, strict=True)]
    if tokenizer.config.framed:
        offsets = [np.zeros((1, 2), np.int64), *offsets, np.full((1, 2), len(text), np.int64)]
    found = np.concatenate(offsets) if offsets else np.empty((0, 2), np.int64)
    assert len(found) == len(tokens.values), "a word has other pieces with offsets than without"
    return Aligned(tokens.values, firsts.values, found)
