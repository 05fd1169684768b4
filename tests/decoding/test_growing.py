"""A memory that grows in place is still a value: whoever goes on from it, nobody else notices."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from decoding_common import language_model, prompts
from seqloom.nn.mixers.growing import Growing
from seqloom.nn.types import Padded, map_state, select_rows


@settings(max_examples=15, deadline=None)
@given(moves=st.lists(st.tuples(st.integers(0, 99), st.integers(1, 3)), max_size=25))
def test_every_branch_holds_what_was_put_behind_it_and_nothing_else(moves: list[tuple[int, int]]) -> None:
    """A tree of versions, each grown from any earlier one, against plain copies."""
    start = torch.zeros(2, 1, 1, 3)
    versions = [(Growing([start]), start.clone())]
    for number, (place, size) in enumerate(moves, 1):
        grown, plain = versions[place % len(versions)]
        more = torch.full((2, 1, size, 3), float(number))
        versions.append((grown.followed_by(more), torch.cat([plain, more], dim=2)))
    for grown, plain in versions:
        assert torch.equal(grown.held, plain)


def test_what_is_there_is_copied_only_when_the_room_is_full() -> None:
    grown, copies = Growing([torch.zeros(1, 1, 1, 2)]), 0
    for _ in range(1_000):
        before = grown.held.data_ptr()
        grown = grown.followed_by(torch.ones(1, 1, 1, 2))
        copies += grown.held.data_ptr() != before
    assert copies < 15
    assert grown.held.shape[2] == 1_001


def test_selected_rows_share_nothing_with_the_others() -> None:
    grown = Growing([torch.zeros(2, 1, 1, 2)])
    for number in range(5):
        grown = grown.followed_by(torch.full((2, 1, 1, 2), float(number)))
    one, other = (select_rows((grown,), torch.tensor([row]))[0] for row in (0, 1))
    one = one.followed_by(torch.full((1, 1, 1, 2), 7.0))
    other = other.followed_by(torch.full((1, 1, 1, 2), 8.0))
    assert (one.held[0, 0, -1, 0], other.held[0, 0, -1, 0], grown.held.shape[2]) == (7, 8, 6)
    assert isinstance(one, Growing)


def test_selected_rows_have_room_for_the_next_element() -> None:
    grown = Growing([torch.rand(3, 1, 4, 2)])
    (chosen,) = select_rows((grown,), torch.tensor([2, 0, 2]))
    assert torch.equal(chosen.held, grown.held[[2, 0, 2]])
    after = chosen.followed_by(torch.ones(3, 1, 1, 2))
    assert after.held.data_ptr() == chosen.held.data_ptr() and after.held.shape[2] == 5


def test_gradients_flow_through_all_that_was_put_together() -> None:
    parts = [torch.ones(1, 1, 1, 2, requires_grad=True) for _ in range(4)]
    grown = Growing([torch.zeros(1, 1, 0, 2)])
    for number, part in enumerate(parts):
        grown = grown.followed_by(number * part)
    grown.held.sum().backward()
    assert [float(part.grad[0, 0, 0, 0]) for part in parts if part.grad is not None] == [0, 1, 2, 3]


def test_numbers_of_another_type_are_joined_as_torch_joins_them() -> None:
    grown = Growing([torch.zeros(1, 1, 1, 2)]).followed_by(torch.zeros(1, 1, 1, 2))
    assert grown.followed_by(torch.ones(1, 1, 1, 2, dtype=torch.float64)).held.dtype == torch.float64


@pytest.mark.parametrize("name", ["gpt", pytest.param("transformer", marks=pytest.mark.slow)])
def test_two_texts_that_go_on_from_one_state_do_not_disturb_each_other(name: str) -> None:
    model = language_model(name)
    with torch.no_grad():
        _, state = model.step(prompts(3), model.initial_state(3))
        for token in (7, 8, 9):  # room is made
            _, state = model.step(Padded.of(torch.full((3, 1), token)), state)
        kept = copy.deepcopy(map_state(Tensor.clone, state))
        branches = [model.step(Padded.of(torch.full((3, 1), token)), state) for token in (10, 11)]
        again = [
            model.step(Padded.of(torch.full((3, 1), token)), after)[0].values
            for token, (_, after) in zip((12, 13), branches, strict=True)
        ]
        for token, then, found in zip((10, 11), (12, 13), again, strict=True):
            _, after = model.step(Padded.of(torch.full((3, 1), token)), kept)
            alone = model.step(Padded.of(torch.full((3, 1), then)), after)[0].values
            torch.testing.assert_close(found, alone)
