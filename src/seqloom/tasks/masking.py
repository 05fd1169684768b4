"""Which symbols of a text are hidden, and what stands in their place (Devlin et al. 2019).

Of the symbols 15 % are chosen, one at least. A chosen one is replaced by MASK eight times of ten, by any other symbol
once, and once it stays: so a model that is fine-tuned later, where no MASK ever stands, has learnt to look at every
symbol. The special symbols are never chosen.

In training the draws come from torch's generator, which a step seeds with its number: other masks in every epoch, the
same ones after a run was stopped. There 15 % are those of a row, whatever documents are packed into it. In evaluation
each document has its 15 %, and its own symbols decide which: the same ones always, alone or packed beside any others,
as a part of a run's data or as a file by itself.
"""

from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from seqloom.tasks.documents import document_numbers
from seqloom.text.symbols import COUNT, MASK
from seqloom.types import Padded

PER_CENT = 15  # of the symbols are chosen
MASKED, REPLACED = 0.8, 0.9  # below the first: MASK; below the second: another symbol; else it stays
DRAWS = 3


class Draws(NamedTuple):
    """What chance decides: which symbols are hidden, and how."""

    places: Padded  # [B,K] where
    fate: Tensor  # [B,T] in 0..1: MASK, another symbol, or the same
    other: Tensor  # [B,T] in 0..1: which other symbol


class Hidden(NamedTuple):
    """A batch in which some symbols are hidden."""

    inputs: Padded  # [B,T] what is read
    places: Padded  # [B,K] where symbols are hidden
    targets: Tensor  # [B,K] which ones


def drawn(symbols: Padded) -> Draws:
    """Draws for each row, from torch's generator of the device; nothing waits for the device."""
    values = symbols.values
    order, fate, other = torch.rand(DRAWS, *values.shape, device=values.device)
    hideable = _hideable(symbols)
    count = hideable.sum(dim=1)  # [B]
    most = min(values.shape[1], max(1, _share(values.shape[1])))  # known without asking the device
    first = order.masked_fill(~hideable, 2.0).argsort(dim=1)[:, :most]  # the smallest draws are chosen
    places = Padded(first, _share(count).clamp(min=1).minimum(count))
    return Draws(places.with_values(first), fate, other)


def drawn_by_content(symbols: Padded) -> Draws:
    """Draws for each document, from its symbols alone."""
    numbers, values = document_numbers(symbols), symbols.values.cpu().numpy().astype(np.int64)
    hideable = _hideable(symbols).cpu().numpy()  # neither padding nor the END of a packed document says anything
    draws = np.zeros((DRAWS, *numbers.shape), np.float32)
    for number in range(int(numbers.max(initial=-1)) + 1):
        mine = numbers == number
        chance = np.random.Generator(np.random.PCG64(crc32(values[mine & hideable].tobytes())))
        draws[:, mine] = chance.random((int(mine.sum()), DRAWS), np.float32).T
    order, fate, other = draws
    device = symbols.values.device
    first, counts = _first_of_documents(order, numbers, hideable)
    places = Padded(torch.from_numpy(first).to(device), torch.from_numpy(counts).to(device))
    return Draws(places.with_values(places.values), *(torch.from_numpy(one).to(device) for one in (fate, other)))


def _first_of_documents(order: np.ndarray, numbers: np.ndarray, hideable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[B,K] the places of the smallest draws of each document, and [B] how many there are in each row."""
    rows, columns = np.nonzero(hideable)
    owner = numbers[rows, columns]
    counts = np.bincount(owner)
    sequence = np.lexsort((order[rows, columns], owner))  # document by document, the smallest draws first
    rank = np.arange(len(sequence)) - (np.cumsum(counts) - counts)[owner[sequence]]  # within its document
    chosen = sequence[rank < np.maximum(1, _share(counts))[owner[sequence]]]
    late = np.full(order.shape, len(chosen), np.int64)
    late[rows[chosen], columns[chosen]] = np.arange(len(chosen))
    found = (late < len(chosen)).sum(axis=1)
    return late.argsort(axis=1, kind="stable")[:, : max(1, int(found.max()))], found


def _share(count: Any) -> Any:
    """How many of so many symbols are chosen, for one count or a table of them."""
    return (count * PER_CENT + 50) // 100


def _hideable(symbols: Padded) -> Tensor:
    """[B,T] true where an ordinary symbol stands."""
    return symbols.valid & (symbols.values >= COUNT)


def hide(symbols: Padded, draws: Draws, vocab_size: int) -> Hidden:
    """The batch with some of its symbols hidden, as the draws decide."""
    values, (places, fate, other) = symbols.values, draws
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
