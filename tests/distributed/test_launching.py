"""The launcher and its supervisor, with ranks that do nothing but end."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from distributed.launched import SURROUNDINGS, children, fronted, wait_for
from seqloom.cli import terminal
from seqloom.errors import ConfigError, RepeatError
from seqloom.training import launcher as supervising
from seqloom.training.launcher import MEETING, _surroundings, first_to_say, launch

MODULE = "distributed.launched"


@pytest.mark.parametrize(("processes", "restarts"), [(0, 0), (-1, 0), (5_000, 0), (2, -1)])
def test_impossible_numbers_of_processes_are_refused_before_anything_starts(processes: int, restarts: int) -> None:
    with pytest.raises(ConfigError, match="1 to 1024 processes and 0 or more restarts"):
        launch([], processes, max_restarts=restarts)


def test_ranks_share_the_cores_unless_somebody_has_said_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert [_surroundings(count)["OMP_NUM_THREADS"] for count in (1, 2, 3, 16)] == ["8", "4", "2", "1"]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert "OMP_NUM_THREADS" not in _surroundings(2)


@pytest.mark.parametrize(
    ("codes", "restarts", "started"),
    [
        ([0], 3, 1),
        ([1], 0, 1),
        ([1, 137, 0], 3, 3),
        ([1, 1, 1], 2, 3),  # as often as was said, and no more
        *(([code], 3, 1) for code in (2, 3, 4, 5)),  # nothing would be better
        ([6, 6, 6, 0], 0, 4),  # goes on another way each time
        ([6, 1, 6, 5], 1, 4),
    ],
)
def test_only_what_may_end_better_is_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, codes: list[int], restarts: int, started: int
) -> None:
    meetings: list[Path] = []

    def start(_: int, meeting: Path, __: list[str]) -> int:
        meetings.append(meeting)
        return codes[len(meetings) - 1]

    monkeypatch.setattr(supervising, "_started", start)
    assert supervising.supervise(2, restarts, tmp_path, []) == codes[-1]
    assert meetings == [tmp_path / str(number) for number in range(started)]


def test_the_codes_are_those_of_the_command_line() -> None:
    assert {terminal.BAD_INPUT, terminal.DAMAGED, terminal.DISK, terminal.NOT_FINITE} == supervising.FINAL
    assert terminal.exit_code_of(RepeatError("once more")) == supervising.REPEAT


def test_what_all_ranks_find_out_one_of_them_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(MEETING, raising=False)
    assert first_to_say("no such file") and first_to_say("no such file")  # nobody else is there
    monkeypatch.setenv(MEETING, str(tmp_path))
    assert [first_to_say(text) for text in ("no such file", "no such file", "another", "no such file")] == [
        True,
        False,
        True,
        False,
    ]


@pytest.mark.slow
def test_a_refusal_is_said_once_and_not_tried_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.csv").write_text("text,label\none,yes\ntwo\n")
    arguments = ["train", str(tmp_path / "bad.csv"), "--out", str(tmp_path / "run")]
    assert launch(arguments, 2, max_restarts=3, environment=SURROUNDINGS) == 2
    said = capfd.readouterr().err
    assert said.count("bad.csv:3:") == 1 and said.count("ended with exit code 2") == 1 and "again" not in said


@pytest.mark.soak
@pytest.mark.slow
def test_the_exit_code_is_that_of_the_rank_that_failed_and_one_line_names_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert launch(["codes", str(tmp_path)], 2, max_restarts=1, module=MODULE, environment=SURROUNDINGS) == 5
    lines = capfd.readouterr().err.splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["6", "checkpoint", "1", "checkpoint", "5"]
    assert lines[-1].startswith("error: rank 1 of 2 (process ") and lines[-1].endswith(") ended with exit code 5")


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("whom", "number", "code"),
    [
        ("front", signal.SIGTERM, 143),
        ("front", signal.SIGINT, 130),
        ("front", signal.SIGKILL, -9),
        ("supervisor", signal.SIGKILL, 137),
    ],
)
def test_no_process_is_left_behind_by_a_signal(tmp_path: Path, whom: str, number: int, code: int) -> None:
    command = fronted(["wait", str(tmp_path)], MODULE)
    front = subprocess.Popen(command, env={**os.environ, **SURROUNDINGS}, stderr=subprocess.DEVNULL)
    wait_for(lambda: len([path for path in tmp_path.glob("rank-*") if path.read_text()]) == 2)
    (supervisor,) = children(front.pid)
    started = [supervisor, *(int(path.read_text()) for path in tmp_path.glob("rank-*"))]
    os.kill(front.pid if whom == "front" else supervisor, number)
    assert front.wait(timeout=15) == code
    wait_for(lambda: not any(Path(f"/proc/{process}").exists() for process in started), seconds=15)
