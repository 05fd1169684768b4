"""Stacks whose layers differ: attention that remembers other stretches than its neighbor's, and recurrences between."""

from seqloom.config.mixers import AttentionConfig, FullConfig, GruConfig, OneWay, Pattern, SparseConfig, WindowConfig
from seqloom.config.stacks import BlockConfig, DecoderBlockConfig, FeedForwardConfig


def attention(pattern: Pattern) -> AttentionConfig:
    return AttentionConfig(num_heads=2, pattern=pattern)


FULL, SPARSE = attention(FullConfig()), attention(SparseConfig(size=3))
NARROW, WIDE = attention(WindowConfig(size=3)), attention(WindowConfig(size=5))

STACKS: dict[str, tuple[OneWay, ...]] = {
    "window-full": (NARROW, FULL),
    "full-window": (FULL, NARROW),
    "window-wider": (NARROW, WIDE),
    "wider-window": (WIDE, NARROW),
    "window-sparse": (NARROW, SPARSE),
    "sparse-window": (SPARSE, NARROW),
    "window-gru-full": (NARROW, GruConfig(), FULL),
    "window-full-gru-window": (WIDE, FULL, GruConfig(), WIDE),
}


def blocks(mixers: tuple[OneWay, ...]) -> tuple[BlockConfig, ...]:
    """The layers of a language model with these mixers."""
    return tuple(BlockConfig(mixer=mixer, arrangement="pre") for mixer in mixers)


def decoder_blocks(mixers: tuple[OneWay, ...]) -> tuple[DecoderBlockConfig, ...]:
    """The layers of a translator's decoder with these mixers."""
    inner = FeedForwardConfig(hidden=12)
    return tuple(DecoderBlockConfig(mixer=mixer, num_heads=2, feed_forward=inner) for mixer in mixers)
