"""Greedy decoding: the likeliest next symbol, again and again, until END. No text holds another special symbol.

Written once, against `step`: whoever gives scores of the next symbol and a state is decoded, a language model that goes
on with a prompt and a decoder that looks at a source alike. The state is a value with the batch on axis 0, so a row
that has ended is left out of it, and the others never notice.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from seqloom.config.models import StackConfig
from seqloom.text.symbols import BEGIN, COUNT, END
from seqloom.types import Padded, select_rows


class Stepped(Protocol):
    """A model that scores the next symbol: `LanguageModel`, `EncoderDecoder`."""

    def step(self, x: Padded, state: Any) -> tuple[Padded, Any]:
        """The scores at further symbols of each row, [B,T,V], and the state after them."""


def begins(rows: int, device: torch.device) -> Padded:
    """What a decoder reads first: BEGIN in every row."""
    return Padded.of(torch.full((rows, 1), BEGIN, device=device))


def positions_of(stack: StackConfig) -> int | None:
    """How many symbols a stack can read in one row; None where there is no limit."""
    return stack.max_length if stack.position == "learned" else None


def likeliest(scores: Tensor) -> Tensor:
    """[B] the symbol with the highest score [B,V] among those that a text may hold, and END."""
    never = [symbol for symbol in range(COUNT) if symbol != END]
    allowed = scores.clone()
    allowed[:, never] = -torch.inf
    return allowed.argmax(dim=-1)


@torch.no_grad()
def greedy(model: Stepped, state: Any, prompt: Padded, most: Tensor) -> list[list[int]]:
    """What each row says after its prompt [B,T], up to END, which is left out, or `most` [B] symbols.

    A prompt has at least one symbol: BEGIN.
    """
    said: list[list[int]] = [[] for _ in prompt.lengths]
    most = most.to(prompt.lengths.device)
    rows = torch.arange(len(said), device=most.device)
    room = most > 0
    x, state, rows = prompt.select(room), select_rows(state, room), rows[room]
    while len(rows):
        scores, state = model.step(x, state)
        symbols = likeliest(scores.last())
        for row, symbol in zip(rows.tolist(), symbols.tolist(), strict=True):
            said[row].append(symbol)
        length = len(said[int(rows[0])])  # all that are left have said as much
        going = (symbols != END) & (length < most[rows])
        if not bool(going.all()):
            state, rows, symbols = select_rows(state, going), rows[going], symbols[going]
        x = Padded(symbols[:, None], torch.ones_like(symbols), full=True)
    return [symbols[:-1] if symbols and symbols[-1] == END else symbols for symbols in said]
