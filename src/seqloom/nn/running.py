"""Run a trained model on an endless sequence: its scores at each element, with constant memory.

    raw elements ──enter──▶ Padded ──step──▶ scores [B,T,K] and a state of fixed size

A language model already computes scores at each element. A model with one prediction per element runs its encoder step
by step. A model with one prediction per sequence predicts for everything read so far: its pooling is updated at each
element. This works only if every part of the model is a `CausalMixer` whose state does not grow.
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
    """A model for endless sequences: `mixer.step(enter(raw), state)` returns its scores and the next state."""

    enter: Callable[[Any], Padded]
    mixer: AnyCausal


def running(model: nn.Module) -> RunningModel:
    """Return the model in a form that reads endless sequences; ConfigError if it cannot read them."""
    found = _running(model)
    for part in found.mixer.modules():
        if isinstance(part, CausalMixer):
            part.require_endless()
    return found


def _running(model: nn.Module) -> RunningModel:
    if isinstance(model, LanguageModel):
        return RunningModel(_unchanged, model)
    if not isinstance(model, ElementModel | SequenceModel):
        raise ConfigError(
            "this model reads its input to the end before it predicts, and a stream has no end",
            fix="use a language model, a tagger, a classifier or a regressor",
        )
    enter, links = _encoding(model.encoder)
    if isinstance(model, SequenceModel):
        device = next(model.parameters()).device
        links += [_pooling(model.pooler, model.encoder.width, device), Everywhere(_Function(model.hidden_of))]
    return RunningModel(enter, RunningChain([*links, RunningHead(model.head)]))


def _unchanged(x: Padded) -> Padded:
    return x


def _encoding(encoder: Encoder) -> tuple[Callable[[Any], Padded], list[AnyCausal]]:
    """A function that turns raw elements into a Padded, and the layers after it; ConfigError if a part looks ahead."""
    layers = [*encoder.entry, *encoder.layers, *encoder.exit]
    alone = isinstance(encoder.input, ElementInput)
    for part in layers if alone else [encoder.input, *layers]:
        if not isinstance(part, CausalMixer):
            name = type(getattr(part, "mixer", part)).__name__
            raise ConfigError(
                f"a stream is read from left to right, but this model also reads later elements ({name})",
                fix=ONE_WAY,
            )
    causal = cast(list[AnyCausal], layers)
    return (encoder.input, causal) if alone else (_unchanged, [cast(AnyCausal, encoder.input), *causal])


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
    """The head of a model, applied to each vector separately."""

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
        """Call the function."""
        return self.function(values)


# Running pooling: at each element, the pooled vector of everything read so far.


def _pooling(pooler: Pooler, width: int, device: torch.device) -> AnyCausal:
    """A layer that pools everything read so far; ConfigError for a pooling that needs the complete sequence."""
    if pooler.how == "last":
        return Everywhere(nn.Identity())
    if pooler.how == "first":
        return FirstElement(width).to(device)
    if pooler.how == "attention":
        raise ConfigError(
            "attention pooling needs all elements of a sequence, and a stream has no end",
            fix="train a model whose pooling is last, mean, sum, max or first",
        )
    return RunningPool(PoolConfig(how=pooler.how), width).to(device)


class FirstSeen(NamedTuple):
    """The first element of each row, and whether it has been read yet."""

    value: Tensor  # [B,D]
    seen: Tensor  # [B] bool


class FirstElement(CausalMixer[FirstSeen]):
    """Returns the first element of the row at every position."""

    place: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("place", torch.zeros(()), persistent=False)  # moves with the model to its device

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
