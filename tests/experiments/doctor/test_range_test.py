import copy
import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from diagnosis_common import BareTask
from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.config.training import AdamWConfig, SgdConfig, TrainingConfig
from seqloom.data.loader import Step
from seqloom.errors import ConfigError, DataError
from seqloom.experiments.doctor.range_test import range_test, suggested
from seqloom.nn.types import Batch, Loss, Padded
from seqloom.training.devices import choose_device

TASK: Any = BareTask()
CPU = choose_device("cpu")


class Bowl(nn.Module):
    """A loss 1 + w'Cw / 2, C diagonal up to 2: descent with rate r converges for r < 1 and no other."""

    def __init__(self, start: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4, 4), start))

    def loss(self, batch: Any) -> Loss:
        curved = self.weight.square() * torch.linspace(0.5, 2, 4)
        return Loss(1 + curved.sum() / 2 + batch.inputs.values.sum() * 0, torch.tensor(1.0))


def endless() -> Any:
    batch = Batch(Padded.of(torch.ones(1, 1)), torch.zeros(1), ("0",))
    return (Step(0, index, batch) for index in itertools.count())


PLAIN = TrainingConfig(optimizer=SgdConfig(momentum=0.0), clip_norm=0.0)


def test_the_suggestion_lies_below_a_tenth_of_the_blow_up() -> None:
    found = range_test(TASK, Bowl(), PLAIN, endless(), CPU, lowest=1e-3, highest=1e2, count=60)
    assert found.exploded is not None and found.exploded > 1
    assert 1e-3 < found.suggestion <= found.exploded / 10
    assert found.smoothed[-1] > min(found.smoothed)
    assert len(found.rates) == len(found.losses) < 60


def test_a_loss_that_never_explodes_is_taken_where_it_falls_fastest() -> None:
    found = range_test(TASK, Bowl(), PLAIN, endless(), CPU, lowest=1e-4, highest=1e-1, count=40)
    assert found.exploded is None and len(found.rates) == 40
    assert 1e-2 < found.suggestion <= 1e-1


@pytest.mark.slow
def test_the_test_leaves_nothing_changed_and_is_the_same_from_its_seed() -> None:
    torch.manual_seed(0)
    model = recipes.classifier("cnn", inputs=TokensConfig(vocab_size=20), num_classes=3, size="nano").build()
    batch = Batch(Padded.of(torch.randint(20, (8, 12))), torch.randint(3, (8,)), tuple(map(str, range(8))))
    steps = [Step(0, index, batch) for index in range(30)]
    before, draws = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    config = TrainingConfig(seed=3, ema=0.9)
    first, second = (range_test(TASK, model, config, steps, CPU, count=30) for _ in range(2))
    other = range_test(TASK, model, TrainingConfig(seed=4), steps, CPU, count=30)
    assert first == second != other  # dropout is drawn from the seed
    assert torch.equal(draws, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert 1e-4 <= first.suggestion <= 1


def test_numbers_that_are_not_finite_end_the_test_and_leave_the_finite_ones() -> None:
    class Cliff(Bowl):
        def loss(self, batch: Any) -> Loss:
            loss = super().loss(batch)
            return loss._replace(total=torch.where(loss.total < 10.9, torch.nan, loss.total))

    found = range_test(TASK, Cliff(), PLAIN, endless(), CPU, lowest=1e-5, highest=10)
    assert found.exploded is not None and all(map(math.isfinite, found.losses))
    with pytest.raises(DataError, match="too few"):
        range_test(TASK, Cliff(0.1), PLAIN, endless(), CPU)


def test_the_picture_has_the_suggestion_and_is_not_flattened_by_the_blow_up() -> None:
    found = range_test(TASK, Bowl(), PLAIN, endless(), CPU, lowest=1e-3, highest=1e2, count=60)
    assert f"--lr {found.suggestion:g}" in found.figure.text(80)
    assert max(found.figure.series[0].known) <= 3 * found.smoothed[0]


@pytest.mark.parametrize(("lowest", "highest", "count"), [(0.0, 1.0, 100), (1.0, 0.1, 100), (1e-6, 1.0, 3)])
def test_a_range_that_is_none_is_refused(lowest: float, highest: float, count: int) -> None:
    with pytest.raises(ConfigError, match="range test"):
        range_test(TASK, Bowl(), PLAIN, endless(), CPU, lowest=lowest, highest=highest, count=count)


def test_without_the_limit_the_suggestion_could_be_the_blow_up_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    rates, smoothed = (1.0, 2.0, 4.0, 8.0, 16.0), (5.0, 5.0, 5.0, 1.0, 9.0)
    assert suggested(rates, smoothed, 16.0) == pytest.approx(2.0, abs=0.5)
    monkeypatch.setattr("seqloom.experiments.doctor.range_test.BELOW", 1.0)
    assert suggested(rates, smoothed, 16.0) == 4.0


def test_adam_is_tested_with_its_own_steps() -> None:
    def losses(config: TrainingConfig) -> Tensor:
        return torch.tensor(range_test(TASK, Bowl(), config, endless(), CPU, count=40, highest=1e-2).losses)

    assert not torch.equal(losses(PLAIN), losses(TrainingConfig(optimizer=AdamWConfig(), clip_norm=0.0)))
