"""R2: killed at each of the 24 named places, a run ends with the bytes of the one that nothing happened to."""

import signal
from pathlib import Path
from typing import Any

import pytest

from seqloom.files.disk import NAMES
from seqloom.training.run_location import has_results
from survival.cases import sums
from survival.following import JOB, Whole, differences, unverified, whole
from survival.forking import Runs

pytestmark = pytest.mark.slow
HOW: dict[str, Any] = {"case": "gru", "steps": 36, "budget": 40, "validate_every": 8, "keep_checkpoints": 1}
# At which time that the run comes there: in its middle, where there is something to lose, or the only time.
TIMES = {"first-batch": 2, "last-batch": 1, "epoch-boundary": 1, "vocabulary-half": 1, "index-half": 1, "signal": 1}
TIMES |= {"validation": 2, "before-model": 2, "after-model": 1, "retention-half": 2, "between-update-and-count": 19}
MIDDLE = 5


@pytest.fixture(scope="module")
def unkilled(runs: Runs, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return whole(runs, data, tmp_path_factory.mktemp("whole") / "run", **HOW)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_killed_at_a_place_ends_with_the_same_bytes(
    runs: Runs, data: Path, unkilled: Whole, tmp_path: Path, name: str
) -> None:
    asked = {"data": str(data), "out": str(tmp_path / "run"), **HOW}
    if name == "index-half":  # only where the data is prepared for the first time
        asked["cache"] = str(tmp_path / "cache")
    signals = (signal.SIGTERM,) if name == "signal" else ()
    fail = f"{name}:kill:{TIMES.get(name, MIDDLE)}"
    assert runs.run(JOB, 1, {**asked, "fail": fail, "signals": signals})[0].code == -9
    assert unverified(tmp_path / "run") == []
    runs.answers(JOB, 1, asked)
    assert differences(tmp_path / "run", unkilled) == []


# Before the first checkpoint, which is saved in step 7, and before the configuration of the run is written.
EARLY = ["file-50:1", "manifest-half:1", "vocabulary-half:1", "before-rename:1", "after-rename:2", "file-synced:5"]
EARLY += ["after-rename:3", "first-batch:1", "metrics-half:1", "between-update-and-count:6", "manifest-half:2"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("place", EARLY)
def test_a_run_that_is_killed_before_its_first_checkpoint_leaves_its_folder_to_another(
    runs: Runs, data: Path, tmp_path: Path, place: str
) -> None:
    asked = {"data": str(data), "out": str(tmp_path / "run"), **HOW}
    name, time = place.split(":")
    assert runs.run(JOB, 1, {**asked, "fail": f"{name}:kill:{time}", "eager": True})[0].code == -9
    assert not has_results(tmp_path / "run")
    other = {"case": "lstm", "steps": 20}
    runs.answers(JOB, 1, {"data": str(data), "out": str(tmp_path / "run"), **other})
    assert sums(tmp_path / "run") == whole(runs, data, tmp_path / "whole", **other).sums
