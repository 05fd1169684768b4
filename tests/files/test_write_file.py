"""Claims about one file: replaced whole or left as it was (A5), with the cure named when it cannot be."""

import errno
import mmap
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_common import NEW, OLD, QUICK, listing, properties
from durable_faults import FailingFiles, Recorder, read_tree
from seqloom.errors import DurableError
from seqloom.files import disk
from seqloom.files.disk import CACHE_FILES, RealFiles, make_folder, require_free_space, write_file, write_files
from seqloom.files.folders import commit_folder, newest_verified, sweep, verify_folder
from seqloom.files.jsonl import append_line, read_lines


def test_write_file_replaces_the_bytes_and_leaves_nothing_else(tmp_path: Path) -> None:
    for data in (OLD, NEW, "naïve\n", b"", bytearray(b"abc"), memoryview(b"abc"), [b"a", b"", memoryview(b"bc")]):
        write_file(tmp_path / "file", data)
        expected = data.encode() if isinstance(data, str) else b"".join(data) if isinstance(data, list) else data
        assert (tmp_path / "file").read_bytes() == expected
        assert listing(tmp_path) == ["file"]


def test_several_files_are_written_with_one_sync_of_their_folder(tmp_path: Path) -> None:
    write_file(tmp_path / "b", OLD)
    recorder = Recorder(lambda *_: False)
    write_files({tmp_path / "a": b"1", tmp_path / "b": NEW}, files=recorder)
    assert read_tree(tmp_path) == {"a": b"1", "b": NEW}
    order = [operation for operation, *_ in recorder.trace if operation in ("sync", "rename", "sync_folder")]
    assert order == ["sync", "sync", "rename", "rename", "sync_folder"]


class SyncedFiles(RealFiles):
    """The real layer, which counts its syncs of files; `code` is an error that each of them has."""

    def __init__(self, code: int = 0) -> None:
        self.code, self.synced = code, 0

    def sync(self, handle: int) -> None:
        self.synced += 1
        if self.code:
            raise OSError(self.code, "no sync")


@pytest.mark.parametrize("started", [0, 1])
@pytest.mark.parametrize("code", [0, errno.EIO])
def test_files_are_synced_also_if_no_more_thread_can_start(
    started: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, left, submit = SyncedFiles(code), iter(range(started)), disk.ThreadPoolExecutor.submit

    def refused(pool: Any, *call: Any) -> Any:
        if next(left, None) is None:
            raise RuntimeError("can't start new thread")
        return submit(pool, *call)

    monkeypatch.setattr(disk.ThreadPoolExecutor, "submit", refused)
    write = partial(write_files, {tmp_path / name: NEW for name in "abc"}, files=files)
    if code:
        with pytest.raises(DurableError, match="EIO"):
            write()
        assert read_tree(tmp_path) == {}
    else:
        write()
        assert read_tree(tmp_path) == dict.fromkeys("abc", NEW)
    assert files.synced == 3


def test_files_that_are_not_synced_start_no_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(disk, "ThreadPoolExecutor")
    write_files({tmp_path / name: NEW for name in "abc"}, files=CACHE_FILES)
    assert read_tree(tmp_path) == dict.fromkeys("abc", NEW)


def test_when_the_second_of_two_files_cannot_be_written_both_are_as_before(tmp_path: Path) -> None:
    write_files({tmp_path / "a": OLD, tmp_path / "b": OLD})
    with pytest.raises(DurableError, match="UTF-8"):
        write_files({tmp_path / "a": NEW, tmp_path / "b": "\ud800"})
    assert read_tree(tmp_path) == {"a": OLD, "b": OLD}


def test_a_write_that_the_system_cuts_short_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:3]))
    write_file(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_the_mode_follows_the_umask_and_can_be_narrowed(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "shared", b"")
        write_file(tmp_path / "token", b"", mode=0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


@properties
@given(st.one_of(st.binary(max_size=9000), st.lists(st.binary(max_size=50))))
def test_write_file_then_read_gives_the_same_bytes(data: bytes | list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_file(Path(folder, "file"), data, files=QUICK)
        assert Path(folder, "file").read_bytes() == (b"".join(data) if isinstance(data, list) else data)


def test_a_missing_parent_is_named_with_the_cure(tmp_path: Path) -> None:
    for write in (write_file, append_line, commit_folder):
        with pytest.raises(DurableError, match=r"no/file: No such file.*ENOENT.*create its parent folder"):
            write(tmp_path / "no/file", {})
    make_folder(tmp_path / "no/deeper")
    make_folder(tmp_path / "no/deeper")
    write_file(tmp_path / "no/deeper/file", b"1")
    with pytest.raises(DurableError, match="is a file"):
        make_folder(tmp_path / "no/deeper/file")


def test_a_folder_that_takes_nothing_is_not_to_be_created(tmp_path: Path) -> None:
    class Refusing(disk.RealFiles):
        """Files on a disk that, as /proc, says of every new name that it is missing."""

        def make_folder(self, path: Path) -> None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))

    for path in (tmp_path / "new", tmp_path / "new" / "deeper"):
        with pytest.raises(
            DurableError, match=rf"choose another folder: {tmp_path} exists, but does not accept"
        ) as caught:
            make_folder(path, files=Refusing())
        assert "create" not in caught.value.fix


def test_a_name_too_long_for_the_disk_is_an_error_of_ours(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 300)
    for act in (write_file, append_line, commit_folder):
        with pytest.raises(DurableError, match="ENAMETOOLONG"):
            act(long, {})
    for act in (
        verify_folder,
        read_lines,
        make_folder,
        newest_verified,
        sweep,
        lambda path: require_free_space(path, 1),
    ):
        with pytest.raises(DurableError, match="ENAMETOOLONG"):
            act(long)


def test_text_that_is_not_unicode_is_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    write_file(tmp_path / "a", OLD)
    with pytest.raises(DurableError, match="UTF-8"):
        write_file(tmp_path / "a", "\ud800")
    assert read_tree(tmp_path) == {"a": OLD}


def test_a_file_system_that_cannot_sync_folders_is_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(code: int) -> Callable[[int], None]:
        def fsync(handle: int) -> None:
            if Path(f"/proc/self/fd/{handle}").is_dir():
                raise OSError(code, os.strerror(code))

        return fsync

    monkeypatch.setattr(os, "fsync", refuse(errno.EINVAL))
    write_file(tmp_path / "a", NEW)
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))
    with pytest.raises(DurableError, match="EIO"):
        write_file(tmp_path / "a", NEW)


def test_a_mapped_file_keeps_its_bytes_under_the_reader(tmp_path: Path) -> None:
    write_file(tmp_path / "a", OLD)
    with (tmp_path / "a").open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        write_file(tmp_path / "a", NEW)
        assert mapped[:] == OLD
        assert (tmp_path / "a").read_bytes() == NEW


def test_twin_writing_in_place_changes_a_mapped_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(OLD)
    with (tmp_path / "a").open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        with (tmp_path / "a").open("r+b") as writer:
            writer.write(NEW)
        assert mapped[:] != OLD


def test_a_link_is_replaced_and_what_it_points_to_keeps_its_bytes(tmp_path: Path) -> None:
    write_file(tmp_path / "target", OLD)
    for target in ("target", "nowhere"):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(target)
        write_file(tmp_path / "link", NEW)
        assert not (tmp_path / "link").is_symlink()
        assert read_tree(tmp_path) == {"target": OLD, "link": NEW}


def test_a_hard_link_keeps_the_old_bytes(tmp_path: Path) -> None:
    write_file(tmp_path / "a", OLD)
    os.link(tmp_path / "a", tmp_path / "b")
    write_file(tmp_path / "a", NEW)
    assert read_tree(tmp_path) == {"a": NEW, "b": OLD}


def test_a_folder_in_the_place_of_a_file_is_left_alone(run: Path) -> None:
    before = read_tree(run)
    with pytest.raises(DurableError, match="EISDIR"):
        write_file(run / "step-000010", b"")
    assert read_tree(run) == before


def test_a_planted_temporary_file_or_link_is_not_written_through(tmp_path: Path) -> None:
    write_file(tmp_path / "a", OLD)
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "c").symlink_to("nowhere")
    for name in "abc":
        with pytest.raises(FileExistsError):
            disk.RealFiles().create(tmp_path / name, 0o666)
    assert (tmp_path / "a").read_bytes() == OLD
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EPERM], ids=errno.errorcode.get)
def test_a_read_only_folder_is_named_with_the_cure(tmp_path: Path, code: int) -> None:
    write_file(tmp_path / "a", OLD)
    for write in (write_file, append_line, commit_folder):
        files = FailingFiles(1, code, lasting=True)
        with pytest.raises(DurableError, match=rf"{errno.errorcode[code]}.*Fix: .*(permissions|read-only)") as caught:
            write(tmp_path / ("a" if write is write_file else "b"), {} if write is not write_file else NEW, files=files)
        assert str(tmp_path) in str(caught.value)
    assert read_tree(tmp_path) == {"a": OLD}
