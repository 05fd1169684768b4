"""Vectors of texts: embedders, and the passages nearest to a query.

`ExactSearch` compares the query with every vector: 100,000 passages take some hundredths of a second, and nothing is
missed. `GraphSearch` uses a graph of neighbors (HNSW: Malkov and Yashunin 2016; the library usearch). It visits a few
thousand passages, independent of their number, and may miss one. Both return exact similarities, and both only return
passages that are allowed: those of documents that are not deleted and match the conditions.

The graph is searched in half precision, and the candidates are compared again in full precision. Passages that were
added after the graph was built are compared exactly, and so are all passages if few are allowed, because a graph search
would meet too few of them.
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
from seqloom.text.special_tokens import COUNT

if TYPE_CHECKING:
    from seqloom.inference.model import LoadedModel

DEFAULT_PASSAGE_TOKENS = 256  # what most sentence models were trained on
BATCH_SIZE = 1_024  # texts that are embedded at a time
WIDTH = 512  # of vectors without a model
GRAPH_FROM = 100_000  # passages
# Candidates of a graph search. The default of usearch is 64; with exact comparison afterwards, 48 find as many of the
# nearest passages (benchmarks/search.py) in less time.
LEAST_WALK = 48
HALF = 2**-9  # twice the error of half precision (11 bits) in a product of two unit vectors: 2 * 2**-11
STEP = 1024  # passages between two reports of progress
TRIES = 4  # searches with four times more candidates each, before everything is compared


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors [N,W] to length 1, so that products are cosines; zero vectors stay zero."""
    found = np.asarray(vectors, np.float32)
    if not np.isfinite(found).all():
        raise DataError("the model returns vectors with NaN or infinity", fix="train it again, or choose another model")
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return np.asarray(found / np.where(lengths > 0, lengths, 1))


class SupportsEmbed(Protocol):
    """Anything that computes vectors of texts, such as a loaded model."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[N,W] the vectors of the texts, in order."""


class IndexEmbedder(SupportsEmbed, Protocol):
    """A model that computes vectors of texts for an index."""

    @property
    def path(self) -> Path | None:
        """Return the folder of the model; None without one."""

    @property
    def identity(self) -> str:
        """Return a checksum of weights, configuration and tokenizer; vectors of two models can be compared if equal."""

    @property
    def caveat(self) -> str:
        """Return why its vectors may be unfit for search; empty if they are fit."""

    @property
    def max_length(self) -> int:
        """Return the most tokens of a text that the model reads."""

    def lengths(self, texts: Sequence[str]) -> np.ndarray:
        """[N] the number of tokens of each text."""

    def knows(self, text: str) -> bool:
        """Return whether its vocabulary has any part of a text."""


class ModelEmbedder:
    """A loaded model as the embedder of an index."""

    def __init__(self, loaded: "LoadedModel", batch_tokens: int | None = None) -> None:
        tokenizer = loaded.spec.tokenizer
        if tokenizer is None or not loaded.task.input_spec.schema.input.is_text:
            kind = loaded.spec.schema.input
            raise ConfigError(
                f"search needs a model that reads text, but {loaded.path} reads {kind}", fix="choose another model"
            )
        self.loaded, self.tokenizer, self.path, self.batch_tokens = loaded, tokenizer, loaded.path, batch_tokens

    @cached_property
    def identity(self) -> str:
        """Return a checksum of the files of the model."""
        from seqloom.bundle import identity_of

        return identity_of(self.path)

    @property
    def caveat(self) -> str:
        """Return that the model was not trained to embed, or nothing."""
        schema = self.loaded.spec.schema
        if schema.target.separate_texts:
            return ""
        return (
            f"{self.path} was trained for {schema.task}, not to embed, so texts that are near one another need not "
            "mean the same; train a model for the task embed, import one, or build an index without a model"
        )

    @property
    def max_length(self) -> int:
        """Return the truncation length of its training, or the number of its positions if that is less."""
        positions = self.loaded.positions
        return min(self.loaded.encoding.max_length, self.loaded.encoding.max_length if positions is None else positions)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return self.loaded.embed(texts, batch_tokens=self.batch_tokens)

    def lengths(self, texts: Sequence[str]) -> np.ndarray:
        return self.tokenizer.encode(texts).lengths

    def knows(self, text: str) -> bool:
        """Return whether its vocabulary has any part of a text."""
        return bool((self.tokenizer.encode([text]).values >= COUNT).any())


class WordsOnly:
    """Instead of a model, for an index that is searched by words: vectors have no dimensions, lengths are in words."""

    path, identity, caveat, max_length = None, "", "", 1 << 20

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[N,0]"""
        return np.empty((len(texts), 0), np.float32)

    def lengths(self, texts: Sequence[str]) -> np.ndarray:
        """[N] the number of words; of ASCII text between white space, which is faster."""
        counts = (len(text.split() if text.isascii() else words_of(text)) for text in texts)
        return np.fromiter(counts, np.int64, len(texts))

    def knows(self, text: str) -> bool:
        """Return False: there is no vocabulary."""
        return False


def settings_for(model: IndexEmbedder, passage: int | None = None) -> Settings:
    """Return the settings of a new index: passages of this many tokens, or of 256, up to the model's limit."""
    if passage is not None and not 8 <= passage <= model.max_length:
        raise ConfigError(f"passages cannot have {passage:,} tokens", fix=f"choose from 8 to {model.max_length:,}")
    width = int(model.embed(["width"]).shape[1])
    folder = "" if model.path is None else str(model.path.absolute())
    return Settings(folder, model.identity, width, passage or min(DEFAULT_PASSAGE_TOKENS, model.max_length))


def require_same_model(settings: Settings, model: IndexEmbedder) -> None:
    """Raise ConfigError for a model that did not make the vectors of an index, because they could not be compared."""
    if settings.identity != model.identity:
        if model.path is None:
            fix = f"give it: `seqloom index {settings.model} FILE --out INDEX --add`"
            raise ConfigError("the index has vectors, so new documents need its model", fix=fix)
        if not settings.has_vectors:
            fix = "leave out the model, or build a new index with it"
            raise ConfigError(f"the index has no vectors for {model.path}: it was built without a model", fix=fix)
        made, asked = (
            f"{settings.model} (checksum {settings.identity[:12]})",
            f"{model.path} (checksum {model.identity[:12]})",
        )
        fix = "give the original model, or build the index again"
        raise ConfigError(f"the index was built with {made}, but {asked} is a different model", fix=fix)


class HashedWordVectors:
    """Vectors without a model: hashed bags of words, weighted by inverse document frequency.

    Each word adds its weight, with a sign, to one of 512 dimensions; both come from its hash (Weinberger et al. 2009).
    The weight is log((1 + N) / (1 + n)) + 1 over the given texts, so texts that share rare words are close. A trained
    model is better, but this needs none.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = len(texts)
        self.counts = Counter(word for text in texts for word in set(words_of(text)))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[N,512] float32 unit vectors; zeros for a text without words."""
        vectors = np.zeros((len(texts), WIDTH), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in set(words_of(text)):
                number = zlib.crc32(word.encode("utf-8", "surrogatepass"))
                weight = float(np.log((1 + self.texts) / (1 + self.counts[word]))) + 1
                vector[number % WIDTH] += weight * (1 if number >> 31 else -1)
        return unit_vectors(vectors)


def embed_texts(texts: Sequence[str], model: SupportsEmbed) -> Work[np.ndarray]:
    """Compute unit vectors [N,W] of texts in float32."""
    vectors = np.empty((0, 1), np.float32)
    for start in range(0, len(texts), BATCH_SIZE):
        made = unit_vectors(model.embed(texts[start : start + BATCH_SIZE]))
        if not start:
            vectors = np.empty((len(texts), made.shape[1]), np.float32)
        vectors[start : start + BATCH_SIZE] = made
        yield Progress("texts embedded", start + len(made), len(texts))
    return vectors


class NearestPassages(NamedTuple):
    """Passages by number, nearest first, and their similarities."""

    passages: np.ndarray  # [n] int64
    scores: np.ndarray  # [n] float32


class PassageSearch(Protocol):
    """Anything that finds the nearest passages."""

    def nearest(self, query: np.ndarray, allowed: np.ndarray, count: int) -> NearestPassages:
        """Return the `count` nearest of the allowed passages [N], or all if there are fewer."""


def best(numbers: np.ndarray, scores: np.ndarray, count: int) -> NearestPassages:
    """Return the `count` highest scores, highest first; ties go to the smaller number.

    >>> best(np.array([5, 6, 7]), np.array([0.5, 0.9, 0.5]), 2).passages.tolist()
    [6, 5]
    """
    if len(scores) > 2 * count + LEAST_WALK:  # sorting is faster for few
        least = np.partition(scores, -count)[-count]
        numbers, scores = numbers[scores >= least], scores[scores >= least]
    order = np.lexsort((numbers, -scores))[:count]
    return NearestPassages(numbers.take(order), scores.take(order))


class ExactSearch:
    """Compares every passage: all vectors [N,W] are in memory."""

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors

    def nearest(self, query: np.ndarray, allowed: np.ndarray, count: int) -> NearestPassages:
        """Return the nearest of all allowed passages."""
        numbers = np.flatnonzero(allowed)
        return best(numbers, (self.vectors @ query)[numbers], count)


class GraphSearch:
    """Finds passages with a graph; passages newer than the graph are compared exactly."""

    def __init__(self, walk: Any, exact: ExactSearch) -> None:
        self.walk, self.exact = walk, exact
        self.covered = len(walk)

    def nearest(self, query: np.ndarray, allowed: np.ndarray, count: int) -> NearestPassages:
        """Return the nearest passages that a graph search finds; compare all if it finds too few that are allowed."""
        found = self._walked(query, allowed, count)
        if found is None:
            return self.exact.nearest(query, allowed, count)
        scores = self.exact.vectors.take(found, 0).dot(query)
        if self.covered < len(allowed):
            later = np.flatnonzero(allowed[self.covered :])
            scores = np.concatenate([scores, (self.exact.vectors[self.covered :] @ query)[later]])
            found = np.concatenate([found, later + self.covered])
        return best(found, scores, count)

    def _walked(self, query: np.ndarray, allowed: np.ndarray, count: int) -> np.ndarray | None:
        """Return the allowed passages that may be among the nearest; None if the search finds too few."""
        wide = max(LEAST_WALK, 2 * count)
        for _ in range(TRIES):
            if 4 * wide > self.covered:
                break
            met = self.walk.search(query, wide, threads=1)  # it keeps at least as many candidates
            numbers, distances = met.keys.view(np.int64), met.distances
            near = _perhaps(numbers, distances, count)
            if count <= len(near) == np.count_nonzero(allowed.take(near)):  # the usual case: the rest is not needed
                return near
            here = allowed.take(numbers)
            numbers, distances = numbers[here], distances[here]
            if len(numbers) < count:  # maybe there are no more
                count = min(count, int(np.count_nonzero(allowed[: self.covered])))
            if len(numbers) >= count:
                return _perhaps(numbers, distances, count)
            wide *= 4
        return None


def _perhaps(numbers: np.ndarray, distances: np.ndarray, count: int) -> np.ndarray:
    """Return the numbers, nearest first, that exact distances may put among the first `count`."""
    if not 0 < count <= len(numbers):
        return numbers[:0]
    return numbers[: distances.searchsorted(distances[count - 1] + HALF, "right")]


def grow_graph(kept: bytes | None, vectors: np.ndarray, stage: str) -> Work[Any]:
    """Build a graph over vectors, or extend the `kept` one; `stage` names its progress.

    It uses one thread in the order of the passages, so the same vectors give the same bytes.
    """
    with needing("search"):
        from usearch.index import Index
    if kept is not None:
        walk = open_graph(kept)
    else:
        walk = Index(ndim=vectors.shape[1], metric="ip", dtype="f16", expansion_search=LEAST_WALK)
    for start in range(len(walk), len(vectors), STEP):
        some = vectors[start : start + STEP]
        walk.add(np.arange(start, start + len(some)), some, threads=1)
        yield Progress(stage, len(walk), len(vectors))
    return walk


def open_graph(kept: bytes) -> Any:
    """Load a graph from its bytes."""
    with needing("search"):
        from usearch.index import Index
    walk: Any = Index.restore(kept)
    if walk is None:
        raise DataError("the graph cannot be read", fix="build the index again")
    walk.expansion_search = LEAST_WALK  # not stored in the bytes
    return walk
