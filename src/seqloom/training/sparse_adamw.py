"""AdamW that changes only those rows of a table of vectors whose gradient is not zero: those of the batch's tokens.

    row r of a table:      g_r = 0:  w_r, m_r and v_r stay         else:  the step of AdamW
    all other weights:     the step of AdamW

AdamW itself moves every row in every step: averages of old gradients and decay go on where there is no gradient. In a
table of 44,000 words a batch has gradients for two or three thousand rows, so most of that work is for words that are
not there. Here the moments of a rare word are averages over the batches that have it, and so is its decay; the
bias correction counts all steps, as in AdamW (the usual "lazy" Adam).

Gradients come as rows (`table_gradients`), so no tensor of the table's size is made or read. With several processes, or
compiled, the gradient is dense; the rows that change, and their values, are the same.
"""

from typing import Any, NamedTuple

from torch import Tensor
from torch.optim import AdamW
from torch.optim.adamw import adamw

from seqloom.training.split_optimizer import SplitOptimizer
from seqloom.training.table_gradients import each_row_once


class TouchedRows(NamedTuple):
    """The rows of a gradient that are not zero."""

    rows: Tensor  # [N]
    values: Tensor  # [N,D]

    @classmethod
    def of(cls, gradient: Tensor) -> "TouchedRows":
        """The rows of a dense or sparse gradient.

        >>> import torch
        >>> dense = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
        >>> TouchedRows.of(dense).rows.tolist(), TouchedRows.of(dense.to_sparse(1)).rows.tolist()
        ([1, 2], [1, 2])
        """
        summed = each_row_once(gradient) if gradient.is_sparse else None
        values = gradient if summed is None else summed.values()
        touched = (values.abs().amax(dim=1) != 0).nonzero()[:, 0]
        rows = touched if summed is None else summed.indices()[0].index_select(0, touched)
        return cls(rows, values.index_select(0, touched))  # on a CPU much faster than an index in brackets


class SparseAdamW(SplitOptimizer):
    """AdamW of touched rows for some tables, AdamW for all other weights."""

    def __init__(self, groups: list[dict[str, Any]], rest: AdamW | None, *, lr: float) -> None:
        super().__init__(groups, rest, {"lr": lr})

    def move(self, weight: Tensor, group: dict[str, Any]) -> None:
        """Change the rows of a table that have a gradient."""
        assert weight.grad is not None
        rows, values = TouchedRows.of(weight.grad)
        state, fused = self.state[weight], group["fused"]
        whole = [weight, state["exp_avg"], state["exp_avg_sq"]]
        vectors, average, average_square = parts = [tensor.index_select(0, rows) for tensor in whole]
        adamw(
            [vectors],
            [values],
            [average],
            [average_square],
            [],
            [state["step"]],
            foreach=False,
            fused=fused,
            grad_scale=self.grad_scale if fused else None,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )
        for tensor, part in zip(whole, parts, strict=True):
            tensor.index_copy_(0, rows, part)
