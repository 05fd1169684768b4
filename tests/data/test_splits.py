"""Parts drawn by a seed: pure, stratified, whole groups, every row in one part."""

from collections import Counter
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.config.data import SPLITS, ColumnSplit, DataConfig, FoldSplit, RandomSplit
from seqloom.data.dataset import open_data, open_without_test
from seqloom.data.problems import Ledger, Place
from seqloom.data.schema import Example, Examples, Schema
from seqloom.data.splits import LONGEST_RUN, PIECES, _Hands, _shares, divider

LABELS = Schema("text", "label")


def parts(split: RandomSplit | FoldSplit, labels: list[str], groups: list[str] | None = None) -> list[str]:
    """The part of each row."""
    rows = Examples.of(Example(str(n), label, str(n), Place("x")) for n, label in enumerate(labels))
    return list(divider(split, LABELS)(rows, groups or []))


@given(st.lists(st.sampled_from("aaab"), max_size=300), st.lists(st.integers(1, 60)), st.integers(0, 5))
@settings(max_examples=60)
def test_blocks_of_rows_are_split_as_single_rows_are(labels: list[str], sizes: list[int], seed: int) -> None:
    split = RandomSplit(dev_size=0.2, test_size=0.1, split_seed=seed)
    rows = Examples.of(Example("", label, None, Place("x")) for label in labels)
    of_rows, of_blocks, hands = divider(split, LABELS), divider(split, LABELS), _Hands(split, _shares(split)[0])
    single = [split for row in range(len(rows)) for split in of_rows(rows[row : row + 1], [])]
    ends = [*accumulate(sizes, initial=0), len(rows)]
    blocks = [split for begin, end in pairwise(ends) for split in of_blocks(rows[begin:end], [])]
    assert blocks == single
    assert single == [SPLITS[hands._next(label)] for label in labels]  # without the shorter way of the usual case


@given(st.lists(st.sampled_from("aaab"), min_size=1, max_size=300), st.integers(0, 5))
@settings(max_examples=100)
def test_every_class_has_its_share_in_every_part(labels: list[str], seed: int) -> None:
    drawn = parts(RandomSplit(dev_size=0.2, test_size=0.1, split_seed=seed), labels)
    for name, count in Counter(labels).items():
        found = Counter(part for part, label in zip(drawn, labels, strict=True) if label == name)
        assert abs(found["dev"] - 0.2 * count) <= 4
        assert abs(found["test"] - 0.1 * count) <= 3
        assert found["train"] >= 1


def test_shares_are_exact_in_the_long_run() -> None:
    drawn = Counter(parts(RandomSplit(dev_size=0.07, test_size=0.13), ["a"] * 10_001))
    assert drawn["dev"] == pytest.approx(700, abs=3) and drawn["test"] == pytest.approx(1_300, abs=3)


def test_a_split_depends_on_the_seed_and_the_rows_before_and_on_nothing_else() -> None:
    labels = ["a", "b", "a"] * 50
    first = parts(RandomSplit(split_seed=1), labels)
    assert first == parts(RandomSplit(split_seed=1), labels)
    assert first[:70] == parts(RandomSplit(split_seed=1), labels[:70])
    assert first != parts(RandomSplit(split_seed=2), labels)


def test_rows_of_one_group_are_never_parted_and_shares_hold_over_groups() -> None:
    groups = [str(n % 997) for n in range(5_000)]
    drawn = parts(RandomSplit(dev_size=0.2, test_size=0.2, group="g"), ["a"] * 5_000, groups)
    by_group = dict(zip(groups, drawn, strict=True))
    assert all(by_group[group] == part for group, part in zip(groups, drawn, strict=True))
    assert Counter(by_group.values())["dev"] == pytest.approx(199, abs=40)


@pytest.mark.parametrize("folds", [2, 3, 5, 10])
def test_every_row_is_in_the_dev_part_of_exactly_one_fold(folds: int) -> None:
    labels = ["a", "b", "b"] * 40
    drawn = [parts(FoldSplit(folds=folds, fold=fold, split_seed=3), labels) for fold in range(folds)]
    assert all(column.count("dev") == 1 for column in zip(*drawn, strict=True))
    sizes = [row.count("dev") for row in drawn]
    assert max(sizes) - min(sizes) <= 4


@pytest.mark.slow
@given(
    st.lists(st.integers(2, 12), min_size=20, max_size=60),
    st.integers(0, 99),
    st.sampled_from([(0.1, 0.1), (0.2, 0.1), (0.07, 0.13), (0.3, 0.0)]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60)
def test_many_small_classes_have_their_shares_together(
    sizes: list[int], seed: int, shares: tuple[float, float], shuffler: Random
) -> None:
    labels = [str(name) for name, size in enumerate(sizes) for _ in range(size)]
    shuffler.shuffle(labels)
    drawn = Counter(parts(RandomSplit(dev_size=shares[0], test_size=shares[1], split_seed=seed), labels))
    for part, share in zip(("dev", "test"), shares, strict=True):
        assert abs(drawn[part] - share * len(labels)) <= 4


@pytest.mark.parametrize("rows", [3, 4, 5, 7, 10])
def test_a_hundred_classes_of_a_few_rows_give_the_shares(rows: int) -> None:
    for seed in range(5):
        labels = [str(name) for name in range(100) for _ in range(rows)]
        drawn = Counter(parts(RandomSplit(split_seed=seed), labels))
        assert abs(drawn["dev"] - 10 * rows) <= 2 and abs(drawn["test"] - 10 * rows) <= 2


def test_shares_that_are_no_tenths_come_out_over_classes_of_ten_rows() -> None:
    labels = [str(name) for name in range(100) for _ in range(10)]
    drawn = Counter(parts(RandomSplit(dev_size=0.07, test_size=0.13), labels))
    assert drawn == {"train": 800, "dev": pytest.approx(70, abs=2), "test": pytest.approx(130, abs=2)}


@given(st.lists(st.sampled_from("ab"), min_size=10, max_size=40), st.integers(0, 9))
def test_every_part_of_a_tenth_has_one_of_the_first_ten_rows(labels: list[str], seed: int) -> None:
    drawn = Counter(parts(RandomSplit(split_seed=seed), labels)[:10])
    assert 1 <= drawn["dev"] <= 2 and 1 <= drawn["test"] <= 2


def test_the_first_row_of_every_class_trains() -> None:
    labels = [str(name) for name in range(50) for _ in range(4)]
    drawn = parts(RandomSplit(dev_size=0.3, test_size=0.3), labels)
    assert set(drawn[::4]) == {"train"}


def runs_of(split: RandomSplit | FoldSplit, rows: int | list[int]) -> list[str]:
    """The parts of so many lines of running text, or of lines of these lengths."""
    sizes = [1] * rows if isinstance(rows, int) else rows
    lines = Examples.of(Example("a" * size, None, "1", Place("x")) for size in sizes)
    return list(divider(split, Schema("text", "nothing"))(lines, []))


def test_neighboring_lines_of_running_text_stay_together() -> None:
    lines = 30_000
    drawn = runs_of(RandomSplit(), [80] * lines)
    runs = [len(list(run)) for _, run in groupby(drawn[lines // 2 :])]
    assert min(runs[1:-1]) >= LONGEST_RUN // 80  # whole runs


@given(st.lists(st.integers(1, 900), min_size=10, max_size=400), st.integers(1, 8), st.integers(0, 99))
@settings(max_examples=100)
def test_running_text_has_its_shares_of_characters(sizes: list[int], times: int, seed: int) -> None:
    sizes = sizes * times
    drawn = runs_of(RandomSplit(split_seed=seed), sizes)
    total = sum(sizes)
    for part in ("dev", "test"):
        found = sum(size for size, one in zip(sizes, drawn, strict=True) if one == part)
        # Within one run, and the line that may exceed it
        assert abs(found - 0.1 * total) <= max(sizes) + total / PIECES


@given(st.integers(10, 3_000), st.integers(0, 99))
@settings(max_examples=100)
def test_running_text_of_any_length_has_all_parts(rows: int, seed: int) -> None:
    drawn = Counter(runs_of(RandomSplit(split_seed=seed), rows))
    for part in ("dev", "test"):
        assert drawn[part] >= 1
        assert abs(drawn[part] - 0.1 * rows) <= 1 + rows / PIECES


@pytest.mark.slow
@given(st.integers(20, 500), st.integers(0, 9))
@settings(max_examples=30)
def test_every_line_of_a_short_text_is_in_dev_in_one_fold(rows: int, seed: int) -> None:
    drawn = [runs_of(FoldSplit(folds=4, fold=fold, split_seed=seed), rows) for fold in range(4)]
    assert all(column.count("dev") == 1 for column in zip(*drawn, strict=True))
    assert all("dev" in fold for fold in drawn)


@pytest.mark.parametrize(
    ("train", "settings"),
    [
        ("all.csv", {}),
        ("all.csv", {"split": ColumnSplit(split_column="part")}),
        ("rows.csv", {}),
        ("rows.csv", {"split": RandomSplit(test_size=0.0)}),
        ("rows.csv", {"split": FoldSplit()}),
        ("rows.csv", {"dev": ("dev.csv",)}),
        ("rows.csv", {"dev": ("dev.csv",), "test": ("test.csv",)}),
        ("rows.csv", {"test": ("test.csv",)}),
        ("questions", {}),
    ],
    ids=["column", "named column", "drawn", "none drawn", "folds", "dev file", "files", "test file", "built in"],
)
def test_opened_data_knows_whether_it_has_a_test_set_without_reading_it(
    train: str, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("rows", "dev", "test"):
        Path(f"{name}.csv").write_text("text,label\n" + "".join(f"{name} {row},{row % 2}\n" for row in range(60)))
    parts = ("train", "dev", "test")
    header = "text,label," + ("part" if settings else "split")  # a column of that name splits by itself
    Path("all.csv").write_text(f"{header}\n" + "".join(f"row {row},{row % 2},{parts[row % 3]}\n" for row in range(60)))
    config = DataConfig(train=(train,), **settings)
    known = open_without_test(config, Ledger()).config.has_test
    assert known == any(part == "test" for part, _ in open_data(config, Ledger()).rows(Ledger()))
