"""While a run goes on its model is what the last good look found; its last form comes when the run ends or stops."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.bundle import read_bundle
from seqloom.tasks.classify import Classify
from seqloom.training import validation
from seqloom.training.devices import choose_device
from seqloom.training.events import Ended, Report, Validated
from seqloom.training.run import train_run
from seqloom.training.run_summary import RunScores, read_scores
from training_common import ended, only, resolved, run, write_data

pytestmark = pytest.mark.slow


def scores(out: Path) -> RunScores:
    found = read_scores(out / "model")
    assert found is not None
    return found


def reports_until(out: Path, data: Path, wanted: int) -> list[Report]:
    """The reports of a run that is left after so many validations, as by somebody who kills it."""
    reports = list[Report]()
    for report in train_run(out, resolved(data), device=choose_device("cpu", "float32"), workers=0):
        reports.append(report)
        if len(only(reports, Validated)) > wanted:
            break
    return reports


def test_a_run_that_goes_on_has_a_model_and_its_last_form_comes_at_the_end(tmp_path: Path) -> None:
    data = write_data(tmp_path)
    reports_until(tmp_path / "run", data, 1)
    before = scores(tmp_path / "run")
    assert (
        not before.settled and not before.cross_fitted and not before.intervals and before.dev["accuracy"] is not None
    )
    assert read_bundle(tmp_path / "run" / "model").spec.calibration.temperature == 1
    run(tmp_path / "run", data)
    after = scores(tmp_path / "run")
    assert after.settled and after.cross_fitted and set(after.intervals) == set(after.dev)
    assert read_bundle(tmp_path / "run" / "model").spec.calibration.temperature != 1


def test_a_run_that_was_killed_ends_with_the_model_of_one_that_was_not(tmp_path: Path) -> None:
    data = write_data(tmp_path)
    run(tmp_path / "whole", data)
    reports_until(tmp_path / "cut", data, 2)
    run(tmp_path / "cut", data)
    one, other = (read_bundle(tmp_path / name / "model") for name in ("whole", "cut"))
    assert one.notes == other.notes and one.spec.calibration == other.spec.calibration
    assert all(torch.equal(one.weights[name], other.weights[name]) for name in one.weights)


def test_a_run_that_was_stopped_has_a_calibrated_model_which_is_settled_again_at_its_end(tmp_path: Path) -> None:
    data, reports = write_data(tmp_path), list[Report]()
    for report in train_run(tmp_path / "cut", resolved(data), device=choose_device("cpu", "float32"), workers=0):
        reports.append(report)
        if isinstance(report, Validated) and report.step == 10:
            os.kill(os.getpid(), signal.SIGTERM)
    assert ended(reports).reason == "stopped"
    stopped = scores(tmp_path / "cut")
    assert stopped.cross_fitted and stopped.intervals and not stopped.settled
    run(tmp_path / "cut", data)
    run(tmp_path / "whole", data)
    one, other = (read_bundle(tmp_path / name / "model") for name in ("whole", "cut"))
    assert one.notes == other.notes and one.notes["settled"]


def test_a_run_that_is_over_leaves_its_model_alone(tmp_path: Path) -> None:
    data = write_data(tmp_path)
    run(tmp_path / "run", data)
    file = tmp_path / "run" / "model" / "manifest.json"
    before = file.stat().st_mtime_ns, file.read_bytes()
    assert isinstance(run(tmp_path / "run", data)[-1], Ended)
    assert (file.stat().st_mtime_ns, file.read_bytes()) == before


def test_the_dev_set_is_read_once_by_each_look_and_twice_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, fits, batches_of, fitted = Counter[str](), Counter[str](), validation.batches_of, Classify.fitted

    def counting(session: Any, part: Any, *share: int) -> Any:
        passes[part] += 1
        return batches_of(session, part, *share)

    def fitting(task: Any, model: Any, batches: Any) -> Any:
        fits["fitted"] += 1
        return fitted(task, model, batches)

    monkeypatch.setattr(validation, "batches_of", counting)
    monkeypatch.setattr(Classify, "fitted", fitting)
    looks = only(run(tmp_path / "run", write_data(tmp_path)), Validated)
    assert len(looks) == 3 and sum(look.best for look in looks) > 1
    assert (
        fits["fitted"] == 1 and passes["dev"] <= 2 * len(looks) + 2
    )  # a look may open all of dev and read nothing of it
