"""Truncated back-propagation through time: the state is carried from step to step, its gradient is not."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from seqloom import recipes
from seqloom.nn.types import Batch, Loss, Padded, map_state
from seqloom.training import loss as loss_module
from seqloom.training.state import TrainingState
from seqloom.training.step import moved
from update_common import CASES, HERE, PLAIN, VOCABULARY, Asked, Case, copied, drawn, take, updating

FAMILIES = ["rnn", "gru", "lstm", "linear-attention"]
LENGTHS = [[5, 5, 5, 5], [5, 3, 5, 0], [4, 0, 5, 0]]  # of the rows at each step: some end earlier


def case_of(family: str) -> Case:
    return CASES["lm, lstm"]._replace(build=recipes.language_model(family, vocab_size=VOCABULARY, size="nano").build)


def steps() -> list[Batch]:
    """Three steps of four rows that go on, as streams give them."""
    torch.manual_seed(3)
    return [
        Batch(Padded.of(torch.randint(VOCABULARY, (4, 5)), torch.tensor(lengths)), torch.randint(VOCABULARY, (4, 5)))
        for lengths in LENGTHS
    ]


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


class Attached(Asked):
    """A language model that reads on and hands back its state with its gradient: whoever takes the step cuts it."""

    def loss(self, model: nn.Module, batch: Batch, state: Any) -> tuple[Loss, Any]:
        x, after = model.continued_features(batch.inputs, state)
        return model.head.loss(x, batch.targets), after


def by_hand(model: nn.Module, *, cut: bool) -> dict[str, Tensor]:
    """The gradient of the third step, all weights as they were: unrolled, the state of the steps before cut off."""
    state: Any = None
    for batch in steps():
        there = moved(batch, HERE)
        x, state = model.continued_features(there.inputs, state)
        last = model.head.loss(x, there.targets)
        if cut:
            state = map_state(Tensor.detach, state)
    last.mean.backward()
    return gradients(model)


def carried(family: str, pieces: int, *, carry: bool = True) -> dict[str, Tensor]:
    """The same by three steps that change nothing: their rate is 0."""
    model = drawn(case_of(family))
    update, run_state = updating(model, PLAIN, task=Attached()), TrainingState(micro_batches=pieces)
    for number, batch in enumerate(steps()):
        take(update, batch, run_state, lr=0.0, carried=carry and number > 0)
    return gradients(model)


@pytest.mark.parametrize("pieces", [1, 2, 3, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_of_a_carried_step_equals_the_hand_unrolled_one_in_any_number_of_pieces(
    family: str, pieces: int
) -> None:
    expected = by_hand(drawn(case_of(family)), cut=True)
    largest = max(float(value.abs().max()) for value in expected.values())
    assert_close(carried(family, pieces), expected, rtol=0, atol=1e-5 * largest)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_state_that_was_not_carried_would_show(family: str) -> None:
    expected, found = by_hand(drawn(case_of(family)), cut=True), carried(family, 1, carry=False)
    largest = max(float(value.abs().max()) for value in expected.values())
    assert max(float((found[name] - expected[name]).abs().max()) for name in expected) > 1e-3 * largest


def test_a_gradient_that_was_not_cut_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, truncated = by_hand(drawn(case_of("lstm")), cut=False), by_hand(drawn(case_of("lstm")), cut=True)
    assert max(float((whole[name] - truncated[name]).abs().max()) for name in whole) > 1e-3
    monkeypatch.setattr(loss_module, "map_state", lambda _, state: state)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        carried("lstm", 1)


def test_memory_that_grows_is_kept_and_put_back_as_it_was() -> None:
    """Attention in a window remembers more from step to step, up to its width: no choice between shapes on a device."""
    case = case_of("window")
    model = drawn(case)
    update, run_state = updating(model, PLAIN, task=Attached()), TrainingState()
    batch = steps()[0]
    for number in range(2):
        take(update, batch, run_state, carried=number > 0)
    before = copied(update)
    with torch.no_grad():
        entry = next(model.parameters()).flatten()[0]
        kept = entry.clone()
        entry.fill_(float("nan"))
    take(update, batch, run_state, carried=True)
    with torch.no_grad():
        entry.copy_(kept)
    for name, leaf in update.tensors()["carried"].items():
        assert torch.equal(leaf, before["carried"][name])
