"""Rows 27 to 29 and 37 of the table of concepts: blocks, the Transformer, cheaper attention, graphs."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from concepts_common import ROUNDING, request, triple
from seqloom.config.heads import NextTokenHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.mixers import AttentionConfig, SparseConfig, WindowConfig
from seqloom.config.models import EncoderDecoderConfig
from seqloom.config.stacks import (
    BlockConfig,
    ConditionedDecoderConfig,
    DecoderBlockConfig,
    EncoderConfig,
    FeedForwardConfig,
)
from seqloom.nn.models import count_parameters
from seqloom.nn.ops.attention import Request
from seqloom.nn.ops.attention_edges import EDGES
from seqloom.nn.ops.attention_fast import KERNELS, attend, choose
from seqloom.nn.ops.kernels import using
from seqloom.nn.ops.masks import Causal, Edges, Everything, Mask, Padding, WindowMask
from seqloom.nn.stacks import build_norm
from seqloom.nn.taps import recording
from seqloom.nn.types import Padded

# --- 27: blocks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_row_27_a_pre_norm_block_whose_sub_layers_give_zero_is_the_identity(norm: Any) -> None:
    block = BlockConfig(
        mixer=AttentionConfig(num_heads=2), arrangement="pre", norm=norm, feed_forward=FeedForwardConfig(hidden=8)
    ).build(4)
    x = Padded.of(torch.randn(2, 5, 4), torch.tensor([5, 3]))
    assert not torch.allclose(block(x).values, x.values)
    for last in (block.mixer.heads.output, block.feed_forward.outward):
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    assert torch.equal(block(x).values, x.values)


def test_row_27_layer_norm_divides_by_the_root_of_the_variance() -> None:
    norm, x = build_norm("layer", 5), torch.randn(7, 5) * 3 + 1
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    mean = x.sum(dim=1, keepdim=True) / 5
    variance = ((x - mean) ** 2).sum(dim=1, keepdim=True) / 5
    expected = (x - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias
    assert_close(norm(x), expected, **ROUNDING)
    without_root = (x - mean) / (variance + norm.eps) * norm.weight + norm.bias  # as the deck prints it
    assert not torch.allclose(norm(x), without_root)


def test_row_27_rms_norm_divides_by_the_root_of_the_mean_square() -> None:
    norm, x = build_norm("rms", 5), torch.randn(7, 5) * 3 + 1
    nn.init.normal_(norm.weight)
    mean_square = (x**2).sum(dim=1, keepdim=True) / 5
    assert_close(norm(x), x / (mean_square + 1e-6).sqrt() * norm.weight, **ROUNDING)


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_row_27_a_post_norm_block_is_norm_of_sum_twice(activation: Any) -> None:
    block = BlockConfig(
        mixer=AttentionConfig(num_heads=2),
        arrangement="post",
        feed_forward=FeedForwardConfig(hidden=8, activation=activation),
    ).build(4)
    x = torch.randn(2, 5, 4)
    inner = block.around.norm(x + block.mixer(Padded.of(x)).values)
    feed = block.feed_forward
    opened = feed.inward(inner).relu() if activation == "relu" else F.silu(feed.inward(inner)) * feed.gate(inner)
    expected = block.around_feed_forward.norm(inner + feed.outward(opened))
    assert_close(block(Padded.of(x)).values, expected, **ROUNDING)


# --- 28: the Transformer ---------------------------------------------------------------------------------------------

SIZES = {"base": (512, 8, 2048), "big": (1024, 16, 4096)}  # Vaswani et al. 2017, table 3


def transformer(size: str, vocab_size: int = 37_000) -> EncoderDecoderConfig:
    width, num_heads, hidden = SIZES[size]
    mixer, feed_forward = AttentionConfig(num_heads=num_heads), FeedForwardConfig(hidden=hidden)
    block = BlockConfig(mixer=mixer, arrangement="post", feed_forward=feed_forward)
    conditioned = DecoderBlockConfig(mixer=mixer, num_heads=num_heads, arrangement="post", feed_forward=feed_forward)
    common: dict[str, Any] = {
        "width": width,
        "input": TokensConfig(vocab_size=vocab_size),
        "position": "sinusoidal",
        "repeat": 6,
        "final_norm": "layer",
    }
    config = EncoderDecoderConfig(
        encoder=EncoderConfig(layers=(block,), **common),
        decoder=ConditionedDecoderConfig(layers=(conditioned,), **common),
        head=NextTokenHeadConfig(vocab_size=vocab_size),
    )
    assert config.encoder.repeat == config.decoder.repeat == 6
    return config


@pytest.mark.parametrize("size", SIZES)
def test_row_28_the_transformer_has_the_parameters_that_its_configuration_counts(size: str) -> None:
    config = transformer(size)
    with torch.device("meta"):
        model = config.build()
        width, num_heads, hidden = SIZES[size]
        theirs = nn.Transformer(width, num_heads, 6, 6, hidden, batch_first=True)
    assert all(weight.is_meta for weight in model.parameters())
    assert count_parameters(model) == config.parameters()
    around = 2 * 37_000 * width + 37_000  # two tables of tokens, and the bias of the tied head
    assert count_parameters(model) - around == count_parameters(theirs)
    # The paper counts 65 and 213 million with one table for source, target and output.
    one_table = (count_parameters(model) - 37_000 * width) / 1e6
    assert one_table == pytest.approx({"base": 65, "big": 213}[size], rel=0.03)


# --- 29: cheaper attention -------------------------------------------------------------------------------------------


def full_under(asked: Request, allowed: Tensor) -> Tensor:
    """Attention by its formula, scores outside a dense mask [T,S] at minus infinity; zero where none is left."""
    scores = (asked.query @ asked.key.transpose(-1, -2) / math.sqrt(asked.query.shape[-1])).masked_fill(
        ~allowed, -math.inf
    )
    return scores.softmax(dim=-1).nan_to_num(0.0) @ asked.value


@pytest.mark.parametrize("kernel", [None, "plain", "sdpa", "blocked", "regions"])
@pytest.mark.parametrize("causal", [False, True], ids=["both-sides", "causal"])
def test_row_29_window_attention_is_full_attention_under_the_window_mask(causal: bool, kernel: str | None) -> None:
    time, size = 600, 7  # long enough for several blocks of queries
    query, key, value = triple(batch=1, time=time)
    mask = WindowMask(size - 1, 0 if causal else size - 1)
    asked = request(query, key, value, mask=mask)
    away = torch.arange(time)[:, None] - torch.arange(time)
    allowed = (away.abs() < size) & ((away >= 0) | torch.tensor(not causal))
    if kernel is None:
        assert choose(asked).name == "regions"
        output = attend(asked)
    else:
        with using(attention=kernel):
            output = attend(asked)
    expected = full_under(asked, allowed)
    assert_close(output, expected, **ROUNDING)
    upstream = torch.randn_like(expected)
    found = torch.autograd.grad(output, [query, key, value], upstream)
    assert_close(found, torch.autograd.grad(expected, [query, key, value], upstream), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("causal", [False, True], ids=["both-sides", "causal"])
@pytest.mark.parametrize("pattern", [WindowConfig(size=3), SparseConfig(size=3)], ids=lambda pattern: pattern.kind())
def test_row_29_a_mixer_with_a_pattern_attends_fully_under_its_mask(pattern: Any, causal: bool) -> None:
    config = AttentionConfig(num_heads=2, pattern=pattern)
    mixer = config.build_causal(4) if causal else config.build(4)
    with recording(mixer, "weights") as heard, recording(mixer, "mixed") as found:
        mixer(Padded.of(torch.randn(2, 10, 4)))
    t, s = torch.arange(10)[:, None], torch.arange(10)
    near = (t - s).abs() < 3 if isinstance(pattern, WindowConfig) else (t // 3 == s // 3) | ((t - s) % 3 == 0)
    allowed = near & (s <= t) if causal else near
    assert_close(found["mixed"][0], full_under(heard["weights"][0], allowed), **ROUNDING)


# --- 37: graphs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_row_37_graph_attention_is_plain_attention_under_the_adjacency_matrix(padded: bool) -> None:
    nodes = 9
    adjacency = torch.rand(nodes, nodes) < 0.3
    adjacency[4] = False  # a node without neighbors reads nothing
    pairs = adjacency.nonzero()
    pairs = torch.cat([pairs, pairs[:3]])[torch.randperm(len(pairs) + 3)]  # in any order, some edges listed twice
    query, key, value = triple(time=nodes)
    mask: Mask = Edges(pairs) & (Padding() if padded else Everything())
    asked = request(query, key, value, mask=mask)
    allowed = adjacency.expand(2, 1, nodes, nodes)
    if padded:
        real = torch.arange(nodes) < torch.tensor([[9], [6]])
        places = asked.key_places._replace(valid=real)
        asked = asked._replace(query_places=places, key_places=places)
        allowed = allowed & real[:, None, None, :]
    assert choose(asked) is EDGES
    output, expected = EDGES.run(asked), full_under(asked, allowed)
    assert_close(output, expected, **ROUNDING)
    assert not output[:, :, 4].any()
    upstream = torch.randn_like(output)
    found = torch.autograd.grad(output, [query, key, value], upstream)
    by_scores = {kernel.name: kernel for kernel in KERNELS}["plain"].run(asked)  # no NaN in its gradient
    assert_close(by_scores, expected, **ROUNDING)
    assert_close(found, torch.autograd.grad(by_scores, [query, key, value], upstream), **ROUNDING)


def test_row_37_causal_attention_is_the_graph_in_which_each_node_reads_the_earlier_ones() -> None:
    time = 6
    query, key, value = triple(time=time)
    earlier = torch.tensor([(i, j) for i in range(time) for j in range(i + 1)])
    by_edges = attend(request(query, key, value, mask=Edges(earlier)))
    assert_close(by_edges, attend(request(query, key, value, mask=Causal())), **ROUNDING)
