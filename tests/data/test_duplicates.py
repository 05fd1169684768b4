"""Exact and near duplicates against brute force, and leaks between parts."""

import itertools
import tracemalloc
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.data.checks import minhash
from seqloom.data.checks.duplicates import DuplicateRows, DuplicateSearch, digest, folded
from seqloom.data.checks.minhash import NEAR, jaccard, near_groups, shingles, signatures
from seqloom.data.kinds.kind import InputKind
from seqloom.data.kinds.text import PairInput, TextInput, TextPair
from seqloom.data.kinds.vectors import VectorsInput
from seqloom.data.kinds.words import Words, WordsInput
from seqloom.data.problems import Ledger, Place
from seqloom.data.schema import Example, Input

LETTERS = "abcdefghijklmnopqrstuvwxyz    éß词"


def random_text(draw: np.random.Generator, least: int = 60, most: int = 400) -> str:
    return "".join(draw.choice(list(LETTERS), draw.integers(least, most)))


def varied(text: str, draw: np.random.Generator, changes: int) -> str:
    """The text with some letters changed."""
    letters = list(text)
    for at in draw.integers(0, len(letters), changes):
        letters[at] = draw.choice(list(LETTERS))
    return "".join(letters)


@cache
def families(seed: int, count: int = 60) -> tuple[str, ...]:
    """Texts with more and less similar relatives, in random order."""
    draw = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        text = random_text(draw)
        texts += [text, *(varied(text, draw, int(changes)) for changes in draw.integers(1, 6, 4))]
    return tuple(texts[at] for at in draw.permutation(len(texts)))


@cache
def similarities(texts: tuple[str, ...]) -> dict[tuple[int, int], float]:
    sets = [shingles(text) for text in texts]
    return {(a, b): jaccard(sets[a], sets[b]) for a, b in itertools.combinations(range(len(texts)), 2)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_nearly_all_pairs_of_similarity_nine_tenths_are_found(seed: int) -> None:
    texts = families(seed)
    group = {row: number for number, rows in enumerate(near_groups(texts)) for row in rows}
    alike = [pair for pair, value in similarities(texts).items() if value >= 0.9]
    found = [pair for pair in alike if group.get(pair[0], -1) == group.get(pair[1], -2)]
    assert len(alike) > 30
    assert len(found) >= 0.95 * len(alike)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_group_holds_a_text_without_a_near_one(seed: int) -> None:
    texts = families(seed)
    exact = similarities(texts)
    linked = [{pair for pair in itertools.combinations(rows, 2) if exact[pair] >= NEAR} for rows in near_groups(texts)]
    assert linked
    for rows, links in zip(near_groups(texts), linked, strict=True):
        assert components(rows, links) == 1  # so a group is a chain of pairs that are near indeed


def components(rows: list[int], links: set[tuple[int, int]]) -> int:
    leader = {row: row for row in rows}
    for one, other in links:
        leader = {row: leader[one] if at == leader[other] else at for row, at in leader.items()}
    return len(set(leader.values()))


@pytest.mark.slow
def test_agreement_of_signatures_estimates_the_similarity() -> None:
    texts = families(5)
    signed = signatures(texts)
    errors = [np.mean(signed[a] == signed[b]) - value for (a, b), value in similarities(texts).items() if value > 0.3]
    assert len(errors) > 100
    assert abs(np.mean(errors)) < 0.02  # no bias
    assert np.std(errors) < 0.08  # sqrt(J (1 - J) / 84) is at most 0.055


@pytest.mark.slow
@given(st.lists(st.text(max_size=12), max_size=12), st.integers(1, 40))
@settings(max_examples=30)
def test_any_texts_in_slices_of_any_size_give_the_same_groups(texts: list[str], size: int) -> None:
    expected = near_groups(texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minhash, "SLICE", size)
        assert near_groups(texts) == expected
    group = {row: number for number, rows in enumerate(expected) for row in rows}
    equal = [(a, b) for a, b in itertools.combinations(range(len(texts)), 2) if texts[a] == texts[b]]
    assert all(a in group and group[a] == group.get(b) for a, b in equal)


@pytest.mark.slow
def test_a_large_bucket_does_not_cost_the_square_of_its_size() -> None:
    texts = [f"the same beginning of all these texts, and a number at the very end {row}" for row in range(3000)]
    (group,) = near_groups(texts)
    assert len(group) == 3000


def test_groups_are_the_same_in_every_run() -> None:
    assert near_groups(families(7)) == near_groups(families(7))


@given(st.text())
def test_folding_twice_is_folding_once_and_white_space_and_case_do_not_matter(text: str) -> None:
    assert folded(f"  {text}\t\n") == folded(text)
    assert folded(text) == folded(folded(text)) or not text.isascii()  # some letters fold only in two steps


@pytest.mark.parametrize(
    ("kind", "one", "same", "other"),
    [
        (TextInput(), "Hello  World", "hello world ", "hello, world"),
        (TextInput(), "caf\u00e9", "CAFE\u0301", "cafe"),
        (PairInput(), TextPair("a", "b c"), TextPair("A", "b  c"), TextPair("a b", "c")),
        (WordsInput(), Words.join(["a", "b"]), Words.join(["A", "B"]), Words.join(["ab"])),
        (VectorsInput(), np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((3, 2))),
        (VectorsInput(), np.zeros(2, np.float32), np.zeros(2, np.float32), np.zeros(1, np.float64)),
    ],
)
def test_digests_are_equal_for_exact_duplicates_only(kind: InputKind, one: Input, same: Input, other: Input) -> None:
    assert digest(kind, one) == digest(kind, same) != digest(kind, other)


def search(most_rows: int = 50_000, **parts: list[str]) -> DuplicateRows:
    found = DuplicateSearch(TextInput(), most_rows)
    for name, texts in parts.items():
        rows = [Example(text, None, "", Place(name, row + 1)) for row, text in enumerate(texts)]
        found.update(name, rows[: len(rows) // 2])
        found.update(name, rows[len(rows) // 2 :])
    return found.finish()


LONG = "a rather long sentence about looms and sequences, "


def test_repeats_and_leaks_are_counted_by_rows() -> None:
    found = search(
        train=["one", "two", "One ", LONG + "first", LONG + "fifth", "nothing like it at all"],
        dev=["two", "TWO", "three", LONG + "third", "altogether different"],
    )
    train, dev = found.within
    (leak,) = found.between
    assert (train.rows, train.exact, train.near) == (6, 1, 2)
    assert (dev.rows, dev.exact, dev.near) == (5, 1, 0)
    assert (leak.first, leak.second, leak.rows, leak.exact, leak.near) == ("train", "dev", 5, 2, 1)


def test_an_exact_leak_is_not_counted_as_a_near_one_too() -> None:
    (leak,) = search(train=[LONG + "first", LONG + "third"], dev=[LONG + "third", LONG + "other"]).between
    assert (leak.exact, leak.near) == (1, 1)


def test_samples_show_places_and_whole_texts() -> None:
    found = search(train=["Two", LONG + "first"], dev=["two ", LONG + "third"])
    (near,) = found.near
    assert near.texts == (LONG + "first", LONG + "third")
    assert near.places == (Place("train", 2), Place("dev", 2))
    assert NEAR <= near.similarity < 1
    assert [twins.texts for twins in found.between[0].samples] == [near.texts, ("Two", "two ")]
    assert [(twins.rows, twins.texts) for twins in found.exact] == [(2, ("Two", "two "))]


def test_samples_of_a_leak_are_of_different_groups_and_each_has_its_twin_in_the_first_part() -> None:
    found = search(
        train=[LONG + "first", LONG + "fifth", "one", "two"],
        dev=[LONG + "third", LONG + "first", LONG + "other", "two", "TWO", "three"],
    )
    (leak,) = found.between
    assert (leak.exact, leak.near) == (3, 2)
    assert [twins.texts[1] for twins in leak.samples] == [LONG + "third", "two"]
    assert [[place.path for place in twins.places] for twins in leak.samples] == [["train", "dev"]] * 2
    assert {twins.group for twins in leak.samples} == {twins.group for twins in (*found.near, *found.exact)}


def test_of_many_near_rows_the_first_place_is_told() -> None:
    ledger = Ledger()
    search(train=["one", LONG + "first"], dev=["two", LONG + "third"]).warn(ledger)
    ((problem,),) = ledger.samples.values()
    assert (problem.code, problem.place, ledger.counts["leak.near"]) == ("leak.near", Place("dev", 2), 1)
    assert "1 of 2 rows in dev (50 %)" in problem.text and problem.text.endswith("at train:2")


def test_a_sample_of_a_near_group_is_a_near_pair() -> None:
    chain = [LONG[at:] + LONG[:at] for at in range(0, 50, 4)]
    found = search(train=[text + "z" for text in chain])
    assert all(twins.similarity >= NEAR for twins in found.near)


def test_of_a_large_part_a_seeded_sample_is_compared_nearly_and_every_row_exactly() -> None:
    texts = [f"{LONG}{row // 2}" for row in range(1000)]
    found = search(100, train=texts)
    assert found == search(100, train=texts)
    assert (found.within[0].rows, found.within[0].exact, found.within[0].compared) == (1000, 500, 100)


@pytest.mark.slow
def test_the_reservoir_holds_every_row_with_the_same_probability() -> None:
    from seqloom.data.checks.duplicates import _SplitRows

    hits = np.zeros(40)
    draw = np.random.default_rng(0)
    rows = [Example(str(row), None, "", Place("x", row)) for row in range(40)]
    for _ in range(1000):
        part = _SplitRows(TextInput(), draw, 10)
        part.add(rows[:17])
        part.add(rows[17:])
        hits[[example.place.line for _, example in part.kept]] += 1
    assert np.abs(hits / 1000 - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 1000)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [[np.zeros(50_000, np.float32)], ["a b " * 50_000, "c d " * 50_000]])
def test_of_wide_rows_only_a_little_is_kept(rows: list[Input]) -> None:
    found = DuplicateSearch(TextInput() if isinstance(rows[0], str) else VectorsInput())
    tracemalloc.start()
    try:
        for row in range(100):
            value = rows[row % len(rows)]
            wide = value + np.float32(row) if isinstance(value, np.ndarray) else f"{row} {value}"
            found.update("train", [Example(wide, "label " * 9_000, "", Place("x", row))])
        del value, wide
        now, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now < 100 * 4_000
    assert found.finish().within[0].rows == 100


def test_nothing_at_all_has_no_duplicates() -> None:
    assert search() == DuplicateRows((), (), (), ())
    assert search(train=[]).within[0].rows == 0


def test_vectors_are_compared_exactly_and_never_nearly() -> None:
    found = DuplicateSearch(VectorsInput())
    found.update("train", [Example(np.full((3, 2), row // 2), None, "", Place("x", row)) for row in range(6)])
    result = found.finish()
    assert (result.within[0].exact, result.within[0].near, result.near) == (3, 0, ())
    assert result.exact[0].texts == ("array 3 x 2", "array 3 x 2")
