"""Vectors learned in little memory: in chunks or pieces, when asked or when memory runs out, the batch stays whole."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from objectives_common import EVERY, ROWS
from seqloom.config.data import ColumnSplit, DataConfig
from seqloom.config.models import AnyObjective, ContrastConfig, ViewsConfig
from seqloom.config.training import ByLengthConfig, ConstantConfig, StepsConfig
from seqloom.nn.models import Embedder
from seqloom.tasks.task import HeadSettings
from seqloom.training.devices import OutOfMemoryError, choose_device
from seqloom.training.events import Notice, Report, Saved, Started
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve
from seqloom.training.run import train_run
from seqloom.training.state import TrainingState
from update_common import take, updating

Find = Callable[[str], Any]
ROOM = 3
EACH_OBJECTIVE: list[tuple[str, AnyObjective]] = [*EVERY, ("text", ViewsConfig(left_out=0.3))]
NAMES = [f"{kind}, {objective.kind()}" for kind, objective in EACH_OBJECTIVE]
EACH = pytest.mark.parametrize(("kind", "objective"), EACH_OBJECTIVE, ids=NAMES)


class Learner:
    """A small set of one kind in one batch, and a model, the same one every time."""

    def __init__(self, table: Find, kind: str, objective: AnyObjective) -> None:
        small = table(kind)
        self.task, (self.batch,) = small.task, small.batches(batching=ByLengthConfig(batch_tokens=10_000))
        self.config = self.task.model("bag", "nano", HeadSettings(objective=objective))

    def model(self, *, dropout: float = 0.0) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            model = self.config.build().double()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout
        return model

    def gradient(self, run_state: TrainingState, *, room: int = ROWS) -> Tensor:
        """The gradient of a step for which there is room for so many texts at a time."""
        model = self.model()
        model.encoder.register_forward_pre_hook(narrow(room))
        take(updating(model, task=self.task), self.batch, run_state, lr=0.0)
        return torch.cat([weight.grad.flatten() for weight in model.parameters()])


def narrow(room: int) -> Callable[[nn.Module, Any], None]:
    """A hook that lets memory run out where more rows are computed at once than there is room for."""

    def require(_: nn.Module, given: Any) -> None:
        if torch.is_grad_enabled() and len(given[0].lengths) > room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")  # a new one: it holds frames

    return require


def assert_one_direction(found: Tensor, whole: Tensor) -> None:
    assert torch.cosine_similarity(found, whole, dim=0).item() == pytest.approx(1.0, abs=1e-12)
    torch.testing.assert_close(found, whole, rtol=1e-8, atol=1e-10 * whole.abs().max().item())


@EACH
def test_when_memory_runs_out_the_gradient_is_that_of_the_whole_batch(
    table: Find, kind: str, objective: AnyObjective
) -> None:
    learner, run_state = Learner(table, kind, objective), TrainingState(seed=3)
    whole = learner.gradient(TrainingState(seed=3))
    assert_one_direction(learner.gradient(run_state, room=ROOM), whole)
    assert run_state.micro_batches == 8


@pytest.mark.slow
@EACH
def test_pieces_that_are_asked_for_have_the_gradient_of_the_whole_batch(
    table: Find, kind: str, objective: AnyObjective
) -> None:
    learner = Learner(table, kind, objective)
    whole = learner.gradient(TrainingState(seed=3))
    for pieces in (2, 5, 100):
        room = -(-ROWS // pieces)
        assert_one_direction(learner.gradient(TrainingState(seed=3, micro_batches=pieces), room=room), whole)


def test_a_batch_that_were_cut_would_learn_something_else(table: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner(table, "pair", ContrastConfig())
    whole = learner.gradient(TrainingState())
    monkeypatch.setattr("seqloom.tasks.embed.RowObjective", object)
    assert torch.cosine_similarity(learner.gradient(TrainingState(micro_batches=8)), whole, dim=0) < 0.95


def test_when_one_text_is_too_large_an_error_says_what_to_do(table: Find) -> None:
    learner = Learner(table, "pair", ContrastConfig())
    with pytest.raises(OutOfMemoryError, match=r"one row at a time\. Fix: use a smaller --size"):
        learner.gradient(TrainingState(), room=0)


def test_chunks_draw_the_same_dropout_again(table: Find) -> None:
    """Were the second computation to draw anew, the gradient would not be that of the loss: finite differences tell."""
    learner = Learner(table, "pair", ContrastConfig())
    model = learner.model(dropout=0.5)
    task = learner.task.divided(model, 5).task

    def loss() -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            return task.loss(model, learner.batch, None)[0].total

    loss().backward()
    table, step = model.encoder.input.table, 1e-6
    at = int(table.grad.abs().argmax())
    slope, flat = float(table.grad.flatten()[at]), table.data.view(-1)
    flat[at] += step
    above = float(loss().detach())
    flat[at] -= 2 * step
    below = float(loss().detach())
    assert (above - below) / (2 * step) == pytest.approx(slope, rel=1e-4)


# --- whole runs ------------------------------------------------------------------------------------------------------


def run(out: Path, *, until: int = 0) -> list[Report]:
    """The reports of a run over pairs, all or as far as the checkpoint of a step."""
    path = out.parent / "pairs.csv"
    lines = [f"what is {n % 19},the word{n} of {n % 4},{'train' if n % 4 else 'dev'}" for n in range(96)]
    path.write_text("\n".join(["question,answer,split", *lines]) + "\n")
    training = {
        "duration": StepsConfig(steps=12),
        "batching": ByLengthConfig(batch_tokens=120),
        "schedule": ConstantConfig(),
    }
    training |= {"save_every": 2, "validate_every": 6, "log_every": 1, "patience": 0}
    request = RunRequest(model="bag", size="nano", dropout=0.3, training=training)
    config = DataConfig(train=(str(path),), split=ColumnSplit(split_column="split"), task="embed")
    found, reports = resolve(config, request, cache=out.parent / "cache"), list[Report]()
    for report in train_run(out, found, device=choose_device("cpu"), workers=0):
        reports.append(report)
        if isinstance(report, Saved) and report.step == until:
            break
    return reports


def kept(out: Path) -> dict[str, str]:
    """The sums of what two equal runs have in common."""
    paths = [*out.glob("checkpoints/*/*"), *out.glob("model/*.safetensors"), out / "metrics.jsonl"]
    shared = [path for path in paths if path.name not in ("machine.json", "manifest.json")]
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(shared)}


@pytest.mark.slow
def test_a_run_whose_memory_ran_out_says_so_and_goes_on_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = Embedder.__init__

    def narrowed(self: Any, config: Any) -> None:
        build(self, config)
        self.encoder.register_forward_pre_hook(narrow(ROOM))

    with monkeypatch.context() as patched:
        patched.setattr(Embedder, "__init__", narrowed)
        whole = run(tmp_path / "whole")
        run(tmp_path / "stopped", until=4)
    (told,) = [one for one in whole if isinstance(one, Notice)]
    assert told.code == "memory.halved" and "the loss compares the whole batch" in told.text
    begun, *_ = run(tmp_path / "stopped")  # memory is there again, and nothing changes
    assert isinstance(begun, Started) and begun.step == 4
    assert any("chunks, each twice; the loss compares the whole batch" in text for text in begun.messages)
    assert kept(tmp_path / "stopped") == kept(tmp_path / "whole")
