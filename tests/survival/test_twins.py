"""Each guard of a run that goes on, taken away: the comparison of bytes must see it."""

from pathlib import Path
from typing import Any

import pytest

from survival.following import JOB, differences, unverified, whole
from survival.forking import Runs

pytestmark = pytest.mark.slow
STEPS, KILLED = 32, "between-update-and-count:kill:27"  # from step 21 on, with a validation behind it
RATES = {"gru": 0.01, "lstm": 5.0}  # the second is too large: the plateau lowers it
TWINS = [
    ("gru", "unseeded"),
    ("gru", "counted early"),
    ("gru", "unshortened"),
    ("gru", "off by one"),
    ("gru", "without optimizer"),
    ("gru", "without ema"),
    ("gru", "without sums"),
    ("lstm", "without carried"),
    ("lstm", "without factor"),
]


def killed_and_resumed(runs: Runs, data: Path, folder: Path, case: str, twin: str) -> list[str]:
    """How a run that was killed differs from one that was not, both without the guard."""
    how: dict[str, Any] = {"twin": twin, "steps": STEPS, "log_every": 2, "validate_every": 4}
    how |= {"lr": RATES[case], "eager": True}
    unkilled = whole(runs, data, folder / "whole", case, **how)
    asked = {"data": str(data), "out": str(folder / "run"), "case": case, **how}
    (outcome,) = runs.run(JOB, 1, {**asked, "fail": KILLED})
    assert outcome.code == -9, outcome.stderr
    (outcome,) = runs.run(JOB, 1, asked)
    return [outcome.stderr] if outcome.code else differences(folder / "run", unkilled)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", ["gru", "lstm"])
def test_with_all_guards_a_killed_run_is_equal(runs: Runs, data: Path, tmp_path: Path, case: str) -> None:
    assert killed_and_resumed(runs, data, tmp_path, case, "") == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("case", "twin"), TWINS)
def test_without_a_guard_a_killed_run_is_not_equal(
    runs: Runs, data: Path, tmp_path: Path, case: str, twin: str
) -> None:
    assert killed_and_resumed(runs, data, tmp_path, case, twin)


@pytest.mark.parametrize("twin", ["", "in place"])
def test_a_checkpoint_that_has_its_name_is_whole_unless_it_is_written_in_place(
    runs: Runs, data: Path, tmp_path: Path, twin: str
) -> None:
    out = tmp_path / "run"
    asked = {"data": str(data), "out": str(out), "case": "gru", "twin": twin, "fail": "before-manifest:kill:3"}
    assert runs.run(JOB, 1, asked)[0].code == -9
    assert bool(unverified(out)) == bool(twin)
