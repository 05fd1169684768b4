"""The table of recipes: what each family is for, and the shapes of model that it makes."""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

from seqloom.config.mixers import GruConfig, LstmConfig, RnnConfig, SparseConfig, WindowConfig
from seqloom.errors import ConfigError, did_you_mean
from seqloom.recipes.bodies import (
    SIZES,
    Body,
    Size,
    bag,
    bilstm,
    cnn,
    encoder,
    gpt,
    linear_attention,
    mlp,
    patterned,
    recurrent,
    self_attention,
    transformer,
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
