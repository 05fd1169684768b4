"""Intervals against theory and against a plain resampling."""

import tracemalloc

import numpy as np
import pytest

from seqloom.metrics.bootstrap import intervals, resampled_sums


def mean(sums: np.ndarray) -> dict[str, np.ndarray]:
    return {"mean": sums[..., 0] / sums[..., 1]}


def coin(rows: int, share: float) -> np.ndarray:
    return np.stack([np.arange(rows) < share * rows, np.ones(rows)], axis=1).astype(float)


def test_every_resample_draws_as_many_rows_as_there_are() -> None:
    sums = resampled_sums(coin(50, 0.3), 40, np.random.default_rng(0))
    assert (sums[:, 1] == 50).all()
    assert len(np.unique(sums[:, 0])) > 5


def test_the_interval_of_a_share_is_that_of_the_binomial_law() -> None:
    low, high = intervals(coin(2_000, 0.3), mean, resamples=1_000)["mean"]
    half = 1.96 * (0.3 * 0.7 / 2_000) ** 0.5
    assert low == pytest.approx(0.3 - half, abs=0.15 * half)
    assert high == pytest.approx(0.3 + half, abs=0.15 * half)


def test_a_higher_level_gives_a_wider_interval() -> None:
    narrow, wide = (intervals(coin(300, 0.5), mean, level=level)["mean"] for level in (0.5, 0.99))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_rows_that_are_alike_leave_no_doubt() -> None:
    assert intervals(np.ones((7, 2)), mean, resamples=20)["mean"] == (1.0, 1.0)


@pytest.mark.slow
def test_a_thousand_resamples_of_a_hundred_thousand_rows_need_little_memory() -> None:
    statistics = coin(100_000, 0.3)
    tracemalloc.start()
    try:
        intervals(statistics, mean, resamples=100)  # memory does not grow with the resamples: one is drawn at a time
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20
