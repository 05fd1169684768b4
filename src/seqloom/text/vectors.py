"""Pretrained word vectors: read for the words that are wanted, and laid out as the table of a tokeniser.

with_words(tokenizer, first_words(path, 100_000))     the file's most frequent words join those of the training data
read_vectors(path, wanted_words(tokenizer))           ──▶ WordVectors ── table(tokenizer) ──▶ [V,D], and who was found

Most files hold lower-cased words only. A tokeniser that was joined with one reads a word as it stands, and if nobody
knows it then in lower case; its table finds vectors by the same rule.
"""

from collections.abc import Collection, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from seqloom.config.text import WordsConfig
from seqloom.errors import DataError
from seqloom.text.symbols import COUNT, PAD
from seqloom.text.tokenizer import Tokenizer
from seqloom.text.vector_files import VectorFormat, open_vectors
from seqloom.text.words import WordCutter, WordsData


class VectorTable(NamedTuple):
    """A vector for every symbol of a tokeniser."""

    rows: np.ndarray  # [V,D] float32; PAD is zero
    own: np.ndarray  # [V] bool: the words that have a vector of their own
    lowered: np.ndarray  # [V] bool: those that have that of their lower-cased form

    @property
    def coverage(self) -> float:
        """The share of the words that were found."""
        return (self.found + int(self.lowered.sum())) / max(self.words, 1)

    @property
    def found(self) -> int:
        """How many words have a vector of their own."""
        return int(self.own.sum())

    @property
    def words(self) -> int:
        """How many words there are."""
        return len(self.rows) - COUNT


class WordVectors(NamedTuple):
    """Words and their vectors."""

    words: tuple[str, ...]
    matrix: np.ndarray  # [words, D] float32
    duplicates: int = 0  # rows that were left out, as their word had come before

    def table(self, tokenizer: Tokenizer, seed: int = 0) -> VectorTable:
        """The vectors of a tokeniser of words; symbols without one are drawn with the spread of those that have one."""
        numbers = known_words(tokenizer)
        rows = {word: row for row, word in enumerate(self.words)}
        own: dict[int, int] = {}
        lowered: dict[int, int] = {}
        for word, symbol in numbers.items():
            if word in rows:
                own[symbol] = rows[word]
            elif _lowers(tokenizer) and word.lower() in rows:
                lowered[symbol] = rows[word.lower()]
        if not own and not lowered:
            raise DataError(
                f"none of {len(numbers):,} words of the tokeniser has a vector",
                fix="take vectors of the same language and case",
            )
        return self._laid_out(tokenizer.vocab_size, own, lowered, seed)

    def _laid_out(self, vocab_size: int, own: dict[int, int], lowered: dict[int, int], seed: int) -> VectorTable:
        symbols, rows = (np.fromiter(part, np.int64) for part in zip(*(own | lowered).items(), strict=True))
        spread = float(self.matrix[rows].std(dtype=np.float64))
        drawn = np.random.default_rng(seed).normal(0.0, spread, (vocab_size, self.matrix.shape[1]))
        table = drawn.astype(np.float32)
        table[symbols] = self.matrix[rows]
        table[PAD] = 0.0
        known = (np.isin(np.arange(vocab_size), list(part)) for part in (own, lowered))
        return VectorTable(table, *known)


def known_words(tokenizer: Tokenizer) -> dict[str, int]:
    """The words of a tokeniser with their symbols; only one of kind "words" has any."""
    if not isinstance(tokenizer.cutter, WordCutter):
        raise DataError(f"pretrained vectors are of words, and this tokeniser cuts {tokenizer.config.kind()}")
    return tokenizer.cutter.numbers


def _lowers(tokenizer: Tokenizer) -> bool:
    return isinstance(tokenizer.config, WordsConfig) and tokenizer.config.or_lower


def wanted_words(tokenizer: Tokenizer) -> set[str]:
    """The words under which a table of this tokeniser looks for vectors."""
    words = known_words(tokenizer)
    return {*words, *(word.lower() for word in words)} if _lowers(tokenizer) else set(words)


def with_words(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """The tokeniser with further words behind its own; what even so is not known is looked up in lower case."""
    known_words(tokenizer)  # refuses other kinds
    assert isinstance(tokenizer.cutter, WordCutter) and isinstance(tokenizer.config, WordsConfig)
    both = (*tokenizer.cutter.data().words, *tokenizer.cutter.whole(tokenizer.normalised(words)))
    limit = max(tokenizer.config.limit, COUNT + len(both))
    config = msgspec.structs.replace(tokenizer.config, limit=limit, or_lower=True)
    return Tokenizer(config, WordCutter(config, WordsData(both)), tokenizer.dropped)


def first_words(path: str | Path, count: int) -> tuple[str, ...]:
    """The first words of a file of vectors: files begin with what is most frequent."""
    with open_vectors(Path(path), None, None) as file:
        return tuple(file.name(row.word) for row in islice(file.rows, count))


def width_of(path: str | Path) -> int:
    """How many numbers a vector of a file has."""
    with open_vectors(Path(path), None, None) as file:
        return file.width


def read_vectors(
    path: str | Path,
    words: Collection[str] | None = None,
    *,
    format: VectorFormat | None = None,  # noqa: A002  # the word of ReadingConfig
    width: int | None = None,
) -> WordVectors:
    """The vectors of the wanted words, or of all, from a file in the format that its extension or `format` names.

    Only wanted rows are kept and their numbers read, so a large file needs little memory. A word that comes again is
    counted, and its first row kept. `width` is needed only for GloVe files whose first word holds a space.
    """
    wanted = None if words is None else {word.encode("utf-8", "surrogatepass") for word in words}
    numbers: dict[bytes, int] = {}
    values = bytearray()
    with open_vectors(Path(path), format, width) as file:
        duplicates = 0
        for row in file.rows:
            if wanted is not None and row.word not in wanted:
                continue
            if row.word in numbers:
                duplicates += 1
                continue
            numbers[row.word] = len(numbers)
            values += file.vector(row).tobytes()
        names = tuple(map(file.name, numbers))
    return WordVectors(names, np.frombuffer(values, np.float32).reshape(len(names), file.width), duplicates)
