"""Parity with torch of norms, encoders, decoders and the whole Transformer."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from parity_common import (
    CAUSAL,
    RAGGED,
    RAGGED_SOURCE,
    ROWS,
    SOURCE,
    TIME,
    VECTORS,
    WIDTH,
    Twins,
    assert_parity,
    assert_same,
    attention_twins,
    beyond,
    copy_weights,
    either_precision,
    full_and_ragged,
    leaf,
    pairs,
    read_as_it_is,
    real,
)
from seqloom.config.mixers import AttentionConfig
from seqloom.config.stacks import (
    BlockConfig,
    ConditionedDecoderConfig,
    DecoderBlockConfig,
    EncoderConfig,
    FeedForwardConfig,
)
from seqloom.nn.stacks import Block, ConditionedDecoder, DecoderBlock, Encoder, FeedForward, build_norm
from seqloom.nn.types import Padded

HIDDEN = 20

either_arrangement = pytest.mark.parametrize("arrangement", ["post", "pre"])
either_activation = pytest.mark.parametrize("activation", ["relu", "gelu"])
# nn.TransformerEncoder says so whenever it is given a pre-norm layer
silent_about_nesting = pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")


@either_precision
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_a_norm_equals_torchs(norm: str, dtype: torch.dtype) -> None:
    torch.manual_seed(6)
    theirs = nn.LayerNorm(WIDTH, dtype=dtype) if norm == "layer" else nn.RMSNorm(WIDTH, eps=1e-6, dtype=dtype)
    ours = build_norm(norm, WIDTH).to(dtype)
    twins = pairs(theirs, ours)
    copy_weights(theirs, ours, twins)
    x = leaf(ROWS, TIME, WIDTH, dtype=dtype)
    assert_parity([ours(x)], [theirs(x)], [x], twins)


def feed_forward_twins(theirs: nn.Module, ours: FeedForward) -> list[Twins]:
    return [*pairs(theirs.linear1, ours.inward), *pairs(theirs.linear2, ours.outward)]


def encoder_layer_twins(theirs: nn.TransformerEncoderLayer, ours: Block) -> list[Twins]:
    return [
        *attention_twins(theirs.self_attn, ours.mixer.heads),
        *feed_forward_twins(theirs, ours.feed_forward),
        *pairs(theirs.norm1, ours.around.norm),
        *pairs(theirs.norm2, ours.around_feed_forward.norm),
    ]


def decoder_layer_twins(theirs: nn.TransformerDecoderLayer, ours: DecoderBlock) -> list[Twins]:
    return [
        *attention_twins(theirs.self_attn, ours.mixer.heads),
        *attention_twins(theirs.multihead_attn, ours.cross.heads),
        *feed_forward_twins(theirs, ours.feed_forward),
        *pairs(theirs.norm1, ours.around.norm),
        *pairs(theirs.norm2, ours.around_cross.norm),
        *pairs(theirs.norm3, ours.around_feed_forward.norm),
    ]


def stack_twins(theirs: Any, ours: Any, layer_twins: Callable[[Any, Any], list[Twins]]) -> list[Twins]:
    """The weights of two stacks: their layers and, where torch has one, the norm after them."""
    layers = zip(theirs.layers, ours.layers, strict=True)
    norms = [] if theirs.norm is None else pairs(theirs.norm, ours.exit)
    return [twin for pair in layers for twin in layer_twins(*pair)] + norms


def our_encoder(arrangement: str, activation: str, *, ends_in_norm: bool, dtype: torch.dtype) -> Encoder:
    block = BlockConfig(
        mixer=AttentionConfig(num_heads=2),
        arrangement=arrangement,
        feed_forward=FeedForwardConfig(hidden=HIDDEN, activation=activation),
    )
    norm = "layer" if ends_in_norm else None
    config = EncoderConfig(width=WIDTH, input=VECTORS, layers=(block,), repeat=2, final_norm=norm)
    return read_as_it_is(config.build().to(dtype))


def our_decoder(arrangement: str, activation: str, *, ends_in_norm: bool, dtype: torch.dtype) -> ConditionedDecoder:
    block = DecoderBlockConfig(
        mixer=AttentionConfig(num_heads=2),
        num_heads=2,
        arrangement=arrangement,
        feed_forward=FeedForwardConfig(hidden=HIDDEN, activation=activation),
    )
    norm = "layer" if ends_in_norm else None
    config = ConditionedDecoderConfig(width=WIDTH, input=VECTORS, layers=(block,), repeat=2, final_norm=norm)
    return read_as_it_is(config.build().to(dtype))


def torch_options(arrangement: str, activation: str, dtype: torch.dtype) -> dict[str, Any]:
    first = arrangement == "pre"
    return {"activation": activation, "norm_first": first, "dropout": 0.0, "batch_first": True, "dtype": dtype}


@silent_about_nesting
@either_precision
@full_and_ragged
@either_activation
@either_arrangement
def test_an_encoder_equals_torchs(
    arrangement: str, activation: str, lengths: Tensor | None, dtype: torch.dtype
) -> None:
    torch.manual_seed(7)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, HIDDEN, **torch_options(arrangement, activation, dtype))
    ends_in_norm = arrangement == "pre"
    norm = nn.LayerNorm(WIDTH, dtype=dtype) if ends_in_norm else None
    theirs = nn.TransformerEncoder(layer, 2, norm=norm)
    ours = our_encoder(arrangement, activation, ends_in_norm=ends_in_norm, dtype=dtype)
    twins = stack_twins(theirs, ours, encoder_layer_twins)
    copy_weights(theirs, ours, twins)
    x = leaf(ROWS, TIME, WIDTH, dtype=dtype)
    padding = None if lengths is None else beyond(lengths, TIME)
    expected = real(theirs(x, src_key_padding_mask=padding), lengths)
    assert_parity([ours(Padded.of(x, lengths)).values], [expected], [x], twins)


@silent_about_nesting
@either_precision
@either_activation
@either_arrangement
def test_an_encoder_equals_torchs_fast_path_of_evaluation(
    arrangement: str, activation: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(8)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, HIDDEN, **torch_options(arrangement, activation, dtype))
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    ours = our_encoder(arrangement, activation, ends_in_norm=False, dtype=dtype)
    copy_weights(theirs, ours, stack_twins(theirs, ours, encoder_layer_twins))
    x = torch.randn(ROWS, TIME, WIDTH, dtype=dtype)
    with torch.no_grad():
        expected = theirs.eval()(x, src_key_padding_mask=beyond(RAGGED, TIME))
        assert_same(ours.eval()(Padded.of(x, RAGGED)).values, real(expected, RAGGED), "output")


@either_precision
@full_and_ragged
@either_activation
@either_arrangement
def test_a_decoder_with_a_memory_equals_torchs(
    arrangement: str, activation: str, lengths: Tensor | None, dtype: torch.dtype
) -> None:
    torch.manual_seed(9)
    layer = nn.TransformerDecoderLayer(WIDTH, 2, HIDDEN, **torch_options(arrangement, activation, dtype))
    ends_in_norm = arrangement == "pre"
    theirs = nn.TransformerDecoder(layer, 2, norm=nn.LayerNorm(WIDTH, dtype=dtype) if ends_in_norm else None)
    ours = our_decoder(arrangement, activation, ends_in_norm=ends_in_norm, dtype=dtype)
    twins = stack_twins(theirs, ours, decoder_layer_twins)
    copy_weights(theirs, ours, twins)
    x, memory = leaf(ROWS, TIME, WIDTH, dtype=dtype), leaf(ROWS, SOURCE, WIDTH, dtype=dtype)
    source = None if lengths is None else RAGGED_SOURCE
    padding = None if source is None else beyond(source, SOURCE)
    expected = real(theirs(x, memory, tgt_mask=CAUSAL, memory_key_padding_mask=padding), lengths)
    assert_parity([ours(Padded.of(x, lengths), Padded.of(memory, source)).values], [expected], [x, memory], twins)


@silent_about_nesting
@either_precision
@full_and_ragged
@either_activation
@either_arrangement
def test_an_encoder_and_decoder_equal_torchs_transformer(
    arrangement: str, activation: str, lengths: Tensor | None, dtype: torch.dtype
) -> None:
    torch.manual_seed(10)
    theirs = nn.Transformer(WIDTH, 2, 2, 2, HIDDEN, **torch_options(arrangement, activation, dtype))
    encoder = our_encoder(arrangement, activation, ends_in_norm=True, dtype=dtype)
    decoder = our_decoder(arrangement, activation, ends_in_norm=True, dtype=dtype)
    twins = [
        *stack_twins(theirs.encoder, encoder, encoder_layer_twins),
        *stack_twins(theirs.decoder, decoder, decoder_layer_twins),
    ]
    copy_weights(theirs, nn.ModuleList([encoder, decoder]), twins)
    source, target = leaf(ROWS, SOURCE, WIDTH, dtype=dtype), leaf(ROWS, TIME, WIDTH, dtype=dtype)
    source_lengths = None if lengths is None else RAGGED_SOURCE
    y = decoder(Padded.of(target, lengths), encoder(Padded.of(source, source_lengths)))
    padding = None if source_lengths is None else beyond(source_lengths, SOURCE)
    expected = theirs(
        source,
        target,
        tgt_mask=CAUSAL,
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
        tgt_key_padding_mask=None if lengths is None else beyond(lengths, TIME),
    )
    assert_parity([y.values], [real(expected, lengths)], [source, target], twins)
