"""The unigram model of pieces, fitted by expectation and maximization with pruning (Kudo 2018), in numpy.

A word of bytes is a walk over its places 0..n; a piece that fits from a to b is an edge. A way through the word has the
product of its edges' probabilities, so the expected number of uses of an edge is

    forward[a] * probability * backward[b] / forward[n]

and the new probability of a piece is its share of all uses. After two such rounds the pieces that the texts would miss
least are dropped, until `size` are left. All single bytes stay.

The library's own trainer sums in the order of a hash table that is drawn anew in each process, so that two runs give
two vocabularies. Here every sum has one order: the same texts give the same pieces, whatever the number of threads.

All ways to cut words into pieces at once: a graph, its nodes the places in the words and its edges the pieces.

Everything is an array over letters or edges, never an object for each: a vocabulary is fitted on a million bytes, and
these have some millions of substrings.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from seqloom.text.words import forget_rare

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
    """Pieces by prefix: prefixes of n bytes are numbered in sorted order, and tables[n - 1] holds their keys."""

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


MOST_COUNTED = 2**19  # different words that are counted at a time
MOST_WORDS = 100_000  # the most frequent ones; the others would change little and cost memory
MOST_LETTERS = 2**21  # bytes of these words together
MOST_EDGES = 2**23  # of these words, about 140 MB
BLOCK = 2_048  # words that are worked on together
SEEDS = 10  # candidates for each piece that is kept in the end
KEPT = 0.75  # of the pieces, at each pruning
ROUNDS = 2  # of expectation and maximization between prunings
LEAST = 1e-9  # of a probability, relative to all: bytes that never occur must still be possible


def count_parts(words: Iterable[str]) -> list[tuple[bytes, int]]:
    """The most frequent words as bytes, cut where they are too long, with their counts, in one fixed order."""
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
    """A word in parts of at most LONGEST_WORD bytes, cut between characters."""
    whole = word.encode()
    if len(whole) <= LONGEST_WORD:
        return [whole]
    size = LONGEST_WORD // 4  # characters: four bytes each at most
    return [word[start : start + size].encode() for start in range(0, len(word), size)]


def train_unigram(words: Sequence[tuple[bytes, int]], size: int) -> list[tuple[bytes, float]]:
    """At most `size` pieces with the logarithms of their probabilities: the bytes first, then the most probable."""
    singles = [bytes([byte]) for byte in range(256)]
    seeds = _seeds(words, SEEDS * size)
    pieces = singles + [piece for piece, _ in seeds]
    uses = np.array([*_byte_counts(words), *(count for _, count in seeds)], np.float64)
    trie, numbers = Trie.of(pieces), np.arange(len(pieces))  # the numbers of the pieces that are left
    texts = _texts(words, trie)
    while True:
        for _ in range(ROUNDS):
            shares = _probabilities(uses)
            uses = sum((text.expected_uses(shares, counts) for text, counts in texts), np.zeros(len(shares)))
        if len(numbers) <= size:
            break
        scores = np.log(_probabilities(uses))
        without = _best_without(trie, [pieces[number] for number in numbers], numbers, scores)
        # The places of the pieces that stay: all bytes, and those whose loss would cost the texts most
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
    """The words in blocks with their counts, until there are edges enough: the rarest words may be left out."""
    texts: list[tuple[Lattice, np.ndarray]] = []
    for start in range(0, len(words), BLOCK):
        block = words[start : start + BLOCK]
        counts = np.array([count for _, count in block], np.float64)
        texts.append((lattice([word for word, _ in block], trie), counts))
        if sum(len(text.piece) for text, _ in texts) > MOST_EDGES:
            break
    return texts


def _best_without(trie: Trie, pieces: Sequence[bytes], numbers: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """[pieces] the score of the best way through each piece if it was no piece itself; a byte has no other way."""
    blocks = [pieces[start : start + BLOCK] for start in range(0, len(pieces), BLOCK)]
    return np.concatenate([lattice(block, trie).without_whole().with_pieces(numbers).best(scores) for block in blocks])


def _seeds(words: Sequence[tuple[bytes, int]], most: int) -> list[tuple[bytes, int]]:
    """The substrings of whole characters that cover most of the texts; each occurs in two places at least."""
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
    """For each size from two bytes, where the most frequent substrings stand first, and how often they occur.

    What occurs once is not made longer: the longer ones occur once, too.
    """
    places = np.flatnonzero(letters.begins_character(np.arange(len(letters.left))))
    ranks = letters.values[places]
    for size in range(2, LONGEST_PIECE + 1):
        places, keys = letters.extended(places, ranks, size)
        _, firsts, ranks = np.unique(keys, return_index=True, return_inverse=True)
        occur = np.bincount(ranks, weights=counts[letters.word[places]], minlength=len(firsts))
        stands = places[firsts]
        good = np.flatnonzero((occur > 1) & (letters.begins_character(stands + size) | (letters.left[stands] == size)))
        best = good[np.argsort(-occur[good], kind="stable")[:most]]  # of equally frequent ones the first in the order
        yield stands[best], occur[best], size
        again = occur[ranks] > 1
        places, ranks = places[again], ranks[again]


def _byte_counts(words: Sequence[tuple[bytes, int]]) -> np.ndarray:
    letters = Letters.of([word for word, _ in words])
    counts = np.array([count for _, count in words], np.float64)
    return np.bincount(letters.values[: len(letters.word)], weights=counts[letters.word], minlength=256)


def _probabilities(uses: np.ndarray) -> np.ndarray:
    shares = np.maximum(uses / max(uses.sum(), 1.0), LEAST)
    return np.asarray(shares / shares.sum())
