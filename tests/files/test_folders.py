"""Claims about folders: committed whole, once, under safe names, and read back as they were written."""

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_common import QUICK, checkpoint, listing, properties
from durable_faults import QuickFiles, read_tree
from seqloom.errors import DurableError
from seqloom.files.disk import make_folder, write_file
from seqloom.files.folders import commit_folder, read_file_of, read_manifest, remove_folder, verify_folder


def test_views_of_numbers_are_written_as_their_bytes(tmp_path: Path) -> None:
    floats = memoryview(bytes(range(24))).cast("f", [2, 3])
    no_rows = memoryview(np.zeros((0, 3)))
    commit_folder(tmp_path / "a", {"floats": [floats, no_rows], "none": iter([])}, files=QUICK)
    assert read_file_of(tmp_path / "a", "floats") == bytes(range(24))
    assert read_file_of(tmp_path / "a", "none") == b""


part = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,5}", fullmatch=True)
names = st.lists(part, min_size=1, max_size=3).map("/".join).filter(lambda name: name != "manifest.json")


@pytest.mark.slow
@properties
@given(st.dictionaries(names, st.binary(max_size=200), max_size=6))
def test_commit_then_verify_and_read_gives_the_same_files(contents: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "folder")
        if any(f"{name}/" in other for name in contents for other in contents if other.startswith(f"{name}/")):
            with pytest.raises(DurableError):  # a name cannot be a file and a folder
                commit_folder(folder, contents, files=QUICK)
            assert listing(parent) == []
            return
        manifest = commit_folder(folder, contents, files=QUICK)
        assert verify_folder(folder) == read_manifest(folder) == manifest
        assert {name: read_file_of(folder, name) for name in manifest.files} == contents
        assert listing(parent) == ["folder"]


def test_equal_contents_give_equal_manifests_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    files = checkpoint(10)
    commit_folder(tmp_path / "a/model", files, files=QUICK)
    commit_folder(tmp_path / "b/model", dict(reversed(files.items())), files=QUICK)
    assert read_tree(tmp_path / "a") == read_tree(tmp_path / "b")


def test_a_manifest_is_readable_and_stays_as_it_was_first_written(tmp_path: Path) -> None:
    commit_folder(tmp_path / "step-000001", {"a.bin": b"abc"}, files=QUICK)
    assert (tmp_path / "step-000001/manifest.json").read_text() == (
        '{\n  "format": 1,\n  "folder": "step-000001",\n  "files": {\n    "a.bin": {\n      "size": 3,\n'
        '      "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"\n    }\n  },\n'
        '  "check": "70c72f7ada45a175a01194e8cc791d3fe30df3cdf318a785787fe013b7f6103e"\n}\n'
    )


def test_a_file_given_in_chunks_is_read_once_and_never_held_whole(tmp_path: Path) -> None:
    held = []

    def chunks() -> Iterator[bytes]:
        for i in range(50):
            held.append(i)
            yield bytes([i]) * 1000

    class Watching(QuickFiles):
        def write(self, handle: int, data: memoryview) -> None:
            assert len(data) == 1000 or not held or len(held) == 50  # the manifest comes when all chunks are written
            super().write(handle, data)

    manifest = commit_folder(tmp_path / "a", {"big": chunks()}, files=Watching())
    assert held == list(range(50))
    assert manifest.files["big"].size == 50_000
    assert verify_folder(tmp_path / "a") == manifest


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../a", "a/../b", "/a", "a//b", "a/", ".hidden", "a/.b", "a b", "a\\b", "a\0", "é", "a\n"]
)
def test_a_name_that_could_leave_the_folder_or_hide_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DurableError, match="cannot be the name"):
        commit_folder(tmp_path / "a", {"good": b"", name: b""}, files=QUICK)
    assert listing(tmp_path) == []


def test_the_name_of_the_manifest_and_an_unprintable_folder_are_refused(tmp_path: Path) -> None:
    for path, name in [(tmp_path / "a", "manifest.json"), (tmp_path / "a\udcff", "b"), (tmp_path / "a\n", "b")]:
        with pytest.raises(DurableError, match="cannot be the name"):
            commit_folder(path, {name: b""}, files=QUICK)
    assert listing(tmp_path) == []


def test_what_exists_is_never_committed_over(run: Path) -> None:
    (run / "empty").mkdir()
    (run / "file").write_bytes(b"")
    (run / "link").symlink_to("nowhere")
    before = read_tree(run / "step-000010")
    for name in ("step-000010", "empty", "file", "link"):
        with pytest.raises(DurableError, match=f"{name} already exists, and folders are never overwritten"):
            commit_folder(run / name, {"a": b""}, files=QUICK)
    assert read_tree(run / "step-000010") == before


def test_a_folder_that_appears_during_the_write_is_not_overwritten(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        commit_folder(tmp_path / "a", {"b": b"first"}, files=QUICK)
        yield b"second"

    with pytest.raises(DurableError, match="never overwritten"):
        commit_folder(tmp_path / "a", {"b": chunks()}, files=QUICK)
    assert read_file_of(tmp_path / "a", "b") == b"first"
    assert listing(tmp_path) == ["a"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_source_leaves_nothing_and_its_own_error(tmp_path: Path, error: type[BaseException]) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"some"
        raise error

    with pytest.raises(error):
        commit_folder(tmp_path / "a", {"b": chunks()}, files=QUICK)
    with pytest.raises(error):
        write_file(tmp_path / "a", chunks(), files=QUICK)
    assert listing(tmp_path) == []


def test_a_folder_that_another_process_makes_first_is_no_error(tmp_path: Path) -> None:
    class Outrun(QuickFiles):
        def make_folder(self, path: Path) -> None:
            path.mkdir()
            super().make_folder(path)

    make_folder(tmp_path / "a/b", files=Outrun())
    assert (tmp_path / "a/b").is_dir()


def test_the_real_layer_asks_the_system_to_sync_files_and_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(str(Path(f"/proc/self/fd/{handle}").readlink())))
    commit_folder(tmp_path / "a", {"b/c": b"1"})
    inside = [re.sub(r"/\.a\.partial-[0-9a-f]{16}", "/PARTIAL", path) for path in synced]
    root = str(tmp_path)
    assert inside == [f"{root}/PARTIAL{end}" for end in ("/b/c", "/manifest.json", "/b", "")] + [root]


def test_the_real_layer_syncs_the_files_of_a_folder_together_before_its_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, names = Barrier(3, timeout=10), list[str]()

    def synced(handle: int) -> None:
        name = Path(f"/proc/self/fd/{handle}").readlink().name
        if name in ("a", "b", "c"):
            begun.wait()  # the other two syncs have begun, or this one would never end
        names.append(name)

    monkeypatch.setattr(os, "fsync", synced)
    commit_folder(tmp_path / "folder", {"a": b"1", "b": b"2", "c": b"3"})
    assert sorted(names[:3]) == ["a", "b", "c"] and names[3] == "manifest.json"


def test_a_sync_that_fails_beside_others_commits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().name == "b":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refused)
    with pytest.raises(DurableError, match="EIO"):
        commit_folder(tmp_path / "folder", {"a": b"1", "b": b"2", "c": b"3"})
    assert list(tmp_path.iterdir()) == []


def test_a_removed_folder_is_gone_and_a_link_takes_only_itself(run: Path) -> None:
    (run / "link").symlink_to("step-000010")
    remove_folder(run / "link", files=QUICK)
    remove_folder(run / "step-000020", files=QUICK)
    assert listing(run) == ["step-000010"]
    verify_folder(run / "step-000010")
    with pytest.raises(DurableError, match="ENOENT"):
        remove_folder(run / "step-000020", files=QUICK)
