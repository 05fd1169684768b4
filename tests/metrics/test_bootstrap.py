"""Intervals against theory and against a plain resampling."""

import tracemalloc

import numpy as np
import pytest

from seqloom.data.schema import Schema
from seqloom.metrics.bootstrap import SHARES, intervals, resampled_sums
from seqloom.metrics.classification import Retrieved
from seqloom.metrics.correlation import spearman
from seqloom.tasks.classify import Classify, ClassifySeveral
from seqloom.tasks.regress import Regress
from seqloom.tasks.task import ModelSpec


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


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1])
def test_rows_that_are_alike_have_no_interval_of_a_figure_that_is_no_share(value: float) -> None:
    alike = np.tile([value, 1.0], (7, 1))
    assert intervals(alike, mean, resamples=20) == {}
    assert intervals(np.ones((7, 2)), lambda _: {}, rows=order, resamples=20) == {}


def test_one_row_has_no_interval_not_even_of_a_share() -> None:
    assert intervals(np.ones((1, 2)), accuracy) == {}


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("rows", [3, 22, 1_000])
def test_a_share_of_nothing_or_all_has_the_interval_of_the_rule_of_three(share: float, rows: int) -> None:
    interval = intervals(coin(rows, share), accuracy, resamples=20)["accuracy"]
    far = min(1.0, 3 / rows)
    assert interval == pytest.approx((1 - far, 1) if share else (0, far), abs=0.01 * far)


def test_without_the_rule_of_three_a_share_of_all_has_no_interval() -> None:
    assert intervals(coin(22, 1.0), accuracy, resamples=20, shares=()) == {}


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
    no_shares = {"loss", "mse", "rmse", "mae", "r2", "calibration_error"}
    kinds = {"label": Classify, "labels": ClassifySeveral, "numbers": Regress}
    tasks = [make(ModelSpec(Schema("text", kind, ("a", "b")), None, None, numbers=1)) for kind, make in kinds.items()]  # type: ignore[arg-type]
    named = {name for task in tasks for name in task.measure(task.summed(np.zeros((0, task.statistics))))}
    assert named - SHARES == no_shares
    assert {"accuracy", "f1", "macro_f1", "precision", "recall"} <= SHARES


def order(rows: np.ndarray) -> dict[str, float]:
    return {"spearman": spearman(rows[:, 0], rows[:, 1])}


@pytest.mark.slow
def test_a_figure_of_rows_has_the_interval_of_a_plain_resampling() -> None:
    draws = np.random.default_rng(0)
    x = draws.normal(size=80)
    rows = np.stack([x, x + draws.normal(size=80)], axis=1)
    found = intervals(rows, lambda _: {}, rows=order, resamples=400)["spearman"]
    plain = [order(rows[draws.integers(0, 80, 80)])["spearman"] for _ in range(2_000)]
    assert found == pytest.approx(tuple(np.quantile(plain, [0.025, 0.975])), abs=0.04)
    assert intervals(rows, lambda _: {}, rows=order, resamples=400)["spearman"] == found


def test_an_interval_holds_its_figure_even_where_resamples_are_all_larger() -> None:
    def unevenness(sums: np.ndarray) -> dict[str, np.ndarray]:
        return {"far": np.abs(sums - 1).max(axis=-1)}

    low, high = intervals(np.eye(40), unevenness, resamples=100)["far"]  # no draw of 40 rows has each of them once
    assert low == 0.0 < 1.0 <= high


def test_the_way_to_add_rows_up_may_be_that_of_a_task() -> None:
    task = Classify(ModelSpec(Schema("text", "label", ("a", "b")), None, None))
    draws = np.random.default_rng(1)
    numbers = draws.integers(0, 2, (60, 2))
    rows = np.concatenate([numbers, draws.uniform(0.5, 1, (60, 1)), np.ones((60, 2))], axis=1)
    drawn = intervals(rows, task.measure, summed=task.summed, resamples=300)
    right = np.stack([numbers[:, 0] == numbers[:, 1], np.ones(60)], axis=1).astype(float)
    assert drawn["accuracy"] == intervals(right, accuracy, resamples=300)["accuracy"]


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
