"""R² against scikit-learn, from sums."""

import numpy as np
import pytest
from sklearn.metrics import r2_score

from seqloom.metrics.correlation import explained, explained_statistics


def r2(said: np.ndarray, true: np.ndarray, near: float) -> float:
    sums = explained_statistics(said, true, np.full(true.shape[1], near)).sum(axis=0)
    return explained(sums, np.array(len(true))).item()


@pytest.mark.parametrize("numbers", [1, 3])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_it_is_that_of_scikit_learn_wherever_the_numbers_lie(numbers: int, shift: float) -> None:
    draws = np.random.default_rng(0)
    true = draws.standard_normal((50, numbers)) + shift
    said = true + 0.5 * draws.standard_normal((50, numbers))
    assert r2(said, true, near=shift + 0.3) == pytest.approx(r2_score(true, said), rel=1e-9)


@pytest.mark.parametrize("error", [0.0, 1.0])
def test_a_number_that_never_changes_is_told_as_scikit_learn_tells_it(error: float) -> None:
    true = np.full((9, 1), 0.1)
    assert r2(true + error, true, near=7.0) == r2_score(true, true + error) == (error == 0)


def test_sums_of_many_sets_at_once_are_those_of_each() -> None:
    draws = np.random.default_rng(1)
    sets = [explained_statistics(draws.random((8, 2)), draws.random((8, 2)), np.zeros(2)).sum(axis=0) for _ in "abc"]
    together = explained(np.stack(sets), np.full(3, 8))
    assert together.tolist() == pytest.approx([explained(one, np.array(8)).item() for one in sets])
