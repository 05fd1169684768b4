"""The total gradient at each element of a sequence, of any number of the scores, in every layer and direction.

Of a recurrence it is taken at the states, through all that come later (`seqloom.inspection.unrolling`); of any other
layer at the vectors that leave it; and of every model at the vectors that enter its first layer. The Jacobian of a
whole stack is taken the same way, from what enters to what leaves it at the last element.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.inspection.asking import scores
from seqloom.inspection.flow import Flow, flow_between, still
from seqloom.inspection.layers import before, call_of, is_backward, places, short_name, state_places
from seqloom.inspection.subject import Reading, Subject
from seqloom.inspection.unrolling import unrolled
from seqloom.inspection.vectors import changed_vectors
from seqloom.mixers.recurrent import Recurrent
from seqloom.operators.recurrence import Memory
from seqloom.taps import listening
from seqloom.types import Padded

UNDERFLOW = torch.finfo(torch.float32).tiny
NEAR_UNDERFLOW = 1e-30  # what comes so near fades to nothing
PARTS = ("hidden", "cell")  # of the state of a recurrence, in its order


class Totals(NamedTuple):
    """The norm of the total gradient at each element, in the order of the tokens."""

    layer: str
    part: str  # hidden, cell; output of a layer that has no state
    backward: bool  # the layer reads from the end
    norms: tuple[float, ...]

    @property
    def name(self) -> str:
        """Layer and part in words."""
        return f"{short_name(self.layer)} {self.part}"

    @property
    def factor(self) -> float:
        """What one more element away from the end that is read last multiplies the norm by, fitted."""
        return Flow(self.layer, self.norms if self.backward else self.norms[::-1]).factor

    @property
    def lost(self) -> int:
        """At how many elements less arrives than float32 can hold; a zero that nothing fades to is no loss.

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
    """The total gradient of a number of the scores at each element: at what one side enters, and in every layer."""
    model, chosen = subject.model, reading.side(side)
    recurrent = [place.path for place in places(model, reading, (Recurrent,), side)]
    others = [place for place in state_places(model, reading, side) if not _has_any(recurrent, _layer(place.path))]
    outputs: dict[str, list[Tensor]] = {}

    def hear(name: str, value: Tensor) -> None:
        outputs.setdefault(name, []).append(value)

    def enter(call: int, vectors: Padded) -> Padded:
        awake = _awake(call, vectors)
        hear("input", awake.values)
        return awake

    with ExitStack() as stack:
        for context in (torch.enable_grad(), still(model), changed_vectors(model, chosen.stack, enter)):
            stack.enter_context(context)
        states = stack.enter_context(unrolled(model))
        for place in others:
            stack.enter_context(listening(model, place.path, hear))
        number = goal(scores(subject, reading.inputs)).sum()
    call, begin = call_of(reading, chosen), sum(len(each.tokens) for each in before(reading, chosen))
    points = [_Point(f"{chosen.stack}.input", "vectors", False, [outputs["input"][call]])]
    for path in recurrent:
        mine = states[path][begin : begin + len(chosen.tokens)]
        points += _states_of(path, mine, is_backward(model, path))
    points += [
        _Point(place.path.removesuffix(".output"), "output", False, [outputs[place.path][call]]) for place in others
    ]
    return _measured(number, points)


def _has_any(paths: Sequence[str], start: str) -> bool:
    return any(path.startswith(start) for path in paths)


class _Point(NamedTuple):
    """Where a gradient is taken: states one by one, in the order in which they are read, or all of them at once."""

    layer: str
    part: str
    backward: bool
    tensors: list[Tensor]


def _layer(path: str) -> str:
    return ".".join(path.split(".")[:3]) + "."


def _awake(_call: int, vectors: Padded) -> Padded:
    """The same vectors, whose gradient is wanted even where that of no weight is."""
    return vectors.with_values(vectors.values.detach().requires_grad_())


def _states_of(path: str, states: Sequence[Memory], backward: bool) -> list[_Point]:
    parts = zip(PARTS, zip(*states, strict=True), strict=False)
    return [_Point(path, part, backward, list(tensors)) for part, tensors in parts]


def _measured(number: Tensor, points: Sequence[_Point]) -> tuple[Totals, ...]:
    every = [tensor for point in points for tensor in point.tensors]
    slopes = iter(torch.autograd.grad(number, every, allow_unused=True))
    found = []
    for point in points:
        mine = [next(slopes) for _ in point.tensors]
        norms = _norms(mine, point.tensors)
        found.append(Totals(point.layer, point.part, point.backward, tuple(norms[::-1] if point.backward else norms)))
    return tuple(found)


def _norms(slopes: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[float]:
    """The norm at each element, of slopes [1,D] or [1,T,D]; zero where nothing comes back."""
    known = [torch.zeros_like(at) if slope is None else slope for slope, at in zip(slopes, like, strict=True)]
    joined = torch.cat([slope.reshape(-1, slope.shape[-1]) for slope in known])
    return [float(norm) for norm in joined.double().norm(dim=1).cpu()]


def stack_flow(subject: Subject, reading: Reading, *, side: str | None = None, seed: int = 0) -> Flow:
    """The norm of dy_T/dx_k through a whole stack: what leaves it at the last element by what enters at the others."""
    stack, call = reading.side(side).stack, call_of(reading, reading.side(side))
    entered: list[Tensor] = []
    left: list[Padded] = []

    def enter(number: int, vectors: Padded) -> Padded:
        awake = _awake(number, vectors)
        entered.append(awake.values)
        return awake

    def leave(_module: Any, _arguments: Any, output: Padded) -> None:
        left.append(output)

    handle = subject.model.get_submodule(stack).register_forward_hook(leave)
    try:
        with torch.enable_grad(), still(subject.model), changed_vectors(subject.model, stack, enter):
            scores(subject, reading.inputs)
    finally:
        handle.remove()
    return Flow(stack, flow_between(entered[call], left[call].last(), seed=seed))
