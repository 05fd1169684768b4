"""Wrong input leaves nothing behind; damaged files and full disks raise errors that name the fix."""

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from auto_common import fixed_race, table
from seqloom.cli import app
from seqloom.errors import DamagedError, DurableError, SeqloomError
from seqloom.experiments import workers
from seqloom.experiments.auto.record import SPENT, RaceRecord
from seqloom.experiments.auto.results import Leaderboard
from seqloom.experiments.workers import Interrupted, Why


@pytest.mark.slow
@pytest.mark.parametrize(
    "given", [["missing.csv"], ["a.csv", "--models", "cmn"], ["a.csv", "--dev-size", "0"], ["a.csv", "--init", "none"]]
)
@pytest.mark.parametrize("out", [[], ["--out", "new/deep/out"]])
def test_wrong_input_writes_nothing(
    given: list[str], out: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "a.csv", 40, 0)
    error = CliRunner().invoke(app, ["auto", *given, *out]).exception
    assert isinstance(error, SeqloomError)
    assert [path.name for path in tmp_path.rglob("*")] == ["a.csv"]


def test_wrong_input_removes_nothing_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "other").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    for out in ([], ["--out", "empty"]):
        assert isinstance(CliRunner().invoke(app, ["auto", "missing.csv", *out]).exception, SeqloomError)
    assert (tmp_path / "runs" / "other").is_dir() and not (tmp_path / "runs" / "missing-auto").exists()
    assert (tmp_path / "empty").is_dir()


@pytest.mark.parametrize("content", [b'{"seconds": 1', b'{"second": 1}', b"[]", b'{"seconds": "long"}', b"\xff"])
def test_a_damaged_time_file_is_an_error_with_a_fix(content: bytes, tmp_path: Path) -> None:
    (tmp_path / SPENT).write_bytes(content)
    with pytest.raises(DamagedError, match=r"spent\.json cannot be read.*Fix: .*delete it"):
        RaceRecord(tmp_path, None, 0.0)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_damaged_leaderboard_is_an_error_and_is_written_again_after_its_removal(tmp_path: Path) -> None:
    files, out = (table(tmp_path / "a.csv", 60, 0), table(tmp_path / "d.csv", 30, 1)), tmp_path / "out"
    board, _ = fixed_race(*files, out, models=("bag",))
    (out / "leaderboard.json").write_text("{")
    with pytest.raises(DamagedError, match=r"leaderboard\.json cannot be read.*Fix: delete it"):
        fixed_race(*files, out, models=("bag",))
    (out / "leaderboard.json").unlink()
    again, _ = fixed_race(*files, out, models=("bag",))
    assert isinstance(again, Leaderboard) and again.rows == board.rows
    assert json.loads((out / "leaderboard.json").read_text())["task"] == "classify"


@pytest.mark.slow
@pytest.mark.parametrize(("why", "error"), [("disk", DurableError), ("stopped", KeyboardInterrupt)])
def test_only_an_interruption_is_a_keyboard_interrupt(
    why: Why, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> NoReturn:
        raise Interrupted(why, 4)

    monkeypatch.setattr(workers.RunsPlan, "trained", stopped)
    with pytest.raises(error) as raised:
        fixed_race(table(tmp_path / "a.csv", 60, 0), table(tmp_path / "d.csv", 30, 1), tmp_path / "out")
    assert error is KeyboardInterrupt or "free disk space" in str(raised.value)
