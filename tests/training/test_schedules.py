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
    InverseSqrtConfig,
    LinearConfig,
    PlateauConfig,
    TrainingConfig,
)
from seqloom.training.learning_rate import lr_at, update_plateau
from seqloom.training.state import TrainingState

ALL: list[AnySchedule] = [
    ConstantConfig(),
    LinearConfig(final=0.1),
    CosineConfig(final=0.1),
    InverseSqrtConfig(warmup=20),
    PlateauConfig(),
]
STEPS = 100


def rates(schedule: AnySchedule, rate: float = 2.0) -> list[float]:
    config = TrainingConfig(lr=rate, schedule=schedule)
    return [lr_at(config, step, step / STEPS, 1.0) for step in range(STEPS + 1)]


@pytest.mark.parametrize("schedule", ALL, ids=lambda schedule: schedule.kind())
def test_the_rate_rises_along_a_line_and_never_rises_again(schedule: AnySchedule) -> None:
    found = rates(replace(schedule, warmup=20))
    assert found[:20] == sorted(found[:20])
    assert found[19:] == sorted(found[19:], reverse=True)
    assert found[0] > 0 and max(found) <= 2.0


@given(step=st.integers(0, 10**9), share=st.floats(0, 1), warm_up=st.integers(0, 1000), factor=st.floats(0.001, 1))
def test_every_rate_lies_between_zero_and_the_rate_that_was_asked_for(
    step: int, share: float, warm_up: int, factor: float
) -> None:
    for schedule in ALL:
        config = TrainingConfig(lr=0.5, schedule=replace(schedule, warmup=warm_up))
        found = lr_at(config, step, share, factor)
        assert 0 <= found <= 0.5 and math.isfinite(found)


def test_linear_and_cosine_end_at_their_final_share() -> None:
    assert rates(LinearConfig(final=0.25))[-1] == pytest.approx(0.5)
    assert rates(CosineConfig(final=0.25))[-1] == pytest.approx(0.5)
    assert rates(CosineConfig())[STEPS // 2] == pytest.approx(1.0)


def test_cosine_and_linear_without_warm_up_equal_those_of_torch() -> None:
    weight = torch.nn.Parameter(torch.zeros(1, device="cpu"))
    for schedule, make in (
        (CosineConfig(final=0.1), lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, 0.2)),
        (LinearConfig(final=0.1), lambda optimizer: torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, STEPS)),
    ):
        optimizer = torch.optim.SGD([weight], lr=2.0)
        reference, found = make(optimizer), []
        for _ in range(STEPS + 1):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            reference.step()
        assert rates(schedule) == pytest.approx(found)


def test_inverse_root_is_the_schedule_of_the_transformer() -> None:
    found = rates(InverseSqrtConfig(warmup=20))
    paper = [2.0 * 20**0.5 * min((step + 1) ** -0.5, (step + 1) * 20**-1.5) for step in range(STEPS + 1)]
    assert found == pytest.approx(paper)


def test_a_plateau_shrinks_the_rate_after_so_many_validations_in_a_row_that_were_not_better() -> None:
    config, run_state = TrainingConfig(lr=1.0, schedule=PlateauConfig(factor=0.5, patience=2)), TrainingState()
    factors = []
    for better in (True, False, True, False, False, False, False, True):
        update_plateau(config, run_state, better)
        factors.append(run_state.plateau_factor)
    assert factors == [1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25]
    assert lr_at(config, 7, 0.5, run_state.plateau_factor) == 0.25


def test_other_schedules_ignore_plateaus() -> None:
    run_state = TrainingState()
    for _ in range(9):
        update_plateau(TrainingConfig(), run_state, False)
    assert (run_state.plateau_factor, run_state.plateau_count) == (1.0, 0)
