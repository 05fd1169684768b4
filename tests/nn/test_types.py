"""Padded batches, states and packing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seqloom.errors import DataError
from seqloom.nn.mixers.cross import CrossSource
from seqloom.nn.packing import by_document, runs, unpack
from seqloom.nn.types import Loss, Padded, map_state, merge_rows, places_of, select_rows

ragged = st.lists(st.integers(0, 6), min_size=1, max_size=4)


def _batch(lengths: list[int], numbers: list[int] | None = None) -> Padded:
    time = max(lengths)
    values = torch.arange(1, len(lengths) * time + 1).view(len(lengths), time)
    segments = None if numbers is None else torch.tensor(numbers)[: len(lengths) * time].view(len(lengths), time)
    return Padded.of(values, torch.tensor(lengths), segments)


@settings(deadline=None, max_examples=50)
@given(ragged)
def test_padding_is_zero_by_construction(lengths: list[int]) -> None:
    x = _batch(lengths)
    for candidate in (x, x.with_values(torch.ones(*x.values.shape, 3)), x.reverse(), x.select(torch.tensor([0, 0]))):
        assert bool((candidate.values[~candidate.valid] == 0).all())
        assert candidate.values.shape[:2] == candidate.valid.shape


@settings(deadline=None, max_examples=50)
@given(ragged)
def test_reversing_twice_is_nothing_and_once_reads_backwards(lengths: list[int]) -> None:
    x = _batch(lengths)
    assert torch.equal(x.reverse().reverse().values, x.values)
    for row, length in enumerate(lengths):
        assert torch.equal(x.reverse().values[row, :length], x.values[row, :length].flip(0))
        expected = x.values[row, length - 1] if length else torch.tensor(0)
        assert torch.equal(x.last()[row], expected)


@settings(deadline=None, max_examples=50)
@given(ragged, st.integers(0, 6), st.integers(0, 6))
def test_a_cut_holds_the_columns_asked_for(lengths: list[int], one: int, other: int) -> None:
    start, stop = sorted((min(one, max(lengths)), min(other, max(lengths))))
    x = _batch(lengths)
    part = x.cut(start, stop)
    for row, length in enumerate(lengths):
        assert part.values[row, : int(part.lengths[row])].tolist() == x.values[row, start : min(stop, length)].tolist()


def _documents(x: Padded) -> list[list[int]]:
    """The documents of a packed batch, by hand."""
    assert x.segments is not None
    found: list[list[int]] = []
    for row, length in enumerate(x.lengths.tolist()):
        previous = None
        for column in range(length):
            number = int(x.segments[row, column])
            if number != previous:
                found.append([])
            found[-1].append(int(x.values[row, column]))
            previous = number
    return found


packed = st.tuples(
    st.lists(st.integers(1, 6), min_size=1, max_size=3), st.lists(st.integers(0, 2), min_size=18, max_size=18)
)


@settings(deadline=None, max_examples=100)
@given(packed)
def test_unpacking_gives_each_document_a_row_and_repacking_puts_it_back(drawn: tuple[list[int], list[int]]) -> None:
    x = _batch(*drawn)
    unpacked = unpack(x)
    rows = [row[: int(n)].tolist() for row, n in zip(unpacked.rows.values, unpacked.rows.lengths, strict=True)]
    assert rows == _documents(x)
    assert torch.equal(unpacked.repack(unpacked.rows, x).values, x.values)
    assert torch.equal(by_document(lambda y: y.with_values(-y.values), x).values, -x.values)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(packed)
def test_runs_are_the_documents_in_order_and_places_restart_with_each(drawn: tuple[list[int], list[int]]) -> None:
    x = _batch(*drawn)
    found: list[list[list[int]]] = [[] for _ in drawn[0]]
    for block, number, columns in runs(x):
        for row, length in enumerate(block.lengths.tolist()):
            if length:
                found[row].append(block.values[row, :length].tolist())
                assert torch.equal(x.values[row, columns[row, :length]], block.values[row, :length])
                assert x.segments is not None and int(number[row]) == int(x.segments[row, columns[row, 0]])
    assert [document for row in found for document in row] == _documents(x)
    positions = places_of(x).positions
    expected = [position for document in _documents(x) for position in range(len(document))]
    assert positions[x.valid].tolist() == expected


@pytest.mark.parametrize(
    ("values", "lengths", "segments", "said"),
    [
        (torch.zeros(3), None, None, r"at least the axes \[rows, time\], found shape \[3\]"),
        (torch.zeros(0, 4), None, None, "the batch has no rows"),
        (torch.zeros(2, 4), torch.tensor([1]), None, "2 rows need 2 lengths"),
        (torch.zeros(2, 4), torch.tensor([1, 5]), None, r"lengths must be from 0 to 4, found \[1, 5\]"),
        (torch.zeros(2, 4), torch.tensor([-1, 2]), None, "lengths must be from 0 to 4"),
        (torch.zeros(2, 4), None, torch.zeros(2, 3).long(), r"segments of shape \[2, 3\] do not fit a batch of 2 x 4"),
    ],
)
def test_a_batch_that_cannot_be_is_refused(
    values: Tensor, lengths: Tensor | None, segments: Tensor | None, said: str
) -> None:
    with pytest.raises(DataError, match=said):
        Padded.of(values, lengths, segments)


def test_an_empty_list_of_sequences_is_refused() -> None:
    with pytest.raises(DataError, match="the batch has no rows"):
        Padded.stack([])


def test_stacking_knows_whether_rows_are_full() -> None:
    assert Padded.stack([torch.ones(2), torch.ones(2)]).full
    assert not Padded.stack([torch.ones(2), torch.ones(1)]).full


def test_states_are_mapped_selected_and_merged_in_their_own_types() -> None:
    state = (Loss(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])), ())
    doubled = map_state(lambda tensor: tensor * 2, state)
    assert isinstance(doubled[0], Loss) and doubled[0].total.tolist() == [2.0, 4.0]
    assert select_rows(state, torch.tensor([1, 1]))[0].weight.tolist() == [4.0, 4.0]
    merged = merge_rows(torch.tensor([True, False]), doubled, state)
    assert merged[0].total.tolist() == [2.0, 2.0]


def test_rows_with_the_same_input_keep_what_depends_on_it_alone() -> None:
    source = CrossSource(torch.rand(3, 1, 2, 2), torch.rand(3, 1, 2, 2), torch.ones(3, 2, dtype=torch.bool))
    state, rows = (torch.arange(3), (source,)), torch.tensor([1, 1, 2])
    own, (kept,) = select_rows(state, rows, same_inputs=True)
    assert kept is source and own.tolist() == [1, 1, 2]
    assert torch.equal(select_rows(state, rows)[1][0].keys, source.keys[rows])
    assert select_rows(state, torch.tensor([True, False, True]))[0].tolist() == [0, 2]
    assert select_rows(state, torch.ones(3, dtype=torch.bool)) is state
