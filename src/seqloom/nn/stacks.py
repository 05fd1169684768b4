"""Stacks: an input, positions and layers, one after another; the state of a chain is the tuple of its links' states."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.config.stacks import ConditionedDecoderConfig, DecoderConfig, EncoderConfig, Norm, StackConfig
from seqloom.errors import DataError
from seqloom.nn.blocks import build_dropout, build_norm
from seqloom.nn.mixers.contract import AnyCausal, CausalMixer, ConditionedMixer, Stateless
from seqloom.nn.positions import Positions
from seqloom.nn.types import Padded


class Everywhere(Stateless):
    """A module applied to each vector by itself: a norm, dropout."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Padded) -> Padded:
        return x.with_values(self.module(x.values))


class CausalChain(CausalMixer[tuple[Any, ...]]):
    """Causal mixers one after another: whoever derives from it says which, in `links`."""

    @property
    def links(self) -> list[AnyCausal]:
        """The mixers in the order in which they read."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        return self.links[0].device

    def begin(self, batch_size: int) -> tuple[Any, ...]:
        return tuple(link.begin(batch_size) for link in self.links)

    def reset(self, inner: tuple[Any, ...], rows: Tensor) -> tuple[Any, ...]:
        return tuple(link.reset(part, rows) for link, part in zip(self.links, inner, strict=True))

    def extend(self, x: Padded, inner: tuple[Any, ...]) -> tuple[Padded, tuple[Any, ...]]:
        after = []
        if len(inner) != len(self.links):
            raise DataError(
                f"a state of {len(inner)} parts for {len(self.links)} links", fix="use a state of this model"
            )
        x = x.laid_out()
        for link, part in zip(self.links, inner, strict=True):
            x, part = link.extend(x, part)
            after.append(part)
        return x, tuple(after)

    def forward(self, x: Padded) -> Padded:
        x = x.laid_out()
        for link in self.links:
            x = link(x)
        return x


def _entry(config: StackConfig) -> nn.ModuleList:
    """What stands between the input and the first layer; the same links at any rate, so that names do not move."""
    positions = [Positions(config)] if config.absolute() else []
    dropout = Everywhere(build_dropout(config.dropout, config.dropout_mask))
    return nn.ModuleList([*positions, *_norms(config, config.entry_norm), dropout])


def _exit(config: StackConfig) -> nn.ModuleList:
    """What stands after the last layer."""
    return nn.ModuleList(_norms(config, config.final_norm))


def _norms(config: StackConfig, norm: Norm | None) -> list[Everywhere]:
    """The norm of a place where a stack may have one."""
    return [] if norm is None else [Everywhere(build_norm(norm, config.width, config.norm_epsilon))]


class Encoder(nn.Module):
    """Reads a whole input, symbols, vectors or pictures, into contextual vectors."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.width = config.width
        self.input = config.input.build(config.width)
        self.entry = _entry(config)
        self.layers = nn.ModuleList(
            layer.build(config.width, config.relation()) for _ in range(config.repeat) for layer in config.layers
        )
        self.exit = _exit(config)

    def forward(self, raw: Any) -> Padded:
        """The contextual vectors of each element, [B,T,D]."""
        read: Padded = self.input(raw.laid_out() if isinstance(raw, Padded) else raw)
        x = read.laid_out()
        for link in (*self.entry, *self.layers, *self.exit):
            x = link(x)
        return x


class Decoder(CausalChain):
    """Reads a sequence from left to right into vectors that know the past."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.input = config.input.build(config.width)
        self.entry = _entry(config)
        self.layers = nn.ModuleList(
            layer.build_causal(config.width, config.relation()) for _ in range(config.repeat) for layer in config.layers
        )
        self.exit = _exit(config)

    @property
    def links(self) -> list[AnyCausal]:
        return [self.input, *self.entry, *self.layers, *self.exit]


class StackEntry(CausalChain):
    """The input of a conditioned decoder, with its positions."""

    def __init__(self, config: ConditionedDecoderConfig) -> None:
        super().__init__()
        self.input, self.entry = config.input.build(config.width), _entry(config)

    @property
    def links(self) -> list[AnyCausal]:
        return [self.input, *self.entry]


class ConditionedDecoder(ConditionedMixer[tuple[Any, ...]]):
    """Reads a sequence from left to right while each layer looks at the memory that an encoder left."""

    layers: Sequence[ConditionedMixer[Any]]

    def __init__(self, config: ConditionedDecoderConfig) -> None:
        super().__init__()
        self.entry = StackEntry(config)
        layers = [layer.build(config.width, config.relation()) for _ in range(config.repeat) for layer in config.layers]
        self.layers = nn.ModuleList(layers)  # type: ignore[assignment]  # the sequence of its modules
        self.exit = _exit(config)

    @property
    def input(self) -> AnyCausal:
        """The module that reads the raw input."""
        return self.entry.input

    def begin(self, memory: Padded) -> tuple[Any, ...]:
        return (self.entry.begin(len(memory.lengths)), *(layer.begin(memory) for layer in self.layers))

    def extend(self, x: Padded, inner: tuple[Any, ...]) -> tuple[Padded, tuple[Any, ...]]:
        x, entered = self.entry.extend(x, inner[0])
        after = [entered]
        for layer, part in zip(self.layers, inner[1:], strict=True):
            x, part = layer.extend(x, part)
            after.append(part)
        return self._leave(x), tuple(after)

    def whole(self, x: Padded, memory: Padded) -> Padded:
        x = self.entry(x)
        for layer in self.layers:
            x = layer.whole(x, memory)
        return self._leave(x)

    def _leave(self, x: Padded) -> Padded:
        for link in self.exit:
            x = link(x)
        return x
