"""A trained model read on and on: its scores at each element, given what came before, in memory that stays the same.

    raw elements ──enter──▶ Padded ──step──▶ scores [B,T,K] and a state of fixed size

A language model answers at each element already. A model with one answer for each element is stepped through its
encoder, and a model with one answer for a sequence answers for what it has read so far: its pooling runs along. Whether
a model can be read like this is decided by the types of its parts: each must be a `CausalMixer` whose memory does not
grow.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from seqloom.config.mixers import PoolConfig
from seqloom.errors import ConfigError
from seqloom.nn.heads import Pooler
from seqloom.nn.inputs import ElementInput
from seqloom.nn.mixers.contract import AnyCausal, CausalMixer, Stateless
from seqloom.nn.mixers.pool import RunningPool
from seqloom.nn.models import ElementModel, LanguageModel, SequenceModel
from seqloom.nn.stacks import CausalChain, Encoder, Everywhere
from seqloom.nn.types import Padded

ONE_WAY = "train a model that reads from left to right: --model rnn, gru or lstm"


class RunningModel(NamedTuple):
    """A model that can be read without an end: `mixer.step(enter(raw), state)` are its scores and its next state."""

    enter: Callable[[Any], Padded]
    mixer: AnyCausal


def running(model: nn.Module) -> RunningModel:
    """The model as one that can be read without an end; ConfigError if it cannot."""
    found = _running(model)
    for part in found.mixer.modules():
        if isinstance(part, CausalMixer):
            part.require_endless()
    return found


def _running(model: nn.Module) -> RunningModel:
    if isinstance(model, LanguageModel):
        return RunningModel(_as_it_is, model)
    if not isinstance(model, ElementModel | SequenceModel):
        raise ConfigError(
            "this model reads its input to the end before it answers, and a stream has no end",
            fix="use a language model, a tagger, a classifier or a regressor",
        )
    enter, links = _encoding(model.encoder)
    if isinstance(model, SequenceModel):
        device = next(model.parameters()).device
        links += [_pooling(model.pooler, model.encoder.width, device), Everywhere(_Function(model.hidden_of))]
    return RunningModel(enter, RunningChain([*links, RunningHead(model.head)]))


def _as_it_is(x: Padded) -> Padded:
    return x


def _encoding(encoder: Encoder) -> tuple[Callable[[Any], Padded], list[AnyCausal]]:
    """How raw elements become a padded sequence, and the layers that read it; ConfigError if one looks ahead."""
    layers = [*encoder.entry, *encoder.layers, *encoder.exit]
    alone = isinstance(encoder.input, ElementInput)
    for part in layers if alone else [encoder.input, *layers]:
        if not isinstance(part, CausalMixer):
            name = type(getattr(part, "mixer", part)).__name__
            raise ConfigError(
                f"a stream is read element by element, and this model also looks at what comes later ({name})",
                fix=ONE_WAY,
            )
    causal = cast(list[AnyCausal], layers)
    return (encoder.input, causal) if alone else (_as_it_is, [cast(AnyCausal, encoder.input), *causal])


class RunningChain(CausalChain):
    """Parts of a model, one after another."""

    def __init__(self, parts: Sequence[AnyCausal]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def links(self) -> list[AnyCausal]:
        return cast(list[AnyCausal], list(self.parts))


class RunningHead(Stateless):
    """The head of a model: it reads each vector by itself."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, x: Padded) -> Padded:
        scores: Padded = self.head(x)
        return scores


class _Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, values: Tensor) -> Tensor:
        """What the function returns."""
        return self.function(values)


# Pooling that runs along: at each element the pooled vector of what was read so far.


def _pooling(pooler: Pooler, width: int, device: torch.device) -> AnyCausal:
    """The pooling of what was read so far; ConfigError for a pooling that needs the whole sequence."""
    if pooler.how == "last":
        return Everywhere(nn.Identity())
    if pooler.how == "first":
        return FirstElement(width).to(device)
    if pooler.how == "attention":
        raise ConfigError(
            "attention pooling weighs all elements of a sequence against one another, and a stream has no end",
            fix="train a model whose pooling is last, mean, sum, max or first",
        )
    return RunningPool(PoolConfig(how=pooler.how), width).to(device)


class FirstSeen(NamedTuple):
    """The first element of each row, once it was read."""

    value: Tensor  # [B,D]
    seen: Tensor  # [B] bool


class FirstElement(CausalMixer[FirstSeen]):
    """Every position sees the first one."""

    place: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("place", torch.zeros(()), persistent=False)  # follows the model to its device

    @property
    def device(self) -> torch.device:
        return self.place.device

    def begin(self, batch_size: int) -> FirstSeen:
        value = self.place.new_zeros(batch_size, self.width)
        return FirstSeen(value, torch.zeros(batch_size, dtype=torch.bool, device=self.device))

    def extend(self, x: Padded, inner: FirstSeen) -> tuple[Padded, FirstSeen]:
        if x.values.shape[1] == 0:
            return x, inner
        first = torch.where(inner.seen[:, None], inner.value.to(x.values.dtype), x.values[:, 0])
        return x.with_values(first[:, None].expand_as(x.values)), FirstSeen(first, inner.seen | (x.lengths > 0))
