"""Absolute positions: a vector for each position, added to the input or concatenated with it.

    learned     p_t = row t of a learned table; positions after its last row are an error
    sinusoidal  p_t[2i] = sin(t / 10000^(2i/D)),  p_t[2i+1] = cos(t / 10000^(2i/D))        Vaswani et al. 2017

The result is a x_t + p_t. Sinusoids have a root mean square of 0.71 and token vectors start at D^-1/2, so without the
input scale a, positions would dominate tokens; Vaswani et al. use a = D^1/2.

Relative positions (Shaw, ALiBi, rotary, T5) are part of attention: seqloom.nn.ops.relations.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqloom.config.stacks import StackConfig
from seqloom.errors import ConfigError, DataError
from seqloom.nn.mixers.contract import CausalMixer, own_tensors
from seqloom.nn.ops.relations import angles
from seqloom.nn.types import Once, Padded, places_of


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """The sinusoidal vectors of any positions, [..., width]; sines and cosines interleaved."""
    turns = angles(positions, width)
    return torch.stack([turns.sin(), turns.cos()], dim=-1).flatten(-2)[..., :width]


class PositionBuffer(NamedTuple):
    """How many elements each row has read, [B], in a buffer: whoever made it knows that there are positions for all."""

    read: Tensor


class Positions(CausalMixer[tuple[Tensor] | PositionBuffer]):
    """Adds to each vector, or concatenates and maps back, the vector of its position in its document."""

    place: Tensor

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.width, self.input_scale = config.width, config.input_scale
        self.learned, self.concatenated = config.position == "learned", config.position_join == "concatenate"
        self.register_buffer("place", torch.zeros((), dtype=torch.int64), persistent=False)  # follows the device
        if self.learned:
            self.table = nn.Parameter(torch.randn(config.max_length, config.width) * config.width**-0.5)
        if self.concatenated:
            self.join = nn.Linear(2 * config.width, config.width)

    @property
    def device(self) -> torch.device:
        return self.place.device

    def require_endless(self) -> None:
        if self.learned:
            raise ConfigError(
                f"learned positions end at {len(self.table):,}, but a stream has no end",
                fix="train a model with other positions, or without any, such as lstm, window or linear-attention",
            )

    def begin(self, batch_size: int) -> tuple[Tensor]:
        return (torch.zeros(batch_size, dtype=torch.int64, device=self.device),)

    def buffer(self, inner: tuple[Tensor] | PositionBuffer, room: int, once: Once) -> PositionBuffer:
        return own_tensors(PositionBuffer(*inner), once)

    def extend(self, x: Padded, inner: tuple[Tensor] | PositionBuffer) -> tuple[Padded, tuple[Tensor] | PositionBuffer]:
        (count,) = inner
        placed = places_of(x, count).positions
        if isinstance(inner, PositionBuffer):
            return self._placed(x, placed), PositionBuffer(count + x.lengths)
        if self.learned and x.values.shape[1]:
            self._require_room(count + x.lengths)
        return self._placed(x, placed), (count + x.lengths,)

    def forward(self, x: Padded) -> Padded:
        places = places_of(x)
        if self.learned and x.values.shape[1] > len(self.table):
            self._require_room((places.positions + 1).masked_fill(~places.valid, 0))
        return self._placed(x, places.positions)

    def _placed(self, x: Padded, positions: Tensor) -> Padded:
        if self.learned:
            # the clamp is only for padding: real elements have been checked
            vectors = self.table[positions.clamp(max=len(self.table) - 1)]
        else:
            vectors = sinusoids(positions, self.width).to(x.values.dtype)
        inputs = self.input_scale * x.values
        if self.concatenated:
            return x.with_values(self.join(torch.cat([inputs, vectors], dim=-1)))
        return x.with_values(inputs + vectors)

    def _require_room(self, needed: Tensor) -> None:
        if (longest := int(needed.max())) > len(self.table):
            raise DataError(
                f"a sequence has {longest} elements, but there are only {len(self.table)} learned positions",
                fix="shorten it, raise max_length before training, or choose sinusoidal, rotary or alibi positions",
            )
