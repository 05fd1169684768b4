"""Claims about the nearest passages: exact search misses none, a graph few, and both stay with what is allowed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import DataError
from seqloom.events import finished
from seqloom.search import vectors as vectors_module
from seqloom.search.vectors import ExactSearch, GraphSearch, grow_graph, open_graph, unit_vectors

SEEDS = st.integers(0, 2**32 - 1)


def clustered(rows: int, width: int, seed: int = 0) -> np.ndarray:
    """Vectors of length 1 in clusters, as those of texts are."""
    draws = np.random.default_rng(seed)
    centers = draws.standard_normal((max(1, rows // 40), width))
    return unit_vectors(centers[draws.integers(0, len(centers), rows)] + 0.4 * draws.standard_normal((rows, width)))


def brute(vectors: np.ndarray, query: np.ndarray, allowed: np.ndarray, count: int) -> list[int]:
    """Every passage compared, and all of them sorted."""
    scores = {row: float(np.dot(vectors[row], query)) for row in np.flatnonzero(allowed).tolist()}
    return sorted(scores, key=lambda row: (-scores[row], row))[:count]


@given(SEEDS, st.integers(1, 60), st.integers(1, 70))
def test_exact_search_equals_brute_force_also_where_similarities_are_equal(seed: int, rows: int, count: int) -> None:
    draws = np.random.default_rng(seed)
    vectors = draws.integers(-1, 2, (rows, 3)).astype(np.float32)  # many are equal, and products are exact
    query, allowed = draws.integers(-2, 3, 3).astype(np.float32), draws.random(rows) < 0.7
    found = ExactSearch(vectors).nearest(query, allowed, count)
    assert found.passages.tolist() == brute(vectors, query, allowed, count)
    np.testing.assert_array_equal(found.scores, vectors[found.passages] @ query)


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return clustered(2_500, 24)


@pytest.fixture(scope="module")
def walk(vectors: np.ndarray) -> bytes:
    made = finished(grow_graph(None, vectors[:2_400], "passages"))
    return bytes(made.save())


@pytest.mark.parametrize("share", [1.0, 0.3, 0.01])
def test_a_graph_finds_nearly_all_that_exact_search_finds(vectors: np.ndarray, walk: bytes, share: float) -> None:
    exact = ExactSearch(vectors)
    graph = GraphSearch(open_graph(walk), exact)  # the last hundred passages came after it
    allowed = np.random.default_rng(1).random(len(vectors)) < share
    recalls = []
    for row in range(0, len(vectors), 50):
        wanted = exact.nearest(vectors[row], allowed, 10)
        found = graph.nearest(vectors[row], allowed, 10)
        recalls.append(len(np.intersect1d(wanted.passages, found.passages)) / len(wanted.passages))
        assert allowed[found.passages].all()
        np.testing.assert_allclose(found.scores, vectors[found.passages] @ vectors[row], rtol=1e-5, atol=1e-6)
    assert np.mean(recalls) > 0.97


def test_a_passage_that_came_after_the_graph_is_found(vectors: np.ndarray, walk: bytes) -> None:
    graph = GraphSearch(open_graph(walk), ExactSearch(vectors))
    found = graph.nearest(vectors[2_450], np.ones(len(vectors), bool), 1)
    assert found.passages.tolist() == [2_450]


def test_a_graph_over_the_same_vectors_has_the_same_bytes_in_steps_of_any_size(
    vectors: np.ndarray, walk: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors_module, "STEP", 333)
    made = finished(grow_graph(None, vectors[:2_400], "passages"))
    assert bytes(made.save()) == walk


def test_a_graph_grows_on_from_its_bytes(vectors: np.ndarray, walk: bytes) -> None:
    assert [one.done for one in grow_graph(walk, vectors, "passages")] == [2_500]


@given(SEEDS, st.integers(1, 40))
def test_whatever_half_precision_confuses_is_measured_again(seed: int, count: int) -> None:
    near = unit_vectors(np.ones(12) + 0.05 * np.random.default_rng(seed).standard_normal((64, 12)))
    query, halves = near[0], near.astype(np.float16).astype(np.float32)
    distances = 1 - halves @ query.astype(np.float16).astype(np.float32)
    order = np.argsort(distances)
    kept = vectors_module._perhaps(order, distances[order], count)
    assert set(brute(near, query, np.ones(64, bool), count)) <= set(kept.tolist())


def test_vectors_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="NaN or infinity"):
        unit_vectors(np.array([[1.0, np.nan]]))


def test_a_vector_of_zeros_stays_one() -> None:
    assert unit_vectors(np.zeros((2, 3))).tolist() == [[0.0] * 3] * 2
