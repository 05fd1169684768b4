"""R3: a power cut at any moment leaves the old or the new state, and no sync can be spared."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from durable_common import NEW, OLD, QUICK, RECORDS, checkpoint, listing
from durable_faults import Recorder, Tree, crash_states, read_tree, write_tree
from seqloom.files import folders
from seqloom.files import folders as replacing
from seqloom.files.disk import make_folder, write_file
from seqloom.files.folders import (
    begin_shared,
    commit_folder,
    newest_verified,
    prune,
    put_shared,
    read_file_of,
    read_folder,
    recover,
    replace_folder,
    seal_shared,
    sweep,
    verify_folder,
)
from seqloom.files.jsonl import append_line, append_lines, read_lines, write_lines
from seqloom.files.lock import hold

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


def log_a_group(root: Path) -> tuple[Callable[[Recorder], object], Judge]:
    write_lines(root / "log", RECORDS[:1])

    def judge(state: Path, returned: bool) -> None:
        found = list(read_lines(state / "log").records)
        assert found in ([RECORDS] if returned else [RECORDS[:count] for count in range(1, 5)])
        append_lines(state / "log", [{"next": 1}, {"next": 2}], files=QUICK)
        assert read_lines(state / "log").records == (*found, {"next": 1}, {"next": 2})

    return lambda files: append_lines(root / "log", RECORDS[1:], files=files), judge


def replace_a_model(root: Path) -> tuple[Callable[[Recorder], object], Judge]:
    old, new = {"model.bin": OLD, "card.md": b"old"}, {"model.bin": NEW, "labels.json": b"[]"}
    commit_folder(root / "model", old, files=QUICK)

    def judge(state: Path, returned: bool) -> None:
        recover(state, files=QUICK)
        assert listing(state) == ["model"]
        assert dict(read_folder(state / "model")) in ([new] if returned else [old, new])

    return lambda files: replace_folder(root / "model", new, files=files), judge


def save_in_two_processes(root: Path) -> tuple[Callable[[Recorder], object], Judge]:
    old, new = {"model-1": OLD, "model-2": OLD[::-1]}, {"model-1": NEW, "model-2": NEW[::-1]}
    commit_folder(root / "step-000010", old, files=QUICK)

    def act(files: Recorder) -> None:
        partial = begin_shared(root / "step-000020", files=files)
        entries = put_shared(partial, {"model-2": new["model-2"]}, files=files)
        entries |= put_shared(partial, {"model-1": new["model-1"]}, files=files)
        seal_shared(partial, root / "step-000020", entries, files=files)

    def judge(state: Path, returned: bool) -> None:
        newest = newest_verified(state).step
        assert newest.number in ([20] if returned else [10, 20])
        assert dict(read_folder(newest.path)) == {10: old, 20: new}[newest.number]
        assert len(list(state.glob("step-*"))) == newest.number // 10

    return act, judge


def hold_a_run(root: Path) -> tuple[Callable[[Recorder], object], Judge]:
    def act(files: Recorder) -> None:
        with hold(root / "run", files=files):
            write_file(root / "run/config.toml", NEW, files=files)

    def judge(state: Path, returned: bool) -> None:
        with hold(state / "run", files=QUICK):
            config = state / "run/config.toml"
            assert config.read_bytes() == NEW if returned or config.exists() else not returned

    return act, judge


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


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("scenario", "number_of_states"),
    [
        (save_config, 15),
        pytest.param(save_checkpoint, 753, marks=pytest.mark.slow),
        (retain_checkpoints, 99),
        (log_a_line, 8),
        (repair_a_log, 9),
        (begin_a_log, 9),
        (make_deep_folders, 5),
        (log_a_group, 8),
        (replace_a_model, 67),
        (save_in_two_processes, 53),
        (hold_a_run, 74),
    ],
)
def test_every_power_cut_leaves_the_old_or_the_new_state(
    scenario: Callable, number_of_states: int, tmp_path: Path
) -> None:
    verdicts = list(judged_states(scenario, tmp_path, never))
    assert verdicts.count(False) == 0
    assert len(verdicts) == number_of_states  # different ones; fewer would be a weaker claim


@pytest.mark.slow
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
        (log_a_group, no_sync),
        (replace_a_model, no_sync),
        (replace_a_model, no_inner_folder_sync),
        (replace_a_model, no_outer_folder_sync),
        (save_in_two_processes, no_sync),
        (save_in_two_processes, no_inner_folder_sync),
        (save_in_two_processes, no_outer_folder_sync),
    ],
)
def test_twin_without_that_sync_some_power_cut_is_fatal(
    scenario: Callable, forgets: Callable[[str, Path], bool], tmp_path: Path
) -> None:
    assert not all(judged_states(scenario, tmp_path, forgets))


def test_twin_a_folder_deleted_in_place_is_found_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "remove_folder", lambda path, files: folders.delete(path, files))
    assert not all(judged_states(retain_checkpoints, tmp_path, never))


@pytest.mark.slow
def test_twin_a_model_deleted_before_the_new_one_has_its_name_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(partial: Path, path: Path, files: Recorder) -> None:
        folders.remove_folder(path, files=files)
        files.rename(partial, path)
        files.sync_folder(path.parent)

    monkeypatch.setattr(replacing, "take_name", careless)
    assert not all(judged_states(replace_a_model, tmp_path, never))


def test_twin_without_recovery_a_cut_between_the_renames_leaves_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "recover", lambda *_, **__: ())
    assert not all(judged_states(replace_a_model, tmp_path, never))


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
