"""Distances have their known answers, and Kendall's tau is that of scipy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from seqloom.inspect.faithfulness.explanations import divergence, jensen_shannon, kendall, overlap, total_variation

ONE, OTHER = torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([0.0, 1.0], dtype=torch.float64)
COLUMNS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=40)


def test_distances_of_equal_and_of_disjoint_distributions_are_exact() -> None:
    assert float(jensen_shannon(ONE, OTHER)) == pytest.approx(math.log(2), abs=1e-15)
    assert float(total_variation(ONE, OTHER)) == 1.0
    even = torch.full((5,), 0.2)
    assert float(total_variation(even, even)) == float(jensen_shannon(even, even)) == float(divergence(even, even)) == 0


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_distances_lie_in_their_ranges_and_are_symmetric(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    p, q = torch.rand(2, 7, generator=draw, dtype=torch.float64).pow(4).softmax(dim=-1)
    assert 0 <= float(total_variation(p, q)) <= 1
    assert 0 <= float(jensen_shannon(p, q)) <= math.log(2)
    torch.testing.assert_close(jensen_shannon(p, q), jensen_shannon(q, p))
    assert float(divergence(p, q)) >= -1e-12


def test_masked_positions_give_no_nan_in_value_or_gradient() -> None:
    """0 log 0 is 0: KLDivLoss gives NaN there."""
    a = torch.tensor([0.5, 0.5, 0.0], requires_grad=True)
    b = torch.tensor([0.9, 0.1, 0.0], requires_grad=True)
    found = jensen_shannon(a, b)
    slopes = torch.autograd.grad(found, [a, b])
    assert torch.isfinite(found) and all(torch.isfinite(slope).all() for slope in slopes)


@settings(max_examples=25)
@given(COLUMNS)
def test_kendall_is_that_of_scipy_with_ties(pairs: list[tuple[int, int]]) -> None:
    x, y = np.array(pairs, dtype=float).T
    found = kendall(x, y)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert found is None
        return
    expected = kendalltau(x, y, method="asymptotic")
    assert found is not None
    assert found.value == pytest.approx(expected.statistic, abs=1e-12)
    assert found.chance == pytest.approx(expected.pvalue, abs=1e-9)


def test_kendall_of_a_long_column_is_that_of_scipy() -> None:
    x, y = np.random.default_rng(0).random((2, 1500))
    found = kendall(x, x + y)
    assert found is not None and found.value == pytest.approx(kendalltau(x, x + y).statistic, abs=1e-12)


def test_tau_of_a_column_with_itself_and_with_its_negative() -> None:
    x = np.random.default_rng(0).random(9)
    same, turned = kendall(x, x), kendall(x, -x)
    assert same is not None and same.value == 1.0
    assert turned is not None and turned.value == -1.0
    assert kendall(x[:2], x[:2]) is None, "two tokens have no order to speak of"


def test_overlap_of_the_top_tenth() -> None:
    x = np.arange(20.0)
    assert overlap(x, x) == 1.0
    assert overlap(x, -x) == 0.0
    assert overlap(x, np.where(x == 19, 0.0, x)) == 0.5
