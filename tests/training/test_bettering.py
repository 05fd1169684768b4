"""Which weights are the best, and when a run gets nowhere."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.tasks.task import Metric
from seqloom.training.state import TrainingState
from seqloom.training.validation import DECISIVE, is_better, record_validation

ACCURACY, ERROR = Metric("accuracy"), Metric("mse", higher_is_better=False)
VALUES = st.floats(0, 1) | st.sampled_from([0.0, 1.0])


def seen(metric: Metric, *looks: tuple[float, float], patience: int = 100) -> tuple[TrainingState, list[bool]]:
    """Where a run stands after looks with these values and losses, and which of them were the best so far."""
    run_state, better = TrainingState(), []
    for step, (value, loss) in enumerate(looks, 1):
        run_state.step = step
        better.append(record_validation(metric, {metric.name: value, "loss": loss}, run_state, 0.1)[0])
    return run_state, better


def test_the_loss_decides_between_equal_scores() -> None:
    run_state, better = seen(ACCURACY, (0.0, 5.0), (0.0, 4.0), (0.0, 4.5), (1.0, 0.2), (1.0, 0.1))
    assert better == [True, True, False, True, True] and run_state.best is not None and run_state.best.step == 5


def test_a_lower_loss_does_not_outweigh_a_worse_score() -> None:
    assert seen(ACCURACY, (0.9, 1.0), (0.8, 0.1))[1] == [True, False]
    assert seen(ERROR, (0.1, 1.0), (0.2, 0.1))[1] == [True, False]


def test_patience_waits_while_the_loss_still_falls() -> None:
    run_state, _ = seen(ACCURACY, (0.4, 5.0), (0.0, 4.0), (0.0, 3.0), (0.0, 2.0))
    assert run_state.patience_count == 0 and run_state.best is not None and run_state.best.step == 1
    run_state, _ = seen(ACCURACY, (0.4, 5.0), (0.0, 4.0), (0.0, 4.0), (0.4, 6.0))
    assert run_state.patience_count == 2


@pytest.mark.parametrize(("rows", "count"), [(DECISIVE, 3), (DECISIVE - 1, 0)])
def test_a_perfect_score_that_stays_so_is_no_improvement_however_the_loss_falls(rows: int, count: int) -> None:
    run_state = TrainingState()
    for step, (value, loss) in enumerate([(0.9, 0.5), (1.0, 0.4), (1.0, 0.3), (1.0, 0.2), (1.0, 0.1)], 1):
        run_state.step = step
        better, _ = record_validation(ACCURACY, {"accuracy": value, "loss": loss}, run_state, 0.1, rows=rows)
        assert better  # the loss still chooses the weights
    assert run_state.patience_count == count
    record_validation(ACCURACY, {"accuracy": 0.9, "loss": 0.05}, run_state, 0.1, rows=rows)
    assert run_state.patience_count == 0  # it did not stay perfect, and the loss falls


def test_what_is_not_finite_is_never_better() -> None:
    run_state, better = seen(ACCURACY, (math.nan, math.nan), (0.5, math.inf), (0.5, 1.0))
    assert better == [False, True, True] and run_state.lowest_loss == 1.0


@given(st.lists(st.tuples(VALUES, st.floats(0.001, 10)), min_size=1, max_size=20))
def test_the_best_is_the_first_of_the_best_by_score_and_then_by_loss(looks: list[tuple[float, float]]) -> None:
    run_state, _ = seen(ACCURACY, *looks)
    best = min(range(len(looks)), key=lambda at: (-looks[at][0], looks[at][1], at))
    assert run_state.best is not None and run_state.best.step == best + 1
    assert run_state.lowest_loss == min(loss for _, loss in looks)


def test_without_a_dev_part_the_last_weights_are_the_best() -> None:
    run_state = TrainingState(step=3)
    assert (
        record_validation(ACCURACY, {}, run_state, 0.1) == (True, True)
        and run_state.best is not None
        and run_state.best.step == 3
    )


def test_anything_finite_is_better_than_nothing() -> None:
    assert is_better(ACCURACY, {"accuracy": 0.0, "loss": 9.0}, None)
    assert not is_better(ACCURACY, {"accuracy": math.nan, "loss": 9.0}, None)
