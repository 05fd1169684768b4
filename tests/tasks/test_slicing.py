"""Slices: every row is in one of each column, numbers in stretches, and a slice is the evaluation of its rows."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.tasks.evaluation import (
    LEAST_ROWS,
    MISSING,
    MOST_VALUES,
    OTHERS,
    QUANTILES,
    badness,
    evaluate,
    names_of,
    sliced,
)

Find = Callable[[str], Any]
VALUES = st.one_of(st.none(), st.text("ab ", max_size=3), st.integers(-20, 20), st.floats(-9, 9), st.just("0.5"))


@settings(max_examples=30)
@given(st.lists(VALUES, min_size=1, max_size=60))
def test_every_value_has_one_name_and_there_are_few(values: list[Any]) -> None:
    names = names_of(values)
    assert len(names) == len(values) and len(set(names)) <= MOST_VALUES + 2
    assert all(
        (name == MISSING) == (value is None or not str(value).strip())
        for name, value in zip(names, values, strict=True)
    )


@pytest.mark.slow
@settings(max_examples=20)
@given(st.lists(st.integers(-1_000, 1_000), min_size=40, max_size=90, unique=True))
def test_many_numbers_fall_into_stretches_of_about_as_many(values: list[int]) -> None:
    names = np.array(names_of(values))
    counts = [int((names == name).sum()) for name in set(names)]
    assert len(counts) == QUANTILES and max(counts) - min(counts) <= 1
    groups = [[value for value, name in zip(values, names, strict=True) if name == one] for one in set(names)]
    bounds = sorted((min(group), max(group)) for group in groups)
    assert all(high < low for (_, high), (low, _) in pairwise(bounds))


def test_few_numbers_are_names_and_rare_values_stand_together() -> None:
    assert set(names_of([1, 2, 1, 2, 5])) == {"1", "2", "5"}
    often = [f"often {number}" for number in range(MOST_VALUES - 1)] * LEAST_ROWS
    assert set(names_of([*often, "rare"])) == {*often, "rare"}
    assert set(names_of([*often, "rare", "rarer"])) == {*often, OTHERS}


@pytest.mark.parametrize("kind", ["csv", "numbers", "conll"])
def test_a_slice_is_the_evaluation_of_its_rows_and_all_of_them_are_the_whole(small: Find, kind: str) -> None:
    found = small(kind)
    model = found.model(found.task.recipes()[0])
    whole = evaluate(found.task, model, found.batches())
    values = [("even", "odd")[int(name) % 2] for name in whole.ids]
    slices = sliced(found.task, whole, "side", values)
    assert sorted(one.value for one in slices) == ["even", "odd"]
    sums = [one.evaluation.statistics.sum(axis=0) for one in slices]
    np.testing.assert_allclose(np.sum(sums, axis=0), whole.statistics.sum(axis=0))
    for one in slices:
        assert {name for name, value in zip(whole.ids, values, strict=True) if value == one.value} == {
            *one.evaluation.ids
        }
        loss, weight = one.evaluation.statistics[:, -2:].sum(axis=0)
        assert one.evaluation.metrics["loss"] == pytest.approx(loss / weight)
        differ = len(np.unique(one.evaluation.statistics, axis=0)) > 1  # rows that are alike have no interval
        assert ("loss" in one.evaluation.intervals(found.task, resamples=20)) == differ


def test_the_worst_come_first_whatever_the_batches_and_wrong_ones_before_right_ones(small: Find) -> None:
    found = small("csv")
    model, batches = found.model("bag"), found.batches()
    some, other = (evaluate(found.task, model, order, worst=6).worst for order in (batches, batches[::-1]))
    everything = evaluate(found.task, model, batches, worst=1_000).worst
    assert [one.id for one in some] == [one.id for one in other] == [one.id for one in everything[:6]]
    ranks = [(one.correct is True, -badness(one)) for one in everything]
    assert ranks == sorted(ranks) and len(everything) == len(found.prepared.splits["dev"])
    assert {one.correct for one in everything} == {True, False}


def test_none_is_kept_unless_it_is_asked_for(small: Find) -> None:
    found = small("csv")
    assert evaluate(found.task, found.model("bag"), found.batches()).worst == ()
