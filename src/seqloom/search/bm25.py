"""BM25: how well a document answers the words of a question (Robertson and Zaragoza 2009).

    score(d) = sum over the words w of the question of  idf(w) * f (k1 + 1) / (f + k1 (1 - b + b |d| / mean |d|))
    idf(w)   = log(1 + (N - n + 0.5) / (n + 0.5))

f is how often w stands in d, |d| how many words d has, N how many documents there are and n how many of them have w. A
word that few documents have says much; that it stands there often says less and less; long documents have words by
chance. The statistics are those of the documents that are there now: what was deleted or replaced counts nowhere, so an
index that was changed gives the very scores of one that was made afresh.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from seqloom.search.words import words_of

K1, B = 1.2, 0.75


class Postings(NamedTuple):
    """Which documents have a word, and how often: those of word n stand from `starts[n]` up to `starts[n + 1]`."""

    words: tuple[str, ...]  # sorted
    starts: np.ndarray  # [W+1] int64
    documents: np.ndarray  # [N] int32
    counts: np.ndarray  # [N] int32
    lengths: np.ndarray  # [D] int32, words of each document

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Postings":
        """The postings of texts.

        >>> found = Postings.of(["a cat", "cats and a cat"])
        >>> found.words, found.has("cat")[1].tolist()
        (('a', 'and', 'cat'), [1, 2])
        """
        counted = [Counter(words_of(text)) for text in texts]
        names = sorted({word for words in counted for word in words})
        numbers = {word: number for number, word in enumerate(names)}
        rows = [(numbers[word], row, count) for row, words in enumerate(counted) for word, count in words.items()]
        table = np.array(rows, np.int64).reshape(-1, 3)
        table = table[np.lexsort((table[:, 1], table[:, 0]))]
        starts = np.concatenate([[0], np.cumsum(np.bincount(table[:, 0], minlength=len(names)))])
        lengths = np.array([words.total() for words in counted], np.int32)
        return cls(tuple(names), starts, table[:, 1].astype(np.int32), table[:, 2].astype(np.int32), lengths)

    def has(self, word: str) -> tuple[np.ndarray, np.ndarray]:
        """The documents that have a word, and how often each has it."""
        number = bisect_left(self.words, word)
        if number == len(self.words) or self.words[number] != word:
            return self.documents[:0], self.counts[:0]
        here = slice(self.starts[number], self.starts[number + 1])
        return self.documents[here], self.counts[here]


class Keywords:
    """The postings of several lots of documents, of which some are no longer there: scores of questions."""

    def __init__(self, lots: Sequence[Postings], there: np.ndarray) -> None:
        self.lots, self.there = lots, there  # [D] of all lots, one behind the other
        sizes = [len(lot.lengths) for lot in lots]
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.lengths = np.concatenate([np.empty(0, np.int32), *(lot.lengths for lot in lots)])
        self.count = int(there.sum())
        self.mean = float(self.lengths[there].mean()) if self.count else 0.0

    def scores(self, question: str) -> np.ndarray:
        """[D] the score of each document; 0 for those without a word of the question, and for those not there."""
        scores = np.zeros(len(self.there))
        for word in sorted(set(words_of(question))):
            documents, counts = self._has(word)
            idf = np.log1p((self.count - len(documents) + 0.5) / (len(documents) + 0.5))
            longer = 1 - B + B * self.lengths[documents] / (self.mean or 1.0)
            scores[documents] += idf * counts * (K1 + 1) / (counts + K1 * longer)
        return scores

    def _has(self, word: str) -> tuple[np.ndarray, np.ndarray]:
        """The same as of one lot, of all documents that are there."""
        found = [lot.has(word) for lot in self.lots]
        documents = np.concatenate([one + start for (one, _), start in zip(found, self.offsets, strict=False)])
        there = self.there[documents]
        return documents[there], np.concatenate([counts for _, counts in found])[there]
