"""Which layers of a model have what a view asks for, by number or by path; and what there is instead of it.

A layer is chosen by its number among those that have what is asked, from 0, or by its path in the model. A path names
a layer whatever the family: what a family lacks is seen from the taps and modules that its model has, never from its
name.

The vectors that the first layer reads can be replaced by others: attributions need the gradient at the vectors of
tokens, not at their numbers. The input of every stack is a module, so a hook on it serves all families.
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
from seqloom.text.special_tokens import BEGIN

Found = TypeVar("Found")
PICTURE_MAPS = ".input.maps."  # taps of 2-D filters: [B,filters,Y,X]
EVERY_MODEL = ("gradients", "health", "attribution")


class LayerPlace(NamedTuple):
    """A module inside a stack, and the sequence that it reads."""

    path: str
    side: str
    tokens: tuple[Token, ...]  # as the stack reads them
    call: int = 0  # how often the module was used before in the same pass: 1 for the second of two texts

    def module(self, model: nn.Module) -> Any:
        """The module itself."""
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
    """The sides that the same stack reads before this one: of two texts the first."""
    return [each for each in reading.sides[: reading.sides.index(side)] if each.stack == side.stack]


def call_of(reading: Reading, side: Side) -> int:
    """How often a stack was used in the same pass before it reads this side."""
    return len(before(reading, side))


def read_by(reading: Reading, side: Side) -> tuple[Token, ...]:
    """The tokens that a stack reads: the decoder of a translation has, where it says a symbol, read the one before."""
    if len(reading.sides) > 1 and side.stack == "decoder":
        return (Token("BEGIN", symbol=BEGIN), *side.tokens[:-1])
    return side.tokens


def state_places(model: nn.Module, reading: Reading, side: str | None) -> list[LayerPlace]:
    """The tap with the vectors that leave each layer, [B,T,D]: of a block its output, else its last hidden state."""
    found: dict[str, LayerPlace] = {}
    for place in places(model, reading, (Tap,), side):
        layer = ".".join(place.path.split(".")[:3])  # stack.layers.number
        if place.path.endswith(".output") or (place.path.endswith(".hidden") and layer not in found):
            found[layer] = place
    return list(found.values())


@torch.no_grad()
def heard(subject: Subject, reading: Reading, names: Sequence[str]) -> dict[str, list[Any]]:
    """What passes these taps while the model reads, by name, one entry for each time that it does."""
    with still(subject.model), ExitStack() as stack:
        records = [stack.enter_context(recording(subject.model, name)) for name in names]
        scores(subject, reading.inputs)
    return {name: found for record in records for name, found in record.items()}


def is_backward(model: nn.Module, path: str) -> bool:
    """Whether a module reads from the end."""
    parent, _, name = path.rpartition(".")
    return isinstance(model.get_submodule(parent), Bidirectional) and name == "back"


def short_name(path: str) -> str:
    """A layer in few words, for labels.

    >>> short_name("encoder.layers.0.mixer.back"), short_name("decoder.layers.1.output")
    ('layer 0 back', 'layer 1 output')
    """
    parts = [part for part in path.split(".")[1:] if part != "mixer"]
    return " ".join("layer" if part == "layers" else part for part in parts)


def chosen(named: Mapping[str, Found], layer: int | str | None, what: str) -> Found:
    """The one of a number or a path, the last if none is named; `what` says in the plural what they are."""
    if layer is None:
        return list(named.values())[-1]
    if isinstance(layer, str):
        fitting = [path for path in named if path == layer or path.startswith(f"{layer}.")]
        if len(fitting) != 1:
            raise ConfigError(f"none of the {what} has the path '{layer}'", fix=did_you_mean(layer, named))
        return named[fitting[0]]
    if not 0 <= layer < len(named):
        listed = ", ".join(f"{number} ({path})" for number, path in enumerate(named))
        raise ConfigError(f"there is no layer {layer}: this model has {len(named)} {what}", fix=f"choose from {listed}")
    return list(named.values())[layer]


def required(found: Sequence[Found], model: nn.Module, asked: str, reason: str) -> Sequence[Found]:
    """What was found; ConfigError, which names the views that the model has, if that is nothing."""
    if not found:
        has = ", ".join([*(view for view, there in HAS.items() if there(model)), *EVERY_MODEL])
        raise ConfigError(f"this model has no {asked}: {reason}", fix=f"look at what it has: {has}")
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


Change = Callable[[int, Padded], Padded]  # (how many times it was called before, its vectors) -> those to go on with


@contextmanager
def changed_vectors(model: nn.Module, stack: str, change: Change) -> Iterator[None]:
    """Inside the `with`, a stack goes on with what `change` makes of the vectors of its input."""
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
    """The module that turns what a stack reads into vectors."""
    found = model.get_submodule(stack).input
    assert isinstance(found, nn.Module), "every stack reads through a module"
    return found
