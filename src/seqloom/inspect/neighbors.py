"""Neighbours in context: one word in several sentences, and the tokens whose vectors are nearest to it there.

    static        the vector of the word before any layer: the same in every sentence
    contextual    that behind a layer: "bank" by the river and "bank" with the money move apart

A word of several pieces has the mean of their vectors. The vectors of a layer often share a direction, so that even
words with nothing in common are alike (Ethayarajh 2019): the mean cosine of all pairs stands beside every number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from seqloom.errors import DataError, did_you_mean
from seqloom.inspect.attribution.attribution import merged
from seqloom.inspect.attribution.goals import ground_of, places_of
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
    """A word where it stands."""

    sentence: int
    number: int  # among the words of its sentence
    text: str
    context: str  # as it was written, with some words around it


class Neighbour(NamedTuple):
    """An occurrence and how near it is to the word that was asked for."""

    at: Occurrence
    contextual: float
    static: float


@dataclass(frozen=True, kw_only=True)
class NeighboursView(View):
    """Where a word stands, how alike its vectors are there, and what is nearest to the first of them."""

    kind: ClassVar[str] = "neighbours"
    word: str
    layer: str
    occurrences: tuple[Occurrence, ...]  # of the word, the first being the one whose neighbours are asked for
    contextual: np.ndarray  # [N,N] cosines between them, behind the layer
    static: np.ndarray  # [N,N] the same of the vectors before any layer
    nearest: tuple[Neighbour, ...]  # other words, the nearest in context first
    usual: float  # the mean contextual cosine of two different places
    usual_static: float
    sentence: tuple[str, ...]  # the words of the first occurrence's sentence
    alike: np.ndarray  # [W] how near each of them is to it, in context

    def figures(self) -> tuple[Figure, ...]:
        found: list[Figure] = []
        if len(self.sentence) <= MEDIUM:
            title, label = f"{self.title}: its own sentence", f"cosine with “{self.word}”"
            found.append(Strip(title=title, tokens=self.sentence, values=self.alike.tolist(), value_label=label))
        if len(self.occurrences) > 1:
            found.append(self._table("Static vectors of", self.static))
            found.append(self._table("Vectors in context of", self.contextual))
        bars = Bars(
            title=f"{self.title}: the nearest in context",
            caption=f"Two places have a cosine of {number(self.usual)} on average.",
            labels=[_labelled(each.at) for each in self.nearest],
            values=[each.contextual for each in self.nearest],
            x_label="cosine",
        )
        return (*found, bars)

    def _sentences(self) -> tuple[str, ...]:
        said = [
            f"Two places have a cosine of {number(self.usual)} on average behind {self.layer}, "
            f"and of {number(self.usual_static)} before all layers."
        ]
        if len(self.occurrences) > 1:
            least = 1 + int(self.contextual[0, 1:].argmin())
            said.append(
                f"“{self.word}” stands in {len(self.occurrences)} places; from the first to the one that is least like "
                f"it the cosine is {number(self.contextual[0, least])} in context, "
                f"and {number(self.static[0, least])} without."
            )
        shown = self.occurrences[:MOST_OCCURRENCES]
        return (*said, *(f"Sentence {each.sentence}, word {each.number}: {each.context}" for each in shown))

    def _table(self, title: str, values: np.ndarray) -> Figure:
        names = [_labelled(each) for each in self.occurrences[:MOST_OCCURRENCES]]
        shown = values[:MOST_OCCURRENCES, :MOST_OCCURRENCES].tolist()
        return Matrix(
            title=f"{title} “{self.word}”: cosines", rows=names, columns=names, values=shown, span=(-1.0, 1.0)
        )


def _labelled(each: Occurrence) -> str:
    """The word last: what runs from right to left then moves nothing that follows it."""
    return f"{each.sentence}.{each.number} {each.text}"


def neighbours(
    subject: Subject,
    readings: Sequence[Reading],
    *,
    word: str | int,
    sentence: int = 0,
    layer: int | str | None = None,
    most: int = 12,
) -> NeighboursView:
    """What is nearest to a word of one of some sentences, among the words of all of them, behind a layer.

    `word` is its text or its number among the words of `sentence`; its other places are those with the same text.
    """
    if not 0 <= sentence < len(readings):
        raise DataError(f"there is no sentence {sentence}", fix=f"they are numbered from 0 to {len(readings) - 1}")
    if any(place.shape is not None for reading in readings for place in places_of(reading)):
        raise DataError("a picture has no words to have neighbours", fix="look at its attribution, or activation_maps")
    states = state_places(subject.model, readings[sentence], None)
    required(states, subject.model, "layers", "its vectors are the same in every sentence")
    path = chosen({place.path: place for place in states}, layer, "layers").path
    occurrences, static, contextual = _words(subject, readings, path)
    first = _place(occurrences, sentence, word)
    text = occurrences[first].text
    same = [first, *(at for at, each in enumerate(occurrences) if at != first and _alike(each.text, text))]
    near, plain = contextual @ contextual[first], static @ static[first]
    order = [int(at) for at in np.argsort(-near, kind="stable") if at != first][:most]
    mine = [at for at, each in enumerate(occurrences) if each.sentence == sentence]
    return NeighboursView(
        title=f"The word “{text}” in sentence {sentence}",
        word=text,
        layer=path,
        occurrences=tuple(occurrences[at] for at in same),
        contextual=_cosines(contextual[same]),
        static=_cosines(static[same]),
        nearest=tuple(Neighbour(occurrences[at], float(near[at]), float(plain[at])) for at in order),
        usual=_usual(contextual),
        usual_static=_usual(static),
        sentence=tuple(occurrences[at].text for at in mine),
        alike=near[mine],
    )


def _place(occurrences: Sequence[Occurrence], sentence: int, word: str | int) -> int:
    mine = [at for at, each in enumerate(occurrences) if each.sentence == sentence]
    if isinstance(word, int):
        if not 0 <= word < len(mine):
            raise DataError(f"there is no word {word} in the sentence", fix=f"it has the words 0 to {len(mine) - 1}")
        return mine[word]
    fitting = [at for at in mine if _alike(occurrences[at].text, word)]
    if not fitting and word.isdecimal():  # as it is typed
        return _place(occurrences, sentence, int(word))
    if not fitting:
        raise DataError(
            f"no word of sentence {sentence} reads '{word}'",
            fix=did_you_mean(word, {occurrences[at].text for at in mine}),
        )
    return fitting[0]


def _alike(one: str, other: str) -> bool:
    return one.strip().casefold() == other.strip().casefold()


def _usual(vectors: np.ndarray) -> float:
    """The mean cosine of two different ones: |sum of them|^2 counts every pair twice and each with itself once."""
    count = len(vectors)
    total = float(np.square(vectors.sum(axis=0)).sum())
    own = float(np.square(vectors).sum())
    return (total - own) / (count * (count - 1)) if count > 1 else 1.0


def _words(subject: Subject, readings: Sequence[Reading], path: str) -> tuple[list[Occurrence], np.ndarray, np.ndarray]:
    """All words of some sentences, with their static and contextual vectors, [N,D] of length one."""
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
            f"{len(occurrences):,} words were given", fix=f"give at most {MOST_VECTORS:,}, or search an index of them"
        )
    return occurrences, _unit(np.concatenate(static)), _unit(np.concatenate(contextual))


def _means(vectors: torch.Tensor, starts: Sequence[int]) -> np.ndarray:
    """[W,D] the mean over the pieces of each word."""
    values = vectors.double().cpu().numpy()
    sizes = np.diff([*starts, len(values)])
    found: np.ndarray = np.add.reduceat(values, starts) / sizes[:, None]
    return found


def _unit(vectors: np.ndarray) -> np.ndarray:
    found: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), SMALLEST)
    return found


def _cosines(vectors: np.ndarray) -> np.ndarray:
    """[N,N] of vectors of length one; rounding leaves none beyond 1."""
    found: np.ndarray = np.clip(vectors @ vectors.T, -1.0, 1.0)
    return found
