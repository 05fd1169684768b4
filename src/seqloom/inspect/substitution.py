"""What changes when one word is another (he / she), or when the model is edited: the answers, and any view beside them.

The distance of two answers is the total variation TVD = 1/2 sum |p - q| where they are distributions (Jain and Wallace
2019), else the largest change of a number. A text that has grown or shrunk is brought together by what stands around
the change, as its views are (`seqloom.inspect.differences`); a translation has the same target both times.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.data.kinds.words import Words
from seqloom.errors import DataError, did_you_mean
from seqloom.inspect.differences import DifferenceAxis, DifferenceView, difference, paired, taken
from seqloom.inspect.flow import still
from seqloom.inspect.readings import read, scores, scores_of_both
from seqloom.inspect.subject import Reading, Subject, decided, likelihoods
from seqloom.inspect.view import MEDIUM, View, blocks_of
from seqloom.nn.types import Pair
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import counted, number
from seqloom.text.special_tokens import UNKNOWN

Look = Callable[[Subject, Reading], View]
SHOWN = 12  # answers of one row
POINTS = 200


@dataclass(frozen=True, kw_only=True)
class ChangeView(View):
    """The answers before and after, and the differences of other views."""

    kind: ClassVar[str] = "change"
    what: str  # was done, in words
    rows: tuple[str, ...]  # what each answer is about, before → after where these differ
    said: tuple[tuple[str, str], ...]  # of each row the answer before and after, ∅ where the row was not there
    distance: np.ndarray  # [R] TVD, or the largest change of a number; NaN where one of the two is not there
    row: int  # the row that is shown in full: the one that changed most
    answers: tuple[tuple[str, float, float], ...]  # of that row, those that changed most
    differences: tuple[DifferenceView, ...]
    remark: str = ""  # that nothing could change, and why

    @property
    def flipped(self) -> tuple[int, ...]:
        """The rows whose answer is another; a row that was not there before, or is no more, is none of them."""
        there = ~np.isnan(self.distance)
        return tuple(at for at, (before, after) in enumerate(self.said) if there[at] and before != after)

    def figures(self) -> tuple[Figure, ...]:
        bars = [self._bars("before", 1), self._bars("after", 2)]
        along = [] if len(self.rows) == 1 else [self._strip() if len(self.rows) <= MEDIUM else self._curve()]
        return (*bars, *along, *(figure for one in self.differences for figure in one.figures()))

    def _sentences(self) -> tuple[str, ...]:
        rows, most = int((~np.isnan(self.distance)).sum()), np.nanmax(self.distance)
        because = f": {self.remark}" if self.remark else ""
        moved = f"{len(self.flipped)} of {counted(rows, 'answer')} changed, at most by {number(most)}{because}"
        told = [f"{self.what}: {moved}."]
        for at in self.flipped[:SHOWN]:
            told.append(f"“{self.rows[at]}” ({at}): {self.said[at][0]} became {self.said[at][1]}.")
        return (*told, *(sentence for one in self.differences for sentence in one.sentences()))

    def _bars(self, when: str, place: int) -> Figure:
        labels = [answer[0] for answer in self.answers]
        values = [float(answer[place]) for answer in self.answers]
        where = "" if len(self.rows) == 1 else f" at “{self.rows[self.row]}” ({self.row})"
        return Bars(title=f"{self.what}: {when}{where}", labels=labels, values=values)

    def _strip(self) -> Figure:
        title = "How far each answer moved"
        values = [None if np.isnan(value) else float(value) for value in self.distance]
        return Strip(title=title, tokens=self.rows, values=values, value_label="distance")

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
    if old == new:
        raise DataError(f"'{old}' is swapped for itself", fix="give another word")
    other = read_again(subject, reading, replaced(reading.given, old, new, at=at))
    with subject.work("views beside it", 2) as moved:
        views = _seen(subject, reading, looks)
        moved(1)
        differences = tuple(map(difference, views, _seen(subject, other, looks)))
        moved(1)
    before, after = scores_of_both(subject, reading, other)
    answers = _answered(subject, reading, before), _answered(subject, other, after)
    rows = paired(reading.rows, other.rows)
    found = _view(subject, f"“{old}” becomes “{new}”", rows, answers, differences)
    return with_remark(found, reading, other)


def edited(
    subject: Subject,
    reading: Reading,
    edit: AbstractContextManager[Any],
    *,
    what: str = "The model is edited",
    looks: Sequence[Look] = (),
) -> ChangeView:
    """What changes while an edit lasts: the answers, and each of the views that `looks` give."""
    before = _answers(subject, reading)
    with subject.work("answers", 2) as moved:
        views = _seen(subject, reading, looks)
        moved(1)
        with edit:
            after = _answers(subject, reading)
            others = _seen(subject, reading, looks)
        moved(1)
    differences = tuple(map(difference, views, others))
    return _view(subject, what, paired(reading.rows, reading.rows), (before, after), differences)


def _seen(subject: Subject, reading: Reading, looks: Sequence[Look]) -> list[View]:
    found = list[View]()
    with subject.work("looks", len(looks)) as moved:
        for look in looks:
            found.append(look(subject, reading))
            moved(1)
    return found


def with_remark(view: ChangeView, before: Reading, after: Reading) -> ChangeView:
    """The view, and where nothing changed since two inputs are the same to the model, that they are.

    To a model that reads letters an unknown word is more than its symbol: so the answers are looked at too.
    """
    both = [list(zip_longest(*(side.tokens for side in pair))) for pair in zip(before.sides, after.sides, strict=True)]
    pairs = [pair for side in both for pair in side]
    if view.distance.any() or any(None in pair or pair[0].symbol != pair[1].symbol for pair in pairs):
        return view
    others = [token for pair in pairs if pair[0].text != pair[1].text for token in pair]
    if not others or any(token.symbol is None for token in others):
        return view
    words = [f"“{token.text}”" for token in others if token.symbol == UNKNOWN]
    why = f", since {' and '.join(words[:2])} are unknown to the vocabulary" if words else ""
    return replace(view, remark=f"the model reads the same symbols both times{why}")


def read_again(subject: Subject, reading: Reading, given: Any) -> Reading:
    """Another input; of a translation the source, with the target that stood there before: else two things change."""
    if not isinstance(reading.inputs, Pair):
        return read(subject, given)
    other = read(subject, given, target="")  # a target at hand costs no search, and gives way to the one of before
    inputs = Pair(other.inputs.source, reading.inputs.target)
    return reading._replace(given=given, inputs=inputs, sides=(other.sides[0], *reading.sides[1:]))


class Answers(NamedTuple):
    """What a model answers to one input."""

    values: np.ndarray  # [R,K] probabilities where the answers of a row exclude each other, else the scores
    said: tuple[str, ...]  # [R] what it decides
    exclusive: bool


@torch.no_grad()
def _answers(subject: Subject, reading: Reading) -> Answers:
    with still(subject.model):
        return _answered(subject, reading, scores(subject, reading.inputs)[0])


def _answered(subject: Subject, reading: Reading, found: Tensor) -> Answers:
    """What scores [R,K] say."""
    found = found.double()
    exclusive = reading.said is not None or subject.task.meaning.schema.target.exclusive
    values = likelihoods(subject, found) if exclusive else found
    return Answers(values.cpu().numpy(), tuple(map(subject.name, decided(subject, found))), exclusive)


def _view(
    subject: Subject,
    what: str,
    rows: DifferenceAxis,
    both: tuple[Answers, Answers],
    differences: tuple[DifferenceView, ...],
) -> ChangeView:
    places = [[pair[when] for pair in rows.pairs] for when in (0, 1)]
    before, after = (taken(one.values, [where]) for one, where in zip(both, places, strict=True))
    said = [_said(one.said, where) for one, where in zip(both, places, strict=True)]
    moved = np.abs(after - before)
    distance = moved.sum(axis=1) / 2 if both[0].exclusive else moved.max(axis=1)
    row = int(np.nanargmax(distance))
    most = np.argsort(-np.maximum(moved[row], moved[row].max() * (before[row] == before[row].max())), kind="stable")
    return ChangeView(
        title=what,
        what=what,
        rows=rows.names,
        said=tuple(zip(*said, strict=True)),
        distance=distance,
        row=row,
        answers=tuple((subject.name(int(k)), float(before[row, k]), float(after[row, k])) for k in most[:SHOWN]),
        differences=differences,
    )


def _said(said: Sequence[str], places: Sequence[int | None]) -> list[str]:
    return ["∅" if place is None else said[place] for place in places]


def replaced(given: Any, old: str, new: str, *, at: int | None = None) -> Any:
    """The same input with another word: in its only place, or the place of that number, from 0.

    >>> replaced("he said that she saw", "he", "she")
    'she said that she saw'
    """
    if isinstance(given, str):
        return _in_text(given, old, new, at)
    has_words = isinstance(given, Words) or (
        isinstance(given, tuple | list) and all(isinstance(one, str) for one in given)
    )
    if not has_words:
        raise DataError(f"there are no words in this input, a {type(given).__name__}", fix="swap words of a text")
    if isinstance(given, tuple) and not isinstance(given, Words):  # two texts: the first that has it
        number = next((one for one, text in enumerate(given) if _places(text, old)), 0)
        return (*given[:number], _in_text(given[number], old, new, at), *given[number + 1 :])
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
