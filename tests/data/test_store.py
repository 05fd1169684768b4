"""Claims about the mapped cache: it reads like memory, damage is found, another key builds anew, memory stays small."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import seqloom.data.cache as store_module
from seqloom.data.cache import ColumnStore, Unusable, chunks_of, open_store
from seqloom.data.loader import Loader, collate
from seqloom.data.order import Order
from seqloom.data.schema import Schema
from seqloom.errors import DataError, DurableError
from seqloom.events import finished
from seqloom.files.disk import make_folder
from seqloom.text.ragged import Ragged

KEY = {"source": "9f86", "tokenizer": {"limit": 300}, "version": 1}


def columns(rows: int = 40) -> dict[str, Ragged]:
    generator = np.random.Generator(np.random.PCG64(0))
    lengths = generator.integers(0, 9, rows)
    return {
        "input": Ragged.of([generator.integers(6, 99, length) for length in lengths], np.int32),
        "target": Ragged.of([[label] for label in generator.integers(0, 3, rows)], np.int32),
    }


def write_store(*given: Any) -> None:
    for _ in store_module.write_store(*given):
        pass


def open_or_build(*given: Any) -> ColumnStore:
    return finished(store_module.open_or_build(*given))


def opened(path: Path, key: dict = KEY, *, verify: bool = True) -> ColumnStore:
    store = open_store(path, key, verify=verify)
    assert isinstance(store, ColumnStore), store
    return store


def reason(path: Path, key: dict = KEY, *, verify: bool = True) -> str:
    found = open_store(path, key, verify=verify)
    assert isinstance(found, Unusable)
    return found.reason


numbers = st.sampled_from(["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64", ">i4"])


@pytest.mark.slow
@settings(max_examples=20)
@given(st.data())
def test_every_type_and_shape_comes_back_as_it_was_whatever_the_chunks(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 4), max_size=8))
    generator, whole = np.random.Generator(np.random.PCG64(1)), {}
    for name in ("input", "other-one"):
        inner = data.draw(st.sampled_from([(), (3,), (2, 2), (0,)]))
        values = generator.integers(0, 2, (sum(lengths), *inner)).astype(data.draw(numbers))
        whole[name] = Ragged(values, np.cumsum([0, *lengths]))
    with tempfile.TemporaryDirectory() as parent:
        path = Path(parent, "store")
        write_store(path, KEY, chunks_of(whole, data.draw(st.integers(1, 9))))
        store = opened(path, verify=data.draw(st.booleans()))
        assert store.rows == len(lengths) and set(store.columns) == set(whole)
        for name, column in whole.items():
            found = store.columns[name]
            assert found.values.dtype == column.values.dtype.newbyteorder("<")
            assert found.values.shape == column.values.shape
            assert np.array_equal(found.values, column.values) and np.array_equal(found.starts, column.starts)
            assert type(found.values) is np.ndarray
            assert not found.values.size or not found.values.flags.writeable


def test_batches_from_a_store_are_those_from_memory_in_the_same_order(tmp_path: Path) -> None:
    schema, memory = Schema("text", "label", ("a", "b", "c")), columns(200)
    write_store(tmp_path / "store", KEY, chunks_of(memory, 7))
    mapped = opened(tmp_path / "store").columns
    steps = []
    for source in (memory, mapped):
        order = Order(schema.target.sizes(source), 64, seed=0)
        loader = Loader(order, lambda rows, source=source: collate(schema, source, rows))
        steps.append([step.batch for step in loader.steps(until=2)])
    assert len(steps[0]) == len(steps[1]) > 10
    for one, other in zip(*steps, strict=True):
        assert one.ids == other.ids and torch.equal(one.targets, other.targets)
        assert torch.equal(one.inputs.values, other.inputs.values) and one.inputs.full == other.inputs.full


@pytest.mark.parametrize("name", ["input.values", "input.starts", "target.values", "meta.json", "manifest.json"])
def test_a_flipped_bit_is_found(name: str, tmp_path: Path) -> None:
    write_store(tmp_path / "store", KEY, [columns()])
    data = bytearray((tmp_path / "store" / name).read_bytes())
    data[len(data) // 2] ^= 4
    (tmp_path / "store" / name).write_bytes(data)
    assert name in reason(tmp_path / "store")


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("name", ["input.values", "input.starts", "meta.json"])
def test_another_size_is_always_found(name: str, change: int, verify: bool, tmp_path: Path) -> None:
    write_store(tmp_path / "store", KEY, [columns()])
    path = tmp_path / "store" / name
    os.truncate(path, path.stat().st_size + change)
    assert name in reason(tmp_path / "store", verify=verify)


@pytest.mark.parametrize("verify", [True, False])
def test_a_missing_store_or_file_is_named(verify: bool, tmp_path: Path) -> None:
    assert "there is no folder" in reason(tmp_path / "store", verify=verify)
    write_store(tmp_path / "store", KEY, [columns()])
    (tmp_path / "store/target.values").unlink()
    assert "target.values" in reason(tmp_path / "store", verify=verify)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"source": "9f87"}, "source changed"),
        ({"tokenizer": {"limit": 301}}, "tokenizer changed"),
        ({"version": 1.0}, "version changed"),
        ({"version": True}, "version changed"),
        ({"more": None}, "more changed"),
    ],
)
def test_another_key_is_another_store(change: dict, named: str, tmp_path: Path) -> None:
    write_store(tmp_path / "store", KEY, [columns()])
    assert named in reason(tmp_path / "store", KEY | change)
    opened(tmp_path / "store", dict(reversed(KEY.items())))  # the order of a mapping means nothing


class Builder:
    """Columns, and how often they were asked for."""

    def __init__(self, rows: int = 40) -> None:
        self.rows, self.calls = rows, 0

    def __call__(self) -> Iterator[dict[str, Ragged]]:
        self.calls += 1
        yield from chunks_of(columns(self.rows), 9)


def test_a_store_is_built_once_and_again_when_the_key_changes_or_it_is_damaged(tmp_path: Path) -> None:
    path, build = tmp_path / "cache/deep/train", Builder()
    for _ in range(3):
        assert open_or_build(path, KEY, build).rows == 40
    assert build.calls == 1
    other = Builder(50)
    assert open_or_build(path, KEY | {"source": "new"}, other).rows == 50
    (path / "input.values").write_bytes(b"short")
    store = open_or_build(path, KEY | {"source": "new"}, other)
    assert other.calls == 2 and np.array_equal(store.columns["input"].values, columns(50)["input"].values)


def lost_in_a_power_cut(path: Path, name: str) -> None:
    """A file has its size, but its bytes never reached the disk: stores are not synced."""
    (path / name).write_bytes(bytes((path / name).stat().st_size))


@pytest.mark.parametrize("name", ["input.values", "input.starts", "target.values", "meta.json", "manifest.json"])
def test_a_store_whose_bytes_a_power_cut_has_lost_is_built_again(name: str, tmp_path: Path) -> None:
    path, build = tmp_path / "store", Builder()
    open_or_build(path, KEY, build)
    lost_in_a_power_cut(path, name)
    store = open_or_build(path, KEY, build)
    assert build.calls == 2 and np.array_equal(store.columns["input"].values, columns()["input"].values)


def test_the_twin_that_does_not_verify_reads_bytes_that_a_power_cut_has_lost(tmp_path: Path) -> None:
    open_or_build(tmp_path / "store", KEY, Builder())
    lost_in_a_power_cut(tmp_path / "store", "input.values")
    assert not opened(tmp_path / "store", verify=False).columns["input"].values.any()


def test_a_store_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path / "cache")
    monkeypatch.setattr(os, "fsync", None)
    assert open_or_build(tmp_path / "cache/store", KEY, Builder()).rows == 40


def test_an_old_store_can_be_read_on_while_it_is_replaced(tmp_path: Path) -> None:
    old = open_or_build(tmp_path / "store", KEY, Builder())
    open_or_build(tmp_path / "store", KEY | {"version": 2}, Builder(50))
    assert np.array_equal(old.columns["input"].values, columns()["input"].values)


def test_a_store_that_is_replaced_while_it_is_opened_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, others = tmp_path / "store", iter([KEY | {"version": 2}, KEY])
    write_store(path, KEY, [columns()])
    whole = store_module._read_meta

    def replaced(folder: Path) -> store_module.Meta:
        meta = whole(folder)
        if key := next(others, None):
            shutil.move(path, tmp_path / f"old-{key['version']}")
            write_store(path, key, [columns()])
        return meta

    monkeypatch.setattr(store_module, "_read_meta", replaced)
    assert "was replaced while it was opened" in reason(path)


TAKING_TURNS = """if True:
    import sys
    from pathlib import Path
    import numpy as np
    from seqloom.data.cache import open_or_build
    from seqloom.events import finished
    from seqloom.text.ragged import Ragged
    folder, number = Path(sys.argv[1]), int(sys.argv[2])
    chunk = {"input": Ragged.of([[number] * 5] * 9, np.int32), "target": Ragged.of([[number]] * 9, np.int32)}
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(15):
        notes = lambda: {"note": b"%d" % number}
        store = finished(open_or_build(folder / "store", {"of": number}, lambda: [chunk], notes))
        assert store.notes == {"note": b"%d" % number}, store.notes
        assert all(set(column.values.tolist()) == {number} for column in store.columns.values())
"""


@pytest.mark.slow
def test_processes_that_replace_each_others_store_get_their_own_columns_and_notes(tmp_path: Path) -> None:
    commands = [[sys.executable, "-c", TAKING_TURNS, str(tmp_path), number] for number in "12"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    racers = [subprocess.Popen(command, **pipes) for command in commands]
    assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * 2
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    assert [racer.communicate(timeout=60)[1] for racer in racers] == ["", ""]


def test_what_an_interrupted_build_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    for name in ("train", "dev"):
        (tmp_path / f".{name}.partial-0123456789abcdef").mkdir()
    open_or_build(tmp_path / "train", KEY, Builder())
    assert sorted(path.name for path in tmp_path.iterdir()) == [".dev.partial-0123456789abcdef", ".train.lock", "train"]


def test_an_error_while_building_leaves_no_store(tmp_path: Path) -> None:
    def build() -> Iterator[dict[str, Ragged]]:
        yield columns()
        raise DataError("line 7 is broken")

    with pytest.raises(DataError, match="line 7"):
        open_or_build(tmp_path / "store", KEY, build)
    assert [path.name for path in tmp_path.iterdir()] == [".store.lock"]


RACER = """if True:
    import sys, time
    from pathlib import Path
    import numpy as np
    from seqloom.data.cache import open_or_build
    from seqloom.events import finished
    from seqloom.text.ragged import Ragged
    folder, builds = Path(sys.argv[1]), []

    def build():
        builds.append(1)
        for number in range(9):
            yield {"input": Ragged.of([[number] * 5], np.int32)}

    print("ready", flush=True)
    while not (folder / "go").exists():
        time.sleep(0.001)
    store = finished(open_or_build(folder / "store", {"version": 5}, build))
    print(len(builds), int(store.columns["input"].values.sum()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("stale", [False, True])
def test_processes_that_race_build_once_and_all_end_with_a_good_store(stale: bool, tmp_path: Path) -> None:
    if stale:
        write_store(tmp_path / "store", {"version": 0}, [columns(9)])
    command = [sys.executable, "-c", RACER, str(tmp_path)]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * 3
    (tmp_path / "go").touch()
    found = sorted(racer.communicate(timeout=60)[0] for racer in racers)
    assert found == ["0 180\n", "0 180\n", "1 180\n"]
    opened(tmp_path / "store", {"version": 5})


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [{}],
        [{"input": Ragged.of([[1]], np.int32), "target": Ragged.of([[1], [2]], np.int32)}],
        [{"input": Ragged.of([[1]], np.int32)}, {"input": Ragged.of([[1]], np.int64)}],
        [{"input": Ragged.of([[1]], np.int32)}, {"target": Ragged.of([[1]], np.int32)}],
        [{"input": Ragged.of([[[1, 2]]], np.int32)}, {"input": Ragged.of([[[1, 2, 3]]], np.int32)}],
        [{"input": Ragged(np.array(["a"]), np.array([0, 1]))}],
        [{"input": Ragged(np.array([None]), np.array([0, 1]))}],
    ],
)
def test_columns_that_do_not_fit_are_refused_and_nothing_is_left(chunks: list[dict], tmp_path: Path) -> None:
    with pytest.raises(DataError):
        write_store(tmp_path / "store", KEY, chunks)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", [{"a": float("nan")}, {"a": object()}])
def test_a_key_that_is_not_json_is_refused(key: dict, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="JSON"):
        write_store(tmp_path / "store", key, [columns()])


def test_a_column_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(DurableError):
        write_store(tmp_path / "store", KEY, [{"../input": Ragged.of([[1]], np.int32)}])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_building_and_reading_a_large_store_takes_little_memory(tmp_path: Path) -> None:
    program = """if True:
        import resource, sys
        from pathlib import Path
        import numpy as np
        from seqloom.data.cache import open_or_build
        from seqloom.events import finished
        from seqloom.text.ragged import Ragged

        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

        def build():
            starts = np.arange(0, 1_000_001, 100)
            for number in range(75):  # 4 MB each
                yield {"input": Ragged(np.full(1_000_000, number, np.int32), starts)}

        before = peak()
        store = finished(open_or_build(Path(sys.argv[1]), {}, build))
        size = Path(sys.argv[1], "input.values").stat().st_size
        print(size, store.rows, peak() - before)
    """
    command = [sys.executable, "-c", program, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    size, rows, megabytes = map(int, done.stdout.split())
    assert size == 300_000_000 and rows == 750_000
    assert megabytes < 100
