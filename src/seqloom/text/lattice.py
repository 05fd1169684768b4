"""All ways to cut words into pieces at once: a graph, its nodes the places in the words and its edges the pieces.

Everything is an array over letters or edges, never an object for each: a vocabulary is fitted on a million bytes, and
these have some millions of substrings.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

LONGEST_WORD = 32  # bytes: longer ones are cut for fitting, so that products stay within float64
LONGEST_PIECE = 16  # bytes


class Letters(NamedTuple):
    """The bytes of many words, one behind the other."""

    values: np.ndarray  # [letters + LONGEST_PIECE] uint8, zeros at the end
    left: np.ndarray  # [letters] uint8, how many there are from here to the end of the word
    word: np.ndarray  # [letters] int32

    @classmethod
    def of(cls, words: Sequence[bytes]) -> "Letters":
        """The letters of the words."""
        sizes = np.array([len(word) for word in words], np.int64)
        ends = np.repeat(np.cumsum(sizes), sizes)
        left = (ends - np.arange(len(ends))).astype(np.uint8)
        values = np.frombuffer(b"".join(words) + bytes(LONGEST_PIECE), np.uint8)
        return cls(values, left, np.repeat(np.arange(len(words), dtype=np.int32), sizes))

    def begins_character(self, places: np.ndarray) -> np.ndarray:
        """Whether a character of UTF-8 begins at each place; behind the last letter, yes."""
        return np.asarray(self.values[places] & 0xC0 != 0x80)

    def text(self, place: int, size: int) -> bytes:
        """The bytes at a place."""
        return self.values[place : place + size].tobytes()

    def extended(self, places: np.ndarray, ranks: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The places where `size` bytes fit into the word, and a key for these: equal for equal ones, sorted like them.

        `ranks` says the same of one byte fewer.
        """
        fits = self.left[places] >= size
        places = places[fits]
        return places, ranks[fits].astype(np.int64) * 256 + self.values[places + (size - 1)]


class Lattice(NamedTuple):
    """The edges of many words at once, sorted by the place where they end; word w has the nodes first[w]..last[w]."""

    first: np.ndarray  # [words] int64
    last: np.ndarray  # [words] int64
    word: np.ndarray  # [edges] int32
    start: np.ndarray  # [edges] int32, node
    stop: np.ndarray  # [edges] int32, node
    depth: np.ndarray  # [edges] uint8, the place in its word where the edge ends, sorted
    piece: np.ndarray  # [edges] int32

    def _only(self, edges: np.ndarray) -> "Lattice":
        return self._replace(
            word=self.word[edges],
            start=self.start[edges],
            stop=self.stop[edges],
            depth=self.depth[edges],
            piece=self.piece[edges],
        )

    def with_pieces(self, kept: np.ndarray) -> "Lattice":
        """The edges of the kept pieces, which get new numbers in the order given."""
        number = np.full(int(max(self.piece.max(initial=0), kept.max(initial=0))) + 1, -1, np.int32)
        number[kept] = np.arange(len(kept))
        left = self._only(number[self.piece] >= 0)
        return left._replace(piece=number[left.piece])

    def without_whole(self) -> "Lattice":
        """Without the edges that are a whole word of more than one byte."""
        whole = (self.start == self.first[self.word]) & (self.stop == self.last[self.word])
        return self._only(~whole | (self.last - self.first == 1)[self.word])

    def _layers(self) -> list[slice]:
        """The edges that end at place 1, 2, ... of their words."""
        bounds = np.searchsorted(self.depth, np.arange(1, LONGEST_WORD + 2))
        return [slice(low, high) for low, high in pairwise(bounds) if low < high]

    def expected_uses(self, probabilities: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """[pieces] how often each piece is used, over all ways through words that occur `counts` times."""
        weight = probabilities[self.piece]
        nodes = int(self.last.max(initial=0)) + 1
        forward, backward = np.zeros(nodes), np.zeros(nodes)
        forward[self.first] = 1.0
        backward[self.last] = 1.0
        for layer in self._layers():
            np.add.at(forward, self.stop[layer], forward[self.start[layer]] * weight[layer])
        for layer in reversed(self._layers()):
            np.add.at(backward, self.start[layer], backward[self.stop[layer]] * weight[layer])
        share = (counts / forward[self.last])[self.word]
        uses = share * forward[self.start] * weight * backward[self.stop]
        return np.bincount(self.piece, weights=uses, minlength=len(probabilities))

    def best(self, scores: np.ndarray) -> np.ndarray:
        """[words] the score of the best way through each word."""
        reached = np.full(int(self.last.max(initial=0)) + 1, -np.inf)
        reached[self.first] = 0.0
        for layer in self._layers():
            np.maximum.at(reached, self.stop[layer], reached[self.start[layer]] + scores[self.piece[layer]])
        return np.asarray(reached[self.last])


class Trie(NamedTuple):
    """Pieces by their beginnings: those of n bytes are numbered in their order, and tables[n - 1] holds their keys."""

    tables: list[np.ndarray]  # [beginnings] int64, sorted: the number of one byte fewer, and the last byte
    pieces: list[np.ndarray]  # [beginnings] int32, the piece that ends there, or -1

    @classmethod
    def of(cls, pieces: Sequence[bytes]) -> "Trie":
        """The trie of the pieces."""
        letters, sizes = Letters.of(pieces), np.array([len(piece) for piece in pieces], np.int64)
        places, nodes = np.cumsum(sizes) - sizes, np.zeros(len(pieces), np.intp)
        trie = cls([], [])
        for size in range(1, LONGEST_PIECE + 1):
            places, keys = letters.extended(places, nodes, size)
            table, nodes = np.unique(keys, return_inverse=True)
            whole = letters.left[places] == size
            ends = np.full(len(table), -1, np.int32)
            ends[nodes[whole]] = letters.word[places[whole]]
            trie.tables.append(table)
            trie.pieces.append(ends)
        return trie

    def matches(self, letters: Letters) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each size from one byte, the places where a piece of that size stands, and which piece."""
        places, nodes = np.arange(len(letters.left)), np.zeros(len(letters.left), np.intp)
        for size, (table, ends) in enumerate(zip(self.tables, self.pieces, strict=True), start=1):
            places, keys = letters.extended(places, nodes, size)
            nodes = np.searchsorted(table, keys)
            known = np.append(table, -1)[nodes] == keys
            places, nodes = places[known], nodes[known]
            found = ends[nodes]
            yield places[found >= 0], found[found >= 0]


def lattice(words: Sequence[bytes], trie: Trie) -> Lattice:
    """All edges of the words; a piece of whole characters fits between characters only, as UTF-8 is made."""
    letters, lengths = Letters.of(words), np.array([len(word) for word in words], np.int64)
    found = list(trie.matches(letters))
    places, pieces = (np.concatenate(column) for column in zip(*found, strict=True))
    sizes = np.repeat(np.arange(1, LONGEST_PIECE + 1, dtype=np.int32), [len(places) for places, _ in found])
    word = letters.word[places]
    first = np.cumsum(lengths + 1) - lengths - 1
    start = (places + word).astype(np.int32)  # each word before has one node more than letters
    depth = (lengths[word] - letters.left[places] + sizes).astype(np.uint8)
    order = np.argsort(depth, kind="stable")
    return Lattice(first, first + lengths, word, start, start + sizes, depth, pieces)._only(order)
