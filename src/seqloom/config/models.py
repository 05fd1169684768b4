"""Models: one or two stacks and a head. The objectives of embedders come first.

    contrast       the texts of a pair are nearer than those of all other pairs of the batch
    cosine-score   the cosine of two texts is their score
    rank           pairs with a higher score have the higher cosine
    triplet        the anchor is nearer to its positive than to its negative, by a margin
    views          contrast of a text with itself, read twice: dropout and dropped tokens make the two differ

`reads` lists the data that an objective can use (see `seqloom.data.schema`).
"""

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

from msgspec import Meta

from seqloom.config.base import Config, Rate, Width, from_json, from_toml, read, require_affordable
from seqloom.config.heads import (
    ElementHead,
    NextTokenHeadConfig,
    Pooling,
    SequenceHead,
    VectorHeadConfig,
    pooling_parameters,
)
from seqloom.config.inputs import TokensConfig
from seqloom.config.options import strict
from seqloom.config.stacks import Activation, ConditionedDecoderConfig, DecoderConfig, EncoderConfig, StackConfig
from seqloom.config.work import Work, linear_work
from seqloom.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from seqloom.nn.models import ElementModel, Embedder, EncoderDecoder, LanguageModel, SequenceModel
    from seqloom.nn.objectives import Objective

Temperature = Annotated[float, Meta(ge=1e-4, le=100.0, examples=[0.05])]
Margin = Annotated[float, Meta(ge=0.0, le=2.0, examples=[0.2])]
CosineScale = Annotated[float, Meta(ge=1e-2, le=1e4, examples=[20.0])]


class ObjectiveConfig(Config):
    """Base of the objectives."""

    @classmethod
    def reads(cls) -> tuple[str, ...]:
        """The kinds of rows that it can use: "text", "pair", "triple", or a "scored" pair."""
        raise NotImplementedError

    def build(self) -> "Objective":
        raise NotImplementedError


class ContrastConfig(ObjectiveConfig, tag="contrast", kw_only=True):
    """In-batch negatives, both directions (van den Oord et al. 2018); equal texts are not negatives of each other.

    The negative of a triple is a negative for all anchors. A single text is contrasted with its second reading.
    """

    temperature: Temperature = 0.05

    @classmethod
    def reads(cls) -> tuple[str, ...]:
        return ("pair", "triple", "text")

    def build(self) -> "Objective":
        from seqloom.nn.objectives import Contrast

        return Contrast(self)


class ScoredCosineConfig(ObjectiveConfig, tag="cosine-score", kw_only=True):
    """Squared error of the cosine; scores are scaled to 0..1 by the range of the training set."""

    @classmethod
    def reads(cls) -> tuple[str, ...]:
        return ("scored",)

    def build(self) -> "Objective":
        from seqloom.nn.objectives import ScoredCosine

        return ScoredCosine()


class RankConfig(ObjectiveConfig, tag="rank", kw_only=True):
    """log(1 + sum of exp(scale (cos_j - cos_i)) over pairs i with a higher score than j) (CoSENT, Su 2022)."""

    scale: CosineScale = 20.0

    @classmethod
    def reads(cls) -> tuple[str, ...]:
        return ("scored",)

    def build(self) -> "Objective":
        from seqloom.nn.objectives import Rank

        return Rank(self)


class TripletConfig(ObjectiveConfig, tag="triplet", kw_only=True):
    """A hinge on cosines: for its own negative, and for the nearest of all other texts of the batch (Faghri 2018)."""

    margin: Margin = 0.2

    @classmethod
    def reads(cls) -> tuple[str, ...]:
        return ("triple",)

    def build(self) -> "Objective":
        from seqloom.nn.objectives import Triplet

        return Triplet(self)


class ViewsConfig(ObjectiveConfig, tag="views", kw_only=True):
    """Contrast of two readings of one text (SimCSE, Gao et al. 2021), with tokens dropped from the second."""

    temperature: Temperature = 0.05
    left_out: Rate = 0.0  # the share of tokens

    @classmethod
    def reads(cls) -> tuple[str, ...]:
        return ("text",)

    def build(self) -> "Objective":
        from seqloom.nn.objectives import Views

        return Views(self)


AnyObjective = ContrastConfig | ScoredCosineConfig | RankConfig | TripletConfig | ViewsConfig
OBJECTIVES: dict[str, type[AnyObjective]] = {kind.kind(): kind for kind in get_args(AnyObjective)}


def objective_of(asked: str | AnyObjective) -> AnyObjective:
    """The objective, or the one of this name with its defaults; ConfigError suggests the nearest name."""
    if not isinstance(asked, str):
        return asked
    if asked not in OBJECTIVES:
        raise ConfigError(f"there is no objective '{asked}'", fix=did_you_mean(asked, OBJECTIVES))
    return OBJECTIVES[asked]()


MicroBatch = Annotated[int, Meta(ge=1, le=2**20, examples=[2])]
Penalty = Annotated[float, Meta(ge=0.0, le=1e3, examples=[0.0])]


class ModelConfig(Config):
    """Base of the models."""

    def parameters(self) -> int:
        """The number of weights it will have."""
        raise NotImplementedError

    def work(self, *lengths: float) -> Work:
        """What it computes in a forward pass for a row; `lengths` are those of its sides, such as source and target."""
        raise NotImplementedError

    def carries_state(self) -> bool:
        """Whether it reads a text in consecutive pieces as well as at once."""
        return False


class SequenceModelConfig(ModelConfig, tag="sequence-model", kw_only=True):
    """One output per sequence: encoder, pooling, hidden layers if any, head."""

    encoder: EncoderConfig
    head: SequenceHead
    pooling: Pooling = "mean"
    hidden: tuple[Width, ...] = ()
    activation: Activation = "relu"
    dropout: Rate = 0.0  # of the pooled vector and of each hidden layer

    def check(self) -> None:
        if self.activation == "swiglu" and self.hidden:
            raise ConfigError(
                "activation 'swiglu' needs a gate, but the hidden layers after pooling have none",
                fix="use activation 'gelu'",
            )
        self.head.fit(self.widths()[-1])
        require_affordable(self.parameters(), "this model")

    def widths(self) -> tuple[int, ...]:
        """The width of the pooled vector and of each hidden layer."""
        return (self.encoder.width, *self.hidden)

    def parameters(self) -> int:
        widths = self.widths()
        hidden = sum((narrow + 1) * wide for narrow, wide in pairwise(widths))
        pooling = pooling_parameters(self.pooling, self.encoder.width)
        return self.encoder.parameters() + pooling + hidden + self.head.parameters(widths[-1])

    def work(self, *lengths: float) -> Work:
        maps = [linear_work(1, narrow, wide) for narrow, wide in pairwise(self.widths())]
        pooled = Work(0.0, self.encoder.input.elements(lengths[0]) * self.encoder.width, 1)
        return sum(maps, self.encoder.work(lengths[0]) + pooled) + self.head.work(self.widths()[-1], 1)

    def build(self) -> "SequenceModel":
        """The model, with random weights from torch's generator."""
        from seqloom.nn.models import SequenceModel

        return SequenceModel(self)


class ElementModelConfig(ModelConfig, tag="element-model", kw_only=True):
    """One output per element: encoder and head; tags, classes, numbers, or masked tokens."""

    encoder: EncoderConfig
    head: ElementHead

    def check(self) -> None:
        self.head.fit(self.encoder.width)
        if isinstance(self.head, NextTokenHeadConfig):
            require_tieable(self.head, self.encoder)
        require_affordable(self.parameters(), "this model")

    def parameters(self) -> int:
        own = self.encoder.parameters() + self.head.parameters(self.encoder.width)
        return own + narrowing_parameters(self.head, self.encoder)

    def work(self, *lengths: float) -> Work:
        return self.encoder.work(lengths[0]) + self.head.work(self.encoder.width, lengths[0])

    def build(self) -> "ElementModel":
        """The model, with random weights from torch's generator."""
        from seqloom.nn.models import ElementModel

        return ElementModel(self)


class LanguageModelConfig(ModelConfig, tag="language-model", kw_only=True):
    """P(next token | tokens so far): decoder and head.

    The two penalties are added to the training loss only; Merity et al. 2018 use 2 and 1.
    """

    decoder: DecoderConfig
    head: NextTokenHeadConfig
    size_penalty: Penalty = 0.0  # on the mean square of the head's input
    change_penalty: Penalty = 0.0  # on the mean square of its change between elements

    def check(self) -> None:
        require_tieable(self.head, self.decoder)
        require_affordable(self.parameters(), "this model")

    def parameters(self) -> int:
        own = self.decoder.parameters() + self.head.parameters(self.decoder.width)
        return own + narrowing_parameters(self.head, self.decoder)

    def work(self, *lengths: float) -> Work:
        return self.decoder.work(lengths[0]) + self.head.work(self.decoder.width, lengths[0])

    def carries_state(self) -> bool:
        return bool(self.decoder.layers) and all(layer.mixer.carries_state() for layer in self.decoder.layers)

    def build(self) -> "LanguageModel":
        """The model, with random weights from torch's generator."""
        from seqloom.nn.models import LanguageModel

        return LanguageModel(self)


class EncoderDecoderConfig(ModelConfig, tag="encoder-decoder", kw_only=True):
    """P(next target token | source, target so far)."""

    encoder: EncoderConfig
    decoder: ConditionedDecoderConfig
    head: NextTokenHeadConfig
    shared: bool = False  # source and target share one vocabulary and one embedding table

    def check(self) -> None:
        if self.shared and self.encoder.input != self.decoder.input:
            raise ConfigError(
                f"shared: the inputs must be the same, but the encoder has {self.encoder.input.to_json()} and the "
                f"decoder {self.decoder.input.to_json()}",
                fix="give both the same 'tokens' input, or set shared = false",
            )
        if self.shared and not isinstance(self.decoder.input, TokensConfig):
            raise ConfigError(
                f"shared: only a 'tokens' input has a table of vectors, found '{self.decoder.input.kind()}'",
                fix="set shared = false",
            )
        if self.encoder.width != self.decoder.width:
            raise ConfigError(
                f"the encoder has width {self.encoder.width}, but the decoder has width {self.decoder.width}",
                fix="give both the same width",
            )
        require_tieable(self.head, self.decoder)
        require_affordable(self.parameters(), "this model")

    def parameters(self) -> int:
        own = self.encoder.parameters() + self.decoder.parameters() + self.head.parameters(self.decoder.width)
        return own + narrowing_parameters(self.head, self.decoder) - self._shared_parameters()

    def work(self, *lengths: float) -> Work:
        source, target = lengths
        decoder = self.decoder.work(target, self.encoder.input.elements(source))
        return self.encoder.work(source) + decoder + self.head.work(self.decoder.width, target)

    def _shared_parameters(self) -> int:
        """The weights that would be counted twice: a table of vectors."""
        if not self.shared:
            return 0
        assert isinstance(self.decoder.input, TokensConfig), "check has seen it"
        return self.decoder.input.vocab_size * (self.decoder.input.size or self.decoder.width)

    def build(self) -> "EncoderDecoder":
        """The model, with random weights from torch's generator."""
        from seqloom.nn.models import EncoderDecoder

        return EncoderDecoder(self)


class EmbedderConfig(ModelConfig, tag="embedder", kw_only=True):
    """One vector per sequence, for search and comparison.

    With `micro_batch`, a training step computes this many texts at a time, and again for their gradient: it needs the
    memory of few texts and has the gradient of all (gradient caching, Gao et al. 2021).
    """

    encoder: EncoderConfig
    head: VectorHeadConfig = VectorHeadConfig()
    pooling: Pooling = "mean"
    objective: AnyObjective = ContrastConfig()
    dropout: Rate = 0.0  # of the pooled vector
    micro_batch: MicroBatch | None = None

    def check(self) -> None:
        require_affordable(self.parameters(), "this model")

    def parameters(self) -> int:
        width = self.encoder.width
        return self.encoder.parameters() + pooling_parameters(self.pooling, width) + self.head.parameters(width)

    def work(self, *lengths: float) -> Work:
        width = self.encoder.width
        pooled = Work(0.0, lengths[0] * width, 1) + linear_work(1, width, self.head.size or width)
        return self.encoder.work(lengths[0]) + pooled

    def build(self) -> "Embedder":
        """The model, with random weights from torch's generator."""
        from seqloom.nn.models import Embedder

        return Embedder(self)


AnyModel = SequenceModelConfig | ElementModelConfig | LanguageModelConfig | EncoderDecoderConfig | EmbedderConfig


def require_tieable(head: NextTokenHeadConfig, stack: StackConfig) -> None:
    """Raise ConfigError if a tied head cannot share the input's matrix."""
    if not head.tied:
        return
    source = stack.source()
    if not isinstance(source, TokensConfig):
        raise ConfigError(
            f"a tied head uses the embedding matrix of a 'tokens' input, but the input is '{source.kind()}'",
            fix="set tied = false in the head",
        )
    if source.vocab_size != head.vocab_size:
        raise ConfigError(
            f"the head has vocab_size {head.vocab_size:,}, but the input to which it is tied has vocab_size "
            f"{source.vocab_size:,}",
            fix="make them equal, or set tied = false in the head",
        )


def narrowing_parameters(head: ElementHead, stack: StackConfig) -> int:
    """The weights of the map from the model's width to that of a tied table: none if they are equal."""
    source = stack.source()
    if not isinstance(head, NextTokenHeadConfig) or not head.tied or not isinstance(source, TokensConfig):
        return 0
    return 0 if source.size in (None, stack.width) else stack.width * (source.size or 0)


@strict
def read_model(path: str | Path) -> AnyModel:
    """The model configuration in a .toml or .json file."""
    model: AnyModel = read(path, AnyModel)
    return model


@strict
def model_from_toml(text: str) -> AnyModel:
    """The model configuration in a TOML text."""
    model: AnyModel = from_toml(text, AnyModel)
    return model


@strict
def model_from_json(text: str) -> AnyModel:
    """The model configuration in a JSON text."""
    model: AnyModel = from_json(text, AnyModel)
    return model
