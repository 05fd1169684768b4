"""Pearson's correlation from sums against numpy."""

import numpy as np
import pytest

from seqloom.metrics.correlation import correlation, correlation_statistics


def found(x: np.ndarray, y: np.ndarray) -> float:
    return float(correlation(correlation_statistics(x, y).sum(axis=0), np.array(float(len(x)))))


@pytest.mark.parametrize("seed", range(5))
def test_it_is_that_of_numpy(seed: int) -> None:
    draw = np.random.default_rng(seed)
    x = draw.normal(size=50)
    y = draw.normal(size=50) * 3 + x * draw.normal() + 2
    assert found(x, y) == pytest.approx(float(np.corrcoef(x, y)[0, 1]), abs=1e-12)


def test_sums_of_many_resamples_are_taken_at_once() -> None:
    draw = np.random.default_rng(0)
    x, y, times = draw.normal(size=20), draw.normal(size=20), draw.integers(0, 4, size=(3, 20))
    sums, counts = times @ correlation_statistics(x, y), times.sum(axis=1)
    each = [found(np.repeat(x, some), np.repeat(y, some)) for some in times]
    np.testing.assert_allclose(correlation(sums, counts), each)


@pytest.mark.parametrize("same", [0.0, 0.1, 1e6])
def test_what_never_changes_is_correlated_with_nothing(same: float) -> None:
    assert found(np.full(7, same), np.arange(7.0)) == 0.0
    assert found(np.arange(7.0), np.full(7, same)) == 0.0
