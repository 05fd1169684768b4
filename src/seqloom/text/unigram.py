"""The unigram model of pieces, fitted by expectation and maximisation with pruning (Kudo 2018), in numpy.

A word of bytes is a walk over its places 0..n; a piece that fits from a to b is an edge. A way through the word has the
product of its edges' probabilities, so the expected number of uses of an edge is

    forward[a] * probability * backward[b] / forward[n]

and the new probability of a piece is its share of all uses. After two such rounds the pieces that the texts would miss
least are dropped, until `size` are left. All single bytes stay.

The library's own trainer sums in the order of a hash table that is drawn anew in each process, so that two runs give
two vocabularies. Here every sum has one order: the same texts give the same pieces, whatever the number of threads.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from seqloom.text.lattice import LONGEST_PIECE, LONGEST_WORD, Lattice, Letters, Trie, lattice
from seqloom.text.words import forget_rare

MOST_COUNTED = 2**19  # different words that are counted at a time
MOST_WORDS = 100_000  # the most frequent ones; the others would change little and cost memory
MOST_LETTERS = 2**21  # bytes of these words together
MOST_EDGES = 2**23  # of these words, about 140 MB
BLOCK = 2_048  # words that are worked on together
SEEDS = 10  # candidates for each piece that is kept in the end
KEPT = 0.75  # of the pieces, at each pruning
ROUNDS = 2  # of expectation and maximisation between prunings
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
            uses = _expected_uses(texts, _probabilities(uses))
        if len(numbers) <= size:
            break
        scores = np.log(_probabilities(uses))
        without = _best_without(trie, [pieces[number] for number in numbers], numbers, scores)
        kept = _kept(uses * (scores - without), max(size, int(len(numbers) * KEPT)))
        numbers, uses = numbers[kept], uses[kept]
        for at, (text, counts) in enumerate(texts):
            texts[at] = text.with_pieces(kept), counts
    return _ordered([pieces[number] for number in numbers], np.log(_probabilities(uses)))


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


def _expected_uses(texts: Sequence[tuple[Lattice, np.ndarray]], probabilities: np.ndarray) -> np.ndarray:
    uses = np.zeros(len(probabilities))
    for text, counts in texts:
        uses += text.expected_uses(probabilities, counts)
    return uses


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


def _kept(losses: np.ndarray, most: int) -> np.ndarray:
    """The places of the pieces that stay: all bytes, and those whose loss would cost the texts most."""
    losses[:256] = np.inf
    return np.sort(np.argsort(-losses, kind="stable")[:most])


def _ordered(pieces: Sequence[bytes], scores: np.ndarray) -> list[tuple[bytes, float]]:
    rounded = [(piece, round(float(score), 6)) for piece, score in zip(pieces, scores, strict=True)]
    return rounded[:256] + sorted(rounded[256:], key=lambda item: (-item[1], item[0]))
