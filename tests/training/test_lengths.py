"""How far a run is."""

import pytest
import torch

from seqloom.config.training import EpochsConfig, SecondsConfig, StepsConfig, TokenCountConfig
from seqloom.training import learning_rate as lengths
from seqloom.training import session
from seqloom.training.learning_rate import expected_steps, is_over, progress_of
from seqloom.training.session import Clock
from seqloom.training.state import TrainingState

LENGTHS = [EpochsConfig(epochs=4), StepsConfig(steps=40), TokenCountConfig(tokens=400), SecondsConfig(seconds=4.0)]


class TenSteps:
    """A plan of ten steps an epoch."""

    def count(self, epoch: int) -> int:
        return 10


def run_state(done: float) -> tuple[TrainingState, float]:
    """Where a run of four epochs of ten steps of ten tokens, one a second, is after so many epochs."""
    steps = round(done * 10)
    return TrainingState(epoch=steps // 10, index=steps % 10, step=steps, tokens=10 * steps), done


@pytest.mark.parametrize("length", LENGTHS, ids=lambda length: length.kind())
@pytest.mark.parametrize("done", [0.0, 0.5, 1.0, 2.7, 3.9])
def test_every_length_counts_the_same_share(length, done) -> None:
    where, seconds = run_state(done)
    assert progress_of(length, where, TenSteps(), seconds) == pytest.approx(done / 4)
    assert not is_over(length, where, seconds)


@pytest.mark.parametrize("length", LENGTHS, ids=lambda length: length.kind())
def test_a_run_is_over_at_its_length_and_never_more_than_whole(length) -> None:
    for done in (4.0, 5.0):
        where, seconds = run_state(done)
        assert is_over(length, where, seconds)
        assert progress_of(length, where, TenSteps(), seconds) == 1.0


class UnevenSteps:
    """A plan whose epochs have ten steps or eleven, and which counts how often it was asked."""

    asked = 0

    def count(self, epoch: int) -> int:
        self.asked += 1
        return 10 + epoch % 2


@pytest.mark.parametrize("epochs", [1, 2, 5, 30])
def test_the_steps_of_a_run_that_is_not_long_are_announced_exactly(epochs: int) -> None:
    plan = UnevenSteps()
    assert expected_steps(EpochsConfig(epochs=epochs), plan, 0) == sum(10 + epoch % 2 for epoch in range(epochs))


def test_the_steps_of_a_long_run_are_estimated_without_drawing_all_of_its_epochs() -> None:
    plan = UnevenSteps()
    assert expected_steps(EpochsConfig(epochs=10_000), plan, 0) == pytest.approx(105_000, rel=0.01)
    assert plan.asked < lengths.COUNTED / 10 + 1


def test_all_lengths_but_a_clock_expect_the_same_number_of_steps() -> None:
    assert [expected_steps(length, TenSteps(), tokens=100) for length in LENGTHS] == [40, 40, 40, None]


@pytest.mark.parametrize("length", LENGTHS, ids=lambda length: length.kind())
def test_the_time_left_is_right_from_the_second_measurement_on(length, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was slow before the first one, such as the first step, does not count."""
    now = 0.0
    monkeypatch.setattr(session.time, "monotonic", lambda: now)
    clock, slow = Clock(0.0, torch.device("cpu")), 0.0 if isinstance(length, SecondsConfig) else 7.0
    left = []
    for done in (0.5, 1.0, 1.5, 3.5):  # epochs, one a second
        now = slow + done
        where, _ = run_state(done)
        left.append(clock.speed(progress_of(length, where, TenSteps(), clock.seconds)).remaining)
    assert left[0] is None and left[1:] == pytest.approx([3.0, 2.5, 0.5])
