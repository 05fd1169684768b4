"""Rows of different lengths against lists of lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.text.ragged import Ragged

ROWS = st.lists(st.lists(st.integers(-9, 9), max_size=4), max_size=5)


def as_lists(column: Ragged) -> list[list[int]]:
    return [column.row(row).tolist() for row in range(column.rows)]


@given(rows=ROWS)
def test_lists_and_arrays_make_the_same_column(rows: list[list[int]]) -> None:
    column = Ragged.of(rows, np.int32)
    other = Ragged.of([np.array(row, np.int64) for row in rows], np.int32)
    assert as_lists(column) == as_lists(other) == rows
    assert (
        column.values.dtype == other.values.dtype == np.int32 and column.starts.dtype == other.starts.dtype == np.int64
    )


def test_elements_may_be_vectors_and_rows_without_any_keep_their_width() -> None:
    assert Ragged.of([[[1, 2]], [[3, 4], [5, 6]]], np.float32).values.shape == (3, 2)
    assert Ragged.of([np.empty((0, 2)), np.ones((3, 2))], np.float32).values.shape == (3, 2)


@given(blocks=st.lists(st.tuples(ROWS, st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4))
def test_slices_of_columns_are_joined_as_lists_are(blocks: list[tuple[list[list[int]], int, int]]) -> None:
    parts, expected = [], []
    for rows, first, last in blocks:
        whole = Ragged.of(rows, np.int32)
        first, last = min(first, len(rows)), min(last, len(rows))
        parts.append(Ragged(whole.values, whole.starts[first : max(first, last) + 1]))  # begins behind 0
        expected += rows[first : max(first, last)]
    both = Ragged.joined(parts)
    assert as_lists(both) == expected and both.starts[0] == 0
    assert len(both.values) == both.starts[-1]


def test_no_blocks_join_to_no_rows_of_the_dtype_named_and_are_refused_without_one() -> None:
    nothing = Ragged.joined([], np.int32)
    assert nothing.rows == 0 and nothing.values.dtype == np.int32
    with pytest.raises(ValueError, match="no blocks to join"):
        Ragged.joined([])


@given(rows=ROWS, data=st.data())
def test_chosen_and_shortened_rows_are_those_of_the_lists(rows: list[list[int]], data: st.DataObject) -> None:
    column = Ragged.of(rows, np.int32)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6)) if rows else []
    assert as_lists(column.select(np.array(chosen, np.int64))) == [rows[row] for row in chosen]
    assert as_lists(column.shorten(np.full(len(rows), 2))) == [row[:2] for row in rows]
