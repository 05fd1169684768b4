"""Parity with torch of recurrent stacks, their states and their two directions."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from parity_common import (
    ROWS,
    TIME,
    VECTORS,
    WIDTH,
    Twins,
    assert_parity,
    copy_weights,
    either_kernel,
    either_precision,
    full_and_ragged,
    leaf,
    read_as_it_is,
)
from seqloom.config.mixers import BidirectionalConfig, GruConfig, LstmConfig, RecurrentConfig, RnnConfig
from seqloom.config.stacks import BlockConfig, DecoderConfig, EncoderConfig
from seqloom.nn.mixers.recurrent import Recurrent
from seqloom.nn.ops.kernels import using
from seqloom.nn.types import Padded

RECURRENCES: dict[str, tuple[RecurrentConfig, Callable[..., nn.RNNBase]]] = {
    "rnn-tanh": (RnnConfig(), nn.RNN),
    "rnn-relu": (RnnConfig(activation="relu"), partial(nn.RNN, nonlinearity="relu")),
    "gru": (GruConfig(), nn.GRU),
    "lstm": (LstmConfig(), nn.LSTM),
}

every_recurrence = pytest.mark.parametrize("name", RECURRENCES)
one_and_more_layers = pytest.mark.parametrize("layers", [1, 3], ids=["1-layer", "3-layers"])


def recurrent_twins(theirs: nn.RNNBase, mixers: Sequence[Recurrent]) -> list[Twins]:
    return [
        Twins(weight, (mine,))
        for weights, mixer in zip(theirs.all_weights, mixers, strict=True)
        for weight, mine in zip(weights, mixer.weights, strict=True)
    ]


def run_torch(theirs: nn.RNNBase, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    """Torch's outputs [B,T,D] and final states, h or h and c, each [layers * directions,B,D]."""
    if lengths is None:
        outputs, final = theirs(x)
    else:
        packed, final = theirs(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
    return outputs, list(final) if isinstance(final, tuple) else [final]


@either_kernel
@either_precision
@full_and_ragged
@one_and_more_layers
@every_recurrence
def test_a_recurrent_stack_equals_torchs(
    name: str, layers: int, lengths: Tensor | None, dtype: torch.dtype, kernel: str
) -> None:
    torch.manual_seed(0)
    config, make = RECURRENCES[name]
    theirs = make(WIDTH, WIDTH, num_layers=layers, batch_first=True, dtype=dtype)
    stack = EncoderConfig(width=WIDTH, input=VECTORS, layers=(BlockConfig(mixer=config),), repeat=layers)
    ours = read_as_it_is(stack.build().to(dtype))
    twins = recurrent_twins(theirs, [block.mixer for block in ours.layers])
    copy_weights(theirs, ours, twins)
    x = leaf(ROWS, TIME, WIDTH, dtype=dtype)
    with using(recurrence=kernel):
        y = ours(Padded.of(x, lengths))
    assert_parity([y.values], [run_torch(theirs, x, lengths)[0]], [x], twins)


@either_kernel
@either_precision
@full_and_ragged
@one_and_more_layers
@every_recurrence
def test_the_state_after_stepping_is_torchs_final_state(
    name: str, layers: int, lengths: Tensor | None, dtype: torch.dtype, kernel: str
) -> None:
    torch.manual_seed(1)
    config, make = RECURRENCES[name]
    theirs = make(WIDTH, WIDTH, num_layers=layers, batch_first=True, dtype=dtype)
    stack = DecoderConfig(width=WIDTH, input=VECTORS, layers=(BlockConfig(mixer=config),), repeat=layers)
    ours = read_as_it_is(stack.build().to(dtype))
    twins = recurrent_twins(theirs, [layer.mixer for layer in ours.layers])
    copy_weights(theirs, ours, twins)
    x = leaf(ROWS, TIME, WIDTH, dtype=dtype)
    with using(recurrence=kernel):
        y, state = ours.step(Padded.of(x, lengths), ours.initial_state(ROWS))
    final = [torch.stack(part) for part in zip(*state.inner[2:], strict=True)]  # h, or h and c, [layers,B,D]
    outputs, expected = run_torch(theirs, x, lengths)
    assert_parity([y.values, *final], [outputs, *expected], [x], twins)


@either_precision
@full_and_ragged
@pytest.mark.parametrize("layers", [1, 2], ids=["1-layer", "2-layers"])
@every_recurrence
def test_two_directions_equal_torchs_bidirectional(
    name: str, layers: int, lengths: Tensor | None, dtype: torch.dtype
) -> None:
    torch.manual_seed(2)
    config, make = RECURRENCES[name]
    half = WIDTH // 2
    theirs = make(WIDTH, half, num_layers=layers, bidirectional=True, batch_first=True, dtype=dtype)
    block = BlockConfig(mixer=BidirectionalConfig(mixer=config))
    ours = read_as_it_is(EncoderConfig(width=WIDTH, input=VECTORS, layers=(block,), repeat=layers).build().to(dtype))
    twins = recurrent_twins(theirs, [way for layer in ours.layers for way in (layer.mixer.ahead, layer.mixer.back)])
    copy_weights(theirs, ours, twins)
    x = leaf(ROWS, TIME, WIDTH, dtype=dtype)
    y = ours(Padded.of(x, lengths))
    outputs, expected = run_torch(theirs, x, lengths)
    final = torch.stack([y.last()[:, :half], y.values[:, 0, half:]])  # forward ends at the end, backward at the start
    assert_parity([y.values, final], [outputs, expected[0][-2:]], [x], twins)
