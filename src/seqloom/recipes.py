"""Recipes: every family of the lectures as a function from a size to a configuration.

    classifier          one class per sequence           tagger      one tag per element
    language_model      the next symbol                  translator  a sequence from another sequence
    picture_classifier  one class per picture            masked_model  hidden symbols
    sequence_model      labels, numbers or one class per sequence
    embedder            one vector per text

A recipe is a starting point, and plain data: print it, change it, write it to a file.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from seqloom.config.blocks import (
    AlignmentConfig,
    AnyConditioned,
    BlockConfig,
    DecoderBlockConfig,
    FeedForwardConfig,
    Norm,
    SeededConfig,
)
from seqloom.config.combinations import Position, Score
from seqloom.config.heads import (
    ClassHeadConfig,
    MappedHead,
    NextTokenHeadConfig,
    NumberScoresHeadConfig,
    Pooling,
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
    TokensConfig,
)
from seqloom.config.mixers import (
    AnyMixer,
    AttentionConfig,
    BidirectionalConfig,
    ConvolutionConfig,
    GruConfig,
    LinearAttentionConfig,
    LstmConfig,
    OneWay,
    Pattern,
    PoolConfig,
    RnnConfig,
    SparseConfig,
    WindowConfig,
)
from seqloom.config.models import (
    ConditionedDecoderConfig,
    DecoderConfig,
    ElementModelConfig,
    EmbedderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    LanguageModelConfig,
    SequenceModelConfig,
)
from seqloom.config.objectives import AnyObjective, ContrastConfig
from seqloom.errors import ConfigError, did_you_mean

Size = Literal["tiny", "small", "base", "big"]
Shape = Literal[
    "classifier", "tagger", "language-model", "translator", "picture-classifier", "masked-model", "embedder"
]
SIZES: tuple[Size, ...] = get_args(Size)


class Scale(NamedTuple):
    """The numbers behind a size."""

    width: int
    layers: int
    heads: int
    hidden: int


# base and big are those of Vaswani et al. 2017, recurrent ones of Zaremba et al. 2014, 3 x 100 filters of Kim 2014
_ATTENTION = {
    "tiny": Scale(12, 2, 2, 24),
    "small": Scale(192, 3, 4, 768),
    "base": Scale(512, 6, 8, 2048),
    "big": Scale(1024, 6, 16, 4096),
}
_RECURRENT = {
    "tiny": Scale(12, 2, 1, 0),
    "small": Scale(200, 2, 1, 0),
    "base": Scale(650, 2, 1, 0),
    "big": Scale(1500, 2, 1, 0),
}
_LEAST_PATCHES, _MOST_PATCHES = 16, 4096  # so many make a picture of patches worth attending to
_FILTERS = {
    "tiny": Scale(12, 1, 1, 0),
    "small": Scale(300, 1, 1, 0),
    "base": Scale(600, 2, 1, 0),
    "big": Scale(1200, 2, 1, 0),
}


class Body(NamedTuple):
    """The middle of a model, without its input and its head."""

    width: int
    layers: tuple[BlockConfig, ...] = ()
    repeat: int = 1
    position: Position = "none"
    final_norm: Norm | None = None
    max_length: int | None = None  # None: as the configuration has it
    dropout: float = 0.1
    pooling: Pooling = "mean"
    hidden: tuple[int, ...] = ()


def _bag(size: Size) -> Body:
    # causal, the running mean makes a bag language model; pooled, the mixer is not needed
    scale = _FILTERS[size]
    return Body(scale.width, (BlockConfig(mixer=PoolConfig()),))


def _mlp(size: Size) -> Body:
    scale = _FILTERS[size]
    return Body(scale.width, hidden=(scale.width,) * (2 if size in ("base", "big") else 1), dropout=0.2)


def _cnn(size: Size) -> Body:
    scale = _FILTERS[size]
    block = BlockConfig(mixer=ConvolutionConfig(kernel_sizes=(3, 4, 5)), dropout=0.3)
    return Body(scale.width, (block,), scale.layers, pooling="max", dropout=0.2)


def _recurrent(mixer: OneWay) -> Callable[[Size], Body]:
    def body(size: Size) -> Body:
        scale = _RECURRENT[size]
        return Body(scale.width, (BlockConfig(mixer=mixer, dropout=0.3),), scale.layers, pooling="last", dropout=0.2)

    return body


def _bilstm(size: Size) -> Body:
    scale = _RECURRENT[size]
    return Body(
        scale.width, (BlockConfig(mixer=BidirectionalConfig(), dropout=0.3),), scale.layers, pooling="max", dropout=0.2
    )


def _self_attention(size: Size) -> Body:
    """Deck A's minimal block: attention with positions, then a feed-forward; no residual, no norm."""
    scale = _ATTENTION[size]
    block = BlockConfig(mixer=AttentionConfig(num_heads=1), feed_forward=FeedForwardConfig(hidden=scale.hidden))
    return Body(scale.width, (block,), position="sinusoidal")


def _attention_stack(mixer: Callable[[int], OneWay], size: Size, position: Position) -> Body:
    scale = _ATTENTION[size]
    block = BlockConfig(
        mixer=mixer(scale.heads),
        arrangement="pre",
        feed_forward=FeedForwardConfig(hidden=scale.hidden, activation="gelu"),
        dropout=0.1,
    )
    return Body(scale.width, (block,), scale.layers, position, final_norm="layer")


def _patterned(pattern: Pattern, position: Position) -> Callable[[Size], Body]:
    def mixer(heads: int) -> OneWay:
        return AttentionConfig(num_heads=heads, pattern=pattern)

    return lambda size: _attention_stack(mixer, size, position)


def _linear_attention(size: Size) -> Body:
    return _attention_stack(lambda heads: LinearAttentionConfig(num_heads=heads), size, "sinusoidal")


def _transformer(size: Size) -> Body:
    return _attention_stack(lambda heads: AttentionConfig(num_heads=heads), size, "rotary")


def _gpt(size: Size) -> Body:
    return _attention_stack(lambda heads: AttentionConfig(num_heads=heads), size, "learned")


def _encoder(size: Size) -> Body:
    """Post-norm with learned positions, as in Devlin et al. 2019."""
    body = _gpt(size)
    return body._replace(
        layers=tuple(msgspec.structs.replace(layer, arrangement="post") for layer in body.layers),
        final_norm=None,
        pooling="first",
    )


class Recipe(NamedTuple):
    """A family: what it is for, and the shapes of model it makes."""

    name: str
    purpose: str
    shapes: tuple[Shape, ...]
    body: Callable[[Size], Body] | None = None  # None: the shape's own function knows it by name


_TEXT: tuple[Shape, ...] = ("classifier", "tagger", "language-model", "embedder")
_ALL: tuple[Shape, ...] = (*_TEXT, "translator")
_MASKED: tuple[Shape, ...] = ("masked-model",)  # of those that see both sides

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("linear", "counted n-grams and linear regression, of classes logistic: the baseline", ("classifier",)),
        Recipe(
            "bag", "a mean of word vectors: fast, blind to order", ("classifier", "language-model", "embedder"), _bag
        ),
        Recipe(
            "mlp", "hidden layers over pooled vectors or pixels", ("classifier", "picture-classifier", "embedder"), _mlp
        ),
        Recipe("cnn", "n-gram filters: short patterns wherever they stand", _TEXT + _MASKED, _cnn),
        Recipe("rnn", "the Elman network: the simplest memory, and a short one", _TEXT, _recurrent(RnnConfig())),
        Recipe("gru", "gated memory with fewer weights than an LSTM", _TEXT, _recurrent(GruConfig())),
        Recipe("lstm", "gated memory: the workhorse for small data and streams", _TEXT, _recurrent(LstmConfig())),
        Recipe(
            "bilstm",
            "an LSTM from each end: tags and small data",
            ("classifier", "tagger", "masked-model", "embedder"),
            _bilstm,
        ),
        Recipe("self-attention", "the minimal attention block of the lectures", _TEXT + _MASKED, _self_attention),
        Recipe("transformer", "attention in depth: the strongest when data is plenty", _ALL + _MASKED, _transformer),
        Recipe("gpt", "the Transformer decoder with learned positions", ("language-model",), _gpt),
        Recipe(
            "encoder",
            "the Transformer encoder with learned positions, post-norm",
            ("classifier", "tagger", "masked-model", "embedder"),
            _encoder,
        ),
        Recipe(
            "window",
            "attention to near positions only: long texts",
            _ALL + _MASKED,
            _patterned(WindowConfig(), "rotary"),
        ),
        Recipe(
            "sparse",
            "attention to a block and a stride: long texts",
            _TEXT + _MASKED,
            _patterned(SparseConfig(), "rotary"),
        ),
        Recipe("linear-attention", "attention as a recurrence: long streams", _ALL + _MASKED, _linear_attention),
        Recipe("seq2seq", "recurrent encoder and decoder, one vector between: the bottleneck", ("translator",)),
        Recipe("seq2seq-dot", "the same with attention to the source, dot score", ("translator",)),
        Recipe("seq2seq-scaled_dot", "the same with the scaled dot score", ("translator",)),
        Recipe("seq2seq-additive", "the same with the additive score", ("translator",)),
        Recipe("seq2seq-bilinear", "the same with the bilinear score", ("translator",)),
        Recipe("conv2d", "2-D filters over pictures", ("picture-classifier",)),
        Recipe("patch-transformer", "pictures as a sequence of patches", ("picture-classifier",), _transformer),
    )
}


def names(shape: Shape) -> list[str]:
    """The recipes that make a shape of model."""
    if shape not in get_args(Shape):
        raise ConfigError(f"there is no shape '{shape}'", fix=did_you_mean(shape, get_args(Shape)))
    return [name for name, recipe in RECIPES.items() if shape in recipe.shapes]


def _body(name: str, shape: Shape, size: Size) -> Body:
    recipe = _recipe(name, shape, size)
    assert recipe.body is not None, f"{name} is made by the shape's own function"
    return recipe.body(size)


def _recipe(name: str, shape: Shape, size: Size) -> Recipe:
    if name not in RECIPES:
        raise ConfigError(f"there is no recipe '{name}'", fix=did_you_mean(str(name), RECIPES))
    if shape not in RECIPES[name].shapes:
        made = ", ".join(RECIPES[name].shapes)
        raise ConfigError(f"'{name}' makes no {shape}, only: {made}", fix=f"choose from {', '.join(names(shape))}")
    if size not in SIZES:
        raise ConfigError(f"there is no size '{size}'", fix=did_you_mean(size, SIZES))
    return RECIPES[name]


def _around(body: Body) -> dict[str, Any]:
    """The settings that encoders and decoders share."""
    return {
        "width": body.width,
        "position": body.position,
        "final_norm": body.final_norm,
        "dropout": body.dropout,
    } | ({} if body.max_length is None else {"max_length": body.max_length})


def _encode(body: Body, inputs: AnyInput) -> EncoderConfig:
    return EncoderConfig(input=inputs, layers=body.layers, repeat=body.repeat, **_around(body))


def classifier(name: str, *, inputs: SequenceInput, num_classes: int, size: Size = "small") -> SequenceModelConfig:
    """A model that names one class for each sequence of symbols or vectors."""
    return sequence_model(name, inputs=inputs, head=ClassHeadConfig(num_classes=num_classes), size=size)


def sequence_model(name: str, *, inputs: SequenceInput, head: MappedHead, size: Size = "small") -> SequenceModelConfig:
    """A model with one answer for each sequence of symbols or vectors: a class, labels or numbers, as its head has."""
    if _recipe(name, "classifier", size).name == "linear":
        return _linear(inputs, head.unmapped())
    return _answering(_body(name, "classifier", size), inputs, head)


def _answering(body: Body, inputs: AnyInput, head: MappedHead) -> SequenceModelConfig:
    return SequenceModelConfig(
        encoder=_encode(body, inputs),
        pooling=body.pooling,
        hidden=body.hidden,
        dropout=body.dropout,
        head=head,
    )


def _linear(inputs: SequenceInput, head: UnmappedHead) -> SequenceModelConfig:
    """scores = W phi(x) + b, with phi the counts of symbols and of pairs of symbols."""
    if isinstance(inputs, SpelledConfig):
        raise ConfigError("'linear' counts symbols, and letters have no part in it", fix="leave --letters out")
    if not isinstance(inputs, TokensConfig | NgramsConfig):
        raise ConfigError("'linear' counts symbols, and vectors have none", fix="choose 'mlp' for vectors")
    counted = NgramsConfig(vocab_size=inputs.vocab_size) if isinstance(inputs, TokensConfig) else inputs
    return SequenceModelConfig(
        encoder=EncoderConfig(input=counted, width=head.answers),
        pooling="mean" if isinstance(head, NumberScoresHeadConfig) else "sum",  # squared errors of long sums leap
        head=head,
    )


def tagger(name: str, *, inputs: SequenceInput, num_tags: int, size: Size = "small") -> ElementModelConfig:
    """A model that names one class for each element of a sequence."""
    return ElementModelConfig(
        encoder=_encode(_body(name, "tagger", size), inputs), head=ClassHeadConfig(num_classes=num_tags)
    )


def embedder(
    name: str, *, inputs: SequenceInput, objective: AnyObjective | None = None, size: Size = "small"
) -> EmbedderConfig:
    """A model that gives one vector to each text: the encoder of a classifier, pooled as it is there.

    A bag takes the largest value of each dimension (Shen et al. 2018): in a mean, frequent words say most. Hidden
    layers become one linear map.
    """
    body = _body(name, "embedder", size)
    if any(isinstance(layer.mixer, PoolConfig) for layer in body.layers):
        body = body._replace(layers=(), pooling="max")
    return EmbedderConfig(
        encoder=_encode(body, inputs),
        head=VectorHeadConfig(size=body.hidden[-1] if body.hidden else None),
        pooling=body.pooling,
        objective=objective or ContrastConfig(),
        dropout=body.dropout,
    )


def masked_model(name: str, *, inputs: TokensConfig, size: Size = "small") -> ElementModelConfig:
    """A model that gives a probability to each hidden symbol; it reads with the vectors that it writes with."""
    return ElementModelConfig(
        encoder=_encode(_body(name, "masked-model", size), inputs),
        head=NextTokenHeadConfig(vocab_size=inputs.vocab_size),
    )


def language_model(name: str, *, vocab_size: int, size: Size = "small") -> LanguageModelConfig:
    """A model that gives a probability to each next symbol; it reads with the vectors that it writes with."""
    body = _body(name, "language-model", size)
    return LanguageModelConfig(
        decoder=DecoderConfig(
            input=TokensConfig(vocab_size=vocab_size), layers=body.layers, repeat=body.repeat, **_around(body)
        ),
        head=NextTokenHeadConfig(vocab_size=vocab_size),
    )


def translator(name: str, *, source: AnyInput, target_vocab_size: int, size: Size = "small") -> EncoderDecoderConfig:
    """A model that writes a sequence of symbols while looking at a source: text, vectors or a picture."""
    recipe = _recipe(name, "translator", size)
    body = _bilstm(size) if recipe.body is None else recipe.body(size)
    layers, repeat = (_seq2seq(name), 1) if recipe.body is None else (_decoder_layers(body, size), body.repeat)
    return EncoderDecoderConfig(
        encoder=_encode(body, source),
        decoder=ConditionedDecoderConfig(
            input=TokensConfig(vocab_size=target_vocab_size), layers=layers, repeat=repeat, **_around(body)
        ),
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
            num_heads=_ATTENTION[size].heads,
            feed_forward=layer.feed_forward or FeedForwardConfig(hidden=_ATTENTION[size].hidden),
            dropout=layer.dropout,
        )
        for layer in body.layers
    )


def _one_way(mixer: AnyMixer) -> OneWay:
    assert not isinstance(mixer, BidirectionalConfig), "no recipe with a decoder reads from both ends"
    return mixer


def picture_classifier(
    name: str, *, height: int, width: int, channels: int = 1, num_classes: int, size: Size = "small"
) -> SequenceModelConfig:
    """A model that names one class for each picture."""
    recipe = _recipe(name, "picture-classifier", size)
    shape, head = {"height": height, "width": width, "channels": channels}, ClassHeadConfig(num_classes=num_classes)
    if name == "conv2d":
        scale = _FILTERS[size]
        counts: tuple[int, ...] = (max(4, scale.width // 8), max(8, scale.width // 4))
        if min(height, width) < 8:  # a second layer would not fit
            counts = counts[1:]
        return _answering(Body(scale.width, pooling="max"), FiltersConfig(**shape, filters=counts), head)
    assert recipe.body is not None
    flat, body = FlatConfig(**shape), recipe.body(size)  # whichever is wanted, the sizes are checked here
    if name == "mlp":
        return _answering(body, flat, head)
    tiling = (side for side in range(1, 17) if height % side == 0 and width % side == 0)
    patch = max((side for side in tiling if height * width >= _LEAST_PATCHES * side**2), default=1)
    if (count := height * width // patch**2) > _MOST_PATCHES:
        raise ConfigError(
            f"no square of at most 16 x 16 tiles {height} x {width} pixels into {_MOST_PATCHES:,} patches or fewer",
            fix="crop or pad the pictures, for example to multiples of 16",
        )
    # patches lie in a plane, so their place is learned, not a distance along the reading order
    body = body._replace(position="learned", max_length=count)
    return _answering(body, PatchesConfig(**shape, patch=patch), head)
