"""R13: one process trains in a folder; a second is told who does, the dead hold up nobody, and races mix nothing."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durable_common import QUICK
from durable_faults import ERRORS, FailingFiles
from seqloom.errors import DurableError
from seqloom.files import lock as holding
from seqloom.files.disk import FileLayer
from seqloom.files.lock import hold

HOLDER = """if True:
    import sys, time
    from pathlib import Path
    from seqloom.files import hold
    with hold(Path(sys.argv[1])):
        print("held", flush=True)
        time.sleep(60)
"""

# Pairs of processes that are started at the same moment and behave like two trainers: each that may writes a log and a
# checkpoint of its own, again and again. "free" leaves the lock out. Prints how many folders hold the work of two.
RACES = """if True:
    import json, os, sys, time
    from contextlib import nullcontext
    from pathlib import Path
    from durable_common import QUICK
    from seqloom.files import append_line, begin_shared, hold, put_shared, read_folder, read_lines, seal_shared
    from seqloom.errors import DurableError

    def train(run, free):
        me = str(os.getpid())
        try:
            with nullcontext() if free else hold(run, files=QUICK):
                for step in (1, 2, 3):
                    append_line(run / "log", {"pid": me}, files=QUICK)
                    time.sleep(0.002)
                    partial = begin_shared(run / f"step-{step}", files=QUICK)
                    entries = put_shared(partial, {name: me for name in "abc"}, files=QUICK)
                    seal_shared(partial, run / f"step-{step}", entries, files=QUICK)
        except DurableError as error:
            assert "is in use by" in str(error) or free, error

    mixed, refused = 0, 0
    for number in range(int(sys.argv[2])):
        run = Path(sys.argv[1], str(number))
        run.mkdir()
        start = time.time() + 0.003
        children = []
        for _ in range(2):
            child = os.fork()
            if child == 0:
                while time.time() < start:
                    pass
                train(run, sys.argv[3] == "free")
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        pids = [record["pid"] for record in read_lines(run / "log").records]
        steps = [set(dict(read_folder(run / f"step-{step}")).values()) for step in (1, 2, 3)]
        in_turn = pids in ([pids[0]] * 3, [pids[0]] * 3 + [pids[-1]] * 3)
        mixed += not in_turn or any(len(step) > 1 for step in steps) or len(set().union(*steps)) > 1
        refused += len(pids) == 3
    print(json.dumps([mixed, refused]))
"""


def run_python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


@contextmanager
def another_process(run: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the folder; it ends with the block."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(run)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def try_to_hold(run: Path, files: FileLayer = QUICK) -> None:
    with hold(run, files=files):
        pass


def test_a_second_trainer_is_refused_within_a_second_with_the_pid_and_host_of_the_first(tmp_path: Path) -> None:
    with another_process(tmp_path) as process:
        began = time.monotonic()
        with pytest.raises(DurableError, match=rf"in use by process {process.pid} on {socket.gethostname()} since 20"):
            try_to_hold(tmp_path)
        assert time.monotonic() - began < 1
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == process.pid  # nobody let go
        with hold(tmp_path):  # a dead one holds up nobody
            assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()
    assert (tmp_path / ".lock").read_bytes() == b""


def test_the_same_process_cannot_hold_a_folder_twice_and_may_hold_it_again(tmp_path: Path) -> None:
    for _ in range(2):
        with hold(tmp_path / "run"), pytest.raises(DurableError, match=f"process {os.getpid()} on"):
            try_to_hold(tmp_path / "run")


def test_a_lock_of_another_host_is_refused_and_stays(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    text = json.dumps({"pid": 7, "host": "far-away", "since": "2026-01-31T12:00:00+00:00"})
    lock.write_text(text)
    with pytest.raises(DurableError, match=rf"process 7 on far-away since 2026.*delete {lock}"):
        try_to_hold(tmp_path)
    assert lock.read_text() == text
    lock.unlink()
    with hold(tmp_path):
        pass


def test_twin_without_the_host_a_lock_of_another_host_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".lock").write_text(json.dumps({"pid": 7, "host": "far-away", "since": "2026"}))
    monkeypatch.setattr(holding, "_require_no_other_host", lambda _: None)
    with hold(tmp_path):
        pass


@pytest.mark.parametrize("rubbish", [b"", b"{", b'{"pid": 1', b"\0" * 64, b"\xff\xfe", b"[" * 5000, b'{"pid": "x"}'])
def test_a_lock_that_a_crash_left_half_written_is_taken_over(tmp_path: Path, rubbish: bytes) -> None:
    (tmp_path / ".lock").write_bytes(rubbish)
    with hold(tmp_path):
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()


@pytest.mark.slow
def test_a_child_that_outlives_its_parent_does_not_keep_the_lock(tmp_path: Path) -> None:
    script = """if True:
        import os, sys, time
        from pathlib import Path
        from seqloom.files import hold
        with hold(Path(sys.argv[1])):
            child = os.fork()
            if child == 0:
                os.close(1), os.close(2)
                time.sleep(5)
                os._exit(0)
            print(child, flush=True)
            os._exit(0)  # as if killed
    """
    child = int(run_python(script, str(tmp_path)).stdout)
    try:
        os.kill(child, 0)  # it is there
        with hold(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("code", ERRORS)
def test_a_disk_that_refuses_the_lock_is_an_error_with_a_cure_and_leaves_it_free(tmp_path: Path, code: int) -> None:
    for at in range(1, 4):
        with pytest.raises(DurableError, match=r"cannot lock .*\.lock: .*Fix: "):
            try_to_hold(tmp_path, FailingFiles(at, code))
        with hold(tmp_path, files=QUICK):
            pass


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / ".lock").symlink_to("mine")
    with pytest.raises(DurableError, match="ELOOP"):
        try_to_hold(tmp_path)
    assert (tmp_path / "mine").read_text() == "precious"


@pytest.mark.slow
def test_in_a_hundred_races_of_two_trainers_no_folder_holds_the_work_of_both_at_once(tmp_path: Path) -> None:
    result = run_python(RACES, str(tmp_path), "100", "held")
    mixed, refused = json.loads(result.stdout or result.stderr)
    assert mixed == 0
    assert refused >= 50  # they did meet


@pytest.mark.slow
def test_twin_without_the_lock_races_mix_the_work_of_two(tmp_path: Path) -> None:
    mixed, _ = json.loads(run_python(RACES, str(tmp_path), "10", "free").stdout)
    assert mixed > 0
