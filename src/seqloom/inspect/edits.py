"""Edits: change heads, attention weights, gates or activations of a model inside a `with` block.

    with ablated(subject, layer=1, head=3):             the output of an attention head is zero
    with attending(subject, reading, layer=1, ...):     a token has given attention weights
    with patched(subject, reading, other, at=5):        an activation comes from another text
    with clamped(subject, layer=0, gate="forget", ...): a gate, or a unit, has a fixed value at every token
    with carried(subject, reading, other, at=5):        the recurrent state comes from another text from there on

The first three act through taps. A fused recurrent kernel cannot be changed inside, so the last two run recurrent
layers token by token with a changed cell, and later tokens see the effect. The weights of the model never change:
after the `with` block the predictions are exactly the same as before. `model_state` detects training and edits.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.errors import ConfigError, DataError, did_you_mean
from seqloom.inspect.attention_weights import chosen_heads, chosen_layer, chosen_token, layers_of
from seqloom.inspect.faithfulness.bench import ImposedRows, imposed
from seqloom.inspect.flow import changed_states, still, unrolled
from seqloom.inspect.layers import LayerPlace, before, chosen, heard, is_backward, places, required, state_places
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import Reading, Subject
from seqloom.nn.mixers.recurrent import Recurrent
from seqloom.nn.ops.kernels import using
from seqloom.nn.ops.recurrence import Cell, Memory
from seqloom.nn.taps import listening, taps
from seqloom.report.numbers import counted

LEAST_SUM = 1e-9
MIXED = ".mixed"  # the tap with the outputs of the heads of a layer


@contextmanager
def ablated(subject: Subject, *, layer: int | str | None = None, head: int | None = None) -> Iterator[str]:
    """Set the output of an attention head to zero, or of all heads of a layer; yields the name of the tap."""
    paths = [name.removesuffix(MIXED) for name in taps(subject.model) if name.endswith(MIXED)]
    found = required(paths, subject.model, "heads", "none of its layers uses attention")
    wanted = layer.removesuffix(MIXED) if isinstance(layer, str) else layer
    path = chosen({path: path for path in found}, wanted, "layers with attention heads")
    heads: Any = getattr(subject.model.get_submodule(path), "heads", None)
    count = 1 if heads is None else int(heads.num_heads)  # an alignment is one head
    if head is not None and not 0 <= head < count:
        raise ConfigError(
            f"there is no head {head}: {path} has {counted(count, 'head')}, 0 to {count - 1}", fix="choose one of them"
        )

    def silence(_: str, mixed: Tensor) -> Tensor:  # [B,H,T,D/H]
        kept = torch.ones(count, dtype=mixed.dtype, device=mixed.device)
        kept[slice(None) if head is None else head] = 0
        return mixed * kept[:, None, None]

    with listening(subject.model, f"{path}{MIXED}", silence):
        yield f"{path}{MIXED}"


@contextmanager
def attending(
    subject: Subject,
    reading: Reading,
    *,
    token: int | str,
    weights: Sequence[float],
    layer: int | str | None = None,
    head: int | None = None,
) -> Iterator[Tensor]:
    """Give a token these attention weights, one for each key, rescaled to sum to 1; yields the weights.

    Works for any attention layer, and for attention pooling, whose only row is token 0.
    """
    layers = layers_of(subject, reading)
    attending_layer = chosen_layer(layers, layer)
    at = chosen_token(attending_layer.queries, token)
    given = torch.tensor(list(map(float, weights)))
    if len(given) != len(attending_layer.keys):
        fix = "give one weight for each key"
        raise DataError(f"{len(given)} weights for {len(attending_layer.keys)} keys", fix=fix)
    if not bool((given >= 0).all()) or not bool(given.isfinite().all()) or float(given.sum()) < LEAST_SUM:
        raise DataError(
            "the weights are not a distribution: all must be 0 or more, and one above 0",
            fix="give weights such as [0.5, 0.5, 0]",
        )
    wanted = (given / given.sum()).to(subject.device)
    turns = _Turns(attending_layer.call, sum(each.path == attending_layer.path for each in layers))

    def change(rows: ImposedRows) -> Tensor:
        is_mine = turns.next() if rows.start == 0 else turns.now
        if not is_mine or not rows.start <= at < rows.stop:
            return rows.weights
        mine = chosen_heads(attending_layer, rows.weights.shape[1], head)
        if rows.weights.shape[-1] != len(wanted):
            raise DataError(
                f"{len(wanted)} weights for a text with {rows.weights.shape[-1]} keys",
                fix="inside this edit, read only texts of the same length",
            )
        if bool((wanted > 0).logical_and(~rows.allowed[0, 0, at - rows.start]).any()):
            raise DataError(
                f"token {at} has weights on tokens that the mask hides", fix="give masked tokens the weight 0"
            )
        changed = rows.weights.clone()
        changed[:, mine, at - rows.start] = wanted.to(changed.dtype)
        return changed

    with imposed(subject.model, attending_layer.path, change):
        yield wanted


class _Turns:
    """Counts the calls of a layer that is used several times in a pass, once for each of two texts."""

    def __init__(self, mine: int, every: int) -> None:
        self.mine, self.every, self.count, self.now = mine, every, 0, False

    def next(self) -> bool:
        """Whether the call that begins is the requested one."""
        self.now = self.count % self.every == self.mine
        self.count += 1
        return self.now


@contextmanager
def patched(
    subject: Subject,
    reading: Reading,
    other: Reading,
    *,
    at: int | str,
    layer: int | str | None = None,
    side: str | None = None,
) -> Iterator[str]:
    """Replace the output of a layer at one token by the one from another reading; yields the name of the tap.

    For two texts that differ in one word, this shows which layers carry the difference (activation patching, Vig et
    al. 2020).
    """
    places = required(
        state_places(subject.model, reading, side), subject.model, "states", "none of its layers has a tap"
    )
    place: LayerPlace = chosen({one.path: one for one in places}, layer, "layers with states")
    token = chosen_token(place.tokens, at)
    _require_alike(reading, other)
    vectors: Tensor = heard(subject, other, [place.path])[place.path][place.call]
    if token >= vectors.shape[1]:
        raise DataError(
            f"there is no token {token} in the other text, which has {vectors.shape[1]} tokens",
            fix="choose an earlier token",
        )

    turns = _Turns(place.call, _texts(reading, place))

    def replace(_: str, values: Tensor) -> Tensor:
        if not turns.next():
            return values
        if token >= values.shape[1]:
            raise DataError(
                f"there is no token {token} to patch in a text of {values.shape[1]} tokens",
                fix="inside this edit, read only texts of the same length",
            )
        changed = values.clone()
        changed[:, token] = vectors[0, token]
        return changed

    with listening(subject.model, place.path, replace):
        yield place.path


def _require_alike(reading: Reading, other: Reading) -> None:
    if len(other.sides) != len(reading.sides):
        raise DataError(
            f"the other input has {counted(len(other.sides), 'text')}, this one has {len(reading.sides)}",
            fix="give the same number of texts",
        )


def _texts(reading: Reading, place: LayerPlace) -> int:
    """The number of texts that the stack of a layer reads in one pass."""
    return sum(side.stack == reading.side(place.side).stack for side in reading.sides)


class ModelState(NamedTuple):
    """A fingerprint of weights, listeners, hooks and cells; equal if nothing changed."""

    weights: tuple[tuple[int, int], ...]  # which tensor, and how often it was changed in place
    heard: tuple[Any, ...]  # listeners of taps
    hooks: tuple[Any, ...]
    cells: tuple[Cell, ...]  # of recurrences


def model_state(model: nn.Module) -> ModelState:
    return ModelState(
        tuple((id(weight), 0 if weight.is_inference() else weight._version) for weight in model.parameters()),
        tuple(one for tap in taps(model).values() for one in tap._listeners),
        tuple(
            hook
            for module in model.modules()
            for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
        ),
        tuple(module.cell for module in model.modules() if isinstance(module, Recurrent)),
    )


TANH = "candidate"  # a tanh; all other gates are logistic


@contextmanager
def clamped(
    subject: Subject, *, unit: int, value: float, gate: str | None = None, layer: int | str | None = None
) -> Iterator[str]:
    """Fix a unit of a recurrent layer, or one of its gates, at one value; yields the path of the layer."""
    every = [path for path, module in subject.model.named_modules() if isinstance(module, Recurrent)]
    found = required(every, subject.model, "recurrence", "none of its layers is recurrent")
    path = chosen({name: name for name in found}, layer, "recurrent layers")
    module: Any = subject.model.get_submodule(path)
    if not 0 <= unit < module.width:
        raise ConfigError(
            f"there is no unit {unit}: {path} has {module.width} units, 0 to {module.width - 1}",
            fix="choose one of them",
        )
    gates = module.cell.gates
    if gate is not None and gate not in gates:
        fix = (
            did_you_mean(gate, gates) if gates else "this layer has no gates: leave gate out to clamp the hidden state"
        )
        raise ConfigError(f"{path} has no gate '{gate}'", fix=fix)
    low = -1.0 if gate in (TANH, None) else 0.0
    if not math.isfinite(value) or (gate is not None and not low <= value <= 1.0):
        raise ConfigError(f"{gate or 'the unit'} cannot be {value:g}", fix=f"give a number from {low:g} to 1")

    def hold(state: Memory) -> Memory:
        hidden, *others = state
        fixed = hidden.clone()
        fixed[:, unit] = value
        return (fixed, *others)

    cell = changed_states(module.cell, hold) if gate is None else _gated(module.cell, gate, unit, value)
    with _reading_with(module, cell):
        yield path


@contextmanager
def _reading_with(module: Any, cell: Cell) -> Iterator[None]:
    """Inside the `with` block, a recurrent layer has another cell and runs token by token."""
    before = module.cell
    module.cell = cell
    try:
        with using(recurrence="plain"):
            yield
    finally:
        module.cell = before


def _gated(cell: Cell, gate: str, unit: int, value: float) -> Cell:
    """The cell with one gate of one unit fixed at `value`.

    A gate is s(fed + kept) or tanh(fed + kept): fed becomes the inverse of the value, and kept becomes zero.
    """
    place = cell.gates.index(gate)
    given = torch.tensor(value, dtype=torch.float64)
    inverse = float(torch.atanh(given) if gate == TANH else torch.logit(given))

    def fixed(part: Tensor, number: float) -> Tensor:
        changed = part.clone()
        changed[..., place * (part.shape[-1] // len(cell.gates)) + unit] = number
        return changed

    def update(fed: Tensor, kept: Tensor, state: Memory) -> Memory:
        return cell.update(fixed(fed, inverse), fixed(kept, 0.0), state)

    def opened(fed: Tensor, kept: Tensor) -> tuple[Tensor, ...]:
        return cell.open(fixed(fed, inverse), fixed(kept, 0.0))

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
    """Replace the recurrent state after a token by the one from another text; yields the path of the layer.

    Both hidden state and cell are replaced; the layer continues from there.
    """
    every = places(subject.model, reading, (Recurrent,), side)
    found = required(every, subject.model, "recurrence", "none of its layers is recurrent")
    place: LayerPlace = chosen({one.path: one for one in found}, layer, "recurrent layers")
    token = chosen_token(place.tokens, at)
    _require_alike(reading, other)
    known = _states(subject, other, place)
    step = len(place.tokens) - 1 - token if is_backward(subject.model, place.path) else token
    if step >= len(known):
        raise DataError(
            f"there is no token {token} in the other text, which has {len(known)} tokens", fix="choose another token"
        )
    module = place.module(subject.model)
    clock = _Clock(_texts(reading, place))

    def exchange(state: Memory) -> Memory:
        due = clock.tick() == (place.call, step)
        return tuple(part.expand_as(mine) for part, mine in zip(known[step], state, strict=True)) if due else state

    hooked = subject.model.register_forward_pre_hook(clock.begin)
    with hooked, _reading_with(module, changed_states(module.cell, exchange)):
        yield place.path


@torch.no_grad()
def _states(subject: Subject, reading: Reading, place: LayerPlace) -> list[Memory]:
    """The states of a layer after each token, in the order in which it reads."""
    with still(subject.model), unrolled(subject.model) as states:
        scores(subject, reading.inputs)
    side = reading.side(place.side)
    start = sum(len(each.tokens) for each in before(reading, side))
    return states[place.path][start : start + len(side.tokens)]


class _Clock:
    """Counts the tokens that a layer reads, and the texts of a pass."""

    def __init__(self, texts: int) -> None:
        self.texts, self.uses, self.time = texts, -1, -1

    def begin(self, *_: object) -> None:
        self.uses, self.time = self.uses + 1, -1

    def tick(self) -> tuple[int, int]:
        """The number of the text and of the next token."""
        self.time += 1
        return self.uses % self.texts, self.time
