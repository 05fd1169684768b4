"""Vectors of texts without a model: which words they have, rare ones counting more, in a few hundred numbers.

Each word adds its weight to one of 512 places, with a sign, both found by hashing it (Weinberger and others 2009); its
weight is the inverse document frequency log((1 + N) / (1 + n)) + 1 in the texts. So texts that share rare words are
near one another. A model that knows meanings is better; this one is always there.
"""

import zlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from seqloom.search.vectors import unit
from seqloom.search.words import words_of

WIDTH = 512


class HashedWords:
    """Counts of the words in some texts, by which these and others become vectors."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = len(texts)
        self.counts = Counter(word for text in texts for word in set(words_of(text)))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[N,512] float32 of length 1; zeros for a text without words."""
        vectors = np.zeros((len(texts), WIDTH), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in set(words_of(text)):
                number = zlib.crc32(word.encode("utf-8", "surrogatepass"))
                vector[number % WIDTH] += self._weight(word) * (1 if number >> 31 else -1)
        return unit(vectors)

    def _weight(self, word: str) -> float:
        return float(np.log((1 + self.texts) / (1 + self.counts[word]))) + 1
