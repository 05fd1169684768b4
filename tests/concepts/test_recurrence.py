"""Rows 11, 15 and 18 of the table of concepts: the Elman network, gates and the bottleneck."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from concepts_common import ROUNDING
from seqloom.config.heads import NextTokenHeadConfig, NumberHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.mixers import GruConfig, LstmConfig, RnnConfig
from seqloom.config.models import EncoderDecoderConfig
from seqloom.config.stacks import AlignmentConfig, ConditionedDecoderConfig, EncoderConfig, SeededConfig
from seqloom.nn.mixers.contract import StateStanding
from seqloom.nn.ops import recurrence
from seqloom.nn.ops.kernels import using
from seqloom.nn.taps import recording
from seqloom.nn.types import Padded

# --- 11: the Elman network -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["plain", "fused"])
def test_row_11_the_worked_example_of_deck_c(kernel: str) -> None:
    mixer, head = RnnConfig().build(2), NumberHeadConfig().build(2)
    with torch.no_grad():
        mixer.hidden_weight.copy_(torch.tensor([[0.1, 0.2], [-0.1, 0.3]]))
        mixer.input_weight.copy_(torch.tensor([[0.4, 0.5], [0.6, 0.7]]))
        mixer.input_bias.copy_(torch.tensor([0.1, 0.2]))
        mixer.hidden_bias.zero_()
        head.linear.weight.copy_(torch.tensor([[0.8, 0.9]]))
        head.linear.bias.zero_()
    x, before = Padded.of(torch.tensor([[[1.0, 0.0]]])), torch.tensor([[0.5, -0.5]])
    assert_close(before @ mixer.hidden_weight.T, torch.tensor([[-0.05, -0.2]]), **ROUNDING)  # the slide: a matrix
    expected = torch.tensor([[math.tanh(0.45), math.tanh(0.6)]])
    hidden, _ = recurrence.KERNELS[kernel](recurrence.ELMAN_TANH, x, (before,), mixer.weights)
    assert_close(hidden[:, 0], expected, **ROUNDING)
    with using(recurrence=kernel):
        y, state = mixer.step(x, StateStanding(torch.zeros(1, dtype=torch.int64), (before,)))
    assert_close(y.values[:, 0], expected, **ROUNDING)
    assert_close(state.inner[0], expected, **ROUNDING)
    answer = head(y).values.item()
    assert answer == pytest.approx(0.8 * math.tanh(0.45) + 0.9 * math.tanh(0.6), rel=1e-13)
    assert f"{answer:.5f}" == "0.82086"  # the slide has 0.8215, from 0.4228 for tanh(0.45) = 0.4219
    assert abs(answer - 0.8215) < 1e-3


# --- 15: gates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["plain", "fused"])
def test_row_15_an_lstm_that_forgets_nothing_and_writes_nothing_keeps_its_cell(kernel: str) -> None:
    mixer = LstmConfig().build(3)
    with torch.no_grad():
        write, forget, _, _ = mixer.input_bias.chunk(4)
        write.fill_(-1e4)
        forget.fill_(1e4)
    x, before = Padded.of(torch.randn(2, 6, 3)), (torch.randn(2, 3), torch.randn(2, 3))
    with using(recurrence=kernel), recording(mixer, "gates") as heard:
        y, state = mixer.step(x, StateStanding(torch.zeros(2, dtype=torch.int64), before))
    (gates,) = heard["gates"]
    assert gates.names == ("input", "forget", "candidate", "output")
    written, kept, _, shown = gates.values.unbind(dim=2)
    assert torch.equal(written, torch.zeros_like(written))
    assert torch.equal(kept, torch.ones_like(kept))
    assert torch.equal(state.inner[1], before[1])
    assert_close(y.values, shown * before[1].tanh()[:, None], **ROUNDING)  # h = o * tanh(c), not deck B's o * c


@pytest.mark.parametrize("kernel", ["plain", "fused"])
def test_row_15_z_in_the_gru_of_deck_d_is_one_minus_ours(kernel: str) -> None:
    width, time = 3, 5
    mixer = GruConfig().build(width)
    for bias in (mixer.input_bias, mixer.hidden_bias):
        nn.init.zeros_(bias)  # the deck's equations have none
    w_r, w_z, w = mixer.input_weight.chunk(3)
    u_r, u_z, u = mixer.hidden_weight.chunk(3)
    w_z, u_z = -w_z, -u_z  # sigmoid(-a) = 1 - sigmoid(a)
    x, h = torch.randn(time, width), torch.zeros(width)
    states, updates = [], []
    for x_t in x:
        z, r = torch.sigmoid(w_z @ x_t + u_z @ h), torch.sigmoid(w_r @ x_t + u_r @ h)
        h = (1 - z) * h + z * torch.tanh(w @ x_t + r * (u @ h))
        states.append(h)
        updates.append(z)
    with using(recurrence=kernel), recording(mixer, "gates") as heard:
        y = mixer(Padded.of(x[None]))
    assert_close(y.values[0], torch.stack(states), **ROUNDING)
    keep = heard["gates"][0].values[0, :, mixer.cell.gates.index("update")]
    assert_close(1 - keep, torch.stack(updates), **ROUNDING)


def test_row_15_a_fresh_lstm_begins_by_remembering() -> None:
    torch.manual_seed(0)
    fresh = LstmConfig().build_causal(64)
    with recording(fresh, "gates") as heard:
        fresh(Padded.of(torch.zeros(1, 1, 64)))
    opened = dict(zip(heard["gates"][0].names, heard["gates"][0].values[0, 0], strict=True))
    assert opened["forget"].min() > 0.65
    assert opened["input"].min() > 0.35
    assert opened["input"].max() < 0.65


# --- 18: the bottleneck ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", [RnnConfig(), GruConfig(), LstmConfig()], ids=lambda cell: cell.kind())
def test_row_18_without_attention_the_source_passes_through_its_last_state_alone(cell: Any) -> None:
    def slopes(*layers: Any) -> Tensor:
        decoder = ConditionedDecoderConfig(width=4, input=TokensConfig(vocab_size=7), layers=layers).build()
        memory = torch.randn(2, 5, 4, requires_grad=True)
        y = decoder(Padded.of(torch.randint(7, (2, 3))), Padded.of(memory, torch.tensor([5, 3])))
        (slope,) = torch.autograd.grad(y.values.square().sum(), memory)
        return slope.abs().sum(dim=2) > 0

    last = torch.tensor([[False] * 4 + [True], [False, False, True, False, False]])
    every = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    assert torch.equal(slopes(SeededConfig(mixer=cell)), last)
    assert torch.equal(slopes(SeededConfig(mixer=cell), SeededConfig(mixer=cell)), last)
    assert torch.equal(slopes(SeededConfig(mixer=cell), AlignmentConfig()), every)


def test_row_18_sources_that_end_alike_are_one_source_to_a_seeded_decoder() -> None:
    def model(*layers: Any) -> Any:
        tokens = TokensConfig(vocab_size=7)
        return EncoderDecoderConfig(
            encoder=EncoderConfig(width=4, input=tokens),
            decoder=ConditionedDecoderConfig(width=4, input=tokens, layers=layers),
            head=NextTokenHeadConfig(vocab_size=7),
        ).build()

    sources = Padded.stack([torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6, 0, 3])])
    target = Padded.of(torch.tensor([[1, 5, 2], [1, 5, 2]]))
    narrow = model(SeededConfig(mixer=GruConfig()))(target, sources).values
    assert_close(narrow[0], narrow[1], **ROUNDING)
    wide = model(SeededConfig(mixer=GruConfig()), AlignmentConfig())(target, sources).values
    assert (wide[0] - wide[1]).abs().max() > 1e-3
