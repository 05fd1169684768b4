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
        names = sorted(set[str]().union(*counted))
        numbers = {word: number for number, word in enumerate(names)}
        total = sum(map(len, counted))
        words = np.fromiter((numbers[word] for some in counted for word in some), np.int64, total)
        documents = np.repeat(np.arange(len(counted)), [len(some) for some in counted])
        counts = np.fromiter((count for some in counted for count in some.values()), np.int64, total)
        return cls._sorted(names, words, documents, counts, np.array([some.total() for some in counted]))

    @classmethod
    def joined(cls, parts: Sequence[tuple["Postings", np.ndarray]]) -> "Postings":
        """The postings of some documents of each part, given by their rows in order, one behind the other.

        No text is read again, and what it takes beside the parts are a few numbers for each posting that is kept.

        >>> first, second = Postings.of(["a cat", "a dog"]), Postings.of(["the cats"])
        >>> both = Postings.joined([(first, np.array([1])), (second, np.array([0]))])
        >>> both.words, both.has("cat")[0].tolist()
        (('a', 'cat', 'dog', 'the'), [1])
        """
        offsets = np.cumsum([0, *(len(rows) for _, rows in parts)]).tolist()
        taken = [part._taken(rows, start) for (part, rows), start in zip(parts, offsets, strict=False)]
        names = sorted(set[str]().union(*(words for words, *_ in taken)))
        numbers = {word: number for number, word in enumerate(names)}
        renamed = [np.array([numbers[word] for word in words], np.int64)[which] for words, which, *_ in taken]
        documents, counts = ([one[place] for one in taken] for place in (2, 3))
        lengths = [part.lengths[rows] for part, rows in parts]
        return cls._sorted(names, *map(_chained, (renamed, documents, counts, lengths)))

    def _taken(self, rows: np.ndarray, start: int) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
        """The words that some documents have, and of each posting of those its word, document and count."""
        renumbered = np.full(len(self.lengths), -1, np.int64)
        renumbered[rows] = np.arange(start, start + len(rows))
        documents = renumbered[self.documents]
        here = documents >= 0
        found, which = np.unique(np.repeat(np.arange(len(self.words)), np.diff(self.starts))[here], return_inverse=True)
        return [self.words[number] for number in found.tolist()], which, documents[here], self.counts[here]

    @classmethod
    def _sorted(
        cls, names: Sequence[str], words: np.ndarray, documents: np.ndarray, counts: np.ndarray, lengths: np.ndarray
    ) -> "Postings":
        """Postings [N] of words by their numbers, in any order, each word's by the number of the document."""
        order = np.lexsort((documents, words))
        starts = np.concatenate([[0], np.cumsum(np.bincount(words, minlength=len(names)))])
        narrow = (one.astype(np.int32) for one in (documents[order], counts[order], lengths))
        return cls(tuple(names), starts, *narrow)

    def has(self, word: str) -> tuple[np.ndarray, np.ndarray]:
        """The documents that have a word, and how often each has it."""
        number = bisect_left(self.words, word)
        if number == len(self.words) or self.words[number] != word:
            return self.documents[:0], self.counts[:0]
        here = slice(self.starts[number], self.starts[number + 1])
        return self.documents[here], self.counts[here]


def _chained(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *arrays])


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
