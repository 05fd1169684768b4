"""Rows of a table, looked up by their numbers: y_i = table[rows_i].

The gradient of a table is the sum of the gradients of its rows, wherever they were looked up. On a CPU, torch's kernel
makes a call of BLAS for each element; `index_add_` adds the same numbers in the same order in a third of the time.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import has_torch_function

from seqloom.nn.ops.transforms import is_transformed

SUMMED = (torch.float32, torch.float64)  # in smaller types the two kernels round differently


def look_up(rows: Tensor, table: Tensor) -> Tensor:
    """[..., D] the vectors of these rows."""
    watched = has_torch_function((table,)) or is_transformed()  # recorders of operations know embedding
    if rows.device.type != "cpu" or watched:
        return F.embedding(rows, table)
    found: Tensor = _LookedUp.apply(rows, table)  # type: ignore[no-untyped-call]
    return found


def summed_rows(rows: Tensor, vectors: Tensor, count: int) -> Tensor:
    """[count, D] for each row of a table the sum of the vectors [N,D] that belong to it, by its number [N]."""
    if vectors.dtype not in SUMMED:
        return torch.ops.aten.embedding_dense_backward(vectors, rows, count, -1, False)  # type: ignore[no-any-return]
    return vectors.new_zeros(count, vectors.shape[1]).index_add_(0, rows, vectors)


class _LookedUp(torch.autograd.Function):
    """`F.embedding` with another kernel for its gradient."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, table: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.save_for_forward(rows)
        ctx.count = len(table)
        return F.embedding(rows, table)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[None, Tensor]:
        (rows,) = ctx.saved_tensors
        return None, summed_rows(rows.flatten(), upstream.reshape(-1, upstream.shape[-1]), ctx.count)

    @staticmethod
    def jvp(ctx: Any, _: None, tangent: Tensor) -> Tensor:
        return F.embedding(ctx.saved_tensors[0], tangent)
