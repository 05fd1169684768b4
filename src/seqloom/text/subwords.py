"""Subword segmenters: byte-level BPE and unigram, and WordPiece, all run by the `tokenizers` library.

The library works on strings, so each byte is written as one printable character, its *letter*. All 256 letters are
pieces, so nothing is unknown. A space is added before each text so that a word has the same pieces at the start of a
text, inside it, or in a list of words. `decode` removes that space.

The pattern below splits a text before the model sees it. All its runs are bounded, so encoding and fitting take linear
time; a longer run is split into several.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, pairwise

import msgspec
import numpy as np
from tokenizers import Regex, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from seqloom.config.tokenizers import BpeConfig, UnigramConfig, WordpieceConfig
from seqloom.errors import DataError
from seqloom.text.ragged import Ragged
from seqloom.text.segmenter import CHARACTER_BYTES, TokenSpans, spans_of_bytes
from seqloom.text.special_tokens import COUNT, UNKNOWN
from seqloom.text.unigram import count_parts, train_unigram
from seqloom.text.words import context_of, detokenized

PATTERN = (
    r" ?[\p{L}\p{M}]{1,64}"
    r"| ?\p{N}{1,16}"
    r"| ?[^\s\p{L}\p{M}\p{N}]{1,64}"
    r"|\s{1,64}(?!\S)"  # leaves the last space of a run to the next word
    r"|\s{1,64}"
)
LEAST = 2  # minimum count of a pair to be merged
LONGEST = 1_024  # maximum bytes of a piece read from a file; a fitted piece has at most 257


@cache
def letters() -> tuple[str, ...]:
    """Return the letter of each byte: printable Latin-1 as is, else the next free one from U+0100."""
    kept = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    free = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in kept else next(free)) for byte in range(256))


@cache
def _bytes_of_letters() -> dict[str, int]:
    return {letter: byte for byte, letter in enumerate(letters())}


def _as_bytes(piece: str) -> bytes:
    return bytes(map(_bytes_of_letters().__getitem__, piece))


def _as_letters(piece: bytes) -> str:
    return "".join(map(letters().__getitem__, piece))


def _library(model: models.Model) -> Library:
    library = Library(model)
    split = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return library


def _spaced(text: str) -> str:
    return f" {text}" if text else ""


class SubwordSegmenter:
    """Base class of the BPE and unigram segmenters, which use a model of the library."""

    def __init__(self, model: models.Model, pieces: Sequence[bytes], limit: int) -> None:
        if COUNT + len(pieces) > limit:
            raise DataError(
                f"the vocabulary has {len(pieces):,} subwords and {COUNT} special tokens; the limit is {limit:,}"
            )
        self._library = _library(model)
        self._pieces = pieces
        self._lengths = np.array([len(piece) for piece in pieces], np.int64)

    @property
    def vocab_size(self) -> int:
        return COUNT + len(self._pieces)

    def encode(self, texts: Sequence[str]) -> Ragged:
        found = self._library.encode_batch_fast([_spaced(text) for text in texts], add_special_tokens=False)
        rows = Ragged.of([encoding.ids for encoding in found], np.int32)
        return Ragged(rows.values + np.int32(COUNT), rows.starts)

    def encode_with_offsets(self, text: str) -> TokenSpans:
        """Return the tokens with the character spans of their bytes; the added space has no span."""
        tokens = self.encode([text]).values
        spans = spans_of_bytes(_spaced(text).encode(), self._lengths[tokens - COUNT])
        return TokenSpans(tokens, np.maximum(spans - 1, 0))

    def decode(self, tokens: np.ndarray) -> str:
        r"""Decode the pieces without the added space; bytes that are not valid UTF-8 are written as \xNN."""
        text = b"".join([self._pieces[number] for number in (tokens - COUNT).tolist()])
        return text.decode("utf-8", errors="backslashreplace").removeprefix(" ")

    def context(self, tokens: Sequence[int]) -> list[int]:
        """Return the last pieces: a piece has at least a byte."""
        return list(tokens[-CHARACTER_BYTES:])

    def piece(self, token: int) -> str:
        """Return the piece; bytes that are not valid UTF-8 are escaped."""
        return self._pieces[token - COUNT].decode("utf-8", errors="backslashreplace")


class BpeData(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The BPE merges in order, each a pair of pieces; the 256 letters come first, and each merge adds a piece."""

    merges: tuple[tuple[int, int], ...]


class BpeSegmenter(SubwordSegmenter):
    """Repeatedly merges the pair of neighbors that was learned first (Sennrich et al. 2016)."""

    def __init__(self, config: BpeConfig, data: BpeData) -> None:
        pieces = _merged(data.merges)
        numbers = {piece: number for number, piece in enumerate(pieces)}
        merges = [(pieces[left], pieces[right]) for left, right in data.merges]
        super().__init__(models.BPE(vocab=numbers, merges=merges), [*map(_as_bytes, pieces)], config.vocab_size)
        self._data = data
        self._ranks = {pair: rank for rank, pair in reversed([*enumerate(merges)])}  # the first merge of each pair

    def data(self) -> BpeData:
        return self._data

    def history(self, token: int) -> list[list[str]]:
        """Return the steps that merge a piece's bytes into the piece: the bytes, then the parts after each merge.

        Merging always takes the pair that was learned first. No merge crosses the border of a final piece, so the
        merges inside it do not depend on the rest of the text.
        """
        parts = [*_as_letters(self._pieces[token - COUNT])]
        steps = [parts]
        while pairs := [pair for pair in pairwise(parts) if pair in self._ranks]:
            first = min(pairs, key=self._ranks.__getitem__)
            at = next(at for at, pair in enumerate(pairwise(parts)) if pair == first)
            parts = [*parts[:at], "".join(first), *parts[at + 2 :]]
            steps.append(parts)
        return [[_as_bytes(part).decode("utf-8", errors="backslashreplace") for part in step] for step in steps]


def _merged(merges: Iterable[tuple[int, int]]) -> list[str]:
    """Return the pieces, in letters, that the merges make; two merges may make the same piece."""
    pieces = sorted(letters())
    known = set(pieces)
    for number, (left, right) in enumerate(merges):
        if not (0 <= left < len(pieces) and 0 <= right < len(pieces)):
            raise DataError(
                f"merge {number:,} is of subwords {left:,} and {right:,}, but there are only {len(pieces):,}"
            )
        piece = pieces[left] + pieces[right]
        if len(piece) > LONGEST:
            raise DataError(f"merge {number:,} makes a subword of {len(piece):,} bytes; the limit is {LONGEST:,}")
        if piece not in known:
            known.add(piece)
            pieces.append(piece)
    return pieces


def fit_bpe(config: BpeConfig, texts: Iterator[Sequence[str]]) -> tuple[BpeSegmenter, int]:
    """Fit BPE merges on blocks of normalized texts; return the segmenter and 0 dropped words."""
    library = _library(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size - COUNT, min_frequency=LEAST, initial_alphabet=list(letters()), show_progress=False
    )
    library.train_from_iterator(map(_spaced, chain.from_iterable(texts)), trainer)
    model = json.loads(library.to_str())["model"]
    merges = tuple((model["vocab"][left], model["vocab"][right]) for left, right in model["merges"])
    return BpeSegmenter(config, BpeData(merges)), 0


class UnigramData(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The unigram pieces, in letters, and the log probability of each."""

    pieces: tuple[tuple[str, float], ...]


class UnigramSegmenter(SubwordSegmenter):
    """Splits into the most probable sequence of pieces, treated as independent (Kudo 2018)."""

    def __init__(self, config: UnigramConfig, data: UnigramData) -> None:
        _require_pieces([piece for piece, _ in data.pieces], [score for _, score in data.pieces])
        pieces = [_as_bytes(piece) for piece, _ in data.pieces]
        super().__init__(models.Unigram(vocab=list(data.pieces)), pieces, config.vocab_size)
        self._data = data

    def data(self) -> UnigramData:
        return self._data


def _require_pieces(pieces: list[str], scores: list[float]) -> None:
    unknown = sorted(set("".join(pieces)) - set(letters()))
    if unknown:
        raise DataError(f"U+{ord(unknown[0]):04X} in a subword does not represent a byte")
    if missing := set(letters()) - set(pieces):
        raise DataError(f"{len(missing)} of the 256 bytes are missing from the vocabulary")
    if len(set(pieces)) < len(pieces) or not all(0 < len(piece) <= LONGEST for piece in pieces):
        raise DataError("a subword is empty, too long, or occurs twice")
    if not all(-1e6 <= score <= 0 for score in scores):
        raise DataError("a score is not a log-probability")


def fit_unigram(config: UnigramConfig, texts: Iterator[Sequence[str]]) -> tuple[UnigramSegmenter, int]:
    """Fit unigram pieces on blocks of normalized texts; return the segmenter and 0 dropped words."""
    cut = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    found = (cut.pre_tokenize_str(_spaced(text)) for text in chain.from_iterable(texts))
    parts = count_parts(part for parts in found for part, _ in parts)
    pieces = train_unigram(parts, config.vocab_size - COUNT)
    return UnigramSegmenter(config, UnigramData(tuple((_as_letters(piece), score) for piece, score in pieces))), 0


# WordPiece: greedy longest match, as in BERT (Schuster and Nakajima 2012; Devlin et al. 2019).
#
#     "Unaffable!"  ──▶  unaffable !  ──▶  una ##ffa ##ble !
#
# Control characters are removed, Chinese characters become separate words, and accents are stripped; white space and
# punctuation separate words. A word is split from the left into the longest pieces in the vocabulary. Pieces inside a
# word start with ##. A word that cannot be split this way becomes UNKNOWN.
#
# The vocabulary comes with an imported model. Its special pieces are left out: "[MASK]" in a text becomes a bracket, a
# word and a bracket.

INSIDE = "##"  # prefix of a piece that does not begin a word
NO_PIECE = "no piece"  # the library's unknown token: the space ensures that no text produces it


class WordpieceData(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The pieces in order of their ids, without the special ones."""

    pieces: tuple[str, ...]


class WordpieceSegmenter:
    """Splits words into the longest pieces from the left."""

    def __init__(self, config: WordpieceConfig, data: WordpieceData) -> None:
        if len(set(data.pieces)) < len(data.pieces) or not all(data.pieces):
            raise DataError("a subword of the vocabulary is empty or occurs twice")
        if NO_PIECE in data.pieces:
            raise DataError(f"a subword of the vocabulary is '{NO_PIECE}', but subwords cannot contain a space")
        self._pieces = data.pieces
        # The library's tokenizer does not lowercase: the normalizer has done it.
        numbers = {piece: number for number, piece in enumerate((*data.pieces, NO_PIECE))}
        model = models.WordPiece(
            vocab=numbers,
            unk_token=NO_PIECE,
            max_input_chars_per_word=config.max_word_length,
            continuing_subword_prefix=INSIDE,
        )
        library = Library(model)
        library.normalizer = normalizers.BertNormalizer(
            clean_text=config.clean,
            handle_chinese_chars=config.chinese_apart,
            strip_accents=not config.accents,
            lowercase=False,
        )
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._library = library

    @property
    def vocab_size(self) -> int:
        return COUNT + len(self._pieces)

    def encode(self, texts: Sequence[str]) -> Ragged:
        found = self._library.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = Ragged.of([encoding.ids for encoding in found], np.int32)
        return Ragged(self._tokens(rows.values), rows.starts)

    def _tokens(self, numbers: np.ndarray) -> np.ndarray:
        """Convert the library's ids to tokens; its last id is the unknown token."""
        return np.where(numbers < len(self._pieces), numbers + np.int32(COUNT), np.int32(UNKNOWN))

    def encode_with_offsets(self, text: str) -> TokenSpans:
        """Return the tokens with the character span of each."""
        found = self._library.encode(text, add_special_tokens=False)
        tokens = self._tokens(np.array(found.ids, np.int32))
        return TokenSpans(tokens, np.array(found.offsets, np.int64).reshape(-1, 2))

    def decode(self, tokens: np.ndarray) -> str:
        """Return the text of the pieces; the original spacing and case are lost."""
        return detokenized([word for word, _ in self._words(tokens.tolist())])

    def context(self, tokens: Sequence[int]) -> list[int]:
        """Return the pieces of open quotes and of the last words."""
        words = self._words([token for token in tokens if token >= COUNT])
        return [token for place in context_of([word for word, _ in words]) for token in words[place][1]]

    def _words(self, tokens: Sequence[int]) -> list[tuple[str, list[int]]]:
        """Return each word with its tokens."""
        words: list[tuple[str, list[int]]] = []
        for token in tokens:
            piece = self.piece(token)
            if piece.startswith(INSIDE) and words:
                word, before = words[-1]
                words[-1] = word + piece.removeprefix(INSIDE), [*before, token]
            else:
                words.append((piece.removeprefix(INSIDE) or piece, [token]))
        return words

    def piece(self, token: int) -> str:
        """Return the piece, with ## if it does not begin a word."""
        return self._pieces[token - COUNT]

    def data(self) -> WordpieceData:
        return WordpieceData(self._pieces)
