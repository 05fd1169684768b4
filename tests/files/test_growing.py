"""Claims about folders whose files grow side by side: whole or not there, whatever goes wrong and whenever."""

import errno
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_common import QUICK, listing, properties
from durable_faults import ERRORS, FailingFiles, QuickFiles, Recorder, crash_states, read_tree, write_tree
from seqloom.errors import DurableError
from seqloom.files.folders import commit_folder, grow_folder, read_file_of, sweep, verify_folder
from seqloom.files.lock import alone

CHUNKS = [("values", b"abcdef"), ("starts", b"01"), ("values", b"ghi"), ("starts", b"2")]
WHOLE = {"values": b"abcdefghi", "starts": b"012"}


def grow(path: Path, files: QuickFiles) -> None:
    with grow_folder(path, files=files) as folder:
        for name, chunk in CHUNKS:
            folder.append(name, chunk)


@properties
@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.binary(max_size=20)), max_size=12))
def test_a_grown_folder_equals_one_committed_at_once(chunks: list[tuple[str, bytes]]) -> None:
    whole: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as parent:
        with grow_folder(Path(parent, "store"), files=QUICK) as folder:
            for name, chunk in chunks:
                folder.append(name, chunk)
                whole[name] = whole.get(name, b"") + chunk
        grown = read_tree(Path(parent, "store"))
        shutil.rmtree(Path(parent, "store"))
        commit_folder(Path(parent, "store"), whole, files=QUICK)
        assert grown == read_tree(Path(parent, "store"))


def crash_verdicts(folder: Path, forgets: Callable[[str, Path], bool], since: int | None = None) -> list[bool]:
    """For every state that a power cut may leave, whether the folder is whole in it or, before the end, not there."""
    root = folder / "root"
    root.mkdir()
    recorder = Recorder(forgets)
    grow(root / "store", recorder)
    verdicts = []
    start = len(recorder.trace) - 1 if since is None else since
    for number, (tree, returned) in enumerate(crash_states(root, {}, recorder.trace, start)):
        state = folder / f"state-{number}"
        write_tree(state, tree)
        verdicts.append(_is_old_or_new(state, returned))
        shutil.rmtree(state)
    return verdicts


def _is_old_or_new(state: Path, returned: bool) -> bool:
    if not (state / "store").exists():
        return not returned
    try:
        verify_folder(state / "store")
    except DurableError:
        return False
    return {name: read_file_of(state / "store", name) for name in WHOLE} == WHOLE


@pytest.mark.slow
def test_every_power_cut_leaves_no_folder_or_the_whole_one(tmp_path: Path) -> None:
    verdicts = crash_verdicts(tmp_path, lambda *_: False, since=0)
    assert verdicts.count(False) == 0
    assert len(verdicts) > 100


@pytest.mark.parametrize("inside", ["values", "starts", "manifest.json"])
def test_twin_without_the_sync_of_a_file_some_power_cut_is_fatal(inside: str, tmp_path: Path) -> None:
    assert not all(crash_verdicts(tmp_path, lambda operation, path: operation == "sync" and path.name == inside))


@pytest.mark.parametrize("inner", [True, False])
def test_twin_without_the_sync_of_a_folder_some_power_cut_is_fatal(inner: bool, tmp_path: Path) -> None:
    assert not all(
        crash_verdicts(tmp_path, lambda what, path: what == "sync_folder" and (".partial-" in path.name) == inner)
    )


def failure(path: Path, files: FailingFiles) -> DurableError | None:
    try:
        grow(path, files)
    except DurableError as error:
        return error
    return None


def open_files(folder: Path) -> list[Path]:
    # Only files below the folder: what earlier tests left open closes whenever the collector finds it.
    return [path for path in map(Path.resolve, Path("/proc/self/fd").iterdir()) if folder.resolve() in path.parents]


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_a_disk_that_refuses_leaves_nothing_and_no_open_file(tmp_path: Path, code: int, lasting: bool) -> None:
    for at in range(1, 100):
        files = FailingFiles(at, code, lasting=lasting)
        path = tmp_path / f"store-{at}"
        error = failure(path, files)
        if not files.failed:
            break
        assert errno.errorcode[code] in str(error) and path.name in str(error) and error.fix
        assert open_files(tmp_path) == []
        if path.exists():  # only the sync after the rename failed
            verify_folder(path)
        assert lasting or not [name for name in listing(tmp_path) if name.startswith(".")]
    assert at > 15
    assert verify_folder(path)


def test_an_error_of_the_caller_leaves_nothing_and_passes_unchanged(tmp_path: Path) -> None:
    def read_a_source() -> None:
        with grow_folder(tmp_path / "store", files=QUICK) as folder:
            folder.append("values", b"abc")
            raise FileNotFoundError("source.csv")

    with pytest.raises(FileNotFoundError, match=r"source\.csv"):
        read_a_source()
    assert listing(tmp_path) == [] and open_files(tmp_path) == []


@pytest.mark.parametrize("name", ["../a", ".a", "manifest.json", "a/b", ""])
def test_an_unsafe_name_is_refused_and_nothing_is_left(name: str, tmp_path: Path) -> None:
    with pytest.raises(DurableError), grow_folder(tmp_path / "store", files=QUICK) as folder:
        folder.append(name, b"abc")
    assert listing(tmp_path) == []


def test_what_exists_is_refused(tmp_path: Path) -> None:
    grow(tmp_path / "store", QUICK)
    with pytest.raises(DurableError, match="never overwritten"):
        grow(tmp_path / "store", QUICK)
    verify_folder(tmp_path / "store")


def test_sweeping_one_name_leaves_the_leftovers_of_others(tmp_path: Path) -> None:
    for name in ("train", "dev"):
        (tmp_path / f".{name}.partial-0123456789abcdef").mkdir()
    assert [path.name for path in sweep(tmp_path, name="train", files=QUICK)] == [".train.partial-0123456789abcdef"]
    assert listing(tmp_path) == [".dev.partial-0123456789abcdef"]


def test_only_one_thread_is_inside_at_a_time(tmp_path: Path) -> None:
    inside, most = [], []

    def work() -> None:
        for _ in range(20):
            with alone(tmp_path / "store"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 80 and max(most) == 1


def test_a_process_that_is_killed_inside_holds_up_nobody(tmp_path: Path) -> None:
    program = """if True:
        import os, sys
        from pathlib import Path
        from seqloom.files import alone
        with alone(Path(sys.argv[1])):
            os.kill(os.getpid(), 9)
    """
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "store")], timeout=60, check=False)
    assert done.returncode == -9
    with alone(tmp_path / "store"):
        pass
