"""Which weights are shipped: the latest that are as good as the best."""

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seqloom.config.training import LinearConfig, PlateauConfig
from seqloom.report.numbers import number
from seqloom.tasks.evaluation import Evaluation
from seqloom.tasks.task import Metric
from seqloom.training.checkpoint import read_state, steps
from seqloom.training.devices import Alone, choose_device
from seqloom.training.events import Report, Saved, Validated
from seqloom.training.run import train_run
from seqloom.training.run_summary import read_scores
from seqloom.training.state import TrainingState
from seqloom.training.validation import CheckpointChoice, ValidationResult, is_as_good, record_validation
from training_common import ScriptedLooks, ended, only, resolved, run, write_data


def measure(sums: np.ndarray) -> dict[str, np.ndarray]:
    right, loss, weight = np.moveaxis(sums, -1, 0)
    return {"accuracy": right / weight, "loss": loss / weight}


def task(metric: Metric) -> Any:
    """A task whose rows are whether an example is right, its loss and its weight."""
    return SimpleNamespace(
        metric=metric,
        statistics=3,
        summed=lambda rows: rows.sum(axis=0),
        measure=measure,
        agreed=lambda rows, _: rows,
        name="classify",
    )


ACCURACY = task(Metric("accuracy"))
LEAST_LOSS = task(Metric("loss", higher_is_better=False))


def table(right: list[int], loss: float | list[float] = 1.0) -> np.ndarray:
    return np.stack([np.array(right, float), np.broadcast_to(loss, len(right)), np.ones(len(right))], axis=1)


# --- two looks ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=10, max_size=200))
@example([(True, False), *[(True, True)] * 9])  # one example: exactly one standard error
@example([(True, False)] * 2 + [(True, True)] * 98)
@example([(True, False)] * 3 + [(False, True)] + [(True, True)] * 96)  # the same with three against one
def test_by_accuracy_a_look_is_as_good_where_mcnemar_sees_no_difference(pairs: list[tuple[bool, bool]]) -> None:
    best, rows = (table([int(one) for one in side]) for side in zip(*pairs, strict=True))
    lost = sum(first and not second for first, second in pairs)
    won = sum(second and not first for first, second in pairs)
    assert is_as_good(ACCURACY, rows, best) is (lost <= won or (lost - won) ** 2 <= lost + won)


def test_a_loss_decides_by_its_own_noise() -> None:
    losses = np.linspace(0.5, 2.0, 40)
    best = table([1] * 40, losses.tolist())
    wobble = np.where(np.arange(40) % 2, 0.1, -0.1)
    assert is_as_good(LEAST_LOSS, table([1] * 40, (losses + wobble + 0.01).tolist()), best)
    assert not is_as_good(LEAST_LOSS, table([1] * 40, (losses + wobble + 0.03).tolist()), best)
    assert is_as_good(LEAST_LOSS, table([1] * 40, (losses - 1).tolist()), best)


@pytest.mark.parametrize("right", [0, 1])
def test_where_no_example_tells_two_looks_apart_the_loss_does(right: int) -> None:
    best = table([right] * 30, np.linspace(0.5, 2.0, 30).tolist())
    assert not is_as_good(ACCURACY, table([right] * 30, np.linspace(1.5, 3.0, 30).tolist()), best)
    assert is_as_good(ACCURACY, table([right] * 30, np.linspace(2.0, 0.5, 30).tolist()), best)


def test_where_examples_tell_them_apart_the_loss_has_no_say() -> None:
    best, later = [1] * 20 + [0] * 10, [1] * 19 + [0] * 10 + [1]
    assert is_as_good(ACCURACY, table(later, 9.0), table(best, 0.1))


# --- a run of looks -------------------------------------------------------------------------------------------------


def chosen(looks: list[list[int]], rates: list[float], of: Any = ACCURACY) -> list[int]:
    """The step that is to be shipped after each look, numbered from 1."""
    session: Any = SimpleNamespace(task=of, ranks=Alone())
    choice, run_state, shipped = CheckpointChoice(session, None), TrainingState(), []
    for step, (right, rate) in enumerate(zip(looks, rates, strict=True), 1):
        run_state.step = step
        rows = table(right)
        metrics = {name: float(value) for name, value in measure(rows.sum(axis=0)).items()}
        evaluation = Evaluation("classify", metrics, len(rows), rows, (), ids=tuple(map(str, range(len(rows)))))
        better, _ = record_validation(of.metric, metrics, run_state, rate)
        choice.take(ValidationResult(metrics, (), evaluation), run_state, better, rate)
        shipped.append(run_state.chosen.step if run_state.chosen else 0)
    return shipped


def right(count: int, of: int = 40) -> list[int]:
    return [1] * count + [0] * (of - count)


def test_a_later_look_is_chosen_until_it_is_worse_by_more_than_the_noise() -> None:
    assert chosen([right(30), right(29), right(20), right(31), right(30)], [5, 4, 3, 2, 1]) == [1, 2, 2, 4, 5]


def test_a_run_does_not_drift_down_step_by_step() -> None:
    assert chosen([right(count) for count in range(30, 20, -1)], list(range(10, 0, -1))) == [1, *[2] * 9]


def test_while_the_rate_does_not_fall_the_best_is_chosen() -> None:
    looks = [right(30), right(29), right(29), right(29)]
    assert chosen(looks, [1, 1, 1, 1]) == [1, 1, 1, 1]  # constant
    assert chosen(looks, [1, 2, 3, 4]) == [1, 1, 1, 1]  # a warm-up
    assert chosen(looks, [1, 1, 0.5, 0.5]) == [1, 1, 3, 4]  # a plateau


def test_of_a_handful_of_examples_the_best_is_chosen() -> None:
    assert chosen([right(6, of=9), right(5, of=9)], [2, 1]) == [1, 1]
    assert chosen([right(6, of=10), right(5, of=10)], [2, 1]) == [1, 2]


def test_rows_that_are_not_finite_leave_the_choice_to_the_best() -> None:
    session: Any = SimpleNamespace(task=ACCURACY, ranks=Alone())
    choice, run_state = CheckpointChoice(session, None), TrainingState(step=1)
    rows = table(right(30), math.inf)
    look = ValidationResult(
        {"accuracy": 0.75}, (), Evaluation("classify", {}, 40, rows, (), ids=tuple(map(str, range(40))))
    )
    record_validation(ACCURACY.metric, look.metrics, run_state, 2.0)
    assert choice.take(look, run_state, True, 2.0) and not choice.tensors()  # a checkpoint would refuse them
    run_state.step = 2
    assert not choice.take(look, run_state, False, 1.0) and run_state.chosen is not None and run_state.chosen.step == 1


def test_of_the_weights_of_a_step_and_a_mean_the_better_one_is_chosen() -> None:
    session: Any = SimpleNamespace(task=ACCURACY, ranks=Alone())
    choice, run_state = CheckpointChoice(session, None), TrainingState()

    def taken(step: int, count: int, rate: float) -> bool:
        run_state.step, rows = step, table(right(count))
        metrics = {"accuracy": count / 40, "loss": 1.0}
        evaluation = Evaluation("classify", metrics, 40, rows, (), ids=tuple(map(str, range(40))))
        better, _ = record_validation(ACCURACY.metric, metrics, run_state, rate)
        return choice.take(ValidationResult(metrics, (), evaluation), run_state, better, rate)

    assert taken(10, 31, 2.0) and taken(20, 30, 1.0)
    assert not taken(20, 30, 1.0) and taken(20, 31, 1.0)  # equal, then better


# --- whole runs -----------------------------------------------------------------------------------------------------

DECAY: dict[str, Any] = {"schedule": LinearConfig(warmup=0), "keep_checkpoints": 9}
WRONG = (2, 3, 12)  # of 18 examples, at steps 10, 20 and 30: the best, one that is as good, one that is worse


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> ScriptedLooks:
    return ScriptedLooks(monkeypatch)


def files_of(out: Path) -> dict[str, bytes]:
    """What equal runs have alike."""
    found = [out / "metrics.jsonl", *(path for path in out.rglob("*.safetensors")), *out.rglob("state.json")]
    return {str(path.relative_to(out)): path.read_bytes() for path in found}


@pytest.mark.slow
def test_a_run_tells_which_weights_it_ships_and_why(tmp_path: Path, data: Path, looks: ScriptedLooks) -> None:
    looks.says(*WRONG)
    reports = run(tmp_path / "run", data, **DECAY)
    assert [(one.step, one.best, one.chosen) for one in only(reports, Validated)] == [
        (10, True, True),
        (20, False, True),
        (30, False, False),
    ]
    last = ended(reports)
    assert (last.best_step, last.chosen_step, last.metrics["accuracy"]) == (10, 20, 15 / 18)
    losses = [number(one.metrics["loss"]) for one in only(reports, Validated)]
    why = (
        f"Step 10 has the best accuracy, 0.8889, and loss {losses[0]}. Of later validations within one standard error "
        f"of it, the last one is chosen: step 20, with accuracy 0.8333 and loss {losses[1]}."
    )
    for page in ("card.md", "model/card.md", "report.html"):
        text = (tmp_path / "run" / page).read_text(encoding="utf-8")
        assert f"{why} These were measured before calibration." in text, page
    assert (
        "the best value is at step 10, the saved model is that of step 20"
        in (tmp_path / "run" / "report.html").read_text()
    )


@pytest.mark.slow
def test_the_checkpoint_of_the_shipped_weights_is_kept_and_mends_the_model(
    tmp_path: Path, data: Path, looks: ScriptedLooks
) -> None:
    looks.says(*WRONG)
    out = tmp_path / "run"
    run(out, data, **DECAY | {"keep_checkpoints": 1})
    assert [read_state(path).step for path in steps(out / "checkpoints")] == [20, 30]
    weights = (out / "model" / "model.safetensors").read_bytes()
    (out / "model" / "model.safetensors").write_bytes(b"")
    run(out, data, **DECAY | {"keep_checkpoints": 1})
    scores = read_scores(out / "model")
    assert scores is not None and scores.step == 20
    assert (out / "model" / "model.safetensors").read_bytes() == weights


def stopped(out: Path, data: Path, step: int, **settings: Any) -> None:
    """A run that nobody reads beyond a checkpoint."""
    found = resolved(data, **settings)
    reports: Iterator[Report] = train_run(out, found, device=choose_device("cpu", "float32"), workers=0)
    for report in reports:
        if isinstance(report, Saved) and report.step == step:
            reports.close()  # type: ignore[attr-defined]
            return


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("schedule", [LinearConfig(warmup=0), PlateauConfig(factor=0.5, patience=1)], ids=str)
@pytest.mark.parametrize("step", [10, 20])
def test_a_run_that_was_stopped_behind_its_best_chooses_as_one_that_was_not(
    tmp_path: Path, data: Path, looks: ScriptedLooks, step: int, schedule: Any
) -> None:
    settings = {**DECAY, "schedule": schedule}
    wrong = (2, 3, 3)
    looks.says(*wrong)
    run(tmp_path / "whole", data, **settings)
    looks.says(*wrong)
    stopped(tmp_path / "resumed", data, step, **settings)
    run(tmp_path / "resumed", data, **settings)
    assert files_of(tmp_path / "resumed") == files_of(tmp_path / "whole")
    scores = read_scores(tmp_path / "whole" / "model")
    assert scores is not None and scores.step == 30


@pytest.mark.slow
def test_without_the_rows_in_the_checkpoint_it_would_not(
    tmp_path: Path, data: Path, looks: ScriptedLooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks.says(*WRONG)
    run(tmp_path / "whole", data, **DECAY)
    monkeypatch.setattr(CheckpointChoice, "tensors", lambda _: {})
    looks.says(*WRONG)
    stopped(tmp_path / "resumed", data, 10, **DECAY)
    run(tmp_path / "resumed", data, **DECAY)
    ships = [read_scores(tmp_path / name / "model") for name in ("whole", "resumed")]
    assert [one.step for one in ships if one is not None] == [20, 10]
