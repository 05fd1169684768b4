"""Elman networks and GRUs on a CPU: one product for all inputs, and gradients in closed form.

torch has no fused kernel for these two on a CPU: it records about ten operators for every element, and its backward
pass adds up the gradient of the recurrent weights element by element. Here the loop over elements holds only what
depends on the element before. F is W x + b of all elements, and d is dL/dh':

    forward    GRU    r z = s(F_rz + U_rz h)     k = U_n h + c_n     n = tanh(F_n + r k)     h' = n + z (h - n)
               Elman  h' = f(F + c + U h)
    backward   e = dL/d(U h) = d * slope         the slopes of all elements are computed before the loop
               dL/dh = e U + d * z               Elman: e U
    after it   dL/dU = sum_t e_t^T h_{t-1}       one product, like those for dL/dW and dL/dx

Complete rows only: the caller picks the state after the last real element of a shorter row.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.errors import KernelError


class Scanned(NamedTuple):
    """The states of a pass over a batch, with the time on axis 0, and what the slopes are computed from."""

    hidden: Tensor  # [1+T,B,D] h_0..h_T
    gates: tuple[Tensor, ...] = ()  # GRU: r and z [T,B,2*D], k and n [T,B,D]


class Slopes(NamedTuple):
    """The derivatives of every element, without those of earlier elements."""

    of_kept: Tensor  # [T,B,G,D] dL/d(U h + c) = dL/dh' * this
    of_fed: Tensor | None  # [T,B,D] dL/d(W x + b) of the last gate; None: the same as dL/d(U h + c)
    keep: Tensor | None  # [T,B,D] dL/dh = dL/dh' * this + dL/d(U h) U


def scan_gru(fed: Tensor, start: Tensor, hidden: Tensor, bias: Tensor) -> Scanned:
    """The GRU over inputs W x + b [T,B,3*D] from the state [B,D], with U [3*D,D] and its bias."""
    time, rows, width = len(fed), len(start), start.shape[1]
    states, gates = fed.new_empty(1 + time, rows, width), fed.new_empty(time, rows, 2 * width)
    kept, new = fed.new_empty(time, rows, width), fed.new_empty(time, rows, width)
    both, last, last_bias = hidden[: 2 * width].T, hidden[2 * width :].T, bias[2 * width :]
    open_, news = fed[..., : 2 * width] + bias[: 2 * width], fed[..., 2 * width :]
    states[0] = start
    for at in range(time):
        before = states[at]
        torch.addmm(open_[at], before, both, out=gates[at]).sigmoid_()
        torch.addmm(last_bias, before, last, out=kept[at])
        torch.addcmul(news[at], gates[at, :, :width], kept[at], out=new[at]).tanh_()
        torch.lerp(new[at], before, gates[at, :, width:], out=states[at + 1])
    return Scanned(states, (gates, kept, new))


def gru_slopes(found: Scanned) -> Slopes:
    """The derivatives of `scan_gru`."""
    gates, kept, new = found.gates
    width = new.shape[-1]
    reset, keep = gates[..., :width], gates[..., width:]
    of_new = (1 - keep).mul_(1 - new * new)  # [T,B,D]
    of_kept = torch.stack(
        [
            of_new * kept * reset * (1 - reset),
            (found.hidden[:-1] - new).mul_(keep).mul_(1 - keep),
            of_new * reset,
        ],
        dim=2,
    )
    return Slopes(of_kept, of_new, keep)


def scan_elman(activate: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor, Tensor, Tensor], Scanned]:
    """An Elman network with an activation that works in place, over inputs W x + b [T,B,D]."""

    def scan(fed: Tensor, start: Tensor, hidden: Tensor, bias: Tensor) -> Scanned:
        states, fed, across = fed.new_empty(1 + len(fed), *start.shape), fed + bias, hidden.T
        states[0] = start
        for at in range(len(fed)):
            activate(torch.addmm(fed[at], states[at], across, out=states[at + 1]))
        return Scanned(states)

    return scan


def tanh_slopes(found: Scanned) -> Slopes:
    """The derivatives of an Elman network with tanh."""
    return Slopes((1 - found.hidden[1:] ** 2)[:, :, None], None, None)


def relu_slopes(found: Scanned) -> Slopes:
    """The derivatives of an Elman network with ReLU."""
    return Slopes((found.hidden[1:] > 0).to(found.hidden.dtype)[:, :, None], None, None)


class ScanCell(NamedTuple):
    """A recurrence and its derivatives."""

    scan: Callable[[Tensor, Tensor, Tensor, Tensor], Scanned]
    slopes: Callable[[Scanned], Slopes]


SCANS = {
    "gru": ScanCell(scan_gru, gru_slopes),
    "tanh": ScanCell(scan_elman(torch.tanh_), tanh_slopes),
    "relu": ScanCell(scan_elman(torch.relu_), relu_slopes),
}


def scan(cell: ScanCell, values: Tensor, start: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """[B,T,D] the states of complete rows [B,T,D_in] from a state [B,D]; weights are W, U and their biases."""
    if torch.is_grad_enabled():
        outputs: Tensor = _Scan.apply(cell, values, start, *weights)  # type: ignore[no-untyped-call]
        return outputs
    return _scan(cell, values, start, weights)[1].hidden[1:].transpose(0, 1)


def _scan(cell: ScanCell, values: Tensor, start: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Scanned]:
    """The inputs with the time on axis 0, and the pass over them."""
    into, across, bias, hidden_bias = weights
    timely = values.transpose(0, 1).contiguous()
    return timely, cell.scan(torch.nn.functional.linear(timely, into, bias), start, across, hidden_bias)


class _Scan(torch.autograd.Function):
    """A recurrence with gradients in closed form."""

    @staticmethod
    def forward(ctx: Any, cell: ScanCell, values: Tensor, start: Tensor, *weights: Tensor) -> Tensor:
        timely, found = _scan(cell, values, start, weights)
        ctx.cell = cell
        ctx.save_for_backward(timely, weights[0], weights[1], found.hidden, *found.gates)
        return found.hidden[1:].transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph: autograd would treat the saved states as constants
            raise KernelError("the recurrence kernel 'scan' has no second derivative", fix="use the kernel 'fused'")
        timely, into, across, hidden, *gates = ctx.saved_tensors
        of_kept, of_fed, keep = ctx.cell.slopes(Scanned(hidden, tuple(gates)))
        upstream = upstream.transpose(0, 1).contiguous()
        time, rows, width = upstream.shape
        errors, by_state = torch.empty_like(of_kept), torch.empty_like(upstream)  # e_t and dL/dh_t
        by_state[-1] = upstream[-1]
        by_start = torch.empty_like(hidden[0])
        for at in range(time - 1, -1, -1):
            error = torch.mul(by_state[at, :, None], of_kept[at], out=errors[at]).view(rows, -1)
            before, here = (by_state[at - 1], upstream[at - 1]) if at else (by_start, None)
            if keep is None:
                torch.mm(error, across, out=before)
            else:
                torch.mul(by_state[at], keep[at], out=before).addmm_(error, across)
            if here is not None:
                before += here
        errors = errors.view(time * rows, -1)
        by_across, by_bias = errors.T @ hidden[:-1].flatten(0, 1), errors.sum(dim=0)
        by_fed, by_fed_bias = errors, by_bias
        if of_fed is not None:  # only the last gate differs, and the errors are not needed any more
            by_fed[:, -width:] = (by_state * of_fed).flatten(0, 1)
            by_fed_bias = torch.cat([by_bias[:-width], by_fed[:, -width:].sum(dim=0)])
        by_values = None
        if ctx.needs_input_grad[1]:
            by_values = (by_fed @ into).view(time, rows, -1).transpose(0, 1)
        by_into = by_fed.T @ timely.flatten(0, 1)
        return None, by_values, by_start, by_into, by_across, by_fed_bias, by_bias
