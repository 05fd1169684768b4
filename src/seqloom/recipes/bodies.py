"""The sizes that a recipe comes in, and the numbers behind them."""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import msgspec

from seqloom.config.blocks import BlockConfig, FeedForwardConfig, Norm
from seqloom.config.combinations import Position
from seqloom.config.heads import Pooling
from seqloom.config.mixers import (
    AttentionConfig,
    BidirectionalConfig,
    ConvolutionConfig,
    LinearAttentionConfig,
    OneWay,
    Pattern,
    PoolConfig,
)

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
