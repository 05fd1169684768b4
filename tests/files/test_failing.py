"""R2: each place in a write that SEQLOOM_FAIL can name is reached, and who dies there leaves whole files."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from durable_common import QUICK, checkpoint, listing
from seqloom.errors import ConfigError, DurableError
from seqloom.files import disk
from seqloom.files.folders import (
    commit_folder,
    grow_folder,
    newest_verified,
    prune,
    read_folder,
    recover,
    replace_folder,
    verify_folder,
)
from seqloom.files.jsonl import append_lines, read_lines

# One process that comes by every place of this module; it says what it has been promised. Others are in training.
SCRIPT = """if True:
    import sys
    from pathlib import Path
    from durable_common import QUICK, RECORDS, checkpoint
    from seqloom.files import append_lines, commit_folder, grow_folder, prune, replace_folder, write_file
    root = Path(sys.argv[1])
    for step in (10, 20, 30):
        commit_folder(root / f"step-{step:06d}", checkpoint(step), files=QUICK)
        print("saved", step, flush=True)
        append_lines(root / "log", [{"step": step}, {"step": step + 1}], files=QUICK)
        print("logged", step, flush=True)
        write_file(root / "config.toml", f"step = {step}\\n", files=QUICK)
        replace_folder(root / "model", checkpoint(step), files=QUICK)
    prune(root, 1, files=QUICK)
    with grow_folder(root / "store", files=QUICK) as folder:
        for number in range(4):
            folder.append("numbers", bytes(9))
    print("done", flush=True)
"""
HERE = [name for name in disk.NAMES if name.startswith(("file", "before-r", "after-r", "retention", "index", "metr"))]
HERE += ["before-manifest", "manifest-half", "after-manifest"]


def run_until(root: Path, fail: str) -> subprocess.CompletedProcess[str]:
    tests = str(Path(__file__).parents[1])
    environment = {**os.environ, "SEQLOOM_FAIL": fail, "PYTHONPATH": tests}
    command = [sys.executable, "-c", SCRIPT, str(root)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


@pytest.fixture
def fail_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """SEQLOOM_FAIL is read once in a process; here it is read anew each time that it is set."""

    def ask(text: str) -> None:
        monkeypatch.setenv("SEQLOOM_FAIL", text)
        disk._asked.cache_clear()

    yield ask
    ask("")


def test_there_are_24_places_each_with_a_name_of_its_own() -> None:
    assert len(disk.NAMES) == len(set(disk.NAMES)) == 24
    assert len(HERE) == 15


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("place", HERE)
def test_a_process_killed_at_any_place_leaves_what_it_promised_and_no_half_folder(place: str, tmp_path: Path) -> None:
    for time in (1, 2, 7, 12) if place.startswith("file") else (1, 2):
        root = tmp_path / f"{place}-{time}"
        root.mkdir()
        result = run_until(root, f"{place}:kill:{time}")
        assert result.returncode == -signal.SIGKILL, result.stderr
        words = [line.split() for line in result.stdout.splitlines()]
        saved, logged = ([int(number) for word, number in words if word == kind] for kind in ("saved", "logged"))
        recover(root, files=QUICK)
        assert not [name for name in listing(root) if name.startswith(".")]
        for folder in [*root.glob("step-*"), *root.glob("model"), *root.glob("store")]:
            verify_folder(folder)
        newest = newest_verified(root).step
        assert (newest.number if newest else 0) >= max(saved, default=0)
        if newest:
            assert dict(read_folder(newest.path)) == checkpoint(newest.number)
        records = [record["step"] for record in read_lines(root / "log").records]
        promised = [step + more for step in logged for more in (0, 1)]
        assert records[: len(promised)] == promised
        if len(saved) > 1:  # by then there has been a model
            assert dict(read_folder(root / "model")) in [checkpoint(step) for step in (*saved, saved[-1] - 10)]


@pytest.mark.slow
def test_twin_a_place_that_is_not_reached_kills_nobody(tmp_path: Path) -> None:
    result = run_until(tmp_path, "signal:kill")
    assert result.stdout.endswith("done\n"), result.stderr


def test_without_the_variable_data_stays_in_one_piece(fail_at: Callable[[str], None]) -> None:
    fail_at("")
    assert [bytes(part) for part in disk.cut(memoryview(b"abcd"), disk.FILE)] == [b"abcd"]
    for name in disk.NAMES:
        disk.reached(name)


@pytest.mark.parametrize(("place", "size"), [("file-0", 0), ("file-25", 25), ("file-75", 75), ("file-100", 100)])
def test_data_is_cut_at_the_share_that_is_asked_for(fail_at: Callable[[str], None], place: str, size: int) -> None:
    fail_at(f"{place}:raise:2")
    assert [len(part) for part in disk.cut(memoryview(bytes(100)), disk.FILE)] == [size, 100 - size]
    with pytest.raises(disk.InjectedError, match=place):
        list(disk.cut(memoryview(bytes(100)), disk.FILE))
    assert [len(part) for part in disk.cut(memoryview(bytes(100)), disk.MANIFEST)] == [100]


@pytest.mark.parametrize("place", ["file-new", "file-50", "file-100", "before-rename", "before-manifest"])
def test_a_disk_that_is_full_from_a_place_on_keeps_what_was_there(
    fail_at: Callable[[str], None], run: Path, place: str
) -> None:
    fail_at(f"{place}:enospc")
    for _ in range(2):
        with pytest.raises(DurableError, match="ENOSPC"):
            commit_folder(run / "step-000030", checkpoint(30), files=QUICK)
    assert listing(run) == ["step-000010", "step-000020"]
    assert newest_verified(run).step.number == 20


@pytest.mark.parametrize("text", ["file-5:kill", "file-50", "file-50:burn", "file-50:kill:0", "file-50:kill:x"])
def test_a_place_that_does_not_exist_is_refused_with_the_nearest(fail_at: Callable[[str], None], text: str) -> None:
    fail_at(text)
    with pytest.raises(ConfigError, match=r"SEQLOOM_FAIL=.*(Did you mean 'file-|write name:kill)"):
        disk.reached("file-new")


def test_the_places_of_logs_retention_and_growing_are_reached(fail_at: Callable[[str], None], run: Path) -> None:
    def grow() -> None:
        with grow_folder(run / "store", files=QUICK) as folder:
            folder.append("a", b"1")

    acts = {
        "metrics-half": lambda: append_lines(run / "log", [{"a": 1}], files=QUICK),
        "retention-half": lambda: prune(run, 1, files=QUICK),
        "index-half": grow,
        "after-rename": lambda: replace_folder(run / "model", {"a": b""}, files=QUICK),
    }
    for place, act in acts.items():
        fail_at(f"{place}:enospc")
        with pytest.raises(DurableError, match=errno.errorcode[errno.ENOSPC]):
            act()
    assert newest_verified(run).step.number == 20
    assert read_lines(run / "log").records == ()
