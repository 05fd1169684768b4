"""The parts of models that several shapes share: a middle between an input and a head."""

from typing import Any

from seqloom.config.heads import (
    ClassHeadConfig,
    MappedHead,
    NextTokenHeadConfig,
    NumberScoresHeadConfig,
    UnmappedHead,
    VectorHeadConfig,
)
from seqloom.config.inputs import (
    AnyInput,
    FiltersConfig,
    FlatConfig,
    NgramsConfig,
    PatchesConfig,
    SequenceInput,
    SpelledConfig,
    TfidfConfig,
    TokensConfig,
)
from seqloom.config.mixers import AnyMixer, BidirectionalConfig, LstmConfig, OneWay, PoolConfig, Score
from seqloom.config.models import (
    AnyObjective,
    ContrastConfig,
    ElementModelConfig,
    EmbedderConfig,
    EncoderDecoderConfig,
    LanguageModelConfig,
    SequenceModelConfig,
)
from seqloom.config.stacks import (
    AlignmentConfig,
    AnyConditioned,
    ConditionedDecoderConfig,
    DecoderBlockConfig,
    DecoderConfig,
    EncoderConfig,
    FeedForwardConfig,
    SeededConfig,
)
from seqloom.errors import ConfigError
from seqloom.recipes.families import ATTENTION, FILTERS, Body, Size, bilstm, body_of, recipe_of


def around(body: Body, inputs: AnyInput) -> dict[str, Any]:
    """The settings that encoders and decoders share."""
    return {
        "width": body.width,
        "position": body.position,
        "input_scale": _input_scale(body, inputs),
        "final_norm": body.final_norm,
        "dropout": body.dropout,
    } | ({} if body.max_length is None else {"max_length": body.max_length})


def _input_scale(body: Body, inputs: AnyInput) -> float:
    """What makes inputs as large as the sinusoids that are added to them, at the start of training.

    A table of vectors starts at width^-1/2, and sinusoids have a root mean square of 2^-1/2. Shrinking the sinusoids
    instead was measured too: scores of attention then start near zero, and order is learned late (docs/recipes.md).
    Numbers and pixels are mapped to about the size of sinusoids.
    """
    looked_up = isinstance(inputs, TokensConfig | NgramsConfig | SpelledConfig)
    return round((body.width / 2) ** 0.5, 4) if body.position == "sinusoidal" and looked_up else 1.0


def encode(body: Body, inputs: AnyInput) -> EncoderConfig:
    """The encoder with this middle."""
    return EncoderConfig(input=inputs, layers=body.layers, repeat=body.repeat, **around(body, inputs))


def answering(body: Body, inputs: AnyInput, head: MappedHead) -> SequenceModelConfig:
    """The model with this middle and one answer for each sequence."""
    return SequenceModelConfig(
        encoder=encode(body, inputs),
        pooling=body.pooling,
        hidden=body.hidden,
        dropout=body.dropout,
        head=head,
    )


# Models that read one sequence: of it one answer, one for each element, the next symbol, or a vector.


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


# Models that read pictures: pixels, 2-D filters or patches.

_LEAST_PATCHES, _MOST_PATCHES = 16, 4096  # so many make a picture of patches worth attending to


def picture_classifier(
    name: str, *, height: int, width: int, channels: int = 1, num_classes: int, size: Size = "small"
) -> SequenceModelConfig:
    """A model that names one class for each picture."""
    recipe = recipe_of(name, "picture-classifier", size)
    shape, head = {"height": height, "width": width, "channels": channels}, ClassHeadConfig(num_classes=num_classes)
    if name == "conv2d":
        scale = FILTERS[size]
        counts: tuple[int, ...] = (max(4, scale.width // 8), max(8, scale.width // 4))
        if min(height, width) < 8:  # a second layer would not fit
            counts = counts[1:]
        return answering(Body(scale.width, pooling="max"), FiltersConfig(**shape, filters=counts), head)
    assert recipe.body is not None
    flat, body = FlatConfig(**shape), recipe.body(size)  # whichever is wanted, the sizes are checked here
    if name == "mlp":
        return answering(body, flat, head)
    tiling = (side for side in range(1, 17) if height % side == 0 and width % side == 0)
    patch = max((side for side in tiling if height * width >= _LEAST_PATCHES * side**2), default=1)
    if (count := height * width // patch**2) > _MOST_PATCHES:
        raise ConfigError(
            f"no square of at most 16 x 16 tiles {height} x {width} pixels into {_MOST_PATCHES:,} patches or fewer",
            fix="crop or pad the pictures, for example to multiples of 16",
        )
    # patches lie in a plane, so their place is learned, not a distance along the reading order
    body = body._replace(position="learned", max_length=count)
    return answering(body, PatchesConfig(**shape, patch=patch), head)


# Models that write a sequence while looking at another.


def translator(name: str, *, source: AnyInput, target_vocab_size: int, size: Size = "small") -> EncoderDecoderConfig:
    """A model that writes a sequence of symbols while looking at a source: text, vectors or a picture."""
    recipe = recipe_of(name, "translator", size)
    body = bilstm(size) if recipe.body is None else recipe.body(size)
    layers, repeat = (_seq2seq(name), 1) if recipe.body is None else (_decoder_layers(body, size), body.repeat)
    target = TokensConfig(vocab_size=target_vocab_size)
    return EncoderDecoderConfig(
        encoder=encode(body, source),
        decoder=ConditionedDecoderConfig(input=target, layers=layers, repeat=repeat, **around(body, target)),
        head=NextTokenHeadConfig(vocab_size=target_vocab_size),
    )


def _seq2seq(name: str) -> tuple[AnyConditioned, ...]:
    """Two LSTM layers that start from the source's last vector, and the attention that the name asks for."""
    layers: tuple[AnyConditioned, ...] = (SeededConfig(mixer=LstmConfig(), dropout=0.3),) * 2
    scores: dict[str, Score] = {f"seq2seq-{score}": score for score in ("dot", "scaled_dot", "additive", "bilinear")}
    return (*layers, AlignmentConfig(score=scores[name], dropout=0.3)) if name in scores else layers


def _decoder_layers(body: Body, size: Size) -> tuple[AnyConditioned, ...]:
    """The blocks of an encoder, each with attention to the source in its middle."""
    return tuple(
        DecoderBlockConfig(
            mixer=_one_way(layer.mixer),
            num_heads=ATTENTION[size].heads,
            feed_forward=layer.feed_forward or FeedForwardConfig(hidden=ATTENTION[size].hidden),
            dropout=layer.dropout,
        )
        for layer in body.layers
    )


def _one_way(mixer: AnyMixer) -> OneWay:
    assert not isinstance(mixer, BidirectionalConfig), "no recipe with a decoder reads from both ends"
    return mixer
