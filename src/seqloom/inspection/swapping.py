"""What changes when one word is another (he / she), or when the model is edited: the answers, and any view beside them.

The distance of two answers is the total variation TVD = 1/2 sum |p - q| where they are distributions (Jain and Wallace
2019), else the largest change of a number.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from seqloom.data.examples import Words
from seqloom.errors import DataError, did_you_mean
from seqloom.figures import Bars, Figure, Line, Series, Strip
from seqloom.figures.markup import Markup, tag
from seqloom.inspection.asking import read, scores
from seqloom.inspection.curves import blocks_of
from seqloom.inspection.differences import DifferenceView, changed, difference
from seqloom.inspection.flow import still
from seqloom.inspection.subject import Reading, Subject
from seqloom.inspection.view import MEDIUM, View

Look = Callable[[Subject, Reading], View]
SHOWN = 12  # answers of one row
POINTS = 200


@dataclass(frozen=True, kw_only=True)
class ChangeView(View):
    """The answers before and after, and the differences of other views."""

    kind: ClassVar[str] = "change"
    what: str  # was done, in words
    rows: tuple[str, ...]  # what each answer is about; those of before
    said: tuple[tuple[str, str], ...]  # of each row the likeliest answer before and after
    distance: np.ndarray  # [R] TVD, or the largest change of a number
    row: int  # the row that is shown in full: the one that changed most
    answers: tuple[tuple[str, float, float], ...]  # of that row, those that changed most
    differences: tuple[DifferenceView, ...]

    @property
    def flipped(self) -> tuple[int, ...]:
        """The rows whose likeliest answer is another."""
        return tuple(number for number, (before, after) in enumerate(self.said) if before != after)

    def figures(self) -> tuple[Figure, ...]:
        bars = [self._bars("before", 1), self._bars("after", 2)]
        along = [] if len(self.rows) == 1 else [self._strip() if len(self.rows) <= MEDIUM else self._curve()]
        return (*bars, *along, *(figure for one in self.differences for figure in one.figures()))

    def sentences(self) -> tuple[str, ...]:
        rows = len(self.rows)
        told = [f"{self.what}: {len(self.flipped)} of {rows} answers changed, at most by {self.distance.max():.4f}."]
        for at in self.flipped[:SHOWN]:
            told.append(f"“{self.rows[at]}” ({at}): {self.said[at][0]} became {self.said[at][1]}.")
        return (*told, *(sentence for one in self.differences for sentence in one.sentences()))

    def body(self) -> list[Markup]:
        return [tag("p", self.what), *super().body()]

    def _bars(self, when: str, place: int) -> Figure:
        labels = [answer[0] for answer in self.answers]
        values = [float(answer[place]) for answer in self.answers]
        where = "" if len(self.rows) == 1 else f" at “{self.rows[self.row]}” ({self.row})"
        return Bars(title=f"{self.what}: {when}{where}", labels=labels, values=values)

    def _strip(self) -> Figure:
        title = "How far each answer moved"
        return Strip(title=title, tokens=self.rows, values=self.distance.tolist(), value_label="distance")

    def _curve(self) -> Figure:
        blocks = blocks_of(self.distance, POINTS)
        series = [
            Series(name=f"mean of {blocks.size}", x=blocks.starts, y=blocks.mean),
            Series(name=f"maximum of {blocks.size}", x=blocks.starts, y=blocks.maximum),
        ]
        return Line(title="How far each answer moved", series=series, x_label="row", y_label="distance")


def swap(
    subject: Subject,
    reading: Reading,
    *,
    old: str,
    new: str,
    at: int | None = None,
    looks: Sequence[Look] = (),
) -> ChangeView:
    """What changes when a word is replaced: the answers, and each of the views that `looks` give."""
    given = replaced(reading.given, old, new, at=at)
    other = read(subject, given)
    differences = tuple(changed(lambda one, look=look: look(subject, one), reading, other) for look in looks)  # type: ignore[misc]
    before, after = _answers(subject, reading), _answers(subject, other)
    return _view(subject, reading, f"“{old}” becomes “{new}”", before, after, differences)


def edited(
    subject: Subject,
    reading: Reading,
    edit: AbstractContextManager[Any],
    *,
    what: str = "The model is edited",
    looks: Sequence[Look] = (),
) -> ChangeView:
    """What changes while an edit lasts: the answers, and each of the views that `looks` give."""
    before, views = _answers(subject, reading), [look(subject, reading) for look in looks]
    with edit:
        after = _answers(subject, reading)
        others = [look(subject, reading) for look in looks]
    return _view(subject, reading, what, before, after, tuple(map(difference, views, others)))


@torch.no_grad()
def _answers(subject: Subject, reading: Reading) -> np.ndarray:
    """[R,K] probabilities where the answers of a row exclude each other, else the scores."""
    with still(subject.model):
        found = scores(subject, reading.inputs)[0].double()
    return (found.softmax(dim=-1) if _exclusive(subject, reading) else found).cpu().numpy()


def _exclusive(subject: Subject, reading: Reading) -> bool:
    return reading.said is not None or subject.task.meaning.schema.target in ONE_OF_SEVERAL


ONE_OF_SEVERAL = ("label", "tags", "masked")  # targets of which one answer is right in each row


def _view(
    subject: Subject,
    reading: Reading,
    what: str,
    before: np.ndarray,
    after: np.ndarray,
    differences: tuple[DifferenceView, ...],
) -> ChangeView:
    count = min(len(before), len(after))  # a text that has grown has rows that were not there before
    before, after = before[:count], after[:count]
    moved = np.abs(after - before)
    distance = moved.sum(axis=1) / 2 if _exclusive(subject, reading) else moved.max(axis=1)
    row = int(distance.argmax())
    most = np.argsort(-np.maximum(moved[row], moved[row].max() * (before[row] == before[row].max())), kind="stable")
    said = zip(before.argmax(axis=1).tolist(), after.argmax(axis=1).tolist(), strict=True)
    return ChangeView(
        title=what,
        what=what,
        rows=reading.rows[:count],
        said=tuple((subject.name(one), subject.name(other)) for one, other in said),
        distance=distance,
        row=row,
        answers=tuple((subject.name(int(k)), float(before[row, k]), float(after[row, k])) for k in most[:SHOWN]),
        differences=differences,
    )


def replaced(given: Any, old: str, new: str, *, at: int | None = None) -> Any:
    """The same input with another word: in its only place, or the place of that number, from 0.

    >>> replaced("he said that she saw", "he", "she")
    'she said that she saw'
    """
    if isinstance(given, str):
        return _in_text(given, old, new, at)
    if isinstance(given, tuple) and not isinstance(given, Words):  # two texts: the first that has it
        number = next((one for one, text in enumerate(given) if _places(text, old)), 0)
        return (*given[:number], _in_text(given[number], old, new, at), *given[number + 1 :])
    if not isinstance(given, Words | list):
        raise DataError(f"there are no words in {type(given).__name__}", fix="swap words of a text")
    words = given.words() if isinstance(given, Words) else given
    places = [number for number, word in enumerate(words) if word == old]
    place = _one(places, old, at, words)
    return [*words[:place], new, *words[place + 1 :]]


def _places(text: str, old: str) -> list[tuple[int, int]]:
    return [found.span() for found in re.finditer(rf"(?<!\w){re.escape(old)}(?!\w)", text)] if old else []


def _in_text(text: str, old: str, new: str, at: int | None) -> str:
    spans = _places(text, old)
    start, stop = spans[_one(list(range(len(spans))), old, at, text.split())]
    return text[:start] + new + text[stop:]


def _one(places: Sequence[int], old: str, at: int | None, words: Sequence[str]) -> int:
    if not places:
        raise DataError(f"the word '{old}' does not stand in the text", fix=did_you_mean(old, set(words)))
    if at is None and len(places) > 1:
        raise DataError(
            f"'{old}' stands in {len(places)} places", fix=f"say which with at=0 to {len(places) - 1}, from the left"
        )
    if at is not None and not 0 <= at < len(places):
        raise DataError(f"there is no '{old}' number {at}", fix=f"choose 0 to {len(places) - 1}")
    return places[at or 0]
