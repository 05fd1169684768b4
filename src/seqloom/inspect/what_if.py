"""What if: replace a word, switch off a head, fix a gate, or patch an activation, and see what changes.

    swap        replace a word                       clamp    fix a unit or a gate at one value
    ablate      set heads to zero                    patch    take an activation from another input

Each view shows the predictions before and after, and the differences of the views named with `views`. The distance is
the total variation distance TVD = 1/2 sum |p - q| of two distributions (Jain and Wallace 2019), otherwise the largest
change of a number. Texts of different lengths are matched around the change (`seqloom.inspect.differences`); a
translation keeps its target.
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
from seqloom.inspect.states import states_compared
from seqloom.inspect.subject import Reading, Subject, decided, likelihoods
from seqloom.inspect.view import MEDIUM, View, blocks_line
from seqloom.nn.types import Pair
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.strip import Strip
from seqloom.report.numbers import counted, number
from seqloom.text.special_tokens import UNKNOWN

ViewFunction = Callable[[Subject, Reading], View]
Place = TypeVar("Place")
SHOWN = 12  # answers of one row


@dataclass(frozen=True, kw_only=True)
class ChangeView(View):
    """The answers before and after a change, and the differences of other views."""

    kind: ClassVar[str] = "change"
    description: str  # of the change
    rows: tuple[str, ...]  # the token of each answer, before → after where they differ
    predictions: tuple[
        tuple[str, str], ...
    ]  # of each row the prediction before and after; ∅ where there is no such row
    distance: (
        np.ndarray
    )  # [R] total variation distance, or the largest change of a number; NaN where one of the two is missing
    row: int  # the row that changed most, which is shown in full
    answers: tuple[tuple[str, float, float], ...]  # (name, before, after) of that row, the largest changes first
    differences: tuple[DifferenceView, ...]
    remark: str = ""  # why nothing could change

    @property
    def flipped(self) -> tuple[int, ...]:
        """The rows whose prediction changed; rows that exist only before or only after do not count."""
        there = ~np.isnan(self.distance)
        return tuple(at for at, (before, after) in enumerate(self.predictions) if there[at] and before != after)

    def figures(self) -> tuple[Figure, ...]:
        found: list[Figure] = [self._bars("before", 1), self._bars("after", 2)]
        title = "How far each answer moved (total variation distance)"
        if 1 < len(self.rows) <= MEDIUM:
            found.append(Strip(title=title, tokens=self.rows, values=self.distance.tolist(), value_label="distance"))
        elif len(self.rows) > 1:
            found.append(blocks_line(self.distance, title=title, x_label="row", y_label="distance"))
        return (*found, *(figure for one in self.differences for figure in one.figures()))

    def _sentences(self) -> tuple[str, ...]:
        rows, most = int((~np.isnan(self.distance)).sum()), np.nanmax(self.distance)
        because = f": {self.remark}" if self.remark else ""
        moved = (
            f"{len(self.flipped)} of {counted(rows, 'prediction')} changed; largest distance {number(most)}{because}"
        )
        lines = [f"{self.description}: {moved}."]
        for at in self.flipped[:SHOWN]:
            lines.append(f"“{self.rows[at]}” ({at}): {self.predictions[at][0]} became {self.predictions[at][1]}.")
        return (*lines, *(sentence for one in self.differences for sentence in one.sentences()))

    def _bars(self, when: str, place: int) -> Figure:
        labels = [answer[0] for answer in self.answers]
        values = [float(answer[place]) for answer in self.answers]
        where = "" if len(self.rows) == 1 else f" at “{self.rows[self.row]}” ({self.row})"
        return Bars(title=f"{self.description}: {when}{where}", labels=labels, values=values)


def swapped(
    subject: Subject, reading: Reading, *, old: str, new: str, at: int | None = None, views: Sequence[ViewFunction] = ()
) -> ChangeView:
    """How the answers, and each of these views, change when a word is replaced."""
    if old == new:
        raise DataError(f"old and new are the same word, '{old}'", fix="give another word")
    other = read_again(subject, reading, replaced(reading.given, old, new, at=at))
    olds, news = subject.made("views", [reading, other], lambda one: _seen(subject, one, views))
    before, after = scores_of_both(subject, reading, other)
    answers = _answered(subject, reading, before), _answered(subject, other, after)
    rows = paired(reading.rows, other.rows)
    found = _view(subject, f"“{old}” becomes “{new}”", rows, answers, tuple(map(difference, olds, news)))
    return with_remark(found, reading, other)


def edited(
    subject: Subject,
    reading: Reading,
    edit: AbstractContextManager[Any],
    *,
    what: str = "Edited model",
    views: Sequence[ViewFunction] = (),
) -> ChangeView:
    """How the answers, and each of these views, change inside an edit.

    Args:
        edit: A context manager of `seqloom.inspect.edits`, such as `ablated(model.subject, layer=0, head=1)`.
        what: The title of the view.
        views: Functions of views to compare before and after: `[gates]`.
    """
    before = _answers(subject, reading)
    with subject.work("answers", 2) as moved:
        olds = _seen(subject, reading, views)
        moved(1)
        with edit:
            after = _answers(subject, reading)
            news = _seen(subject, reading, views)
        moved(1)
    rows = paired(reading.rows, reading.rows)
    return _view(subject, what, rows, (before, after), tuple(map(difference, olds, news)))


def _seen(subject: Subject, reading: Reading, views: Sequence[ViewFunction]) -> list[View]:
    return subject.made("views", views, lambda view: view(subject, reading))


def with_remark(view: ChangeView, before: Reading, after: Reading) -> ChangeView:
    """The view, with a remark if nothing changed because the model reads the same tokens in both inputs.

    A model with a character encoder can tell unknown words apart, so the answers are compared too.
    """
    both = [list(zip_longest(*(side.tokens for side in pair))) for pair in zip(before.sides, after.sides, strict=True)]
    pairs = [pair for side in both for pair in side]
    if view.distance.any() or any(None in pair or pair[0].id != pair[1].id for pair in pairs):
        return view
    others = [token for pair in pairs if pair[0].text != pair[1].text for token in pair]
    if not others or any(token.id is None for token in others):
        return view
    words = [f"“{token.text}”" for token in others if token.id == UNKNOWN]
    why = f", because {' and '.join(words[:2])} are not in the vocabulary" if words else ""
    return replace(view, remark=f"the model reads the same tokens both times{why}")


def read_again(subject: Subject, reading: Reading, given: Any) -> Reading:
    """Another input; for a translation another source with the same target, so that only one thing changes."""
    if not isinstance(reading.inputs, Pair):
        return read(subject, given)
    other = read(subject, given, target="")  # any target avoids a search; the old one replaces it
    inputs = Pair(other.inputs.source, reading.inputs.target)
    return reading._replace(given=given, inputs=inputs, sides=(other.sides[0], *reading.sides[1:]))


class Answers(NamedTuple):
    """The answers of a model to one input."""

    values: np.ndarray  # [R,K] probabilities if exactly one label per row is correct, else scores
    predictions: tuple[str, ...]  # [R]
    exclusive: bool


@torch.no_grad()
def _answers(subject: Subject, reading: Reading) -> Answers:
    with still(subject.model):
        return _answered(subject, reading, scores(subject, reading.inputs)[0])


def _answered(subject: Subject, reading: Reading, found: Tensor) -> Answers:
    """The answers of scores [R,K]."""
    found = found.double()
    exclusive = reading.targets is not None or subject.task.spec.schema.target.exclusive
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
    pairs = [
        ["∅" if at is None else one.predictions[at] for at in where] for one, where in zip(both, places, strict=True)
    ]
    moved = np.abs(after - before)
    distance = moved.sum(axis=1) / 2 if both[0].exclusive else moved.max(axis=1)
    row = int(np.nanargmax(distance))
    most = np.argsort(-np.maximum(moved[row], moved[row].max() * (before[row] == before[row].max())), kind="stable")
    return ChangeView(
        title=what,
        description=what,
        rows=rows.names,
        predictions=tuple(zip(*pairs, strict=True)),
        distance=distance,
        row=row,
        answers=tuple((subject.name(int(k)), float(before[row, k]), float(after[row, k])) for k in most[:SHOWN]),
        differences=differences,
    )


def replaced(given: Any, old: str, new: str, *, at: int | None = None) -> Any:
    """The input with one word replaced: its only occurrence, or number `at`, counted from 0.

    >>> replaced("he said that she saw", "he", "she")
    'she said that she saw'
    """
    if isinstance(given, str):
        start, stop = _one(_places(given, old), old, at, given.split())
        return given[:start] + new + given[stop:]
    if not isinstance(given, tuple | list) or not all(isinstance(one, str) for one in given):
        raise DataError(f"this input has no words: its type is {type(given).__name__}", fix="swap words of a text")
    if isinstance(given, tuple):  # two texts: the first that has it
        number = next((one for one, text in enumerate(given) if _places(text, old)), 0)
        return (*given[:number], replaced(given[number], old, new, at=at), *given[number + 1 :])
    place = _one([number for number, word in enumerate(given) if word == old], old, at, given)
    return [*given[:place], new, *given[place + 1 :]]


def _places(text: str, old: str) -> list[tuple[int, int]]:
    return [found.span() for found in re.finditer(rf"(?<!\w){re.escape(old)}(?!\w)", text)] if old else []


def _one(places: Sequence[Place], old: str, at: int | None, words: Sequence[str]) -> Place:
    if not places:
        raise DataError(f"the text has no word '{old}'", fix=did_you_mean(old, set(words)))
    if at is None and len(places) > 1:
        raise DataError(
            f"'{old}' occurs {len(places)} times", fix=f"choose one, from the left: at=0 to at={len(places) - 1}"
        )
    if at is not None and not 0 <= at < len(places):
        raise DataError(f"there is no occurrence {at} of '{old}'", fix=f"choose at=0 to at={len(places) - 1}")
    return places[at or 0]


@dataclass(frozen=True, kw_only=True)
class AttributionValuesView(View):
    """The values of an attribution: what each token contributes to one answer."""

    kind: ClassVar[str] = "attribution"
    tokens: tuple[str, ...]
    values: np.ndarray  # [E] of all sides, one after the other

    def figures(self) -> tuple[Figure, ...]:
        return (Strip(title=self.title, tokens=self.tokens, values=self.values.tolist()),)


def _attributing(subject: Subject, reading: Reading) -> ViewFunction:
    """A view of the attributions of the answers of this reading, also where another reading has other answers."""
    goal = chosen_goal(subject, reading)

    def view(viewed: Subject, other: Reading) -> View:
        # The same answers, at their rows in the other reading; answers without such a row are left out
        rows = dict(paired(reading.rows, other.rows).pairs)
        places = [(answer, rows.get(answer.row)) for answer in goal.answers]
        moved = goal._replace(answers=tuple(answer._replace(row=row) for answer, row in places if row is not None))
        found = view_of(ground_of(viewed, other), moved, METHOD, MethodOptions())
        tokens = tuple(text for part in found.parts for text in part.texts)
        return AttributionValuesView(
            title=found.title, tokens=tokens, values=np.concatenate([part.values for part in found.parts])
        )

    return view


# views that can be compared before and after an edit, and what a model needs for them
COMPARABLE: Mapping[str, tuple[Callable[[Subject, Reading], ViewFunction], requirements.Question]] = {
    "attention": (lambda *_: attention, requirements.attention),
    "attribution": (_attributing, requirements.an_answer),
    "gates": (lambda *_: gates, requirements.gates),
    "states": (states_compared, requirements.states),
}
DEFAULT = ("attention", "attribution")
METHOD = "integrated_gradients"  # of attribution
SLOW = "attribution"  # two gradient paths over the text: minutes for a long one


def swap(
    subject: Subject,
    reading: Reading,
    *,
    old: str,
    new: str,
    at: int | None = None,
    views: Sequence[str] | None = None,
) -> ChangeView:
    """How the answers change when the word `old` is replaced by `new`.

    Args:
        old: The word to replace.
        new: The word to put there.
        at: Which occurrence of `old`, counted from 0; needed if there are several.
        views: Names of views to compare before and after: attention, attribution, gates, states. Without it,
            attention (if the model has any) and attribution; attribution only for texts of up to 512 tokens.
    """
    there = (name for name in DEFAULT if requirements.reason(COMPARABLE[name][1], subject, reading) is None)
    named = list(there if views is None else views)
    left_out = views is None and SLOW in named and max(len(side.tokens) for side in reading.sides) > MEDIUM
    compared = _view_functions(subject, reading, [name for name in named if not (left_out and name == SLOW)])
    view = swapped(subject, reading, old=old, new=new, at=at, views=compared)
    note = (
        f"{SLOW.title()} is left out for texts of more than {MEDIUM} tokens, because it is slow; views={named} adds it."
    )
    return replace(view, notes=(*view.notes, note)) if left_out else view


def ablate(
    subject: Subject,
    reading: Reading,
    *,
    layer: int | str | None = None,
    head: int | None = None,
    views: Sequence[str] = (),
) -> ChangeView:
    """How the answers change when the output of an attention head is set to zero.

    Args:
        layer: Number or path of the layer (default: the last one with attention).
        head: Number of the head (default: all heads of the layer).
        views: Names of views to compare before and after: attention, attribution, gates, states.
    """
    who = "all heads" if head is None else f"head {head}"
    what = f"{who} of {'the last attention layer' if layer is None else f'attention layer {layer}'} set to zero"
    return _tried(subject, reading, ablated(subject, layer=layer, head=head), what, views)


def clamp(
    subject: Subject,
    reading: Reading,
    *,
    unit: int,
    value: float,
    gate: str | None = None,
    layer: int | str | None = None,
    views: Sequence[str] = (),
) -> ChangeView:
    """How the answers change when a unit of a recurrent layer, or one of its gates, is fixed at one value.

    Args:
        unit: Number of the unit.
        value: The value that it has at every token.
        gate: Name of a gate, such as forget or update (default: the hidden state of the unit).
        layer: Number or path of the recurrent layer (default: the last).
        views: Names of views to compare before and after: attention, attribution, gates, states.
    """
    what = f"{'unit' if gate is None else f'the {gate} gate of unit'} {unit} fixed at {value:g}"
    return _tried(subject, reading, clamped(subject, unit=unit, value=value, gate=gate, layer=layer), what, views)


def patch(
    subject: Subject,
    reading: Reading,
    *,
    other: Any,
    at: int | str,
    layer: int | str | None = None,
    side: str | None = None,
    views: Sequence[str] = (),
) -> ChangeView:
    """How the answers change when the vector of one token comes from another input (activation patching).

    Args:
        other: The other input; for a translation another source, read with the same target.
        at: The token, by its number or its text.
        layer: Number or path of the layer whose output is patched (default: the last).
        side: The sequence: source or target, first or second.
        views: Names of views to compare before and after: attention, attribution, gates, states.
    """
    again = read_again(subject, reading, other)
    edit = patched(subject, reading, again, at=at, layer=layer, side=side)
    found = _tried(subject, reading, edit, f"the vector of token {at!r} taken from the other input", views)
    return with_remark(found, reading, again)


def _tried(subject: Subject, reading: Reading, edit: Any, what: str, views: Sequence[str]) -> ChangeView:
    return edited(
        subject, reading, edit, what=what[0].upper() + what[1:], views=_view_functions(subject, reading, views)
    )


def _view_functions(subject: Subject, reading: Reading, views: Sequence[str]) -> list[ViewFunction]:
    for name in views:
        if name not in COMPARABLE:
            raise ConfigError(
                f"the view '{name}' cannot be compared before and after an edit", fix=did_you_mean(name, COMPARABLE)
            )
        if (reason := requirements.reason(COMPARABLE[name][1], subject, reading)) is not None:
            raise ConfigError(reason, fix=f"leave '{name}' out")
    return [COMPARABLE[name][0](subject, reading) for name in views]
