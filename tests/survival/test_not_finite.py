"""R6: whatever stops being finite, and where: the step changes nothing, three in a row end the run, no file has it."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from seqloom import files
from seqloom.config.training import ByLengthConfig, StepsConfig
from seqloom.nn.types import Loss
from seqloom.tasks.classify import Classify
from seqloom.training import checkpoint, loop
from seqloom.training import step as update
from seqloom.training.events import Notice, Report, Saved, Stepped, Validated
from seqloom.training.run import train_run
from survival.cases import resolved
from training_common import ended, only

pytestmark = pytest.mark.slow
STEPS = 16
BAD = {"nan": math.nan, "inf": math.inf, "minus inf": -math.inf}
HOW: dict[str, Any] = {
    "duration": StepsConfig(steps=STEPS),
    "batching": ByLengthConfig(batch_tokens=60),
    "save_every": 4,
    "validate_every": 8,
    "log_every": 1,
    "accumulate": 1,
    "keep_checkpoints": 9,
}


class Now:
    """The number of the step that is under way."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.step, step = 0, loop.Update.step

        def stepped(update: Any, *given: Any, **named: Any) -> None:
            self.step = named["run_state"].step + 1
            step(update, *given, **named)

        patch.setattr(loop.Update, "step", stepped)


@contextmanager
def bad_loss(value: float, steps: range) -> Iterator[None]:
    """The loss of some steps is not finite."""
    loss = Classify.loss

    def spoiled(task: Any, model: nn.Module, batch: Any, state: Any) -> tuple[Loss, Any]:
        found, after = loss(task, model, batch, state)
        return (Loss(found.total * value, found.weight) if now.step in steps else found), after

    with pytest.MonkeyPatch.context() as patch:
        now = Now(patch)
        patch.setattr(Classify, "loss", spoiled)
        yield


@contextmanager
def bad_gradient(value: float, steps: range) -> Iterator[None]:
    """One number in the gradient of one weight is not finite; the loss is."""
    loss, change, hooks = Classify.loss, update.Update._change, []

    def hooked(task: Any, model: nn.Module, batch: Any, state: Any) -> tuple[Loss, Any]:
        found, after = loss(task, model, batch, state)
        weight = [one for one in model.parameters() if one.ndim > 1][-1]
        hook = weight.register_hook(lambda gradient: _with_one(gradient, value))
        hook.remove() if now.step not in steps else hooks.append(hook)
        return found, after

    def changed(self: Any, *given: Any) -> Tensor:
        while hooks:  # each is for one step
            hooks.pop().remove()
        return change(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        now = Now(patch)
        patch.setattr(Classify, "loss", hooked)
        patch.setattr(update.Update, "_change", changed)
        yield


def _with_one(tensor: Tensor, value: float) -> Tensor:
    spoiled = tensor.clone()
    spoiled.view(-1)[0] = value
    return spoiled


@contextmanager
def bad_embedding(value: float, steps: range) -> Iterator[None]:
    """What the model reads first has one number that is not finite."""
    loss = Classify.loss

    def spoiled(task: Any, model: Any, batch: Any, state: Any) -> tuple[Loss, Any]:
        if now.step not in steps:
            return loss(task, model, batch, state)
        hook = model.encoder.input.register_forward_hook(lambda _, __, x: x._replace(values=_with_one(x.values, value)))
        try:
            return loss(task, model, batch, state)
        finally:
            hook.remove()

    with pytest.MonkeyPatch.context() as patch:
        now = Now(patch)
        patch.setattr(Classify, "loss", spoiled)
        yield


SOURCES = {"loss": bad_loss, "gradient": bad_gradient, "embedding": bad_embedding}


def run(out: Path, data: Path, **settings: Any) -> list[Report]:
    return list(train_run(out, resolved("gru", data, data / "cache", **(HOW | settings)), workers=0))


def watched(patch: pytest.MonkeyPatch) -> dict[int, list[Tensor]]:
    """All tensors of a run after each step, as they come."""
    seen: dict[int, list[Tensor]] = {}
    step = loop.Update.step

    def stepped(self: Any, *given: Any, **named: Any) -> None:
        step(self, *given, **named)
        seen[named["run_state"].step + 1] = [
            tensor.clone() for group in self.tensors().values() for tensor in group.values()
        ]

    patch.setattr(loop.Update, "step", stepped)
    return seen


def not_finite_in(out: Path) -> list[str]:
    """The files of a run that hold a number which is not finite."""
    bad = []
    for path in out.rglob("*.safetensors"):
        with safe_open(path, "pt") as tensors:
            named = [tensors.get_tensor(name) for name in tensors.keys()]  # noqa: SIM118
        bad += [str(path)] if any(not one.isfinite().all() for one in named if one.is_floating_point()) else []
    for path in [*out.rglob("*.json"), *out.rglob("*.jsonl")]:
        for line in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            json.loads(line, parse_constant=lambda _, path=path: bad.append(str(path)))
    return bad


@pytest.mark.sampled(5)
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("source", SOURCES)
def test_a_step_that_is_not_finite_changes_not_one_bit(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, bad: str
) -> None:
    seen = watched(monkeypatch)
    with SOURCES[source](BAD[bad], range(6, 8)):
        reports = run(tmp_path / "run", data)
    assert ended(reports).reason == "done"
    assert [one.step for one in only(reports, Notice) if one.code == "step.skipped"] == [6, 7]
    assert all(map(torch.equal, seen[5], seen[6])) and all(map(torch.equal, seen[5], seen[7]))
    assert not all(map(torch.equal, seen[7], seen[8]))
    assert not_finite_in(tmp_path / "run") == []


@pytest.mark.parametrize("bad", ["nan", "inf"])
@pytest.mark.parametrize("source", SOURCES)
def test_three_in_a_row_end_the_run_with_code_5_and_name_the_examples(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, bad: str
) -> None:
    with SOURCES[source](BAD[bad], range(10, 1_000)):
        reports = run(tmp_path / "run", data)
    assert (ended(reports).reason, ended(reports).step, ended(reports).exit_code) == ("not-finite", 12, 5)
    examples = files.read_lines(tmp_path / "run" / "bad_batch.jsonl").records
    assert {one["step"] for one in examples} >= {10, 11, 12}
    assert only(reports, Saved)[-1].step == 8 and not_finite_in(tmp_path / "run") == []


@pytest.mark.parametrize("bad", ["nan", "inf"])
def test_a_validation_that_is_not_finite_is_told_and_never_the_best(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    measure = Classify.measure
    monkeypatch.setattr(
        Classify, "measure", lambda self, sums: {name: value + BAD[bad] for name, value in measure(self, sums).items()}
    )
    reports = run(tmp_path / "run", data)
    assert ended(reports).reason == "done" and ended(reports).best_step == 0
    assert not any(one.best for one in only(reports, Validated))
    assert "validation.not-finite" in {one.code for one in only(reports, Notice)}
    assert not_finite_in(tmp_path / "run") == []


def poisoned(patch: pytest.MonkeyPatch, group: str, where: int, value: float) -> None:
    """One number of the run is not finite after its sixth step."""
    step = loop.Update.step

    def stepped(self: Any, *given: Any, **named: Any) -> None:
        step(self, *given, **named)
        if named["run_state"].step == 5:
            tensors = [one for one in self.tensors()[group].values() if one.is_floating_point() and one.ndim > 1]
            tensors[where].view(-1)[0] = value

    patch.setattr(loop.Update, "step", stepped)


@pytest.mark.parametrize(("group", "where"), [("optimizer", 0), ("optimizer", -1), ("ema", 0), ("model", -1)])
def test_a_number_of_the_run_that_is_not_finite_ends_it_and_is_in_no_file(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, where: int
) -> None:
    poisoned(monkeypatch, group, where, math.nan)
    reports = run(tmp_path / "run", data)
    assert (ended(reports).reason, ended(reports).exit_code) == ("not-finite", 5)
    assert only(reports, Saved)[-1].step == 4 and not_finite_in(tmp_path / "run") == []
    monkeypatch.undo()
    assert ended(run(tmp_path / "run", data)).reason == "done"


@pytest.mark.parametrize("group", ["model", "ema"])
def test_weights_that_are_not_finite_are_not_shipped_either(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    """A validation comes before the next checkpoint, and the number is in a row that the dev set does not read."""
    poisoned(monkeypatch, group, 0, math.inf)
    reports = run(tmp_path / "run", data, save_every=STEPS)
    assert (ended(reports).reason, ended(reports).exit_code) == ("not-finite", 5)
    assert not only(reports, Saved) and not_finite_in(tmp_path / "run") == []


def test_without_the_hold_the_numbers_reach_the_weights(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update.Tallies, "hold", lambda *_: torch.zeros(()))
    seen = watched(monkeypatch)
    with bad_loss(math.nan, range(6, 7)):
        reports = run(tmp_path / "run", data)
    assert not all(one.isfinite().all() for one in seen[6])
    assert ended(reports).reason == "not-finite" and not_finite_in(tmp_path / "run") == []  # the next guard


def test_two_guards_stand_before_a_checkpoint_and_without_both_the_numbers_are_in_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(monkeypatch, "optimizer", 0, math.nan)
    monkeypatch.setattr(loop.Update, "finite", lambda _: [])
    monkeypatch.setattr(loop, "save_model", lambda *_: None)  # it has a guard of its own
    reports = run(tmp_path / "run", data)
    assert only(reports, Saved)[1].problem and not_finite_in(tmp_path / "run") == []
    monkeypatch.setattr(checkpoint, "not_finite", lambda _: [])
    run(tmp_path / "other", data)
    assert not_finite_in(tmp_path / "other")


def test_a_loss_in_the_log_is_never_that_of_a_skipped_step(data: Path, tmp_path: Path) -> None:
    with bad_loss(math.nan, range(6, 8)):
        reports = run(tmp_path / "run", data, log_every=2)
    assert all(math.isfinite(one.loss) or one.skipped == 2 for one in only(reports, Stepped))
