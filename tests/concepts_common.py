"""What the tests of the lectures' worked numbers share: tolerance and requests for attention."""

from typing import Any

import torch
from torch import Tensor

from seqloom.nn.ops.attention import Request
from seqloom.nn.types import Places

ROUNDING = {"rtol": 1e-13, "atol": 1e-14}  # float64, a formula computed in another order


def request(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Request:
    """Attention between whole sequences whose elements stand at 0, 1, 2, ..."""

    def places(count: int) -> Places:
        steps = torch.arange(count).expand(len(query), count)
        return Places(steps, torch.zeros_like(steps), torch.ones_like(steps, dtype=torch.bool))

    asked = Request(query, key, value, places(query.shape[2]), places(key.shape[2]), aligned=True, **options)
    assert torch.equal(asked.rows(0, 1).query_places.positions, torch.zeros(len(query), 1, dtype=torch.int64))
    return asked


def triple(batch: int = 2, heads: int = 2, time: int = 5, width: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.randn(batch, heads, time, width, requires_grad=True) for _ in range(3))
