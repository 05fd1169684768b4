"""Weights in parts, without any process."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import DamagedError
from seqloom.training.checkpoint import ShardPart, ShardPlace, part_of, put_whole, whole_of


def cut(whole: torch.Tensor, count: int) -> list[ShardPart]:
    """The parts that `fully_shard` gives to each process: equal ones, the last smaller or empty."""
    size = -(-len(whole) // count)
    rows = [min(rank * size, len(whole)) for rank in range(count + 1)]
    places = [ShardPlace(first, tuple(whole.shape)) for first in rows]
    return [ShardPart({"w": whole[rows[rank] : rows[rank + 1]]}, {"w": places[rank]}) for rank in range(count)]


@given(rows=st.integers(0, 9), count=st.integers(1, 5), turned=st.booleans())
def test_parts_in_any_order_make_the_whole(rows: int, count: int, turned: bool) -> None:
    whole = torch.arange(rows * 2.0).reshape(rows, 2)
    parts = cut(whole, count)
    assert torch.equal(whole_of(parts[::-1] if turned else parts)["w"], whole)


def test_a_missing_part_is_damage() -> None:
    parts = cut(torch.arange(6.0), 3)
    for missing in range(3):
        with pytest.raises(DamagedError, match="w: expected"):
            whole_of(parts[:missing] + parts[missing + 1 :])


def test_a_part_that_is_there_twice_is_damage() -> None:
    parts = cut(torch.arange(6.0), 3)
    with pytest.raises(DamagedError, match="starts at row"):
        whole_of([parts[0], parts[0], parts[2]])


def test_plain_tensors_are_whole_and_have_no_place() -> None:
    tensor = torch.arange(3.0)
    part = part_of({"w": tensor})
    assert part.places == {} and part.tensors["w"] is not None
    assert torch.equal(whole_of([part, part])["w"], tensor)
    put_whole(target := torch.zeros(3), tensor)
    assert torch.equal(target, tensor)
