"""Calibration against a plain loop, and temperatures that can only help."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from seqloom.metrics.calibration import Calibration, best_temperature, binned, calibration_error, cross_fitted


def plain_error(sure: np.ndarray, right: np.ndarray) -> float:
    """The definition: fifteen bins (lower, upper], one after another."""
    error, edges = 0.0, np.linspace(0, 1, 16)
    for lower, upper in pairwise(edges):
        inside = (sure > lower) & (sure <= upper) if lower else sure <= upper
        if inside.any():
            error += inside.mean() * abs(sure[inside].mean() - right[inside].mean())
    return error


PROBABILITY = st.one_of(st.floats(0, 1), st.sampled_from([number / 15 for number in range(16)]))


@settings(max_examples=100)
@given(st.lists(st.tuples(PROBABILITY, st.booleans()), min_size=1, max_size=40))
def test_the_error_is_that_of_a_plain_loop_over_bins(answers: list[tuple[float, bool]]) -> None:
    sure, right = np.array([one for one, _ in answers]), np.array([float(one) for _, one in answers])
    found = float(calibration_error(binned(sure, right, np.ones(len(sure)))))
    assert found == pytest.approx(plain_error(sure, right), abs=1e-12)


def test_nothing_answered_has_no_error() -> None:
    assert float(calibration_error(binned(np.empty(0), np.empty(0), np.empty(0)))) == 0.0


def softmax(scores: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    scaled = scores / temperature
    powers = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def summed_loss(scores: np.ndarray, true: np.ndarray, temperature: float) -> float:
    scaled = scores / temperature
    highest = scaled.max(axis=1, keepdims=True)
    logs = scaled - highest - np.log(np.exp(scaled - highest).sum(axis=1, keepdims=True))
    return -float(logs[np.arange(len(true)), true].sum())


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.floats(0.05, 30))
def test_a_temperature_never_raises_the_loss_and_changes_no_answer(seed: int, rows: int, scale: float) -> None:
    draws = np.random.default_rng(seed)
    scores, true = draws.normal(size=(rows, 3)) * scale, draws.integers(0, 3, rows)

    def loss(temperature: float) -> float:
        return summed_loss(scores, true, temperature)

    temperature = best_temperature(loss)
    assert 0 < temperature < 25
    assert loss(temperature) <= loss(1.0)
    assert (softmax(scores, temperature).argmax(axis=1) == scores.argmax(axis=1)).all()
    assert best_temperature(loss) == temperature


def test_the_temperature_that_spoilt_the_scores_is_found() -> None:
    draws = np.random.default_rng(0)
    scores = draws.normal(size=(4_000, 4)) * 2
    true = np.array([draws.choice(4, p=row) for row in softmax(scores)])
    sure = 3 * scores  # three times too sure

    def loss(temperature: float) -> float:
        return summed_loss(sure, true, temperature)

    assert loss(1.5) / len(true) == pytest.approx(log_loss(true, softmax(sure, 1.5)))
    assert best_temperature(loss) == pytest.approx(3, rel=0.06)
    before, after = (softmax(sure, temperature) for temperature in (1.0, best_temperature(loss)))
    errors = [
        float(calibration_error(binned(one.max(axis=1), one.argmax(axis=1) == true, np.ones(len(true)))))
        for one in (before, after)
    ]
    assert errors[1] < 0.03 < 0.1 < errors[0]


def test_where_no_temperature_is_better_scores_stand_as_they_are() -> None:
    assert best_temperature(lambda _: 3.0) == 1.0
    assert best_temperature(lambda temperature: 10 * np.log(temperature) ** 2) == 1.0


def test_a_few_rows_that_are_all_right_make_a_model_only_a_little_surer() -> None:
    scores, true = np.array([[2.0, 0.0]] * 6), np.zeros(6, np.int64)
    temperature = best_temperature(lambda one: summed_loss(scores, true, one))
    assert 0.5 < temperature < 1


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(0, 1_000), st.randoms(use_true_random=False))
def test_no_row_has_part_in_how_it_is_read_and_halves_stay_whatever_the_order(count: int, first: int, draws) -> None:
    def by_row(start: int, order: list[int]) -> list[tuple[float, ...]]:
        """The places in the part, 0 for the first row, of the rows that found the calibration of each row."""
        ids = [str(start + place) for place in order]
        found = cross_fitted(ids, lambda rows: Calibration(1.0, tuple(sorted(float(order[row]) for row in rows))))
        assert found.shipped.thresholds == tuple(range(count))
        return [found.rows[str(start + place)].thresholds for place in range(count)]

    shuffled = draws.sample(range(count), count)
    others = by_row(0, list(range(count)))
    assert others == by_row(first, shuffled)
    halves = [set(range(count)) - set(other) for other in others]
    assert all(place in half and abs(count - 2 * len(half)) <= 1 for place, half in enumerate(halves))
    assert len({frozenset(half) for half in halves}) == min(count, 2)


@given(st.floats(0.2, 5), st.floats(0.05, 0.95), st.floats(-4, 4))
def test_thresholds_of_plain_probabilities_say_the_same(temperature: float, threshold: float, score: float) -> None:
    plain = Calibration(temperature, (threshold,)).untempered
    likely, tempered = 1 / (1 + np.exp(-score)), 1 / (1 + np.exp(-score / temperature))
    if abs(tempered - threshold) > 1e-6:
        assert (likely > plain.thresholds[0]) == (tempered > threshold)
