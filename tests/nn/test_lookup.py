"""The faster kernels for looked up rows and for padding give what torch's own give."""

import pytest
import torch
from torch import Tensor

from seqloom.config.mixers import PoolConfig
from seqloom.nn.mixers.pool import Pool
from seqloom.nn.ops.lookup import look_up
from seqloom.nn.types import LARGE_BATCH, Padded


def gradient(found: Tensor, table: Tensor, upstream: Tensor) -> Tensor:
    (wanted,) = torch.autograd.grad(found, table, upstream)
    return wanted


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("count", "shape", "width"), [(7, (3, 5), 4), (500, (40, 30), 10), (50, (0, 3), 2)])
def test_looked_up_rows_and_their_gradient_are_those_of_torch(
    count: int, shape: tuple[int, ...], width: int, dtype: torch.dtype
) -> None:
    table = torch.randn(count, width, dtype=dtype, requires_grad=True)
    rows, upstream = torch.randint(0, count, shape), torch.randn(*shape, width, dtype=dtype)
    found, wanted = look_up(rows, table), torch.nn.functional.embedding(rows, table)
    assert torch.equal(found, wanted)
    assert torch.equal(gradient(found, table, upstream), gradient(wanted, table, upstream))


def test_the_gradient_of_looked_up_rows_has_a_gradient() -> None:
    rows, table = torch.tensor([[0, 2, 2], [1, 0, 2]]), torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda weights: look_up(rows, weights) ** 2, (table,))


@pytest.mark.parametrize("width", [(), (3,), (LARGE_BATCH,), (LARGE_BATCH // 4, 2)], ids=str)
@pytest.mark.parametrize("lengths", [(4, 1, 0), (4, 4, 3), (0, 0, 0)], ids=str)
def test_the_padding_of_a_batch_of_any_size_is_zero(width: tuple[int, ...], lengths: tuple[int, ...]) -> None:
    values = torch.randn(3, 4, *width).requires_grad_()
    x = Padded(values.detach(), torch.tensor(lengths))
    beyond = ~x.valid.view(3, 4, *(1,) * len(width))
    for given in (values, values.transpose(0, 1).contiguous().transpose(0, 1), values[:, :1].expand_as(values)):
        found, wanted = x.with_values(given).values, given.masked_fill(beyond, 0)
        assert torch.equal(found, wanted)
        upstream = torch.randn_like(found)
        assert torch.equal(gradient(found, values, upstream), gradient(wanted, values, upstream))


@pytest.mark.parametrize("how", ["mean", "sum", "max"])
def test_a_pool_ignores_what_stands_in_the_padding(how: str) -> None:
    values = torch.randn(2, 3, 4)
    x = Padded.of(values, torch.tensor([3, 1]))
    pool = Pool(PoolConfig(how=how), 4)  # type: ignore[arg-type]
    assert torch.equal(pool(x.with_any(values)).values, pool(x).values)


def large() -> Padded:
    """A batch with padding, so large that its places are found."""
    x = torch.randn(3, 4, LARGE_BATCH, requires_grad=True)
    return Padded(x, torch.tensor([4, 2, 1])).laid_out()


def test_values_whose_padding_is_known_to_be_zero_are_not_copied() -> None:
    x = large()
    y = x.with_values(x.values)
    assert y.values is not x.values and y.with_values(y.values).values is y.values
    kept = y.with_kept_zeros(y.values * 2)
    assert kept.with_values(kept.values).values is kept.values
    free = x.with_kept_zeros(x.values * 2)  # nothing is known of the padding of x
    assert (
        free.with_values(free.values).values is not free.values
        and free.with_values(free.values).values[1, 2:].eq(0).all()
    )


@pytest.mark.parametrize("inference", [False, True])
def test_values_that_were_changed_in_place_are_zeroed_again(inference: bool) -> None:
    with torch.inference_mode(inference), torch.no_grad():
        x = large()
        y = x.with_values(x.values)
        y.values.add_(1)
        assert y.with_values(y.values).values[2, 1:].eq(0).all()


def test_other_lengths_zero_other_padding() -> None:
    x = large()
    y = x.with_values(x.values)
    shorter = y._replace(lengths=torch.tensor([1, 1, 1]))
    assert shorter.with_values(y.values).values[:, 1:].eq(0).all()


def test_repeated_values_are_zeroed_in_a_copy_and_their_gradient_too() -> None:
    x = large()
    summary = x.values.detach()[:, 0].requires_grad_()
    y = x.with_values(summary[:, None].expand_as(x.values))
    y.values.sum().backward()
    assert summary.grad is not None and summary.grad[:, 0].tolist() == [4, 2, 1]
    assert summary.ne(0).all() and y.values[2, 1:].eq(0).all()


def test_the_gradient_of_kept_zeros_is_zero_in_the_padding_of_what_was_zeroed() -> None:
    x = large()
    y = x.with_values(x.values)
    kept = y.with_kept_zeros(y.values * 2)
    kept.with_values(kept.values).values.sum().backward()
    assert x.values.grad is not None and x.values.grad[:, :, 0].tolist() == [[2, 2, 2, 2], [2, 2, 0, 0], [2, 0, 0, 0]]
