"""One input of one model, with every view of it as a method.

    inspection = seqloom.load("runs/trec").inspect("Who wrote Hamlet ?")
    inspection.views()                  the available views
    inspection.attention(layer=0)       a view: show(), save(), to_json()
    inspection.missing()                the other views, and why they are not available

Each method has a function, the question that it answers, and the requirements of the view. Views of several inputs use
this input and those of `data`. An option of a wrong type is an error before any work:

    attention(layer=[1])    ConfigError: view attention: layer is [1]. Fix: give an integer, a string or None.

numpy numbers are accepted, and a list may replace a tuple. A boolean is not a number.

Every view of attention, and every attribution, ends with a sentence about its faithfulness (its badge): the result of
the last `faithfulness` of the same inspection, or that it was not measured. The result counts only for the tested
model: inside an edit, or after the weights have changed, it is not shown. Reports on an explanation of the caller
(`explain=`) are not shown either. The n-grams of a linear model are exact and have no badge.
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
    NamedTuple,
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

from seqloom.config.options import arguments_in_errors
from seqloom.errors import ConfigError, did_you_mean
from seqloom.events import Show
from seqloom.inspect import requirements, what_if
from seqloom.inspect.alignment import alignment
from seqloom.inspect.attention import attention
from seqloom.inspect.attribution.attribution import attribution, ngram_contributions
from seqloom.inspect.attribution.pairs import similarity_pairs
from seqloom.inspect.attribution.tables import attribution_table, attributions_compared
from seqloom.inspect.beam_tree import beam_tree
from seqloom.inspect.edits import ModelState, model_state
from seqloom.inspect.faithfulness.measures import OWN
from seqloom.inspect.faithfulness.report import FaithfulnessView, faithfulness
from seqloom.inspect.filters import filter_activations, filters
from seqloom.inspect.gates import gates
from seqloom.inspect.gradients import gradients, gradients_compared
from seqloom.inspect.graphs.model import answer_graph
from seqloom.inspect.head_view import head_view
from seqloom.inspect.heads import heads
from seqloom.inspect.health import health
from seqloom.inspect.lattice import lattice
from seqloom.inspect.logit_lens import logit_lens, logit_lens_places
from seqloom.inspect.neighbors import neighbors
from seqloom.inspect.next_tokens import next_tokens
from seqloom.inspect.picture_filters import activation_maps, picture_filters
from seqloom.inspect.positions import positions
from seqloom.inspect.query_key import query_key
from seqloom.inspect.readings import read, truncation_notes
from seqloom.inspect.slides import Slides
from seqloom.inspect.states import probe, states
from seqloom.inspect.subject import Reading, Subject, WorkShown
from seqloom.inspect.tokenization import tokenization
from seqloom.inspect.view import View, show
from seqloom.report.document import Code, Document, Shown, TableBlock
from seqloom.report.numbers import counted

LONGEST = 60  # characters of a value in a message


def checked(view: str, function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with numpy numbers as Python numbers; ConfigError for an option of a wrong type."""
    hints = get_type_hints(function)
    for name, value in given.items():
        if not fits(value, hints[name]):
            text = repr(value)
            shown = text if len(text) <= LONGEST else f"{text[:LONGEST]}..., a {type(value).__name__}"
            raise ConfigError(f"view {view}: {name} is {shown}", fix=f"give {kind_name(hints[name])}")
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()}


def fits(value: Any, kind: Any) -> bool:
    """Whether a value fits a type annotation; True for annotations that are not known here.

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


def kind_name(kind: Any, *, many: bool = False) -> str:
    """A type annotation in words, singular or plural.

    >>> kind_name(tuple[int, int] | None), kind_name(Sequence[str | int])
    ('two integers or None', 'a list of strings or integers')
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        *first, last = dict.fromkeys(kind_name(one, many=many) for one in inner)
        return f"{', '.join(first)} or {last}" if first else last
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is tuple and inner == (int, int):
        return "pairs of integers" if many else "two integers"
    if origin in (Sequence, list, tuple):
        return f"{'lists' if many else 'a list'} of {kind_name(inner[0], many=True)}"
    name = getattr(origin or kind, "__name__", "value")
    return WORDS.get(origin or kind, (f"a {name}", f"{name}s"))[many]


NUMBERS = (int, float)
PLAIN: Mapping[Any, Any] = {int: Integral, float: Real, bool: (bool, np.bool_)}
WORDS: Mapping[Any, tuple[str, str]] = {
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    bool: ("True or False", "True or False"),
    str: ("a string", "strings"),
    type(None): ("None", "None"),
    Callable: ("a function", "functions"),
    AbstractContextManager: ("an edit", "edits"),
}


ATTENTION, ATTRIBUTION = "attention", "attribution"  # kinds of explanations

PICTURES: Mapping[str, str] = {
    **dict.fromkeys(("attention", "heads", "head_view", "query_key", "alignment"), ATTENTION),
    **dict.fromkeys(("attribution", "attributions", "attribution_table", "similarity_pairs"), ATTRIBUTION),
}
ASK: Mapping[str, str] = {  # in words for Python and for the shell, which have the same views and options
    ATTENTION: "the view faithfulness measures it",
    ATTRIBUTION: "the view faithfulness measures it, with method=NAME",
}


class InspectionNotes(NamedTuple):
    """What an inspection adds to a view."""

    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


class FaithfulnessBadges:
    """The results of faithfulness for one inspection, as sentences for other views."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._known = dict[str, tuple[ModelState, str]]()  # the latest result, by explanation

    def learn(self, view: View) -> None:
        """Store the result, if the view is a faithfulness report on a method of the library."""
        if isinstance(view, FaithfulnessView) and view.explanation != OWN and view.level != "not measured":
            about = ATTRIBUTION if view.evidence.permutation_tvd is None else ATTENTION
            picture = view.explanation[0].lower() + view.explanation[1:]
            text = f"{view.badge().text.capitalize()}; measured for {picture}."
            self._known[about] = model_state(self._model), text

    def badge(self, name: str, missing: str | None) -> InspectionNotes:
        """The note on faithfulness for a view, or a hint how to measure it; `missing` is why it cannot be measured."""
        if (about := PICTURES.get(name)) is None:
            return InspectionNotes()
        if missing is not None:
            return InspectionNotes(notes=(f"Faithfulness cannot be measured: {missing}.",))
        state, text = self._known.get(about, (None, ""))
        if state == model_state(self._model):
            return InspectionNotes(notes=(text,))
        changed = "" if state is None else " for the current model, which was edited or trained since the report"
        return InspectionNotes(hints=(f"Faithfulness not measured{changed} ({ASK[about]}).",))


P = ParamSpec("P")
V = TypeVar("V", bound=View)
Given = TypeVar("Given", Reading, list[Reading])


class ViewMethod(partial[Any]):
    """A view function bound to its inspection; errors name wrong and missing options."""

    __name__: str
    noted: Callable[[View], InspectionNotes]  # of the inspection on a view

    def __call__(self, /, *given: Any, **options: Any) -> Any:
        """The view; ConfigError for unknown options, or options of a wrong type."""
        known = signature(self).parameters
        for name in options:
            if name not in known:
                raise ConfigError(
                    f"view {self.__name__} has no option '{name}'", fix=f"its options are {', '.join(known)}"
                )
        try:
            bound = signature(self).bind_partial(*given, **options).arguments
        except TypeError as error:
            raise ConfigError(f"view {self.__name__}: {error}", fix="give each option by name") from None
        missing = [name for name, one in known.items() if one.default is one.empty and name not in bound]
        if missing:
            shows = (self.__doc__ or "").partition("\n")[0].rstrip(".")
            fix = f"give {', '.join(f'{name}=...' for name in missing)} ({shows})"
            raise ConfigError(f"view {self.__name__} needs {' and '.join(missing)}", fix=fix)
        valid = checked(self.__name__, self.func, bound)
        with arguments_in_errors(self.func), self.args[0].work("views", 1) as moved:
            view: View = super().__call__(**valid)
            moved(1)
        noted = self.noted(view)
        return replace(view, notes=(*view.notes, *noted.notes), hints=(*view.hints, *noted.hints))


class ViewCall(Generic[Given, P, V]):
    """A view as a method of `Inspection`."""

    name: str

    def __init__(
        self,
        function: Callable[Concatenate[Subject, Given, P], V],
        question: str,
        needs: requirements.Question = requirements.anything,
        compared: Callable[..., View] | None = None,
    ) -> None:
        self.function: Callable[Concatenate[Subject, Given, P], V] = function
        self.question, self.needs = question, needs
        self.compared = compared  # the same of several models, by name

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
        bound.__doc__, bound.__name__ = self.function.__doc__, self.name  # shown by notebooks
        bound.noted = partial(inspection.noted, self.name)
        found: Callable[P, V] = bound
        return found

    def given(self, inspection: "Inspection") -> Given:
        """The readings that the function takes."""
        raise NotImplementedError


class InputView(ViewCall[Reading, P, V]):
    """A view of one input."""

    def given(self, inspection: "Inspection") -> Reading:
        return inspection.reading


class DataView(ViewCall[list[Reading], P, V]):
    """A view of several inputs: this one and those of `data`."""

    def given(self, inspection: "Inspection") -> list[Reading]:
        """All of them, the input first."""
        return [inspection.reading, *inspection.data]


class Inspection(Shown):
    """One input of a model, with every view as a method; `views()` lists them."""

    def __init__(
        self,
        subject: Subject,
        given: Any,
        *,
        target: str | None = None,
        data: Iterable[Any] = (),
        show: Show | None = None,
    ) -> None:
        self.subject = subject if show is None else subject._replace(shown=WorkShown(show))
        self.reading = read(subject, given, target=target)
        self.data = self.subject.made("inputs", list(data), lambda one: read(self.subject, one))
        self._beliefs = FaithfulnessBadges(subject.model)

    attention = InputView(attention, "which tokens each token attends to, and how strongly", requirements.attention)
    heads = DataView(
        heads, "what each attention head does: previous token, first token, same word", requirements.attention
    )
    head_view = InputView(head_view, "what each head attends to from one token, as lines", requirements.attention)
    query_key = InputView(
        query_key, "why an attention weight is high: query times key, by dimension", requirements.keys
    )
    alignment = InputView(alignment, "which source words each target word attends to", requirements.alignment)
    gates = InputView(gates, "gates and states of an LSTM or GRU at each token", requirements.gates)
    states = InputView(states, "the hidden states over the input, in two dimensions", requirements.states)
    probe = DataView(probe, "which units track a feature, such as depth or position", requirements.states)
    gradients = InputView(
        gradients,
        "how far back gradients reach, and where they vanish",
        requirements.an_answer,
        compared=gradients_compared,
    )
    health = DataView(health, "activations, gradient norms, dead and saturated units of each layer")
    filters = DataView(filters, "the n-grams that activate each filter most", requirements.filters)
    filter_activations = InputView(
        filter_activations,
        "which filters are active, and how much each adds to the score",
        requirements.filter_activations,
    )
    activation_maps = InputView(
        activation_maps, "where in an image each filter is active", requirements.picture_filters
    )
    picture_filters = DataView(
        picture_filters, "the image patches that activate each filter most", requirements.picture_filters
    )
    positions = InputView(positions, "how positions are encoded, and the longest input of training", positions)
    attribution = InputView(attribution, "which tokens the prediction depends on", requirements.an_answer)
    attributions = InputView(
        attributions_compared, "attributions by several methods, and how well they agree", requirements.an_answer
    )
    attribution_table = InputView(
        attribution_table, "which tokens each of several predictions depends on", requirements.answers_by_element
    )
    similarity_pairs = InputView(
        similarity_pairs, "which pairs of tokens make two texts similar", requirements.two_texts
    )
    ngrams = InputView(
        ngram_contributions, "the exact contribution of each n-gram (linear models)", requirements.ngrams
    )
    faithfulness = DataView(
        faithfulness, "whether attention or an attribution is faithful to the model", requirements.believable
    )
    neighbors = DataView(neighbors, "the nearest neighbors of a word in context", requirements.contexts)
    next_tokens = InputView(
        next_tokens, "next-token probabilities, and what sampling does to them", requirements.next_tokens
    )
    logit_lens = InputView(logit_lens, "what each layer predicts through the output head", logit_lens_places)
    beam_tree = InputView(beam_tree, "what beam search tried, kept and pruned", requirements.next_tokens)
    lattice = InputView(lattice, "why these tags: emissions, transitions, best paths, confidence", requirements.tags)
    tokenization = InputView(tokenization, "how the tokenizer split the text", tokenization)
    swap = InputView(what_if.swap, "what changes when a word is replaced", requirements.words)
    ablate = InputView(what_if.ablate, "what changes when an attention head is set to zero", requirements.keys)
    clamp = InputView(what_if.clamp, "what changes when a unit or gate has a fixed value", requirements.recurrence)
    patch = InputView(what_if.patch, "what changes with an activation from another input", requirements.states)
    edits = InputView(what_if.edited, "what changes inside any edit (Python only)")
    graph = InputView(
        answer_graph, "the computation graph: every operation, its value and its gradient", requirements.an_answer
    )

    def views(self) -> dict[str, str]:
        """The views that are available for this model and input, each with the question that it answers."""
        return {look.name: look.question for look in VIEWS.values() if self._reason(look) is None}

    def missing(self) -> dict[str, str]:
        """The views that are not available, each with the reason."""
        return {look.name: reason for look in VIEWS.values() if (reason := self._reason(look)) is not None}

    def view(self, name: str, /, **options: Any) -> View:
        """The view of this name, with its options: the same as the method of that name."""
        if name not in VIEWS:
            raise ConfigError(f"there is no view '{name}'", fix=did_you_mean(name, VIEWS))
        found: View = getattr(self, name)(**options)
        return found

    def slides(self, name: str, option: str, values: Iterable[Any], /, **options: Any) -> Slides:
        """The same view for several values of one option, such as layers or heads; a notebook shows a tab for each.

        Args:
            name: the view, such as "attention".
            option: the option that differs, such as "head".
            values: its values, such as range(4).
            options: the other options of the view.
        """
        chosen = tuple(values)
        if not chosen:
            raise ConfigError(f"slides of {name}: no values for {option}", fix="give at least one, such as range(4)")
        return Slides(option, chosen, tuple(self.view(name, **options, **{option: value}) for value in chosen))

    def _reason(self, look: ViewCall[Any, Any, Any]) -> str | None:
        return requirements.reason(look.needs, self.subject, self.reading)

    @cached_property
    def cut(self) -> tuple[str, ...]:
        """A note that the input was truncated; empty if the model reads all of it."""
        return truncation_notes(self.subject, [self.reading])

    @cached_property
    def all_cut(self) -> tuple[str, ...]:
        """A note on how many inputs were truncated; computed once, because it tokenizes all of them."""
        return truncation_notes(self.subject, [self.reading, *self.data])

    def noted(self, name: str, view: View) -> InspectionNotes:
        """Notes on a view: that its inputs were truncated, and how faithful an explanation is, or how to measure it."""
        self._beliefs.learn(view)
        missing = self._reason(VIEWS["faithfulness"])
        # The explanations that it shows: itself, or the views that an edit compares
        pictures = [one.of for one in view.differences] if isinstance(view, what_if.ChangeView) else [name]
        badges = {self._beliefs.badge(picture, missing): None for picture in pictures}  # each once
        cut = self.all_cut if isinstance(VIEWS[name], DataView) else self.cut
        notes = (note for badge in badges for note in badge.notes)
        return InspectionNotes((*cut, *notes), tuple(hint for badge in badges for hint in badge.hints))

    def document(self) -> Document:
        """The available views as a table."""
        return Document(self.told(), [TableBlock((), [(Code(name), asks) for name, asks in self.views().items()])])

    def to_json(self) -> dict[str, Any]:
        """The available views with their questions, and the missing ones with the reasons."""
        return {"views": self.views(), "missing": self.missing()}

    def show(self) -> None:
        """Show the overview, in a notebook or on standard output."""
        show(self)

    def __repr__(self) -> str:
        return f"Inspection({self.told()})"

    def told(self) -> str:
        """The task and the input, in a few words."""
        sides = ", ".join(f"{side.name} of {counted(len(side.tokens), 'token')}" for side in self.reading.sides)
        return f"{self.subject.task.name}: {'a picture' if isinstance(self.reading.inputs, Tensor) else sides}"


VIEWS: dict[str, ViewCall[Any, Any, Any]] = {
    name: look for name, look in vars(Inspection).items() if isinstance(look, ViewCall)
}
