"""A recorded step is the plain one: bit for bit, whatever shapes come, and whatever is not finite."""

from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from recording_common import Recorder
from seqloom.config.training import AdamWConfig, SgdConfig, TrainingConfig
from seqloom.nn.types import Batch, Loss, Padded
from seqloom.training import optimizers
from seqloom.training.devices import Alone, Device
from seqloom.training.recorded import RecordedUpdate, refuses_to_record
from seqloom.training.state import TrainingState
from seqloom.training.step import Update
from update_common import CASES, HERE, PLAIN, VOCABULARY, Asked, Continued, assert_same, copied, drawn, take

pytestmark = pytest.mark.skipif(HERE.type != "cpu", reason="operators are recorded as they are called on the CPU")
EVERYTHING = replace(PLAIN, clip_norm=0.5, ema=0.9)


@pytest.fixture(autouse=True)
def _kernels_that_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, the kernel of the optimizer reads whether a step is skipped, and its learning rate."""
    monkeypatch.setattr(optimizers, "HOLDING", ("cpu",))


def said(step: int, rows: int = 4, time: int = 7) -> Batch[Any, Any]:
    draw = torch.Generator().manual_seed(step)
    tokens = torch.randint(VOCABULARY, (2, rows, time), generator=draw)
    return Batch(Padded.of(tokens[0]), tokens[1], tuple(map(str, range(rows))))


def both(task: Any, config: TrainingConfig, case: str, dropout: float = 0.5) -> tuple[Update, RecordedUpdate, Recorder]:
    parts, record = (config, Alone(), Device(HERE)), Recorder()
    recorded = RecordedUpdate(
        task, drawn(CASES[case], dropout=dropout), *parts, record=record, share_of=lambda _, step: step() or 1.0
    )
    return Update(task, drawn(CASES[case], dropout=dropout), *parts), recorded, record


@pytest.mark.parametrize(
    ("case", "config"),
    [
        ("lm, lstm", EVERYTHING),
        ("lm, gpt", replace(PLAIN, clip_norm=0.1)),
        ("lm, lstm", replace(PLAIN, optimizer=SgdConfig())),
    ],
)
def test_recorded_steps_equal_plain_ones_bit_for_bit(case: str, config: TrainingConfig) -> None:
    """With dropout, another learning rate at each step, a short last batch, and a new epoch."""
    task = Continued() if "lstm" in case else Asked()
    plain, recorded, record = both(task, config, case)
    states = TrainingState(seed=5), TrainingState(seed=5)
    for number in range(12):
        batch = said(number, time=3) if number == 7 else said(number)
        for update, run_state in zip((plain, recorded), states, strict=True):
            take(update, batch, run_state, lr=0.01 / (1 + number), carried=number not in (0, 8))
        if number % 3 == 2:
            assert recorded.read() == plain.read()
    assert (record.recorded, record.replays) == (1, 9)
    assert_same(copied(recorded), copied(plain))
    assert ["recorded as a CUDA graph" in text for text in recorded.notices()] == [True]


def test_a_recorded_run_goes_on_from_a_checkpoint_as_a_plain_one() -> None:
    plain, recorded, _ = both(Continued(), PLAIN, "lm, lstm")
    run_state = TrainingState(seed=5)
    for number in range(5):
        take(recorded, said(number), run_state, carried=number > 0)
    plain.load(copied(recorded), TrainingState(step=5, seed=5))
    later = TrainingState(step=5, seed=5)
    for number in range(5, 8):
        take(recorded, said(number), run_state, carried=True)
        take(plain, said(number), later, carried=True)
    assert_same(copied(plain), copied(recorded))
    recorded.load(copied(plain), later)  # and into a run that has recorded steps
    for number in range(8, 10):
        take(recorded, said(number), run_state, carried=True)
        take(plain, said(number), later, carried=True)
    assert_same(copied(plain), copied(recorded))


class Divided(Continued):
    """A loss that is not finite where the first token of a batch is 0: decided on the device."""

    def loss(self, model: nn.Module, batch: Batch[Any, Any], state: Any) -> tuple[Loss, Any]:
        loss, after = super().loss(model, batch, state)
        bad = torch.where(batch.inputs.values[0, 0] == 0, torch.inf, 0.0)
        return Loss(loss.total + bad, loss.weight), after


def test_a_step_that_is_not_finite_changes_nothing_when_it_is_replayed() -> None:
    _, recorded, record = both(Divided(), EVERYTHING, "lm, lstm")
    run_state = TrainingState()

    def read(number: int, first: int) -> Tensor:
        batch = said(number)
        batch.inputs.values[0, 0] = first
        take(recorded, batch, run_state, carried=number > 0)
        return batch.targets

    for number in range(4):
        read(number, 1)
    before = copied(recorded)
    read(4, 0)
    assert record.replays == 3 and recorded.read().skipped == 1
    assert_same(copied(recorded), before)
    read(5, 1)
    assert not torch.equal(copied(recorded)["model"]["head.bias"], before["model"]["head.bias"])


def test_shapes_that_are_rare_or_large_stay_plain() -> None:
    _, recorded, record = both(Asked(), PLAIN, "lm, gpt")
    recorded._share_of = lambda _, step: step() or 0.1  # the device is busy anyway
    run_state = TrainingState()
    for number in range(6):
        take(recorded, said(number), run_state)
    run_state.micro_batches = 2
    take(recorded, said(6), run_state)
    assert (record.recorded, record.replays, recorded.notices()) == (0, 0, [])


def test_a_step_that_cannot_be_recorded_stays_plain_and_the_reason_is_told() -> None:
    def fails(run: Any) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    plain, recorded, _ = both(Asked(), replace(PLAIN, optimizer=AdamWConfig()), "lm, gpt")
    recorded._record = fails
    states = TrainingState(), TrainingState()
    for number in range(5):
        for update, run_state in zip((plain, recorded), states, strict=True):
            take(update, said(number), run_state)
    assert_same(copied(recorded), copied(plain))
    reason = "operation not permitted when stream is capturing"
    assert recorded.notices() == [f"steps are launched kernel by kernel, because recording failed: {reason}"]
    assert recorded.notices() == []


def test_what_is_never_recorded_is_known_before_the_first_step() -> None:
    several = type("Several", (Alone,), {"count": 2})()
    gpu = Device(torch.device("cuda", 0))
    assert refuses_to_record(PLAIN, Alone(), Device(torch.device("cpu"))) == "only CUDA devices have graphs"
    assert "several processes" in str(refuses_to_record(PLAIN, several, gpu))
    assert "micro-batches" in str(refuses_to_record(replace(PLAIN, accumulate=2), Alone(), gpu))
    assert refuses_to_record(PLAIN, Alone(), gpu) is None
