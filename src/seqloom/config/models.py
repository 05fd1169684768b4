"""Models: an input, layers and a head; the closed union that files hold."""

from typing import TYPE_CHECKING, Any, Literal

from seqloom.config.base import Config, Depth, Length, Rate, Width, from_json, from_toml, read, require_affordable
from seqloom.config.blocks import (
    Activation,
    AnyConditioned,
    BlockConfig,
    ConditionedConfig,
    Norm,
    norm_parameters,
    require_layers,
)
from seqloom.config.combinations import RELATIVE, Position
from seqloom.config.heads import (
    ElementHead,
    NextTokenHeadConfig,
    Pooling,
    SequenceHead,
    VectorHeadConfig,
)
from seqloom.config.inputs import AnyInput, InputConfig, SteppedInput, TokensConfig
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from seqloom.models import ElementModel, Embedder, EncoderDecoder, LanguageModel, SequenceModel
    from seqloom.stacks import ConditionedDecoder, Decoder, Encoder


class StackConfig(Config, kw_only=True):
    """Base of encoders and decoders: an input, a kind of position, and layers, repeated with fresh weights."""

    width: Width
    position: Position = "none"
    position_join: Literal["add", "concatenate"] = "add"
    max_length: Length = 1024  # of learned positions alone: the others have no limit
    repeat: Depth = 1
    final_norm: Norm | None = None
    dropout: Rate = 0.0  # of the inputs

    def check(self) -> None:
        self.source().fit(self.width)
        for layer in self.stack():
            layer.fit(self.width, self.position if self.position in RELATIVE else "none")
        if self.position in RELATIVE and not self.stack():
            raise ConfigError(f"position '{self.position}' acts inside attention, and there are no layers")
        if self.position in RELATIVE and self.position_join == "concatenate":
            raise ConfigError(f"position '{self.position}' is not added to the inputs, so it cannot be concatenated")
        require_affordable(self.parameters(), f"this {self.kind()}")

    def source(self) -> InputConfig:
        """What the stack reads."""
        raise NotImplementedError

    def stack(self) -> tuple[BlockConfig | ConditionedConfig, ...]:
        """The layers of one repetition."""
        raise NotImplementedError

    def parameters(self) -> int:
        """The number of weights it will have."""
        relation = self.position if self.position in RELATIVE else "none"
        layers = sum(layer.parameters(self.width, relation) for layer in self.stack())
        table = self.max_length * self.width if self.position == "learned" else 0
        absolute = self.position in ("learned", "sinusoidal")
        join = 2 * self.width**2 + self.width if absolute and self.position_join == "concatenate" else 0
        norm = 0 if self.final_norm is None else norm_parameters(self.final_norm, self.width)
        return self.source().parameters(self.width) + table + join + self.repeat * layers + norm


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
        from seqloom.stacks import Encoder

        return Encoder(self)


class DecoderConfig(StackConfig, tag="decoder", kw_only=True):
    """Reads a sequence from left to right; no position sees a later one."""

    input: SteppedInput
    layers: tuple[BlockConfig, ...] = ()

    def check(self) -> None:
        for layer in self.layers:
            layer.fit_causal()
        StackConfig.check(self)

    def source(self) -> InputConfig:
        return self.input

    def stack(self) -> tuple[BlockConfig | ConditionedConfig, ...]:
        return self.layers

    def build(self) -> "Decoder":
        """The decoder."""
        from seqloom.stacks import Decoder

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
        from seqloom.stacks import ConditionedDecoder

        return ConditionedDecoder(self)


class ModelConfig(Config):
    """Base of the models."""

    def parameters(self) -> int:
        """The number of weights it will have."""
        raise NotImplementedError


class SequenceModelConfig(ModelConfig, tag="sequence-model", kw_only=True):
    """One answer per sequence: encode, pool, pass through hidden layers if any, and read."""

    encoder: EncoderConfig
    head: SequenceHead
    pooling: Pooling = "mean"
    hidden: tuple[Width, ...] = ()
    activation: Activation = "relu"
    dropout: Rate = 0.0  # of the pooled vector and of each hidden layer

    def check(self) -> None:
        if self.activation == "swiglu" and self.hidden:
            raise ConfigError("hidden layers after pooling have no gate, so 'swiglu' does not fit", fix="take 'gelu'")
        self.head.fit(self.widths()[-1])
        require_affordable(self.parameters(), "this model")

    def widths(self) -> tuple[int, ...]:
        """The width of the pooled vector and of each hidden layer."""
        return (self.encoder.width, *self.hidden)

    def parameters(self) -> int:
        widths = self.widths()
        hidden = sum((narrow + 1) * wide for narrow, wide in zip(widths, widths[1:], strict=False))
        pooling = 2 * self.encoder.width if self.pooling == "attention" else 0
        pooling += self.encoder.width**2 if self.pooling == "attention" else 0
        return self.encoder.parameters() + pooling + hidden + self.head.parameters(widths[-1])

    def build(self) -> "SequenceModel":
        """The model, with fresh weights drawn from torch's generator."""
        from seqloom.models import SequenceModel

        return SequenceModel(self)


class ElementModelConfig(ModelConfig, tag="element-model", kw_only=True):
    """One answer per element: encode and read; tags, classes or numbers per step, or masked symbols."""

    encoder: EncoderConfig
    head: ElementHead

    def check(self) -> None:
        if isinstance(self.head, NextTokenHeadConfig):
            require_tieable(self.head, self.encoder)
        require_affordable(self.parameters(), "this model")

    def parameters(self) -> int:
        return self.encoder.parameters() + self.head.parameters(self.encoder.width)

    def build(self) -> "ElementModel":
        """The model, with fresh weights drawn from torch's generator."""
        from seqloom.models import ElementModel

        return ElementModel(self)


class LanguageModelConfig(ModelConfig, tag="language-model", kw_only=True):
    """P(next symbol | symbols so far): decode and read the vocabulary."""

    decoder: DecoderConfig
    head: NextTokenHeadConfig

    def check(self) -> None:
        require_tieable(self.head, self.decoder)
        require_affordable(self.parameters(), "this model")

    def parameters(self) -> int:
        return self.decoder.parameters() + self.head.parameters(self.decoder.width)

    def build(self) -> "LanguageModel":
        """The model, with fresh weights drawn from torch's generator."""
        from seqloom.models import LanguageModel

        return LanguageModel(self)


class EncoderDecoderConfig(ModelConfig, tag="encoder-decoder", kw_only=True):
    """P(next target symbol | source, target so far)."""

    encoder: EncoderConfig
    decoder: ConditionedDecoderConfig
    head: NextTokenHeadConfig

    def check(self) -> None:
        if self.encoder.width != self.decoder.width:
            raise ConfigError(
                f"the encoder is {self.encoder.width} wide and the decoder {self.decoder.width}", fix="take one width"
            )
        require_tieable(self.head, self.decoder)
        require_affordable(self.parameters(), "this model")

    def parameters(self) -> int:
        return self.encoder.parameters() + self.decoder.parameters() + self.head.parameters(self.decoder.width)

    def build(self) -> "EncoderDecoder":
        """The model, with fresh weights drawn from torch's generator."""
        from seqloom.models import EncoderDecoder

        return EncoderDecoder(self)


class EmbedderConfig(ModelConfig, tag="embedder", kw_only=True):
    """One vector per sequence, for search and comparison."""

    encoder: EncoderConfig
    head: VectorHeadConfig = VectorHeadConfig()
    pooling: Pooling = "mean"

    def check(self) -> None:
        require_affordable(self.parameters(), "this model")

    def parameters(self) -> int:
        width = self.encoder.width
        pooling = width**2 + 2 * width if self.pooling == "attention" else 0
        return self.encoder.parameters() + pooling + self.head.parameters(width)

    def build(self) -> "Embedder":
        """The model, with fresh weights drawn from torch's generator."""
        from seqloom.models import Embedder

        return Embedder(self)


AnyModel = SequenceModelConfig | ElementModelConfig | LanguageModelConfig | EncoderDecoderConfig | EmbedderConfig


def require_tieable(head: NextTokenHeadConfig, stack: StackConfig) -> None:
    """Raise ConfigError if a tied head cannot share the input's matrix."""
    if not head.tied:
        return
    source = stack.source()
    if not isinstance(source, TokensConfig) or source.size not in (None, stack.width):
        raise ConfigError(
            f"a tied head reads with the matrix of a 'tokens' input as wide as the model; the input is '{source.kind()}'",
            fix="set tied to false",
        )
    if source.vocab_size != head.vocab_size:
        raise ConfigError(
            f"the tied head has {head.vocab_size} symbols and the input {source.vocab_size}", fix="make them equal"
        )


def read_model(path: str) -> Any:
    """The model configuration in a .toml or .json file."""
    return read(path, AnyModel)


def model_from_toml(text: str) -> Any:
    """The model configuration in a TOML text."""
    return from_toml(text, AnyModel)


def model_from_json(text: str) -> Any:
    """The model configuration in a JSON text."""
    return from_json(text, AnyModel)
