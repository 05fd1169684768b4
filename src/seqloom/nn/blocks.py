"""Blocks: what stands around a mixer. The drawings are in `seqloom.config.stacks.BlockConfig`."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.config.mixers import Position
from seqloom.config.stacks import BlockConfig, DecoderBlockConfig, DropoutMask, Epsilon, FeedForwardConfig, Norm
from seqloom.nn.mixers.contract import AnyCausal, CausalMixer, ConditionedMixer, Mixer
from seqloom.nn.mixers.cross import CrossAttention, CrossSource
from seqloom.nn.ops.activations import ACTIVATIONS
from seqloom.nn.taps import Tap
from seqloom.nn.types import Padded


def build_norm(norm: Norm, width: int, epsilon: Epsilon | None = None) -> nn.Module:
    """LayerNorm: (x - mean) / sqrt(variance + e), scaled and shifted (deck B's sigma lacks the root); or RMSNorm."""
    if norm == "layer":
        return nn.LayerNorm(width, eps=1e-5 if epsilon is None else epsilon)
    return nn.RMSNorm(width, eps=1e-6 if epsilon is None else epsilon)


class SequenceDropout(nn.Module):
    """x * m, with one mask m [B,1,D] for all elements of a row (Gal and Ghahramani 2016); kept units grow by 1/(1-p).

    A unit that is left out stays out: what a recurrence carries from element to element is not noise on noise.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, values: Tensor) -> Tensor:
        """[B,T,D] with some units of each row at zero; as they are in evaluation."""
        if not (self.training and self.rate):
            return values
        return values * F.dropout(torch.ones_like(values[:, :1]), self.rate)


def build_dropout(rate: float, mask: DropoutMask) -> nn.Module:
    """Dropout that draws for each number, or once for a whole sequence."""
    return nn.Dropout(rate) if mask == "element" else SequenceDropout(rate)


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
        self.dropout = nn.Dropout(config.dropout)
        self.hidden = Tap()  # [B,T,hidden] after the nonlinearity

    def forward(self, values: Tensor) -> Tensor:
        """The same map applied to the last axis."""
        inner = self.inward(values)
        active = F.silu(inner) * self.gate(values) if self.activation is None else self.activation(inner)
        result: Tensor = self.outward(self.dropout(self.hidden(active)))
        return result


class Around(nn.Module):
    """One sub-layer's surroundings: what goes into it, and what becomes of its result."""

    def __init__(self, config: BlockConfig | DecoderBlockConfig, width: int, dropout: nn.Module) -> None:
        super().__init__()
        self.arrangement = config.arrangement
        if config.arrangement in ("pre", "post"):
            self.norm = build_norm(config.norm, width, config.norm_epsilon)
        self.dropout = dropout

    def enter(self, values: Tensor) -> Tensor:
        """What the sub-layer reads."""
        entering: Tensor = self.norm(values) if self.arrangement == "pre" else values
        return entering

    def leave(self, values: Tensor, result: Tensor) -> Tensor:
        """The result with its residual and norm."""
        result = self.dropout(result)
        if self.arrangement == "plain":
            return result
        total = values + result
        left: Tensor = self.norm(total) if self.arrangement == "post" else total
        return left


class Block(Mixer):
    """A mixer and, if there is one, a feed-forward, each with its surroundings."""

    def __init__(self, config: BlockConfig, width: int, mixer: Mixer) -> None:
        super().__init__()
        self.mixer = mixer
        self.around = Around(config, width, build_dropout(config.dropout, config.dropout_mask))
        if config.feed_forward is not None:
            self.feed_forward = FeedForward(config.feed_forward, width)
            self.around_feed_forward = Around(config, width, build_dropout(config.dropout, config.dropout_mask))
        self.output = Tap()  # [B,T,D]

    def enter(self, x: Padded) -> Padded:
        """What the mixer reads: no mixer heeds padding, so it need not be zero here."""
        return x.with_any(self.around.enter(x.values))

    def leave(self, x: Padded, mixed: Padded) -> Padded:
        """What leaves the block, given what the mixer made."""
        values = self.around.leave(x.values, mixed.values)
        if hasattr(self, "feed_forward"):
            around = self.around_feed_forward
            values = around.leave(values, self.feed_forward(around.enter(values)))
        return x.with_values(self.output(values))

    def forward(self, x: Padded) -> Padded:
        return self.leave(x, self.mixer(self.enter(x)))


class CausalBlock(Block, CausalMixer[Any]):
    """A block that can be stepped: its state is its mixer's."""

    mixer: AnyCausal

    @property
    def device(self) -> torch.device:
        return self.mixer.device

    def begin(self, batch_size: int) -> Any:
        return self.mixer.begin(batch_size)

    def reset(self, inner: Any, rows: Tensor) -> Any:
        return self.mixer.reset(inner, rows)

    def extend(self, x: Padded, inner: Any) -> tuple[Padded, Any]:
        mixed, after = self.mixer.extend(self.enter(x), inner)
        return self.leave(x, mixed), after


class DecoderState(NamedTuple):
    """What a decoder block remembers: of its own sequence, and the memory it reads."""

    own: Any
    source: CrossSource


class DecoderBlock(ConditionedMixer[DecoderState]):
    """A causal mixer, attention to the memory, and a feed-forward, each with residual and norm."""

    def __init__(self, config: DecoderBlockConfig, width: int, position: Position = "none") -> None:
        super().__init__()

        def around() -> Around:
            return Around(config, width, nn.Dropout(config.dropout))

        self.mixer = config.mixer.build_causal(width, position)
        self.cross = CrossAttention(config.score, config.num_heads, width, config.attention_dropout)
        self.feed_forward = FeedForward(config.feed_forward, width)
        self.around, self.around_cross, self.around_feed_forward = around(), around(), around()
        self.output = Tap()  # [B,T,D]

    def begin(self, memory: Padded) -> DecoderState:
        return DecoderState(self.mixer.begin(len(memory.lengths)), self.cross.begin(memory))

    def extend(self, x: Padded, inner: DecoderState) -> tuple[Padded, DecoderState]:
        mixed, own = self.mixer.extend(x.with_any(self.around.enter(x.values)), inner.own)
        return self._read(x, mixed, inner.source), DecoderState(own, inner.source)

    def whole(self, x: Padded, memory: Padded) -> Padded:
        mixed = self.mixer(x.with_any(self.around.enter(x.values)))
        return self._read(x, mixed, self.cross.begin(memory))

    def _read(self, x: Padded, mixed: Padded, source: CrossSource) -> Padded:
        values = self.around.leave(x.values, mixed.values)
        asked, _ = self.cross.extend(x.with_any(self.around_cross.enter(values)), source)
        values = self.around_cross.leave(values, asked.values)
        around = self.around_feed_forward
        values = around.leave(values, self.feed_forward(around.enter(values)))
        return x.with_values(self.output(values))
