"""What a convolution adds up at each place: one number from every slot of its window, for every filter.

    z_t = b + sum_k s_{t,k}        s_{t,k} = W_k x_{t + (k - left) * dilation}        a_t = f(z_t)

So a filter is read as a detector of n-grams, and its slots as detectors of words (Jacovi et al. 2018). The sums are
made from the weights and from what the layer reads; they are those of the layer itself.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqloom.inspection.asking import scores
from seqloom.inspection.flow import still
from seqloom.inspection.layers import Place, chosen, places, required
from seqloom.inspection.subject import Reading, Subject
from seqloom.mixers.convolution import CausalConvolution, Convolution
from seqloom.types import Padded

KINDS = (Convolution, CausalConvolution)
OUTSIDE = "·"  # a slot before the first token or behind the last


class Bank(NamedTuple):
    """The filters of one size in one layer, and what they make of one reading."""

    first: int  # the number of its first filter among all of the layer
    offsets: tuple[int, ...]  # of the slots, from the place at which the filter stands
    slots: np.ndarray  # [T,filters,K]
    sums: np.ndarray  # [T,filters] before the activation
    activations: np.ndarray  # [T,filters]

    def window(self, tokens: Sequence[str], at: int) -> tuple[str, ...]:
        """The n-gram that a filter reads at a place."""
        return tuple(tokens[at + step] if 0 <= at + step < len(tokens) else OUTSIDE for step in self.offsets)

    def joined(self, others: Sequence["Bank"]) -> "Bank":
        """The places of this one, then those of other readings."""
        every = (self, *others)
        return self._replace(
            slots=np.concatenate([bank.slots for bank in every]),
            sums=np.concatenate([bank.sums for bank in every]),
            activations=np.concatenate([bank.activations for bank in every]),
        )

    def windows(self, tokens: Sequence[str]) -> list[tuple[str, ...]]:
        """The n-gram of every place."""
        return [self.window(tokens, at) for at in range(len(tokens))]


def convolution_place(subject: Subject, reading: Reading, layer: int | str | None, side: str | None) -> Place:
    """The convolution that is meant, the first if none is named: what it reads are words."""
    found = places(subject.model, reading, KINDS, side)
    required(found, subject.model, "filters", "none of its layers is a convolution over tokens")
    return chosen({each.path: each for each in found}, 0 if layer is None else layer, "layers with filters")


@torch.no_grad()
def banks(subject: Subject, reading: Reading, place: Place) -> tuple[Bank, ...]:
    """What each size of filter of one layer makes of a reading."""
    module, read = place.module(subject.model), []

    def hear(_module: nn.Module, arguments: tuple[Any, ...]) -> None:
        read.append(arguments[0])

    handle = module.register_forward_pre_hook(hear)
    try:
        with still(subject.model):
            scores(subject, reading.inputs)
    finally:
        handle.remove()
    x: Padded = read[place.call]
    return tuple(_banks(module, x.values[0, : int(x.lengths[0])]))


def _banks(module: Any, values: Tensor) -> Iterator[Bank]:
    first = 0
    for filters in module.filters:
        taps = filters.weight.shape[2]
        left = taps - 1 if isinstance(module, CausalConvolution) else (taps - 1) // 2
        offsets = tuple((tap - left) * module.dilation for tap in range(taps))
        slots = torch.stack([_moved(values @ filters.weight[:, :, k].T, offsets[k]) for k in range(taps)], dim=2)
        sums = slots.sum(dim=2) + filters.bias
        active = module.activation(sums)
        yield Bank(first, offsets, *(part.float().cpu().numpy() for part in (slots, sums, active)))
        first += filters.weight.shape[0]


def _moved(made: Tensor, offset: int) -> Tensor:
    """[T,F] what stands `offset` places away from each place, zero outside."""
    found, count = torch.zeros_like(made), len(made)
    low, high = max(0, -offset), min(count, count - offset)
    if low < high:
        found[low:high] = made[low + offset : high + offset]
    return found


def reach_before(model: nn.Module, place: Place) -> tuple[int, int] | None:
    """How many tokens beyond its own window a layer sees on each side, through those below; None: all of them."""
    before = after = 0
    for name, module in model.named_modules():
        if name == place.path:
            return before, after
        if not name.startswith(place.path.split(".layers.")[0] + ".layers.") or not name.endswith(".mixer"):
            continue
        if not isinstance(module, KINDS):
            return None
        widest = max(filters.weight.shape[2] for filters in module.filters)
        left = widest - 1 if isinstance(module, CausalConvolution) else (widest - 1) // 2
        before, after = before + left * module.dilation, after + (widest - 1 - left) * module.dilation
    return before, after
