"""Spearman's correlation against scipy, ties and all."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr

from seqloom.metrics.correlation import ranks, spearman

NUMBER = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6))
PAIRS = st.lists(st.tuples(NUMBER, NUMBER), min_size=2, max_size=30)


@settings(max_examples=50)
@given(PAIRS)
def test_spearman_is_that_of_scipy_and_nothing_where_a_column_never_changes(pairs: list[tuple[float, float]]) -> None:
    x, y = np.array(pairs).T
    assert (ranks(x) == rankdata(x)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy tells of constant columns, and answers NaN
        wanted = float(spearmanr(x, y).statistic)
    assert spearman(x, y) == pytest.approx(0.0 if np.isnan(wanted) else wanted, abs=1e-9)


@settings(max_examples=30)
@given(PAIRS)
def test_the_order_alone_counts(pairs: list[tuple[float, float]]) -> None:
    x, y = np.array(pairs).T
    distinct = np.unique(x, return_inverse=True)[1].astype(float)
    assert spearman(x, y) == pytest.approx(spearman(distinct**3 + 1, y), abs=1e-12)
    assert spearman(x, y) == pytest.approx(-spearman(-x, y), abs=1e-9)
