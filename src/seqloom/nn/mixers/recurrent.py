"""Recurrence as a mixer: every position sees the past through a state that is updated element by element.

The equations are in `seqloom.nn.ops.recurrence`; this module adds weights, a state, and taps.
"""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from seqloom.config.mixers import RecurrentConfig, RnnConfig
from seqloom.config.stacks import SeededConfig
from seqloom.nn.mixers.contract import CausalMixer, ConditionedMixer
from seqloom.nn.ops.dropout import Dropout, dropout
from seqloom.nn.ops.recurrence import ELMAN_RELU, ELMAN_TANH, GRU, LSTM, Cell, Memory, Weights, gates, recur
from seqloom.nn.taps import Tap
from seqloom.nn.types import Padded


def _cell_of(config: RecurrentConfig) -> Cell:
    if isinstance(config, RnnConfig):
        return ELMAN_TANH if config.activation == "tanh" else ELMAN_RELU
    return {"gru": GRU, "lstm": LSTM}[config.kind()]


class Recurrent(CausalMixer[Memory]):
    """One layer of an Elman network, GRU or LSTM; weights have torch's names and order."""

    def __init__(self, config: RecurrentConfig, input_width: int, width: int) -> None:
        super().__init__()
        self.cell, self.width, self.weight_dropout = _cell_of(config), width, config.weight_dropout
        bound, rows = width**-0.5, config.gates() * width

        def drawn(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))

        self.input_weight, self.hidden_weight = drawn(rows, input_width), drawn(rows, width)
        self.input_bias, self.hidden_bias = drawn(rows), drawn(rows)
        if "forget" in self.cell.gates:  # start by remembering: a gate at 1/2 forgets everything within ten elements
            forget = self.cell.gates.index("forget") * width  # Jozefowicz et al. 2015
            self.input_bias.data[forget : forget + width] += 1
        self.gates = Tap()  # Gates, computed only for listeners
        self.hidden = Tap()  # [B,T,D]
        self._lay_together()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._lay_together()
        return self

    def _lay_together(self) -> None:
        """Store the weights in one chunk of device memory; cuDNN would otherwise copy them at every call."""
        if not self.input_weight.is_cuda:
            return
        for weight, part in zip(self.weights, _in_one_chunk(self.weights), strict=True):
            weight.data = part.detach()

    @property
    def weights(self) -> Weights:
        """Return the weights in the form that the operators take."""
        return Weights(self.input_weight, self.hidden_weight, self.input_bias, self.hidden_bias)

    def begin(self, batch_size: int) -> Memory:
        return tuple(self.input_weight.new_zeros(batch_size, self.width) for _ in range(self.cell.num_states))

    def begin_with(self, hidden: Tensor) -> Memory:
        """Return the state for reading from a given hidden vector [B,D]."""
        return (hidden, *(torch.zeros_like(hidden) for _ in range(self.cell.num_states - 1)))

    def _drawn(self) -> Weights:
        """Return the weights for one call: in training, some recurrent weights are dropped (DropConnect).

        They are dropped from the matrix itself, so the fused kernel still processes the complete sequence.
        """
        if not (self.training and self.weight_dropout):
            return self.weights
        kept = self.weights._replace(hidden=dropout(self.hidden_weight, self.weight_dropout))
        return _in_one_chunk(kept) if self.hidden_weight.is_cuda else kept

    def extend(self, x: Padded, inner: Memory) -> tuple[Padded, Memory]:
        weights = self._drawn()
        outputs, after = recur(self.cell, x, inner, weights)
        return self._shown(x, outputs, inner, weights), after

    def forward(self, x: Padded) -> Padded:
        weights = self._drawn()  # once for all documents
        return self.by_document(lambda rows: self._read(rows, self.begin(len(rows.lengths)), weights), x)

    def rows(self, x: Padded, inner: Memory) -> Padded:
        """Return the outputs of complete rows from a given state, without the final state."""
        return self._read(x, inner, self._drawn())

    def _read(self, x: Padded, inner: Memory, weights: Weights) -> Padded:
        everything = Padded.of(x.values)  # padding is read too; its outputs are dropped
        outputs, _ = recur(self.cell, everything, inner, weights)
        return self._shown(x, outputs, inner, weights)

    def _shown(self, x: Padded, outputs: Tensor, inner: Memory, weights: Weights) -> Padded:
        if self.cell.gates:
            self.gates.offer(
                lambda: gates(self.cell, x, torch.cat([inner[0][:, None], outputs], dim=1)[:, :-1], weights)
            )
        return x._replace(values=self.hidden(x.with_values(outputs).values))


def _in_one_chunk(weights: Weights) -> Weights:
    """Return the same weights in one chunk of memory with gradients; cuDNN copies separate ones at every call."""
    flat = torch.cat([weight.flatten() for weight in weights])
    parts = torch.split(flat, [weight.numel() for weight in weights])
    return Weights(*(part.view_as(weight) for part, weight in zip(parts, weights, strict=True)))


class Seeded(ConditionedMixer[Any]):
    """A recurrent decoder layer whose first state is s_0 = tanh(W m + b), with m the memory's last element.

    This is the bottleneck of the first neural translators (deck E): without an `alignment` layer after it, one vector
    is all the information that the decoder has about the source.
    """

    def __init__(self, config: SeededConfig, width: int) -> None:
        super().__init__()
        self.mixer = config.mixer.build_causal(width)
        self.seed = nn.Linear(width, width)
        self.dropout = Dropout(config.dropout)

    def begin(self, memory: Padded) -> Memory:
        return self.mixer.begin_with(torch.tanh(self.seed(memory.last())))

    def extend(self, x: Padded, inner: Memory) -> tuple[Padded, Memory]:
        y, after = self.mixer.extend(x, inner)
        return y.with_values(self.dropout(y.values)), after

    def whole(self, x: Padded, memory: Padded) -> Padded:
        y = self.mixer.rows(x, self.begin(memory))
        return y.with_values(self.dropout(y.values))
