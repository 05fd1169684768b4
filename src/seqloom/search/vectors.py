"""Vectors of texts: what search asks of a model that makes them, and which of them are nearest to a question.

`Exact` multiplies the question with every vector: 100,000 passages take some hundredths of a second, and nothing is
missed. `Graph` walks a graph of neighbours (HNSW: Malkov and Yashunin 2016; the library usearch), which looks at a few
thousand however many there are, and may miss one. Both give the exact similarity of what they find, and both look only
at passages that are allowed: those of documents that are there and fulfil the conditions.

The graph is walked in half precision, and what may be among the nearest is measured again in full. Passages that came
after it was made are compared one by one, and so are all of them where few are allowed: a walk would pass by too many
that are not.
"""

import zlib
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from seqloom.errors import ConfigError, DataError, needing
from seqloom.events import Progress, Work
from seqloom.search.bm25 import words_of
from seqloom.search.store import Settings

if TYPE_CHECKING:
    from seqloom.inference.model import LoadedModel

USUAL = 256  # symbols of a passage: what most models of sentences were trained on
TOGETHER = 1_024  # texts that are embedded at a time
WIDTH = 512  # of vectors without a model
GRAPH_FROM = 100_000  # passages
# Passages that a walk keeps in hand. usearch's own are 64; measured again in full precision, 48 find as many of the
# nearest (benchmarks/searching.py), and sooner.
LEAST_WALK = 48
HALF = 2**-9  # twice what half precision, 11 bits, may be off by in a product of two vectors of length 1: 2 * 2**-11
STEP = 1024  # passages that are linked between two words about how far it is
TRIES = 4  # times that a walk goes four times as far, before all are compared


def unit(vectors: np.ndarray) -> np.ndarray:
    """The vectors [N,W] with length 1, so that products are cosines; a vector of zeros stays one."""
    found = np.asarray(vectors, np.float32)
    if not np.isfinite(found).all():
        raise DataError("the model gives vectors that are not finite", fix="train it again, or take another one")
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return np.asarray(found / np.where(lengths > 0, lengths, 1))


class MakesVectors(Protocol):
    """A model that makes vectors of texts: a loaded one, or anything else that does."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[N,W] the vectors of the texts, in their order."""


class Embeds(MakesVectors, Protocol):
    """A model that makes vectors of texts, and says what it is and how it reads."""

    @property
    def path(self) -> Path:
        """The folder it was read from."""

    @property
    def identity(self) -> str:
        """What tells its vectors from those of another model: a sum over its weights, configuration and tokeniser."""

    @property
    def longest(self) -> int:
        """The most symbols of a text that it reads."""

    def lengths(self, texts: Sequence[str]) -> np.ndarray:
        """[N] how many symbols it reads of each text."""


class ModelEmbeds:
    """A loaded model as search asks it."""

    def __init__(self, loaded: "LoadedModel", budget: int | None = None) -> None:
        tokenizer = loaded.meaning.tokenizer
        if tokenizer is None or not loaded.task.asked.schema.input.is_text:
            kind = loaded.meaning.schema.input
            raise ConfigError(f"search needs a model of texts, and {loaded.path} reads {kind}", fix="take another one")
        self.loaded, self.tokenizer, self.path, self.budget = loaded, tokenizer, loaded.path, budget

    @cached_property
    def identity(self) -> str:
        """The sum over the files of the model."""
        from seqloom.bundle import identity_of

        return identity_of(self.path)

    @property
    def longest(self) -> int:
        """What its training cut texts at, or its positions end at."""
        positions = self.loaded.positions
        return min(self.loaded.encoding.longest, self.loaded.encoding.longest if positions is None else positions)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[N,W] the vectors of the texts, in their order."""
        return self.loaded.embed(texts, budget=self.budget)

    def lengths(self, texts: Sequence[str]) -> np.ndarray:
        """[N] how many symbols each text has."""
        return self.tokenizer.encode(texts).lengths


def settings_of(model: Embeds, passage: int | None = None) -> Settings:
    """How a model will make vectors: passages of so many symbols, or of the usual number, as far as it reads."""
    if passage is not None and not 8 <= passage <= model.longest:
        raise ConfigError(f"passages of {passage:,} symbols", fix=f"take 8 to {model.longest:,}, which the model reads")
    width = int(model.embed(["width"]).shape[1])
    return Settings(str(model.path.absolute()), model.identity, width, passage or min(USUAL, model.longest))


def require_same(settings: Settings, model: Embeds) -> None:
    """Raise ConfigError for a model that did not make the vectors of an index: they would mean nothing to it."""
    if settings.identity != model.identity:
        made, asked = f"{settings.model} (sum {settings.identity[:12]})", f"{model.path} (sum {model.identity[:12]})"
        fix = "give the model as it was then, or make the index again"
        raise ConfigError(f"the index was made with {made}, and {asked} is another model", fix=fix)


class HashedWords:
    """Vectors without a model: which words texts have, rare ones counting more.

    Each word adds its weight to one of 512 places, with a sign, both found by hashing it (Weinberger and others 2009);
    its weight is the inverse document frequency log((1 + N) / (1 + n)) + 1 in the texts. So texts that share rare words
    are near one another. A model that knows meanings is better; this one is always there.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = len(texts)
        self.counts = Counter(word for text in texts for word in set(words_of(text)))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[N,512] float32 of length 1; zeros for a text without words."""
        vectors = np.zeros((len(texts), WIDTH), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in set(words_of(text)):
                number = zlib.crc32(word.encode("utf-8", "surrogatepass"))
                weight = float(np.log((1 + self.texts) / (1 + self.counts[word]))) + 1
                vector[number % WIDTH] += weight * (1 if number >> 31 else -1)
        return unit(vectors)


def embedding(texts: Sequence[str], model: MakesVectors) -> Work[np.ndarray]:
    """The vectors [N,W] of texts, float32, of length 1."""
    vectors = np.empty((0, 1), np.float32)
    for start in range(0, len(texts), TOGETHER):
        made = unit(model.embed(texts[start : start + TOGETHER]))
        if not start:
            vectors = np.empty((len(texts), made.shape[1]), np.float32)
        vectors[start : start + TOGETHER] = made
        yield Progress("texts embedded", start + len(made), len(texts))
    return vectors


class Near(NamedTuple):
    """Passages by their numbers, the nearest first, and their similarities."""

    passages: np.ndarray  # [n] int64
    scores: np.ndarray  # [n] float32


class Nearest(Protocol):
    """What finds the nearest passages."""

    def nearest(self, question: np.ndarray, allowed: np.ndarray, count: int) -> Near:
        """The `count` nearest of the passages that are allowed [N], or all if there are fewer."""


def best(numbers: np.ndarray, scores: np.ndarray, count: int) -> Near:
    """The `count` of the highest score, the highest first; of equal ones, the smaller number.

    >>> best(np.array([5, 6, 7]), np.array([0.5, 0.9, 0.5]), 2).passages.tolist()
    [6, 5]
    """
    if len(scores) > 2 * count + LEAST_WALK:  # fewer are sorted sooner than parted
        least = np.partition(scores, -count)[-count]
        numbers, scores = numbers[scores >= least], scores[scores >= least]
    order = np.lexsort((numbers, -scores))[:count]
    return Near(numbers.take(order), scores.take(order))


class Exact:
    """Every passage is compared: all vectors [N,W] are in memory, one behind the other."""

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors

    def nearest(self, question: np.ndarray, allowed: np.ndarray, count: int) -> Near:
        """The nearest of all that are allowed."""
        numbers = np.flatnonzero(allowed)
        return best(numbers, (self.vectors @ question)[numbers], count)


class Graph:
    """The first passages are found along a graph, later ones are compared one by one."""

    def __init__(self, walk: Any, exact: Exact) -> None:
        self.walk, self.exact = walk, exact
        self.covered = len(walk)

    def nearest(self, question: np.ndarray, allowed: np.ndarray, count: int) -> Near:
        """The nearest of those that a walk meets; of all, if it does not meet enough that are allowed."""
        found = self._walked(question, allowed, count)
        if found is None:
            return self.exact.nearest(question, allowed, count)
        scores = self.exact.vectors.take(found, 0).dot(question)
        if self.covered < len(allowed):
            later = np.flatnonzero(allowed[self.covered :])
            scores = np.concatenate([scores, (self.exact.vectors[self.covered :] @ question)[later]])
            found = np.concatenate([found, later + self.covered])
        return best(found, scores, count)

    def _walked(self, question: np.ndarray, allowed: np.ndarray, count: int) -> np.ndarray | None:
        """The allowed passages that a walk meets and that may be among the nearest; None if it meets too few."""
        wide = max(LEAST_WALK, 2 * count)
        for _ in range(TRIES):
            if 4 * wide > self.covered:
                break
            met = self.walk.search(question, wide, threads=1)  # it keeps no fewer in hand than are asked for
            numbers, distances = met.keys.view(np.int64), met.distances
            near = _perhaps(numbers, distances, count)
            if count <= len(near) == np.count_nonzero(allowed.take(near)):  # as a rule: the others are not looked at
                return near
            here = allowed.take(numbers)
            numbers, distances = numbers[here], distances[here]
            if len(numbers) < count:  # perhaps there are no more
                count = min(count, int(np.count_nonzero(allowed[: self.covered])))
            if len(numbers) >= count:
                return _perhaps(numbers, distances, count)
            wide *= 4
        return None


def _perhaps(numbers: np.ndarray, distances: np.ndarray, count: int) -> np.ndarray:
    """Those of the numbers, nearest first, that exact distances may put among the first `count`."""
    if not 0 < count <= len(numbers):
        return numbers[:0]
    return numbers[: distances.searchsorted(distances[count - 1] + HALF, "right")]


def grown(kept: bytes | None, vectors: np.ndarray, stage: str) -> Work[Any]:
    """A graph over the vectors, grown from the `kept` one if there is one; `stage` is what its progress counts.

    One thread, in the order of the passages: the same vectors give the same bytes.
    """
    with needing("search"):
        from usearch.index import Index
    if kept is not None:
        walk = opened(kept)
    else:
        walk = Index(ndim=vectors.shape[1], metric="ip", dtype="f16", expansion_search=LEAST_WALK)
    for start in range(len(walk), len(vectors), STEP):
        some = vectors[start : start + STEP]
        walk.add(np.arange(start, start + len(some)), some, threads=1)
        yield Progress(stage, len(walk), len(vectors))
    return walk


def opened(kept: bytes) -> Any:
    """The graph of these bytes, as an index keeps them."""
    with needing("search"):
        from usearch.index import Index
    walk: Any = Index.restore(kept)
    if walk is None:
        raise DataError("these bytes are no graph of usearch", fix="make the index again")
    walk.expansion_search = LEAST_WALK  # the bytes do not hold it
    return walk
