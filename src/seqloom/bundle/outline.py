"""The names and shapes of the weights that a configuration asks for.

A model is built once to ask it; `require_covered` comes first, so that a small file cannot make it a large one.
(Built on torch's meta device it would take no memory, but two seconds: drawing there imports the compiler.)

A tied head has the matrix of its input: one weight with two names. It is written once, under the first of them, and
both names have it again when it is read.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqloom.bundle.weights import Slot
from seqloom.config.models import AnyModel
from seqloom.errors import ConfigError

SHOWN = 3  # names in a message
ALWAYS_BUILT = 2**22  # weights, 16 MiB: so many may be asked for by any file


class Outline(NamedTuple):
    """What the weights of a model are called, what shape they have, and which are one."""

    slots: dict[str, Slot]
    aliases: dict[str, str]  # a further name of a weight: its first one

    @property
    def size(self) -> int:
        """How many bytes the weights take."""
        return sum(slot.size for name, slot in self.slots.items() if name not in self.aliases)


@lru_cache(maxsize=4)
def outline_of(config: AnyModel) -> Outline:
    """The outline of the model that a configuration builds."""
    with untouched_draws():
        model = config.build()
    first: dict[int, str] = {}
    aliases = {}
    for name, weight in _named(model):
        known = first.setdefault(id(weight), name)
        if known != name:
            aliases[name] = known
    return Outline({name: Slot.of(weight) for name, weight in model.state_dict().items()}, aliases)


def require_covered(config: AnyModel, size: int, place: str) -> None:
    """Raise ConfigError if a configuration asks for more weights than a file of this size can hold."""
    asked = config.parameters()
    if asked > max(ALWAYS_BUILT, size):  # of a byte each at least
        text = f"the configuration asks for {asked:,} weights, and the file has {size:,} bytes"
        raise ConfigError(f"{place}: {text}", fix="take weights and configuration from one folder")


def _named(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


@contextmanager
def untouched_draws() -> Iterator[None]:
    """A block in which a model may draw first weights: the caller's generator is put back behind it."""
    with torch.random.fork_rng(devices=[]):
        yield


def require_fitting(slots: Mapping[str, Slot], outline: Outline, place: str, fix: str) -> None:
    """Raise ConfigError that names the weights that are missing, too many, or of another shape."""
    wanted = {name: slot for name, slot in outline.slots.items() if name not in outline.aliases}
    faults = [
        *(f"'{name}' is missing" for name in wanted if name not in slots),
        *(f"'{name}' is not one of the model's" for name in slots if name not in wanted),
        *(
            f"'{name}' is {slots[name]} where {wanted[name]} is needed"
            for name in wanted
            if _unlike(name, slots, wanted)
        ),
    ]
    if faults:
        more = f", and {len(faults) - SHOWN:,} more" if len(faults) > SHOWN else ""
        raise ConfigError(f"{place}: the weights do not fit the model: {'; '.join(faults[:SHOWN])}{more}", fix=fix)


def _unlike(name: str, slots: Mapping[str, Slot], wanted: Mapping[str, Slot]) -> bool:
    return name in slots and slots[name] != wanted[name]
