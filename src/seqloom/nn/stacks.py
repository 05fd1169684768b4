"""Blocks: a mixer with norms, residuals and a feed-forward layer; and stacks of blocks after an input and positions.

The equations are in `seqloom.config.stacks.BlockConfig`. The state of a chain is the tuple of its links' states.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.config.mixers import Position
from seqloom.config.stacks import (
    BlockConfig,
    ConditionedDecoderConfig,
    DecoderBlockConfig,
    DecoderConfig,
    DropoutMask,
    EncoderConfig,
    Epsilon,
    FeedForwardConfig,
    Norm,
    StackConfig,
)
from seqloom.errors import DataError
from seqloom.nn.mixers.contract import AnyCausal, CausalMixer, ConditionedMixer, Mixer, Stateless
from seqloom.nn.mixers.cross import CrossAttention, CrossSource
from seqloom.nn.ops.activations import ACTIVATIONS
from seqloom.nn.ops.dropout import Dropout
from seqloom.nn.ops.linear import through
from seqloom.nn.positions import Positions
from seqloom.nn.taps import Tap
from seqloom.nn.types import Once, Padded


def build_norm(norm: Norm, width: int, epsilon: Epsilon | None = None) -> nn.Module:
    """LayerNorm: (x - mean) / sqrt(variance + e), scaled and shifted (deck B's sigma lacks the root); or RMSNorm."""
    if norm == "layer":
        return nn.LayerNorm(width, eps=1e-5 if epsilon is None else epsilon)
    return nn.RMSNorm(width, eps=1e-6 if epsilon is None else epsilon)


class SequenceDropout(nn.Module):
    """x * m, with one mask m [B,1,D] for all elements of a row (Gal and Ghahramani 2016); kept units grow by 1/(1-p).

    A dropped unit stays dropped for the sequence, so a recurrence does not accumulate new noise at every element.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        """Return [B,T,D] with some units of each row zeroed; unchanged in evaluation."""
        if not (self.training and self.rate):
            return values
        return values * F.dropout(torch.ones_like(values[:, :1]), self.rate)


def build_dropout(rate: float, mask: DropoutMask) -> nn.Module:
    """Return dropout with a mask per element, or one mask per sequence."""
    return Dropout(rate) if mask == "element" else SequenceDropout(rate)


class FeedForward(nn.Module):
    """W_2 f(W_1 x + b_1) + b_2 at every position.

    SwiGLU (Shazeer 2020) has a gate: W_2 (silu(W_1 x + b_1) * (W_3 x + b_3)) + b_2.
    """

    def __init__(self, config: FeedForwardConfig, width: int) -> None:
        super().__init__()
        self.activation = None if config.activation == "swiglu" else ACTIVATIONS[config.activation]
        self.inward, self.outward = nn.Linear(width, config.hidden), nn.Linear(config.hidden, width)
        if self.activation is None:
            self.gate = nn.Linear(width, config.hidden)
        self.dropout = Dropout(config.dropout)
        self.hidden = Tap()  # [B,T,hidden] after the nonlinearity

    def forward(self, values: Tensor) -> Tensor:
        """Apply the layer to the last axis."""
        inner = through(self.inward, values)
        active = F.silu(inner) * self.gate(values) if self.activation is None else self.activation(inner)
        return through(self.outward, self.dropout(self.hidden(active)))


class Around(nn.Module):
    """Norm and residual around a sub-layer."""

    def __init__(self, config: BlockConfig | DecoderBlockConfig, width: int, dropout: nn.Module) -> None:
        super().__init__()
        self.arrangement = config.arrangement
        if config.arrangement in ("pre", "post"):
            self.norm = build_norm(config.norm, width, config.norm_epsilon)
        self.dropout = dropout

    def enter(self, values: Tensor) -> Tensor:
        """Return the input of the sub-layer."""
        entering: Tensor = self.norm(values) if self.arrangement == "pre" else values
        return entering

    def leave(self, values: Tensor, result: Tensor) -> Tensor:
        """Return the result with its residual and norm."""
        result = self.dropout(result)
        if self.arrangement == "plain":
            return result
        total = values + result
        left: Tensor = self.norm(total) if self.arrangement == "post" else total
        return left


class Block(Mixer):
    """A mixer and an optional feed-forward layer, each with norm and residual."""

    def __init__(self, config: BlockConfig, width: int, mixer: Mixer) -> None:
        super().__init__()
        self.mixer = mixer
        self.around = Around(config, width, build_dropout(config.dropout, config.dropout_mask))
        if config.feed_forward is not None:
            self.feed_forward = FeedForward(config.feed_forward, width)
            self.around_feed_forward = Around(config, width, build_dropout(config.dropout, config.dropout_mask))
        self.output = Tap()  # [B,T,D]

    def enter(self, x: Padded) -> Padded:
        """Return the input of the mixer; mixers ignore padding, so it need not be zero here."""
        return x.with_any(self.around.enter(x.values))

    def leave(self, x: Padded, mixed: Padded) -> Padded:
        """Return the output of the block, given the mixer's output."""
        values = self.around.leave(x.values, mixed.values)
        if hasattr(self, "feed_forward"):
            around = self.around_feed_forward
            values = around.leave(values, self.feed_forward(around.enter(values)))
        return x.with_values(self.output(values))

    def forward(self, x: Padded) -> Padded:
        return self.leave(x, self.mixer(self.enter(x)))


class CausalBlock(Block, CausalMixer[Any]):
    """A block that can be run step by step; its state is that of its mixer."""

    mixer: AnyCausal

    @property
    def device(self) -> torch.device:
        return self.mixer.device

    def begin(self, batch_size: int) -> Any:
        return self.mixer.begin(batch_size)

    def reset(self, inner: Any, rows: Tensor) -> Any:
        return self.mixer.reset(inner, rows)

    def buffer(self, inner: Any, room: int, once: Once) -> Any:
        return self.mixer.buffer(inner, room, once)

    def extend(self, x: Padded, inner: Any) -> tuple[Padded, Any]:
        mixed, after = self.mixer.extend(self.enter(x), inner)
        return self.leave(x, mixed), after


class DecoderState(NamedTuple):
    """The state of a decoder block: of its own sequence, and the memory that it attends to."""

    own: Any
    source: CrossSource


class DecoderBlock(ConditionedMixer[DecoderState]):
    """A causal mixer, attention to the memory, and a feed-forward layer, each with residual and norm."""

    def __init__(self, config: DecoderBlockConfig, width: int, position: Position = "none") -> None:
        super().__init__()

        def around() -> Around:
            return Around(config, width, Dropout(config.dropout))

        self.mixer = config.mixer.build_causal(width, position)
        self.cross = CrossAttention(config.score, config.num_heads, width, config.attention_dropout)
        self.feed_forward = FeedForward(config.feed_forward, width)
        self.around, self.around_cross, self.around_feed_forward = around(), around(), around()
        self.output = Tap()  # [B,T,D]

    def begin(self, memory: Padded) -> DecoderState:
        return DecoderState(self.mixer.begin(len(memory.lengths)), self.cross.begin(memory))

    def buffer(self, inner: DecoderState, room: int, once: Once) -> Any:
        return DecoderState(self.mixer.buffer(inner.own, room, once), self.cross.buffer(inner.source, room, once))

    def extend(self, x: Padded, inner: DecoderState) -> tuple[Padded, DecoderState]:
        mixed, own = self.mixer.extend(x.with_any(self.around.enter(x.values)), inner.own)
        return self._read(x, mixed, inner.source), DecoderState(own, inner.source)

    def whole(self, x: Padded, memory: Padded) -> Padded:
        mixed = self.mixer(x.with_any(self.around.enter(x.values)))
        return self._read(x, mixed, self.cross.begin(memory))

    def _read(self, x: Padded, mixed: Padded, source: CrossSource) -> Padded:
        values = self.around.leave(x.values, mixed.values)
        attended, _ = self.cross.extend(x.with_any(self.around_cross.enter(values)), source)
        values = self.around_cross.leave(values, attended.values)
        around = self.around_feed_forward
        values = around.leave(values, self.feed_forward(around.enter(values)))
        return x.with_values(self.output(values))


class Everywhere(Stateless):
    """A module applied to each vector separately, such as a norm."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Padded) -> Padded:
        return x.with_values(self.module(x.values))


class EntryDropout(Everywhere):
    """Dropout of each vector; what reads them does not read the padding."""

    def forward(self, x: Padded) -> Padded:
        return x.with_kept_zeros(self.module(x.values))


class CausalChain(CausalMixer[tuple[Any, ...]]):
    """A chain of causal mixers; subclasses list them in `links`."""

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

    def buffer(self, inner: tuple[Any, ...], room: int, once: Once) -> Any:
        return tuple(link.buffer(part, room, once) for link, part in zip(self.links, inner, strict=True))

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
    """The modules between the input and the first layer; always the same number, so that weight names are stable."""
    positions = [Positions(config)] if config.absolute() else []
    dropout = EntryDropout(build_dropout(config.dropout, config.dropout_mask))
    return nn.ModuleList([*positions, *_norms(config, config.entry_norm), dropout])


def _exit(config: StackConfig) -> nn.ModuleList:
    """The modules after the last layer."""
    return nn.ModuleList(_norms(config, config.final_norm))


def _norms(config: StackConfig, norm: Norm | None) -> list[Everywhere]:
    """An optional norm of a stack."""
    return [] if norm is None else [Everywhere(build_norm(norm, config.width, config.norm_epsilon))]


class Encoder(nn.Module):
    """Turns a complete input (tokens, vectors or pictures) into contextual vectors."""

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
    """Turns a sequence into contextual vectors, from left to right."""

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
    """Reads a sequence from left to right, and each layer attends to the output of an encoder."""

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

    def buffer(self, inner: tuple[Any, ...], room: int, once: Once) -> Any:
        layers = zip(self.layers, inner[1:], strict=True)
        return (self.entry.buffer(inner[0], room, once), *(layer.buffer(part, room, once) for layer, part in layers))

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
