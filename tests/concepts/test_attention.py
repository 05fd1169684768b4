"""Rows 19 to 22, 24 and 26 of the table of concepts: scores, alignment, attention, masks and heads."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from concepts_common import ROUNDING, request, triple
from seqloom.config.inputs import VectorsConfig
from seqloom.config.mixers import SCORES, AttentionConfig
from seqloom.config.stacks import AlignmentConfig, BlockConfig, EncoderConfig
from seqloom.nn.mixers.attention import Matcher
from seqloom.nn.ops.attention import weights
from seqloom.nn.ops.attention_fast import attend
from seqloom.nn.ops.kernels import using
from seqloom.nn.ops.masks import Causal
from seqloom.nn.ops.scores import Dot, ScaledDot, score
from seqloom.nn.taps import recording
from seqloom.nn.types import Padded

# --- 19: scores and alignment ----------------------------------------------------------------------------------------


def score_by_hand(matcher: Matcher, head: int, q: Tensor, k: Tensor) -> Tensor:
    """One score of one head from its formula."""
    if matcher.name == "bilinear":
        return q @ matcher.weight[head] @ k
    if matcher.name == "additive":
        both = torch.cat(
            [matcher.query_weight[head], matcher.key_weight[head]]
        )  # W^T, so that W [q; k] is W_q q + W_k k
        return matcher.direction[head] @ torch.tanh(both.T @ torch.cat([q, k]))
    dot = sum(a * b for a, b in zip(q, k, strict=True))
    return dot / math.sqrt(len(q)) if matcher.name == "scaled_dot" else dot


@pytest.mark.parametrize("name", SCORES)
def test_row_19_every_score_equals_its_formula(name: Any) -> None:
    matcher = Matcher(name, 2, 4)
    query, key = torch.randn(3, 2, 2, 4), torch.randn(3, 2, 5, 4)
    found = score(matcher.score(), query, key)
    assert found.shape == (3, 2, 2, 5)
    for b, h, t, s in itertools.product(*map(range, found.shape)):
        assert_close(found[b, h, t, s], score_by_hand(matcher, h, query[b, h, t], key[b, h, s]), **ROUNDING)


@pytest.mark.parametrize("name", SCORES)
def test_row_19_alignment_is_tanh_of_w_times_a_and_s(name: Any) -> None:
    layer = AlignmentConfig(score=name).build(4)
    states, lengths = torch.randn(2, 5, 4), [5, 3]
    s = torch.randn(2, 3, 4)
    y = layer(Padded.of(s), Padded.of(states, torch.tensor(lengths))).values
    for b, t in itertools.product(range(2), range(3)):
        real = states[b, : lengths[b]]
        scores = torch.stack([score_by_hand(layer.matcher, 0, s[b, t], h) for h in real])
        alpha = scores.exp() / scores.exp().sum()
        a = sum(alpha[i] * real[i] for i in range(len(real)))
        assert_close(
            y[b, t], torch.tanh(layer.combine.weight @ torch.cat([a, s[b, t]]) + layer.combine.bias), **ROUNDING
        )


# --- 20, 21, 22: attention -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["plain", "sdpa", "blocked"])
def test_row_20_one_hot_keys_and_a_large_scale_make_an_exact_lookup(kernel: str) -> None:
    table = torch.randn(1, 1, 6, 3)
    keys = torch.eye(6)[None, None]
    wanted = [4, 0, 0, 5, 2, 1]
    queries = 1e4 * keys[:, :, wanted]
    with using(attention=kernel):
        assert torch.equal(attend(request(queries, keys, table, score=Dot())), table[:, :, wanted])
        mixture = attend(request(queries / 1e4, keys, table, score=Dot()))
    assert not torch.allclose(mixture, table[:, :, wanted])  # at a scale of one the lookup is soft


def test_row_21_thinking_machines_scores_112_and_96_become_88_and_12_percent() -> None:
    mixer = AttentionConfig(num_heads=1).build(64)
    for linear in (mixer.heads.query, mixer.heads.key, mixer.heads.value, mixer.heads.output):
        nn.init.eye_(linear.weight)
    x = torch.zeros(1, 2, 64)
    x[0, 0, 0] = math.sqrt(112)
    x[0, 1, :2] = torch.tensor([96 / math.sqrt(112), 1.0])
    with recording(mixer, "weights") as heard:
        y = mixer(Padded.of(x)).values
    (asked,) = heard["weights"]
    assert_close(score(Dot(), asked.query, asked.key)[0, 0, 0], torch.tensor([112.0, 96.0]), **ROUNDING)
    assert_close(score(asked.score, asked.query, asked.key)[0, 0, 0], torch.tensor([14.0, 12.0]), **ROUNDING)
    share = weights(asked)[0, 0]
    assert [f"{value:.2f}" for value in share[0].tolist()] == ["0.88", "0.12"]
    assert_close(share[0, 0].item(), 1 / (1 + math.exp(-2)), **ROUNDING)
    for i in range(2):
        assert_close(y[0, i], share[i, 0] * x[0, 0] + share[i, 1] * x[0, 1], **ROUNDING)


@pytest.mark.parametrize("kernel", ["plain", "sdpa", "blocked"])
def test_row_21_the_output_sums_the_values_of_the_keys_not_of_the_query(kernel: str) -> None:
    query, key, value = triple()
    asked = request(query, key, value)
    shares = weights(asked)
    with using(attention=kernel):
        output = attend(asked)
    for b, h, i in itertools.product(range(2), range(2), range(5)):
        e = torch.stack([query[b, h, i] @ key[b, h, j] / 2 for j in range(5)])  # the root of 4
        a = e.exp() / e.exp().sum()
        assert_close(shares[b, h, i], a, **ROUNDING)
        assert_close(output[b, h, i], sum(a[j] * value[b, h, j] for j in range(5)), **ROUNDING)


def test_row_22_the_variance_of_a_dot_product_is_its_width_and_scaling_makes_it_one() -> None:
    width, samples = 200, 10_000
    query, key = torch.randn(samples, 1, 1, width), torch.randn(samples, 1, 1, width)
    assert score(Dot(), query, key).var().item() == pytest.approx(width, rel=0.05)
    assert score(ScaledDot(), query, key).var().item() == pytest.approx(1, rel=0.05)


# --- 24: masking -----------------------------------------------------------------------------------------------------


def test_row_24_causal_weights_are_the_softmax_of_scores_with_minus_infinity_above_the_diagonal() -> None:
    asked = request(*triple(), mask=Causal())
    scores = score(asked.score, asked.query, asked.key)
    above = torch.ones(5, 5, dtype=torch.bool).triu(1)
    assert_close(weights(asked), scores.masked_fill(above, -math.inf).softmax(dim=-1), **ROUNDING)
    assert torch.equal(weights(asked).masked_select(above), torch.zeros(2 * 2 * 10))


@pytest.mark.parametrize("kernel", ["plain", "sdpa", "blocked"])
def test_row_24_the_future_never_changes_the_past(kernel: str) -> None:
    query, key, value = triple()
    with using(attention=kernel):
        output = attend(request(query, key, value, mask=Causal()))
        for t in range(5):
            by_key, by_value = torch.autograd.grad(
                output[:, :, : t + 1].square().sum(), [key, value], retain_graph=True
            )
            assert not by_key[:, :, t + 1 :].any() and not by_value[:, :, t + 1 :].any()
            assert by_value[:, :, t].all()
            changed = [tensor.detach().clone() for tensor in (query, key, value)]
            for tensor in changed:
                tensor[:, :, t + 1 :] = 1e3 * torch.randn_like(tensor[:, :, t + 1 :])
            again = attend(request(*changed, mask=Causal()))
            assert_close(again[:, :, : t + 1], output[:, :, : t + 1], **ROUNDING)


def test_row_24_attention_without_positions_commutes_with_permuting_its_inputs() -> None:
    mixer = AttentionConfig(num_heads=2).build(4)
    x, order = torch.randn(2, 6, 4), torch.randperm(6)
    assert_close(mixer(Padded.of(x[:, order])).values, mixer(Padded.of(x)).values[:, order], **ROUNDING)
    placed = EncoderConfig(
        width=4,
        input=VectorsConfig(size=4),
        position="sinusoidal",
        layers=(BlockConfig(mixer=AttentionConfig(num_heads=2)),),
    ).build()
    assert not torch.allclose(placed(Padded.of(x[:, order])).values, placed(Padded.of(x)).values[:, order])


# --- 26: heads -------------------------------------------------------------------------------------------------------


def test_row_26_one_head_is_single_attention() -> None:
    mixer = AttentionConfig(num_heads=1).build(6)
    x = torch.randn(2, 5, 6)
    q, k, v = (linear(x) for linear in (mixer.heads.query, mixer.heads.key, mixer.heads.value))
    single = (q @ k.transpose(1, 2) / math.sqrt(6)).softmax(dim=-1) @ v
    assert_close(mixer(Padded.of(x)).values, mixer.heads.output(single), **ROUNDING)


def test_row_26_heads_attend_by_themselves_and_are_concatenated_and_projected() -> None:
    mixer = AttentionConfig(num_heads=3).build(6)
    x = torch.randn(2, 5, 6)
    heads = []
    for h in range(3):
        own = slice(2 * h, 2 * h + 2)
        q, k, v = (
            x @ linear.weight[own].T + linear.bias[own]
            for linear in (mixer.heads.query, mixer.heads.key, mixer.heads.value)
        )
        heads.append((q @ k.transpose(1, 2) / math.sqrt(2)).softmax(dim=-1) @ v)
    assert_close(mixer(Padded.of(x)).values, mixer.heads.output(torch.cat(heads, dim=-1)), **ROUNDING)


def test_row_26_splitting_and_joining_change_nothing_but_for_the_projection() -> None:
    heads = AttentionConfig(num_heads=3).build(6).heads
    nn.init.eye_(heads.output.weight)
    x = torch.randn(2, 5, 6)
    assert heads.split(x).shape == (2, 3, 5, 2)
    assert torch.equal(heads.join(heads.split(x)), x)
