"""The standard error of a paired difference, against the t-test, the bootstrap and itself."""

import math
from typing import Any

import numpy as np
import pytest

from seqloom.metrics.bootstrap import paired_differences


def added(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows.sum(axis=0))


def means(sums: np.ndarray) -> dict[str, np.ndarray]:
    return {"mean": sums[..., 0] / sums[..., 1]}


def figures(sums: np.ndarray) -> dict[str, np.ndarray]:
    """F1 and perplexity of rows of right, said, true; loss, weight."""
    right, said, true, loss, weight = np.moveaxis(sums, -1, 0)
    return {"f1": 2 * right / (said + true), "perplexity": np.exp(loss / weight)}


def tables(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The rows of two models, which are often wrong on the same examples."""
    draws = np.random.default_rng(seed)
    true, weight, hard = draws.integers(1, 5, rows), draws.integers(5, 30, rows), draws.random(rows)

    def table(skill: float) -> np.ndarray:
        right = draws.binomial(true, np.clip(skill * (1.3 - hard), 0, 1))
        loss = weight * (1 + hard + 0.2 * draws.random(rows)) / skill
        return np.stack([right, right + draws.poisson(0.5, rows), true, loss, weight], axis=1).astype(float)

    return table(0.8), table(0.75)


@pytest.mark.parametrize("rows", [2, 17, 500])
def test_of_a_mean_the_error_is_that_of_a_paired_t_test(rows: int) -> None:
    draws = np.random.default_rng(rows)
    first, second = (np.stack([draws.random(rows), np.ones(rows)], axis=1) for _ in range(2))
    found = paired_differences(first, second, added, means)["mean"]
    gaps = first[:, 0] - second[:, 0]
    assert found.value == pytest.approx(gaps.mean())
    assert found.error == pytest.approx(gaps.std(ddof=1) / math.sqrt(rows))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["f1", "perplexity"])
@pytest.mark.parametrize("rows", [300, 1_203])
def test_of_other_figures_it_is_that_of_a_paired_bootstrap(name: str, rows: int) -> None:
    first, second = tables(rows)
    found = paired_differences(first, second, added, figures)[name]
    draws = np.random.default_rng(1)
    drawn = draws.integers(0, rows, (2_000, rows))
    resampled = figures(first[drawn].sum(axis=1))[name] - figures(second[drawn].sum(axis=1))[name]
    assert found.error == pytest.approx(resampled.std(), rel=0.12)


def test_it_is_much_smaller_than_without_pairs() -> None:
    first, second = tables(400)
    paired = paired_differences(first, second, added, figures)["perplexity"].error
    alone = [paired_differences(one, np.ones_like(one), added, figures)["perplexity"].error for one in (first, second)]
    assert paired < 0.5 * math.hypot(*alone)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [40, 64])  # of 100 rows: two and three in a group, one and two
def test_groups_of_different_sizes_leave_it_right_on_the_average(groups: int) -> None:
    squares: Any = {"each": [], "groups": []}
    for seed in range(200):
        first, second = tables(100, seed)
        squares["each"].append(paired_differences(first, second, added, figures)["f1"].error ** 2)
        squares["groups"].append(paired_differences(first, second, added, figures, groups=groups)["f1"].error ** 2)
    assert np.mean(squares["groups"]) == pytest.approx(np.mean(squares["each"]), rel=0.04)


def test_a_figure_that_is_infinite_has_no_error() -> None:
    first, second = tables(20)
    found = paired_differences(first, second, added, lambda sums: {"x": np.full(sums.shape[:-1], math.inf)})["x"]
    assert math.isnan(found.value) and math.isnan(found.error)
