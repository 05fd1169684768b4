"""Models that read one sequence: of it one answer, one for each element, the next symbol, or a vector."""

from seqloom.config.heads import (
    ClassHeadConfig,
    MappedHead,
    NextTokenHeadConfig,
    NumberScoresHeadConfig,
    UnmappedHead,
    VectorHeadConfig,
)
from seqloom.config.inputs import NgramsConfig, SequenceInput, SpelledConfig, TfidfConfig, TokensConfig
from seqloom.config.mixers import PoolConfig
from seqloom.config.models import (
    DecoderConfig,
    ElementModelConfig,
    EmbedderConfig,
    EncoderConfig,
    LanguageModelConfig,
    SequenceModelConfig,
)
from seqloom.config.objectives import AnyObjective, ContrastConfig
from seqloom.errors import ConfigError
from seqloom.recipes.families import body_of, recipe_of
from seqloom.recipes.parts import answering, around, encode
from seqloom.recipes.sizes import Size


def classifier(name: str, *, inputs: SequenceInput, num_classes: int, size: Size = "small") -> SequenceModelConfig:
    """A model that names one class for each sequence of symbols or vectors."""
    return sequence_model(name, inputs=inputs, head=ClassHeadConfig(num_classes=num_classes), size=size)


def sequence_model(name: str, *, inputs: SequenceInput, head: MappedHead, size: Size = "small") -> SequenceModelConfig:
    """A model with one answer for each sequence of symbols or vectors: a class, labels or numbers, as its head has."""
    if recipe_of(name, "classifier", size).name == "linear":
        return _linear(inputs, head.unmapped())
    return answering(body_of(name, "classifier", size), inputs, head)


def _linear(inputs: SequenceInput, head: UnmappedHead) -> SequenceModelConfig:
    """scores = W phi(x) + b, with phi the TF-IDF of symbols and of pairs of symbols."""
    if isinstance(inputs, SpelledConfig):
        raise ConfigError("'linear' counts symbols, and letters have no part in it", fix="leave --letters out")
    if not isinstance(inputs, TokensConfig | NgramsConfig | TfidfConfig):
        raise ConfigError("'linear' counts symbols, and vectors have none", fix="choose 'mlp' for vectors")
    counted = TfidfConfig(vocab_size=inputs.vocab_size) if isinstance(inputs, TokensConfig) else inputs
    # squared errors of long sums of counts leap; TF-IDF is of length one
    mean = isinstance(head, NumberScoresHeadConfig) and isinstance(counted, NgramsConfig)
    return SequenceModelConfig(
        encoder=EncoderConfig(input=counted, width=head.answers), pooling="mean" if mean else "sum", head=head
    )


def tagger(name: str, *, inputs: SequenceInput, num_tags: int, size: Size = "small") -> ElementModelConfig:
    """A model that names one class for each element of a sequence."""
    return ElementModelConfig(
        encoder=encode(body_of(name, "tagger", size), inputs), head=ClassHeadConfig(num_classes=num_tags)
    )


def embedder(
    name: str, *, inputs: SequenceInput, objective: AnyObjective | None = None, size: Size = "small"
) -> EmbedderConfig:
    """A model that gives one vector to each text: the encoder of a classifier, pooled as it is there.

    A bag takes the largest value of each dimension (Shen et al. 2018): in a mean, frequent words say most. Hidden
    layers become one linear map.
    """
    body = body_of(name, "embedder", size)
    if any(isinstance(layer.mixer, PoolConfig) for layer in body.layers):
        body = body._replace(layers=(), pooling="max")
    return EmbedderConfig(
        encoder=encode(body, inputs),
        head=VectorHeadConfig(size=body.hidden[-1] if body.hidden else None),
        pooling=body.pooling,
        objective=objective or ContrastConfig(),
        dropout=body.dropout,
    )


def masked_model(name: str, *, inputs: TokensConfig, size: Size = "small") -> ElementModelConfig:
    """A model that gives a probability to each hidden symbol; it reads with the vectors that it writes with."""
    return ElementModelConfig(
        encoder=encode(body_of(name, "masked-model", size), inputs),
        head=NextTokenHeadConfig(vocab_size=inputs.vocab_size),
    )


def language_model(name: str, *, vocab_size: int, size: Size = "small") -> LanguageModelConfig:
    """A model that gives a probability to each next symbol; it reads with the vectors that it writes with."""
    body, inputs = body_of(name, "language-model", size), TokensConfig(vocab_size=vocab_size)
    return LanguageModelConfig(
        decoder=DecoderConfig(input=inputs, layers=body.layers, repeat=body.repeat, **around(body, inputs)),
        head=NextTokenHeadConfig(vocab_size=vocab_size),
    )
