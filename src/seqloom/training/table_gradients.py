"""Gradients of large tables of vectors as rows: a batch of 8,192 tokens has some thousand of 44,000 words.

    dense     zeros for all words ──▶ add the vectors of the batch ──▶ norm, step
    rows      the vectors of the batch ──▶ norm of these ──▶ `spread` ──▶ step ──▶ `clear`

A fresh dense gradient of a large table is new memory in every step, whose pages the system has to map and fill with
zeros. As rows (torch's sparse tensors), the gradient is copied into memory that is kept, and removed from it after the
step. The optimizer sees the same numbers; with several micro-batches, up to the order of additions.
"""

from typing import Any

import torch
from torch import Tensor, nn

from seqloom.nn.inputs import Lookup
from seqloom.nn.ops.lookup import summed_rows

LARGE = 2**23  # weights of a table: from 32 MiB on, malloc returns the memory of each gradient to the system


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
    """Let the gradients of these tables be sparse, with a row for each token that is looked up; of others, dense."""
    for module in model.modules():
        if isinstance(module, Lookup):
            module.sparse = any(module.table is table for table in tables)


def each_row_once(gradient: Tensor) -> Tensor:
    """A sparse gradient in which the vectors of a token that was looked up several times are added.

    They are added in the order of a dense gradient: `coalesce` of torch has another one.
    """
    if gradient.is_coalesced():
        return gradient
    rows, places = torch.unique(gradient._indices()[0], return_inverse=True)
    values = summed_rows(places, gradient._values(), len(rows))
    return torch.sparse_coo_tensor(rows[None], values, gradient.shape, is_coalesced=True, check_invariants=False)


class RowGradients:
    """The dense gradients of tables, for an optimizer that needs them, in memory that is kept from step to step."""

    def __init__(self, tables: list[Tensor]) -> None:
        self._dense = [(table, torch.zeros_like(table, requires_grad=False)) for table in tables]
        self._written = list[tuple[Tensor, Tensor]]()  # a gradient, and the rows in it

    def spread(self, *_: Any) -> None:
        """Make the gradients dense; before the optimizer's step."""
        for table, dense in self._dense:
            if table.grad is not None:
                summed = each_row_once(table.grad)
                rows = summed.indices()[0]
                dense.index_copy_(0, rows, summed.values())
                self._written.append((dense, rows))
                table.grad = dense

    def clear(self, *_: Any) -> None:
        """Remove the rows; after the step."""
        for dense, rows in self._written:
            dense.index_fill_(0, rows, 0.0)
        self._written.clear()
        for table, _dense in self._dense:
            table.grad = None
