"""AdamW that changes only those rows of a table of vectors whose gradient is not zero: those of the batch's tokens.

    row r of a table:      g_r = 0:  w_r, m_r and v_r stay         else:  the step of AdamW
    all other weights:     the step of AdamW

AdamW itself moves every row in every step: averages of old gradients and decay go on where there is no gradient. In a
table of 44,000 words a batch has gradients for two or three thousand rows, so most of that work is for words that are
not there. Here the moments of a rare word are averages over the batches that have it, and so is its decay; the
bias correction counts all steps, as in AdamW (the usual "lazy" Adam).

On a CPU a table gives its gradient as rows (torch's sparse tensors), so no tensor of the table's size is made or read.
With several processes, or compiled, the gradient is dense; the rows that change, and their values, are the same.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.adamw import adamw

from seqloom.nn.inputs import Lookup
from seqloom.training.split_optimizer import SplitOptimizer


class TouchedRows(NamedTuple):
    """The rows of a gradient that are not zero."""

    rows: Tensor  # [N]
    values: Tensor  # [N,D]

    @classmethod
    def of(cls, gradient: Tensor) -> "TouchedRows":
        """The rows of a dense or sparse gradient.

        >>> dense = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
        >>> TouchedRows.of(dense).rows.tolist(), TouchedRows.of(dense.to_sparse(1)).rows.tolist()
        ([1, 2], [1, 2])
        """
        summed = gradient.coalesce() if gradient.is_sparse else None
        values = gradient if summed is None else summed.values()
        touched = (values.abs().amax(dim=1) != 0).nonzero()[:, 0]
        rows = touched if summed is None else summed.indices()[0].index_select(0, touched)
        return cls(rows, values.index_select(0, touched))  # on a CPU much faster than an index in brackets


def lookup_tables(model: nn.Module) -> list[Tensor]:
    """The tables of vectors that are only looked up: not those that a head uses too, whose rows all have gradients."""
    found: dict[int, Tensor] = {}
    elsewhere = set[int]()
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            if isinstance(module, Lookup) and name == "table":
                found[id(weight)] = weight
            else:
                elsewhere.add(id(weight))
    return [table for table in found.values() if table.requires_grad and id(table) not in elsewhere]


def give_rows(model: nn.Module, tables: list[Tensor]) -> None:
    """Let the gradients of these tables be sparse: one row for each token that was looked up."""
    for module in model.modules():
        if isinstance(module, Lookup):
            module.sparse = any(module.table is table for table in tables)


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
            found_inf=self.found_inf if fused else None,
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
