"""Claims about checkpoints: whole and verified or not used (R3, R4, R5, R12), alone and with several processes."""

import errno
import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load as plain_load
from torch import Tensor

from checkpoint_common import ALONE, Together, checkpoint, in_processes, same
from durable_common import QUICK, flipped, listing
from durable_faults import ERRORS, FailingFiles, Recorder, crash_states, read_tree, write_tree
from seqloom import files as durable
from seqloom.errors import ConfigError, DamagedError, DurableError
from seqloom.files import folders
from seqloom.training import checkpoint as checkpoints
from seqloom.training.checkpoint import Checkpoint, ShardPart, ShardPlace, estimated_bytes, newest, read, retain, save

SOME_ERRORS = [ERRORS[0], *(pytest.param(code, marks=pytest.mark.slow) for code in ERRORS[1:])]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with the checkpoints of steps 10 and 20."""
    for step in (10, 20):
        save(tmp_path, checkpoint(step), ALONE, files=QUICK)
    return tmp_path


def test_a_checkpoint_comes_back_bit_for_bit_whatever_its_tensors_are(tmp_path: Path) -> None:
    path = save(tmp_path, checkpoint(20), ALONE)
    found = read(path, ALONE)
    assert path.name == "step-00000020"
    assert same(found, checkpoint(20))
    assert found.tensors["model"]["head.weight"] is found.tensors["model"]["embedding.weight"]
    found.tensors["model"]["norm"].add_(1)  # not a view of bytes that cannot be written


def test_the_files_are_plain_safetensors_and_json(run: Path) -> None:
    plain = plain_load((run / "step-00000020/optimizer.safetensors").read_bytes())
    assert torch.equal(plain["0/exp_avg"], checkpoint(20).tensors["optimizer"]["0/exp_avg"])
    assert json.loads((run / "step-00000020/state.json").read_text())["step"] == 20


def test_equal_checkpoints_have_equal_bytes_but_for_the_machine(tmp_path: Path) -> None:
    one, other = checkpoint(20), checkpoint(20)
    other.machine.seconds += 1
    first, second = (
        read_tree(save(tmp_path / name, each, ALONE, files=QUICK))
        for name, each in (("a", one), ("b", other))
        if not (tmp_path / name).mkdir()
    )
    assert [name for name in first if first[name] != second[name]] == ["machine.json", "manifest.json"]


def test_the_estimate_is_at_least_the_size_on_disk_and_not_far_above(tmp_path: Path) -> None:
    big = checkpoint(1)
    big.tensors["model"] |= {str(number): torch.zeros(100, 100) for number in range(20)}
    path = save(tmp_path, big, ALONE, files=QUICK)
    size = sum(file.stat().st_size for file in path.iterdir())
    assert size <= estimated_bytes(big.tensors) <= 1.1 * size


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("group", ["model", "optimizer", "carried", "standing"])
def test_what_is_not_finite_is_never_saved(run: Path, group: str, bad: float) -> None:
    before, spoiled = read_tree(run), checkpoint(30)
    if group == "standing":
        spoiled.run_state.sums.loss = bad
    else:
        next(reversed(spoiled.tensors[group].values())).float().fill_(bad)
        spoiled.tensors[group]["spoiled"] = torch.tensor([1.0, bad])
    with pytest.raises(DurableError, match="NaN or infinity"):
        save(run, spoiled, ALONE, files=QUICK)
    assert read_tree(run) == before


def test_twin_without_the_check_a_nan_is_saved(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoiled = checkpoint(30)
    spoiled.tensors["model"]["spoiled"] = torch.tensor(float("nan"))
    monkeypatch.setattr(checkpoints, "not_finite", lambda _: [])
    assert save(run, spoiled, ALONE, files=QUICK).exists()


# R3: power cuts


def saved_while_recorded(root: Path, forgets: Callable[[str, Path], bool]) -> tuple[dict, list[tuple]]:
    root.mkdir()
    save(root, checkpoint(10), ALONE, files=QUICK)
    before, recorder = read_tree(root), Recorder(forgets)
    save(root, checkpoint(20), ALONE, files=recorder)
    return before, recorder.trace


def bad_states(folder: Path, forgets: Callable[[str, Path], bool], *, returned_only: bool = False) -> Iterator[bool]:
    """For every crash state of a save, whether a wrong checkpoint, none, or a traceback is what a start finds."""
    before, trace = saved_while_recorded(folder / "root", forgets)
    known = {step: checkpoint(step) for step in (10, 20)}
    since = len(trace) if returned_only else 0
    for number, (tree, returned) in enumerate(crash_states(folder / "root", before, trace, since)):
        state = folder / str(number)
        write_tree(state, tree)
        try:
            found, _ = newest(state, ALONE)
            good = found is not None and same(found, known[found.run_state.step])
            yield not good or (returned and found.run_state.step != 20)
        except Exception:
            yield True
        shutil.rmtree(state)


@pytest.mark.slow
def test_after_every_power_cut_the_newest_whole_checkpoint_is_found(tmp_path: Path) -> None:
    verdicts = list(bad_states(tmp_path, lambda *_: False))
    assert verdicts.count(True) == 0
    assert len(verdicts) >= 500  # different ones


@pytest.mark.parametrize("lost", [pytest.param("sync", marks=pytest.mark.slow), "sync_folder"])
def test_twin_without_its_syncs_a_save_is_lost_in_some_power_cut(tmp_path: Path, lost: str) -> None:
    assert any(bad_states(tmp_path, lambda operation, _: operation == lost, returned_only=True))


# R4: damage


def newest_after(run: Path, damage: Callable[[], object]) -> tuple[int, str]:
    """The step that is found after a damage, and what is said about those that were passed over."""
    damage()
    found, skipped = newest(run, ALONE)
    assert found is not None and same(found, checkpoint(found.run_state.step))
    return found.run_state.step, " ".join(skipped)


def undetected(run: Path, seed: int, flips: int, cuts: int, pages: int) -> int:
    """How many of so many flipped bits, cuts and lost pages of step 20 went unseen or unnamed."""
    draw, unseen = random.Random(seed), 0
    paths = sorted((run / "step-00000020").iterdir())
    for number in range(flips + cuts + pages):
        path = draw.choice(paths)
        before = path.read_bytes()
        place = draw.randrange(len(before))
        if number < flips:
            damaged = flipped(before, 8 * place + draw.randrange(8))
        elif number < flips + cuts:
            damaged = before[:place]
        else:
            start = place // 4096 * 4096
            damaged = before[:start] + bytes(len(before[start : start + 4096])) + before[start + 4096 :]
        step, said = newest_after(run, lambda path=path, damaged=damaged: path.write_bytes(damaged))
        named = str(path) in said and "expected" in said and "found" in said
        sums = path.name == "manifest.json" or durable.read_manifest(path.parent).files[path.name].sha256 in said
        unseen += not (step == 10 and named and sums)
        path.write_bytes(before)
    return unseen


@pytest.mark.slow
def test_every_flip_cut_and_lost_page_is_detected_and_the_previous_checkpoint_is_used(run: Path) -> None:
    assert undetected(run, seed=0, flips=100, cuts=20, pages=20) == 0


@pytest.mark.soak
def test_a_thousand_flips_and_two_hundred_cuts_and_pages_are_detected(run: Path) -> None:
    assert undetected(run, seed=time.time_ns(), flips=1000, cuts=200, pages=200) == 0


def test_twin_without_the_sums_a_flipped_bit_is_loaded(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run / "step-00000020/model.safetensors"
    path.write_bytes(flipped(path.read_bytes(), 8 * path.stat().st_size - 3))
    assert newest(run, ALONE)[0].run_state.step == 10
    monkeypatch.setattr(folders, "_compare", lambda *_: None)
    found, _ = newest(run, ALONE)
    assert found.run_state.step == 20 and not same(found, checkpoint(20))


DAMAGE: dict[str, Callable[[Path, Path], object]] = {
    "a missing file": lambda _, new: (new / "optimizer.safetensors").unlink(),
    "a file too many": lambda _, new: (new / "extra").write_bytes(b""),
    "mixed steps": lambda old, new: shutil.copy(old / "model.safetensors", new / "model.safetensors"),
    "exchanged files": lambda _, new: shutil.copy(new / "model.safetensors", new / "optimizer.safetensors"),
    "an older one renamed": lambda old, new: (shutil.rmtree(new), shutil.copytree(old, new)),
    "an edited manifest": lambda _, new: (new / "manifest.json").write_text("{}"),
    "no manifest": lambda _, new: (new / "manifest.json").unlink(),
    "a link": lambda old, new: (new / "state.json").unlink() or (new / "state.json").symlink_to(old / "state.json"),
    "an empty folder": lambda _, new: (shutil.rmtree(new), new.mkdir()),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_checkpoint_of_other_files_is_passed_over(run: Path, name: str) -> None:
    old, new = run / "step-00000010", run / "step-00000020"
    step, said = newest_after(run, lambda: DAMAGE[name](old, new))
    assert step == 10
    assert "step-00000020 was skipped" in said


def test_when_none_is_left_a_run_does_not_begin_anew_over_them(run: Path) -> None:
    for path in run.glob("step-*/model.safetensors"):
        path.write_bytes(b"rot")
    with pytest.raises(
        DamagedError, match=r"no checkpoint is usable: step-00000020 .*sha256.*step-00000010 "
    ) as raised:
        newest(run, ALONE)
    assert "restore one from a backup" in raised.value.fix


def test_a_run_without_checkpoints_begins_at_the_beginning(tmp_path: Path) -> None:
    assert newest(tmp_path / "checkpoints", ALONE) == (None, ())
    (tmp_path / ".step-00000010.partial-0123456789abcdef").mkdir()
    found, skipped = newest(tmp_path, ALONE)
    assert found is None and "left by an interrupted write" in skipped[0]


def test_a_checkpoint_of_a_step_that_is_damaged_is_saved_anew(run: Path) -> None:
    (run / "step-00000020/model.safetensors").write_bytes(b"rot")
    save(run, checkpoint(20), ALONE, files=QUICK)
    assert newest_after(run, lambda: None) == (20, "")
    assert listing(run) == ["step-00000010", "step-00000020"]


def rewritten(run: Path, change: Callable[[dict], None]) -> None:
    """Step 20 again with another state.json, whole and with the right sums: as another version would write it."""
    path = run / "step-00000020"
    contents = dict(durable.read_folder(path))
    plain = json.loads(contents["state.json"])
    change(plain)
    durable.replace_folder(path, contents | {"state.json": json.dumps(plain)}, files=QUICK)


@pytest.mark.parametrize("lost", ["seed", "index", "order_hash", "loss_scale", "best"])
def test_a_checkpoint_that_lacks_a_part_is_refused_and_not_passed_over(run: Path, lost: str) -> None:
    rewritten(run, lambda plain: plain.pop(lost))
    with pytest.raises(ConfigError, match=rf"state.json: missing {lost};.*new folder"):
        newest(run, ALONE)


@pytest.mark.parametrize("change", [{"format": 1}, {"format": 4}, {"surprise": 1}, {"step": "x"}])
def test_a_checkpoint_of_another_version_is_refused_with_the_cure(run: Path, change: dict) -> None:
    rewritten(run, lambda plain: plain.update(change))
    with pytest.raises(ConfigError, match=r"state.json.*resume with the version of Seqloom that wrote it"):
        newest(run, ALONE)


# R5: full disks


@pytest.mark.parametrize("lasting", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("code", SOME_ERRORS, ids=errno.errorcode.get)
def test_a_failed_save_leaves_the_previous_checkpoint(run: Path, code: int, lasting: bool) -> None:
    points = 0
    for at in range(1, 200):
        files = FailingFiles(at, code, lasting=lasting)
        try:
            save(run, checkpoint(30), ALONE, files=files)
        except DurableError as error:
            message = str(error)
            assert errno.errorcode[code] in message
            assert "Fix: " in message
        if not files.failed:
            break
        points += 1
        found, _ = newest(run, ALONE)
        assert same(found, checkpoint(found.run_state.step)) and found.run_state.step >= 20
        durable.recover(run, files=QUICK)
        if found.run_state.step == 30:
            shutil.rmtree(run / "step-00000030")
        assert listing(run) == ["step-00000010", "step-00000020"]
    assert points >= 20  # with four codes, once and lasting: at least 160


# R12: retention


def steps_of(run: Path) -> list[int]:
    return [int(path.name[5:]) for path in checkpoints.steps(run)]


def test_the_newest_and_the_best_stay_whatever_the_clock_says(run: Path) -> None:
    for step in (30, 40, 50):
        save(run, checkpoint(step), ALONE, files=QUICK)
    now = time.time()
    for number, path in enumerate(checkpoints.steps(run)):
        os.utime(path, (now + 3600 * (2 - number), now + 3600 * (2 - number)))  # the oldest is dated in the future
    retain(run, 2, 20, files=QUICK)
    assert steps_of(run) == [20, 40, 50]
    retain(run, 1, None, files=QUICK)
    assert steps_of(run) == [50]


def test_damaged_and_renamed_checkpoints_take_no_ones_place(run: Path) -> None:
    for step in (30, 40):
        save(run, checkpoint(step), ALONE, files=QUICK)
    (run / "step-00000040/model.safetensors").write_bytes(b"rot")
    shutil.copytree(run / "step-00000010", run / "step-00000099")
    (run / "step-00000098").mkdir()
    retain(run, 2, 10, files=QUICK)
    assert steps_of(run) == [10, 20, 30, 40, 98, 99]
    assert newest(run, ALONE)[0].run_state.step == 30
    retain(run, 1, None, files=QUICK)
    assert steps_of(run) == [30, 40, 98, 99]


def test_the_last_whole_one_is_never_deleted_also_when_all_newer_ones_are_damaged(run: Path) -> None:
    (run / "step-00000020/model.safetensors").write_bytes(b"rot")
    for keep in (1, 2, 3):
        retain(run, keep, None, files=QUICK)
        assert newest(run, ALONE)[0].run_state.step == 10


def test_twin_without_protection_the_best_one_goes(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prune = durable.prune
    monkeypatch.setattr(durable, "prune", lambda folder, keep, **how: prune(folder, keep, files=how["files"]))
    retain(run, 1, 10, files=QUICK)
    assert steps_of(run) == [20]


# Several processes


def of_rank(step: int, rank: int) -> Checkpoint:
    """What a process gives to save: weights as all have them, a carried state of its own."""
    whole = checkpoint(step)
    whole.tensors["carried"] = {"0": torch.full((2, 3), float(rank))}
    return whole


def test_process_0_writes_and_each_gets_its_own_state_back(tmp_path: Path) -> None:
    saved = in_processes(2, lambda ranks: save(tmp_path, of_rank(10, ranks.rank), ranks, files=QUICK))
    assert saved == [tmp_path / "step-00000010"] * 2
    assert [name for name in listing(saved[0]) if name.startswith("carried")] == [
        "carried-00001-of-00002.safetensors",
        "carried-00002-of-00002.safetensors",
    ]
    found = in_processes(2, lambda ranks: newest(tmp_path, ranks)[0])
    assert all(same(found[rank], of_rank(10, rank)) for rank in (0, 1))
    alone = newest(tmp_path, ALONE)[0]
    assert "carried" not in alone.tensors  # the rows of a state belong to a number of processes
    del (whole := of_rank(10, 0)).tensors["carried"]
    assert same(alone, whole)


def rows_of(ranks: Together, tensor: Tensor) -> tuple[int, Tensor]:
    size = -(-len(tensor) // ranks.count)
    return min(ranks.rank * size, len(tensor)), tensor[ranks.rank * size :][:size]


@pytest.fixture
def sharded(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], list]:
    """Saves a checkpoint in so many processes, each with its rows of every tensor that has some."""
    here = threading.local()

    def part_of(tensors: dict[str, Tensor]) -> ShardPart:
        cut = {name: rows_of(here.ranks, tensor) for name, tensor in tensors.items() if tensor.ndim}
        places = {name: ShardPlace(first, tuple(tensors[name].shape)) for name, (first, _) in cut.items()}
        return ShardPart({name: cut[name][1] if name in cut else tensors[name] for name in tensors}, places)

    def work(folder: Path, step: int, ranks: Together) -> Path:
        here.ranks = ranks
        return save(folder, checkpoint(step), ranks, files=QUICK)

    monkeypatch.setattr(checkpoints, "part_of", part_of)
    return lambda folder, count, step=10: in_processes(count, lambda ranks: work(folder, step, ranks), sharded=True)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_shards_of_any_number_of_processes_make_the_whole_again(
    tmp_path: Path, sharded: Callable[..., list], count: int
) -> None:
    sharded(tmp_path, count)
    assert len(list((tmp_path / "step-00000010").glob("model-*-of-*.safetensors"))) == count
    found, whole = newest(tmp_path, ALONE)[0], checkpoint(10)
    del whole.tensors["carried"]  # it was of other processes
    assert same(found, whole)
    again = in_processes(2, lambda ranks: newest(tmp_path, ranks)[0].tensors["model"]["norm"], sharded=True)
    assert all(torch.equal(norm, whole.tensors["model"]["norm"]) for norm in again)


def exchange(one: Path, other: Path) -> None:
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


@pytest.mark.parametrize("damage", ["lost", "exchanged", "of another step"])
def test_a_lost_exchanged_or_older_shard_is_detected(tmp_path: Path, sharded: Callable[..., list], damage: str) -> None:
    for step in (10, 20):
        sharded(tmp_path, 2, step)
    one, other = sorted((tmp_path / "step-00000020").glob("model-*"))
    if damage == "lost":
        other.unlink()
    elif damage == "exchanged":
        exchange(one, other)
    else:
        shutil.copy(tmp_path / "step-00000010" / other.name, other)
    found, skipped = newest(tmp_path, ALONE)
    assert found.run_state.step == 10
    assert "step-00000020 was skipped" in skipped[0] and "model-0000" in skipped[0]


@pytest.mark.slow
@pytest.mark.parametrize("culprit", [0, 1])
def test_a_process_that_cannot_write_is_an_error_of_all_and_nothing_is_left(tmp_path: Path, culprit: int) -> None:
    in_processes(2, lambda ranks: save(tmp_path, of_rank(10, ranks.rank), ranks, files=QUICK))
    for at in range(1, 40):
        layers = [FailingFiles(at if rank == culprit else -1, errno.EIO) for rank in (0, 1)]
        results = in_processes(
            2, lambda ranks, layers=layers: save(tmp_path, of_rank(20, ranks.rank), ranks, files=layers[ranks.rank])
        )
        if not layers[culprit].failed:
            break
        assert results[0] == results[1] or str(results[0]) == str(results[1])
        if not isinstance(results[0], Path):
            assert f"process {culprit}" in str(results[0])
        durable.recover(tmp_path, files=QUICK)
        shutil.rmtree(tmp_path / "step-00000020", ignore_errors=True)
        assert listing(tmp_path) == ["step-00000010"]
    assert at >= (5 if culprit else 20)


def test_damage_that_process_0_sees_is_told_to_all(tmp_path: Path) -> None:
    save(tmp_path, checkpoint(10), ALONE, files=QUICK)
    (tmp_path / "step-00000010/model.safetensors").write_bytes(b"rot")
    results = in_processes(2, lambda ranks: newest(tmp_path, ranks))
    assert [type(result) for result in results] == [DamagedError, DamagedError]
