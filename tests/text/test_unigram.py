"""The unigram model against the sums it stands for, written out way by way."""

import math
import subprocess
import sys
from collections import Counter
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.text import unigram
from seqloom.text.unigram import (
    LONGEST_PIECE,
    LONGEST_WORD,
    MOST_WORDS,
    Trie,
    _probabilities,
    _seeds,
    count_parts,
    lattice,
    train_unigram,
)

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


@pytest.mark.slow
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
    graph = lattice([word for word, _ in words], Trie.of(pieces))
    counts = np.array([count for _, count in words], float)
    np.testing.assert_allclose(graph.expected_uses(probabilities, counts), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(graph.best(np.log(probabilities)), best, rtol=1e-9)


def substrings(words: list[tuple[bytes, int]]) -> Counter[bytes]:
    """How often each substring of whole characters occurs, counted one by one."""
    counts: Counter[bytes] = Counter()
    for word, count in words:
        text = word.decode()
        for start, stop in combinations(range(len(text) + 1), 2):
            counts[text[start:stop].encode()] += count
    return counts


@given(
    words=st.dictionaries(st.text("abé北", min_size=1, max_size=10), st.integers(1, 3), min_size=1),
    most=st.integers(1, 30),
)
def test_seeds_are_the_substrings_that_cover_most(words: dict[str, int], most: int) -> None:
    given = [(word.encode(), count) for word, count in words.items()]
    sizes = range(2, LONGEST_PIECE + 1)
    repeated = [(piece, count) for piece, count in substrings(given).items() if count > 1 and len(piece) in sizes]
    assert _seeds(given, most) == sorted(repeated, key=lambda item: (-item[1] * len(item[0]), item[0]))[:most]


def test_the_rarest_words_are_left_out_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [(f"{number:04}".encode(), 9_999 - number) for number in range(3_000)]
    trie = Trie.of(SINGLES)
    assert sum(len(counts) for _, counts in unigram._texts(words, trie)) == 3_000
    monkeypatch.setattr(unigram, "MOST_EDGES", 4_000)
    monkeypatch.setattr(unigram, "BLOCK", 300)
    texts = unigram._texts(words, trie)
    assert [len(counts) for _, counts in texts] == [300] * 4 and texts[0][1][0] == 9_999
    monkeypatch.setattr(unigram, "MOST_LETTERS", 41)
    assert count_parts(f"{number:04}" for number in range(100)) == [(f"{n:04}".encode(), 1) for n in range(10)]
    monkeypatch.setattr(unigram, "MOST_COUNTED", 4)
    assert dict(count_parts(["b"] * 3 + list("acdefg") + ["b"] * 3))[b"b"] == 6


@pytest.mark.slow
@pytest.mark.parametrize("block", [1, 2, 2_048])
def test_blocks_of_words_do_not_change_pieces(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [(b"lower", 5), (b"lowest", 3), (b"newer", 6), (b"wider", 3), (b"new", 2)]
    expected = train_unigram(words, 262)
    monkeypatch.setattr(unigram, "BLOCK", block)
    assert train_unigram(words, 262) == expected


PROGRAM = """
import random, sys
from seqloom.text.unigram import count_parts, train_unigram
def most(): return int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0]) // 1024
draw = random.Random(0)
letters = "abcdefghijklmnopqrstuvwxyz"
parts = count_parts(["".join(draw.choices(letters, k=28)) for _ in range(int(sys.argv[1]))])
before = most()
train_unigram(parts, 4_000)
print(most() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "megabytes"), [(MOST_WORDS // 5, 60), pytest.param(MOST_WORDS, 300, marks=pytest.mark.soak)]
)
def test_many_long_words_are_fitted_in_bounded_memory(words: int, megabytes: int) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(words)],
        env={"PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= megabytes


def test_each_round_makes_the_texts_more_probable() -> None:
    words = [(b"lower", 5), (b"lowest", 3), (b"newer", 6), (b"wider", 3), (b"new", 2)]
    pieces = SINGLES + [piece for piece, _ in _seeds(words, 100)]
    graph, counts = lattice([word for word, _ in words], Trie.of(pieces)), np.array([5.0, 3.0, 6.0, 3.0, 2.0])
    uses, before = np.ones(len(pieces)), -math.inf
    for _ in range(6):
        probabilities = _probabilities(uses)
        numbers = {piece: number for number, piece in enumerate(pieces)}
        now = sum(
            count * math.log(sum(math.prod(probabilities[way]) for way in ways(word, numbers))) for word, count in words
        )
        assert now >= before - 1e-6
        uses, before = graph.expected_uses(probabilities, counts), now


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
