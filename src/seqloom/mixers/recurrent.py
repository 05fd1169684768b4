"""Recurrence as a mixer: every position sees the past through a state that is updated element by element.

The equations are those of `seqloom.operators.recurrence`; here they get weights, a state, and taps.
"""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from seqloom.config.blocks import SeededConfig
from seqloom.config.mixers import RecurrentConfig, RnnConfig
from seqloom.mixers.contract import CausalMixer, ConditionedMixer
from seqloom.operators.recurrence import ELMAN_RELU, ELMAN_TANH, GRU, LSTM, Cell, Memory, Weights, gates, recur
from seqloom.packing import by_document
from seqloom.taps import Tap
from seqloom.types import Padded


def _cell_of(config: RecurrentConfig) -> Cell:
    if isinstance(config, RnnConfig):
        return ELMAN_TANH if config.activation == "tanh" else ELMAN_RELU
    return {"gru": GRU, "lstm": LSTM}[config.kind()]


class Recurrent(CausalMixer[Memory]):
    """One layer of an Elman network, GRU or LSTM; names and order of its weights are torch's."""

    def __init__(self, config: RecurrentConfig, input_width: int, width: int) -> None:
        super().__init__()
        self.cell, self.width = _cell_of(config), width
        bound, rows = width**-0.5, config.gates() * width

        def drawn(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))

        self.input_weight, self.hidden_weight = drawn(rows, input_width), drawn(rows, width)
        self.input_bias, self.hidden_bias = drawn(rows), drawn(rows)
        if "forget" in self.cell.gates:  # begin by remembering: a fresh gate at 1/2 forgets all within ten elements
            forget = self.cell.gates.index("forget") * width  # Jozefowicz et al. 2015
            self.input_bias.data[forget : forget + width] += 1
        self.gates = Tap()  # Gates, offered
        self.hidden = Tap()  # [B,T,D]
        self._lay_together()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._lay_together()
        return self

    def _lay_together(self) -> None:
        """Put the weights into one chunk of device memory: cuDNN would otherwise copy them there at every call."""
        if not self.input_weight.is_cuda:
            return
        flat = torch.cat([weight.detach().flatten() for weight in self.weights])
        for weight, part in zip(self.weights, torch.split(flat, [w.numel() for w in self.weights]), strict=True):
            weight.data = part.view_as(weight)

    @property
    def weights(self) -> Weights:
        """The weights in the form that the operators take."""
        return Weights(self.input_weight, self.hidden_weight, self.input_bias, self.hidden_bias)

    def begin(self, batch_size: int) -> Memory:
        return tuple(self.input_weight.new_zeros(batch_size, self.width) for _ in range(self.cell.num_states))

    def begin_with(self, hidden: Tensor) -> Memory:
        """What is remembered when reading starts from a given hidden vector [B,D]."""
        return (hidden, *(torch.zeros_like(hidden) for _ in range(self.cell.num_states - 1)))

    def extend(self, x: Padded, inner: Memory) -> tuple[Padded, Memory]:
        outputs, after = recur(self.cell, x, inner, self.weights)
        return self._shown(x, outputs, inner), after

    def forward(self, x: Padded) -> Padded:
        return by_document(lambda rows: self.rows(rows, self.begin(len(rows.lengths))), x)

    def rows(self, x: Padded, inner: Memory) -> Padded:
        """The outputs for whole rows from a given memory; the state after them is not asked for."""
        everything = Padded.of(x.values)  # padding is read like the rest: what it leaves behind is dropped
        outputs, _ = recur(self.cell, everything, inner, self.weights)
        return self._shown(x, outputs, inner)

    def _shown(self, x: Padded, outputs: Tensor, inner: Memory) -> Padded:
        if self.cell.gates:
            self.gates.offer(
                lambda: gates(self.cell, x, torch.cat([inner[0][:, None], outputs], dim=1)[:, :-1], self.weights)
            )
        return x._replace(values=self.hidden(x.with_values(outputs).values))


class Seeded(ConditionedMixer[Any]):
    """A recurrent decoder layer whose first state is s_0 = tanh(W m + b), with m the memory's last element.

    This is the bottleneck of the first neural translators (deck E): one vector is all that the decoder learns of the
    source, unless an `alignment` layer follows.
    """

    def __init__(self, config: SeededConfig, width: int) -> None:
        super().__init__()
        self.mixer = config.mixer.build_causal(width)
        self.seed = nn.Linear(width, width)
        self.dropout = nn.Dropout(config.dropout)

    def begin(self, memory: Padded) -> Memory:
        return self.mixer.begin_with(torch.tanh(self.seed(memory.last())))

    def extend(self, x: Padded, inner: Memory) -> tuple[Padded, Memory]:
        y, after = self.mixer.extend(x, inner)
        return y.with_values(self.dropout(y.values)), after

    def whole(self, x: Padded, memory: Padded) -> Padded:
        y = self.mixer.rows(x, self.begin(memory))
        return y.with_values(self.dropout(y.values))
