"""Stored vectors: decoding is as exact as the bits allow, and the loss is measured correctly."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import ConfigError
from seqloom.search.embedding.output import DTYPES, NEAREST, VectorFormat, measure_loss, require_dtype, sample_rows


def drawn(rows: int, width: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@given(st.integers(1, 20), st.integers(1, 33), st.sampled_from(DTYPES))
def test_keeping_twice_is_keeping_once(rows: int, width: int, kind) -> None:
    vectors = drawn(rows, width)
    numbers = VectorFormat(kind, width).fitted(vectors)
    kept = numbers.encoded(vectors)
    assert (kept.dtype, kept.shape) == (numbers.numpy_dtype, (rows, numbers.columns))
    assert numbers.decoded(kept).shape == vectors.shape
    assert (numbers.encoded(numbers.decoded(kept)) == kept).all()


def test_int8_is_off_by_half_a_step_of_its_dimension_at_most() -> None:
    vectors = drawn(200, 7) * np.array([1, 10, 0.1, 1, 1, 5, 1], np.float32)
    numbers = VectorFormat("int8", 7).fitted(vectors)
    steps = np.abs(vectors).max(axis=0) / 127
    assert (np.abs(numbers.decoded(numbers.encoded(vectors)) - vectors) <= steps * 0.5001).all()


def test_what_lies_beyond_the_scale_of_int8_is_cut_to_it() -> None:
    numbers = VectorFormat("int8", 2).fitted(np.array([[1.0, -2.0]], np.float32))
    assert numbers.encoded(np.array([[5.0, -5.0], [-5.0, 5.0]], np.float32)).tolist() == [[127, -127], [-127, 127]]


def test_the_scale_of_the_first_rows_stays() -> None:
    numbers = VectorFormat("int8", 4).fitted(drawn(9, 4))
    assert numbers.fitted(drawn(9, 4, seed=1) * 3) is numbers


def test_binary_keeps_signs_and_nothing_else() -> None:
    vectors = drawn(30, 13)
    numbers = VectorFormat("binary", 13)
    assert (numbers.decoded(numbers.encoded(vectors)) == np.where(vectors > 0, 1, -1)).all()
    assert (numbers.encoded(vectors * 7) == numbers.encoded(vectors)).all()


@pytest.mark.parametrize("kind", DTYPES)
def test_a_row_without_a_vector_spoils_no_other(kind) -> None:
    vectors = drawn(6, 5)
    holed = vectors.copy()
    holed[2] = np.nan
    numbers = VectorFormat(kind, 5).fitted(vectors)
    others = [0, 1, 3, 4, 5]
    assert (numbers.encoded(holed)[others] == numbers.encoded(vectors)[others]).all()
    hole = numbers.encoded(holed)[2]
    assert np.isnan(hole).all() if kind.startswith("float") else not hole.any()
    assert np.isfinite(VectorFormat(kind, 5).fitted(holed).scale if kind == "int8" else 1.0).all()


def test_what_is_kept_exactly_loses_nothing() -> None:
    loss = measure_loss(drawn(50, 8), drawn(50, 8) * 3)  # another length is the same direction
    assert loss is not None and loss.rows == 50
    assert loss.cosine == pytest.approx(0, abs=1e-6) and loss.recall == 1.0


def test_the_recall_is_that_of_plain_code() -> None:
    exact, kept = drawn(60, 6), drawn(60, 6) + drawn(60, 6, seed=1) * 0.3
    loss = measure_loss(exact, kept)
    unit_vectors = kept / np.linalg.norm(kept, axis=1, keepdims=True)
    shared = 0
    for row in range(60):
        near = [
            {other for other in np.argsort(-(vectors @ vectors[row]))[: NEAREST + 1].tolist() if other != row}
            for vectors in (exact, unit_vectors)
        ]
        shared += len(near[0] & near[1])
    assert loss is not None and loss.recall == pytest.approx(shared / (60 * NEAREST))
    assert 0 < loss.cosine < 1


def test_more_is_lost_in_fewer_bits() -> None:
    vectors = drawn(400, 32)
    losses = []
    for kind in DTYPES:
        numbers = VectorFormat(kind, 32).fitted(vectors)
        loss = measure_loss(vectors, numbers.decoded(numbers.encoded(vectors)))
        assert loss is not None
        losses.append(loss)
    assert [loss.cosine for loss in losses] == sorted(loss.cosine for loss in losses)
    assert losses[0].recall == 1.0 and losses[-1].recall < losses[2].recall


def test_rows_without_vectors_and_single_rows_have_no_loss() -> None:
    holed = drawn(3, 4)
    holed[1:] = np.nan
    assert measure_loss(holed, holed) is None


@given(st.integers(1, 5_000), st.lists(st.integers(0, 5_000), max_size=5))
def test_a_sample_is_the_same_however_the_rows_are_cut(rows: int, cuts: list[int]) -> None:
    borders = sorted({0, rows, *(min(cut, rows) for cut in cuts)})
    parts = [sample_rows(rows, start, stop) for start, stop in pairwise(borders)]
    whole = sample_rows(rows, 0, rows)
    assert np.concatenate(parts).tolist() == whole.tolist()
    assert len(set(whole.tolist())) == min(rows, 1_000)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'int8'"):
        require_dtype("int4")
