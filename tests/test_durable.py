"""Claims about seqloom.durable: whole or not there, whatever is cut, full, rotten or renamed."""

import ast
import contextlib
import errno
import fcntl
import json
import mmap
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seqloom
from durable_faults import ERRORS, FailingFiles, QuickFiles, Recorder, Tree, crash_states, read_tree, write_tree
from seqloom.durable import (
    Manifest,
    append_line,
    commit_folder,
    disk,
    folders,
    lines,
    make_folder,
    newest_verified,
    prune,
    read_file_of,
    read_lines,
    read_manifest,
    remove_folder,
    require_free_space,
    steps,
    sweep,
    verify_folder,
    write_file,
    write_lines,
)
from seqloom.errors import DamagedError, DurableError

QUICK = QuickFiles()
OLD, NEW = b"width = 64\n" * 7, b"width = 128\n" * 5
properties = settings(derandomize=True, database=None, deadline=None, max_examples=60)


def checkpoint(step: int) -> dict[str, bytes]:
    """The files of a small checkpoint; weights of 3 pages, so that a page can be lost."""
    weights = random.Random(step).randbytes(3 * 4096)
    labels = "".join(f"label {step} {i}\n" for i in range(5)).encode()
    return {"model.bin": weights, "trainer.json": b'{"step": %d}' % step, "text/labels.txt": labels}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with the checkpoints of steps 10 and 20."""
    for step in (10, 20):
        commit_folder(tmp_path / f"step-{step:06d}", checkpoint(step), files=QUICK)
    return tmp_path


def listing(folder: Path | str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


# ---------------------------------------------------------------------------------------------------------------------
# What a write is


def test_write_file_replaces_the_bytes_and_leaves_nothing_else(tmp_path: Path) -> None:
    for data in (OLD, NEW, "naïve\n", b"", bytearray(b"abc"), memoryview(b"abc"), [b"a", b"", memoryview(b"bc")]):
        write_file(tmp_path / "file", data)
        expected = data.encode() if isinstance(data, str) else b"".join(data) if isinstance(data, list) else data
        assert (tmp_path / "file").read_bytes() == expected
        assert listing(tmp_path) == ["file"]


def test_views_of_numbers_are_written_as_their_bytes(tmp_path: Path) -> None:
    floats = memoryview(bytes(range(24))).cast("f", [2, 3])
    no_rows = memoryview(np.zeros((0, 3)))
    commit_folder(tmp_path / "a", {"floats": [floats, no_rows], "none": iter([])}, files=QUICK)
    assert read_file_of(tmp_path / "a", "floats") == bytes(range(24))
    assert read_file_of(tmp_path / "a", "none") == b""


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


part = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,5}", fullmatch=True)
names = st.lists(part, min_size=1, max_size=3).map("/".join).filter(lambda name: name != "manifest.json")


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
        with pytest.raises(DurableError, match=f"{name} exists, and folders are written once"):
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


def test_a_missing_parent_is_named_with_the_cure(tmp_path: Path) -> None:
    for write in (write_file, append_line, commit_folder):
        with pytest.raises(DurableError, match=r"no/file: No such file.*ENOENT.*create the folder"):
            write(tmp_path / "no/file", {})
    make_folder(tmp_path / "no/deeper")
    make_folder(tmp_path / "no/deeper")
    write_file(tmp_path / "no/deeper/file", b"1")
    with pytest.raises(DurableError, match="is a file"):
        make_folder(tmp_path / "no/deeper/file")


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


def test_a_folder_that_another_process_makes_first_is_no_error(tmp_path: Path) -> None:
    class Outrun(QuickFiles):
        def make_folder(self, path: Path) -> None:
            path.mkdir()
            super().make_folder(path)

    make_folder(tmp_path / "a/b", files=Outrun())
    assert (tmp_path / "a/b").is_dir()


def test_text_that_is_not_unicode_is_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    write_file(tmp_path / "a", OLD)
    with pytest.raises(DurableError, match="UTF-8"):
        write_file(tmp_path / "a", "\ud800")
    assert read_tree(tmp_path) == {"a": OLD}


def test_a_disk_without_room_refuses_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    assert require_free_space(tmp_path / "not/yet/there", 1000) == 1000
    with pytest.raises(DurableError, match=r"there needs 1,001 bytes, the disk has 1,000 free.*free 1 bytes"):
        require_free_space(tmp_path / "not/yet/there", 1001)


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


def test_the_real_layer_asks_the_system_to_sync_files_and_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(str(Path(f"/proc/self/fd/{handle}").readlink())))
    commit_folder(tmp_path / "a", {"b/c": b"1"})
    inside = [re.sub(r"/\.a\.partial-[0-9a-f]{16}", "/PARTIAL", path) for path in synced]
    root = str(tmp_path)
    assert inside == [f"{root}/PARTIAL{end}" for end in ("/b/c", "/manifest.json", "/b", "")] + [root]


# ---------------------------------------------------------------------------------------------------------------------
# R3: a power cut at any moment

Judge = Callable[[Path, bool], None]


def never(operation: str, path: Path) -> bool:
    return False


def no_sync(operation: str, path: Path) -> bool:
    return operation == "sync"


def no_folder_sync(operation: str, path: Path) -> bool:
    return operation == "sync_folder"


def no_inner_folder_sync(operation: str, path: Path) -> bool:
    return operation == "sync_folder" and ".partial-" in str(path)


def no_outer_folder_sync(operation: str, path: Path) -> bool:
    return operation == "sync_folder" and ".partial-" not in str(path)


def save_config(root: Path) -> tuple[Callable[[Recorder], object], Judge]:
    write_file(root / "config.toml", OLD)

    def judge(state: Path, returned: bool) -> None:
        assert (state / "config.toml").read_bytes() in ([NEW] if returned else [OLD, NEW])

    return lambda files: write_file(root / "config.toml", [NEW[:20], NEW[20:]], files=files), judge


def save_checkpoint(root: Path) -> tuple[Callable[[Recorder], object], Judge]:
    old = checkpoint(10) | {"optimizer.bin": b"momentum" * 9, "rng.json": b"[1, 2]"}
    new = checkpoint(20) | {"optimizer.bin": b"variance" * 9, "rng.json": b"[3, 4]"}
    in_chunks = {name: [data[:20], data[20:]] for name, data in new.items()}
    commit_folder(root / "step-000010", old, files=QUICK)

    def judge(state: Path, returned: bool) -> None:
        newest = newest_verified(state).step
        assert newest is not None
        assert newest.number in ([20] if returned else [10, 20])
        contents = {name: read_file_of(newest.path, name) for name in newest.manifest.files}
        assert contents == {10: old, 20: new}[newest.number]
        for path in state.glob("step-*"):  # a folder under its final name is whole
            verify_folder(path)

    return lambda files: commit_folder(root / "step-000020", in_chunks, files=files), judge


def retain_checkpoints(root: Path) -> tuple[Callable[[Recorder], object], Judge]:
    for step in (10, 20, 30, 40):
        commit_folder(root / f"step-{step:06d}", {"a": b"%d" % step, "b": b"", "c/d": b"1"}, files=QUICK)

    def judge(state: Path, returned: bool) -> None:
        assert newest_verified(state).step.number == 40
        numbers = sorted(int(path.name[5:]) for path in state.glob("step-*") if verify_folder(path))
        assert set(numbers) >= {30, 40}
        assert not returned or numbers == [30, 40]

    return lambda files: prune(root, 2, files=files), judge


RECORDS = [{"step": i, "loss": 1 / (i + 1), "note": "é"} for i in range(4)]


def log_a_line(root: Path) -> tuple[Callable[[Recorder], object], Judge]:
    write_lines(root / "log", RECORDS[:3])

    def judge(state: Path, returned: bool) -> None:
        found = list(read_lines(state / "log").records)
        assert found in ([RECORDS] if returned else [RECORDS[:3], RECORDS])
        append_line(state / "log", {"next": 1}, files=QUICK)
        assert read_lines(state / "log").records == (*found, {"next": 1})

    return lambda files: append_line(root / "log", RECORDS[3], files=files), judge


def repair_a_log(root: Path) -> tuple[Callable[[Recorder], object], Judge]:
    save, judge = log_a_line(root)
    with (root / "log").open("ab") as handle:
        handle.write(b'{"step": 99, "a longer line that was torn by an earlier crash": [1, 2, 3, 4, 5, 6, 7')
    return save, judge


def begin_a_log(root: Path) -> tuple[Callable[[Recorder], object], Judge]:
    def judge(state: Path, returned: bool) -> None:
        assert read_lines(state / "log").records in ([(RECORDS[0],)] if returned else [(), (RECORDS[0],)])

    return lambda files: append_line(root / "log", RECORDS[0], files=files), judge


def make_deep_folders(root: Path) -> tuple[Callable[[Recorder], object], Judge]:
    def judge(state: Path, returned: bool) -> None:
        assert not returned or (state / "runs/first/checkpoints").is_dir()

    return lambda files: make_folder(root / "runs/first/checkpoints", files=files), judge


def judged_states(scenario: Callable, folder: Path, forgets: Callable[[str, Path], bool]) -> Iterator[bool]:
    """For every crash state of a scenario, whether the judge accepts it; any exception is a no."""
    root = folder / "root"
    root.mkdir()
    act, judge = scenario(root)
    before, recorder = read_tree(root), Recorder(forgets)
    act(recorder)
    # With every sync in place the states are few enough to see all; without, the last ones are enough to go wrong.
    since = 0 if forgets is never else len(recorder.trace) - 1
    for number, (tree, returned) in enumerate(crash_states(root, before, recorder.trace, since)):
        yield accepts(judge, folder / f"state-{number}", tree, returned)


def accepts(judge: Judge, state: Path, tree: Tree, returned: bool) -> bool:
    write_tree(state, tree)
    try:
        judge(state, returned)
    except (Exception, AssertionError):
        return False
    finally:
        shutil.rmtree(state)
    return True


@pytest.mark.parametrize(
    ("scenario", "number_of_states"),
    [
        (save_config, 15),
        (save_checkpoint, 753),
        (retain_checkpoints, 99),
        (log_a_line, 8),
        (repair_a_log, 9),
        (begin_a_log, 9),
        (make_deep_folders, 5),
    ],
)
def test_every_power_cut_leaves_the_old_or_the_new_state(
    scenario: Callable, number_of_states: int, tmp_path: Path
) -> None:
    verdicts = list(judged_states(scenario, tmp_path, never))
    assert verdicts.count(False) == 0
    assert len(verdicts) == number_of_states  # different ones; fewer would be a weaker claim


@pytest.mark.parametrize(
    ("scenario", "forgets"),
    [
        (save_config, no_sync),
        (save_config, no_folder_sync),
        (save_checkpoint, no_sync),
        (save_checkpoint, no_inner_folder_sync),
        (save_checkpoint, no_outer_folder_sync),
        (retain_checkpoints, no_folder_sync),
        (log_a_line, no_sync),
        (repair_a_log, no_sync),
        (begin_a_log, no_sync),
        (begin_a_log, no_folder_sync),
        (make_deep_folders, no_folder_sync),
    ],
)
def test_twin_without_that_sync_some_power_cut_is_fatal(
    scenario: Callable, forgets: Callable[[str, Path], bool], tmp_path: Path
) -> None:
    assert not all(judged_states(scenario, tmp_path, forgets))


def test_twin_a_folder_deleted_in_place_is_found_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "remove_folder", lambda path, files: folders._delete(path, files))
    assert not all(judged_states(retain_checkpoints, tmp_path, never))


def test_a_leftover_of_a_crash_does_not_stop_the_next_save_and_is_swept(run: Path) -> None:
    for kind in ("partial", "trash"):
        shutil.copytree(run / "step-000020", run / f".step-000030.{kind}-0123456789abcdef")
    (run / ".config.toml.tmp-0123456789abcdef").write_bytes(b"half")
    (run / ".mine.tmp-1").write_bytes(b"not ours")
    commit_folder(run / "step-000030", checkpoint(30), files=QUICK)
    newest = newest_verified(run)
    assert newest.step.number == 30
    assert [skipped.reason for skipped in newest.skipped] == ["left by an interrupted write"] * 2
    assert [path.name.split("-0")[0] for path in sweep(run, files=QUICK)] == [
        ".config.toml.tmp",
        ".step",
        ".step",
    ]
    assert listing(run) == [".mine.tmp-1", "step-000010", "step-000020", "step-000030"]


# ---------------------------------------------------------------------------------------------------------------------
# R4 and A4: damage


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@contextlib.contextmanager
def holding(path: Path, data: bytes) -> Iterator[None]:
    """A block in which the file holds other bytes."""
    before = path.read_bytes()
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(before)


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def is_detected(run: Path, culprit: Path) -> bool:
    """Whether step 20 is refused, the message names the culprit, and step 10 is found instead."""
    try:
        verify_folder(run / "step-000020")
    except DamagedError as error:
        message = str(error)
        assert str(culprit) in message and "expected" in message and "found" in message and "Fix: " in message, message
    else:
        return False
    newest = newest_verified(run)
    assert newest.step.number == 10
    assert [skipped.path for skipped in newest.skipped] == [run / "step-000020"]
    assert newest.skipped[0].reason == message
    return True


def undetected_damage(run: Path, seed: int, flips: int, cuts: int, pages: int) -> int:
    """How many of so many random flips, cuts and lost pages went unseen."""
    random_numbers, unseen = random.Random(seed), 0
    paths = files_of(run / "step-000020")
    for number in range(flips + cuts + pages):
        path = random_numbers.choice(paths) if number < flips + cuts else run / "step-000020/model.bin"
        data = path.read_bytes()
        if number < flips:
            data = flipped(data, random_numbers.randrange(8 * len(data)))
        elif number < flips + cuts:
            data = data[: random_numbers.randrange(len(data))]
        else:
            start = 4096 * random_numbers.randrange(len(data) // 4096)
            data = data[:start] + bytes(4096) + data[start + 4096 :]
        with holding(path, data):
            unseen += not is_detected(run, path)
    return unseen


def test_every_flipped_bit_cut_and_lost_page_is_detected_and_named(run: Path) -> None:
    assert undetected_damage(run, seed=1, flips=100, cuts=40, pages=3) == 0
    assert newest_verified(run).step.number == 20  # the campaign restored what it broke


@pytest.mark.soak
def test_every_flipped_bit_cut_and_lost_page_is_detected_and_named_with_fresh_seeds(run: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    assert undetected_damage(run, seed, flips=1000, cuts=200, pages=200) == 0, f"seed {seed}"


def test_every_single_bit_of_a_manifest_matters(tmp_path: Path) -> None:
    commit_folder(tmp_path / "a", {"b": b"1"}, files=QUICK)
    path = tmp_path / "a/manifest.json"
    text = path.read_bytes()
    for bit in range(8 * len(text)):
        path.write_bytes(flipped(text, bit))
        with pytest.raises(DamagedError, match=r"manifest\.json"):
            read_manifest(tmp_path / "a")


def test_twin_without_comparing_sums_damage_gets_through(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compare_sizes(path: Path, promised: folders.FileEntry, size: int, digest: str) -> None:
        if size != promised.size:
            raise DamagedError(f"{path}: expected {promised.size}, found {size}", fix="none")

    monkeypatch.setattr(folders, "_compare", compare_sizes)
    assert undetected_damage(run, seed=1, flips=20, cuts=0, pages=1) > 0


def test_twin_without_its_own_sum_an_edited_manifest_gets_through(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run / "step-000020/manifest.json"
    edited = path.read_bytes().replace(b'"folder": "step-000020"', b'"folder": "step-000030"')
    with holding(path, edited):
        assert is_detected(run, path)
        monkeypatch.setattr(Manifest, "text", lambda _: edited)
        assert verify_folder(run / "step-000020").folder == "step-000030"


def test_what_is_read_is_what_was_summed(run: Path) -> None:
    path = run / "step-000020/model.bin"
    data = path.read_bytes()
    assert read_file_of(run / "step-000020", "model.bin") == data
    for bad in (flipped(data, 77), data[:-1], data + b"\0", b""):
        with holding(path, bad), pytest.raises(DamagedError, match=r"model\.bin: expected 12288 bytes, sha256 .*found"):
            read_file_of(run / "step-000020", "model.bin")
    with pytest.raises(DurableError, match=r"no file 'model'.*choose from model.bin, text/labels.txt"):
        read_file_of(run / "step-000020", "model")


def test_a_file_that_grew_is_refused_without_taking_it_into_memory(run: Path) -> None:
    os.truncate(run / "step-000020/model.bin", 64 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError, match="found 67108864 bytes"):
            read_file_of(run / "step-000020", "model.bin")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_manifest_of_a_later_format_says_so(run: Path) -> None:
    (run / "step-000020/manifest.json").write_bytes(b'{"format": 2, "something": "new"}')
    with pytest.raises(DamagedError, match=r"manifest\.json: expected format 1, found 2.*use the Seqloom it is from"):
        verify_folder(run / "step-000020")


def test_a_manifest_that_is_too_large_is_refused_by_its_size(run: Path) -> None:
    os.truncate(run / "step-000020/manifest.json", (8 << 20) + 1)
    with pytest.raises(DamagedError, match=r"manifest\.json: expected at most 8388608 bytes, found 8388609"):
        verify_folder(run / "step-000020")


def test_a_file_changed_by_one_byte_is_named_whichever_it_is(run: Path) -> None:
    paths = files_of(run / "step-000020")
    assert len(paths) == 4
    for path in paths:
        data = path.read_bytes()
        for changed in (data[:-1] + bytes([data[-1] ^ 1]), data + b"\n", data[:-1], data[1:]):
            with holding(path, changed):
                assert is_detected(run, path)


def test_two_swapped_lines_are_detected(run: Path) -> None:
    path = run / "step-000020/text/labels.txt"
    first, second, *rest = path.read_bytes().split(b"\n")
    with holding(path, b"\n".join([second, first, *rest])):
        assert is_detected(run, path)


def test_a_missing_file_is_named(run: Path) -> None:
    for path in files_of(run / "step-000020"):
        data = path.read_bytes()
        path.unlink()
        assert is_detected(run, path)
        path.write_bytes(data)
    shutil.rmtree(run / "step-000020/text")
    assert is_detected(run, run / "step-000020/text/labels.txt")


def test_an_extra_file_or_folder_is_named(run: Path) -> None:
    for name in ("extra", "text/extra", ".hidden", "text/manifest.json"):
        (run / "step-000020" / name).write_bytes(b"")
        assert is_detected(run, run / "step-000020" / name)
        (run / "step-000020" / name).unlink()
    for name in ("folder", "text/folder"):
        (run / "step-000020" / name).mkdir()
        assert is_detected(run, run / "step-000020" / name)
        (run / "step-000020" / name).rmdir()


def test_two_swapped_files_are_detected(run: Path) -> None:
    folder = run / "step-000020"
    (folder / "model.bin").rename(folder / "spare")
    (folder / "text/labels.txt").rename(folder / "model.bin")
    (folder / "spare").rename(folder / "text/labels.txt")
    assert is_detected(run, folder / "model.bin")


@pytest.mark.parametrize("name", ["model.bin", "trainer.json", "text/labels.txt"])
def test_files_of_two_steps_are_not_mixed(run: Path, name: str) -> None:
    shutil.copy2(run / "step-000010" / name, run / "step-000020" / name)
    assert is_detected(run, run / "step-000020" / name)


def test_the_manifest_of_another_step_is_detected(run: Path) -> None:
    shutil.copy2(run / "step-000010/manifest.json", run / "step-000020/manifest.json")
    assert is_detected(run, run / "step-000020/model.bin")


def test_links_and_pipes_inside_a_folder_are_not_followed(run: Path) -> None:
    path = run / "step-000020/model.bin"
    path.rename(run / "elsewhere")
    path.symlink_to(run / "elsewhere")  # the same bytes, but they may change behind our back
    assert is_detected(run, path)
    path.unlink()
    os.mkfifo(path)
    assert is_detected(run, path)
    path.unlink()
    path.mkdir()
    assert is_detected(run, path)
    path.rmdir()
    (run / "elsewhere").rename(path)
    (run / "step-000020/text").rename(run / "text")
    (run / "step-000020/text").symlink_to(run / "text")
    assert is_detected(run, run / "step-000020/text")


def test_a_pipe_does_not_pass_for_an_empty_file(tmp_path: Path) -> None:
    commit_folder(tmp_path / "a", {"empty": b""}, files=QUICK)
    (tmp_path / "a/empty").unlink()
    os.mkfifo(tmp_path / "a/empty")
    with pytest.raises(DamagedError, match="empty: expected a plain file, found something else"):
        verify_folder(tmp_path / "a")


def test_a_disk_that_cannot_read_the_newest_falls_back(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = os.open

    def fail(path: Path, *rest: int) -> int:
        if str(path).endswith("step-000020/model.bin"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real_open(path, *rest)

    monkeypatch.setattr(os, "open", fail)
    assert is_detected(run, run / "step-000020/model.bin")


GOOD = folders.sealed("step-000020", {}).text()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe{\0}\0",
        b"\0" * 500,
        b"[" * 100_000,
        b'{"format": ' + b"[" * 100_000,
        b'{"other": ' + b"[" * 100_000,
        b'{"format": 2, "anything": {}}',
        b'{"format": true}',
        b'{"format": 1' + b"0" * 5000 + b"}",
        GOOD.replace(b'"check"', b'"note": 1, "check"'),
        GOOD.replace(b'"files": {}', b'"files": {}, "files": {}'),
        GOOD.replace(b"\n  ", b"\n   "),
        GOOD + b" ",
        GOOD[:-1],
        GOOD.replace(b'"files": {}', b'"files": {"a": {"size": -1, "sha256": "' + b"0" * 64 + b'"}}'),
        GOOD.replace(b'"files": {}', b'"files": {"a": {"size": 1e3, "sha256": "' + b"0" * 64 + b'"}}'),
        GOOD.replace(b'"files": {}', b'"files": {"a": {"size": 0, "sha256": "' + b"A" * 64 + b'"}}'),
        folders.sealed("step-000020", {"../../step-000010/model.bin": folders.FileEntry(0, "0" * 64)}).text(),
        folders.sealed("step-000020", {"manifest.json": folders.FileEntry(0, "0" * 64)}).text(),
        Manifest(2, "step-000020", {}, "0" * 64).text(),
    ],
    ids=range(23),
)
def test_a_manifest_of_any_other_form_is_refused_at_once(run: Path, text: bytes) -> None:
    shutil.rmtree(run / "step-000020")
    (run / "step-000020").mkdir()
    (run / "step-000020/manifest.json").write_bytes(GOOD)
    assert verify_folder(run / "step-000020").files == {}
    (run / "step-000020/manifest.json").write_bytes(text)
    start = time.process_time()
    assert is_detected(run, run / "step-000020/manifest.json")
    assert time.process_time() - start < 1


@properties
@given(st.binary(max_size=300))
def test_no_bytes_make_a_manifest_raise_anything_but_damage(text: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for data in (text, GOOD[: len(text)] + text, GOOD[:-2] + text):
            Path(folder, "manifest.json").write_bytes(data)
            if data != GOOD:
                with pytest.raises(DamagedError):
                    verify_folder(Path(folder))


def test_more_files_than_a_manifest_may_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MANIFEST_LIMIT", 1000)
    with pytest.raises(DurableError, match="20 files are too many"):
        commit_folder(tmp_path / "a", {f"f{i}": b"" for i in range(20)}, files=QUICK)
    assert listing(tmp_path) == []


def test_no_folder_at_all_says_so(tmp_path: Path) -> None:
    with pytest.raises(DurableError, match="there is no folder"):
        verify_folder(tmp_path / "none")
    assert newest_verified(tmp_path / "none") == steps.Newest(None, ())


# ---------------------------------------------------------------------------------------------------------------------
# R5: the disk refuses


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
        assert read_lines(log) == lines.Lines((*found.records, RECORDS[3]), torn=False)
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
    monkeypatch.setattr(folders, "_delete", lambda *_: None)
    with pytest.raises(DurableError):
        commit_folder(run / "step-000030", checkpoint(30), files=FailingFiles(9, errno.EIO))
    assert listing(run)[0].startswith(".step-000030.partial-")


@pytest.mark.soak
def test_a_really_full_disk_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    script = """if True:
        import os, sys
        from pathlib import Path
        from seqloom.durable import commit_folder, newest_verified, read_lines, append_line, write_file
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


# ---------------------------------------------------------------------------------------------------------------------
# R12: order and retention


def test_the_newest_is_the_largest_number_whatever_the_clock_says(run: Path) -> None:
    commit_folder(run / "step-9", checkpoint(9), files=QUICK)
    commit_folder(run / "step-000100", checkpoint(100), files=QUICK)
    now = time.time()
    for name, age in [("step-9", -86400 * 365), ("step-000010", -3600), ("step-000020", 0), ("step-000100", 7200)]:
        os.utime(run / name, (now - age, now - age))
    assert newest_verified(run).step.number == 100
    pruned = prune(run, 2, files=QUICK)
    assert [step.number for step in pruned.kept] == [100, 20]
    assert [path.name for path in pruned.removed] == ["step-000010", "step-9"]
    assert listing(run) == ["step-000020", "step-000100"]


def spoil(run: Path) -> None:
    """Steps 30 to 90: everything that looks like a checkpoint and is not one."""
    commit_folder(run / "step-000030", checkpoint(30), files=QUICK)
    with (run / "step-000030/model.bin").open("r+b") as handle:
        handle.write(b"rot")
    (run / "step-000040").mkdir()  # abandoned before its manifest
    (run / "step-000040/model.bin").write_bytes(b"half")
    shutil.copytree(run / "step-000010", run / "step-000050")  # renamed
    (run / "step-000060").write_bytes(b"a file")
    (run / "step-000070").symlink_to("step-000020")
    for name in ("step-80.bak", "step-", "step-x", "step-٣", "step-1e3", ".step-000090.partial-0123456789abcdef"):
        shutil.copytree(run / "step-000010", run / name)
    os.utime(run / "step-000040", (2e9, 2e9))


def test_damaged_partial_renamed_and_misnamed_folders_are_skipped_with_reasons(run: Path) -> None:
    spoil(run)
    newest = newest_verified(run)
    assert newest.step.path == run / "step-000020"
    reasons = {skipped.path.name: skipped.reason for skipped in newest.skipped}
    assert len(reasons) == len(newest.skipped) == 11
    assert "model.bin: expected 12288 bytes, sha256" in reasons["step-000030"]
    assert "manifest.json: expected a file, found nothing there" in reasons["step-000040"]
    assert "step-000050: expected this folder, found 'step-000010' renamed" in reasons["step-000050"]
    for name in ("step-000060", "step-000070", "step-80.bak", "step-", "step-x", "step-٣", "step-1e3"):
        assert reasons[name] == "not a folder named step- and a number"
    assert reasons[".step-000090.partial-0123456789abcdef"] == "left by an interrupted write"


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_retention_counts_only_whole_folders_and_deletes_nothing_it_does_not_know(run: Path, keep: int) -> None:
    commit_folder(run / "step-000005", checkpoint(5), files=QUICK)
    (run / "step-000003").mkdir()  # older than all, and not ours
    (run / "step-000003/notes.txt").write_bytes(b"mine")
    shutil.copytree(run / "step-000005", run / "step-000004")  # older than all, and renamed
    spoil(run)
    before = set(listing(run))
    pruned = prune(run, keep, files=QUICK)
    kept = [20, 10, 5][:keep]
    assert [step.number for step in pruned.kept] == kept
    assert before - set(listing(run)) == {f"step-{step:06d}" for step in {20, 10, 5} - set(kept)}
    assert sorted(path.name for path in pruned.removed) == sorted(before - set(listing(run)))
    skipped = {path.path.name for path in pruned.skipped}
    assert {"step-000030", "step-000040", "step-000050"} <= skipped
    assert ({"step-000003", "step-000004"} <= skipped) is True
    assert newest_verified(run).step.number == 20


def test_an_old_damaged_folder_of_ours_goes_once_enough_newer_ones_are_whole(run: Path) -> None:
    with (run / "step-000010/model.bin").open("r+b") as handle:
        handle.write(b"rot")
    assert prune(run, 2, files=QUICK).removed == ()  # only one whole folder: nothing goes
    assert [path.name for path in prune(run, 1, files=QUICK).removed] == ["step-000010"]


def test_the_last_whole_folder_is_never_deleted(run: Path) -> None:
    for step in (30, 40, 50):
        commit_folder(run / f"step-{step:06d}", checkpoint(step), files=QUICK)
        (run / f"step-{step:06d}/model.bin").unlink()
    shutil.rmtree(run / "step-000020")
    for _ in range(3):
        prune(run, 1, files=QUICK)
        assert newest_verified(run).step.number == 10
    with pytest.raises(DurableError, match="asked to keep 0"):
        prune(run, 0, files=QUICK)
    assert newest_verified(run).step.number == 10


def test_twin_retention_that_counts_names_deletes_the_last_whole_folder(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "step-000020/model.bin").unlink()
    monkeypatch.setattr(steps, "verify_folder", read_manifest)
    prune(run, 1, files=QUICK)
    monkeypatch.undo()
    assert newest_verified(run).step is None


def test_twin_without_the_name_in_the_manifest_a_renamed_folder_is_the_newest(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "step-000010").rename(run / "step-000099")
    assert newest_verified(run).step.number == 20
    monkeypatch.setattr(steps, "_require_own_name", lambda *_: None)
    assert newest_verified(run).step.number == 99


def test_a_bundle_may_be_renamed_because_only_steps_are_bound_to_their_names(run: Path) -> None:
    (run / "step-000020").rename(run / "my model")
    assert verify_folder(run / "my model").folder == "step-000020"


def test_another_prefix_is_another_series(tmp_path: Path) -> None:
    commit_folder(tmp_path / "step-000001", {}, files=QUICK)
    commit_folder(tmp_path / "trial.7", {}, files=QUICK)
    (tmp_path / "trialx9").mkdir()
    newest = newest_verified(tmp_path, "trial.")
    assert (newest.step.number, newest.skipped) == (7, ())


def test_a_removed_folder_is_gone_and_a_link_takes_only_itself(run: Path) -> None:
    (run / "link").symlink_to("step-000010")
    remove_folder(run / "link", files=QUICK)
    remove_folder(run / "step-000020", files=QUICK)
    assert listing(run) == ["step-000010"]
    verify_folder(run / "step-000010")
    with pytest.raises(DurableError, match="ENOENT"):
        remove_folder(run / "step-000020", files=QUICK)


# ---------------------------------------------------------------------------------------------------------------------
# A5: writing where something is


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


def test_a_log_that_is_a_link_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "target", RECORDS)
    before = (tmp_path / "target").read_bytes()
    (tmp_path / "log").symlink_to("target")
    with pytest.raises(DurableError, match="not a symbolic link"):
        append_line(tmp_path / "log", {"a": 1})
    assert (tmp_path / "target").read_bytes() == before


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


# ---------------------------------------------------------------------------------------------------------------------
# Lines


def test_a_line_is_plain_json_that_ends_in_its_sum(tmp_path: Path) -> None:
    append_line(tmp_path / "log", {"step": 7, "loss": 0.25})
    append_line(tmp_path / "log", {})
    first, second = (tmp_path / "log").read_text().split("\n")[:2]
    assert json.loads(first) == {"step": 7, "loss": 0.25, "crc": "602dd470"}
    assert list(json.loads(second)) == ["crc"]
    assert read_lines(tmp_path / "log") == lines.Lines(({"step": 7, "loss": 0.25}, {}), torn=False)
    assert read_lines(tmp_path / "none") == lines.Lines((), torn=False)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@properties
@given(st.lists(st.dictionaries(st.text().filter(lambda key: key != "crc"), json_values, max_size=4), max_size=4))
def test_any_records_come_back_as_they_were(records: list[dict]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        for record in records:
            append_line(log, record, files=QUICK)
        assert list(read_lines(log).records) == records
        text = log.read_bytes() if records else b""
        write_lines(log, read_lines(log).records, files=QUICK)
        assert log.read_bytes() == text  # a log that is cut back and written again has the same bytes


@pytest.mark.parametrize(
    "record",
    [{"crc": 1}, {"a": float("nan")}, {"a": float("inf")}, {"a": {1}}, {"a": "\ud800"}, {"a": "x" * (1 << 20)}],
)
def test_a_record_that_cannot_come_back_is_refused_and_the_log_stays(tmp_path: Path, record: dict) -> None:
    append_line(tmp_path / "log", {"a": 1}, files=QUICK)
    with pytest.raises(DurableError, match="a record"):
        append_line(tmp_path / "log", record, files=QUICK)
    assert read_lines(tmp_path / "log") == lines.Lines(({"a": 1},), torn=False)


def whole_lines(text: bytes) -> list[dict]:
    return [{k: v for k, v in json.loads(line).items() if k != "crc"} for line in text.split(b"\n")[:-1]]


def torn_logs(text: bytes) -> Iterator[tuple[bytes, int]]:
    """Every log a crash may leave of this one, with how many bytes of it are whole lines."""
    for size in range(len(text) + 1):
        whole = text.rfind(b"\n", 0, size) + 1
        yield text[:size], whole
        line_end = text.find(b"\n", size)
        if size > whole and line_end > 0:  # as long as it should be, but the last bytes never came
            yield text[:size] + bytes(line_end + 1 - size), whole
            yield text[:size] + bytes(line_end - size) + b"\n", whole if line_end > size else line_end + 1


def survives(path: Path, log: bytes, whole: int) -> bool:
    path.write_bytes(log)
    expected = whole_lines(log[:whole])
    found = read_lines(path)
    if list(found.records) != expected or found.torn != (whole < len(log)):
        return False
    append_line(path, {"next": 1}, files=QUICK)
    return read_lines(path) == lines.Lines((*expected, {"next": 1}), torn=False)


def test_a_log_cut_at_any_byte_keeps_every_whole_record_and_is_repaired(tmp_path: Path) -> None:
    write_lines(tmp_path / "log", RECORDS)
    text = (tmp_path / "log").read_bytes()
    verdicts = [survives(tmp_path / "log", log, whole) for log, whole in torn_logs(text)]
    assert all(verdicts)
    assert len(verdicts) > 2 * len(text)


def test_twin_without_the_repair_a_torn_line_spoils_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_whole_size", lambda _handle, size, _path: size)
    with pytest.raises(DamagedError, match="line 2"):
        survives(tmp_path / "log", lines._encode({"a": 1}) + b'{"b": ', len(lines._encode({"a": 1})))


def test_a_flipped_bit_of_a_log_never_gives_a_wrong_record(tmp_path: Path) -> None:
    write_lines(tmp_path / "log", RECORDS)
    text = (tmp_path / "log").read_bytes()
    messages, readings = [], []
    for bit in range(8 * len(text)):
        (tmp_path / "log").write_bytes(flipped(text, bit))
        try:
            readings.append(read_lines(tmp_path / "log"))
        except DamagedError as error:
            messages.append(str(error))
    assert all(re.search(r"log: expected .* found .* line \d", message) for message in messages)
    assert all(reading == lines.Lines(tuple(RECORDS[:-1]), torn=True) for reading in readings)
    assert len(messages) > 0.9 * 8 * len(text)


def test_twin_without_the_sum_a_flipped_bit_gives_a_wrong_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(tmp_path / "log", RECORDS)
    (tmp_path / "log").write_bytes((tmp_path / "log").read_bytes().replace(b'"step": 1', b'"step": 0'))
    monkeypatch.setattr(lines, "_decode", lambda line: json.loads(line))
    assert [record["step"] for record in read_lines(tmp_path / "log").records] == [0, 0, 2, 3]


@pytest.mark.parametrize(
    "text",
    [
        b"hello",
        b"hello\n",
        b'{"a": 1}',
        b'{"a": 1}\n',
        b'{"a": 1}\n{"b": 2}\n',
        b'{"a": 1}\n{"b": ',
        b'{\n  "a": 1\n}',
        b"a,b\n1,2\n",
        b"x" * (3 << 20),
        b'{"a": "' + b"x" * (3 << 20),
        b"\n",
    ],
    ids=range(11),
)
def test_a_file_that_is_no_log_of_ours_is_never_cut(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "file").write_bytes(text)
    with pytest.raises(DamagedError, match="file: expected JSON that ends in its crc"):
        append_line(tmp_path / "file", {"a": 1}, files=QUICK)
    assert (tmp_path / "file").read_bytes() == text


def test_long_lines_are_repaired_like_short_ones(tmp_path: Path) -> None:
    long = [{"i": i, "text": "x" * ((1 << 20) - 60)} for i in range(3)]
    write_lines(tmp_path / "log", long, files=QUICK)
    text = (tmp_path / "log").read_bytes()
    (tmp_path / "log").write_bytes(text[:-5])
    append_line(tmp_path / "log", {"a": 1}, files=QUICK)
    assert read_lines(tmp_path / "log") == lines.Lines((*long[:2], {"a": 1}), torn=False)


def test_two_writers_of_a_log_take_turns(tmp_path: Path) -> None:
    first = disk.REAL_FILES.open_to_append(tmp_path / "log")
    second = os.open(tmp_path / "log", os.O_RDWR)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(first)
    fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(second)


WRITER = """if True:
    import sys
    from pathlib import Path
    from seqloom.durable import append_line
    for i in range(int(sys.argv[3])):
        append_line(Path(sys.argv[1]), {"writer": int(sys.argv[2]), "i": i})
        print(i, flush=True)
"""


def lost_records(log: Path, records: int, kills: list[float]) -> int:
    """How many acknowledged records of 4 writers are not in the log; the first are killed after these seconds."""
    command = [sys.executable, "-c", WRITER, str(log)]
    writers = [
        subprocess.Popen([*command, str(number), str(records)], stdout=subprocess.PIPE, text=True)
        for number in range(4)
    ]
    said = [0] * 4
    for number, seconds in enumerate(kills):
        said[number] += bool(writers[number].stdout.readline())
        time.sleep(seconds)
        writers[number].send_signal(signal.SIGKILL)
    for number, writer in enumerate(writers):
        said[number] += len(writer.communicate()[0].split())
    found = [[record["i"] for record in read_lines(log).records if record["writer"] == n] for n in range(4)]
    assert all(numbers == list(range(len(numbers))) for numbers in found)  # in order, none twice
    # The last record of a killed writer may be saved without an answer, never the other way round.
    return sum(max(0, count - len(numbers)) for count, numbers in zip(said, found, strict=True))


def test_four_writers_lose_no_record_even_when_two_are_killed(tmp_path: Path) -> None:
    assert lost_records(tmp_path / "log", 60, kills=[0.01, 0.02]) == 0
    append_line(tmp_path / "log", {"writer": 9})
    assert not read_lines(tmp_path / "log").torn


@pytest.mark.soak
def test_four_writers_lose_no_record_in_fifty_kills(tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    moments = random.Random(seed)
    for number in range(25):
        kills = [moments.random() / 5, moments.random() / 5]
        assert lost_records(tmp_path / f"log-{number}", 500, kills) == 0, f"seed {seed}"


# ---------------------------------------------------------------------------------------------------------------------
# The only writer

WRITING_METHODS = {
    *("write_text", "write_bytes", "touch", "mkdir", "makedirs", "symlink_to", "hardlink_to", "rename", "renames"),
    *("save_file", "savez", "savez_compressed", "savetxt", "tofile", "save_pretrained", "to_csv", "to_parquet"),
    *("mkstemp", "mkdtemp", "NamedTemporaryFile", "TemporaryDirectory", "fdopen"),
}
WRITING_CALLS = {
    *("os.open", "os.replace", "os.link", "os.truncate", "torch.save", "np.save", "numpy.save", "shutil.copy"),
    *("shutil.copy2", "shutil.copyfile", "shutil.copytree", "shutil.move", "shutil.rmtree", "shutil.copyfileobj"),
    *("shutil.make_archive", "shutil.unpack_archive"),
}


def writes(source: str) -> list[int]:
    """The lines of a program that open a file for writing, make, move or delete one."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            last = name.rpartition(".")[2]
            is_path_replace = last == "replace" and "." in name and len(node.args) == 1 and not node.keywords
            if last in WRITING_METHODS or name in WRITING_CALLS or is_path_replace or _opens_for_writing(node, name):
                found.append(node.lineno)
        elif isinstance(node, ast.ImportFrom) and any(
            f"{node.module}.{alias.name}" in WRITING_CALLS or alias.name in WRITING_METHODS for alias in node.names
        ):
            found.append(node.lineno)
    return found


def _opens_for_writing(call: ast.Call, name: str) -> bool:
    if name.rpartition(".")[2] != "open":
        return False
    # builtin and module functions take the path first, methods of a path the mode
    takes_path = name in {"open", "io.open", "gzip.open", "bz2.open", "lzma.open", "codecs.open"}
    mode = next((k.value for k in call.keywords if k.arg == "mode"), None)
    if mode is None and len(call.args) > takes_path:
        mode = call.args[takes_path]
        if not takes_path and not isinstance(mode, ast.Constant):
            return False  # the method of something else that opens
    if mode is None:
        return False
    return not isinstance(mode, ast.Constant) or bool(set(str(mode.value)) & set("wax+"))


def test_no_other_module_writes_a_file() -> None:
    source = Path(seqloom.__file__).parent
    modules = [path for path in source.rglob("*.py") if path.parent != source / "durable"]
    assert modules
    culprits = [f"{path.relative_to(source)}:{line}" for path in modules for line in writes(path.read_text())]
    assert culprits == []
    assert writes(Path(disk.__file__).read_text()) != []


@pytest.mark.parametrize(
    "program",
    [
        "open('a', 'w')",
        "open('a', mode='ab')",
        "open('a', 'r+')",
        "open('a', mode)",
        "Path('a').open('x')",
        "path.open(mode='wb')",
        "gzip.open('a', 'wb')",
        "Path('a').write_text('')",
        "path.write_bytes(b'')",
        "os.rename(a, b)",
        "os.replace(a, b)",
        "path.replace(other)",
        "path.rename(other)",
        "shutil.copy(a, b)",
        "from shutil import rmtree",
        "from os import replace",
        "safetensors.torch.save_file(x, 'a')",
        "from safetensors.torch import save_file",
        "np.save('a', x)",
        "numpy.savez('a', x)",
        "torch.save(x, 'a')",
        "path.mkdir()",
        "tempfile.NamedTemporaryFile()",
        "os.open(path, os.O_WRONLY)",
    ],
)
def test_a_writing_line_is_seen(program: str) -> None:
    assert writes(program) == [1]


@pytest.mark.parametrize(
    "program",
    [
        "open('a')",
        "open('a', 'rb')",
        "open('warp.txt', mode='r')",
        "path.open()",
        "path.open('rb')",
        "gzip.open('wax')",
        "gate.open(x, y)",
        "text.replace('a', 'b')",
        "dataclasses.replace(x, a=1)",
        "shutil.disk_usage(path)",
        "write_file(path, b'')",
        "sys.stdout.write('x')",
    ],
)
def test_a_reading_line_is_not_taken_for_a_writing_one(program: str) -> None:
    assert writes(program) == []


def test_the_writer_needs_nothing_but_the_standard_library_and_msgspec() -> None:
    allowed = set(sys.stdlib_module_names) | {"msgspec", "seqloom.errors", "seqloom.durable"}
    for path in Path(disk.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            modules += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert all(any(m == a or m.startswith(f"{a}.") for a in allowed) for m in modules), (path.name, modules)
