"""The unigram model of pieces, fitted by expectation and maximisation with pruning (Kudo 2018), in numpy.

A word of bytes is a walk over its places 0..n; a piece that fits from a to b is an edge. A way through the word has the
product of its edges' probabilities, so the expected number of uses of an edge is

    forward[a] * probability * backward[b] / forward[n]

and the new probability of a piece is its share of all uses. After two such rounds the pieces that the texts would miss
least are dropped, until `size` are left. All single bytes stay.

The library's own trainer sums in the order of a hash table that is drawn anew in each process, so that two runs give
two vocabularies. Here every sum has one order: the same texts give the same pieces, whatever the number of threads.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

LONGEST_WORD = 32  # bytes: longer ones are cut for fitting, so that products stay within float64
LONGEST_PIECE = 16  # bytes
MOST_WORDS = 100_000  # the most frequent ones; the others would change little and cost memory
SEEDS = 10  # candidates for each piece that is kept in the end
KEPT = 0.75  # of the pieces, at each pruning
ROUNDS = 2  # of expectation and maximisation between prunings
LEAST = 1e-9  # of a probability, relative to all: bytes that never occur must still be possible


def count_parts(words: Iterable[str]) -> list[tuple[bytes, int]]:
    """The most frequent words as bytes, cut where they are too long, with their counts, in one fixed order."""
    counts: Counter[bytes] = Counter()
    for word, count in Counter(words).items():
        for part in _short(word):
            counts[part] += count
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_WORDS]


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
    texts = _lattice([word for word, _ in words], pieces)
    counts = np.array([count for _, count in words], np.float64)
    itself = _lattice(pieces, pieces).without_whole()
    while True:
        for _ in range(ROUNDS):
            uses = texts.expected_uses(_probabilities(uses), counts)
        if len(pieces) <= size:
            break
        kept = _kept(uses, itself, max(size, int(len(pieces) * KEPT)))
        pieces, uses = [pieces[number] for number in kept], uses[kept]
        texts, itself = texts.with_pieces(kept), itself.with_words(kept).with_pieces(kept)
    return _ordered(pieces, np.log(_probabilities(uses)))


def _seeds(words: Sequence[tuple[bytes, int]], most: int) -> list[tuple[bytes, int]]:
    """The substrings of whole characters that cover most of the texts; each occurs in two places at least."""
    counts: Counter[bytes] = Counter()
    for word, count in words:
        for start, stop in _parts(word):
            counts[word[start:stop]] += count
    found = [(piece, count) for piece, count in counts.items() if count > 1 and len(piece) > 1]
    return sorted(found, key=lambda item: (-item[1] * len(item[0]), item[0]))[:most]


def _parts(word: bytes) -> list[tuple[int, int]]:
    """Where the substrings of whole characters begin and end."""
    edges = [place for place, byte in enumerate(word) if byte & 0xC0 != 0x80] + [len(word)]
    return [
        (start, stop)
        for number, start in enumerate(edges)
        for stop in edges[number + 1 : number + 1 + LONGEST_PIECE]
        if stop - start <= LONGEST_PIECE
    ]


def _byte_counts(words: Sequence[tuple[bytes, int]]) -> np.ndarray:
    counts = np.zeros(256)
    for word, count in words:
        np.add.at(counts, np.frombuffer(word, np.uint8), count)
    return counts


def _probabilities(uses: np.ndarray) -> np.ndarray:
    shares = np.maximum(uses / max(uses.sum(), 1.0), LEAST)
    return np.asarray(shares / shares.sum())


class _Lattice(NamedTuple):
    """The edges of many words at once, sorted by the place where they end; word w has the nodes first[w]..last[w]."""

    first: np.ndarray  # [words]
    last: np.ndarray  # [words]
    word: np.ndarray  # [edges]
    start: np.ndarray  # [edges] node
    stop: np.ndarray  # [edges] node
    depth: np.ndarray  # [edges] the place in its word where the edge ends, sorted
    piece: np.ndarray  # [edges]

    def _only(self, edges: np.ndarray) -> "_Lattice":
        return self._replace(
            word=self.word[edges],
            start=self.start[edges],
            stop=self.stop[edges],
            depth=self.depth[edges],
            piece=self.piece[edges],
        )

    def with_pieces(self, kept: np.ndarray) -> "_Lattice":
        """The edges of the kept pieces, which get new numbers in the order given."""
        number = np.full(int(max(self.piece.max(initial=0), kept.max(initial=0))) + 1, -1)
        number[kept] = np.arange(len(kept))
        left = self._only(number[self.piece] >= 0)
        return left._replace(piece=number[left.piece])

    def with_words(self, kept: np.ndarray) -> "_Lattice":
        """The kept words, which get new numbers in the order given."""
        number = np.full(len(self.first), -1)
        number[kept] = np.arange(len(kept))
        left = self._only(number[self.word] >= 0)
        return left._replace(first=self.first[kept], last=self.last[kept], word=number[left.word])

    def without_whole(self) -> "_Lattice":
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


def _lattice(words: Sequence[bytes], pieces: Sequence[bytes]) -> _Lattice:
    """All edges of the words: every byte, and every piece where it fits between characters."""
    numbers = {piece: number for number, piece in enumerate(pieces)}
    sizes = np.array([len(word) + 1 for word in words], np.int64)
    first = np.cumsum(sizes) - sizes
    edges = array("q")  # word, start, stop, piece of one edge after the other
    for number, word in enumerate(words):
        for place, byte in enumerate(word):
            edges.extend((number, place, place + 1, byte))
        for start, stop in _parts(word):
            if stop - start > 1 and (piece := numbers.get(word[start:stop])) is not None:
                edges.extend((number, start, stop, piece))
    word_of, start_of, stop_of, piece_of = np.array(edges, np.int64).reshape(-1, 4).T
    order = np.argsort(stop_of, kind="stable")
    word_of, start_of, stop_of, piece_of = word_of[order], start_of[order], stop_of[order], piece_of[order]
    base = first[word_of]
    return _Lattice(first, first + sizes - 1, word_of, base + start_of, base + stop_of, stop_of, piece_of)


def _kept(uses: np.ndarray, itself: _Lattice, most: int) -> np.ndarray:
    """The numbers of the pieces that stay: all bytes, and those whose loss would cost the texts most."""
    scores = np.log(_probabilities(uses))
    cost = uses * (scores - itself.best(scores))  # the texts would fall back to the best way through the piece
    cost[:256] = np.inf
    return np.sort(np.argsort(-cost, kind="stable")[:most])


def _ordered(pieces: Sequence[bytes], scores: np.ndarray) -> list[tuple[bytes, float]]:
    rounded = [(piece, round(float(score), 6)) for piece, score in zip(pieces, scores, strict=True)]
    return rounded[:256] + sorted(rounded[256:], key=lambda item: (-item[1], item[0]))
