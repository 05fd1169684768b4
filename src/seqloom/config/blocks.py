"""Blocks: a mixer with what stands around it (residual, norm, feed-forward), and decoder layers with a memory."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from seqloom.config.base import Config, Heads, Rate, Width, located
from seqloom.config.combinations import Position, Score, refusal
from seqloom.config.mixers import (
    AnyMixer,
    GruConfig,
    LstmConfig,
    OneWay,
    RnnConfig,
    heads_parameters,
    require_divisible,
    score_parameters,
)
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from seqloom.nn.blocks import Block, CausalBlock
    from seqloom.nn.mixers.contract import ConditionedMixer

Norm = Literal["layer", "rms"]
# What a norm adds to the variance; None: 1e-5 of "layer", 1e-6 of "rms"
Epsilon = Annotated[float, Meta(ge=1e-12, le=0.1, examples=[1e-5])]
Activation = Literal["sigmoid", "tanh", "relu", "gelu", "swiglu"]
Arrangement = Literal["plain", "residual", "post", "pre"]
# What dropout draws: whether each number stays, or whether each unit stays for the whole sequence (Gal 2016, "locked")
DropoutMask = Literal["element", "sequence"]


class FeedForwardConfig(Config, tag="feed-forward", kw_only=True):
    """Two linear maps with a nonlinearity between, the same at every position."""

    hidden: Width = 2048
    activation: Activation = "relu"
    dropout: Rate = 0.0

    def parameters(self, width: int) -> int:
        """The number of weights; SwiGLU has a third matrix, the gate's."""
        inward = 2 if self.activation == "swiglu" else 1
        return inward * (width * self.hidden + self.hidden) + self.hidden * width + width


def norm_parameters(norm: Norm, width: int) -> int:
    """The number of weights of a normalisation: a scale, and for LayerNorm a shift."""
    return 2 * width if norm == "layer" else width


class BlockConfig(Config, tag="block", kw_only=True):
    """One layer of a stack.

    plain     y = mix(x), then y = feed_forward(y)                    recurrent and convolutional stacks
    residual  x + mix(x), then x + feed_forward(x)
    post      norm(x + mix(x)), then norm(x + feed_forward(x))        Vaswani et al. 2017
    pre       x + mix(norm(x)), then x + feed_forward(norm(x))        easier to train deep; the stack ends with a norm
    """

    mixer: AnyMixer
    arrangement: Arrangement = "plain"
    norm: Norm = "layer"
    norm_epsilon: Epsilon | None = None
    feed_forward: FeedForwardConfig | None = None
    dropout: Rate = 0.0
    dropout_mask: DropoutMask = "element"

    def fit(self, width: int, position: Position = "none") -> None:
        """Raise ConfigError if the block cannot have this width or position."""
        with located("mixer"):
            self.mixer.fit(width, position)

    def fit_causal(self) -> None:
        """Raise ConfigError if the block cannot be stepped."""
        with located("mixer"):
            self.mixer.fit_causal()

    def norms(self) -> int:
        """How many normalisations the block has."""
        return 0 if self.arrangement in ("plain", "residual") else 1 if self.feed_forward is None else 2

    def parameters(self, width: int, position: Position = "none") -> int:
        """The number of weights it will have."""
        inner = 0 if self.feed_forward is None else self.feed_forward.parameters(width)
        return self.mixer.parameters(width, position) + inner + self.norms() * norm_parameters(self.norm, width)

    def build(self, width: int, position: Position = "none") -> "Block":
        """The block for whole sequences."""
        from seqloom.nn.blocks import Block

        return Block(self, width, self.mixer.build(width, position))

    def build_causal(self, width: int, position: Position = "none") -> "CausalBlock":
        """The block that never looks ahead and can be stepped."""
        from seqloom.nn.blocks import CausalBlock

        return CausalBlock(self, width, self.mixer.build_causal(width, position))


class ConditionedConfig(Config):
    """Base of the layers that also read a memory: what an encoder left."""

    def fit(self, width: int, position: Position = "none") -> None:
        """Raise ConfigError if the layer cannot have this width or position."""

    def parameters(self, width: int, position: Position = "none") -> int:
        """The number of weights it will have."""
        raise NotImplementedError

    def build(self, width: int, position: Position = "none") -> "ConditionedMixer[Any]":
        """The layer."""
        raise NotImplementedError


class DecoderBlockConfig(ConditionedConfig, tag="decoder-block", kw_only=True):
    """A causal mixer, then attention to the memory, then a feed-forward, each with residual and norm."""

    mixer: OneWay
    num_heads: Heads = 8
    score: Score = "scaled_dot"
    arrangement: Literal["post", "pre"] = "pre"
    norm: Norm = "layer"
    norm_epsilon: Epsilon | None = None
    feed_forward: FeedForwardConfig = FeedForwardConfig()
    dropout: Rate = 0.0
    attention_dropout: Rate = 0.0  # of the weights of attention to the memory

    def fit(self, width: int, position: Position = "none") -> None:
        with located("mixer"):
            self.mixer.fit(width, position)
        require_divisible(width, self.num_heads)

    def parameters(self, width: int, position: Position = "none") -> int:
        cross = heads_parameters(width, self.num_heads, self.score)
        norms = 3 * norm_parameters(self.norm, width)
        return self.mixer.parameters(width, position) + cross + self.feed_forward.parameters(width) + norms

    def build(self, width: int, position: Position = "none") -> "ConditionedMixer[Any]":
        from seqloom.nn.blocks import DecoderBlock

        return DecoderBlock(self, width, position)


class SeededConfig(ConditionedConfig, tag="seeded", kw_only=True):
    """A recurrence whose first state is made from the memory's last element: all that passes the bottleneck."""

    mixer: RnnConfig | GruConfig | LstmConfig
    dropout: Rate = 0.0

    def fit(self, width: int, position: Position = "none") -> None:
        with located("mixer"):
            self.mixer.fit(width, position)

    def parameters(self, width: int, position: Position = "none") -> int:
        return self.mixer.parameters(width, position) + width * width + width

    def build(self, width: int, position: Position = "none") -> "ConditionedMixer[Any]":
        from seqloom.nn.mixers.recurrent import Seeded

        return Seeded(self, width)


class AlignmentConfig(ConditionedConfig, tag="alignment", kw_only=True):
    """Attention of a recurrent decoder to the memory: y = tanh(W [a; s]), with s the state and a what it looked up."""

    score: Score = "dot"
    dropout: Rate = 0.0
    attention_dropout: Rate = 0.0  # of the weights

    def fit(self, width: int, position: Position = "none") -> None:
        if reason := refusal("cross-attention", position=position):
            raise ConfigError(
                f"position '{position}' with '{self.kind()}': {reason}",
                fix="choose position 'sinusoidal', 'learned' or 'none'",
            )

    def parameters(self, width: int, position: Position = "none") -> int:
        return 2 * width * width + width + score_parameters(width, 1, self.score)

    def build(self, width: int, position: Position = "none") -> "ConditionedMixer[Any]":
        from seqloom.nn.mixers.cross import Alignment

        return Alignment(self, width)


AnyConditioned = DecoderBlockConfig | SeededConfig | AlignmentConfig


def require_layers(layers: tuple[object, ...], what: str) -> None:
    """Raise ConfigError if a stack that needs layers has none."""
    if not layers:
        raise ConfigError(f"{what} needs layers, found none", fix="give at least one")
