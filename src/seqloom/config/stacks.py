"""Encoders and decoders: an input, a kind of position, and layers."""

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from seqloom.config.base import Config, Depth, Length, Rate, Width, located, require_affordable
from seqloom.config.blocks import (
    AnyConditioned,
    BlockConfig,
    ConditionedConfig,
    DropoutMask,
    Epsilon,
    Norm,
    norm_parameters,
    require_layers,
)
from seqloom.config.combinations import RELATIVE, Position
from seqloom.config.inputs import AnyInput, InputConfig, PictureConfig, SteppedInput
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from seqloom.nn.stacks import ConditionedDecoder, Decoder, Encoder

MAX_LAYERS = 1_024
InputScale = Annotated[float, Meta(ge=1e-4, le=1e4, examples=[1.0, 8.0])]


class StackConfig(Config, kw_only=True):
    """Base of encoders and decoders: an input, a kind of position, and layers, repeated with fresh weights."""

    width: Width
    position: Position = "none"
    position_join: Literal["add", "concatenate"] = "add"
    input_scale: InputScale = 1.0  # inputs are multiplied by it before positions are added (Vaswani et al. 2017)
    max_length: Length = 1024  # of learned positions alone: the others have no limit
    repeat: Depth = 1
    entry_norm: Norm | None = None  # of the inputs with their positions, before dropout (Devlin et al. 2019)
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
                f"{len(self.stack()):,} layers, {self.repeat:,} times, are {count:,}, and the limit is {MAX_LAYERS:,}",
                fix="repeat them less",
            )
        require_affordable(self.parameters(), f"this {self.kind()}")

    def _check_positions(self) -> None:
        source = self.source()
        if self.relation() != "none" and not self.stack():
            raise ConfigError(
                f"position '{self.position}' acts inside attention, and there are no layers",
                fix="choose position 'sinusoidal' or 'learned', or give layers",
            )
        if self.position_join == "concatenate" and not self.absolute():
            raise ConfigError(
                f"position '{self.position}' puts nothing beside the inputs that could be concatenated",
                fix="choose position 'sinusoidal' or 'learned', or leave position_join out",
            )
        if self.input_scale != 1.0 and not self.absolute():
            raise ConfigError(
                f"input_scale sets inputs against positions that are added to them, and position is '{self.position}'",
                fix="choose position 'sinusoidal' or 'learned', or leave input_scale out",
            )
        if self.position == "learned" and isinstance(source, PictureConfig) and source.length() > self.max_length:
            raise ConfigError(
                f"a picture becomes {source.length():,} elements, and learned positions end at {self.max_length:,}",
                fix=f"set max_length to {source.length():,}",
            )

    def relation(self) -> Position:
        """The kind of position as the layers see it: those that act on the inputs are none of theirs."""
        return self.position if self.position in RELATIVE else "none"

    def absolute(self) -> bool:
        """Whether positions enter with the inputs."""
        return self.position in ("learned", "sinusoidal")

    def limit(self) -> int | None:
        """The most elements that it can read at once; None where there is no end."""
        return self.max_length if self.position == "learned" else None

    def source(self) -> InputConfig:
        """What the stack reads."""
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


class EncoderConfig(StackConfig, tag="encoder", kw_only=True):
    """Reads a whole sequence; positions may see both sides."""

    input: AnyInput
    layers: tuple[BlockConfig, ...] = ()

    def source(self) -> InputConfig:
        return self.input

    def stack(self) -> tuple[BlockConfig | ConditionedConfig, ...]:
        return self.layers

    def build(self) -> "Encoder":
        """The encoder."""
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

    def build(self) -> "Decoder":
        """The decoder."""
        from seqloom.nn.stacks import Decoder

        return Decoder(self)


class ConditionedDecoderConfig(StackConfig, tag="conditioned-decoder", kw_only=True):
    """Reads a sequence from left to right while looking at what an encoder left."""

    input: SteppedInput
    layers: tuple[AnyConditioned, ...]

    def check(self) -> None:
        require_layers(self.layers, "a conditioned decoder")
        StackConfig.check(self)

    def source(self) -> InputConfig:
        return self.input

    def stack(self) -> tuple[BlockConfig | ConditionedConfig, ...]:
        return self.layers

    def build(self) -> "ConditionedDecoder":
        """The decoder."""
        from seqloom.nn.stacks import ConditionedDecoder

        return ConditionedDecoder(self)
