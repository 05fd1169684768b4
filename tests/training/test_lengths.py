"""How far a run is."""

import pytest

from seqloom.config.training import EpochsConfig, SecondsConfig, StepsConfig, TokenCountConfig
from seqloom.training import learning_rate as lengths
from seqloom.training.learning_rate import expected_steps, is_over, progress_of
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
