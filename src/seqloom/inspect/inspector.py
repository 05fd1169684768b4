"""One input of one model, with every view of it as a method.

    inspection = seqloom.load("runs/trec").inspect("Who wrote Hamlet ?")
    inspection.views()                  what this model has to show
    inspection.attention(layer=0)       a result that shows and saves itself
    inspection.missing()                what it has not, and why

The methods are one table: a function, the question that it answers, and what a model needs for it. Functions about
data are given this input and those that it is looked at among. Options are of the kinds that signatures say; what is
not is refused before any work, in words:

    attention(layer=[1])    ConfigError: the view attention: layer is [1]. Fix: give a whole number, a text or None.

Numbers may be those of numpy, and a list may stand where a tuple does. A truth is no number. What a signature leaves
open, and elements of what can be read only once, are not looked at.

Each picture of attention, and each attribution, says in one sentence, its badge, how far it may be believed: what was
measured by `faithfulness` on the same inspection, or that nothing was, and how to ask. So a view tells more once a
report was asked for, by design. A report holds as long as the model stands as it did: while an edit lasts, and once its
weights have changed, it is not told. A report on an explanation of the caller's own says nothing about the library's,
and is not told either. An n-gram's share of a linear model is no estimate and needs none.
"""

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from inspect import signature
from numbers import Integral, Real
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import numpy as np
from torch import Tensor, nn

from seqloom.errors import ConfigError, did_you_mean
from seqloom.events import Show
from seqloom.inspect import requirements, what_if
from seqloom.inspect.alignment import alignment
from seqloom.inspect.attention import attention
from seqloom.inspect.attribution.attribution import attribution, ngram_contributions
from seqloom.inspect.attribution.pairs import similarity_pairs
from seqloom.inspect.attribution.tables import attribution_table, attributions_compared
from seqloom.inspect.beam_tree import beam_tree
from seqloom.inspect.edits import ModelStanding, standing_of
from seqloom.inspect.faithfulness.measures import OWN
from seqloom.inspect.faithfulness.report import FaithfulnessView, faithfulness
from seqloom.inspect.filters import filters, fired
from seqloom.inspect.gates import gates
from seqloom.inspect.gradients import gradients
from seqloom.inspect.graphs.model import answer_graph
from seqloom.inspect.head_view import head_view
from seqloom.inspect.heads import heads
from seqloom.inspect.health import health
from seqloom.inspect.lattice import lattice
from seqloom.inspect.lens import lens, lens_places
from seqloom.inspect.neighbors import neighbours
from seqloom.inspect.next_tokens import next_symbols
from seqloom.inspect.picture_filters import activation_maps, picture_filters
from seqloom.inspect.positions import positions
from seqloom.inspect.query_key import query_key
from seqloom.inspect.readings import cut_said, read
from seqloom.inspect.segmentation import cutting
from seqloom.inspect.states import probe, states
from seqloom.inspect.subject import Reading, Subject, WorkShown
from seqloom.inspect.view import View, show
from seqloom.report.document import Code, Document, Shown, TableBlock
from seqloom.report.numbers import counted

LONGEST = 60  # characters of a value that is told


def checked(view: str, function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The same options, single numbers of numpy as those of Python; ConfigError for one that is not of its kind."""
    hints = get_type_hints(function)
    for name, value in given.items():
        if not fits(value, hints[name]):
            told = repr(value)
            shown = told if len(told) <= LONGEST else f"{told[:LONGEST]}..., a {type(value).__name__}"
            raise ConfigError(f"the view {view}: {name} is {shown}", fix=f"give {told_kind(hints[name])}")
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind, as an annotation has it; of one that is not known here, every value is.

    >>> fits([0, 2], tuple[int, int]), fits((0, 2.5), tuple[int, int]), fits(True, int | None)
    (True, False, False)
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if kind is Any:
        return True
    if origin is tuple and inner[-1:] != (...,):
        return _is_listed(value) and len(value) == len(inner) and all(map(fits, value, inner))
    if origin in (Sequence, list, tuple):
        return _is_listed(value) and all(fits(one, inner[0]) for one in value)
    known = PLAIN.get(kind) or (origin if isinstance(origin, type) else kind)
    if not isinstance(known, type | tuple):
        return True
    return isinstance(value, known) and not (kind in NUMBERS and isinstance(value, bool))


def _is_listed(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def told_kind(kind: Any, *, many: bool = False) -> str:
    """A kind in words, or several of it.

    >>> told_kind(tuple[int, int] | None), told_kind(Sequence[str | int])
    ('two whole numbers or None', 'a list of texts or whole numbers')
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        *first, last = dict.fromkeys(told_kind(one, many=many) for one in inner)
        return f"{', '.join(first)} or {last}" if first else last
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is tuple and inner == (int, int):
        return "pairs of whole numbers" if many else "two whole numbers"
    if origin in (Sequence, list, tuple):
        return f"{'lists' if many else 'a list'} of {told_kind(inner[0], many=True)}"
    name = getattr(origin or kind, "__name__", "value")
    return WORDS.get(origin or kind, (f"a {name}", f"{name}s"))[many]


NUMBERS = (int, float)
PLAIN: Mapping[Any, Any] = {int: Integral, float: Real, bool: (bool, np.bool_)}
WORDS: Mapping[Any, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("True or False", "True or False"),
    str: ("a text", "texts"),
    type(None): ("None", "None"),
    Callable: ("a function", "functions"),
    AbstractContextManager: ("an edit", "edits"),
}


ATTENTION, ATTRIBUTION = "attention", "attribution"  # what a picture is, and what a report is about

PICTURES: Mapping[str, str] = {
    **dict.fromkeys(("attention", "heads", "head_view", "query_key", "alignment"), ATTENTION),
    **dict.fromkeys(("attribution", "attributions", "attribution_table", "similarity_pairs"), ATTRIBUTION),
}
ASK: Mapping[str, str] = {
    ATTENTION: "how far to believe it: .faithfulness(), or --view faithfulness",
    ATTRIBUTION: "how far to believe it: .faithfulness(method=...), or --view faithfulness --method NAME",
}


class Beliefs:
    """What is known of how far the pictures of one input of a model may be believed."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._known = dict[str, tuple[ModelStanding, str]]()  # by what a report was about, the latest

    def learn(self, view: View) -> None:
        """Remember a report of faithfulness on a picture of the library, and no other view."""
        if isinstance(view, FaithfulnessView) and view.picture != OWN and view.level != "not measured":
            about = ATTRIBUTION if view.evidence.moved is None else ATTENTION
            picture = view.picture[0].lower() + view.picture[1:]
            said = f"{view.badge().text.capitalize()}; measured of {picture}."
            self._known[about] = standing_of(self._model), said

    def badge(self, name: str, missing: str | None) -> tuple[str, ...]:
        """The sentence that the view of a name carries, if it is such a picture; `missing` is why none can be asked."""
        if (about := PICTURES.get(name)) is None:
            return ()
        if missing is not None:
            return (f"Faithfulness cannot be measured: {missing}.",)
        standing, said = self._known.get(about, (None, ""))
        if standing == standing_of(self._model):
            return (said,)
        changed = "" if standing is None else " of the model as it is now, edited or trained since the report"
        return (f"Faithfulness not measured{changed}; {ASK[about]}.",)


P = ParamSpec("P")
V = TypeVar("V", bound=View)
Given = TypeVar("Given", Reading, list[Reading])


class ViewMethod(partial[Any]):
    """A function of which the first arguments are known; options that it lacks or does not take are told by name."""

    __name__: str
    noted: Callable[[View], tuple[str, ...]]  # what the inspection has to say about a view

    def __call__(self, /, *given: Any, **options: Any) -> Any:
        """What the function gives; ConfigError for options that are not its own, or not of their kind."""
        known = signature(self).parameters
        for name in options:
            if name not in known:
                raise ConfigError(f"the view {self.__name__} takes no '{name}'", fix=f"it takes {', '.join(known)}")
        try:
            bound = signature(self).bind_partial(*given, **options).arguments
        except TypeError as error:
            raise ConfigError(f"the view {self.__name__}: {error}", fix="give each option by its name") from None
        for name, one in known.items():
            if one.default is one.empty and name not in bound:
                said = (self.__doc__ or "").partition("\n")[0].rstrip(".")
                raise ConfigError(f"the view {self.__name__} needs '{name}'", fix=f"give {name}=...; it shows: {said}")
        asked = checked(self.__name__, self.func, bound)
        with self.args[0].work("views", 1) as moved:
            view: View = super().__call__(**asked)
            moved(1)
        return replace(view, notes=(*view.notes, *self.noted(view)))


class ViewCall(Generic[Given, P, V]):
    """A view as a method: the function without what the inspection knows."""

    name: str

    def __init__(
        self,
        function: Callable[Concatenate[Subject, Given, P], V],
        question: str,
        needs: requirements.Question = requirements.anything,
    ) -> None:
        self.function: Callable[Concatenate[Subject, Given, P], V] = function
        self.question, self.needs = question, needs

    def __set_name__(self, _owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, inspection: None, owner: type) -> "ViewCall[Given, P, V]": ...

    @overload
    def __get__(self, inspection: "Inspection", owner: type) -> Callable[P, V]: ...

    def __get__(self, inspection: "Inspection | None", owner: type) -> "ViewCall[Given, P, V] | Callable[P, V]":
        if inspection is None:
            return self
        bound: Any = ViewMethod(self.function, inspection.subject, self.given(inspection))
        bound.__doc__, bound.__name__ = self.function.__doc__, self.name  # what a notebook shows beside the signature
        bound.noted = partial(inspection.noted, self.name)
        found: Callable[P, V] = bound
        return found

    def given(self, inspection: "Inspection") -> Given:
        """What of the inspection the function is about."""
        raise NotImplementedError


class OfOne(ViewCall[Reading, P, V]):
    """A view of the input alone."""

    def given(self, inspection: "Inspection") -> Reading:
        """The input."""
        return inspection.reading


class OfAll(ViewCall[list[Reading], P, V]):
    """A view of data: of the input, and of those that it is looked at among."""

    def given(self, inspection: "Inspection") -> list[Reading]:
        """All of them, the input first."""
        return [inspection.reading, *inspection.among]


class Inspection(Shown):
    """One input of a model, and every view of it: `views()` says which there are."""

    def __init__(
        self,
        subject: Subject,
        given: Any,
        *,
        target: str | None = None,
        among: Iterable[Any] = (),
        show: Show | None = None,
    ) -> None:
        self.subject = subject if show is None else subject._replace(shown=WorkShown(show))
        self.reading = read(subject, given, target=target)
        self.among = self.subject.made("inputs", list(among), lambda one: read(self.subject, one))
        self._beliefs = Beliefs(subject.model)

    attention = OfOne(attention, "which tokens each token reads, and how much", requirements.attention)
    heads = OfAll(
        heads, "what kind of head each one is: previous token, first token, same word", requirements.attention
    )
    head_view = OfOne(head_view, "where each head looks from a token, as lines", requirements.attention)
    query_key = OfOne(query_key, "why a weight is high: query times key, dimension by dimension", requirements.keys)
    alignment = OfOne(alignment, "which source words each target word was said from", requirements.alignment)
    gates = OfOne(gates, "what an LSTM or GRU remembers, writes and shows at each token", requirements.gates)
    states = OfOne(states, "the path of the hidden state through the input", requirements.states)
    probe = OfAll(probe, "which unit tracks a property, such as depth or position", requirements.states)
    gradients = OfOne(gradients, "how far back the error signal reaches, and where it dies", requirements.an_answer)
    health = OfAll(health, "activations, gradient norms, dead and saturated units of each layer")
    filters = OfAll(filters, "the n-grams of the data that fire each filter most", requirements.filters)
    fired = OfOne(fired, "which filters fired here, and what they gave to the answer", requirements.fired_filters)
    activation_maps = OfOne(activation_maps, "where in a picture each filter fires", requirements.picture_filters)
    picture_filters = OfAll(picture_filters, "the patches that fire each filter most", requirements.picture_filters)
    positions = OfOne(positions, "what the model knows about position, and how far it was trained", positions)
    attribution = OfOne(attribution, "which tokens moved the answer", requirements.an_answer)
    attributions = OfOne(
        attributions_compared, "the same by several methods, and how far they agree", requirements.an_answer
    )
    attribution_table = OfOne(attribution_table, "which tokens moved each answer", requirements.answers_by_element)
    similarity_pairs = OfOne(similarity_pairs, "which pairs of tokens make two texts alike", requirements.two_texts)
    ngrams = OfOne(ngram_contributions, "what each n-gram gives to the answer, exactly", requirements.ngrams)
    faithfulness = OfAll(faithfulness, "how far attention, or an attribution, may be believed", requirements.believable)
    neighbours = OfAll(neighbours, "the words nearest to a word in its context", requirements.contexts)
    next_symbols = OfOne(next_symbols, "what comes next, and what sampling makes of it", requirements.next_symbols)
    lens = OfOne(lens, "what would be said if the model stopped after each layer", lens_places)
    beam_tree = OfOne(beam_tree, "what a beam search tried, kept and gave up", requirements.next_symbols)
    lattice = OfOne(lattice, "why these tags: scores, moves, best paths and how sure", requirements.tags)
    cutting = OfOne(cutting, "how the text was cut into symbols", cutting)
    swap = OfOne(what_if.swap, "what changes when one word is another", requirements.words)
    ablate = OfOne(what_if.ablate, "what changes when a head finds nothing", requirements.keys)
    clamp = OfOne(what_if.clamp, "what changes when a unit or gate stands still", requirements.recurrence)
    patch = OfOne(what_if.patch, "what changes with a vector of another input", requirements.states)
    edits = OfOne(what_if.edited, "what changes while any edit lasts")
    graph = OfOne(answer_graph, "every operation, with its value and its gradient", requirements.an_answer)

    def views(self) -> dict[str, str]:
        """The views that this model has of this input, each with the question that it answers."""
        return {look.name: look.question for look in LOOKS.values() if self._reason(look) is None}

    def missing(self) -> dict[str, str]:
        """The views that it has not, each with the reason."""
        return {look.name: reason for look in LOOKS.values() if (reason := self._reason(look)) is not None}

    def view(self, name: str, /, **options: Any) -> View:
        """The view of this name: what a method of that name gives."""
        if name not in LOOKS:
            raise ConfigError(f"there is no view '{name}'", fix=did_you_mean(name, LOOKS))
        found: View = getattr(self, name)(**options)
        return found

    def _reason(self, look: ViewCall[Any, Any, Any]) -> str | None:
        return requirements.reason(look.needs, self.subject, self.reading)

    @cached_property
    def cut(self) -> tuple[str, ...]:
        """That the input was cut, in a sentence; none where the model reads all of it."""
        return cut_said(self.subject, [self.reading])

    @cached_property
    def all_cut(self) -> tuple[str, ...]:
        """How many of the inputs were cut, found out once: all of them are tokenised for it."""
        return cut_said(self.subject, [self.reading, *self.among])

    def noted(self, name: str, view: View) -> tuple[str, ...]:
        """What is to be known about a view: that its inputs were cut, and how far a picture may be believed.

        A picture of attention, or an attribution, says what `faithfulness` found if it was asked before: so the same
        call says more after a report than before it.
        """
        self._beliefs.learn(view)
        missing = self._reason(LOOKS["faithfulness"])
        # The pictures that it shows: itself, or those whose changes a trial has beside the answers
        pictures = [one.of for one in view.differences] if isinstance(view, what_if.ChangeView) else [name]
        badges = (said for picture in pictures for said in self._beliefs.badge(picture, missing))
        cut = self.all_cut if isinstance(LOOKS[name], OfAll) else self.cut
        return (*cut, *dict.fromkeys(badges))

    def document(self) -> Document:
        """What is looked into, and what there is to see."""
        return Document(self.told(), [TableBlock((), [(Code(name), asks) for name, asks in self.views().items()])])

    def to_json(self) -> dict[str, Any]:
        """The views that there are with their questions, and those that there are not with the reasons."""
        return {"views": self.views(), "missing": self.missing()}

    def show(self) -> None:
        """Show the overview, in a notebook or on standard output."""
        show(self)

    def __repr__(self) -> str:
        return f"Inspection({self.told()})"

    def told(self) -> str:
        """What is looked into, in few words."""
        sides = ", ".join(f"{side.name} of {counted(len(side.tokens), 'token')}" for side in self.reading.sides)
        return f"{self.subject.task.name}: {'a picture' if isinstance(self.reading.inputs, Tensor) else sides}"


LOOKS: dict[str, ViewCall[Any, Any, Any]] = {
    name: look for name, look in vars(Inspection).items() if isinstance(look, ViewCall)
}
