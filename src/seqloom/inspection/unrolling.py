"""Recurrences element by element: the state after each, with gradients through all that comes later.

A fused kernel gives the outputs h_1..h_T as one tensor, and the gradient at it is only what comes from above: what a
state does to the states after it stays inside the kernel. Here the cell itself is listened to, one element at a time:

    dL/dh_t = dL/dh_t (from above) + dh_{t+1}/dh_t' dL/dh_{t+1}       the total, and of an LSTM that of c_t beside it
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from seqloom.mixers.recurrent import Recurrent
from seqloom.operators.kernels import using
from seqloom.operators.recurrence import Cell, Memory


@contextmanager
def unrolled(model: nn.Module) -> Iterator[dict[str, list[Memory]]]:
    """Inside the `with`, recurrences go element by element, and the states of each are kept by its path, in order."""
    recurrences = {name: module for name, module in model.named_modules() if isinstance(module, Recurrent)}
    cells = {name: module.cell for name, module in recurrences.items()}
    states: dict[str, list[Memory]] = {name: [] for name in recurrences}
    try:
        for name, module in recurrences.items():
            module.cell = _listened(cells[name], states[name])
        with using(recurrence="plain"):
            yield states
    finally:
        for name, module in recurrences.items():
            module.cell = cells[name]


def _listened(cell: Cell, states: list[Memory]) -> Cell:
    def update(fed: Tensor, kept: Tensor, state: Memory) -> Memory:
        after = cell.update(fed, kept, state)
        states.append(after)
        return after

    return cell._replace(update=update)
