"""Parity with torch of self-attention, cross-attention and the weights that a tap hears."""

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
    WIDTH,
    assert_parity,
    assert_same,
    attention_twins,
    beyond,
    copy_weights,
    either_precision,
    full_and_ragged,
    leaf,
    real,
)
from seqloom.config.mixers import AttentionConfig
from seqloom.nn.mixers.cross import CrossAttention
from seqloom.nn.ops.attention import weights
from seqloom.nn.ops.kernels import using
from seqloom.nn.taps import recording
from seqloom.nn.types import Padded


@pytest.mark.parametrize("kernel", ["plain", "sdpa", "blocked"])
@either_precision
@full_and_ragged
@pytest.mark.parametrize("heads", [1, 2, 12])
@pytest.mark.parametrize("causal", [False, True], ids=["both-sides", "causal"])
def test_self_attention_equals_torchs(
    causal: bool, heads: int, lengths: Tensor | None, dtype: torch.dtype, kernel: str
) -> None:
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(WIDTH, heads, batch_first=True, dtype=dtype)
    config = AttentionConfig(num_heads=heads)
    ours = (config.build_causal(WIDTH) if causal else config.build(WIDTH)).to(dtype)
    twins = attention_twins(theirs, ours.heads)
    copy_weights(theirs, ours, twins)
    x = leaf(ROWS, TIME, WIDTH, dtype=dtype)
    with using(attention=kernel):
        y = ours(Padded.of(x, lengths))
    padding = None if lengths is None else beyond(lengths, TIME)
    mixed, _ = theirs(x, x, x, key_padding_mask=padding, attn_mask=CAUSAL if causal else None)
    assert_parity([y.values], [real(mixed, lengths)], [x], twins)


@pytest.mark.parametrize("kernel", ["plain", "sdpa"])
@either_precision
@full_and_ragged
def test_cross_attention_equals_torchs(lengths: Tensor | None, dtype: torch.dtype, kernel: str) -> None:
    torch.manual_seed(4)
    theirs = nn.MultiheadAttention(WIDTH, 2, batch_first=True, dtype=dtype)
    ours = CrossAttention("scaled_dot", 2, WIDTH).to(dtype)
    twins = attention_twins(theirs, ours.heads)
    copy_weights(theirs, ours, twins)
    x, memory = leaf(ROWS, TIME, WIDTH, dtype=dtype), leaf(ROWS, SOURCE, WIDTH, dtype=dtype)
    source = None if lengths is None else RAGGED_SOURCE
    with using(attention=kernel):
        y = ours(Padded.of(x, lengths), Padded.of(memory, source))
    padding = None if source is None else beyond(source, SOURCE)
    mixed, _ = theirs(x, memory, memory, key_padding_mask=padding)
    assert_parity([y.values], [real(mixed, lengths)], [x, memory], twins)


def test_the_weights_that_a_tap_hears_are_torchs() -> None:
    torch.manual_seed(5)
    theirs = nn.MultiheadAttention(WIDTH, 2, batch_first=True, dtype=torch.float64)
    ours = AttentionConfig(num_heads=2).build(WIDTH).double()
    copy_weights(theirs, ours, attention_twins(theirs, ours.heads))
    x = torch.randn(ROWS, TIME, WIDTH, dtype=torch.float64)
    with recording(ours, "weights") as heard:
        ours(Padded.of(x, RAGGED))
    _, expected = theirs(x, x, x, key_padding_mask=beyond(RAGGED, TIME), average_attn_weights=False)
    rows = ~beyond(RAGGED, TIME)[:, None, :, None]  # of real queries: torch lets the padding ask too
    assert_same(weights(heard["weights"][0]) * rows, expected * rows, "weights")
