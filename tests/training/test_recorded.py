"""A recorded step is the plain one: bit for bit, whatever shapes come, and whatever is not finite."""

from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from recording_common import Recorder
from seqloom.config.training import AdamWConfig, MuonConfig, SgdConfig, TrainingConfig
from seqloom.errors import ConfigError
from seqloom.nn.types import Batch, Loss, Padded
from seqloom.training import optimizers
from seqloom.training.devices import Alone, Device
from seqloom.training.recorded import RecordedUpdate, require_recordable
from seqloom.training.state import TrainingState
from seqloom.training.step import Update
from update_common import CASES, HERE, PLAIN, VOCABULARY, Asked, Continued, assert_same, copied, drawn, take

pytestmark = pytest.mark.skipif(HERE.type != "cpu", reason="operators are recorded as they are called on the CPU")
RECORDED = replace(PLAIN, cuda_graphs=True)
EVERYTHING = replace(RECORDED, clip_norm=0.5, ema=0.9)


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "config"),
    [
        ("lm, lstm", EVERYTHING),
        ("lm, gpt", replace(RECORDED, clip_norm=0.1)),
        ("lm, lstm", replace(RECORDED, optimizer=SgdConfig())),
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
    plain, recorded, _ = both(Continued(), RECORDED, "lm, lstm")
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


@pytest.mark.slow
def test_shapes_that_are_rare_or_large_stay_plain() -> None:
    _, recorded, record = both(Asked(), RECORDED, "lm, gpt")
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

    plain, recorded, _ = both(Asked(), replace(RECORDED, optimizer=AdamWConfig()), "lm, gpt")
    recorded._record = fails
    states = TrainingState(), TrainingState()
    for number in range(5):
        for update, run_state in zip((plain, recorded), states, strict=True):
            take(update, said(number), run_state)
    assert_same(copied(recorded), copied(plain))
    reason = "operation not permitted when stream is capturing"
    assert recorded.notices() == [f"steps are launched kernel by kernel, because recording failed: {reason}"]
    assert recorded.notices() == []


def test_a_step_that_is_recorded_takes_effect_once_and_its_loss_is_read() -> None:
    """Recording changes nothing, on a GPU too; so the step is replayed before its numbers are read."""
    plain, recorded, record = both(Continued(), RECORDED, "lm, lstm")
    states = TrainingState(seed=5), TrainingState(seed=5)
    for number in range(4):
        for update, run_state in zip((plain, recorded), states, strict=True):
            take(update, said(number), run_state, carried=number > 0)
        tally = recorded.read()
        assert tally == plain.read() and tally.steps == 1 and tally.loss > 0
        assert record.replays == max(0, number - 1) and record.recorded == int(number > 1)
        assert_same(copied(recorded), copied(plain))


def test_what_is_never_recorded_is_refused_before_the_first_step() -> None:
    several = type("Several", (Alone,), {"count": 2})()
    gpu = Device(torch.device("cuda", 0))
    require_recordable(RECORDED, Alone(), gpu)
    for config, ranks, device, problem in (
        (RECORDED, Alone(), Device(torch.device("cpu")), "needs a CUDA GPU, found cpu"),
        (RECORDED, several, gpu, "needs one process, found 2"),
        (replace(RECORDED, accumulate=2), Alone(), gpu, "--accumulate 2 cannot be combined"),
        (replace(RECORDED, optimizer=MuonConfig()), Alone(), gpu, "cannot be used with muon"),
    ):
        with pytest.raises(ConfigError, match=problem):
            require_recordable(config, ranks, device)
