"""The table of input vectors: one row per word, or rows of the word and its character n-grams (Bojanowski et al. 2017).

    words       v_w = row of w
    subwords    v_w = mean of the rows of w and of its n-grams;   <where>: <wh, whe, her, ere, re>, <whe, ...

N-grams are hashed into a fixed number of rows, so that a large vocabulary needs bounded memory. As in fastText, a step
of v_w is added to each of its rows, which moves v_w as far as a step of a single row would.
"""

from collections.abc import Sequence
from typing import Protocol
from zlib import crc32

import torch
from torch import Tensor

SHORTEST, LONGEST = 3, 6  # characters of an n-gram
MOST_BUCKETS = 2**20


class InputTable(Protocol):
    """Vectors of words that can be read and changed."""

    def take(self, words: Tensor) -> Tensor:
        """[n,D] the vectors of words [n]."""

    def add(self, words: Tensor, steps: Tensor) -> None:
        """Add steps [n,D] to the vectors of words [n]; a word may occur several times."""

    def vectors(self) -> Tensor:
        """[V,D] the vectors of all words."""


def drawn_rows(rows: int, dim: int, seed: int) -> Tensor:
    """[rows, dim] uniform in ±1/(2 dim), as in word2vec."""
    return (torch.rand(rows, dim, generator=torch.Generator().manual_seed(seed)) - 0.5) / dim


class WordTable:
    """A row for each word."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows  # [V,D]

    def take(self, words: Tensor) -> Tensor:
        return self.rows.index_select(0, words)

    def add(self, words: Tensor, steps: Tensor) -> None:
        self.rows.index_add_(0, words, steps)

    def vectors(self) -> Tensor:
        return self.rows


def ngrams(word: str) -> list[str]:
    """The character n-grams of a word between marks for its begin and end, without the complete word.

    >>> ngrams("the")
    ['<th', 'the', 'he>', '<the', 'the>']
    """
    text = f"<{word}>"
    sizes = range(SHORTEST, min(LONGEST, len(text) - 1) + 1)
    return [text[at : at + size] for size in sizes for at in range(len(text) - size + 1)]


class SubwordTable:
    """A row for each word and for each bucket of n-grams; `members` lists the rows of each word."""

    def __init__(self, words: Sequence[str], dim: int, seed: int) -> None:
        grams = [ngrams(word) for word in words]
        distinct = len({gram for some in grams for gram in some})
        buckets = min(MOST_BUCKETS, 1 << max(1, distinct - 1).bit_length())  # a power of two, few collisions
        rows = [
            [number, *(len(words) + crc32(gram.encode()) % buckets for gram in some)]
            for number, some in enumerate(grams)
        ]
        self.rows = drawn_rows(len(words) + buckets, dim, seed)
        self.members = torch.tensor([row for some in rows for row in some])
        self.sizes = torch.tensor([len(some) for some in rows])
        self.starts = self.sizes.cumsum(0) - self.sizes

    def _members_of(self, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The rows of words [n], one word after another, with the start and the number of each word's rows."""
        sizes = self.sizes[words]
        starts = sizes.cumsum(0) - sizes
        places = torch.repeat_interleave(self.starts[words] - starts, sizes) + torch.arange(int(sizes.sum()))
        return self.members[places], starts, sizes

    def take(self, words: Tensor) -> Tensor:
        distinct, number = torch.unique(words, return_inverse=True)
        members, starts, _ = self._members_of(distinct)
        means = torch.nn.functional.embedding_bag(members, self.rows, starts, mode="mean")
        return means.index_select(0, number)

    def add(self, words: Tensor, steps: Tensor) -> None:
        distinct, number = torch.unique(words, return_inverse=True)
        members, _, sizes = self._members_of(distinct)
        sums = steps.new_zeros(len(distinct), steps.shape[1]).index_add_(0, number, steps)
        self.rows.index_add_(0, members, sums.repeat_interleave(sizes, 0))

    def vectors(self) -> Tensor:
        words = torch.arange(len(self.sizes))
        return torch.cat([self.take(some) for some in torch.split(words, 4_096)])
