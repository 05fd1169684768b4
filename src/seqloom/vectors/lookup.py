"""Look up words in a file of vectors: nearest neighbors, and analogies by 3CosAdd (Mikolov et al. 2013).

    neighbors    the words w with the largest cos(v_w, v_king)
    analogy      man is to king as woman is to w:   largest cos(v_w, v_king - v_man + v_woman), without these three

Vectors are scaled to length 1 first. A word is looked up as it is, then in lower case.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from seqloom.config.options import strict
from seqloom.data.word_vectors import WordVectors, first_words, read_vectors
from seqloom.errors import ConfigError, DataError, did_you_mean
from seqloom.report.document import Document, Shown, TableBlock

SMALLEST = 1e-12


class NearWord(NamedTuple):
    """A word and its cosine with what was asked for."""

    word: str
    cosine: float


class NearestWords(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """The nearest words of a question."""

    question: str
    nearest: tuple[NearWord, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The words, nearest first."""
        return tuple(each.word for each in self.nearest)

    def document(self) -> Document:
        return Document(self.question, (TableBlock(("word", "cosine"), self.nearest),))


class VectorSpace:
    """Words and their vectors, scaled to length 1."""

    def __init__(self, vectors: WordVectors) -> None:
        self.words = vectors.words
        self._numbers = {word: number for number, word in enumerate(vectors.words)}
        lengths = np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
        self.units = vectors.matrix / np.maximum(lengths, SMALLEST)  # [V,D]

    @classmethod
    def read(cls, path: str | Path, limit: int | None = None) -> "VectorSpace":
        """Read a file of vectors; only its first `limit` words, if given."""
        return cls(read_vectors(path, None if limit is None else set(first_words(path, limit))))

    def find(self, word: str) -> int | None:
        """The number of a word, as it is or in lower case; None if it has no vector."""
        return self._numbers.get(word, self._numbers.get(word.lower()))

    def number(self, word: str) -> int:
        """The number of a word; DataError with a similar word if it has no vector."""
        found = self.find(word)
        if found is None:
            near = did_you_mean(word, self.words)
            fix = near if near.startswith("did") else "choose a word of the file"
            raise DataError(f"'{word}' has no vector", fix=fix)
        return found

    def nearest(self, vectors: np.ndarray, without: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The numbers [n,count] and cosines of the words nearest to vectors [n,D], without words [n,m].

        The cosines are minus infinity where fewer words are left.
        """
        lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), SMALLEST)
        cosines = (vectors / lengths) @ self.units.T  # [n,V]
        np.put_along_axis(cosines, without, -np.inf, axis=1)
        count = min(count, len(self.words) - min(len({*row}) for row in without.tolist()))
        best = np.argpartition(-cosines, max(count - 1, 0), axis=1)[:, :count]
        scores = np.take_along_axis(cosines, best, axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")
        return np.take_along_axis(best, order, axis=1), np.take_along_axis(scores, order, axis=1)

    def neighbors(self, word: str, *, top_k: int = 10) -> NearestWords:
        """The nearest words of a word."""
        number = self.number(word)
        return self._answer(f"Nearest words of '{self.words[number]}'", self.units[number], [number], top_k)

    def analogy(self, a: str, b: str, c: str, *, top_k: int = 10) -> NearestWords:
        """The words d for which a is to b as c is to d."""
        first, second, third = numbers = [self.number(word) for word in (a, b, c)]
        target = self.units[second] - self.units[first] + self.units[third]
        names = [self.words[number] for number in numbers]
        question = f"'{names[0]}' is to '{names[1]}' as '{names[2]}' is to"
        return self._answer(question, target, numbers, top_k)

    def _answer(self, question: str, target: np.ndarray, without: list[int], top_k: int) -> NearestWords:
        if top_k < 1:
            raise ConfigError(f"--top-k {top_k}", fix="use at least 1")
        numbers, cosines = self.nearest(target[None], np.array([without]), top_k)
        pairs = zip(numbers[0].tolist(), cosines[0].tolist(), strict=True)
        nearest = tuple(NearWord(self.words[number], cosine) for number, cosine in pairs)
        return NearestWords(question=question, nearest=nearest)


@strict
def neighbors(path: str | Path, word: str, *, top_k: int = 10, limit: int | None = None) -> NearestWords:
    """The nearest words of a word in a file of vectors, among its first `limit` words."""
    return VectorSpace.read(path, limit).neighbors(word, top_k=top_k)


@strict
def analogy(path: str | Path, a: str, b: str, c: str, *, top_k: int = 10, limit: int | None = None) -> NearestWords:
    """The words d for which a is to b as c is to d, in a file of vectors, among its first `limit` words."""
    return VectorSpace.read(path, limit).analogy(a, b, c, top_k=top_k)
