"""Pieces: however a batch is cut, the gradient is that of the whole batch."""

import pytest
import torch
from torch import Tensor

from seqloom.data.loader import packed_batch
from seqloom.data.order import Packs
from seqloom.nn.types import Batch, Loss, Padded, Pair, Subwords
from seqloom.text.ragged import Ragged
from seqloom.training import step as update_module
from seqloom.training.state import TrainingState
from seqloom.training.step import cut, cut_state, elements_of, join_states, moved, rows_of, spans
from update_common import CASES, HERE, PLAIN, Asked, batch_of, drawn, ragged, take, updating

MOST = 1e-5  # relative to the largest entry, float32


def gradients(name: str, pieces: int, rows: int = 64) -> dict[str, Tensor]:
    case = CASES[name]
    model = drawn(case)
    take(updating(model), batch_of(case, rows), TrainingState(micro_batches=pieces))
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


def gap(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    return max(float((found[name] - expected[name]).abs().max()) for name in expected) / largest


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_four_pieces_of_sixteen_and_sixteen_of_four_give_the_gradient_of_sixty_four(name: str) -> None:
    whole = gradients(name, 1)
    assert gap(gradients(name, 4), whole) < MOST
    assert gap(gradients(name, 16), whole) < MOST


def test_a_mean_over_pieces_instead_of_one_division_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    def mean_of_each(self: Asked, model: torch.nn.Module, batch: Batch, state: None) -> tuple[Loss, None]:
        loss = model.loss(batch)
        return Loss(loss.total / loss.weight, torch.ones(())), None

    whole = gradients("tag, transformer", 1)
    monkeypatch.setattr(Asked, "loss", mean_of_each)
    assert gap(gradients("tag, transformer", 4), whole) > 100 * MOST


def test_the_gradient_is_that_of_the_mean_loss() -> None:
    case = CASES["tag, transformer"]
    model, batch = drawn(case), batch_of(case, 9)
    model.loss(moved(batch, HERE)).mean.backward()
    expected = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    assert gap(gradients("tag, transformer", 2, rows=9), expected) < MOST


@pytest.mark.parametrize(("rows", "pieces"), [(1, 1), (1, 8), (7, 2), (7, 7), (7, 100), (64, 16)])
def test_pieces_are_all_rows_in_order_of_nearly_one_size_and_never_empty(rows: int, pieces: int) -> None:
    batch = Batch(Pair(ragged(rows, 3), ragged(rows)), torch.randint(5, (rows, 7)), tuple(map(str, range(rows))))
    parts = cut(batch, pieces)
    sizes = [rows_of(part) for part in parts]
    assert len(parts) == min(rows, pieces) and max(sizes) - min(sizes) <= 1 and min(sizes) > 0
    assert [id_ for part in parts for id_ in part.ids] == list(batch.ids)
    assert torch.equal(torch.cat([part.targets for part in parts]), batch.targets)
    for side in range(2):
        assert torch.equal(torch.cat([part.inputs[side].values for part in parts]), batch.inputs[side].values)
        assert torch.equal(torch.cat([part.inputs[side].lengths for part in parts]), batch.inputs[side].lengths)


def test_packed_rows_are_cut_with_their_segments() -> None:
    tokens = Ragged.of([[5, 6], [7], [8, 9, 10], [11]], "int32")
    packs = Packs(tokens.lengths + 1, 5, 4, seed=0)
    batch = packed_batch(tokens, packs.share(0, 0, 0, 1))
    parts = cut(batch, 2)
    assert torch.equal(torch.cat([part.inputs.segments for part in parts]), batch.inputs.segments)
    assert all(part.ids == () for part in parts)  # rows hold several documents each


def test_states_cut_and_joined_are_the_same() -> None:
    state = (torch.randn(5, 2), (torch.arange(5), ()))
    parts = cut_state(state, spans(5, 3))
    assert [len(part[0]) for part in parts] == [2, 2, 1]
    joined = join_states(parts)
    assert torch.equal(joined[0], state[0]) and torch.equal(joined[1][0], state[1][0]) and joined[1][1] == ()
    assert join_states([None, None]) is None and cut_state(None, spans(4, 2)) == [None, None]


def test_elements_count_padding_and_tokens_do_not() -> None:
    lengths = torch.tensor([3, 1])
    text = Padded.of(torch.ones(2, 3, dtype=torch.int64), lengths)
    assert elements_of(Batch(text, None)) == (6, 4)
    assert elements_of(Batch(Pair(text, text), None)) == (12, 8)
    assert elements_of(Batch(Subwords(text, text), None)) == (6, 4)
    assert elements_of(Batch(torch.zeros(2, 28, 28, 1), None)) == (56, 56)  # rows of pixels
    assert elements_of(Batch(Padded.of(torch.ones(2, 3)), None)) == (6, 6)


def test_what_is_moved_is_the_same_batch() -> None:
    batch = Batch(Pair(ragged(3), ragged(3)), torch.randint(5, (3, 7)), ("a", "b", "c"))
    there = moved(batch, torch.device("meta"))
    assert there.ids == batch.ids and there.targets.is_meta and there.inputs.source.lengths.is_meta
    assert there.inputs.target.values.shape == batch.inputs.target.values.shape
    assert moved(batch, torch.device("cpu")) is batch


def test_a_batch_without_any_weight_changes_nothing_but_the_moments() -> None:
    class Weightless(Asked):
        def loss(self, model: torch.nn.Module, batch: Batch, state: None) -> tuple[Loss, None]:
            loss = model.loss(batch)
            return Loss(loss.total * 0, loss.weight * 0), None

    case = CASES["classify, lstm"]
    update, run_state = updating(drawn(case), task=Weightless()), TrainingState()
    take(update, batch_of(case, 4), run_state)
    tally = update.read()
    assert (tally.loss, tally.weight, tally.norm, tally.skipped) == (0.0, 0.0, 0.0, 0)
    assert update.finite() == []


def test_without_the_floor_a_batch_without_weight_would_be_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_module, "TINY", 0.0)
    with pytest.raises(AssertionError):
        test_a_batch_without_any_weight_changes_nothing_but_the_moments()
    assert PLAIN.clip_norm == 0.0
