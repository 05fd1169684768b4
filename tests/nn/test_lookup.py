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
