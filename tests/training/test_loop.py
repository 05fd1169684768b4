"""The loop, through the front door: what a run reports, when it ends, and what it leaves behind."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom import files
from seqloom.bundle import read_bundle
from seqloom.config.training import (
    ConstantConfig,
    EpochsConfig,
    LinearConfig,
    PlateauConfig,
    SecondsConfig,
    StepsConfig,
    TokenCountConfig,
)
from seqloom.data.order import Order
from seqloom.errors import DurableError
from seqloom.nn.types import Loss
from seqloom.tasks.classify import Classify
from seqloom.training import checkpoint, loop
from seqloom.training.devices import Alone, choose_device
from seqloom.training.events import Ended, Notice, Saved, Started, Stepped, Validated
from seqloom.training.run import train_run
from training_common import ScriptedLooks, ended, only, resolved, run, write_data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path)


def newest(out: Path) -> checkpoint.Checkpoint:
    found, skipped = checkpoint.newest(out / "checkpoints", Alone())
    assert found is not None and not skipped
    return found


@pytest.mark.slow
def test_a_run_reports_in_order_and_leaves_a_model_a_report_and_a_card(tmp_path: Path, data: Path) -> None:
    reports = run(tmp_path / "run", data)
    kinds = "".join(type(report).__name__[0] for report in reports)
    assert kinds == "S" + "SSVS" * 3 + "E", kinds  # the first S is Started, the third of each four Saved
    assert isinstance(reports[0], Started) and isinstance(reports[-1], Ended)
    assert [one.step for one in only(reports, Stepped)] == [5, 10, 15, 20, 25, 30]
    assert [one.step for one in only(reports, Validated)] == [10, 20, 30]
    assert all(one.samples for one in only(reports, Validated))
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.toml", "data.json", "metrics.jsonl", "events.jsonl", "model", "report.html", "card.md"} <= names


@pytest.mark.slow
def test_old_checkpoints_that_stay_after_a_kill_at_the_end_are_removed_by_the_same_command(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept() -> list[str]:
        return sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))

    with monkeypatch.context() as patched:  # all is saved, and nothing is removed any more
        patched.setattr(checkpoint, "retain", lambda *_: None)
        run(tmp_path / "run", data, keep_checkpoints=1)
    assert kept() == ["step-00000010", "step-00000020", "step-00000030"]
    run(tmp_path / "run", data, keep_checkpoints=1)
    assert kept()[-1] == "step-00000030" and len(kept()) <= 2  # the last and the chosen one


@pytest.mark.slow
def test_the_shipped_model_is_the_best_one(tmp_path: Path, data: Path) -> None:
    reports = run(tmp_path / "run", data, keep_checkpoints=9)
    looked = {one.step: one.metrics["accuracy"] for one in only(reports, Validated)}
    best = ended(reports).best_step
    assert looked[best] == max(looked.values())
    path = next(path for path in checkpoint.steps(tmp_path / "run" / "checkpoints") if path.name.endswith(f"{best:08}"))
    there = checkpoint.read(path, Alone()).tensors["model"]
    assert all(
        torch.equal(there[name], tensor) for name, tensor in read_bundle(tmp_path / "run" / "model").weights.items()
    )


@pytest.mark.slow
def test_of_two_validations_that_noise_cannot_tell_apart_the_later_one_is_shipped_while_the_rate_falls(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = ScriptedLooks(monkeypatch)
    for name, wrong, schedule, step in (
        ("later", (2, 3, 12), LinearConfig(warmup=0), 20),  # of 18 examples, at steps 10, 20 and 30
        ("overfitted", (2, 8, 12), LinearConfig(warmup=0), 10),
        ("constant", (2, 3, 12), ConstantConfig(), 10),
    ):
        looks.says(*wrong)
        run(tmp_path / name, data, keep_checkpoints=9, schedule=schedule)
        there = checkpoint.read(tmp_path / name / "checkpoints" / f"step-{step:08}", Alone()).tensors["model"]
        shipped = read_bundle(tmp_path / name / "model").weights
        assert all(torch.equal(there[key], tensor) for key, tensor in shipped.items()), name


@pytest.mark.slow
def test_no_epoch_after_the_last_is_drawn(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, draw = list[int](), Order._draw
    monkeypatch.setattr(Order, "_draw", lambda order, epoch: drawn.append(epoch) or draw(order, epoch))
    settings = resolved(data, duration=EpochsConfig(epochs=2))
    for _ in train_run(tmp_path / "run", settings, device=choose_device("cpu", "float32"), workers=2):
        pass
    assert set(drawn) == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("length", "steps"),
    [(StepsConfig(steps=7), 7), (EpochsConfig(epochs=1), None), (TokenCountConfig(tokens=100), None)],
)
def test_every_length_ends_where_it_says(tmp_path: Path, data: Path, length: Any, steps: int | None) -> None:
    last = ended(run(tmp_path / "run", data, duration=length))
    run_state = newest(tmp_path / "run").run_state
    assert last.reason == run_state.end_reason == "done"
    assert steps is None or last.step == steps
    if isinstance(length, EpochsConfig):
        assert (run_state.epoch, run_state.index) == (1, 0)
    if isinstance(length, TokenCountConfig):
        assert 100 <= run_state.tokens <= 160  # the step that reaches it is the last


@pytest.mark.slow
def test_steps_and_validations_name_the_epoch_they_are_in_and_epochs_never_go_back(tmp_path: Path, data: Path) -> None:
    reports = run(tmp_path / "run", data, duration=EpochsConfig(epochs=2), validate_every=3, log_every=1)
    told = [report for report in reports if isinstance(report, Stepped | Validated)]
    epochs = [report.epoch for report in told]
    assert epochs == sorted(epochs) and set(epochs) == {1, 2} and any(isinstance(one, Validated) for one in told)
    first = [report for report in told if isinstance(report, Stepped) and report.epoch == 1]
    assert 2 * len(first) == len([report for report in told if isinstance(report, Stepped)])


@pytest.mark.slow
def test_a_clock_ends_a_run(tmp_path: Path, data: Path) -> None:
    last = ended(run(tmp_path / "run", data, duration=SecondsConfig(seconds=0.2), validate_every=1_000))
    assert last.reason == "done" and last.step > 0 and last.speed.seconds < 5


@pytest.mark.slow
def test_patience_ends_a_run_that_gets_no_better(tmp_path: Path, data: Path) -> None:
    reports = run(tmp_path / "run", data, lr=0.0, patience=2, validate_every=2, duration=StepsConfig(steps=100))
    assert ended(reports).reason == "patience" and ended(reports).step == 6 and ended(reports).best_step == 2


@pytest.mark.slow
def test_a_plateau_lowers_the_rate(tmp_path: Path, data: Path) -> None:
    settings: dict[str, Any] = {"schedule": PlateauConfig(factor=0.5, patience=1), "optimizer": {"kind": "sgd"}}
    reports = run(tmp_path / "run", data, validate_every=2, log_every=1, lr=1e-30, **settings)
    rates = [one.lr for one in only(reports, Stepped)]
    assert rates[0] == 1e-30 and rates[4] == pytest.approx(5e-31) and rates[6] == pytest.approx(2.5e-31)


@pytest.mark.slow
def test_a_finished_run_says_so_and_more_epochs_go_on(tmp_path: Path, data: Path) -> None:
    first = run(tmp_path / "run", data)
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    again = run(tmp_path / "run", data)
    assert [type(one) for one in again] == [Started, Ended] and ended(again).step == 30 and ended(again).exit_code == 0
    assert ended(again).metrics == ended(first).metrics
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    longer = run(tmp_path / "run", data, duration=StepsConfig(steps=40))
    assert longer[0].step == 30 and ended(longer).step == 40


@pytest.mark.slow
def test_what_was_reported_is_logged_also_when_nobody_reads_on(tmp_path: Path, data: Path) -> None:
    reports = train_run(tmp_path / "run", resolved(data), device=choose_device("cpu", "float32"), workers=0)
    seen = [next(reports) for _ in range(4)]
    reports.close()
    steps = [one for one in files.read_lines(tmp_path / "run" / "metrics.jsonl").records if one["kind"] == "step"]
    assert [one["step"] for one in steps] == [one.step for one in only(seen, Stepped)] == [5, 10]


@pytest.mark.slow
def test_what_was_reported_is_what_is_logged(tmp_path: Path, data: Path) -> None:
    reports = run(tmp_path / "run", data)
    records = files.read_lines(tmp_path / "run" / "metrics.jsonl").records
    steps = [record for record in records if record["kind"] == "step"]
    assert [one["loss"] for one in steps] == [one.loss for one in only(reports, Stepped)]
    looks = [record for record in records if record["kind"] == "validation"]
    assert [one["metrics"] for one in looks] == [one.metrics for one in only(reports, Validated)]
    assert records[-1]["kind"] == "end"


class Spoiled:
    """A loss that is not finite from a step on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: int, last: int) -> None:
        self.calls, loss = 0, Classify.loss

        def spoiled(task: Any, model: Any, batch: Any, state: Any) -> Any:
            self.calls += 1
            found, after = loss(task, model, batch, state)
            return (
                (Loss(found.total * math.nan, found.weight), after) if first <= self.calls <= last else (found, after)
            )

        monkeypatch.setattr(Classify, "loss", spoiled)


@pytest.mark.slow
def test_a_step_that_is_not_finite_is_skipped_and_told(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Spoiled(monkeypatch, 4, 5)
    reports = run(tmp_path / "run", data)
    assert ended(reports).reason == "done"
    assert [one.step for one in only(reports, Notice) if one.code == "step.skipped"] == [4, 5]
    assert only(reports, Stepped)[0].skipped == 2 and math.isfinite(only(reports, Stepped)[0].loss)


@pytest.mark.slow
def test_three_steps_in_a_row_that_are_not_finite_end_the_run_and_name_the_examples(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Spoiled(monkeypatch, 12, 1_000)
    reports = run(tmp_path / "run", data)
    assert (ended(reports).reason, ended(reports).step, ended(reports).exit_code) == ("not-finite", 14, 5)
    examples = files.read_lines(tmp_path / "run" / "bad_batch.jsonl").records
    assert {one["step"] for one in examples} >= {12, 13, 14}
    assert all(one["file"].endswith("data.csv") and one["line"] > 1 and one["input"] for one in examples)
    assert newest(tmp_path / "run").run_state.step == 10


@pytest.mark.slow
def test_weights_that_are_not_finite_are_never_saved(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = loop.Update.step

    def poisoned(update: Any, *given: Any, **named: Any) -> None:
        take(update, *given, **named)
        if named["run_state"].step == 9:  # the tenth step, after which a checkpoint is due
            next(iter(update.tensors()["optimizer"].values())).fill_(math.inf)

    monkeypatch.setattr(loop.Update, "step", poisoned)
    reports = run(tmp_path / "run", data)
    assert (ended(reports).reason, ended(reports).exit_code) == ("not-finite", 5)
    assert not only(reports, Saved)


@pytest.mark.slow
def test_a_full_disk_is_told_and_the_third_time_ends_the_run(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, tries = checkpoint.save, []

    def full(*given: Any, **named: Any) -> Path:
        tries.append(1)
        if len(tries) > 1:
            raise DurableError("cannot write: No space left on device (ENOSPC)", fix="free space")
        return save(*given, **named)

    monkeypatch.setattr(checkpoint, "save", full)
    reports = run(tmp_path / "run", data, duration=StepsConfig(steps=100))
    assert (ended(reports).reason, ended(reports).exit_code, ended(reports).step) == ("disk", 4, 40)
    assert [bool(one.problem) for one in only(reports, Saved)] == [False, True, True, True]
    assert newest(tmp_path / "run").run_state.step == 10


@pytest.mark.slow
def test_one_failed_save_does_not_end_a_run(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save, tries = checkpoint.save, []

    def once(*given: Any, **named: Any) -> Path:
        tries.append(1)
        if len(tries) == 2:
            raise DurableError("cannot write", fix="free space")
        return save(*given, **named)

    monkeypatch.setattr(checkpoint, "save", once)
    reports = run(tmp_path / "run", data)
    assert ended(reports).reason == "done"
    assert [one.code for one in only(reports, Notice)] == ["disk.save"]


@pytest.mark.slow
def test_the_mean_of_checkpoints_is_shipped_when_the_dev_part_likes_it_better(tmp_path: Path, data: Path) -> None:
    reports = run(tmp_path / "run", data, average_checkpoints=3, keep_checkpoints=9)
    looked = only(reports, Validated)
    assert [one.step for one in looked] == [10, 20, 30, 30]  # the last one looks at the mean
    shipped = read_bundle(tmp_path / "run" / "model").weights
    last = newest(tmp_path / "run").tensors["model"]
    equal = all(torch.equal(last[name], tensor) for name, tensor in shipped.items())
    assert not (looked[-1].best and equal)


@pytest.mark.slow
def test_without_a_dev_part_the_last_weights_are_shipped(tmp_path: Path, data: Path) -> None:
    found = resolved(data)
    empty = found.prepared._replace(splits={**found.prepared.splits, "dev": found.prepared.splits["test"]})
    reports = list(train_run(tmp_path / "run", found._replace(prepared=empty), workers=0))
    assert ended(reports).best_step == 30
    shipped, last = read_bundle(tmp_path / "run" / "model").weights, newest(tmp_path / "run").tensors["model"]
    assert all(torch.equal(last[name], tensor) for name, tensor in shipped.items())


def test_the_test_part_is_not_there_while_training(data: Path) -> None:
    found = resolved(data)
    assert len(found.prepared.splits["test"]) == 0 and len(found.prepared.splits["dev"]) > 0
    assert found.facts.split["counts"].keys() == {"train", "dev"}  # not even its rows are counted


@pytest.mark.slow
def test_the_configuration_that_is_written_is_the_run(tmp_path: Path, data: Path) -> None:
    from seqloom.training.run_folder import RunFolder

    found = resolved(data)
    list(train_run(tmp_path / "run", found, workers=0))
    assert RunFolder(tmp_path / "run").config() == found.config
    assert json.loads((tmp_path / "run" / "data.json").read_text())["split"]["counts"] == found.facts.split["counts"]
