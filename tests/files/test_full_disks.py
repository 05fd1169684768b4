"""R5: a disk that refuses leaves what was there before, no rubbish, and an error with a fix."""

import contextlib
import errno
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from durable_common import NEW, OLD, QUICK, RECORDS, checkpoint, listing
from durable_faults import ERRORS, FailingFiles, read_tree
from seqloom.errors import DurableError
from seqloom.files import folders, jsonl
from seqloom.files.disk import require_free_space, write_file
from seqloom.files.folders import commit_folder, newest_verified, prune, sweep, verify_folder
from seqloom.files.jsonl import append_line, read_lines, write_lines


def test_a_disk_without_room_refuses_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    assert require_free_space(tmp_path / "not/yet/there", 1000) == 1000
    with pytest.raises(DurableError, match=r"there needs 1,001 bytes, but the disk has only 1,000 free.*free 1 bytes"):
        require_free_space(tmp_path / "not/yet/there", 1001)


def strikes(act: Callable[[FailingFiles], object], code: int, *, lasting: bool) -> Iterator[DurableError]:
    """The error of each operation of an act that fails in its turn; ends when the act meets no failure any more."""
    for at in range(1, 1000):
        files = FailingFiles(at, code, lasting=lasting)
        try:
            act(files)
        except DurableError as error:
            if not files.failed:
                raise
            yield error
        except OSError as error:
            raise AssertionError(f"operation {at} let {error!r} through") from error
        else:
            if not files.failed:
                return


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_a_failed_save_leaves_the_previous_checkpoint_and_no_rubbish(run: Path, code: int, lasting: bool) -> None:
    before, count = read_tree(run), 0
    for error in strikes(
        lambda files: commit_folder(run / "step-000030", checkpoint(30), files=files), code, lasting=lasting
    ):
        count += 1
        assert errno.errorcode[code] in str(error)
        assert "step-000030" in str(error)
        assert error.fix
        newest = newest_verified(run).step
        assert newest.number in (20, 30)
        assert lasting or not [name for name in listing(run) if name.startswith(".")]
        for path in run.glob(".step-*"):
            shutil.rmtree(path)
        if newest.number == 30:  # only the sync after the rename failed: it is there, but not yet for sure
            shutil.rmtree(run / "step-000030")
        assert read_tree(run) == before
    assert count >= 20  # with 4 codes, once and lasting: at least 160 points
    assert newest_verified(run).step.number == 30


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path: Path, code: int, lasting: bool) -> None:
    path = tmp_path / "config.toml"
    write_file(path, OLD)
    texts, count = [], 0
    for error in strikes(lambda files: write_file(path, NEW, files=files), code, lasting=lasting):
        count += 1
        assert errno.errorcode[code] in str(error) and "config.toml" in str(error)
        texts.append(path.read_bytes())
        assert lasting or listing(tmp_path) == ["config.toml"]
    assert texts == [OLD] * (count - 1) + [NEW]  # the last is the folder's sync, after the rename
    assert count == 6


@pytest.mark.parametrize("torn", [b"", b'{"step": 9', bytes(40)])
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_an_append_adds_one_record_or_fails_and_adds_none(
    tmp_path: Path, code: int, lasting: bool, torn: bytes
) -> None:
    log, failures = tmp_path / "log", 0
    for at in range(1, 9):
        write_lines(log, RECORDS[:2], files=QUICK)
        log.write_bytes(log.read_bytes() + torn)
        files = FailingFiles(at, code, lasting=lasting)
        try:
            append_line(log, RECORDS[2], files=files)
            added = 1
        except DurableError:
            failures += 1
            added = 0
        found = read_lines(log)
        # A disk that fails for good also refuses to cut off a line that was written and not synced.
        assert len(found.records) - 2 == added or (lasting and not added)
        assert list(found.records) == RECORDS[: len(found.records)]
        append_line(log, RECORDS[3], files=QUICK)
        assert read_lines(log) == jsonl.Lines((*found.records, RECORDS[3]), torn=False)
    assert failures == (4 if torn else 3)  # open, perhaps truncate, write, sync


@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
def test_a_failed_removal_never_leaves_half_a_checkpoint_under_its_name(tmp_path: Path, code: int) -> None:
    def act(files: FailingFiles) -> None:
        for step in (10, 20):
            with contextlib.suppress(DurableError):
                commit_folder(tmp_path / f"step-{step:06d}", checkpoint(step), files=QUICK)
        prune(tmp_path, 1, files=files)

    count = 0
    for _ in strikes(act, code, lasting=True):
        count += 1
        assert newest_verified(tmp_path).step.number == 20
        assert all(verify_folder(path) for path in tmp_path.glob("step-*"))
    assert count >= 7
    sweep(tmp_path, files=QUICK)
    assert listing(tmp_path) == ["step-000020"]


def test_twin_without_the_clean_up_a_failed_save_leaves_rubbish(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "delete", lambda *_: None)
    with pytest.raises(DurableError):
        commit_folder(run / "step-000030", checkpoint(30), files=FailingFiles(9, errno.EIO))
    assert listing(run)[0].startswith(".step-000030.partial-")


@pytest.mark.soak
def test_a_really_full_disk_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    script = """if True:
        import os, sys
        from pathlib import Path
        from seqloom.files import commit_folder, newest_verified, read_lines, append_line, write_file
        from seqloom.errors import DurableError
        run = Path(sys.argv[1])
        commit_folder(run / "step-1", {"a": bytes(6 << 20)})
        for _ in range(20):
            try:
                commit_folder(run / "step-2", {"a": (os.urandom(1 << 20) for _ in range(20))})
            except DurableError as error:
                assert "ENOSPC" in str(error), error
            else:
                raise AssertionError("16 MiB held 26")
            assert os.listdir(run) == ["step-1"] and newest_verified(run).step.number == 1
        write_file(run / "filler", bytes(os.statvfs(run).f_bavail * os.statvfs(run).f_frsize - 8192))
        written = 0
        try:
            for i in range(10000):
                append_line(run / "log", {"i": i})
                written += 1
        except DurableError:
            assert [record["i"] for record in read_lines(run / "log").records] == list(range(written)) and written
        else:
            raise AssertionError("the log outgrew the disk")
        print("held")
    """
    mount = f'mount -t tmpfs -o size=16m none "{tmp_path}" && exec "$0" -c "$1" "{tmp_path}"'
    command = ["unshare", "-rm", "sh", "-c", mount, sys.executable, script]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if "unshare" in result.stderr or "mount" in result.stderr:
        pytest.skip(f"no private mounts here: {result.stderr.strip()}")
    assert result.stdout == "held\n", result.stderr
