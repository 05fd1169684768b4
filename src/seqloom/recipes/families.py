"""The table of recipes: what each family is for, its sizes, and the shapes of model that it makes."""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import msgspec

from seqloom.config.heads import Pooling
from seqloom.config.mixers import (
    AttentionConfig,
    BidirectionalConfig,
    ConvolutionConfig,
    GruConfig,
    LinearAttentionConfig,
    LstmConfig,
    OneWay,
    Pattern,
    PoolConfig,
    Position,
    RnnConfig,
    SparseConfig,
    WindowConfig,
)
from seqloom.config.stacks import BlockConfig, FeedForwardConfig, Norm
from seqloom.errors import ConfigError, did_you_mean

Size = Literal["tiny", "small", "base", "big"]
SIZES: tuple[Size, ...] = get_args(Size)


class SizeNumbers(NamedTuple):
    """The numbers behind a size."""

    width: int
    layers: int
    heads: int
    hidden: int


# base and big are those of Vaswani et al. 2017, recurrent ones of Zaremba et al. 2014, 3 x 100 filters of Kim 2014
ATTENTION = {
    "tiny": SizeNumbers(12, 2, 2, 24),
    "small": SizeNumbers(192, 3, 4, 768),
    "base": SizeNumbers(512, 6, 8, 2048),
    "big": SizeNumbers(1024, 6, 16, 4096),
}
RECURRENT = {
    "tiny": SizeNumbers(12, 2, 1, 0),
    "small": SizeNumbers(200, 2, 1, 0),
    "base": SizeNumbers(650, 2, 1, 0),
    "big": SizeNumbers(1500, 2, 1, 0),
}
FILTERS = {
    "tiny": SizeNumbers(12, 1, 1, 0),
    "small": SizeNumbers(300, 1, 1, 0),
    "base": SizeNumbers(600, 2, 1, 0),
    "big": SizeNumbers(1200, 2, 1, 0),
}


# The middle of a model of each family, by size: its layers, without an input and a head.


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


def bag(size: Size) -> Body:
    """A mean of word vectors."""
    # causal, the running mean makes a bag language model; pooled, the mixer is not needed
    scale = FILTERS[size]
    return Body(scale.width, (BlockConfig(mixer=PoolConfig()),))


def mlp(size: Size) -> Body:
    """Hidden layers over what is pooled."""
    scale = FILTERS[size]
    return Body(scale.width, hidden=(scale.width,) * (2 if size in ("base", "big") else 1), dropout=0.2)


def cnn(size: Size) -> Body:
    """Filters over three, four and five neighbours (Kim 2014)."""
    scale = FILTERS[size]
    block = BlockConfig(mixer=ConvolutionConfig(kernel_sizes=(3, 4, 5)), dropout=0.3)
    return Body(scale.width, (block,), scale.layers, pooling="max", dropout=0.2)


def recurrent(mixer: OneWay) -> Callable[[Size], Body]:
    """What stacks layers of one recurrent cell."""

    def body(size: Size) -> Body:
        scale = RECURRENT[size]
        return Body(scale.width, (BlockConfig(mixer=mixer, dropout=0.3),), scale.layers, pooling="last", dropout=0.2)

    return body


def bilstm(size: Size) -> Body:
    """LSTMs from both ends."""
    scale = RECURRENT[size]
    return Body(
        scale.width, (BlockConfig(mixer=BidirectionalConfig(), dropout=0.3),), scale.layers, pooling="max", dropout=0.2
    )


def self_attention(size: Size) -> Body:
    """Deck A's minimal block: attention with positions, then a feed-forward; no residual, no norm."""
    scale = ATTENTION[size]
    block = BlockConfig(mixer=AttentionConfig(num_heads=1), feed_forward=FeedForwardConfig(hidden=scale.hidden))
    return Body(scale.width, (block,), position="sinusoidal")


def _attention_stack(mixer: Callable[[int], OneWay], size: Size, position: Position) -> Body:
    scale = ATTENTION[size]
    block = BlockConfig(
        mixer=mixer(scale.heads),
        arrangement="pre",
        feed_forward=FeedForwardConfig(hidden=scale.hidden, activation="gelu"),
        dropout=0.1,
    )
    return Body(scale.width, (block,), scale.layers, position, final_norm="layer")


def patterned(pattern: Pattern, position: Position) -> Callable[[Size], Body]:
    """What stacks attention that sees a part of the sequence."""

    def mixer(heads: int) -> OneWay:
        return AttentionConfig(num_heads=heads, pattern=pattern)

    return lambda size: _attention_stack(mixer, size, position)


def linear_attention(size: Size) -> Body:
    """Attention that can be computed as a recurrence."""
    return _attention_stack(lambda heads: LinearAttentionConfig(num_heads=heads), size, "sinusoidal")


def transformer(size: Size) -> Body:
    """Pre-norm with rotary positions."""
    return _attention_stack(lambda heads: AttentionConfig(num_heads=heads), size, "rotary")


def gpt(size: Size) -> Body:
    """Pre-norm with learned positions."""
    return _attention_stack(lambda heads: AttentionConfig(num_heads=heads), size, "learned")


def encoder(size: Size) -> Body:
    """Post-norm with learned positions, as in Devlin et al. 2019."""
    body = gpt(size)
    return body._replace(
        layers=tuple(msgspec.structs.replace(layer, arrangement="post") for layer in body.layers),
        final_norm=None,
        pooling="first",
    )


Shape = Literal[
    "classifier", "tagger", "language-model", "translator", "picture-classifier", "masked-model", "embedder"
]


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
            "bag", "a mean of word vectors: fast, blind to order", ("classifier", "language-model", "embedder"), bag
        ),
        Recipe(
            "mlp", "hidden layers over pooled vectors or pixels", ("classifier", "picture-classifier", "embedder"), mlp
        ),
        Recipe("cnn", "n-gram filters: short patterns wherever they stand", _TEXT + _MASKED, cnn),
        Recipe("rnn", "the Elman network: the simplest memory, and a short one", _TEXT, recurrent(RnnConfig())),
        Recipe("gru", "gated memory with fewer weights than an LSTM", _TEXT, recurrent(GruConfig())),
        Recipe("lstm", "gated memory: the workhorse for small data and streams", _TEXT, recurrent(LstmConfig())),
        Recipe(
            "bilstm",
            "an LSTM from each end: tags and small data",
            ("classifier", "tagger", "masked-model", "embedder"),
            bilstm,
        ),
        Recipe("self-attention", "the minimal attention block of the lectures", _TEXT + _MASKED, self_attention),
        Recipe("transformer", "attention in depth: the strongest when data is plenty", _ALL + _MASKED, transformer),
        Recipe("gpt", "the Transformer decoder with learned positions", ("language-model",), gpt),
        Recipe(
            "encoder",
            "the Transformer encoder with learned positions, post-norm",
            ("classifier", "tagger", "masked-model", "embedder"),
            encoder,
        ),
        Recipe(
            "window",
            "attention to near positions only: long texts",
            _ALL + _MASKED,
            patterned(WindowConfig(), "rotary"),
        ),
        Recipe(
            "sparse",
            "attention to a block and a stride: long texts",
            _TEXT + _MASKED,
            patterned(SparseConfig(), "rotary"),
        ),
        Recipe("linear-attention", "attention as a recurrence: long streams", _ALL + _MASKED, linear_attention),
        Recipe("seq2seq", "recurrent encoder and decoder, one vector between: the bottleneck", ("translator",)),
        Recipe("seq2seq-dot", "the same with attention to the source, dot score", ("translator",)),
        Recipe("seq2seq-scaled_dot", "the same with the scaled dot score", ("translator",)),
        Recipe("seq2seq-additive", "the same with the additive score", ("translator",)),
        Recipe("seq2seq-bilinear", "the same with the bilinear score", ("translator",)),
        Recipe("conv2d", "2-D filters over pictures", ("picture-classifier",)),
        Recipe("patch-transformer", "pictures as a sequence of patches", ("picture-classifier",), transformer),
    )
}


def names(shape: Shape, first: str | None = None) -> list[str]:
    """The recipes that make a shape of model, a usual one first where it is named."""
    if shape not in get_args(Shape):
        raise ConfigError(f"there is no shape '{shape}'", fix=did_you_mean(shape, get_args(Shape)))
    found = [name for name, recipe in RECIPES.items() if shape in recipe.shapes]
    return sorted(found, key=lambda name: name != first)


def body_of(name: str, shape: Shape, size: Size) -> Body:
    """The middle of the model that a recipe makes; ConfigError where it makes no such shape."""
    recipe = recipe_of(name, shape, size)
    assert recipe.body is not None, f"{name} is made by the shape's own function"
    return recipe.body(size)


def recipe_of(name: str, shape: Shape, size: Size) -> Recipe:
    """The recipe of a name; ConfigError where there is none, or none of this shape or size."""
    if name not in RECIPES:
        raise ConfigError(f"there is no recipe '{name}'", fix=did_you_mean(str(name), RECIPES))
    if shape not in RECIPES[name].shapes:
        made = ", ".join(RECIPES[name].shapes)
        raise ConfigError(f"'{name}' makes no {shape}, only: {made}", fix=f"choose from {', '.join(names(shape))}")
    if size not in SIZES:
        raise ConfigError(f"there is no size '{size}'", fix=did_you_mean(size, SIZES))
    return RECIPES[name]
