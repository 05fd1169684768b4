"""Dropout by 16 random bits: the law of dropout, a function of the seed, and torch's kernel where it does not apply."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from seqloom.nn.ops.dropout import Dropout, dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_elements_are_dropped_at_the_rate_independently_and_the_mean_stays(rate: float) -> None:
    torch.manual_seed(0)
    y = dropout(torch.ones(400, 501), rate)
    kept = (y != 0).double()
    error = (rate * (1 - rate) / kept.numel()) ** 0.5
    assert abs(1 - rate - kept.mean()) < 4 * error
    assert_close(y[y != 0].unique(), torch.tensor([1 / (1 - rate)]), rtol=1e-4, atol=0.0)
    for left, right in ((kept[:, 1:], kept[:, :-1]), (kept[:, 4:], kept[:, :-4]), (kept[1:], kept[:-1])):
        covariance = (left * right).mean() - left.mean() * right.mean()
        assert abs(covariance) < 4 * rate * (1 - rate) / left.numel() ** 0.5


def test_the_gradient_has_the_same_mask_and_the_seed_decides_it() -> None:
    x = torch.randn(7, 9, requires_grad=True)
    torch.manual_seed(3)
    y = dropout(x, 0.4)
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert_close(y, x * slope)
    torch.manual_seed(3)
    assert torch.equal(dropout(x, 0.4), y)
    assert not torch.equal(dropout(x, 0.4), y)


def test_second_derivatives_pass_through() -> None:
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)

    def once(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return dropout(x**3, 0.5)

    assert torch.autograd.gradgradcheck(once, x)


@pytest.mark.parametrize("rate", [0.0, 1e-4, 1.0])
def test_extreme_rates_are_those_of_torch(rate: float) -> None:
    x = torch.randn(50)
    torch.manual_seed(0)
    y = dropout(x, rate)
    torch.manual_seed(0)
    assert torch.equal(y, F.dropout(x, rate))
    assert Dropout(0.5).eval()(x) is x
