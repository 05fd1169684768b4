"""R4 and A4: every changed, missing, extra or exchanged byte and file is detected and named."""

import contextlib
import errno
import os
import random
import shutil
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_common import QUICK, flipped, listing, properties
from seqloom.errors import DamagedError, DurableError
from seqloom.files import folders
from seqloom.files.folders import Manifest, commit_folder, newest_verified, read_file_of, read_manifest, verify_folder


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


@pytest.mark.slow
def test_every_flipped_bit_cut_and_lost_page_is_detected_and_named(run: Path) -> None:
    assert undetected_damage(run, seed=1, flips=100, cuts=40, pages=3) == 0
    assert newest_verified(run).step.number == 20  # the campaign restored what it broke


@pytest.mark.soak
def test_every_flipped_bit_cut_and_lost_page_is_detected_and_named_with_fresh_seeds(run: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    assert undetected_damage(run, seed, flips=1000, cuts=200, pages=200) == 0, f"seed {seed}"


@pytest.mark.slow
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


@pytest.mark.slow
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
    with pytest.raises(
        DamagedError, match=r"manifest\.json: expected format 1, found 2.*use the version of Seqloom that wrote it"
    ):
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
    assert newest_verified(tmp_path / "none") == folders.Newest(None, ())
