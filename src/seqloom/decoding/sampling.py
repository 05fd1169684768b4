"""Sampling: the next symbol is drawn from the model's distribution, or from the part of it that is worth drawing from.

    scores ──▶ / temperature ──▶ the k likeliest ──▶ the nucleus p ──▶ a share min_p of the likeliest ──▶ draw

Each filter sees the distribution that the one before it has left. A row draws from a generator of its own, made of the
seed and the row's number: what it says does not depend on the rows beside it.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom.config.decoding import SampleConfig
from seqloom.types import Padded


def filtered(logs: Tensor, how: SampleConfig) -> Tensor:
    """[B,V] the probabilities that symbols are drawn with, from their log-probabilities."""
    ordered, symbols = (logs / how.temperature).sort(dim=-1, descending=True, stable=True)
    if how.top_k:
        ordered[:, how.top_k :] = -torch.inf
    if how.top_p < 1:
        chances = ordered.softmax(dim=-1)
        ordered = _kept(ordered, chances.cumsum(dim=-1) - chances < how.top_p)
    if how.min_p > 0:
        chances = ordered.softmax(dim=-1)
        ordered = _kept(ordered, chances >= how.min_p * chances[:, :1])
    return torch.empty_like(ordered).scatter_(-1, symbols, ordered.softmax(dim=-1))


def _kept(ordered: Tensor, kept: Tensor) -> Tensor:
    """The scores of what is kept; the likeliest always is."""
    kept[:, 0] = True
    return ordered.masked_fill(~kept, -torch.inf)


def drawn(chances: Tensor, numbers: Sequence[float]) -> Tensor:
    """[B] the symbol of each row's distribution [B,V] in which a number between 0 and 1 falls."""
    exact = torch.float32 if chances.device.type == "mps" else torch.float64  # which has no larger numbers
    ends = chances.cumsum(dim=-1, dtype=exact)
    places = torch.tensor(numbers, dtype=exact, device=chances.device)[:, None] * ends[:, -1:]
    found = torch.searchsorted(ends, places, right=True)[:, 0]
    last = (chances > 0).long().cumsum(dim=-1).argmax(dim=-1)  # rounding may lead beyond the last one
    return torch.minimum(found, last)


def generator(seed: int, number: int, answer: int) -> np.random.Generator:
    """The generator of one answer to the row of a number."""
    return np.random.default_rng((seed, number, answer))


def numbers_by_content(inputs: Any) -> list[int]:
    """A number for each row of a padded batch or a tensor, made of what it holds: however batches are cut, the same.

    >>> numbers_by_content(Padded.of(torch.tensor([[7, 0]]), torch.tensor([1]))) == numbers_by_content(
    ...     torch.tensor([[7]])
    ... )
    True
    """
    values = inputs.values if isinstance(inputs, Padded) else inputs
    lengths = inputs.lengths.tolist() if isinstance(inputs, Padded) else [values.shape[1]] * len(values)
    rows = values.cpu().numpy()
    sums = (hashlib.sha256(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True))
    return [int.from_bytes(one.digest()[:8], "big") for one in sums]
