"""Reading on: what every way of writing needs of a model, and nothing more.

A model that is written with gives scores of the next symbol and a state. The state is a value with the batch on axis 0,
so rows are left out, repeated or put in another order without the model's knowing: an LSTM and a Transformer, a
language model that goes on with a prompt and a decoder that looks at a source, are all the same here.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from seqloom.config.models import StackConfig
from seqloom.errors import DataError
from seqloom.text.symbols import BEGIN, COUNT, END
from seqloom.types import Padded, merge_rows, select_rows

NEVER = tuple(symbol for symbol in range(COUNT) if symbol != END)  # special symbols that no text holds
BLOCK = 128  # symbols of a prompt that are read at once: scores of every one of them would not fit in memory

Looked = Callable[[], Tensor]  # [B,T,S] where the model looked in its latest step; 1 in the padding of the source
Looking = Callable[[], AbstractContextManager[Looked]]  # inside the `with`, the model is watched


class Stepped(Protocol):
    """A model that scores the next symbol: `LanguageModel`, `EncoderDecoder`."""

    def step(self, x: Padded, state: Any) -> tuple[Padded, Any]:
        """The scores at further symbols of each row, [B,T,V], and the state after them."""


class Heard(NamedTuple):
    """What a model says after the last symbol of each row."""

    scores: Tensor  # [B,V] of the next symbol
    looks: tuple[Tensor, ...] = ()  # [B,S] where it looked for them, if it is watched

    def select(self, rows: Tensor) -> "Heard":
        """The chosen rows, in the order asked for."""
        return select_rows(self, rows)


def begins(rows: int, device: torch.device) -> Padded:
    """What a decoder reads first: BEGIN in every row."""
    return Padded.of(torch.full((rows, 1), BEGIN, device=device))


def positions_of(stack: StackConfig) -> int | None:
    """How many symbols a stack can read in one row; None where there is no limit."""
    return stack.max_length if stack.position == "learned" else None


def room(prompt: Padded, most: Tensor, limit: int | None) -> Tensor:
    """[B] how many symbols each row may say after its prompt: `most` [B], or as many as there are positions for.

    The last symbol that is said is not read. Raises DataError for a prompt that is too long by itself.
    """
    if limit is None:
        return most
    if (longest := int(prompt.lengths.max())) > limit:
        raise DataError(
            f"a prompt of {longest:,} symbols, with the one that begins it, and the model has {limit:,} positions",
            fix=f"give its last {limit - 1:,} symbols at most, or a model without learned positions",
        )
    return most.clamp(max=limit + 1 - prompt.lengths)


def read(model: Stepped, x: Padded, state: Any, looked: Looked | None = None) -> tuple[Heard, Any]:
    """What a model says after further symbols of each row, at least one of each, and the state after them."""
    heard: Heard | None = None
    for start in range(0, x.values.shape[1], BLOCK):
        block = x.cut(start, start + BLOCK)
        scores, state = model.step(block, state)
        looks = () if looked is None else (block.with_values(looked()).last(),)
        latest = Heard(scores.last(), looks)
        heard = latest if heard is None else merge_rows(block.lengths > 0, latest, heard)
    assert heard is not None, "a prompt has at least one symbol"
    return heard, state


def read_symbols(model: Stepped, symbols: Tensor, state: Any, looked: Looked | None = None) -> tuple[Heard, Any]:
    """The same after one more symbol of each row, [B]."""
    return read(model, Padded(symbols[:, None], torch.ones_like(symbols), full=True), state, looked)
