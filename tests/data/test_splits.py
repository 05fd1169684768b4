"""Parts drawn by a seed: pure, stratified, whole groups, every row in one part."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.config.data import FoldSplit, RandomSplit
from seqloom.data.examples import Example
from seqloom.data.problems import Place
from seqloom.data.schema import Schema
from seqloom.data.splits import RUN, divider

LABELS = Schema("text", "label")


def parts(split: RandomSplit | FoldSplit, labels: list[str], groups: list[str] | None = None) -> list[str]:
    """The part of each row."""
    part_of = divider(split, LABELS)
    rows = [Example(str(n), label, str(n), Place("x")) for n, label in enumerate(labels)]
    return [part_of(row, None if groups is None else groups[n]) for n, row in enumerate(rows)]


@given(st.lists(st.sampled_from("aaab"), min_size=1, max_size=300), st.integers(0, 5))
@settings(max_examples=100)
def test_every_class_has_its_share_in_every_part(labels: list[str], seed: int) -> None:
    drawn = parts(RandomSplit(dev=0.2, test=0.1, seed=seed), labels)
    for name, count in Counter(labels).items():
        found = Counter(part for part, label in zip(drawn, labels, strict=True) if label == name)
        assert abs(found["dev"] - 0.2 * count) <= 4
        assert abs(found["test"] - 0.1 * count) <= 3
        assert found["train"] >= 1


def test_shares_are_exact_in_the_long_run() -> None:
    drawn = Counter(parts(RandomSplit(dev=0.07, test=0.13), ["a"] * 10_001))
    assert drawn["dev"] == pytest.approx(700, abs=3) and drawn["test"] == pytest.approx(1_300, abs=3)


def test_a_split_depends_on_the_seed_and_the_rows_before_and_on_nothing_else() -> None:
    labels = ["a", "b", "a"] * 50
    first = parts(RandomSplit(seed=1), labels)
    assert first == parts(RandomSplit(seed=1), labels)
    assert first[:70] == parts(RandomSplit(seed=1), labels[:70])
    assert first != parts(RandomSplit(seed=2), labels)


def test_rows_of_one_group_are_never_parted_and_shares_hold_over_groups() -> None:
    groups = [str(n % 997) for n in range(5_000)]
    drawn = parts(RandomSplit(dev=0.2, test=0.2, group="g"), ["a"] * 5_000, groups)
    by_group = dict(zip(groups, drawn, strict=True))
    assert all(by_group[group] == part for group, part in zip(groups, drawn, strict=True))
    assert Counter(by_group.values())["dev"] == pytest.approx(199, abs=40)


@pytest.mark.parametrize("folds", [2, 3, 5, 10])
def test_every_row_is_in_the_dev_part_of_exactly_one_fold(folds: int) -> None:
    labels = ["a", "b", "b"] * 40
    drawn = [parts(FoldSplit(folds=folds, fold=fold, seed=3), labels) for fold in range(folds)]
    assert all(column.count("dev") == 1 for column in zip(*drawn, strict=True))
    sizes = [row.count("dev") for row in drawn]
    assert max(sizes) - min(sizes) <= 4


def test_neighbouring_lines_of_running_text_stay_together() -> None:
    part_of = divider(RandomSplit(), Schema("text", "nothing"))
    row = Example("a", None, "1", Place("x"))
    drawn = [part_of(row, None) for _ in range(40 * RUN)]
    runs = [set(drawn[start : start + RUN]) for start in range(0, len(drawn), RUN)]
    assert all(len(run) == 1 for run in runs)
    assert Counter(part for run in runs for part in run) == {"train": 32, "dev": 4, "test": 4}
