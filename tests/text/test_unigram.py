"""The unigram model against the sums it stands for, written out way by way."""

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.text.unigram import LONGEST_WORD, _lattice, _probabilities, _seeds, count_parts, train_unigram

SINGLES = [bytes([byte]) for byte in range(256)]
WORDS = st.lists(st.tuples(st.text("abé", min_size=1, max_size=5).map(str.encode), st.integers(1, 9)), min_size=1)


def ways(word: bytes, numbers: dict[bytes, int]) -> list[list[int]]:
    """Every way to cut a word into known pieces."""
    found = []
    for count in range(len(word)):
        for cuts in combinations(range(1, len(word)), count):
            edges = [0, *cuts, len(word)]
            pieces = [word[start:stop] for start, stop in pairwise(edges)]
            if all(piece in numbers for piece in pieces):
                found.append([numbers[piece] for piece in pieces])
    return found


@given(words=WORDS, seed=st.integers(0, 99))
def test_expected_uses_and_the_best_way_are_those_of_all_ways_written_out(
    words: list[tuple[bytes, int]], seed: int
) -> None:
    pieces = SINGLES + [piece for piece, _ in _seeds(words, 20)]
    numbers = {piece: number for number, piece in enumerate(pieces)}
    probabilities = _probabilities(np.random.default_rng(seed).random(len(pieces)))
    expected, best = np.zeros(len(pieces)), []
    for word, count in words:
        weights = [math.prod(probabilities[way]) for way in ways(word, numbers)]
        for way, weight in zip(ways(word, numbers), weights, strict=True):
            np.add.at(expected, way, count * weight / sum(weights))
        best.append(math.log(max(weights)))
    lattice = _lattice([word for word, _ in words], pieces)
    counts = np.array([count for _, count in words], float)
    np.testing.assert_allclose(lattice.expected_uses(probabilities, counts), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(lattice.best(np.log(probabilities)), best, rtol=1e-9)


def test_each_round_makes_the_texts_more_probable() -> None:
    words = [(b"lower", 5), (b"lowest", 3), (b"newer", 6), (b"wider", 3), (b"new", 2)]
    pieces = SINGLES + [piece for piece, _ in _seeds(words, 100)]
    lattice, counts = _lattice([word for word, _ in words], pieces), np.array([5.0, 3.0, 6.0, 3.0, 2.0])
    uses, before = np.ones(len(pieces)), -math.inf
    for _ in range(6):
        probabilities = _probabilities(uses)
        numbers = {piece: number for number, piece in enumerate(pieces)}
        now = sum(
            count * math.log(sum(math.prod(probabilities[way]) for way in ways(word, numbers))) for word, count in words
        )
        assert now >= before - 1e-6
        uses, before = lattice.expected_uses(probabilities, counts), now


@pytest.mark.parametrize("size", [256, 260, 300])
def test_the_bytes_come_first_and_the_others_by_falling_score(size: int) -> None:
    words = [(word.encode(), 3) for word in ("bake", "baker", "bakery", "lake", "lakes", "北京", "北")]
    pieces = train_unigram(words, size)
    assert [piece for piece, _ in pieces[:256]] == SINGLES
    assert len(pieces) <= size
    scores = [score for _, score in pieces[256:]]
    assert scores == sorted(scores, reverse=True)
    for piece, _ in pieces[256:]:
        piece.decode()  # whole characters only


def test_frequent_words_become_pieces() -> None:
    words = [(b" the", 1_000), (b" cat", 500), (b" zyx", 1)]
    pieces = dict(train_unigram(words, 258))
    assert {b" the", b" cat"} < set(pieces)


@given(words=st.lists(st.text(min_size=1, max_size=100), max_size=5))
def test_long_words_are_cut_between_characters_and_nothing_is_lost(words: list[str]) -> None:
    parts = count_parts(words)
    assert all(len(part) <= LONGEST_WORD and part.decode() for part, _ in parts)
    assert sum(len(part) * count for part, count in parts) == sum(len(word.encode()) for word in words)
