"""Schedules: pure functions whose curves have the shapes of their papers."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from seqloom.config.training import (
    AnySchedule,
    ConstantConfig,
    CosineConfig,
    InverseRootConfig,
    LinearConfig,
    PlateauConfig,
    TrainingConfig,
)
from seqloom.training.learning_rate import plateau, rate_at
from seqloom.training.state import TrainingState

ALL: list[AnySchedule] = [
    ConstantConfig(),
    LinearConfig(final=0.1),
    CosineConfig(final=0.1),
    InverseRootConfig(warm_up=20),
    PlateauConfig(),
]
STEPS = 100


def rates(schedule: AnySchedule, rate: float = 2.0) -> list[float]:
    config = TrainingConfig(rate=rate, schedule=schedule)
    return [rate_at(config, step, step / STEPS, 1.0) for step in range(STEPS + 1)]


@pytest.mark.parametrize("schedule", ALL, ids=lambda schedule: schedule.kind())
def test_the_rate_rises_along_a_line_and_never_rises_again(schedule: AnySchedule) -> None:
    found = rates(replace(schedule, warm_up=20))
    assert found[:20] == sorted(found[:20])
    assert found[19:] == sorted(found[19:], reverse=True)
    assert found[0] > 0 and max(found) <= 2.0


@given(step=st.integers(0, 10**9), share=st.floats(0, 1), warm_up=st.integers(0, 1000), factor=st.floats(0.001, 1))
def test_every_rate_lies_between_zero_and_the_rate_that_was_asked_for(
    step: int, share: float, warm_up: int, factor: float
) -> None:
    for schedule in ALL:
        config = TrainingConfig(rate=0.5, schedule=replace(schedule, warm_up=warm_up))
        found = rate_at(config, step, share, factor)
        assert 0 <= found <= 0.5 and math.isfinite(found)


def test_linear_and_cosine_end_at_their_final_share() -> None:
    assert rates(LinearConfig(final=0.25))[-1] == pytest.approx(0.5)
    assert rates(CosineConfig(final=0.25))[-1] == pytest.approx(0.5)
    assert rates(CosineConfig())[STEPS // 2] == pytest.approx(1.0)


def test_cosine_and_linear_without_warm_up_equal_those_of_torch() -> None:
    weight = torch.nn.Parameter(torch.zeros(1, device="cpu"))
    for schedule, make in (
        (CosineConfig(final=0.1), lambda optimiser: torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS, 0.2)),
        (LinearConfig(final=0.1), lambda optimiser: torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.1, STEPS)),
    ):
        optimiser = torch.optim.SGD([weight], lr=2.0)
        reference, found = make(optimiser), []
        for _ in range(STEPS + 1):
            found.append(optimiser.param_groups[0]["lr"])
            optimiser.step()
            reference.step()
        assert rates(schedule) == pytest.approx(found)


def test_inverse_root_is_the_schedule_of_the_transformer() -> None:
    found = rates(InverseRootConfig(warm_up=20))
    paper = [2.0 * 20**0.5 * min((step + 1) ** -0.5, (step + 1) * 20**-1.5) for step in range(STEPS + 1)]
    assert found == pytest.approx(paper)


def test_a_plateau_shrinks_the_rate_after_so_many_validations_in_a_row_that_were_not_better() -> None:
    config, standing = TrainingConfig(rate=1.0, schedule=PlateauConfig(factor=0.5, patience=2)), TrainingState()
    factors = []
    for better in (True, False, True, False, False, False, False, True):
        plateau(config, standing, better)
        factors.append(standing.factor)
    assert factors == [1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25]
    assert rate_at(config, 7, 0.5, standing.factor) == 0.25


def test_other_schedules_ignore_plateaus() -> None:
    standing = TrainingState()
    for _ in range(9):
        plateau(TrainingConfig(), standing, False)
    assert (standing.factor, standing.plateau) == (1.0, 0)
