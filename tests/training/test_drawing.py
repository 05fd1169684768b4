"""What a step draws depends on (seed, step, piece, rank) and on nothing else, and disturbs nobody."""

import itertools
from contextlib import nullcontext

import pytest
import torch

from seqloom.training import step as update_module
from seqloom.training.state import TrainingState
from seqloom.training.step import drawing, seed_of
from update_common import CASES, HERE, Case, assert_same, batch_of, copied, drawn, take, updating


def drawn_at(*where: int) -> torch.Tensor:
    with drawing(*where, HERE):
        return torch.rand(4)


def test_the_same_four_numbers_draw_the_same_and_others_differ() -> None:
    places = list(itertools.product((0, 1), repeat=4))
    found = {place: drawn_at(*place) for place in places}
    torch.rand(3)  # somebody else draws
    assert all(torch.equal(drawn_at(*place), found[place]) for place in places)
    assert all(not torch.equal(found[one], found[two]) for one, two in itertools.combinations(places, 2))


def test_seeds_are_all_different_and_fit_every_generator() -> None:
    seeds = {seed_of(*place) for place in itertools.product(range(9), repeat=4)}
    assert len(seeds) == 9**4 and all(0 <= seed < 2**63 for seed in seeds)
    assert seed_of(2**62, 2**40, 65_536, 1_000) >= 0


def test_the_callers_generators_are_put_back_even_after_an_error() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    drawn_at(0, 0, 0, 0)
    with pytest.raises(RuntimeError), drawing(0, 0, 0, 0, HERE):
        torch.rand(2) @ torch.rand(3)
    assert torch.equal(torch.rand(4), expected)


def two_steps(case: Case, disturbed: bool) -> dict[str, dict[str, torch.Tensor]]:
    batch = batch_of(case, 6)
    update, run_state = updating(drawn(case, dropout=0.5)), TrainingState(micro_batches=2)
    for number in range(2):
        if disturbed:
            torch.rand(number + 5)
        take(update, batch, run_state)
    return copied(update)


def test_a_users_own_draws_do_not_change_a_run() -> None:
    case = CASES["tag, transformer"]
    assert_same(two_steps(case, True), two_steps(case, False))


def test_without_seeding_they_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_module, "drawing", lambda *_: nullcontext())
    case = CASES["tag, transformer"]
    with pytest.raises(AssertionError):
        assert_same(two_steps(case, True), two_steps(case, False))
