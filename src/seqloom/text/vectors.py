"""Pretrained word vectors: read for the words that are wanted, and laid out as the table of a tokeniser.

read_vectors(path, known_words(tokenizer)) ──▶ WordVectors ── table(tokenizer) ──▶ [V,D], and how many were found
"""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqloom.errors import DataError
from seqloom.text.symbols import COUNT, PAD
from seqloom.text.tokenizer import Tokenizer
from seqloom.text.vector_files import VectorFormat, open_vectors
from seqloom.text.words import WordCutter


class VectorTable(NamedTuple):
    """A vector for every symbol of a tokeniser."""

    rows: np.ndarray  # [V,D] float32; PAD is zero
    found: int  # words that have a vector of their own
    words: int

    @property
    def coverage(self) -> float:
        """The share of the words that have a vector of their own."""
        return self.found / max(self.words, 1)


class WordVectors(NamedTuple):
    """Words and their vectors."""

    words: tuple[str, ...]
    matrix: np.ndarray  # [words, D] float32
    duplicates: int = 0  # rows that were left out, as their word had come before

    def table(self, tokenizer: Tokenizer, seed: int = 0) -> VectorTable:
        """The vectors of a tokeniser of words; symbols without one are drawn with the spread of those that have one."""
        numbers = known_words(tokenizer)
        known = [(numbers[word], row) for row, word in enumerate(self.words) if word in numbers]
        if not known:
            raise DataError(
                f"none of {len(numbers):,} words of the tokeniser has a vector",
                fix="take vectors of the same language and case",
            )
        symbols, rows = np.array(known).T
        spread = float(self.matrix[rows].std(dtype=np.float64))
        drawn = np.random.default_rng(seed).normal(0.0, spread, (tokenizer.vocab_size, self.matrix.shape[1]))
        table = drawn.astype(np.float32)
        table[symbols] = self.matrix[rows]
        table[PAD] = 0.0
        return VectorTable(table, len(known), tokenizer.vocab_size - COUNT)


def known_words(tokenizer: Tokenizer) -> dict[str, int]:
    """The words of a tokeniser with their symbols; only one of kind "words" has any."""
    if not isinstance(tokenizer.cutter, WordCutter):
        raise DataError(f"pretrained vectors are of words, and this tokeniser cuts {tokenizer.config.kind()}")
    return tokenizer.cutter.numbers


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
