"""Recurrences: Elman, GRU and LSTM, read left to right.

    Elman (rnn)   h' = f(W x + b + U h + c)                                  f is tanh or ReLU; Elman 1990
    GRU           r  = s(W_r x + U_r h)        z = s(W_z x + U_z h)          Cho et al. 2014
                  n  = tanh(W_n x + b_n + r * (U_n h + c_n))
                  h' = (1 - z) * n + z * h
    LSTM          i, f, o = s(W x + U h)       g = tanh(W_g x + U_g h)       Hochreiter and Schmidhuber 1997
                  c' = f * c + i * g           h' = o * tanh(c')

s is the logistic function, * is elementwise, every W comes with a bias b and every U with a bias c, as in torch.nn, so
that weights can be exchanged. Two warnings about the lectures: the z of deck D's GRU is 1 - z here (there z = 1 takes
the new content, here it keeps the old); deck B prints h' = o * c' for the LSTM, which lacks the tanh.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.errors import ConfigError, KernelError, did_you_mean
from seqloom.nn.ops.kernels import Choice, named, report_choice
from seqloom.nn.ops.recurrence_scan import SCANS, ScanCell, scan
from seqloom.nn.types import Padded, merge_rows

Memory = tuple[Tensor, ...]  # (h,) or (h, c), each [B,D]


class Weights(NamedTuple):
    """The weights of one recurrent layer, its gates stacked on axis 0 in torch's order (r z n; i f g o)."""

    input: Tensor  # [G*D, D_in]
    hidden: Tensor  # [G*D, D]
    input_bias: Tensor  # [G*D]
    hidden_bias: Tensor  # [G*D]


class Gates(NamedTuple):
    """The gate activations at each element, by name, in the order of `Cell.gates`."""

    names: tuple[str, ...]
    values: Tensor  # [B,T,len(names),D]


class Cell(NamedTuple):
    """One recurrence: the update by one projected input, and torch's fused kernel for a complete sequence."""

    name: str
    gates: tuple[str, ...]
    num_states: int  # 1: h; 2: h and c
    update: Callable[[Tensor, Tensor, Memory], Memory]  # (W x + b, U h + c, state) -> state
    open: Callable[[Tensor, Tensor], tuple[Tensor, ...]]  # (W x + b, U h + c) -> the gates, in order
    fused: Callable[..., tuple[Tensor, ...]]
    scan: ScanCell | None  # None: torch's kernel on the CPU is faster


def _elman_open(_fed: Tensor, _kept: Tensor) -> tuple[Tensor, ...]:
    return ()


def _tanh_update(fed: Tensor, kept: Tensor, _: Memory) -> Memory:
    return (torch.tanh(fed + kept),)


def _relu_update(fed: Tensor, kept: Tensor, _: Memory) -> Memory:
    return (torch.relu(fed + kept),)


def _gru_open(fed: Tensor, kept: Tensor) -> tuple[Tensor, ...]:
    fed_reset, fed_keep, fed_new = fed.chunk(3, dim=-1)
    kept_reset, kept_keep, kept_new = kept.chunk(3, dim=-1)
    reset, keep = torch.sigmoid(fed_reset + kept_reset), torch.sigmoid(fed_keep + kept_keep)
    return reset, keep, torch.tanh(fed_new + reset * kept_new)


def _gru_update(fed: Tensor, kept: Tensor, state: Memory) -> Memory:
    _, keep, new = _gru_open(fed, kept)
    return ((1 - keep) * new + keep * state[0],)


def _lstm_open(fed: Tensor, kept: Tensor) -> tuple[Tensor, ...]:
    write, forget, new, show = (fed + kept).chunk(4, dim=-1)
    return torch.sigmoid(write), torch.sigmoid(forget), torch.tanh(new), torch.sigmoid(show)


def _lstm_update(fed: Tensor, kept: Tensor, state: Memory) -> Memory:
    write, forget, new, show = _lstm_open(fed, kept)
    cell = forget * state[1] + write * new
    return show * torch.tanh(cell), cell


ELMAN_TANH = Cell("rnn", (), 1, _tanh_update, _elman_open, torch.rnn_tanh, SCANS["tanh"])
ELMAN_RELU = Cell("rnn", (), 1, _relu_update, _elman_open, torch.rnn_relu, SCANS["relu"])
GRU = Cell("gru", ("reset", "update", "candidate"), 1, _gru_update, _gru_open, torch.gru, SCANS["gru"])
LSTM = Cell("lstm", ("input", "forget", "candidate", "output"), 2, _lstm_update, _lstm_open, torch.lstm, None)


def _feed(values: Tensor, weights: Weights) -> Tensor:
    return values @ weights.input.T + weights.input_bias


def _keep(hidden: Tensor, weights: Weights) -> Tensor:
    return hidden @ weights.hidden.T + weights.hidden_bias


def plain(cell: Cell, x: Padded, state: Memory, weights: Weights) -> tuple[Tensor, Memory]:
    """The outputs h_1..h_T, [B,T,D], and the state after each row's last real element: one element at a time."""
    fed, valid = _feed(x.values, weights), x.valid
    outputs = []
    for time in range(x.values.shape[1]):
        new = cell.update(fed[:, time], _keep(state[0], weights), state)
        state = merge_rows(valid[:, time], new, state)
        outputs.append(state[0])
    if not outputs:
        return x.values.new_zeros(x.values.shape[0], 0, state[0].shape[-1]), state
    return torch.stack(outputs, dim=1), state


def fused(cell: Cell, x: Padded, state: Memory, weights: Weights) -> tuple[Tensor, Memory]:
    """The same with torch's fused kernel; shorter rows are packed, so that their last state is correct."""
    if x.values.shape[1] == 0:
        return plain(cell, x, state, weights)
    start = tuple(part[None].contiguous() for part in state)
    start_argument = start if cell.num_states > 1 else start[0]
    training = torch.is_grad_enabled()  # only then cuDNN keeps what its backward pass needs
    options = (list(weights), True, 1, 0.0, training, False)  # parameters, biases, layers, dropout, training, two-way
    if x.full:
        outputs, *final = cell.fused(x.values, start_argument, *options, True)  # batch first
        return outputs, tuple(part[0] for part in final)
    lengths = x.lengths.clamp(min=1)  # packing does not support empty rows: give them one element and drop it
    packed = torch.nn.utils.rnn.pack_padded_sequence(x.values, lengths.cpu(), batch_first=True, enforce_sorted=False)
    order, back = packed.sorted_indices, packed.unsorted_indices
    assert order is not None and back is not None
    sorted_start = tuple(part[:, order] for part in start)
    sorted_argument = sorted_start if cell.num_states > 1 else sorted_start[0]
    data, *final = cell.fused(packed.data, packed.batch_sizes, sorted_argument, *options)
    outputs, _ = torch.nn.utils.rnn.pad_packed_sequence(
        packed._replace(data=data), batch_first=True, total_length=x.values.shape[1]
    )
    return outputs, merge_rows(x.lengths > 0, tuple(part[0, back] for part in final), state)


def scanned(cell: Cell, x: Padded, state: Memory, weights: Weights) -> tuple[Tensor, Memory]:
    """The same for Elman networks and GRUs on the CPU, with gradients in closed form; padding is read too."""
    assert cell.scan is not None
    if x.values.shape[1] == 0:
        return plain(cell, x, state, weights)
    values = x.values if x.full else x.with_values(x.values).values
    outputs = scan(cell.scan, values, state[0], weights)
    if x.full:
        return outputs, (outputs[:, -1],)
    return outputs, merge_rows(x.lengths > 0, (x.with_any(outputs).last(),), state)


KERNELS = {"scan": scanned, "fused": fused, "plain": plain}  # by preference


def recur(cell: Cell, x: Padded, state: Memory, weights: Weights) -> tuple[Tensor, Memory]:
    """Compute a recurrence with the named kernel, or with the fastest one that supports it."""
    if x.values.is_cuda and torch.is_autocast_enabled("cuda"):
        # Under autocast torch always gives cuDNN's recurrences float16, in which sums overflow.
        with torch.autocast("cuda", enabled=False):
            dtype = weights.input.dtype
            return recur(cell, x._replace(values=x.values.to(dtype)), tuple(part.to(dtype) for part in state), weights)
    choice = choose(cell, x.values, weights)
    report_choice("recurrence", lambda: choice)
    return KERNELS[choice.kernel](cell, x, state, weights)


def choose(cell: Cell, values: Tensor, weights: Weights) -> Choice:
    """The named kernel, or the fastest one that can compute this recurrence."""
    name = named("recurrence")
    if name is not None and name not in KERNELS:
        raise ConfigError(f"there is no recurrence kernel '{name}'", fix=did_you_mean(name, KERNELS))
    refuses = {"scan": lambda: _scan_refuses(cell, values, weights), "fused": lambda: _fused_refuses(values)}
    refused: dict[str, str] = {}
    for kernel in [name] if name else KERNELS:
        reason = refuses[kernel]() if kernel in refuses else None
        if reason is None:
            return Choice(kernel, refused)
        refused[kernel] = reason
    raise KernelError(f"the recurrence kernel '{name}' cannot be used here: {refused[name or '']}", fix="use float32")


def _scan_refuses(cell: Cell, values: Tensor, weights: Weights) -> str | None:
    if cell.scan is None:
        return "torch's own kernel is faster for an LSTM"
    if values.device.type != "cpu":
        return "only for the CPU"
    if torch.is_autocast_enabled("cpu"):
        return "only without autocast"
    if values.dtype not in (torch.float32, torch.float64) or weights.hidden.dtype != values.dtype:
        return f"only for float32 and float64, found {values.dtype}"
    return None


def _fused_refuses(values: Tensor) -> str | None:
    dtype, device = values.dtype, values.device.type
    if device == "cpu" and torch.is_autocast_enabled(device):
        lower = torch.get_autocast_dtype(device)
        # Autocast gives float32 values to oneDNN in bfloat16, which trains if the CPU has AVX-512.
        if lower != torch.bfloat16 or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            dtype = lower
    if device == "cpu" and dtype in (torch.bfloat16, torch.float16):
        return f"torch has no trainable fused recurrence for {dtype} on the CPU"
    return None


def gates(cell: Cell, x: Padded, before: Tensor, weights: Weights) -> Gates:
    """Compute every gate at every element in one pass, from the hidden states `before` each element, [B,T,D]."""
    opened = cell.open(_feed(x.values, weights), _keep(before, weights))
    return Gates(cell.gates, torch.stack(opened, dim=2))
