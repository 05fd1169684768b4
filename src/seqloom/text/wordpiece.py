"""Subwords by the longest match, as BERT cuts text (Schuster and Nakajima 2012; Devlin et al. 2019).

    "Unaffable!"  ──▶  unaffable !  ──▶  una ##ffa ##ble !

Text is cleaned of control characters, Chinese characters stand alone, accents are taken off; white space and marks of
punctuation part the words. A word is cut from its left into the longest pieces that the vocabulary has, those inside a
word written with ## before them; a word that cannot be cut so is UNKNOWN as a whole.

Such a vocabulary comes with the weights of an imported model, and its special pieces are no part of it: a text that
says "[MASK]" gives a bracket, a word and a bracket.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers

from seqloom.config.tokenizers import WordpieceConfig
from seqloom.errors import DataError
from seqloom.text.cutter import Pieces
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import COUNT, UNKNOWN
from seqloom.text.words import detokenised

INSIDE = "##"  # before a piece that does not begin a word
NO_PIECE = "no piece"  # the library's name of what is unknown: no text gives it, because of its space


class WordpieceData(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The pieces in the order of their numbers, the special ones left out."""

    pieces: tuple[str, ...]


class WordpieceCutter:
    """Cuts words into the longest pieces from the left."""

    def __init__(self, config: WordpieceConfig, data: WordpieceData) -> None:
        _require_pieces(data.pieces)
        self._pieces = data.pieces
        self._library = _library(config, data.pieces)

    @property
    def vocab_size(self) -> int:
        """How many symbols there are."""
        return COUNT + len(self._pieces)

    def encode(self, texts: Sequence[str]) -> Ragged:
        """The symbols of each text."""
        found = self._library.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = Ragged.of([encoding.ids for encoding in found], np.int32)
        return Ragged(self._symbols(rows.values), rows.starts)

    def _symbols(self, numbers: np.ndarray) -> np.ndarray:
        """The symbols of the library's numbers, of which the last is that of what is unknown."""
        return np.where(numbers < len(self._pieces), numbers + np.int32(COUNT), np.int32(UNKNOWN))

    def encode_with_offsets(self, text: str) -> Pieces:
        """The symbols, and the characters that each stands for."""
        found = self._library.encode(text, add_special_tokens=False)
        symbols = self._symbols(np.array(found.ids, np.int32))
        return Pieces(symbols, np.array(found.offsets, np.int64).reshape(-1, 2))

    def decode(self, symbols: np.ndarray) -> str:
        """The text of the pieces: how words were spaced and written is not kept."""
        words: list[str] = []
        for piece in map(self.piece, symbols.tolist()):
            if piece.startswith(INSIDE) and words:
                words[-1] += piece.removeprefix(INSIDE)
            else:
                words.append(piece.removeprefix(INSIDE) or piece)
        return detokenised(words)

    def piece(self, symbol: int) -> str:
        """The piece, with ## before one that does not begin a word."""
        return self._pieces[symbol - COUNT]

    def data(self) -> WordpieceData:
        """The pieces."""
        return WordpieceData(self._pieces)


def _library(config: WordpieceConfig, pieces: Sequence[str]) -> Library:
    """The library's tokeniser; lower case is none of its business, it has been made before."""
    numbers = {piece: number for number, piece in enumerate((*pieces, NO_PIECE))}
    model = models.WordPiece(
        vocab=numbers,
        unk_token=NO_PIECE,
        max_input_chars_per_word=config.longest_word,
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
    return library


def _require_pieces(pieces: Sequence[str]) -> None:
    if len(set(pieces)) < len(pieces) or not all(pieces):
        raise DataError("a piece of the vocabulary is empty or stands there twice")
    if NO_PIECE in pieces:
        raise DataError(f"a piece of the vocabulary is '{NO_PIECE}', and no piece holds a space")
