"""How a run comes to its end: no step is looked at twice, a signal is heard at once, and a plan is never mixed up."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.config.training import EpochsConfig, SecondsConfig, StepsConfig, TokenCountConfig
from seqloom.errors import ConfigError
from seqloom.tasks.classify import Classify
from seqloom.training import checkpoint, loop
from seqloom.training import loop as telling
from seqloom.training.devices import Alone
from seqloom.training.run_folder import RunFolder
from seqloom.training.session import Clock
from seqloom.training.state import LossSums, TrainingState
from seqloom.training.step import Seen, Tallies
from training_common import ended, run, write_data

LENGTHS = [StepsConfig(steps=4), EpochsConfig(epochs=1), TokenCountConfig(tokens=100), SecondsConfig(seconds=4)]
LOOKING = 3.0  # seconds that a validation takes


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path)


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """A clock that only steps (one second) and validations move."""
    passed = {"now": 0.0}
    take, look = loop.Update.step, loop.validate

    def stepped(self: Any, *given: Any, **named: Any) -> None:
        passed["now"] += 1.0
        take(self, *given, **named)

    def looked(session: Any) -> Any:
        passed["now"] += LOOKING
        return look(session)

    monkeypatch.setattr(loop.Update, "step", stepped)
    monkeypatch.setattr(loop, "validate", looked)
    monkeypatch.setattr(Clock, "seconds", property(lambda _: passed["now"]))
    return passed


def validated(out: Path) -> list[int]:
    return [record["step"] for record in RunFolder(out).metrics() if record["kind"] == "validation"]


@pytest.mark.slow
@pytest.mark.parametrize("length", LENGTHS, ids=lambda length: length.kind())
def test_no_step_is_validated_twice(tmp_path: Path, data: Path, hours: dict[str, float], length: Any) -> None:
    last = ended(run(tmp_path / "run", data, duration=length, validate_every=1))
    steps = validated(tmp_path / "run")
    assert last.reason == "done" and steps == list(range(1, last.step + 1))


@pytest.mark.slow
def test_a_finished_run_that_gets_a_little_more_time_than_it_took_is_not_validated_again(
    tmp_path: Path, data: Path, hours: dict[str, float]
) -> None:
    first = ended(run(tmp_path / "run", data, duration=SecondsConfig(seconds=4), validate_every=100))
    again = ended(run(tmp_path / "run", data, duration=SecondsConfig(seconds=5), validate_every=100))
    assert first.step == again.step == 4 and again.exit_code == 0
    assert validated(tmp_path / "run") == [4]


@pytest.mark.slow
def test_when_the_end_is_asked_for_twice_a_step_is_validated_twice(
    tmp_path: Path, data: Path, hours: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: time that a validation takes counts between the two questions, and nobody knows what was looked at."""
    over = loop._Loop._is_over

    def anew(self: Any) -> bool:
        self.run_state.last_validation = -1
        self.clock.agree(self.ranks)
        return over(self)

    monkeypatch.setattr(loop._Loop, "_is_over", anew)
    run(tmp_path / "run", data, duration=SecondsConfig(seconds=5), validate_every=2)
    steps = validated(tmp_path / "run")
    assert len(steps) > len(set(steps))


class Rare:
    """A run as on a GPU, where the host asks the device for numbers only every so many steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
        begin = loop._Loop.__init__

        def rarely(self: Any, *given: Any) -> None:
            begin(self, *given)
            self.read_every = every

        monkeypatch.setattr(loop._Loop, "__init__", rarely)


def signaled(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """A signal comes in the midst of a step."""
    take = loop._Loop._take

    def heard(self: Any, taken: Any) -> None:
        take(self, taken)
        if self.run_state.step == step:
            self.session.stopping.signal = signal.SIGTERM

    monkeypatch.setattr(loop._Loop, "_take", heard)


def left(out: Path) -> dict[str, bytes]:
    """What equal runs have in common."""
    newest = checkpoint.steps(out / "checkpoints")[-1]
    paths = [out / "metrics.jsonl", out / "model" / "model.safetensors", newest / "state.json"]
    return {path.name: path.read_bytes() for path in [*paths, *newest.glob("*.safetensors")]}


TOKENS: dict[str, Any] = {"duration": TokenCountConfig(tokens=300), "log_every": 4, "validate_every": 100}


@pytest.mark.slow
def test_a_signal_is_heard_in_the_next_step_and_changes_not_one_bit(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Rare(monkeypatch, 4)
    run(tmp_path / "whole", data, **TOKENS)
    with monkeypatch.context() as patch:
        signaled(patch, 1)
        stopped = ended(run(tmp_path / "run", data, **TOKENS))
    assert (stopped.reason, stopped.step, stopped.exit_code) == ("stopped", 2, 128 + signal.SIGTERM)
    assert ended(run(tmp_path / "run", data, **TOKENS)).reason == "done"
    assert left(tmp_path / "run") == left(tmp_path / "whole")


@pytest.mark.slow
def test_a_run_that_asks_the_device_rarely_ends_at_the_step_that_reaches_its_tokens(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = ended(run(tmp_path / "often", data, **TOKENS))
    Rare(monkeypatch, 4)
    assert ended(run(tmp_path / "rarely", data, **TOKENS)).step == often.step
    assert often.step % 4


def test_a_run_that_waits_for_the_device_to_hear_stops_late_and_overshoots(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: what is known at once is not asked, as if other ranks had to be."""
    Rare(monkeypatch, 4)
    monkeypatch.setattr(loop._Loop, "_meets", lambda self: self.run_state.step % self.read_every == 0)
    signaled(monkeypatch, 1)
    assert ended(run(tmp_path / "run", data, **TOKENS)).step == 4


def another_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples come in another order, as another version might draw it; nothing in the folder says so."""
    loader = Classify.loader
    monkeypatch.setattr(
        Classify, "loader", lambda self, *given, seed, **how: loader(self, *given, seed=seed + 1, **how)
    )


def order(out: Path) -> str:
    found, _ = checkpoint.newest(out / "checkpoints", Alone())
    assert found is not None
    return found.run_state.order_hash


@pytest.mark.slow
def test_a_run_does_not_go_on_in_another_plan(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "run", data, duration=StepsConfig(steps=2))
    another_plan(monkeypatch)
    with pytest.raises(ConfigError, match=r"the order of batches has changed .*a new folder"):
        run(tmp_path / "run", data, duration=StepsConfig(steps=4))


@pytest.mark.slow
def test_without_the_comparison_a_run_goes_on_in_another_plan_and_reads_something_else(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "whole", data, duration=StepsConfig(steps=4))
    run(tmp_path / "run", data, duration=StepsConfig(steps=2))
    another_plan(monkeypatch)
    monkeypatch.setattr(loop, "require_plan", lambda *_: None)
    assert ended(run(tmp_path / "run", data, duration=StepsConfig(steps=4))).reason == "done"
    assert order(tmp_path / "run") != order(tmp_path / "whole")


@settings(max_examples=60)
@given(
    norms=st.lists(st.floats(2.0**-13, 2.0**13, width=32), min_size=2, max_size=12),
    weights=st.lists(st.floats(1, 2.0**13, width=32), min_size=12, max_size=12),
    cut=st.integers(1, 11),
)
def test_what_steps_come_to_does_not_depend_on_when_somebody_looked(
    norms: list[float], weights: list[float], cut: int
) -> None:
    assert summed(norms, weights, {len(norms)}) == summed(norms, weights, {min(cut, len(norms)), len(norms)})


def summed(norms: list[float], weights: list[float], looks: set[int]) -> LossSums:
    """The sums of a run whose steps have these norms, when somebody looks behind some of them."""
    tallies, run_state = Tallies(1.0, Alone(), torch.device("cpu")), TrainingState()
    for number, (norm, weight) in enumerate(zip(norms, weights, strict=False), 1):
        seen = Seen(torch.tensor(norm), torch.tensor(weight), torch.tensor(norm * 3), torch.zeros(()))
        tallies.add(seen.together(), (7, 5), stop=False)
        if number in looks:
            telling.add(run_state, tallies.read())
    return run_state.sums
