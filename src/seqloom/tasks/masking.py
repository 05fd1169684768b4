"""Which symbols of a text are hidden, and what stands in their place (Devlin et al. 2019).

Of the symbols of a row 15 % are chosen, one at least. A chosen one is replaced by MASK eight times of ten, by any other
symbol once, and once it stays: so a model that is fine-tuned later, where no MASK ever stands, has learnt to look at
every symbol. The special symbols are never chosen.

In training the draws come from torch's generator, which a step seeds with its number: other masks in every epoch, the
same ones after a run was stopped. In evaluation they come from the id of the example: the same ones always.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.tasks.documents import document_numbers
from seqloom.text.symbols import COUNT, MASK
from seqloom.types import Padded

PER_CENT = 15  # of the symbols are chosen
MASKED, REPLACED = 0.8, 0.9  # below the first: MASK; below the second: another symbol; else it stays
DRAWS = 3


class Hidden(NamedTuple):
    """A batch in which some symbols are hidden."""

    inputs: Padded  # [B,T] what is read
    places: Padded  # [B,K] where symbols are hidden
    targets: Tensor  # [B,K] which ones


def drawn(symbols: Padded) -> Tensor:
    """[3,B,T] numbers in 0..1 from torch's generator of the device."""
    return torch.rand(DRAWS, *symbols.values.shape, device=symbols.values.device)


def drawn_by(ids: Sequence[str], symbols: Padded) -> Tensor:
    """[3,B,T] the same, each document's from its id alone."""
    numbers = document_numbers(symbols)
    draws = np.zeros((DRAWS, *numbers.shape), np.float32)
    for number, id_ in enumerate(ids):
        mine = numbers == number
        draws[:, mine] = np.random.Generator(np.random.PCG64(int(id_))).random((int(mine.sum()), DRAWS), np.float32).T
    return torch.from_numpy(draws).to(symbols.values.device)


def hide(symbols: Padded, draws: Tensor, vocab_size: int) -> Hidden:
    """The batch with some of its symbols hidden, as the draws [3,B,T] decide; nothing waits for the device."""
    values, (order, fate, other) = symbols.values, draws
    ordinary = symbols.valid & (values >= COUNT)
    count = ordinary.sum(dim=1)  # [B]
    chosen = ((count * PER_CENT + 50) // 100).clamp(min=1).minimum(count)
    most = min(values.shape[1], max(1, (values.shape[1] * PER_CENT + 50) // 100))  # known without asking the device
    first = order.masked_fill(~ordinary, 2.0).argsort(dim=1)[:, :most]  # the smallest draws are chosen
    places = Padded(first, chosen).with_values(first)
    targets = values.gather(1, places.values)
    shown = _instead(targets, fate.gather(1, places.values), other.gather(1, places.values), vocab_size)
    return Hidden(symbols._replace(values=_put(values, places, shown)), places, targets)


def _instead(targets: Tensor, fate: Tensor, other: Tensor, vocab_size: int) -> Tensor:
    """[B,K] what is read instead of each chosen symbol."""
    drawn_symbols = COUNT + (other * (vocab_size - COUNT)).long().clamp(max=vocab_size - COUNT - 1)
    replaced = torch.where(fate < REPLACED, drawn_symbols, targets)
    return torch.where(fate < MASKED, MASK, replaced)


def _put(values: Tensor, places: Padded, changed: Tensor) -> Tensor:
    """[B,T] the values with others at some places."""
    column = torch.where(places.valid, places.values, values.shape[1])  # one more column takes what is put nowhere
    wide = torch.cat([values, values[:, :1]], dim=1).scatter(1, column, changed)
    return wide[:, :-1]
