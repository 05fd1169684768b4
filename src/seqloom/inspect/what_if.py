"""What if: another word, a head that finds nothing, a gate that stands still, a vector from another text.

Each tries one thing and shows what it changes: the answers, and the views that are named beside them.

    swap        one word is another                     clamp    a unit or a gate keeps one value
    ablate      a head, or all of a layer, is silent    patch    a vector comes from another input
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from seqloom.errors import ConfigError, did_you_mean
from seqloom.inspect import requirements
from seqloom.inspect.attention import attention
from seqloom.inspect.attribution.attribution import view_of
from seqloom.inspect.attribution.goals import chosen_goal, ground_of
from seqloom.inspect.attribution.methods import MethodOptions
from seqloom.inspect.differences import paired
from seqloom.inspect.edits import ablated, clamped, patched
from seqloom.inspect.gates import gates
from seqloom.inspect.states import states_beside
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.substitution import ChangeView, Look, edited, read_again, with_remark
from seqloom.inspect.substitution import swap as swapped
from seqloom.inspect.view import MEDIUM, View
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.strip import Strip


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


def _always(look: Look) -> Callable[[Subject, Reading], Look]:
    return lambda _subject, _reading: look


# views that can stand beside an edit, and what a model needs for them
BESIDE: Mapping[str, tuple[Callable[[Subject, Reading], Look], requirements.Question]] = {
    "attention": (_always(attention), requirements.attention),
    "attribution": (_attributing, requirements.an_answer),
    "gates": (_always(gates), requirements.gates),
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
    named = _usual(subject, reading) if beside is None else beside
    left_out = beside is None and DEAR in named and max(len(side.tokens) for side in reading.sides) > MEDIUM
    looks = _looks(subject, reading, [name for name in named if not (left_out and name == DEAR)])
    view = swapped(subject, reading, old=old, new=new, at=at, looks=looks)
    said = f"{DEAR.title()} is left out of more than {MEDIUM} tokens, where it takes long: ask beside={list(named)}."
    return replace(view, notes=(*view.notes, said)) if left_out else view


def _usual(subject: Subject, reading: Reading) -> list[str]:
    """The usual views that the model has."""
    return [name for name in USUAL if requirements.reason(BESIDE[name][1], subject, reading) is None]


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
