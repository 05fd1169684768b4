"""Stacks: encoders and decoders, made of an input, a kind of position, and layers.

A layer is a mixer with residual, norm and feed-forward layer; decoder layers may also read a memory.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from seqloom.config.base import Config, Depth, Heads, Length, Rate, Width, located, require_affordable
from seqloom.config.inputs import AnyInput, InputConfig, PictureConfig, SteppedInput
from seqloom.config.mixers import (
    RELATIVE,
    AnyMixer,
    GruConfig,
    LstmConfig,
    OneWay,
    Position,
    RnnConfig,
    Score,
    heads_parameters,
    heads_work,
    refusal,
    require_divisible,
    score_parameters,
)
from seqloom.config.work import Work, linear_work
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from seqloom.nn.mixers.contract import ConditionedMixer
    from seqloom.nn.stacks import Block, CausalBlock, ConditionedDecoder, Decoder, Encoder

Norm = Literal["layer", "rms"]
# Added to the variance in a norm; None: 1e-5 for "layer", 1e-6 for "rms"
Epsilon = Annotated[float, Meta(ge=1e-12, le=0.1, examples=[1e-5])]
Activation = Literal["sigmoid", "tanh", "relu", "gelu", "swiglu"]
Arrangement = Literal["plain", "residual", "post", "pre"]
# Whether dropout draws a mask per element, or one per sequence (Gal 2016, "locked")
DropoutMask = Literal["element", "sequence"]


class FeedForwardConfig(Config, tag="feed-forward", kw_only=True):
    """Two linear maps with a nonlinearity between, the same at every position."""

    hidden: Width = 2048
    activation: Activation = "relu"
    dropout: Rate = 0.0

    def parameters(self, width: int) -> int:
        """The number of weights; SwiGLU has a third matrix for the gate."""
        inward = 2 if self.activation == "swiglu" else 1
        return inward * (width * self.hidden + self.hidden) + self.hidden * width + width

    def work(self, width: int, length: float) -> Work:
        """What it computes for a sequence of this length."""
        inward = 2 if self.activation == "swiglu" else 1
        inner = linear_work(length, width, inward * self.hidden) + Work(0.0, length * self.hidden, 1)
        return inner + linear_work(length, self.hidden, width)


def norm_parameters(norm: Norm, width: int) -> int:
    """The number of weights of a normalization: a scale, and for LayerNorm a shift."""
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
        """Raise ConfigError if the block cannot run step by step."""
        with located("mixer"):
            self.mixer.fit_causal()

    def norms(self) -> int:
        """The number of norms in the block."""
        return 0 if self.arrangement in ("plain", "residual") else 1 if self.feed_forward is None else 2

    def parameters(self, width: int, position: Position = "none") -> int:
        """The number of weights it will have."""
        inner = 0 if self.feed_forward is None else self.feed_forward.parameters(width)
        return self.mixer.parameters(width, position) + inner + self.norms() * norm_parameters(self.norm, width)

    def work(self, width: int, length: float) -> Work:
        """What it computes for a sequence of this length."""
        inner = Work() if self.feed_forward is None else self.feed_forward.work(width, length)
        around = Work(0.0, length * width, 1) * (1 + 2 * self.norms())  # dropout, norms and sums
        return self.mixer.work(width, length) + inner + around

    def build(self, width: int, position: Position = "none") -> "Block":
        """Return the block for complete sequences; if its mixer never looks ahead, it can also run step by step."""
        from seqloom.nn.mixers.contract import CausalMixer
        from seqloom.nn.stacks import Block, CausalBlock

        mixer = self.mixer.build(width, position)
        return (CausalBlock if isinstance(mixer, CausalMixer) else Block)(self, width, mixer)

    def build_causal(self, width: int, position: Position = "none") -> "CausalBlock":
        """Return the block that never looks ahead and can run step by step."""
        from seqloom.nn.stacks import CausalBlock

        return CausalBlock(self, width, self.mixer.build_causal(width, position))


class ConditionedConfig(Config):
    """Base of the layers that also read a memory, the output of an encoder."""

    def fit(self, width: int, position: Position = "none") -> None:
        """Raise ConfigError if the layer cannot have this width or position."""

    def parameters(self, width: int, position: Position = "none") -> int:
        """The number of weights it will have."""
        raise NotImplementedError

    def work(self, width: int, length: float, memory: float) -> Work:
        """What it computes for a sequence and a memory of these lengths."""
        return Work(length * self.parameters(width), length * width, 1)

    def build(self, width: int, position: Position = "none") -> "ConditionedMixer[Any]":
        raise NotImplementedError


class DecoderBlockConfig(ConditionedConfig, tag="decoder-block", kw_only=True):
    """A causal mixer, then attention to the memory, then a feed-forward layer, each with residual and norm."""

    mixer: OneWay
    num_heads: Heads = 8
    score: Score = "scaled_dot"
    arrangement: Literal["post", "pre"] = "pre"
    norm: Norm = "layer"
    norm_epsilon: Epsilon | None = None
    feed_forward: FeedForwardConfig = FeedForwardConfig()
    dropout: Rate = 0.0
    attention_dropout: Rate = 0.0  # of the weights of attention to the memory

    def check(self) -> None:
        with located("mixer"):
            self.mixer.fit_causal()

    def fit(self, width: int, position: Position = "none") -> None:
        with located("mixer"):
            self.mixer.fit(width, position)
        require_divisible(width, self.num_heads)

    def parameters(self, width: int, position: Position = "none") -> int:
        cross = heads_parameters(width, self.num_heads, self.score)
        norms = 3 * norm_parameters(self.norm, width)
        return self.mixer.parameters(width, position) + cross + self.feed_forward.parameters(width) + norms

    def work(self, width: int, length: float, memory: float) -> Work:
        cross = heads_work(width, self.num_heads, length, memory, memory)
        around = Work(0.0, length * width, 1) * 7
        return self.mixer.work(width, length) + cross + self.feed_forward.work(width, length) + around

    def build(self, width: int, position: Position = "none") -> "ConditionedMixer[Any]":
        from seqloom.nn.stacks import DecoderBlock

        return DecoderBlock(self, width, position)


class SeededConfig(ConditionedConfig, tag="seeded", kw_only=True):
    """A recurrence whose first state is computed from the memory's last element."""

    mixer: RnnConfig | GruConfig | LstmConfig
    dropout: Rate = 0.0

    def fit(self, width: int, position: Position = "none") -> None:
        with located("mixer"):
            self.mixer.fit(width, position)

    def parameters(self, width: int, position: Position = "none") -> int:
        return self.mixer.parameters(width, position) + width * width + width

    def work(self, width: int, length: float, memory: float) -> Work:
        return self.mixer.work(width, length) + linear_work(1, width, width)

    def build(self, width: int, position: Position = "none") -> "ConditionedMixer[Any]":
        from seqloom.nn.mixers.recurrent import Seeded

        return Seeded(self, width)


class AlignmentConfig(ConditionedConfig, tag="alignment", kw_only=True):
    """Attention of a recurrent decoder to the memory: y = tanh(W [a; s]), with s the state and a the attention."""

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

    def work(self, width: int, length: float, memory: float) -> Work:
        scores = score_parameters(width, 1, self.score) // 2
        inner = Work(memory * scores + length * scores, length * memory, 2)
        summed = Work(0.0, length * memory * width, 1) if self.score == "additive" else Work()  # tanh of each pair
        return inner + summed + Work(2 * length * memory * width, 0.0, 1) + linear_work(length, 2 * width, width)

    def build(self, width: int, position: Position = "none") -> "ConditionedMixer[Any]":
        from seqloom.nn.mixers.cross import Alignment

        return Alignment(self, width)


AnyConditioned = DecoderBlockConfig | SeededConfig | AlignmentConfig


def require_layers(layers: tuple[object, ...], what: str) -> None:
    """Raise ConfigError if a stack that needs layers has none."""
    if not layers:
        raise ConfigError(f"{what} needs layers, found none", fix="give at least one")


MAX_LAYERS = 1_024
InputScale = Annotated[float, Meta(ge=1e-4, le=1e4, examples=[1.0, 8.0])]


class StackConfig(Config, kw_only=True):
    """Base of encoders and decoders: an input, a kind of position, and layers, repeated with separate weights."""

    width: Width
    position: Position = "none"
    position_join: Literal["add", "concatenate"] = "add"
    input_scale: InputScale = 1.0  # inputs are multiplied by it before positions are added (Vaswani et al. 2017)
    max_length: Length = 1024  # of learned positions; the others have no limit
    repeat: Depth = 1
    entry_norm: Norm | None = None  # norm of the inputs with their positions, before dropout (Devlin et al. 2019)
    final_norm: Norm | None = None
    norm_epsilon: Epsilon | None = None  # of these two
    dropout: Rate = 0.0  # of the inputs
    dropout_mask: DropoutMask = "element"

    def check(self) -> None:
        self._check_positions()
        self.source().fit(self.width)
        for number, layer in enumerate(self.stack()):
            with located(f"layers[{number}]"):
                layer.fit(self.width, self.relation())
        if (count := len(self.stack()) * self.repeat) > MAX_LAYERS:
            raise ConfigError(
                f"{len(self.stack()):,} layers repeated {self.repeat:,} times are {count:,} layers; the limit is "
                f"{MAX_LAYERS:,}",
                fix="use a smaller repeat",
            )
        require_affordable(self.parameters(), f"this {self.kind()}")

    def _check_positions(self) -> None:
        source = self.source()
        if self.relation() != "none" and not self.stack():
            raise ConfigError(
                f"position '{self.position}' works inside attention layers, but there are no layers",
                fix="choose position 'sinusoidal' or 'learned', or give layers",
            )
        if self.position_join == "concatenate" and not self.absolute():
            raise ConfigError(
                f"position '{self.position}' has no vectors that could be concatenated with the inputs",
                fix="choose position 'sinusoidal' or 'learned', or leave position_join out",
            )
        if self.input_scale != 1.0 and not self.absolute():
            raise ConfigError(
                f"input_scale scales inputs to which position vectors are added, but position is '{self.position}'",
                fix="choose position 'sinusoidal' or 'learned', or leave input_scale out",
            )
        if self.position == "learned" and isinstance(source, PictureConfig) and source.length() > self.max_length:
            raise ConfigError(
                f"a picture becomes {source.length():,} elements, but there are only {self.max_length:,} learned "
                "positions",
                fix=f"set max_length to {source.length():,}",
            )

    def relation(self) -> Position:
        """The relative position that the layers use; "none" for positions that are added to the inputs."""
        return self.position if self.position in RELATIVE else "none"

    def absolute(self) -> bool:
        """Whether positions are added to the inputs."""
        return self.position in ("learned", "sinusoidal")

    def limit(self) -> int | None:
        """The maximum number of elements; None for no limit."""
        return self.max_length if self.position == "learned" else None

    def source(self) -> InputConfig:
        """The input of the stack."""
        raise NotImplementedError

    def stack(self) -> tuple[BlockConfig | ConditionedConfig, ...]:
        """The layers of one repetition."""
        raise NotImplementedError

    def parameters(self) -> int:
        """The number of weights it will have."""
        layers = sum(layer.parameters(self.width, self.relation()) for layer in self.stack())
        table = self.max_length * self.width if self.position == "learned" else 0
        join = 2 * self.width**2 + self.width if self.position_join == "concatenate" else 0
        norms = sum(norm_parameters(norm, self.width) for norm in (self.entry_norm, self.final_norm) if norm)
        return self.source().parameters(self.width) + table + join + self.repeat * layers + norms

    def own_work(self, length: float) -> Work:
        """What input and positions compute for a row of this length in the data."""
        added = Work(0.0, self.source().elements(length) * self.width, 1)  # positions, dropout and norms
        return self.source().work(self.width, length) + added


class EncoderConfig(StackConfig, tag="encoder", kw_only=True):
    """Reads a complete sequence; positions may see both sides."""

    input: AnyInput
    layers: tuple[BlockConfig, ...] = ()

    def source(self) -> InputConfig:
        return self.input

    def stack(self) -> tuple[BlockConfig | ConditionedConfig, ...]:
        return self.layers

    def work(self, length: float) -> Work:
        """What it computes for a row of this length in the data."""
        layers = [layer.work(self.width, self.input.elements(length)) for layer in self.layers]
        return sum(layers, Work()) * self.repeat + self.own_work(length)

    def build(self) -> "Encoder":
        from seqloom.nn.stacks import Encoder

        return Encoder(self)


class DecoderConfig(StackConfig, tag="decoder", kw_only=True):
    """Reads a sequence from left to right; no position sees a later one."""

    input: SteppedInput
    layers: tuple[BlockConfig, ...] = ()

    def check(self) -> None:
        for number, layer in enumerate(self.layers):
            with located(f"layers[{number}]"):
                layer.fit_causal()
        StackConfig.check(self)

    def source(self) -> InputConfig:
        return self.input

    def stack(self) -> tuple[BlockConfig | ConditionedConfig, ...]:
        return self.layers

    def work(self, length: float) -> Work:
        """What it computes for a row of this length in the data."""
        layers = [layer.work(self.width, self.input.elements(length)) for layer in self.layers]
        return sum(layers, Work()) * self.repeat + self.own_work(length)

    def build(self) -> "Decoder":
        from seqloom.nn.stacks import Decoder

        return Decoder(self)


class ConditionedDecoderConfig(StackConfig, tag="conditioned-decoder", kw_only=True):
    """Reads a sequence from left to right and attends to the output of an encoder."""

    input: SteppedInput
    layers: tuple[AnyConditioned, ...]

    def check(self) -> None:
        require_layers(self.layers, "a conditioned decoder")
        StackConfig.check(self)

    def source(self) -> InputConfig:
        return self.input

    def stack(self) -> tuple[BlockConfig | ConditionedConfig, ...]:
        return self.layers

    def work(self, length: float, memory: float) -> Work:
        """What it computes for a row and a memory of these lengths."""
        layers = [layer.work(self.width, length, memory) for layer in self.layers]
        return sum(layers, Work()) * self.repeat + self.own_work(length)

    def build(self) -> "ConditionedDecoder":
        from seqloom.nn.stacks import ConditionedDecoder

        return ConditionedDecoder(self)
