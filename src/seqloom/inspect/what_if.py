"""What if: another word, a head that finds nothing, a gate that stands still, a vector from another text.

Each tries one thing and shows what it changes: the answers, and the views that are named beside them.

    swap        one word is another                     clamp    a unit or a gate keeps one value
    ablate      a head, or all of a layer, is silent    patch    a vector comes from another input

The distance of two answers is the total variation TVD = 1/2 sum |p - q| where they are distributions (Jain and Wallace
2019), else the largest change of a number. A text that has grown or shrunk is brought together by what stands around
the change, as its views are (`seqloom.inspect.differences`); a translation has the same target both times.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ConfigError, DataError, did_you_mean
from seqloom.inspect import requirements
from seqloom.inspect.attention import attention
from seqloom.inspect.attribution.attribution import view_of
from seqloom.inspect.attribution.goals import chosen_goal, ground_of
from seqloom.inspect.attribution.methods import MethodOptions
from seqloom.inspect.differences import DifferenceAxis, DifferenceView, difference, paired, taken
from seqloom.inspect.edits import ablated, clamped, patched
from seqloom.inspect.flow import still
from seqloom.inspect.gates import gates
from seqloom.inspect.readings import read, scores, scores_of_both
from seqloom.inspect.states import states_beside
from seqloom.inspect.subject import Reading, Subject, decided, likelihoods
from seqloom.inspect.view import MEDIUM, View, blocks_line
from seqloom.nn.types import Pair
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import counted, number
from seqloom.text.special_tokens import UNKNOWN

Look = Callable[[Subject, Reading], View]
Place = TypeVar("Place")
SHOWN = 12  # answers of one row


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
        found: list[Figure] = [self._bars("before", 1), self._bars("after", 2)]
        title = "How far each answer moved"
        if 1 < len(self.rows) <= MEDIUM:
            found.append(Strip(title=title, tokens=self.rows, values=self.distance.tolist(), value_label="distance"))
        elif len(self.rows) > 1:
            found.append(blocks_line(self.distance, title=title, x_label="row", y_label="distance"))
        return (*found, *(figure for one in self.differences for figure in one.figures()))

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


def swapped(
    subject: Subject, reading: Reading, *, old: str, new: str, at: int | None = None, looks: Sequence[Look] = ()
) -> ChangeView:
    """What changes when a word is replaced: the answers, and each of the views that `looks` give."""
    if old == new:
        raise DataError(f"'{old}' is swapped for itself", fix="give another word")
    other = read_again(subject, reading, replaced(reading.given, old, new, at=at))
    views, others = subject.made("views beside it", [reading, other], lambda one: _seen(subject, one, looks))
    before, after = scores_of_both(subject, reading, other)
    answers = _answered(subject, reading, before), _answered(subject, other, after)
    rows = paired(reading.rows, other.rows)
    found = _view(subject, f"“{old}” becomes “{new}”", rows, answers, tuple(map(difference, views, others)))
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
    rows = paired(reading.rows, reading.rows)
    return _view(subject, what, rows, (before, after), tuple(map(difference, views, others)))


def _seen(subject: Subject, reading: Reading, looks: Sequence[Look]) -> list[View]:
    return subject.made("looks", looks, lambda look: look(subject, reading))


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
    said = [["∅" if at is None else one.said[at] for at in where] for one, where in zip(both, places, strict=True)]
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


def replaced(given: Any, old: str, new: str, *, at: int | None = None) -> Any:
    """The same input with another word: in its only place, or the place of that number, from 0.

    >>> replaced("he said that she saw", "he", "she")
    'she said that she saw'
    """
    if isinstance(given, str):
        start, stop = _one(_places(given, old), old, at, given.split())
        return given[:start] + new + given[stop:]
    if not isinstance(given, tuple | list) or not all(isinstance(one, str) for one in given):
        raise DataError(f"there are no words in this input, a {type(given).__name__}", fix="swap words of a text")
    if isinstance(given, tuple):  # two texts: the first that has it
        number = next((one for one, text in enumerate(given) if _places(text, old)), 0)
        return (*given[:number], replaced(given[number], old, new, at=at), *given[number + 1 :])
    place = _one([number for number, word in enumerate(given) if word == old], old, at, given)
    return [*given[:place], new, *given[place + 1 :]]


def _places(text: str, old: str) -> list[tuple[int, int]]:
    return [found.span() for found in re.finditer(rf"(?<!\w){re.escape(old)}(?!\w)", text)] if old else []


def _one(places: Sequence[Place], old: str, at: int | None, words: Sequence[str]) -> Place:
    if not places:
        raise DataError(f"the word '{old}' does not stand in the text", fix=did_you_mean(old, set(words)))
    if at is None and len(places) > 1:
        raise DataError(
            f"'{old}' stands in {len(places)} places", fix=f"say which with at=0 to {len(places) - 1}, from the left"
        )
    if at is not None and not 0 <= at < len(places):
        raise DataError(f"there is no '{old}' number {at}", fix=f"choose 0 to {len(places) - 1}")
    return places[at or 0]


@dataclass(frozen=True, kw_only=True)
class GivenView(View):
    """What each token gives to one answer: the values of an attribution by themselves."""

    kind: ClassVar[str] = "attribution"
    tokens: tuple[str, ...]
    values: np.ndarray  # [E] of all sides, one after the other

    def figures(self) -> tuple[Figure, ...]:
        return (Strip(title=self.title, tokens=self.tokens, values=self.values.tolist()),)


def _attributing(subject: Subject, reading: Reading) -> Look:
    """A look at attributions of the answers that this reading gets, also where another reading gets others."""
    goal = chosen_goal(subject, reading)

    def look(asked: Subject, other: Reading) -> View:
        # The same answers where their rows stand in another reading; those whose rows are not there are left out
        rows = dict(paired(reading.rows, other.rows).pairs)
        places = [(answer, rows.get(answer.row)) for answer in goal.answers]
        moved = goal._replace(answers=tuple(answer._replace(row=row) for answer, row in places if row is not None))
        found = view_of(ground_of(asked, other), moved, METHOD, MethodOptions())
        tokens = tuple(text for part in found.parts for text in part.texts)
        return GivenView(title=found.title, tokens=tokens, values=np.concatenate([part.values for part in found.parts]))

    return look


# views that can stand beside an edit, and what a model needs for them
BESIDE: Mapping[str, tuple[Callable[[Subject, Reading], Look], requirements.Question]] = {
    "attention": (lambda *_: attention, requirements.attention),
    "attribution": (_attributing, requirements.an_answer),
    "gates": (lambda *_: gates, requirements.gates),
    "states": (states_beside, requirements.states),
}
USUAL = ("attention", "attribution")
METHOD = "integrated"  # of attribution
DEAR = "attribution"  # two paths of gradients over a text, minutes where it is long


def swap(
    subject: Subject,
    reading: Reading,
    *,
    old: str,
    new: str,
    at: int | None = None,
    beside: Sequence[str] | None = None,
) -> ChangeView:
    """What changes when the word `old` is `new`, with attention (if there is any) and attribution beside the answers.

    Of a word that stands in several places, `at` is the number of one of them, from 0; `beside` names other views.
    Where it names none, attribution stands beside texts of up to 512 tokens alone: it takes long.
    """
    there = (name for name in USUAL if requirements.reason(BESIDE[name][1], subject, reading) is None)
    named = list(there if beside is None else beside)
    left_out = beside is None and DEAR in named and max(len(side.tokens) for side in reading.sides) > MEDIUM
    looks = _looks(subject, reading, [name for name in named if not (left_out and name == DEAR)])
    view = swapped(subject, reading, old=old, new=new, at=at, looks=looks)
    said = f"{DEAR.title()} is left out of more than {MEDIUM} tokens, where it takes long: ask beside={named}."
    return replace(view, notes=(*view.notes, said)) if left_out else view


def ablate(
    subject: Subject,
    reading: Reading,
    *,
    layer: int | str | None = None,
    head: int | None = None,
    beside: Sequence[str] = (),
) -> ChangeView:
    """What changes when a head finds nothing; without `head` all heads of the layer, without `layer` the last one."""
    who = "all heads" if head is None else f"head {head}"
    what = f"{who} of {'the last layer' if layer is None else f'layer {layer}'} of attention found nothing"
    return _tried(subject, reading, ablated(subject, layer=layer, head=head), what, beside)


def clamp(
    subject: Subject,
    reading: Reading,
    *,
    unit: int,
    value: float,
    gate: str | None = None,
    layer: int | str | None = None,
    beside: Sequence[str] = (),
) -> ChangeView:
    """What changes when a unit of a recurrent layer, or one gate of it, has the same value at every element."""
    what = f"{'unit' if gate is None else f'the {gate} gate of unit'} {unit} stood at {value:g}"
    return _tried(subject, reading, clamped(subject, unit=unit, value=value, gate=gate, layer=layer), what, beside)


def patch(
    subject: Subject,
    reading: Reading,
    *,
    other: Any,
    at: int | str,
    layer: int | str | None = None,
    side: str | None = None,
    beside: Sequence[str] = (),
) -> ChangeView:
    """What changes when the vector of a token behind a layer is the one that stands there in another input.

    Of a translation the other input is another source, read with the same target.
    """
    again = read_again(subject, reading, other)
    edit = patched(subject, reading, again, at=at, layer=layer, side=side)
    found = _tried(subject, reading, edit, f"the vector at {at!r} came from the other input", beside)
    return with_remark(found, reading, again)


def _tried(subject: Subject, reading: Reading, edit: Any, what: str, beside: Sequence[str]) -> ChangeView:
    return edited(subject, reading, edit, what=what[0].upper() + what[1:], looks=_looks(subject, reading, beside))


def _looks(subject: Subject, reading: Reading, beside: Sequence[str]) -> list[Look]:
    """The views of these names."""
    for name in beside:
        if name not in BESIDE:
            raise ConfigError(f"the view '{name}' does not stand beside an edit", fix=did_you_mean(name, BESIDE))
        if (reason := requirements.reason(BESIDE[name][1], subject, reading)) is not None:
            raise ConfigError(reason, fix=f"leave '{name}' out")
    return [BESIDE[name][0](subject, reading) for name in beside]
