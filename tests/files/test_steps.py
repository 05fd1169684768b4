"""R12: the newest step is the largest number that is whole, and retention never deletes the last one."""

import os
import shutil
import time
from pathlib import Path

import pytest

from durable_common import QUICK, checkpoint, listing
from seqloom.errors import DurableError
from seqloom.files import folders
from seqloom.files.folders import commit_folder, newest_verified, prune, read_manifest, verify_folder


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
    assert "step-000050: expected the folder name 'step-000010', found another name" in reasons["step-000050"]
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
    with pytest.raises(DurableError, match="cannot keep 0"):
        prune(run, 0, files=QUICK)
    assert newest_verified(run).step.number == 10


def test_twin_retention_that_counts_names_deletes_the_last_whole_folder(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "step-000020/model.bin").unlink()
    monkeypatch.setattr(folders, "verify_folder", read_manifest)
    prune(run, 1, files=QUICK)
    monkeypatch.undo()
    assert newest_verified(run).step is None


def test_twin_without_the_name_in_the_manifest_a_renamed_folder_is_the_newest(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "step-000010").rename(run / "step-000099")
    assert newest_verified(run).step.number == 20
    monkeypatch.setattr(folders, "require_own_name", lambda *_: None)
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
