"""What if this gate, this unit, this state of a recurrence were different: edits that last as long as a `with`.

    with clamped(subject, layer=0, gate="forget", ...):     a gate, or a unit, has one value at every element
    with carried(subject, reading, other, at=5):            what is remembered comes from another text from there on

Between two elements of a fused kernel nothing can be reached, so while an edit lasts the recurrences of the model run
element by element, and another cell stands in the edited layer. Later elements feel it: it is part of the recurrence.
Weights are never touched, and behind the `with` answers are the same, bit for bit.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from seqloom.errors import ConfigError, DataError, did_you_mean
from seqloom.inspect.attention_rows import chosen_token
from seqloom.inspect.flow import still
from seqloom.inspect.layers import LayerPlace, chosen, is_backward, places, required
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import Reading, Subject
from seqloom.nn.mixers.recurrent import Recurrent
from seqloom.nn.ops.kernels import using
from seqloom.nn.ops.recurrence import Cell, Memory

TANH = "new"  # the gate that is a tanh: what is written; all others are logistic


@contextmanager
def clamped(
    subject: Subject, *, unit: int, value: float, gate: str | None = None, layer: int | str | None = None
) -> Iterator[str]:
    """Inside the `with`, a unit of a recurrent layer, or one of its gates, has one value at every element.

    Gives the path of the layer.
    """
    every = [path for path, module in subject.model.named_modules() if isinstance(module, Recurrent)]
    found = required(every, subject.model, "recurrence", "no layer of it carries a state")
    path = chosen({name: name for name in found}, layer, "recurrent layers")
    module: Any = subject.model.get_submodule(path)
    _require(module, path, unit, value, gate)
    cell = _standing(module.cell, unit, value) if gate is None else _gated(module.cell, gate, unit, value)
    with _reading_with(module, cell):
        yield path


@contextmanager
def _reading_with(module: Any, cell: Cell) -> Iterator[None]:
    """Inside the `with`, a recurrent layer has another cell, and runs element by element."""
    before = module.cell
    module.cell = cell
    try:
        with using(recurrence="plain"):
            yield
    finally:
        module.cell = before


def _require(module: Recurrent, path: str, unit: int, value: float, gate: str | None) -> None:
    if not 0 <= unit < module.width:
        raise ConfigError(f"there is no unit {unit}: {path} has {module.width}, from 0", fix="choose one of them")
    gates = module.cell.gates
    if gate is not None and gate not in gates:
        fix = did_you_mean(gate, gates) if gates else "clamp a unit of its state: leave gate out"
        raise ConfigError(f"{path} has no gate '{gate}'", fix=fix)
    low = -1.0 if gate in (TANH, None) else 0.0
    if not math.isfinite(value) or (gate is not None and not low <= value <= 1.0):
        raise ConfigError(f"{gate or 'a unit'} at {value:g}", fix=f"give a number from {low:g} to 1")


def _standing(cell: Cell, unit: int, value: float) -> Cell:
    """The same recurrence, one unit of whose hidden state is always `value`."""

    def update(fed: Tensor, kept: Tensor, state: Memory) -> Memory:
        hidden, *others = cell.update(fed, kept, state)
        held = hidden.clone()
        held[:, unit] = value
        return (held, *others)

    return cell._replace(update=update)


def _gated(cell: Cell, gate: str, unit: int, value: float) -> Cell:
    """The same recurrence, one gate of one unit always at `value`.

    A gate is s(fed + kept), or tanh: with the first at the inverse of the value and the second at zero it is the value.
    """
    place = cell.gates.index(gate)
    given = torch.tensor(value, dtype=torch.float64)
    inverse = float(torch.atanh(given) if gate == TANH else torch.logit(given))

    def held(part: Tensor, number: float) -> Tensor:
        changed = part.clone()
        changed[..., place * (part.shape[-1] // len(cell.gates)) + unit] = number
        return changed

    def update(fed: Tensor, kept: Tensor, state: Memory) -> Memory:
        return cell.update(held(fed, inverse), held(kept, 0.0), state)

    def opened(fed: Tensor, kept: Tensor) -> tuple[Tensor, ...]:
        return cell.open(held(fed, inverse), held(kept, 0.0))

    return cell._replace(update=update, open=opened)


@contextmanager
def carried(
    subject: Subject,
    reading: Reading,
    other: Reading,
    *,
    at: int | str,
    layer: int | str | None = None,
    side: str | None = None,
) -> Iterator[str]:
    """Inside the `with`, a layer remembers, once it has read a token, what it remembered there in another text.

    Gives the path of the layer. Both its hidden vector and its cell are exchanged; what follows is read from there.
    """
    every = places(subject.model, reading, (Recurrent,), side)
    found = required(every, subject.model, "recurrence", "no layer of it carries a state")
    place: LayerPlace = chosen({one.path: one for one in found}, layer, "recurrent layers")
    token = chosen_token(place.tokens, at)
    known = _states(subject, other, place)
    step = len(place.tokens) - 1 - token if is_backward(subject.model, place.path) else token
    if step >= len(known):
        raise DataError(
            f"the other text has {len(known)} tokens, and token {token} was asked for", fix="choose another"
        )
    module = place.module(subject.model)
    clock = _Clock(sum(each.stack == reading.side(place.side).stack for each in reading.sides))

    def exchange(state: Memory) -> Memory:
        asked = clock.tick() == (place.call, step)
        return tuple(part.expand_as(mine) for part, mine in zip(known[step], state, strict=True)) if asked else state

    handle = subject.model.register_forward_pre_hook(clock.begin)
    try:
        with _reading_with(module, _changing(module.cell, exchange)):
            yield place.path
    finally:
        handle.remove()


@torch.no_grad()
def _states(subject: Subject, reading: Reading, place: LayerPlace) -> list[Memory]:
    """What a layer remembers after each element that it reads, in its own order."""
    module, seen = place.module(subject.model), []

    def keep(state: Memory) -> Memory:
        seen.append(state)
        return state

    with still(subject.model), _reading_with(module, _changing(module.cell, keep)):
        scores(subject, reading.inputs)
    side = reading.side(place.side)
    mine = [len(each.tokens) for each in reading.sides if each.stack == side.stack]
    offset = sum(mine[: place.call])
    return seen[offset : offset + len(side.tokens)]


class _Clock:
    """Which element a layer reads: of which of the texts that are read in turn, and its number there.

    Each use of the model is one text, of whatever length, so it may be another one than the edit was made for.
    """

    def __init__(self, texts: int) -> None:
        self.texts, self.uses, self.time = texts, -1, -1

    def begin(self, *_: object) -> None:
        """Nothing; a text begins."""
        self.uses, self.time = self.uses + 1, -1

    def tick(self) -> tuple[int, int]:
        """The text and the element that comes now."""
        self.time += 1
        return self.uses % self.texts, self.time


def _changing(cell: Cell, change: Callable[[Memory], Memory]) -> Cell:
    """The same recurrence, whose states `change` may exchange, one after the other."""

    def update(fed: Tensor, kept: Tensor, state: Memory) -> Memory:
        return change(cell.update(fed, kept, state))

    return cell._replace(update=update)
