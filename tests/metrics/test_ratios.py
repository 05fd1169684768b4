"""Figures made of sums, against their definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.metrics.bootstrap import perplexity, ratio
from seqloom.metrics.classification import Retrieved

COUNTS = st.integers(0, 1_000)


@settings(max_examples=50)
@given(COUNTS, COUNTS, COUNTS)
def test_f1_is_the_harmonic_mean_of_precision_and_recall(right: int, more_said: int, more_true: int) -> None:
    found = Retrieved(*(np.array(float(count)) for count in (right, right + more_said, right + more_true)))
    precision, recall = float(found.precision), float(found.recall)
    expected = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    assert float(found.f1) == pytest.approx(expected)
    assert 0 <= expected <= 1


def test_nothing_of_nothing_is_nothing_and_no_warning() -> None:
    assert ratio(np.zeros(3), np.array([0.0, 2.0, 0.0])).tolist() == [0, 0, 0]


@settings(max_examples=30)
@given(st.floats(0, 1e12))
def test_perplexity_is_the_power_of_the_loss_and_always_finite(loss: float) -> None:
    value = float(perplexity(np.array(loss)))
    assert math.isfinite(value)
    if loss < 600:
        assert value == pytest.approx(math.exp(loss))
