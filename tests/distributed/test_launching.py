"""The launcher and its agent, with ranks that do nothing but end."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from distributed.launched import SURROUNDINGS, children, fronted, wait_for
from seqloom.errors import ConfigError
from seqloom.training.launching import _surroundings, launch

MODULE = "distributed.launched"


@pytest.mark.parametrize(("processes", "restarts"), [(0, 0), (-1, 0), (5_000, 0), (2, -1)])
def test_impossible_numbers_of_processes_are_refused_before_anything_starts(processes: int, restarts: int) -> None:
    with pytest.raises(ConfigError, match="1 to 1024 processes and 0 or more restarts"):
        launch([], processes, max_restarts=restarts)


def test_ranks_share_the_cores_unless_somebody_has_said_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert [_surroundings(count, "")["OMP_NUM_THREADS"] for count in (1, 2, 3, 16)] == ["8", "4", "2", "1"]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert "OMP_NUM_THREADS" not in _surroundings(2, "")


@pytest.mark.slow
def test_the_exit_code_is_that_of_the_rank_that_failed_and_one_line_names_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launch(["code", str(tmp_path)], 2, module=MODULE, environment=SURROUNDINGS) == 5
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: rank 1 of 2 (process ") and line.endswith(") ended with code 5")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("whom", "number", "code"),
    [
        ("front", signal.SIGTERM, 143),
        ("front", signal.SIGINT, 130),
        ("front", signal.SIGKILL, -9),
        ("agent", signal.SIGKILL, 137),
    ],
)
def test_no_process_is_left_behind_by_a_signal(tmp_path: Path, whom: str, number: int, code: int) -> None:
    command = fronted(["wait", str(tmp_path)], MODULE)
    front = subprocess.Popen(command, env={**os.environ, **SURROUNDINGS}, stderr=subprocess.DEVNULL)
    wait_for(lambda: len([path for path in tmp_path.glob("rank-*") if path.read_text()]) == 2)
    (agent,) = children(front.pid)
    started = [agent, *(int(path.read_text()) for path in tmp_path.glob("rank-*"))]
    os.kill(front.pid if whom == "front" else agent, number)
    assert front.wait(timeout=15) == code
    wait_for(lambda: not any(Path(f"/proc/{process}").exists() for process in started), seconds=15)
