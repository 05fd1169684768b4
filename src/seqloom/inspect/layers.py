"""Find layers of a model by number or path, record their taps, and replace input vectors.

A layer is chosen by its number, from 0, among the layers that a view can show, or by its path. What a model
has is decided by its taps and modules, never by the name of its family.

The input vectors of the first layer can be replaced: attributions need gradients at the embeddings. The input of every
stack is a module, so one hook works for all families.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from seqloom.errors import ConfigError, did_you_mean
from seqloom.inspect.flow import still
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import Reading, Side, Subject, Token
from seqloom.nn.heads import Pooler
from seqloom.nn.mixers.bidirectional import Bidirectional
from seqloom.nn.mixers.convolution import CausalConvolution, Convolution
from seqloom.nn.mixers.recurrent import Recurrent
from seqloom.nn.taps import Tap, recording, taps
from seqloom.nn.types import Padded
from seqloom.text.special_tokens import BEGIN, NAMES

Found = TypeVar("Found")
PICTURE_MAPS = ".input.maps."  # taps of 2-D filters: [B,filters,Y,X]
EVERY_MODEL = ("gradients", "health", "attribution")


class LayerPlace(NamedTuple):
    """A module inside a stack, and the sequence that it reads."""

    path: str
    side: str
    tokens: tuple[Token, ...]  # as the stack reads them
    call: int = 0  # index of the call in one forward pass: 1 for the second of two texts

    def module(self, model: nn.Module) -> Any:
        return model.get_submodule(self.path)


def places(
    model: nn.Module, reading: Reading, kinds: tuple[type[nn.Module], ...], side: str | None
) -> list[LayerPlace]:
    """Every module of these kinds in the layers that read a side, in the order of the model."""
    chosen = reading.side(side)
    call = call_of(reading, chosen)
    start, tokens = f"{chosen.stack}.layers.", read_by(reading, chosen)
    found = (name for name, module in model.named_modules() if name.startswith(start) and isinstance(module, kinds))
    return [LayerPlace(name, chosen.name, tokens, call) for name in found]


def before(reading: Reading, side: Side) -> list[Side]:
    """The sides that the same stack reads before this one: the first of two texts."""
    return [each for each in reading.sides[: reading.sides.index(side)] if each.stack == side.stack]


def call_of(reading: Reading, side: Side) -> int:
    """The number of the call in a pass in which a stack reads this side."""
    return len(before(reading, side))


def read_by(reading: Reading, side: Side) -> tuple[Token, ...]:
    """The tokens that a stack reads: at each target token, the decoder of a translation reads the one before."""
    if len(reading.sides) > 1 and side.stack == "decoder":
        return (Token(NAMES[BEGIN], id=BEGIN), *side.tokens[:-1])
    return side.tokens


def state_places(model: nn.Module, reading: Reading, side: str | None) -> list[LayerPlace]:
    """The tap with the output of each layer, [B,T,D]: of a block its output, otherwise its last hidden state."""
    found: dict[str, LayerPlace] = {}
    for place in places(model, reading, (Tap,), side):
        layer = ".".join(place.path.split(".")[:3])  # stack.layers.number
        if place.path.endswith(".output") or (place.path.endswith(".hidden") and layer not in found):
            found[layer] = place
    return list(found.values())


@torch.no_grad()
def heard(subject: Subject, reading: Reading, names: Sequence[str]) -> dict[str, list[Any]]:
    """The values of these taps during one forward pass, by name; one entry for each call."""
    with still(subject.model), ExitStack() as stack:
        records = [stack.enter_context(recording(subject.model, name)) for name in names]
        scores(subject, reading.inputs)
    return {name: found for record in records for name, found in record.items()}


def is_backward(model: nn.Module, path: str) -> bool:
    """Whether a module reads from the end."""
    parent, _, name = path.rpartition(".")
    return isinstance(model.get_submodule(parent), Bidirectional) and name == "back"


def chosen(named: Mapping[str, Found], layer: int | str | None, what: str) -> Found:
    """Return the one with this number or path (default: the last); `what` names them in the plural."""
    if layer is None:
        return list(named.values())[-1]
    if isinstance(layer, str):
        fitting = [path for path in named if path == layer or path.startswith(f"{layer}.")]
        if len(fitting) != 1:
            raise ConfigError(f"no layer '{layer}' among the {what}", fix=did_you_mean(layer, named))
        return named[fitting[0]]
    if not 0 <= layer < len(named):
        listed = ", ".join(f"{number} ({path})" for number, path in enumerate(named))
        count = f"{len(named)} {what}" if len(named) != 1 else f"1 {what.replace('layers', 'layer', 1)}"
        raise ConfigError(f"there is no layer {layer}: this model has {count}", fix=f"choose from {listed}")
    return list(named.values())[layer]


def required(found: Sequence[Found], model: nn.Module, asked: str, reason: str) -> Sequence[Found]:
    """The layers that were found; ConfigError, which lists the available views, if there are none."""
    if not found:
        has = ", ".join([*(view for view, there in HAS.items() if there(model)), *EVERY_MODEL])
        raise ConfigError(f"this model has no {asked}: {reason}", fix=f"choose one of its views: {has}")
    return found


def _attends(model: nn.Module) -> bool:
    owners = (model.get_submodule(name.rpartition(".")[0]) for name in taps(model) if name.endswith(".weights"))
    return any(not isinstance(owner, Pooler) or owner.how == "attention" for owner in owners)


HAS: Mapping[str, Callable[[nn.Module], bool]] = {
    "attention": _attends,
    "gates": lambda model: any(isinstance(one, Recurrent) and bool(one.cell.gates) for one in model.modules()),
    "filters": lambda model: any(isinstance(one, Convolution | CausalConvolution) for one in model.modules()),
    "picture filters": lambda model: any(PICTURE_MAPS in name for name in taps(model)),
    "states": lambda model: any(name.endswith((".output", ".hidden")) for name in taps(model)),
}


Change = Callable[[int, Padded], Padded]  # (index of the call, its vectors) -> the vectors to use


@contextmanager
def changed_vectors(model: nn.Module, stack: str, change: Change) -> Iterator[None]:
    """Inside the `with` block, `change` replaces the input vectors of a stack."""
    calls = 0

    def hook(_module: nn.Module, _arguments: Any, vectors: Padded) -> Padded:
        nonlocal calls
        calls += 1
        return change(calls - 1, vectors)

    handle = input_of(model, stack).register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def input_of(model: nn.Module, stack: str) -> nn.Module:
    """The module that turns the input of a stack into vectors."""
    found = model.get_submodule(stack).input
    assert isinstance(found, nn.Module), "every stack reads through a module"
    return found
