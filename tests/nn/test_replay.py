"""Replayed calls compute what the function computes, from the tensors as they are then."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from seqloom.nn.int8 import Int8Product
from seqloom.nn.replay import ReplayedCalls


class Board:
    """Tensors that stay where they are: what is read, and what is written."""

    def __init__(self) -> None:
        self.inputs, self.total = torch.arange(6.0).view(2, 3), torch.zeros(2, 3)
        self.count, self.chosen = torch.zeros((), dtype=torch.int64), torch.zeros(2, dtype=torch.int64)


LAYER = nn.Sequential(nn.Linear(3, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3)).requires_grad_(False)
PRODUCT = Int8Product(torch.linspace(-1, 1, 9).view(3, 3), torch.ones(3))


def layers(board: Board) -> None:
    board.total.copy_(LAYER(board.inputs))


def in_place(board: Board) -> None:
    scale = board.inputs.abs().amax(dim=-1, keepdim=True).clamp_(min=1)
    board.total += torch.addcmul(board.inputs, board.inputs, scale, out=board.inputs * 0)
    board.total[0, 1:] *= 0.5
    board.total[board.inputs > 2] = 7.0


def in_views(board: Board) -> None:
    rows = board.total[:, :2].unbind(0)
    rows[0].add_(board.inputs[0, 1:])
    board.total.view(6)[5:].fill_(board.inputs.sum() + 1)


def in_nests(board: Board) -> None:
    first, *others = torch.split(board.inputs + board.total, [1, 2], dim=1)
    found = torch.cat([first, torch.stack([one.sum(dim=1) for one in others], dim=1), first], dim=1)
    board.total[torch.arange(2), board.chosen] = found.max(dim=1).values
    parts = [board.total + 1]
    board.total.copy_(torch.cat(parts))
    parts.append(first)
    board.chosen.copy_(found.max(dim=1).indices)


def in_masks(board: Board) -> None:
    mask = torch.zeros(3).masked_fill_(torch.arange(3) > board.count, -9.0)  # made anew: it is written to
    board.count.add_(1)
    board.total.copy_(board.inputs.to(torch.float32) + mask)


def in_int8(board: Board) -> None:
    with torch.no_grad():
        board.total.copy_(PRODUCT(board.inputs + board.total / 9))


RUNS = [layers, in_place, in_views, in_nests, in_masks, in_int8]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_replayed_calls_compute_what_the_function_computes(run: Callable[[Board], None]) -> None:
    plain, replayed = Board(), Board()
    calls = list[int]()

    def recorded() -> None:
        calls.append(1)
        run(replayed)

    replay = ReplayedCalls([replayed.inputs])
    for turn in range(4):
        run(plain)
        replay(recorded)
        assert replay.refused is None
        for name, expected in vars(plain).items():
            assert torch.equal(vars(replayed)[name], expected), f"{name} in turn {turn}"
        for board in (plain, replayed):
            board.inputs += 1.5  # by others, between two calls
    assert len(calls) == 1, "Python runs once"


def test_what_never_changes_is_not_computed_again() -> None:
    weight, source, total = torch.eye(3), torch.tensor([3, 1]), torch.zeros(2, 3)
    seen = list[Tensor]()

    def run() -> None:
        mask = torch.where(torch.arange(3) < source[:, None], 0.0, -1.0)  # of the source alone
        seen.append(weight.T[:2].contiguous())
        total.add_(mask @ weight.T)

    replay = ReplayedCalls()
    for _ in range(3):
        replay(run)
    assert replay._program is not None and len(replay._program._instructions) == 1, "only the sum changes"
    assert total.tolist() == [[0, 0, 0], [0, -3, -3]]


def test_registers_are_used_again() -> None:
    start, total = torch.ones(3), torch.zeros(3)

    def run() -> None:
        found = start
        for _ in range(50):
            found, _ = found + 1, found.neg()  # which nobody reads
        total.copy_(found)

    replay = ReplayedCalls([start])
    replay(run)
    assert replay._program is not None
    assert sum(one is None for one in replay._program._registers) <= 2
    start.zero_()
    replay(run)
    assert total.tolist() == [50.0] * 3


def reads_a_number(value: Tensor) -> None:
    value.add_(1 if value.sum() > 3 else 2)


def reads_a_list(value: Tensor) -> None:
    value.add_(max(value.tolist()))


def draws_numbers(value: Tensor) -> None:
    value.add_(torch.rand(2))


def counts_what_it_finds(find: Callable[[Tensor], Tensor]) -> Callable[[Tensor], None]:
    """A function that writes how many numbers another one finds."""

    def run(value: Tensor) -> None:
        value.add_(find(value.long()).shape[0] + 1)

    return run


def fills_up_to_a_place(value: Tensor) -> None:
    value[: value[0].long().clamp(max=1) + 1].add_(1)


def sets_another_storage(value: Tensor) -> None:
    rows = torch.zeros(2)
    rows.set_(value + 1)
    value.copy_(rows)


def draws_from_a_generator(value: Tensor) -> None:
    value.copy_(torch.rand(2, generator=torch.Generator().manual_seed(int(value.shape[0]))))


def switches_autocast(value: Tensor) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        value.add_((torch.full((2, 2), 1 / 3) @ (value + 1)).float())


def gives_a_dictionary(value: Tensor) -> None:
    rows = {"rows": value + 1}
    value.copy_(torch.overrides.handle_torch_function(_sum_of, (value,), rows) if _is_recorded() else _sum_of(rows))


def _sum_of(rows: dict[str, Tensor]) -> Tensor:
    return rows["rows"] * 2


def _is_recorded() -> bool:
    return bool(torch.overrides._get_current_function_mode_stack())


COUNTED: dict[str, Callable[[Tensor], Tensor]] = {
    "nonzero": torch.nonzero,
    "argwhere": torch.argwhere,
    "masked_select": lambda value: value.masked_select(value > 3),
    "_unique2": lambda value: torch._unique2(value)[0],
    "unique": lambda value: value.unique(),
    "unique_consecutive": torch.unique_consecutive,
    "bincount": torch.bincount,
    "one_hot": lambda value: nn.functional.one_hot(value)[0],
    "repeat_interleave": lambda value: torch.repeat_interleave(value, value),
    "__getitem__": lambda value: value[value > 3],
}
CASES: dict[str, tuple[Callable[[Tensor], None], str]] = {
    "number": (reads_a_number, "__bool__"),
    "list": (reads_a_list, "tolist"),
    "random": (draws_numbers, "random"),
    "slice": (fills_up_to_a_place, "__getitem__"),
    "set_": (sets_another_storage, "set_"),
    "generator": (draws_from_a_generator, "generator"),
    "autocast": (switches_autocast, "autocast"),
    "dictionary": (gives_a_dictionary, "dictionary"),
    **{name: (counts_what_it_finds(find), "sizes") for name, find in COUNTED.items()},
}


@pytest.mark.parametrize(("run", "reason"), CASES.values(), ids=CASES)
def test_what_cannot_be_replayed_runs_each_time(run: Callable[[Tensor], None], reason: str) -> None:
    plain, value = torch.zeros(2), torch.zeros(2)
    replay = ReplayedCalls()
    torch.manual_seed(0)
    for _ in range(4):
        run(plain)
    torch.manual_seed(0)
    for _ in range(4):
        replay(lambda: run(value))
    assert torch.equal(value, plain)
    assert replay.refused is not None and reason in replay.refused


def test_an_error_leaves_nothing_recorded() -> None:
    fails, total = [True], torch.zeros(2)

    def run() -> None:
        if fails:
            raise ValueError("now and then")
        total.add_(1)

    replay = ReplayedCalls()
    with pytest.raises(ValueError, match="now and then"):
        replay(run)
    fails.clear()
    for _ in range(3):
        replay(run)
    assert total.tolist() == [3.0, 3.0]
