"""Predictions: what a model answers, as programs and as people read it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from seqloom.data.kinds.inputs.words import Words
from seqloom.data.tags import Span, spans
from seqloom.tasks.task import Prediction

SHOWN_NUMBERS = 6  # digits
SHOWN_OF_VECTOR = 4  # numbers


@dataclass(frozen=True)
class LabelPrediction(Prediction):
    """The likeliest label, and the probability of each."""

    label: str
    scores: dict[str, float]

    def shown(self) -> str:
        return self.label


@dataclass(frozen=True)
class LabelsPrediction(Prediction):
    """The labels that are more likely than not, and the probability of each."""

    labels: tuple[str, ...]
    scores: dict[str, float]

    def shown(self) -> str:
        return ", ".join(self.labels)


@dataclass(frozen=True)
class NumbersPrediction(Prediction):
    """One number or several."""

    numbers: tuple[float, ...]

    def shown(self) -> str:
        return numbers_shown(self.numbers)


@dataclass(frozen=True)
class SeriesPrediction(Prediction):
    """One number or several for each word or step."""

    series: tuple[tuple[float, ...], ...]

    def shown(self) -> str:
        return series_shown(self.series)


@dataclass(frozen=True)
class TagsPrediction(Prediction):
    """A tag for each word or step, and the spans that the tags mean, if they mean any.

    Where the text is known, spans are counted in its characters and quote it; else in words or steps.
    """

    tags: tuple[str, ...]
    marked: tuple[Span, ...] = ()
    words: Words | None = None

    @classmethod
    def of(cls, tags: tuple[str, ...], *, in_scheme: bool) -> "TagsPrediction":
        """The prediction of these tags; plain ones mark no spans."""
        return cls(tags, tuple(spans(tags)) if in_scheme else ())

    def located(self, given: Any) -> "TagsPrediction":
        """The same with the text that was tagged; vectors have none."""
        return replace(self, words=given) if isinstance(given, Words) else self

    def to_json(self) -> dict[str, Any]:
        """`tags`, and `spans` with start, end, label and, where it is known, text."""
        return {"tags": list(self.tags), "spans": [self._span(span) for span in self.marked]}

    def _span(self, span: Span) -> dict[str, Any]:
        if self.words is None:
            return {"start": span.start, "end": span.stop, "label": span.label}
        start, end = self.words.spans[span.start][0], self.words.spans[span.stop - 1][1]
        return {"start": start, "end": end, "label": span.label, "text": self.words.text[start:end]}

    def shown(self) -> str:
        """Each word with its tag, `Anna/B-PER sings/O`; where no words are known, the tags."""
        if self.words is None:
            return " ".join(self.tags)
        told = " ".join(f"{word}/{tag}" for word, tag in zip(self.words.words(), self.tags, strict=True))
        return " ".join(told.split())  # a list of words may hold line ends


@dataclass(frozen=True)
class TextPrediction(Prediction):
    """A text: a translation, or what follows a prompt."""

    text: str

    def shown(self) -> str:
        return " ".join(self.text.split())


@dataclass(frozen=True)
class Translation(TextPrediction):
    """The best text for a source, and the next best ones, where several were asked for."""

    score: float | None = None  # the higher the better, among the answers to one source
    others: tuple["Translation", ...] = ()  # the best first

    def to_json(self) -> dict[str, Any]:
        """`text`; where several were asked for, `score` and `others`, each with text and score."""
        score = {} if self.score is None else {"score": self.score}
        others = {"others": [other.to_json() for other in self.others]} if self.others else {}
        return {"text": self.text} | score | others


@dataclass(frozen=True, eq=False)
class VectorPrediction(Prediction):
    """The vector of a text, [D] float32."""

    vector: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """`vector`, a list of numbers."""
        return {"vector": self.vector.tolist()}

    def shown(self) -> str:
        first = numbers_shown(self.vector[:SHOWN_OF_VECTOR].tolist())
        return f"{first}, ..." if len(self.vector) > SHOWN_OF_VECTOR else first


def vectors_of(vectors: Tensor) -> list[VectorPrediction]:
    """The rows of vectors [N,D] as answers, in float32 on the host."""
    return [VectorPrediction(row) for row in vectors.detach().float().cpu().numpy()]


def numbers_shown(numbers: Iterable[float]) -> str:
    """Numbers for people.

    >>> numbers_shown((0.5, 1234.5678))
    '0.5, 1234.57'
    """
    return ", ".join(f"{number:.{SHOWN_NUMBERS}g}" for number in numbers)


def series_shown(series: Iterable[Iterable[float]]) -> str:
    """The numbers of steps for people.

    >>> series_shown(((0.5, 2.0), (1.0, 3.0)))
    '0.5, 2; 1, 3'
    """
    return "; ".join(numbers_shown(tuple(step)) for step in series)
