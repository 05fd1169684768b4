"""Recipes: the purpose of each family, its sizes, and the kinds of model that it can make.

The table of families comes first, then a function for each kind of model: a `Body` between an input and a head.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import msgspec

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
    CharEncoderName,
    CharTfidfConfig,
    FiltersConfig,
    FlatConfig,
    NgramsConfig,
    PatchesConfig,
    SequenceInput,
    SpelledConfig,
    TfidfConfig,
    TokensConfig,
)
from seqloom.config.mixers import (
    AnyMixer,
    AttentionConfig,
    BidirectionalConfig,
    ConvolutionConfig,
    EdgesConfig,
    GruConfig,
    LinearAttentionConfig,
    LstmConfig,
    OneWay,
    Pattern,
    PoolConfig,
    Position,
    RnnConfig,
    Score,
    SparseConfig,
    WindowConfig,
    require_divisible,
)
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
    BlockConfig,
    ConditionedDecoderConfig,
    DecoderBlockConfig,
    DecoderConfig,
    EncoderConfig,
    FeedForwardConfig,
    Norm,
    SeededConfig,
)
from seqloom.errors import ConfigError, did_you_mean

Size = Literal["nano", "tiny", "small", "base", "big"]
SIZES: tuple[Size, ...] = get_args(Size)


class SizeNumbers(NamedTuple):
    """The dimensions of a size."""

    width: int
    layers: int
    heads: int
    hidden: int


Dimension = Literal["width", "layers", "heads"]


class Dimensions(NamedTuple):
    """A size of which some numbers are changed; None: that of the size."""

    size: Size = "small"
    width: int | None = None
    layers: int | None = None
    heads: int | None = None

    @classmethod
    def of(cls, size: "AnySize") -> "Dimensions":
        """The size with its changes; a name has none."""
        return size if isinstance(size, Dimensions) else cls(size)

    def changed(self) -> dict[Dimension, int]:
        """The changed numbers by their names."""
        numbers: dict[Dimension, int | None] = {"width": self.width, "layers": self.layers, "heads": self.heads}
        return {name: number for name, number in numbers.items() if number is not None}

    def __str__(self) -> str:
        """The size and its changes as text.

        >>> print(Dimensions("small", width=300, layers=1), Dimensions("base"), sep="; ")
        small with width 300 and layers 1; base
        """
        changes = " and ".join(f"{name} {number}" for name, number in self.changed().items())
        return f"{self.size} with {changes}" if changes else self.size


AnySize = Size | Dimensions
SizeTable = dict[Size, SizeNumbers]


def numbers_of(table: SizeTable, size: AnySize) -> SizeNumbers:
    """The numbers of a size with its changes; the feed-forward layer keeps its ratio to the width.

    >>> numbers_of(ATTENTION, Dimensions("small", width=256, heads=8))
    SizeNumbers(width=256, layers=3, heads=8, hidden=1024)
    """
    wanted = Dimensions.of(size)
    usual = table[wanted.size]
    changed = usual._replace(**wanted.changed())
    return changed._replace(hidden=usual.hidden * changed.width // usual.width)


# base and big follow Vaswani et al. 2017, recurrent sizes Zaremba et al. 2014, and 3 x 100 filters Kim 2014. nano is
# for tests and for looking at every number; tiny trains about four times as fast as small.
ATTENTION: SizeTable = {
    "nano": SizeNumbers(12, 2, 2, 24),
    "tiny": SizeNumbers(96, 2, 4, 384),
    "small": SizeNumbers(192, 3, 4, 768),
    "base": SizeNumbers(512, 6, 8, 2048),
    "big": SizeNumbers(1024, 6, 16, 4096),
}
RECURRENT: SizeTable = {
    "nano": SizeNumbers(12, 2, 1, 0),
    "tiny": SizeNumbers(100, 1, 1, 0),
    "small": SizeNumbers(200, 2, 1, 0),
    "base": SizeNumbers(650, 2, 1, 0),
    "big": SizeNumbers(1500, 2, 1, 0),
}
FILTERS: SizeTable = {
    "nano": SizeNumbers(12, 1, 1, 0),
    "tiny": SizeNumbers(96, 1, 1, 0),
    "small": SizeNumbers(300, 1, 1, 0),
    "base": SizeNumbers(600, 2, 1, 0),
    "big": SizeNumbers(1200, 2, 1, 0),
}


# The body of a model of each family, by size: its layers without input and head.


class Body(NamedTuple):
    """The middle of a model, without its input and its head."""

    width: int
    layers: tuple[BlockConfig, ...] = ()
    repeat: int = 1
    position: Position = "none"
    final_norm: Norm | None = None
    max_length: int | None = None  # None: the default of the configuration
    dropout: float = 0.1
    pooling: Pooling = "mean"
    hidden: tuple[int, ...] = ()


def bag(size: AnySize) -> Body:
    """A mean of word vectors."""
    # A causal running mean is a bag language model; with pooling, the mixer is not needed
    scale = numbers_of(FILTERS, size)
    return Body(scale.width, (BlockConfig(mixer=PoolConfig()),))


def mlp(size: AnySize) -> Body:
    """Hidden layers on the pooled vector."""
    scale = numbers_of(FILTERS, size)
    return Body(scale.width, hidden=(scale.width,) * scale.layers, dropout=0.2)


def cnn(size: AnySize) -> Body:
    """Filters over three, four and five neighbors (Kim 2014)."""
    scale = numbers_of(FILTERS, size)
    block = BlockConfig(mixer=ConvolutionConfig(kernel_sizes=(3, 4, 5)), dropout=0.3)
    return Body(scale.width, (block,), scale.layers, pooling="max", dropout=0.2)


def recurrent(mixer: OneWay) -> Callable[[AnySize], Body]:
    """Return a body function for stacked layers of one recurrent cell."""

    def body(size: AnySize) -> Body:
        scale = numbers_of(RECURRENT, size)
        return Body(scale.width, (BlockConfig(mixer=mixer, dropout=0.3),), scale.layers, pooling="last", dropout=0.2)

    return body


def bilstm(size: AnySize) -> Body:
    """LSTMs from both ends."""
    scale = numbers_of(RECURRENT, size)
    return Body(
        scale.width, (BlockConfig(mixer=BidirectionalConfig(), dropout=0.3),), scale.layers, pooling="max", dropout=0.2
    )


def self_attention(size: AnySize) -> Body:
    """Deck A's minimal block: attention with positions, then a feed-forward layer; no residual, no norm."""
    scale = numbers_of(ATTENTION, size)
    block = BlockConfig(mixer=AttentionConfig(num_heads=1), feed_forward=FeedForwardConfig(hidden=scale.hidden))
    return Body(scale.width, (block,), position="sinusoidal")


def _attention_stack(mixer: Callable[[int], OneWay], size: AnySize, position: Position) -> Body:
    scale = numbers_of(ATTENTION, size)
    require_divisible(scale.width, scale.heads, position, setting="heads")
    block = BlockConfig(
        mixer=mixer(scale.heads),
        arrangement="pre",
        feed_forward=FeedForwardConfig(hidden=scale.hidden, activation="gelu"),
        dropout=0.1,
    )
    return Body(scale.width, (block,), scale.layers, position, final_norm="layer")


def patterned(pattern: Pattern, position: Position) -> Callable[[AnySize], Body]:
    """Return a body function for attention that sees a part of the sequence."""

    def mixer(heads: int) -> OneWay:
        return AttentionConfig(num_heads=heads, pattern=pattern)

    return lambda size: _attention_stack(mixer, size, position)


def linear_attention(size: AnySize) -> Body:
    """Attention that can be computed as a recurrence."""
    return _attention_stack(lambda heads: LinearAttentionConfig(num_heads=heads), size, "sinusoidal")


def transformer(size: AnySize) -> Body:
    """Pre-norm with rotary positions."""
    return _attention_stack(lambda heads: AttentionConfig(num_heads=heads), size, "rotary")


def gpt(size: AnySize) -> Body:
    """Pre-norm with learned positions."""
    return _attention_stack(lambda heads: AttentionConfig(num_heads=heads), size, "learned")


def encoder(size: AnySize) -> Body:
    """Post-norm with learned positions, as in Devlin et al. 2019."""
    body = gpt(size)
    return body._replace(
        layers=tuple(msgspec.structs.replace(layer, arrangement="post") for layer in body.layers),
        final_norm=None,
        pooling="first",
    )


ModelKind = Literal[
    "classifier",
    "tagger",
    "language-model",
    "translator",
    "picture-classifier",
    "masked-model",
    "embedder",
    "graph-classifier",
    "graph-tagger",
]


_WIDTH: tuple[Dimension, ...] = ("width",)
_STACK: tuple[Dimension, ...] = ("width", "layers")
_ATTENTION: tuple[Dimension, ...] = ("width", "layers", "heads")
CHAR_ENCODERS: tuple[CharEncoderName, ...] = ("cnn", "lstm")


class LrFactors(NamedTuple):
    """The default learning rate of a recipe relative to that of its size, by what it predicts; see docs/train.md."""

    sequence: float = 1.0  # one answer for the sequence
    steps: float = 1.0  # one for each step
    tokens: float = 1.0  # the next token
    characters: float = 1.0  # the next character
    wide: bool = True  # whether `sequence`, `tokens` and `characters` also apply to models wider than `small`
    highest: float = 0.01  # the limit of `tokens`
    highest_characters: float = 0.01  # the limit of `characters`
    highest_sequence: float = math.inf  # the limit of `sequence`; a size with a higher rate keeps it
    full_batch: int = 0  # in tokens: with smaller batches, the rate for `tokens` falls with their square root


_GATED_LR = LrFactors(2.0, 6.0, 6.0, 6.0)
_LSTM_LR = LrFactors(2.0, 6.0, 18.0, 18.0, highest=0.018, highest_characters=0.018)
_UNGATED_LR = LrFactors(tokens=3.0, characters=3.0, wide=False, full_batch=4_096)
_CHARACTERS_LR = _UNGATED_LR._replace(characters=9.0, highest_characters=0.018)  # benchmarks/defaults
_TRANSFORMER_LR = _UNGATED_LR._replace(sequence=2.0, highest_sequence=0.002)  # benchmarks/defaults


class Recipe(NamedTuple):
    """A family: its purpose, and the kinds of model it makes."""

    name: str
    purpose: str
    kinds: tuple[ModelKind, ...]
    body: Callable[[AnySize], Body] | None = None  # None: handled by name in the function of each kind of model
    sizes: SizeTable = ATTENTION
    dimensions: tuple[Dimension, ...] = _ATTENTION  # the numbers of a size that it has
    char_encoders: tuple[CharEncoderName, ...] = CHAR_ENCODERS  # that it can have
    lr: LrFactors = LrFactors()
    counts_tokens: bool = False  # it is linear in their counts: newton solves it, and the case of words is dropped
    tags_by_crf: bool = False  # the default head of its taggers is a crf where the tags of words mark spans
    dropout_by_text: bool = False  # its translators have more dropout if there is little text


_TEXT: tuple[ModelKind, ...] = ("classifier", "tagger", "language-model", "embedder")
_ALL: tuple[ModelKind, ...] = (*_TEXT, "translator")
_MASKED: tuple[ModelKind, ...] = ("masked-model",)  # bodies that see both sides
_GRAPH: tuple[ModelKind, ...] = ("graph-classifier", "graph-tagger")  # bodies that can do without an order

_SEQ2SEQ = (
    ("seq2seq", "recurrent encoder and decoder without attention, connected by one vector"),
    ("seq2seq-dot", "recurrent encoder and decoder with attention to the source, dot score"),
    ("seq2seq-scaled_dot", "as seq2seq-dot, with the scaled dot score"),
    ("seq2seq-additive", "as seq2seq-dot, with the additive score"),
    ("seq2seq-bilinear", "as seq2seq-dot, with the bilinear score"),
)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "linear",
            "linear or logistic regression on TF-IDF of words and word pairs: the baseline",
            ("classifier",),
            dimensions=(),
            char_encoders=("ngrams",),
            lr=LrFactors(10.0, 10.0, 10.0, 10.0),
            counts_tokens=True,
        ),
        Recipe(
            "bag",
            "mean of word vectors: fast, ignores word order",
            ("classifier", "language-model", "embedder", "graph-classifier"),
            bag,
            FILTERS,
            _WIDTH,
            lr=LrFactors(3.0, 3.0, 3.0, 3.0),
        ),
        Recipe(
            "mlp",
            "hidden layers over pooled vectors or pixels",
            ("classifier", "picture-classifier", "embedder", "graph-classifier"),
            mlp,
            FILTERS,
            _STACK,
        ),
        Recipe(
            "cnn",
            "convolution filters: find short patterns at any position",
            _TEXT + _MASKED,
            cnn,
            FILTERS,
            _STACK,
            lr=_CHARACTERS_LR,
        ),
        Recipe(
            "rnn",
            "Elman network: the simplest recurrent network, short memory",
            _TEXT,
            recurrent(RnnConfig()),
            RECURRENT,
            _STACK,
            lr=_CHARACTERS_LR,
        ),
        Recipe(
            "gru",
            "gated recurrent network with fewer parameters than an LSTM",
            _TEXT,
            recurrent(GruConfig()),
            RECURRENT,
            _STACK,
            lr=_GATED_LR,
        ),
        Recipe(
            "lstm",
            "gated recurrent network: good for small data and streams",
            _TEXT,
            recurrent(LstmConfig()),
            RECURRENT,
            _STACK,
            lr=_LSTM_LR,
        ),
        Recipe(
            "bilstm",
            "LSTM in both directions: good for tagging and small data",
            ("classifier", "tagger", "masked-model", "embedder"),
            bilstm,
            RECURRENT,
            _STACK,
            lr=_GATED_LR,
            tags_by_crf=True,  # `transformer` is worse with it (benchmarks/quality)
        ),
        Recipe(
            "self-attention",
            "one minimal attention block, for teaching",
            _TEXT + _MASKED + _GRAPH,
            self_attention,
            dimensions=_WIDTH,
        ),
        Recipe(
            "transformer",
            "Transformer: usually the best model if there is much data",
            _ALL + _MASKED + _GRAPH,
            transformer,
            lr=_TRANSFORMER_LR,
            dropout_by_text=True,
        ),
        Recipe("gpt", "Transformer decoder with learned positions", ("language-model",), gpt, lr=_UNGATED_LR),
        Recipe(
            "encoder",
            "Transformer encoder with learned positions, post-norm",
            ("classifier", "tagger", "masked-model", "embedder"),
            encoder,
        ),
        Recipe(
            "window",
            "attention to nearby positions only: for long texts",
            _ALL + _MASKED,
            patterned(WindowConfig(), "rotary"),
            lr=_UNGATED_LR,
        ),
        Recipe(
            "sparse",
            "attention to a block and to every n-th position: for long texts",
            _TEXT + _MASKED,
            patterned(SparseConfig(), "rotary"),
            lr=_UNGATED_LR,
        ),
        Recipe(
            "linear-attention",
            "linear attention, computed as a recurrence: for long streams",
            _ALL + _MASKED,
            linear_attention,
            lr=_UNGATED_LR,
        ),
        *(Recipe(name, purpose, ("translator",), None, RECURRENT, _STACK, lr=_GATED_LR) for name, purpose in _SEQ2SEQ),
        Recipe("conv2d", "2-D convolution over pictures", ("picture-classifier",), None, FILTERS, _WIDTH),
        Recipe("graph-attention", "attention along the edges of a graph", _GRAPH, patterned(EdgesConfig(), "none")),
        Recipe("patch-transformer", "Transformer over patches of a picture", ("picture-classifier",), transformer),
    )
}

NO_RECIPE = Recipe("", "a model of the user's own", (), dimensions=())


def recipe_called(name: object) -> Recipe:
    """Return the recipe of this name; `NO_RECIPE` for anything else, such as a model.

    >>> recipe_called("linear").counts_tokens, recipe_called(None).counts_tokens
    (True, False)
    """
    return RECIPES.get(name, NO_RECIPE) if isinstance(name, str) else NO_RECIPE


def names(kind: ModelKind, first: str | None = None) -> list[str]:
    """Return the names of recipes for a kind of model, with `first` at the front if given."""
    if kind not in get_args(ModelKind):
        raise ConfigError(f"there is no kind of model '{kind}'", fix=did_you_mean(kind, get_args(ModelKind)))
    found = [name for name, recipe in RECIPES.items() if kind in recipe.kinds]
    return sorted(found, key=lambda name: name != first)


def body_of(name: str, kind: ModelKind, size: AnySize) -> Body:
    """Return the body of a recipe; raise ConfigError if the recipe does not make this kind of model."""
    recipe = recipe_of(name, kind, size)
    assert recipe.body is not None, f"{name} is made by the kind's own function"
    return recipe.body(size)


def recipe_of(name: str, kind: ModelKind, size: AnySize) -> Recipe:
    """Return the recipe of a name; raise ConfigError if it does not exist for this kind of model and size."""
    if name not in RECIPES:
        raise ConfigError(f"there is no recipe '{name}'", fix=did_you_mean(str(name), RECIPES))
    if kind not in RECIPES[name].kinds:
        made = ", ".join(RECIPES[name].kinds)
        raise ConfigError(f"'{name}' cannot make a {kind}, only: {made}", fix=f"choose from {', '.join(names(kind))}")
    wanted = Dimensions.of(size)
    if wanted.size not in SIZES:
        raise ConfigError(f"there is no size '{wanted.size}'", fix=did_you_mean(wanted.size, SIZES))
    recipe = RECIPES[name]
    for dimension in wanted.changed():
        if dimension not in recipe.dimensions:
            known = " and ".join(recipe.dimensions)
            fix = f"leave {dimension} out; '{name}' has {known}" if known else f"leave {dimension} out"
            raise ConfigError(f"'{name}' has no {dimension}", fix=fix)
    return recipe


# Parts that several kinds of model share.


def around(body: Body, inputs: AnyInput) -> dict[str, Any]:
    """Return the settings that encoders and decoders share."""
    return {
        "width": body.width,
        "position": body.position,
        "input_scale": _input_scale(body, inputs),
        "final_norm": body.final_norm,
        "dropout": body.dropout,
    } | ({} if body.max_length is None else {"max_length": body.max_length})


def _input_scale(body: Body, inputs: AnyInput) -> float:
    """Return the factor that scales inputs to the size of the sinusoids added to them, at the start of training.

    Token vectors start at width^-1/2, and sinusoids have a root mean square of 2^-1/2. Scaling the sinusoids down
    instead was measured too: attention scores then start near zero, and order is learned late (docs/recipes.md).
    Numbers and pixels are mapped to about the size of sinusoids.
    """
    looked_up = isinstance(inputs, TokensConfig | NgramsConfig | SpelledConfig)
    return round((body.width / 2) ** 0.5, 4) if body.position == "sinusoidal" and looked_up else 1.0


def encode(body: Body, inputs: AnyInput) -> EncoderConfig:
    """Return the encoder with this body."""
    return EncoderConfig(input=inputs, layers=body.layers, repeat=body.repeat, **around(body, inputs))


def answering(body: Body, inputs: AnyInput, head: MappedHead) -> SequenceModelConfig:
    """Return the model with this body and one output per sequence."""
    return SequenceModelConfig(
        encoder=encode(body, inputs),
        pooling=body.pooling,
        hidden=body.hidden,
        dropout=body.dropout,
        head=head,
    )


# Models that read one sequence and predict one output, one per element, the next token, or a vector.


def classifier(name: str, *, inputs: SequenceInput, num_classes: int, size: AnySize = "small") -> SequenceModelConfig:
    """Return a model that predicts one class for each sequence of tokens or vectors."""
    return sequence_model(name, inputs=inputs, head=ClassHeadConfig(num_classes=num_classes), size=size)


def sequence_model(
    name: str, *, inputs: SequenceInput, head: MappedHead, size: AnySize = "small"
) -> SequenceModelConfig:
    """Return a model with one output for each sequence: a class, labels or numbers, by its head."""
    if recipe_of(name, "classifier", size).counts_tokens:
        return _linear(inputs, head.unmapped())
    return answering(body_of(name, "classifier", size), inputs, head)


def _linear(inputs: SequenceInput, head: UnmappedHead) -> SequenceModelConfig:
    """scores = W phi(x) + b, with phi the TF-IDF of tokens and of pairs of tokens; of words, also of characters."""
    counted: TfidfConfig | NgramsConfig
    if isinstance(inputs, SpelledConfig):
        counted = CharTfidfConfig(vocab_size=inputs.vocab_size)
    elif isinstance(inputs, TokensConfig):
        counted = TfidfConfig(vocab_size=inputs.vocab_size)
    elif isinstance(inputs, NgramsConfig | TfidfConfig):
        counted = inputs
    else:
        raise ConfigError("'linear' counts tokens, but the input has vectors", fix="use 'mlp' for vectors")
    # Squared errors of long sums of counts are unstable; TF-IDF vectors have length one
    mean = isinstance(head, NumberScoresHeadConfig) and isinstance(counted, NgramsConfig)
    return SequenceModelConfig(
        encoder=EncoderConfig(input=counted, width=head.answers), pooling="mean" if mean else "sum", head=head
    )


def tagger(name: str, *, inputs: SequenceInput, num_tags: int, size: AnySize = "small") -> ElementModelConfig:
    """Return a model that predicts one class for each element of a sequence."""
    return ElementModelConfig(
        encoder=encode(body_of(name, "tagger", size), inputs), head=ClassHeadConfig(num_classes=num_tags)
    )


def embedder(
    name: str, *, inputs: SequenceInput, objective: AnyObjective | None = None, size: AnySize = "small"
) -> EmbedderConfig:
    """Return a model that computes one vector for each text: the encoder of a classifier, with the same pooling.

    A bag uses maximum pooling (Shen et al. 2018): in a mean, frequent words dominate. Hidden layers become one linear
    map.
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


def masked_model(name: str, *, inputs: TokensConfig, size: AnySize = "small") -> ElementModelConfig:
    """Return a model that predicts masked tokens; its input and output embeddings are tied."""
    return ElementModelConfig(
        encoder=encode(body_of(name, "masked-model", size), inputs),
        head=NextTokenHeadConfig(vocab_size=inputs.vocab_size),
    )


def language_model(name: str, *, vocab_size: int, size: AnySize = "small") -> LanguageModelConfig:
    """Return a model that predicts the next token; its input and output embeddings are tied."""
    body, inputs = body_of(name, "language-model", size), TokensConfig(vocab_size=vocab_size)
    return LanguageModelConfig(
        decoder=DecoderConfig(input=inputs, layers=body.layers, repeat=body.repeat, **around(body, inputs)),
        head=NextTokenHeadConfig(vocab_size=vocab_size),
    )


# Models that read graphs: nodes have no order, so there are no positions. All but `graph-attention` ignore the edges.


def graph_model(name: str, *, inputs: SequenceInput, head: MappedHead, size: AnySize = "small") -> SequenceModelConfig:
    """A model with one answer for each graph: a class, labels or numbers, as its head has."""
    body = body_of(name, "graph-classifier", size)._replace(position="none")
    return answering(body, inputs, head)


def graph_tagger(name: str, *, inputs: SequenceInput, num_tags: int, size: AnySize = "small") -> ElementModelConfig:
    """A model that names one class for each node of a graph."""
    body = body_of(name, "graph-tagger", size)._replace(position="none")
    return ElementModelConfig(encoder=encode(body, inputs), head=ClassHeadConfig(num_classes=num_tags))


# Models that read pictures: pixels, 2-D filters or patches.

_LEAST_PATCHES, _MOST_PATCHES = 16, 4096  # number of patches for which attention is worthwhile


def picture_classifier(
    name: str, *, height: int, width: int, channels: int = 1, num_classes: int, size: AnySize = "small"
) -> SequenceModelConfig:
    """Return a model that predicts one class for each picture."""
    recipe = recipe_of(name, "picture-classifier", size)
    size_of, head = {"height": height, "width": width, "channels": channels}, ClassHeadConfig(num_classes=num_classes)
    if name == "conv2d":
        scale = numbers_of(FILTERS, size)
        counts: tuple[int, ...] = (max(4, scale.width // 8), max(8, scale.width // 4))
        if min(height, width) < 8:  # a second layer would not fit
            counts = counts[1:]
        return answering(Body(scale.width, pooling="max"), FiltersConfig(**size_of, filters=counts), head)
    assert recipe.body is not None
    flat, body = FlatConfig(**size_of), recipe.body(size)  # checks the sizes in any case
    if name == "mlp":
        return answering(body, flat, head)
    tiling = (side for side in range(1, 17) if height % side == 0 and width % side == 0)
    patch = max((side for side in tiling if height * width >= _LEAST_PATCHES * side**2), default=1)
    if (count := height * width // patch**2) > _MOST_PATCHES:
        raise ConfigError(
            f"pictures of {height} x {width} pixels cannot be divided into at most {_MOST_PATCHES:,} square patches "
            "of up to 16 x 16 pixels",
            fix="crop or pad the pictures, for example to multiples of 16",
        )
    # Patches are in a plane, so positions are learned instead of a distance in reading order
    body = body._replace(position="learned", max_length=count)
    return answering(body, PatchesConfig(**size_of, patch=patch), head)


# Models that generate a sequence from another one.


def translator(name: str, *, source: AnyInput, target_vocab_size: int, size: AnySize = "small") -> EncoderDecoderConfig:
    """Return a model that generates a sequence of tokens from a source: text, vectors or a picture."""
    recipe = recipe_of(name, "translator", size)
    body = bilstm(size) if recipe.body is None else recipe.body(size)
    layers, repeat = (_seq2seq(name, size), 1) if recipe.body is None else (_decoder_layers(body, size), body.repeat)
    target = TokensConfig(vocab_size=target_vocab_size)
    return EncoderDecoderConfig(
        encoder=encode(body, source),
        decoder=ConditionedDecoderConfig(input=target, layers=layers, repeat=repeat, **around(body, target)),
        head=NextTokenHeadConfig(vocab_size=target_vocab_size),
    )


def _seq2seq(name: str, size: AnySize) -> tuple[AnyConditioned, ...]:
    """Return LSTM layers that start from the source's last vector, and the attention that the name implies."""
    depth = Dimensions.of(size).layers or 2
    layers: tuple[AnyConditioned, ...] = (SeededConfig(mixer=LstmConfig(), dropout=0.3),) * depth
    scores: dict[str, Score] = {f"seq2seq-{score}": score for score in ("dot", "scaled_dot", "additive", "bilinear")}
    return (*layers, AlignmentConfig(score=scores[name], dropout=0.3)) if name in scores else layers


def _decoder_layers(body: Body, size: AnySize) -> tuple[AnyConditioned, ...]:
    """Return the blocks of an encoder, each with attention to the source in its middle."""
    scale = numbers_of(ATTENTION, size)
    return tuple(
        DecoderBlockConfig(
            mixer=_one_way(layer.mixer),
            num_heads=scale.heads,
            feed_forward=layer.feed_forward or FeedForwardConfig(hidden=scale.hidden),
            dropout=layer.dropout,
        )
        for layer in body.layers
    )


def _one_way(mixer: AnyMixer) -> OneWay:
    assert not isinstance(mixer, BidirectionalConfig), "no recipe with a decoder reads from both ends"
    return mixer
