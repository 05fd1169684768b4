"""Claims about a folder that takes the place of another: somebody always has the name, or gets it back."""

import errno
import shutil
from pathlib import Path

import pytest

from durable_common import QUICK, checkpoint, listing
from durable_faults import ERRORS, FailingFiles, QuickFiles, Recorder
from seqloom.errors import DamagedError, DurableError
from seqloom.files import folders
from seqloom.files.folders import (
    begin_shared,
    commit_folder,
    drop_shared,
    put_shared,
    read_folder,
    recover,
    replace_folder,
    seal_shared,
    verify_folder,
)

OLD, NEW = checkpoint(10), checkpoint(20)
SOME_ERRORS = [ERRORS[0], *(pytest.param(code, marks=pytest.mark.slow) for code in ERRORS[1:])]


def test_a_folder_is_replaced_as_a_whole_also_a_damaged_one(tmp_path: Path) -> None:
    model = tmp_path / "model"
    assert replace_folder(model, OLD, files=QUICK) == verify_folder(model)
    (model / "model.bin").write_bytes(b"rot")
    assert replace_folder(model, NEW, files=QUICK) == verify_folder(model)
    assert dict(read_folder(model)) == NEW
    assert listing(tmp_path) == ["model"]


@pytest.mark.parametrize("what", ["a file", "a folder", "a link"])
def test_what_is_not_ours_is_not_replaced(tmp_path: Path, what: str) -> None:
    model = tmp_path / "model"
    if what == "a file":
        model.write_text("mine")
    elif what == "a folder":
        model.mkdir()
        (model / "thesis.txt").write_text("mine")
    else:
        commit_folder(tmp_path / "other", OLD, files=QUICK)
        model.symlink_to("other")
    before = listing(tmp_path)
    with pytest.raises(DurableError, match=r"Seqloom did not write it.*move it elsewhere"):
        replace_folder(model, NEW, files=QUICK)
    with pytest.raises(DurableError, match="Seqloom did not write it"):
        begin_shared(model, files=QUICK)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("lasting", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("code", SOME_ERRORS, ids=errno.errorcode.get)
def test_a_failed_replacement_leaves_the_old_one_or_the_new_one(tmp_path: Path, code: int, lasting: bool) -> None:
    points = 0
    for at in range(1, 200):
        run = tmp_path / str(at)
        run.mkdir()
        commit_folder(run / "model", OLD, files=QUICK)
        files = FailingFiles(at, code, lasting=lasting)
        try:
            replace_folder(run / "model", NEW, files=files)
            expected = [NEW]
        except DurableError:
            expected = [OLD, NEW]
        recover(run, files=QUICK)
        assert listing(run) == ["model"]
        assert dict(read_folder(run / "model")) in expected
        if not files.failed:
            break
        points += 1
    assert points >= 25


def test_recovery_gives_the_name_back_only_where_it_is_free(tmp_path: Path) -> None:
    commit_folder(tmp_path / "model", NEW, files=QUICK)
    shutil.copytree(tmp_path / "model", tmp_path / ".model.old-0123456789abcdef")
    shutil.copytree(tmp_path / "model", tmp_path / ".other.old-0123456789abcdef")
    shutil.copytree(tmp_path / "model", tmp_path / ".other.partial-0123456789abcdef")
    (tmp_path / ".mine.old-1").write_text("not ours")
    assert recover(tmp_path, files=QUICK) == (tmp_path / "other",)
    assert listing(tmp_path) == [".mine.old-1", "model", "other"]
    assert recover(tmp_path, files=QUICK) == ()


def test_the_old_one_goes_only_when_the_name_of_the_new_one_is_synced(tmp_path: Path) -> None:
    commit_folder(tmp_path / "model", OLD, files=QUICK)
    recorder = Recorder(lambda *_: False)
    replace_folder(tmp_path / "model", NEW, files=recorder)
    operations = [operation for operation, *_ in recorder.trace]
    synced = max(at for at, entry in enumerate(recorder.trace) if entry == ("sync_folder", tmp_path))
    assert operations.index("remove") > synced > max(at for at, name in enumerate(operations) if name == "rename")


def test_a_shared_folder_exists_only_when_it_is_sealed_with_the_files_of_all(tmp_path: Path) -> None:
    path = tmp_path / "step-1"
    partial = begin_shared(path, files=QUICK)
    first = put_shared(partial, {"a-1": b"one"}, files=QUICK)
    second = put_shared(partial, {"a-2": b"two"}, files=QUICK)
    assert not path.exists()
    assert seal_shared(partial, path, first | second, files=QUICK) == verify_folder(path)
    assert dict(read_folder(path)) == {"a-1": b"one", "a-2": b"two"}


def test_a_shared_folder_whose_sums_were_not_all_told_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "step-1"
    partial = begin_shared(path, files=QUICK)
    first = put_shared(partial, {"a-1": b"one"}, files=QUICK)
    put_shared(partial, {"a-2": b"two"}, files=QUICK)
    seal_shared(partial, path, first, files=QUICK)
    with pytest.raises(DamagedError, match="a-2: expected no file or folder of this name"):
        verify_folder(path)


def test_a_shared_folder_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    partial = begin_shared(tmp_path / "step-1", files=QUICK)
    put_shared(partial, {"a": b"one"}, files=QUICK)
    drop_shared(partial, files=QUICK)
    drop_shared(partial, files=QUICK)
    assert listing(tmp_path) == []


class RefusingFiles(QuickFiles):
    """A layer that gives no new folder its name."""

    def rename(self, old: Path, new: Path) -> None:
        if ".partial-" in old.name:
            raise OSError(errno.EIO, "refused")
        super().rename(old, new)


def test_a_refused_rename_gives_the_old_one_its_name_back(tmp_path: Path) -> None:
    commit_folder(tmp_path / "model", OLD, files=QUICK)
    with pytest.raises(DurableError, match=r"cannot replace .*model: refused \(EIO\)"):
        replace_folder(tmp_path / "model", NEW, files=RefusingFiles())
    assert listing(tmp_path) == ["model"]


def test_twin_without_the_way_back_a_refused_rename_takes_the_name_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_way(partial: Path, path: Path, files: RefusingFiles) -> None:
        files.rename(path, path.with_name(".model.old-0123456789abcdef"))
        files.rename(partial, path)

    commit_folder(tmp_path / "model", OLD, files=QUICK)
    monkeypatch.setattr(folders, "take_name", one_way)
    with pytest.raises(OSError, match="refused"):
        replace_folder(tmp_path / "model", NEW, files=RefusingFiles())
    assert listing(tmp_path) == [".model.old-0123456789abcdef"]
