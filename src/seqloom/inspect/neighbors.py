"""Nearest neighbors of a word in context, and the similarity of its occurrences.

    static        the vector of the word before the first layer: the same in every sentence
    contextual    the vector after a layer: "bank" of a river and "bank" with money become different

A word of several tokens has the mean of their vectors. Contextual vectors often share a common direction, so that even
unrelated words are similar (Ethayarajh 2019): compare each cosine with the mean cosine of all pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from seqloom.errors import DataError, did_you_mean
from seqloom.inspect.attribution.attribution import merged
from seqloom.inspect.attribution.goals import ground_of, places_of
from seqloom.inspect.layer_names import layer_title
from seqloom.inspect.layers import chosen, heard, required, state_places
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import MEDIUM, View
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.matrix import Matrix
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import number

MOST_OCCURRENCES = 24  # rows of a table of cosines
MOST_VECTORS = 20_000  # words that are compared with one another
AROUND = 6  # words of a context on each side
SMALLEST = 1e-12


class Occurrence(NamedTuple):
    """A word at one position."""

    sentence: int
    number: int  # index in its sentence
    text: str
    context: str  # with some words around it


class Neighbor(NamedTuple):
    """An occurrence and its similarity to the word."""

    at: Occurrence
    contextual: float
    static: float


@dataclass(frozen=True, kw_only=True)
class NeighborsView(View):
    """The occurrences of a word, their similarities, and the nearest neighbors of the first one."""

    kind: ClassVar[str] = "neighbors"
    word: str
    layer: str
    occurrences: tuple[Occurrence, ...]  # of the word; the neighbors are those of the first
    contextual: np.ndarray  # [N,N] cosines after the layer
    static: np.ndarray  # [N,N] cosines before any layer
    nearest: tuple[Neighbor, ...]  # other words, nearest first
    mean_cosine: float  # mean contextual cosine of two different words
    mean_static_cosine: float
    sentence: tuple[str, ...]  # words of the sentence of the first occurrence
    similarities: np.ndarray  # [W] cosine of each of them with it, in context

    def figures(self) -> tuple[Figure, ...]:
        found: list[Figure] = []
        if len(self.sentence) <= MEDIUM:
            title, label = f"{self.title}: similarity within its sentence", f"cosine with “{self.word}”"
            found.append(Strip(title=title, tokens=self.sentence, values=self.similarities.tolist(), value_label=label))
        if len(self.occurrences) > 1:
            found.append(self._table("Static embeddings of", self.static))
            found.append(self._table("Contextual embeddings of", self.contextual))
        bars = Bars(
            title=f"{self.title}: nearest neighbors",
            caption=f"Mean cosine of two words: {number(self.mean_cosine)}.",
            labels=[_labeled(each.at) for each in self.nearest],
            values=[each.contextual for each in self.nearest],
            x_label="cosine",
        )
        return (*found, bars)

    def _sentences(self) -> tuple[str, ...]:
        sentences = [
            f"Mean cosine of two words: {number(self.mean_cosine)} after {layer_title(self.layer)}, "
            f"{number(self.mean_static_cosine)} before the first layer."
        ]
        if len(self.occurrences) > 1:
            least = 1 + int(self.contextual[0, 1:].argmin())
            sentences.append(
                f"“{self.word}” occurs {len(self.occurrences)} times; cosine of the first and the least similar one: "
                f"{number(self.contextual[0, least])} in context, "
                f"{number(self.static[0, least])} without context."
            )
        shown = self.occurrences[:MOST_OCCURRENCES]
        return (*sentences, *(f"Sentence {each.sentence}, word {each.number}: {each.context}" for each in shown))

    def _table(self, title: str, values: np.ndarray) -> Figure:
        names = [_labeled(each) for each in self.occurrences[:MOST_OCCURRENCES]]
        shown = values[:MOST_OCCURRENCES, :MOST_OCCURRENCES].tolist()
        return Matrix(
            title=f"{title} “{self.word}”: cosines", rows=names, columns=names, values=shown, span=(-1.0, 1.0)
        )


def _labeled(each: Occurrence) -> str:
    """Return context and word, the word last, so that right-to-left text does not move what follows it."""
    return f"{each.sentence}.{each.number} {each.text}"


def neighbors(
    subject: Subject,
    readings: Sequence[Reading],
    *,
    word: str | int,
    sentence: int = 0,
    layer: int | str | None = None,
    top_k: int = 12,
) -> NeighborsView:
    """The nearest neighbors of a word among the words of all sentences, by cosine after a layer.

    Args:
        word: The word, by its text or its number in the sentence.
        sentence: Number of the sentence that has the word.
        layer: Number or path of the layer (default: the last).
        top_k: Number of neighbors.
    """
    if not 0 <= sentence < len(readings):
        raise DataError(f"there is no sentence {sentence}", fix=f"choose 0 to {len(readings) - 1}")
    if any(place.shape is not None for reading in readings for place in places_of(reading)):
        raise DataError("an image has no words", fix="choose attribution or activation_maps")
    states = state_places(subject.model, readings[sentence], None)
    required(states, subject.model, "layers", "its word vectors do not depend on the context")
    path = chosen({place.path: place for place in states}, layer, "layers").path
    occurrences, static, contextual = _words(subject, readings, path)
    first = _place(occurrences, sentence, word)
    text = occurrences[first].text
    same = [first, *(at for at, each in enumerate(occurrences) if at != first and _alike(each.text, text))]
    near, plain = contextual @ contextual[first], static @ static[first]
    order = [int(at) for at in np.argsort(-near, kind="stable") if at != first][:top_k]
    mine = [at for at, each in enumerate(occurrences) if each.sentence == sentence]
    return NeighborsView(
        title=f"The word “{text}” in sentence {sentence}",
        word=text,
        layer=path,
        occurrences=tuple(occurrences[at] for at in same),
        contextual=_cosines(contextual[same]),
        static=_cosines(static[same]),
        nearest=tuple(Neighbor(occurrences[at], float(near[at]), float(plain[at])) for at in order),
        mean_cosine=_mean_cosine(contextual),
        mean_static_cosine=_mean_cosine(static),
        sentence=tuple(occurrences[at].text for at in mine),
        similarities=near[mine],
    )


def _place(occurrences: Sequence[Occurrence], sentence: int, word: str | int) -> int:
    mine = [at for at, each in enumerate(occurrences) if each.sentence == sentence]
    if isinstance(word, int):
        if not 0 <= word < len(mine):
            raise DataError(f"there is no word {word} in the sentence", fix=f"choose 0 to {len(mine) - 1}")
        return mine[word]
    fitting = [at for at in mine if _alike(occurrences[at].text, word)]
    if not fitting and word.isdecimal():  # from the command line
        return _place(occurrences, sentence, int(word))
    if not fitting:
        raise DataError(
            f"sentence {sentence} has no word '{word}'",
            fix=did_you_mean(word, {occurrences[at].text for at in mine}),
        )
    return fitting[0]


def _alike(one: str, other: str) -> bool:
    return one.strip().casefold() == other.strip().casefold()


def _mean_cosine(vectors: np.ndarray) -> float:
    """The mean cosine of two different vectors: |sum|^2 counts every pair twice and each vector once."""
    count = len(vectors)
    total = float(np.square(vectors.sum(axis=0)).sum())
    own = float(np.square(vectors).sum())
    return (total - own) / (count * (count - 1)) if count > 1 else 1.0


def _words(subject: Subject, readings: Sequence[Reading], path: str) -> tuple[list[Occurrence], np.ndarray, np.ndarray]:
    """All words of the sentences, with their static and contextual unit vectors [N,D]."""
    occurrences: list[Occurrence] = []
    static, contextual = [], []
    for sentence, reading in enumerate(readings):
        place = ground_of(subject, reading, "zero")
        tokens, starts = merged(place.places[0].tokens)
        real = [at for at, token in enumerate(tokens) if not token.is_special]
        (states, *_) = heard(subject, reading, [path])[path]
        static.append(_means(place.here[0], starts)[real])
        contextual.append(_means(states[0], starts)[real])
        words, text = [tokens[at] for at in real], place.places[0].text
        for at, word in enumerate(words):
            around = words[max(0, at - AROUND) : at + AROUND + 1]
            near = (one.text.strip() for one in around)
            context = near if text is None else text[around[0].start : around[-1].stop].split()
            occurrences.append(Occurrence(sentence, at, word.text.strip(), " ".join(context)))
    if len(occurrences) > MOST_VECTORS:
        raise DataError(
            f"{len(occurrences):,} words are too many", fix=f"give at most {MOST_VECTORS:,}, or use `seqloom index`"
        )
    return occurrences, _unit(np.concatenate(static)), _unit(np.concatenate(contextual))


def _means(vectors: torch.Tensor, starts: Sequence[int]) -> np.ndarray:
    """[W,D] the mean over the tokens of each word."""
    values = vectors.double().cpu().numpy()
    sizes = np.diff([*starts, len(values)])
    found: np.ndarray = np.add.reduceat(values, starts) / sizes[:, None]
    return found


def _unit(vectors: np.ndarray) -> np.ndarray:
    found: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), SMALLEST)
    return found


def _cosines(vectors: np.ndarray) -> np.ndarray:
    """[N,N] the cosines of unit vectors, clipped to 1."""
    found: np.ndarray = np.clip(vectors @ vectors.T, -1.0, 1.0)
    return found
