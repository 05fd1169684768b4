"""Row 25 of the table of concepts: positions."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from concepts_common import ROUNDING
from seqloom.config.inputs import TokensConfig
from seqloom.config.mixers import SHAW_RADIUS, T5_BUCKETS, T5_FARTHEST, AttentionConfig
from seqloom.config.stacks import BlockConfig, DecoderConfig
from seqloom.errors import ConfigError, DataError
from seqloom.nn.models import count_parameters
from seqloom.nn.ops.attention import Request
from seqloom.nn.ops.relations import bucket
from seqloom.nn.positions import sinusoids
from seqloom.nn.taps import recording
from seqloom.nn.types import Padded


@pytest.mark.parametrize("width", [6, 7], ids=["even", "odd"])
def test_row_25_sinusoids_interleave_sines_and_cosines(width: int) -> None:
    found = sinusoids(torch.arange(50), width)
    for t, column in itertools.product(range(50), range(width)):
        i = column // 2
        angle = t / 10_000 ** (2 * i / width)
        assert found[t, column].item() == pytest.approx(math.cos(angle) if column % 2 else math.sin(angle), abs=1e-13)


def stack(position: str, **options: Any) -> DecoderConfig:
    layers = () if position in ("learned", "sinusoidal") else (BlockConfig(mixer=AttentionConfig(num_heads=2)),)
    config = DecoderConfig(width=4, input=TokensConfig(vocab_size=9), position=position, layers=layers, **options)
    assert count_parameters(config.build()) == config.parameters()
    return config


@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
def test_row_25_absolute_positions_are_added_or_concatenated(position: str) -> None:
    tokens = torch.randint(9, (2, 6))
    added = stack(position, max_length=8).build()
    vectors = added.entry[0].table[:6] if position == "learned" else sinusoids(torch.arange(6), 4)
    assert_close(added(Padded.of(tokens)).values, added.input.table[tokens] + vectors, **ROUNDING)
    beside = stack(position, max_length=8, position_join="concatenate").build()
    vectors = beside.entry[0].table[:6] if position == "learned" else sinusoids(torch.arange(6), 4)
    both = torch.cat([beside.input.table[tokens], vectors.expand(2, 6, 4)], dim=-1)
    join = beside.entry[0].join
    assert_close(beside(Padded.of(tokens)).values, both @ join.weight.T + join.bias, **ROUNDING)


@pytest.mark.parametrize("join", ["add", "concatenate"])
def test_row_25_inputs_are_as_large_as_the_configuration_asks_when_positions_are_added(join: str) -> None:
    plain, scaled = (stack("sinusoidal", position_join=join, input_scale=scale).build() for scale in (1.0, 8.0))
    scaled.load_state_dict(plain.state_dict())
    x = torch.randn(2, 6, 4)
    assert_close(scaled.entry[0](Padded.of(x)).values, plain.entry[0](Padded.of(8 * x)).values, **ROUNDING)


def test_row_25_a_scale_of_inputs_without_positions_to_add_is_refused() -> None:
    with pytest.raises(ConfigError, match="position is 'rotary'"):
        stack("rotary", input_scale=8.0)


def test_row_25_learned_positions_beyond_the_last_are_refused() -> None:
    decoder = stack("learned", max_length=4).build()
    tokens = Padded.of(torch.zeros(2, 5, dtype=torch.int64))
    with pytest.raises(DataError, match="a sequence has 5 elements, but there are only 4 learned positions"):
        decoder(tokens)
    _, state = decoder.step(tokens.cut(0, 4), decoder.initial_state(2))
    with pytest.raises(DataError, match="a sequence has 5 elements, but there are only 4 learned positions"):
        decoder.step(tokens.cut(4, 5), state)
    padded = Padded.of(tokens.values, torch.tensor([4, 2]))  # the fifth column is padding
    assert_close(decoder(padded).values[:, :4], decoder(padded.cut(0, 4)).values, **ROUNDING)


def relative_scores(mixer: Any, asked: Request, i: int, j: int, *, two_sided: bool) -> Tensor:
    """[B,H] the score of query i with key j, from the formula of the mixer's kind of position."""
    q, k, ahead = asked.query[:, :, i], asked.key[:, :, j], j - i
    dot = (q * k).sum(dim=-1) / math.sqrt(q.shape[-1])
    position = mixer.relation.position
    if position == "alibi":
        slopes = torch.tensor([2**-4, 2**-8])  # of two heads: 2^(-8h/2)
        return dot - slopes * abs(ahead)
    if position == "t5":
        row = bucket(torch.tensor(ahead), num_buckets=T5_BUCKETS, two_sided=two_sided, farthest=T5_FARTHEST)
        return dot + mixer.relation.table[row]
    if position == "shaw":
        row = max(-SHAW_RADIUS, min(SHAW_RADIUS, ahead)) + SHAW_RADIUS
        return (q * (k + mixer.relation.keys[row])).sum(dim=-1) / math.sqrt(q.shape[-1])
    return dot


@pytest.mark.parametrize("causal", [False, True], ids=["both-sides", "causal"])
@pytest.mark.parametrize("position", ["shaw", "alibi", "t5"])
def test_row_25_positions_between_two_places_equal_their_formula(position: Any, causal: bool) -> None:
    time = SHAW_RADIUS + 5  # beyond the radius the distance is clipped
    config = AttentionConfig(num_heads=2)
    mixer = config.build_causal(8, position) if causal else config.build(8, position)
    with recording(mixer, "weights") as heard, recording(mixer, "mixed") as found:
        mixer(Padded.of(torch.randn(2, time, 8)))
    (asked,), (mixed,) = heard["weights"], found["mixed"]
    for i in (0, 3, time - 1):
        seen = range(i + 1 if causal else time)
        e = torch.stack([relative_scores(mixer, asked, i, j, two_sided=not causal) for j in seen], dim=-1)  # [B,H,S]
        a = e.exp() / e.exp().sum(dim=-1, keepdim=True)
        values = [asked.value[:, :, j] for j in seen]
        if position == "shaw":
            rows = [max(-SHAW_RADIUS, min(SHAW_RADIUS, j - i)) + SHAW_RADIUS for j in seen]
            values = [value + mixer.relation.values[row] for value, row in zip(values, rows, strict=True)]
        expected = sum(a[:, :, j, None] * values[j] for j in seen)
        assert_close(mixed[:, :, i], expected, rtol=1e-12, atol=1e-13)


def test_row_25_rotary_positions_turn_each_pair_by_its_angle() -> None:
    mixer = AttentionConfig(num_heads=2).build(8, "rotary")
    x = torch.randn(2, 6, 8)
    with recording(mixer, "weights") as heard:
        mixer(Padded.of(x))
    (asked,) = heard["weights"]
    for linear, found in [(mixer.heads.query, asked.query), (mixer.heads.key, asked.key)]:
        plain = mixer.heads.split(linear(x))
        for t, i in itertools.product(range(6), range(2)):
            angle = t / 10_000 ** (2 * i / 4)
            turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
            pair = slice(2 * i, 2 * i + 2)
            assert_close(found[:, :, t, pair], plain[:, :, t, pair] @ turn.T, **ROUNDING)
    assert_close(asked.value, mixer.heads.split(mixer.heads.value(x)), **ROUNDING)
