"""Labels counted, against scikit-learn."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

from seqloom.metrics.calibration import binned
from seqloom.metrics.classification import Counts, counted, counted_sets, packed, unpacked

LABELS = 5
ONE = st.integers(0, LABELS - 1)
EXAMPLES = st.lists(st.tuples(ONE, ONE), min_size=1, max_size=30)
SETS = st.lists(st.tuples(*[st.booleans()] * (2 * LABELS)), min_size=1, max_size=20)


@pytest.mark.slow
@settings(max_examples=30)
@given(EXAMPLES)
def test_the_figures_of_one_label_are_those_of_scikit_learn(examples: list[tuple[int, int]]) -> None:
    said, true = np.array(examples).T
    counts = Counts.of(counted(said, true, np.ones(len(said)), LABELS))
    assert float(counts.micro.f1) == pytest.approx(accuracy_score(true, said))
    assert float(counts.micro.f1) == pytest.approx(f1_score(true, said, average="micro"))
    assert float(counts.macro_f1) == pytest.approx(f1_score(true, said, average="macro", zero_division=0))
    wanted = precision_recall_fscore_support(true, said, labels=range(LABELS), zero_division=0)
    each = counts.each
    assert np.allclose([each.precision, each.recall, each.f1, counts.expected], wanted)
    named = counts.named([str(label) for label in range(LABELS)])
    assert set(named) == {str(label) for label in {*said, *true}}
    assert all(figures["support"] == np.sum(true == int(label)) for label, figures in named.items())


@pytest.mark.slow
@settings(max_examples=30)
@given(SETS)
def test_the_figures_of_several_labels_are_those_of_scikit_learn_over_the_labels_that_came_up(
    examples: list[tuple[bool, ...]],
) -> None:
    said, true = np.split(np.array(examples), 2, axis=1)
    counts = Counts.of(counted_sets(packed(said), packed(true), np.ones((1, len(said))), LABELS))
    assert counts.micro.f1[0] == pytest.approx(f1_score(true, said, average="micro", zero_division=0))
    seen = np.flatnonzero((said | true).any(axis=0))
    if len(seen):
        wanted = f1_score(true[:, seen], said[:, seen], average="macro", zero_division=0)
        assert counts.macro_f1[0] == pytest.approx(wanted)
        everything = f1_score(true, said, average="macro", zero_division=0)  # its default: the others count as 0
        assert counts.macro_f1[0] * len(seen) / LABELS == pytest.approx(everything)
    wanted = f1_score(true, said, average=None, zero_division=0)
    assert np.allclose(counts.each.f1[0], wanted)


@settings(max_examples=30)
@given(st.integers(1, 150), st.integers(0, 2**32 - 1))
def test_sets_come_back_as_they_were_packed(labels: int, seed: int) -> None:
    chosen = np.random.default_rng(seed).random((7, labels)) < 0.4
    numbers = packed(chosen)
    assert (unpacked(numbers, labels) == chosen).all()
    assert (numbers < 2**48).all()


@given(EXAMPLES, st.integers(0, 2**32 - 1))
def test_a_row_taken_twice_counts_twice(examples: list[tuple[int, int]], seed: int) -> None:
    said, true = np.array(examples).T
    times = np.random.default_rng(seed).integers(0, 4, len(said))
    written_out = np.repeat(said, times), np.repeat(true, times)
    assert (counted(said, true, times, LABELS) == counted(*written_out, np.ones(times.sum()), LABELS)).all()
    sets = [packed(np.eye(LABELS, dtype=bool)[numbers]) for numbers in (said, true)]
    assert (counted_sets(*sets, times[None].astype(float), LABELS)[0] == counted(said, true, times, LABELS)).all()


@given(EXAMPLES, st.integers(0, 2**32 - 1))
def test_many_resamples_are_counted_as_one_after_another(examples: list[tuple[int, int]], seed: int) -> None:
    said, true = np.array(examples).T
    draw = np.random.default_rng(seed)
    times, sure = draw.integers(0, 4, (5, len(said))).astype(float), draw.random(len(said))
    one_by_one = np.stack([counted(said, true, one, LABELS) for one in times])
    assert (counted(said, true, times, LABELS) == one_by_one).all()
    bins = np.stack([binned(sure, said == true, one) for one in times])
    assert np.allclose(binned(sure, said == true, times), bins, rtol=1e-12)


@pytest.mark.slow
def test_a_thousand_labels_of_a_hundred_thousand_rows_are_counted_in_milliseconds() -> None:
    draws = np.random.default_rng(0)
    said, true = draws.integers(0, 1_000, (2, 100_000)).astype(float)
    start = time.process_time()
    for _ in range(10):
        Counts.of(counted(said, true, np.ones(100_000), 1_000)).macro_f1  # noqa: B018
    assert (time.process_time() - start) / 10 < 0.1
