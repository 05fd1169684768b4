"""A corpus as numbers: the words that are frequent enough, their counts, and the text as one array of word numbers.

The file is read twice: to count the words, then to number them. Rare words are removed before windows are made, so
that a window reaches over them, as in word2vec. In memory the corpus takes four bytes per word.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqloom.config.data import ReadingConfig
from seqloom.config.tokenizers import WordsConfig
from seqloom.data.inputs import InputColumns, find_columns
from seqloom.data.kinds.text import TextInput
from seqloom.data.problems import Ledger
from seqloom.data.readers.registry import read_table
from seqloom.errors import DataError
from seqloom.events import Progress, Work
from seqloom.text.ragged import Ragged, starts_of
from seqloom.text.segmenter import blocks
from seqloom.text.special_tokens import COUNT
from seqloom.text.tokenizer import TokenizerFit
from seqloom.text.words import WordSegmenter


class CorpusFile(NamedTuple):
    """A file of texts, one per row, and how it is read."""

    path: Path
    input: str | None = None  # the column with the text; None: found by its name
    reading: ReadingConfig = ReadingConfig()

    def texts(self) -> Iterator[list[str]]:
        """Yield the texts in blocks; RejectedError for bad rows."""
        ledger = Ledger()
        table = read_table((self.path,), self.reading, ledger)
        named = () if self.input is None else (self.input,)
        (column,) = find_columns(table, TextInput(), InputColumns(named), self.path, ledger)
        yield from blocks(record.values[column] or "" for record in table.records)
        ledger.close()


class Corpus(NamedTuple):
    """The words, most frequent first, and the texts as their numbers."""

    words: tuple[str, ...]
    counts: np.ndarray  # [V] int64
    texts: Ragged  # int32 word numbers, one row per text
    dropped: int  # distinct words that were too rare

    @property
    def size(self) -> int:
        """The number of words in all texts, without rare ones."""
        return len(self.texts.values)


def read_corpus(file: CorpusFile, config: WordsConfig) -> Work[Corpus]:
    """Read a corpus; DataError if fewer than two words are frequent enough."""
    rows = 0
    with TokenizerFit(config) as fit:
        for block in file.texts():
            fit.add(block)
            rows += len(block)
            yield Progress("rows counted", rows)
        tokenizer = fit.tokenizer()
    assert isinstance(tokenizer.segmenter, WordSegmenter)
    words = tokenizer.segmenter.data().words
    if len(words) < 2:
        problem = f"{file.path}: {len(words)} words occur at least {config.min_count} times"
        raise DataError(problem, fix="give more text, or --min-count 1")
    parts, done = [], 0
    for block in file.texts():
        numbers = tokenizer.encode(block)
        known = numbers.values >= COUNT
        before = np.concatenate([[0], np.cumsum(known)])[numbers.starts]
        parts.append(Ragged(numbers.values[known] - np.int32(COUNT), starts_of(np.diff(before))))
        done += len(block)
        yield Progress("rows read", done, rows)
    texts = Ragged.joined(parts, np.int32)
    return Corpus(words, np.bincount(texts.values, minlength=len(words)), texts, tokenizer.dropped)
