"""Fitting of the unigram model by expectation maximization with pruning (Kudo 2018), in numpy.

A word of n bytes is a graph with the nodes 0..n; a piece that matches from a to b is an edge. The probability of a path
through the word is the product of its edges' probabilities, so the expected number of uses of an edge is

    forward[a] * probability * backward[b] / forward[n]

and the new probability of a piece is its share of all uses. After two rounds, the pieces whose removal lowers the
likelihood least are dropped, until `size` are left. All single bytes stay.

The library's own trainer sums in the order of a hash table that is seeded anew in each process, so two runs give
different vocabularies. Here every sum has a fixed order: equal texts give equal pieces for any number of threads.

The graphs of all words are stored as flat arrays over letters or edges, because a million bytes of text have several
million substrings.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from seqloom.text.words import forget_rare

LONGEST_WORD = 32  # bytes: longer words are split for fitting, so that products stay within float64
LONGEST_PIECE = 16  # bytes


class Letters(NamedTuple):
    """The bytes of many words, concatenated."""

    values: np.ndarray  # [letters + LONGEST_PIECE] uint8, zero-padded at the end
    left: np.ndarray  # [letters] uint8, bytes from here to the end of the word
    word: np.ndarray  # [letters] int32

    @classmethod
    def of(cls, words: Sequence[bytes]) -> "Letters":
        """Concatenate the bytes of the words."""
        sizes = np.array([len(word) for word in words], np.int64)
        ends = np.repeat(np.cumsum(sizes), sizes)
        left = (ends - np.arange(len(ends))).astype(np.uint8)
        values = np.frombuffer(b"".join(words) + bytes(LONGEST_PIECE), np.uint8)
        return cls(values, left, np.repeat(np.arange(len(words), dtype=np.int32), sizes))

    def begins_character(self, places: np.ndarray) -> np.ndarray:
        """Whether a UTF-8 character begins at each place; true after the last letter."""
        return np.asarray(self.values[places] & 0xC0 != 0x80)

    def text(self, place: int, size: int) -> bytes:
        """Return `size` bytes from a place."""
        return self.values[place : place + size].tobytes()

    def extended(self, places: np.ndarray, ranks: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the places where `size` bytes fit into the word, and a sortable key for these bytes at each place.

        `ranks` are the keys for one byte fewer.
        """
        fits = self.left[places] >= size
        places = places[fits]
        return places, ranks[fits].astype(np.int64) * 256 + self.values[places + (size - 1)]


class Lattice(NamedTuple):
    """The edges of many words, sorted by the place where they end; word w has the nodes first[w]..last[w]."""

    first: np.ndarray  # [words] int64
    last: np.ndarray  # [words] int64
    word: np.ndarray  # [edges] int32
    start: np.ndarray  # [edges] int32, node
    stop: np.ndarray  # [edges] int32, node
    depth: np.ndarray  # [edges] uint8, the offset in the word where the edge ends, sorted
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
        """Keep only the edges of these pieces, renumbered in the order given."""
        number = np.full(int(max(self.piece.max(initial=0), kept.max(initial=0))) + 1, -1, np.int32)
        number[kept] = np.arange(len(kept))
        left = self._only(number[self.piece] >= 0)
        return left._replace(piece=number[left.piece])

    def without_whole(self) -> "Lattice":
        """Remove the edges that span a complete word of more than one byte."""
        whole = (self.start == self.first[self.word]) & (self.stop == self.last[self.word])
        return self._only(~whole | (self.last - self.first == 1)[self.word])

    def _layers(self) -> list[slice]:
        """Return the slices of edges that end at offset 1, 2, ... of their words."""
        bounds = np.searchsorted(self.depth, np.arange(1, LONGEST_WORD + 2))
        return [slice(low, high) for low, high in pairwise(bounds) if low < high]

    def expected_uses(self, probabilities: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the expected uses [pieces] of each piece over all paths through words that occur `counts` times."""
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
        """Return the score [words] of the best path through each word."""
        reached = np.full(int(self.last.max(initial=0)) + 1, -np.inf)
        reached[self.first] = 0.0
        for layer in self._layers():
            np.maximum.at(reached, self.stop[layer], reached[self.start[layer]] + scores[self.piece[layer]])
        return np.asarray(reached[self.last])


class Trie(NamedTuple):
    """Pieces by prefix: prefixes of n bytes are numbered in sorted order, and tables[n - 1] holds their keys."""

    tables: list[np.ndarray]  # [prefixes] int64, sorted: the number of the prefix one byte shorter, and the last byte
    pieces: list[np.ndarray]  # [prefixes] int32, the piece that ends there, or -1

    @classmethod
    def of(cls, pieces: Sequence[bytes]) -> "Trie":
        """Build the trie of the pieces."""
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
        """Yield, for each size from one byte, the places where a piece of that size matches, and the piece's number."""
        places, nodes = np.arange(len(letters.left)), np.zeros(len(letters.left), np.intp)
        for size, (table, ends) in enumerate(zip(self.tables, self.pieces, strict=True), start=1):
            places, keys = letters.extended(places, nodes, size)
            nodes = np.searchsorted(table, keys)
            known = np.append(table, -1)[nodes] == keys
            places, nodes = places[known], nodes[known]
            found = ends[nodes]
            yield places[found >= 0], found[found >= 0]


def lattice(words: Sequence[bytes], trie: Trie) -> Lattice:
    """Return all edges of the words; by the design of UTF-8, a piece of complete characters matches only at
    characters.
    """
    letters, lengths = Letters.of(words), np.array([len(word) for word in words], np.int64)
    found = list(trie.matches(letters))
    places, pieces = (np.concatenate(column) for column in zip(*found, strict=True))
    sizes = np.repeat(np.arange(1, LONGEST_PIECE + 1, dtype=np.int32), [len(places) for places, _ in found])
    word = letters.word[places]
    first = np.cumsum(lengths + 1) - lengths - 1
    start = (places + word).astype(np.int32)  # each earlier word has one node more than letters
    depth = (lengths[word] - letters.left[places] + sizes).astype(np.uint8)
    order = np.argsort(depth, kind="stable")
    return Lattice(first, first + lengths, word, start, start + sizes, depth, pieces)._only(order)


MOST_COUNTED = 2**19  # distinct words counted at a time
MOST_WORDS = 100_000  # only the most frequent; the rest would change little and cost memory
MOST_LETTERS = 2**21  # maximum total bytes of these words
MOST_EDGES = 2**23  # maximum edges of these words, about 140 MB
BLOCK = 2_048  # words processed together
SEEDS = 10  # candidates per final piece
KEPT = 0.75  # share of the pieces kept at each pruning
ROUNDS = 2  # rounds of expectation maximization between prunings
LEAST = 1e-9  # minimum probability, relative to all: unseen bytes must stay possible


def count_parts(words: Iterable[str]) -> list[tuple[bytes, int]]:
    """Return the most frequent words as bytes with their counts, in a fixed order; long words are split."""
    whole: Counter[str] = Counter()
    words = iter(words)
    while some := list(islice(words, MOST_COUNTED)):
        whole.update(some)
        if len(whole) > MOST_COUNTED:
            forget_rare(whole, MOST_COUNTED // 2)
    counts: Counter[bytes] = Counter()
    for word, count in whole.items():
        for part in _short(word):
            counts[part] += count
    parts = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_WORDS]
    return parts[: int(np.searchsorted(np.cumsum([len(part) for part, _ in parts]), MOST_LETTERS, side="right"))]


def _short(word: str) -> list[bytes]:
    """Split a word into parts of at most LONGEST_WORD bytes, between characters."""
    whole = word.encode()
    if len(whole) <= LONGEST_WORD:
        return [whole]
    size = LONGEST_WORD // 4  # characters: each has at most four bytes
    return [word[start : start + size].encode() for start in range(0, len(word), size)]


def train_unigram(words: Sequence[tuple[bytes, int]], size: int) -> list[tuple[bytes, float]]:
    """Return at most `size` pieces with their log probabilities: single bytes first, then the most probable."""
    singles = [bytes([byte]) for byte in range(256)]
    seeds = _seeds(words, SEEDS * size)
    pieces = singles + [piece for piece, _ in seeds]
    uses = np.array([*_byte_counts(words), *(count for _, count in seeds)], np.float64)
    trie, numbers = Trie.of(pieces), np.arange(len(pieces))  # indices of the remaining pieces
    texts = _texts(words, trie)
    while True:
        for _ in range(ROUNDS):
            shares = _probabilities(uses)
            uses = sum((text.expected_uses(shares, counts) for text, counts in texts), np.zeros(len(shares)))
        if len(numbers) <= size:
            break
        scores = np.log(_probabilities(uses))
        without = _best_without(trie, [pieces[number] for number in numbers], numbers, scores)
        # Keep all bytes and the pieces whose removal would lower the likelihood most
        losses = uses * (scores - without)
        losses[:256] = np.inf
        kept = np.sort(np.argsort(-losses, kind="stable")[: max(size, int(len(numbers) * KEPT))])
        numbers, uses = numbers[kept], uses[kept]
        for at, (text, counts) in enumerate(texts):
            texts[at] = text.with_pieces(kept), counts
    rounded = [
        (piece, round(float(score), 6))
        for piece, score in zip([pieces[number] for number in numbers], np.log(_probabilities(uses)), strict=True)
    ]
    return rounded[:256] + sorted(rounded[256:], key=lambda item: (-item[1], item[0]))


def _texts(words: Sequence[tuple[bytes, int]], trie: Trie) -> list[tuple[Lattice, np.ndarray]]:
    """Return the words in blocks with their counts, up to MOST_EDGES edges; the rarest words may be left out."""
    texts: list[tuple[Lattice, np.ndarray]] = []
    for start in range(0, len(words), BLOCK):
        block = words[start : start + BLOCK]
        counts = np.array([count for _, count in block], np.float64)
        texts.append((lattice([word for word, _ in block], trie), counts))
        if sum(len(text.piece) for text, _ in texts) > MOST_EDGES:
            break
    return texts


def _best_without(trie: Trie, pieces: Sequence[bytes], numbers: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the best score [pieces] of each piece without using that piece; a single byte has no other path."""
    blocks = [pieces[start : start + BLOCK] for start in range(0, len(pieces), BLOCK)]
    return np.concatenate([lattice(block, trie).without_whole().with_pieces(numbers).best(scores) for block in blocks])


def _seeds(words: Sequence[tuple[bytes, int]], most: int) -> list[tuple[bytes, int]]:
    """Return the substrings of complete characters that cover most text and occur at two places or more."""
    letters = Letters.of([word for word, _ in words])
    found = list(_substrings(letters, np.array([count for _, count in words], np.float64), most))
    places, counts = (np.concatenate(column) for column in list(zip(*found, strict=True))[:2])
    sizes = np.concatenate([np.full(len(places), size) for places, _, size in found])
    covered = counts * sizes
    enough = np.partition(covered, -most)[-most] if len(covered) > most else 0
    chosen = np.flatnonzero(covered >= enough)
    columns = zip(places[chosen].tolist(), sizes[chosen].tolist(), counts[chosen].tolist(), strict=True)
    pieces = [(letters.text(place, size), int(count)) for place, size, count in columns]
    return sorted(pieces, key=lambda item: (-item[1] * len(item[0]), item[0]))[:most]


def _substrings(letters: Letters, counts: np.ndarray, most: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield, for each size from two bytes, where the most frequent substrings first occur, and their counts.

    Substrings that occur once are not extended, because longer ones also occur once.
    """
    places = np.flatnonzero(letters.begins_character(np.arange(len(letters.left))))
    ranks = letters.values[places]
    for size in range(2, LONGEST_PIECE + 1):
        places, keys = letters.extended(places, ranks, size)
        _, firsts, ranks = np.unique(keys, return_index=True, return_inverse=True)
        occur = np.bincount(ranks, weights=counts[letters.word[places]], minlength=len(firsts))
        starts = places[firsts]
        good = np.flatnonzero((occur > 1) & (letters.begins_character(starts + size) | (letters.left[starts] == size)))
        best = good[np.argsort(-occur[good], kind="stable")[:most]]  # ties: the first in sort order
        yield starts[best], occur[best], size
        again = occur[ranks] > 1
        places, ranks = places[again], ranks[again]


def _byte_counts(words: Sequence[tuple[bytes, int]]) -> np.ndarray:
    letters = Letters.of([word for word, _ in words])
    counts = np.array([count for _, count in words], np.float64)
    return np.bincount(letters.values[: len(letters.word)], weights=counts[letters.word], minlength=256)


def _probabilities(uses: np.ndarray) -> np.ndarray:
    shares = np.maximum(uses / max(uses.sum(), 1.0), LEAST)
    return np.asarray(shares / shares.sum())
