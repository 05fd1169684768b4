"""What search asks of a model: a vector for a text, and how long a text is to it.

Vectors of texts without a model: which words they have, rare ones counting more, in a few hundred numbers.

Each word adds its weight to one of 512 places, with a sign, both found by hashing it (Weinberger and others 2009);
its weight is the inverse document frequency log((1 + N) / (1 + n)) + 1 in the texts. So texts that share rare words
are near one another. A model that knows meanings is better; this one is always there.
"""

import zlib
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from seqloom.errors import ConfigError
from seqloom.search.bm25 import words_of
from seqloom.search.similarity import MakesVectors
from seqloom.search.store import Settings
from seqloom.search.vectors import unit

if TYPE_CHECKING:
    from seqloom.inference.model import LoadedModel

USUAL = 256  # symbols of a passage: what most models of sentences were trained on


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
