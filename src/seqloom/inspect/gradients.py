"""Gradients through time: the gradient of a score at each token, and how far gradients reach in every layer.

Two measures (Bengio et al. 1994):

    |dL/dh_t|       the total gradient of a score at the state after token t, for each layer and direction; of a
                    recurrent layer through all its later states, of any other layer at its output
    |dy_t/dx_k|     the Jacobian of one layer, and of the complete stack, by the distance t - k; independent of a score
                    (`seqloom.inspect.flow`)

On a logarithmic axis a constant factor per token is a straight line. float32 has no normal number below 1.2e-38; the
view says where gradients underflow. The total gradient is also taken at the input vectors.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import DataError
from seqloom.inspect.attribution.goals import chosen_goal
from seqloom.inspect.flow import (
    LEAST_SHOWN,
    LONGEST,
    Flow,
    flow_between,
    flow_drawn,
    flows_while,
    measure_text,
    reach_text,
    still,
    unrolled,
)
from seqloom.inspect.layer_names import layer_title, short_name
from seqloom.inspect.layers import (
    before,
    call_of,
    changed_vectors,
    is_backward,
    places,
    read_by,
    state_places,
)
from seqloom.inspect.readings import read, scores, truncation_notes
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import SMALL, View
from seqloom.nn.mixers.recurrent import Recurrent
from seqloom.nn.taps import listening
from seqloom.nn.types import Padded
from seqloom.report.figures.bars import Bars
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.heatmap import HeatMap
from seqloom.report.figures.line import Line, Series
from seqloom.report.figures.matrix import Matrix
from seqloom.report.labels import shortened
from seqloom.report.numbers import number

UNDERFLOW = torch.finfo(torch.float32).tiny
NEAR_UNDERFLOW = 1e-30  # smaller norms count as underflow
TOKEN = 12  # characters of a token in the label of an axis
SPLITS = ("hidden", "cell")  # of a recurrent state, in order


class Totals(NamedTuple):
    """The norm of the total gradient at each token."""

    layer: str
    part: str  # hidden or cell; output for a layer without a state
    backward: bool  # the layer reads from the end
    norms: tuple[float, ...]

    @property
    def name(self) -> str:
        """Layer and part in words."""
        return f"{short_name(self.layer)} {self.part}"

    @property
    def by_distance(self) -> Flow:
        """The norms by the distance from the token that is read last."""
        return Flow(self.layer, self.norms if self.backward else self.norms[::-1])

    @property
    def factor(self) -> float:
        """The fitted factor by which the norm changes per token of distance from the token that is read last."""
        return self.by_distance.factor

    @property
    def lost(self) -> int:
        """The number of tokens whose gradient underflows in float32; zeros that the norm does not fade to do not count.

        >>> Totals("layer", "hidden", False, (0.0, 0.0, 1e-36, 1e-3)).lost
        2
        >>> Totals("layer", "output", False, (0.0, 1.0)).lost
        0
        """
        least = min((norm for norm in self.norms if norm > 0), default=1.0)
        return sum(norm < UNDERFLOW for norm in self.norms) if least < NEAR_UNDERFLOW else 0


def total_gradients(
    subject: Subject, reading: Reading, goal: Callable[[Tensor], Tensor], side: str | None = None
) -> tuple[Totals, ...]:
    """The total gradient of a score at each token: at the input vectors of one side, and in every layer."""
    model, chosen = subject.model, reading.side(side)
    recurrent = [place.path for place in places(model, reading, (Recurrent,), side)]
    layers = {path.split(".")[2] for path in recurrent}  # of stack.layers.number.rest
    others = [place for place in state_places(model, reading, side) if place.path.split(".")[2] not in layers]
    outputs: dict[str, list[Tensor]] = {}

    def record(name: str, value: Tensor) -> None:
        outputs.setdefault(name, []).append(value)

    def enter(_call: int, vectors: Padded) -> Padded:
        awake = _awake(vectors)
        record("input", awake.values)
        return awake

    with ExitStack() as stack:
        for context in (torch.enable_grad(), still(model), changed_vectors(model, chosen.stack, enter)):
            stack.enter_context(context)
        states = stack.enter_context(unrolled(model))
        for place in others:
            stack.enter_context(listening(model, place.path, record))
        number = goal(scores(subject, reading.inputs)).sum()
    call, begin = call_of(reading, chosen), sum(len(each.tokens) for each in before(reading, chosen))
    points = [_Point(f"{chosen.stack}.input", "vectors", False, [outputs["input"][call]])]
    for path in recurrent:
        mine = states[path][begin : begin + len(chosen.tokens)]
        backward = is_backward(model, path)
        parts = zip(SPLITS, zip(*mine, strict=True), strict=False)
        points += [_Point(path, part, backward, list(tensors)) for part, tensors in parts]
    for place in others:
        points.append(_Point(place.path.removesuffix(".output"), "output", False, [outputs[place.path][call]]))
    return _measured(number, points)


class _Point(NamedTuple):
    """Where a gradient is taken: states one by one in reading order, or all in one tensor."""

    layer: str
    part: str
    backward: bool
    tensors: list[Tensor]


def _awake(vectors: Padded) -> Padded:
    """The vectors with requires_grad, also if no weight needs a gradient."""
    return vectors.with_values(vectors.values.detach().requires_grad_())


def _measured(number: Tensor, points: Sequence[_Point]) -> tuple[Totals, ...]:
    every = [tensor for point in points for tensor in point.tensors]
    slopes = iter(torch.autograd.grad(number, every, allow_unused=True))
    found = []
    for point in points:
        # The norm at each token of gradients [1,D] or [1,T,D]; zero without a gradient
        mine = [torch.zeros_like(at) if (slope := next(slopes)) is None else slope for at in point.tensors]
        joined = torch.cat([slope.reshape(-1, slope.shape[-1]) for slope in mine])
        norms = joined.double().norm(dim=1).tolist()
        found.append(Totals(point.layer, point.part, point.backward, tuple(norms[::-1] if point.backward else norms)))
    return tuple(found)


def stack_flow(subject: Subject, reading: Reading, *, side: str | None = None, seed: int = 0) -> Flow:
    """The norm of dy_T/dx_k through a stack: its output at the last token T by its inputs."""
    stack, call = reading.side(side).stack, call_of(reading, reading.side(side))
    entered: list[Tensor] = []
    left: list[Padded] = []

    def enter(_call: int, vectors: Padded) -> Padded:
        awake = _awake(vectors)
        entered.append(awake.values)
        return awake

    def leave(_module: Any, _arguments: Any, output: Padded) -> None:
        left.append(output)

    model = subject.model
    hooked = model.get_submodule(stack).register_forward_hook(leave)
    with hooked, torch.enable_grad(), still(model), changed_vectors(model, stack, enter):
        scores(subject, reading.inputs)
    return flow_between(entered[call], left[call].last(), layer=stack, seed=seed)


MOST_SHOWN = 24  # curves in one picture
SAME = 1e-3  # relative difference up to which two curves count as one
CELLS = 1600  # of a table with its numbers


@dataclass(frozen=True, kw_only=True)
class GradientsView(View):
    """Total gradients of one score, and the gradient flow through every layer."""

    kind: ClassVar[str] = "gradients"
    tokens: tuple[str, ...]
    answer: str
    totals: tuple[Totals, ...]
    flows: tuple[Flow, ...]  # of each mixer that mixes tokens, then of the stack

    def figures(self) -> tuple[Figure, ...]:
        flows = [flow for flow in self._distinct if len(flow.norms) > 2 and max(flow.norms) > LEAST_SHOWN]
        first = self._through_time() if len(self.tokens) > 1 else self._at_one_token()
        return (first, *self._by_layer(), *([flow_drawn(flows[:MOST_SHOWN])] if flows else []))

    @property
    def _distinct(self) -> tuple[Flow, ...]:
        """The flows without that of a stack that is the same as that of its only layer."""
        *inner, last = self.flows or (Flow("", ()),)
        same = any(np.allclose(last.norms, one.norms, rtol=SAME) for one in inner if len(one.norms) == len(last.norms))
        return tuple(inner) if same else self.flows

    def _at_one_token(self) -> Bars:
        """The norms at the only token: a curve would be a single point."""
        norms = [each.norms[0] if math.isfinite(each.norms[0]) else None for each in self.totals]
        title = f"Gradient of {self.answer} at the only token"
        return Bars(
            title=title, labels=[each.name for each in self.totals], values=norms, x_label="norm of the gradient"
        )

    def _changes(self, shown: Sequence[Totals]) -> str:
        """How the norms change along the direction in which each layer reads, in words.

        Below a layer that reads in both directions, gradients come from both sides. The change along one of them
        would measure where the answer is, not what the layer keeps, so only the last layer is told.
        """
        both = any(each.backward for each in self.totals)
        top = self.totals[-1].layer.rpartition(".")[0]
        told = []
        for each in (one for one in shown if not both or one.layer.rpartition(".")[0] == top):
            known = [at for at, norm in enumerate(each.norms) if norm > 0]
            toward = "toward the end, because it reads backward" if each.backward else "toward the start"
            if each.lost == 0 and len(known) == 1:
                told.append(f"{each.name}: a gradient only at token {known[0]}")
            elif each.by_distance.is_steady:
                told.append(f"{each.name}: the norm changes by a factor of {number(each.factor)} per token {toward}")
            else:
                told.append(f"{each.name}: no steady change {toward}")
        return "; ".join(told[:6])

    def _through_time(self) -> Line:
        places = [float(at) for at in range(len(self.tokens))]
        shown = [each for each in self.totals if max(each.norms) > UNDERFLOW][: MOST_SHOWN - 1]
        series = []
        for each in shown:
            seen = [norm if UNDERFLOW < norm < math.inf else None for norm in each.norms]
            series.append(Series(name=each.name, x=places, y=seen))
        if not shown:  # no gradient at all
            series = [Series(name="every layer", x=places, y=[0.0] * len(places))]
        elif any(each.lost for each in shown):
            ends = [places[0], places[-1]]
            series.append(Series(name="float32 underflow", x=ends, y=[UNDERFLOW] * 2))
        return Line(
            title=f"Gradient of {self.answer} at each token",
            caption=self._changes(shown),
            series=series,
            x_label=f"token, from 0 ({_named(self.tokens[0])}) to {len(places) - 1} ({_named(self.tokens[-1])})",
            y_label="norm of the gradient, log scale" if shown else "norm of the gradient",
            y_axis="log" if shown else "linear",
        )

    def _by_layer(self) -> tuple[Figure, ...]:
        """Layers x tokens, with numbers if there are few."""
        logarithms = np.array(
            [
                [math.log10(norm) if norm > 0 and math.isfinite(norm) else math.nan for norm in each.norms]
                for each in self.totals
            ]
        )
        if np.isnan(logarithms).all():
            return ()
        least = float(np.nanmin(logarithms))
        values = (logarithms - least).tolist()
        names, count = [each.name for each in self.totals], len(self.tokens)
        title = "Gradient norm by layer and token: log10 of norm / smallest norm"
        said = f"0 is the smallest norm, {number(10**least)}; 1 is ten times that."
        said += " Hatched: a gradient of zero." if np.isnan(logarithms).any() else ""
        if count <= SMALL and len(names) <= SMALL and len(names) * count <= CELLS:
            return (Matrix(title=title, caption=said, values=values, rows=names, columns=self.tokens),)
        return (
            HeatMap(
                title=title,
                caption=f"{said} {'; '.join(f'{number}: {name}' for number, name in enumerate(names))}.",
                values=values,
                x_label="token",
                y_label="layer",
                value_label="log10 of norm / smallest norm",
            ),
        )

    def _remarks(self) -> tuple[str, ...]:
        """What to know about the text as a whole; the figures say the rest in their captions."""
        said = [
            f"In {each.name} the gradient underflows float32 at {each.lost:,} of {len(each.norms):,} tokens."
            for each in self.totals
            if each.lost
        ]
        if len(self.tokens) > LONGEST and any(len(flow.norms) == LONGEST for flow in self.flows):
            said.append(f"Single layers are measured on the first {LONGEST:,} of {len(self.tokens):,} tokens.")
        if len(self.tokens) < 2:
            said.append("The text has only one token: there is no distance to measure.")
        return tuple(said)

    def _sentences(self) -> tuple[str, ...]:
        return (
            *self._remarks(),
            *(f"{layer_title(flow.layer)}: {reach_text(flow)}." for flow in self._distinct if len(flow.norms) > 1),
        )

    def _svg_sentences(self) -> tuple[str, ...]:
        return self._remarks()


def gradients(
    subject: Subject,
    reading: Reading,
    *,
    side: str | None = None,
    answer: str | int | None = None,
    at: int | str | None = None,
    seed: int = 0,
) -> GradientsView:
    """The gradient of a score at each token, by layer and direction, and how far gradients reach in each layer.

    Args:
        side: The sequence: source or target, first or second.
        answer: Label, tag or token whose score is used (default: the prediction).
        at: Position of the answer, if there are several (default: the last).
        seed: Of the random vectors that estimate Jacobian norms of long texts; short texts are measured exactly.
    """
    goal = chosen_goal(subject, reading, answer=answer, at=len(reading.rows) - 1 if at is None else at)
    start = f"{reading.side(side).stack}.layers."
    every = flows_while(subject.model, lambda: scores(subject, reading.inputs), seed=seed)
    whole = stack_flow(subject, reading, side=side, seed=seed)
    inner = [flow for flow in every if flow.layer.startswith(start)]
    backward = [is_backward(subject.model, flow.layer) for flow in inner]
    whole = whole._replace(reads="both" if any(backward) else "forward")
    flows = [flow._replace(reads="backward" if back else "forward") for flow, back in zip(inner, backward, strict=True)]
    flows += [whole] if any(whole.norms[1:]) else []
    return GradientsView(
        title=f"Gradients of {goal.name}",
        tokens=tuple(token.text for token in read_by(reading, reading.side(side))),
        answer=goal.name,
        totals=total_gradients(subject, reading, goal.of, side),
        flows=tuple(flows),
    )


@dataclass(frozen=True, kw_only=True)
class GradientsComparedView(View):
    """The gradient flow through the stack of several models, on the same input."""

    kind: ClassVar[str] = "gradients_compared"
    flows: tuple[Flow, ...]  # `layer` is the name of the model

    def figures(self) -> tuple[Figure, ...]:
        drawn = flow_drawn(self.flows, "Gradient of the last output by distance")
        return (replace(drawn, caption=measure_text(self.flows)),)  # the sentences say the rest

    def _sentences(self) -> tuple[str, ...]:
        return tuple(f"{flow.layer}: {reach_text(flow)}{_left_at_end(flow)}." for flow in self.flows)

    def _svg_sentences(self) -> tuple[str, ...]:
        return self._sentences()


def _left_at_end(flow: Flow) -> str:
    """The last point of the curve, relative to that at distance 1."""
    if flow.has_window or not flow.norms[1] > 0:
        return ""
    return (
        f"; at distance {len(flow.norms) - 1} it is {number(flow.norms[-1] / flow.norms[1])} times that at distance 1"
    )


def gradients_compared(
    subjects: Mapping[str, Subject], given: Any, *, target: str | None = None, side: str | None = None, seed: int = 0
) -> GradientsComparedView:
    """Compare how far gradients reach in several models, given by name, on the same input."""
    if not 1 <= len(subjects) <= MOST_SHOWN:
        raise DataError(f"{len(subjects)} models to compare", fix=f"give 1 to {MOST_SHOWN}")
    readings = {name: read(subject, given, target=target) for name, subject in subjects.items()}
    found = [
        stack_flow(subject, readings[name], side=side, seed=seed)._replace(layer=name)
        for name, subject in subjects.items()
    ]
    short = [flow.layer for flow in found if len(flow.norms) < 3]
    if short:
        raise DataError(f"'{short[0]}' reads fewer than 3 tokens of this input", fix="give a longer input")
    notes = [
        f"{name}: {note[0].lower()}{note[1:]}"
        for name, subject in subjects.items()
        for note in truncation_notes(subject, [readings[name]])
    ]
    return GradientsComparedView(title="How far gradients reach", flows=tuple(found), notes=tuple(notes))


def _named(token: str) -> str:
    """A token in the label of an axis."""
    return f"“{shortened(token.strip(), TOKEN)}”"
