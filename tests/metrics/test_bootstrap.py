"""Intervals against theory and against a plain resampling."""

import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from seqloom.metrics.bootstrap import SHARES, intervals, resampled_sums
from seqloom.metrics.figures import Retrieved
from seqloom.tasks.choosing import BY_TARGET


def mean(sums: np.ndarray) -> dict[str, np.ndarray]:
    return {"mean": sums[..., 0] / sums[..., 1]}


def accuracy(sums: np.ndarray) -> dict[str, np.ndarray]:
    return {"accuracy": mean(sums)["mean"]}


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


def test_rows_that_are_alike_leave_no_doubt_about_a_figure_that_is_no_share() -> None:
    assert intervals(np.ones((7, 2)), mean, resamples=20)["mean"] == (1.0, 1.0)


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("rows", [1, 3, 22, 1_000])
def test_a_share_of_nothing_or_all_has_the_interval_of_the_rule_of_three(share: float, rows: int) -> None:
    interval = intervals(coin(rows, share), accuracy, resamples=20)["accuracy"]
    far = min(1.0, 3 / rows)
    assert interval == pytest.approx((1 - far, 1) if share else (0, far), abs=0.01 * far)


def test_without_the_rule_of_three_a_share_of_all_looks_certain() -> None:
    assert intervals(coin(22, 1.0), accuracy, resamples=20, shares=())["accuracy"] == (1.0, 1.0)


def test_the_rule_of_three_covers_as_often_as_it_says() -> None:
    """If the share lay just beyond its end, fewer than one set of rows in twenty would be all right."""
    for rows in (5, 22, 100, 1_000):
        for level in (0.8, 0.95, 0.99):
            low, _ = intervals(coin(rows, 1.0), accuracy, resamples=2, level=level)["accuracy"]
            assert low**rows <= 1 - level
            if low > 0.9:
                assert low**rows == pytest.approx(1 - level, rel=0.2)


def test_rows_without_part_in_a_figure_do_not_make_it_surer() -> None:
    few = np.concatenate([np.ones((6, 2)), np.zeros((94, 2))])  # as spans: most sentences have none

    def found(sums: np.ndarray) -> dict[str, np.ndarray]:
        return {"f1": Retrieved(sums[..., 0], sums[..., 1], sums[..., 1]).f1}

    assert intervals(few, found, resamples=20)["f1"] == pytest.approx((1 - 3 / 6, 1), abs=0.01)


def test_every_metric_of_the_tasks_is_known_as_a_share_or_is_none() -> None:
    """A share left out of the table would look certain again; what is no share must not be in it."""
    no_shares = {"loss", "mse", "mae", "perplexity"}
    anything = cast(Any, SimpleNamespace(in_scheme=True))
    named = {name for kind in BY_TARGET.values() for name in kind.measure(anything, np.ones(kind.statistics))}
    assert named == SHARES | no_shares


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
