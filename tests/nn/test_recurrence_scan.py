"""Elman networks and GRUs with gradients in closed form: equal to the plain recurrence, or refused."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seqloom.errors import KernelError
from seqloom.nn.ops.kernels import using
from seqloom.nn.ops.recurrence import ELMAN_RELU, ELMAN_TANH, GRU, LSTM, Cell, Weights, choose, plain, recur
from seqloom.nn.ops.recurrence_scan import scan
from seqloom.nn.types import Padded

CELLS = {"tanh": ELMAN_TANH, "relu": ELMAN_RELU, "gru": GRU}


def drawn(cell: Cell, *, width: int = 3, inputs: int = 4) -> Weights:
    gates, generator = max(1, len(cell.gates)), torch.Generator().manual_seed(0)

    def tensor(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    rows = gates * width
    return Weights(tensor(rows, inputs), tensor(rows, width), tensor(rows), tensor(rows))


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_gradients_are_those_of_the_function(name: str) -> None:
    cell, weights = CELLS[name], drawn(CELLS[name])
    torch.manual_seed(0)
    values, start = torch.randn(2, 5, 4, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    inputs = (values.requires_grad_(), start.requires_grad_(), *weights)
    assert torch.autograd.gradcheck(lambda x, h, *w: scan(cell.scan, x, h, w), inputs)  # type: ignore[arg-type]


@pytest.mark.parametrize("lengths", [[4, 4, 4], [4, 0, 2]])
@pytest.mark.parametrize("name", CELLS)
def test_outputs_states_and_gradients_equal_the_plain_recurrence(name: str, lengths: list[int]) -> None:
    cell, weights = CELLS[name], drawn(CELLS[name])
    torch.manual_seed(0)
    values, start = torch.randn(3, 4, 4, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64).requires_grad_()
    values.requires_grad_()
    found = []
    for kernel in ("scan", "plain"):
        x = Padded.of(values, torch.tensor(lengths))
        with using(recurrence=kernel):
            outputs, (last,) = recur(cell, x, (start,), weights)
        outputs = x.with_values(outputs).values
        total = outputs.square().sum() + (last * torch.arange(3)).sum()
        found.append((outputs, last, *torch.autograd.grad(total, [values, start, *weights])))
    assert_close(*found)


def test_inference_is_the_same_without_gradients() -> None:
    weights, x, start = drawn(GRU), Padded.of(torch.randn(2, 3, 4, dtype=torch.float64)), torch.zeros(2, 3).double()
    with torch.no_grad():
        assert_close(recur(GRU, x, (start,), weights)[0], plain(GRU, x, (start,), weights)[0])


def test_the_kernel_is_chosen_on_the_cpu_and_says_why_not_elsewhere() -> None:
    values, weights = torch.zeros(1, 1, 4, dtype=torch.float64), drawn(GRU)
    assert choose(GRU, values, weights).kernel == "scan"
    assert choose(LSTM, values, weights) == ("fused", {"scan": "torch's own kernel is faster for an LSTM"})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert choose(GRU, values, weights).refused["scan"] == "only without autocast"
    with (
        using(recurrence="scan"),
        pytest.raises(KernelError, match=r"'scan' cannot be used here: .* faster for an LSTM"),
    ):
        choose(LSTM, values, weights)


def test_a_second_derivative_is_refused() -> None:
    weights, values = drawn(GRU), torch.randn(1, 2, 4, dtype=torch.float64).requires_grad_()
    outputs = scan(GRU.scan, values, torch.zeros(1, 3).double(), weights)  # type: ignore[arg-type]
    with pytest.raises(KernelError, match="no second derivative"):
        torch.autograd.grad(outputs.sum(), values, create_graph=True)
