"""Averages: what they are, what they leave alone, and that they come and go bit for bit."""

import pytest
import torch
from msgspec.structs import replace

from seqloom.training.checkpoint import mean_of
from seqloom.training.state import TrainingState
from update_common import CASES, PLAIN, assert_same, batch_of, copied, drawn, take, updating

AVERAGED = replace(PLAIN, ema=0.6)
CASE = CASES["classify, cnn"]


def test_the_average_follows_its_recurrence() -> None:
    model = drawn(CASE)
    update, run_state = updating(model, AVERAGED), TrainingState()
    expected = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for step in range(12):
        take(update, batch_of(CASE, 5, seed=step), run_state)
        decay = min(0.6, (1 + step) / (10 + step))
        for name, weight in model.named_parameters():
            expected[name] = decay * expected[name] + (1 - decay) * weight.detach()
    for name, value in update.tensors()["ema"].items():
        torch.testing.assert_close(value, expected[name])


def test_the_average_is_shipped_and_the_weights_come_back_bit_for_bit() -> None:
    model = drawn(CASE)
    update, run_state = updating(model, AVERAGED), TrainingState()
    for step in range(3):
        take(update, batch_of(CASE, 5, seed=step), run_state)
    before = copied(update)
    with update.shipped():
        for name, weight in model.named_parameters():
            assert torch.equal(weight, before["ema"][name]) and not torch.equal(weight, before["model"][name])
    assert_same(copied(update), before)
    with pytest.raises(ValueError, match="inside"), update.shipped():
        raise ValueError("inside")
    assert_same(copied(update), before)


def test_without_an_average_the_weights_themselves_are_shipped() -> None:
    update = updating(drawn(CASE))
    before = copied(update)
    with update.shipped():
        assert_same(copied(update), before)
    assert "ema" not in before


def test_other_weights_take_their_place_for_a_while() -> None:
    update = updating(drawn(CASE))
    before = copied(update)
    with update.replaced({name: torch.zeros_like(value) for name, value in before["model"].items()}):
        assert all(not value.any() for value in update.tensors()["model"].values())
    assert_same(copied(update), before)


def test_the_mean_of_checkpoints_is_their_mean_in_any_order() -> None:
    torch.manual_seed(0)
    weights = [{"w": torch.randn(5, 3), "count": torch.tensor(number)} for number in range(7)]
    mean = mean_of(weights)
    wide = torch.stack([one["w"] for one in weights]).double().mean(dim=0)
    assert torch.equal(mean["w"], wide.float()) and mean["count"] == 6
    assert torch.equal(mean_of(weights[::-1])["w"], mean["w"])
    assert torch.equal(mean_of([weights[0]] * 3)["w"], weights[0]["w"])
