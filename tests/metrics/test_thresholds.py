"""Thresholds that make F1 as large as any thresholds do."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.metrics import classification
from seqloom.metrics.classification import best_thresholds


def f1(likely: np.ndarray, true: np.ndarray, chosen: tuple[float, ...]) -> float:
    said = likely > np.array(chosen)
    whole = said.sum() + true.sum()
    return 2 * float((said & (true > 0)).sum()) / whole if whole else 0.0


def drawn(seed: int, rows: int, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities on a coarse grid, with many ties, and labels that follow them more or less."""
    draws = np.random.default_rng(seed)
    likely = draws.integers(0, 21, (rows, labels)) / 20
    return likely, (draws.random((rows, labels)) < likely * draws.uniform(0.3, 1, labels)).astype(int)


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 4))
def test_thresholds_never_lower_f1_and_are_the_same_each_time(seed: int, rows: int, labels: int) -> None:
    likely, true = drawn(seed, rows, labels)
    chosen = best_thresholds(likely, true)
    assert f1(likely, true, chosen) >= f1(likely, true, (0.5,) * labels)
    assert chosen == best_thresholds(likely, true)


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_no_thresholds_of_a_whole_grid_are_better(seed: int) -> None:
    likely, true = drawn(seed, 40, 2)
    if min(true.sum(axis=0).min(), (1 - true).sum(axis=0).min()) < classification.FEWEST:
        return
    best = max(f1(likely, true, pair) for pair in product(np.arange(0.075, 0.95, 0.05), repeat=2))
    assert f1(likely, true, best_thresholds(likely, true)) == pytest.approx(best)


def test_a_label_of_which_little_is_known_keeps_a_half() -> None:
    likely, true = np.full((30, 2), 0.3), np.zeros((30, 2), int)
    true[:4, 0], true[:20, 1] = 1, 1
    likely[20:, 1] = 0.1
    assert best_thresholds(likely, true) == (0.5, pytest.approx(0.2))
