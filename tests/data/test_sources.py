"""Known datasets: the registry is consistent, files are found in order, and nothing unverified is ever placed."""

import hashlib
import lzma
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from seqloom.config.base import from_toml
from seqloom.config.data import DataConfig, FoldSplit, GivenSplit, RandomSplit, ReadingConfig
from seqloom.data.dataset import open_data
from seqloom.data.download import DataFolders, NamedSource, SourceFile, default_folders
from seqloom.data.problems import Ledger
from seqloom.data.sources import SOURCES, find_source, resolve, source_config, source_named
from seqloom.data.synthetic.registry import NAMES
from seqloom.errors import ConfigError, DataError, RejectedError

NOTHING = DataFolders(None, Path("nowhere"))
TRAIN, DEV = b"1 good\n0 bad\n" * 20, b"1 fine\n"


# The registry


def test_names_are_unique_and_none_is_that_of_an_embedded_set() -> None:
    assert all(name == source.name for name, source in SOURCES.items())
    assert not SOURCES.keys() & NAMES.keys()
    assert len(SOURCES) == 19


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_an_entry_says_whose_it_is_and_what_its_files_hold(source: NamedSource) -> None:
    assert all([source.description, source.license, source.citation, source.origin])
    assert "." not in source.description[-1:]
    for file in source.every_file():
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert file.rows >= 1 and file.size >= file.rows
        assert not Path(file.path).is_absolute() and ".." not in Path(file.path).parts
        assert file.url is None or file.url.startswith("https://raw.githubusercontent.com/")


def test_a_path_has_one_sum_in_whatever_set_it_stands() -> None:
    files = {file for source in SOURCES.values() for file in source.every_file()}
    assert len({file.plain for file in files}) == len(files) == len({file.sha256 for file in files})


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_an_entry_gives_a_configuration_that_survives_a_file(source: NamedSource) -> None:
    paths = {part: tuple(Path("sets", file.path) for file in files) for part, files in source.files.items()}
    if source.task is None:
        with pytest.raises(DataError, match="has tables"):
            source.config(paths)
        return
    config = source.config(paths)
    assert from_toml(config.to_toml(), DataConfig) == config
    assert config.task is not None and config.input and config.split is not None
    assert isinstance(config.split, GivenSplit) == ("dev" in source.files)


def test_both_sides_of_parallel_text_have_as_many_rows() -> None:
    for source in SOURCES.values():
        for files in source.files.values():
            assert len({file.rows for file in files}) == 1


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'sst2'"):
        source_named("sst-2")


# Finding


def place(folder: Path, source: NamedSource, suffix: str = "") -> None:
    for file in source.every_file():
        path = folder / f"{file.plain}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


@pytest.mark.parametrize("suffix", ["", ".xz", ".gz"])
def test_the_mirror_comes_before_our_own_folder_plain_or_packed(tmp_path: Path, suffix: str) -> None:
    folders, source = DataFolders(tmp_path / "mirror", tmp_path / "own"), SOURCES["sst2"]
    place(folders.own, source)
    assert find_source("sst2", folders)["train"] == (folders.own / "sst2/train.txt",)
    place(tmp_path / "mirror", source, suffix)
    assert find_source("sst2", folders)["train"] == (tmp_path / f"mirror/sst2/train.txt{suffix}",)


def test_variants_share_their_files(tmp_path: Path) -> None:
    place(tmp_path, SOURCES["trec"])
    folders = DataFolders(None, tmp_path)
    assert find_source("trec-fine", folders) == find_source("trec", folders)


def test_a_missing_set_says_what_was_looked_for_where_and_what_to_run(tmp_path: Path) -> None:
    folders = DataFolders(tmp_path / "mirror", tmp_path)
    place(tmp_path, SOURCES["sst2"])
    (tmp_path / "sst2/dev.txt").unlink()
    with pytest.raises(DataError) as caught:
        find_source("sst2", folders)
    assert str(caught.value) == (
        f"the dataset 'sst2' is not on this machine: sst2/dev.txt not found in {tmp_path}/mirror (no such folder) "
        f"and {tmp_path}. "
        "Fix: run `seqloom data get sst2`."
    )


def test_a_missing_set_that_nobody_serves_says_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        find_source("trec", DataFolders(None, tmp_path))
    assert "SEQLOOM_DATA is not set" in caught.value.problem
    assert f"put trec/train.txt, trec/test.txt (plain, .xz or .gz) into {tmp_path}" in caught.value.fix


def test_a_folder_that_cannot_be_looked_into_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot look for sst2/train.txt in .*: File name too long"):
        find_source("sst2", DataFolders(Path("n" * 300), tmp_path))


@pytest.mark.parametrize(
    ("environment", "mirror", "own"),
    [
        ({"SEQLOOM_DATA": "/m", "SEQLOOM_CACHE": "/c"}, Path("/m"), Path("/c/data")),
        ({"SEQLOOM_DATA": "", "XDG_CACHE_HOME": "/x"}, None, Path("/x/seqloom/data")),
        ({"XDG_CACHE_HOME": "relative"}, None, Path.home() / ".cache/seqloom/data"),
        ({}, None, Path.home() / ".cache/seqloom/data"),
    ],
)
def test_the_environment_names_the_folders(environment: dict[str, str], mirror: Path | None, own: Path) -> None:
    assert default_folders(environment) == DataFolders(mirror, own)


def toy(folder: Path, **contents: bytes) -> NamedSource:
    """A set whose files lie in a folder and have the sums of the registry."""
    files = {}
    for part, content in contents.items():
        path = folder / f"toy/{part}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        rows = content.count(b"\n")
        url = f"https://example.org/{part}"
        files[part] = (SourceFile(f"toy/{part}.txt", hashlib.sha256(content).hexdigest(), len(content), rows, url),)
    return SOURCES["sst2"]._replace(name="toy", files=files)


@pytest.fixture
def toy_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a small set called 'toy', with train, dev and test."""
    monkeypatch.delenv("SEQLOOM_DATA", raising=False)
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path))
    monkeypatch.setitem(SOURCES, "toy", toy(tmp_path / "data", train=TRAIN, dev=DEV, test=DEV + b"0 poor\n"))
    return tmp_path / "data/toy"


def read_by_name(**how: Any) -> Counter[str]:
    ledger = Ledger()
    return Counter(part for part, _ in open_data(DataConfig(train=("toy",), **how), ledger).rows(ledger))


def packed_again(path: Path, content: bytes) -> None:
    path.unlink()
    path.with_name(f"{path.name}.xz").write_bytes(lzma.compress(content))


@pytest.mark.parametrize("part", ["train", "dev", "test"])
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda known: known[:-1], r"\d+ bytes, sha256 [0-9a-f]{12}"),
        (lambda known: known + b"1 more\n", "more"),
        (lambda known: known.replace(b"1", b"0", 1), r"\d+ bytes, sha256 [0-9a-f]{12}"),
    ],
)
def test_a_file_that_is_not_the_known_one_is_not_read_under_its_name(
    part: str, change: Callable[[bytes], bytes], found: str, toy_set: Path
) -> None:
    assert read_by_name() == {"train": 40, "dev": 1, "test": 2}
    path = toy_set / f"{part}.txt"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(RejectedError, match=f"this is not toy/{part}.txt of the dataset 'toy': .*, found {found}. Fix"):
        read_by_name()
    with pytest.raises(RejectedError, match=r"source\.changed: .* Fix: run `seqloom data get toy`"):
        read_by_name()


def test_packed_files_are_compared_by_what_they_hold(toy_set: Path) -> None:
    packed_again(toy_set / "train.txt", TRAIN)
    assert read_by_name()["train"] == 40
    (toy_set / "train.txt.xz").write_bytes(lzma.compress(TRAIN[:-2]))
    with pytest.raises(RejectedError, match=r"train\.txt\.xz: source\.changed"):
        read_by_name()


def test_a_changed_file_of_the_users_own_folder_is_to_be_replaced(
    toy_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQLOOM_DATA", str(toy_set.parent))
    monkeypatch.setenv("SEQLOOM_CACHE", str(toy_set.parent.parent / "elsewhere"))
    (toy_set / "dev.txt").write_bytes(b"1 other\n")
    with pytest.raises(RejectedError, match=r"source\.changed: .* Fix: replace or remove it"):
        read_by_name()


def test_files_of_the_users_own_beside_a_set_are_not_compared(toy_set: Path) -> None:
    (toy_set / "dev.txt").write_bytes(b"1 other\n")
    mine = toy_set.parent / "mine.txt"
    mine.write_bytes(b"1 other\n0 mine\n")
    assert read_by_name(dev=(str(mine),)) == {"train": 40, "dev": 2, "test": 2}


@pytest.mark.usefixtures("toy_set")
def test_folds_of_a_set_take_the_place_of_its_dev_part_and_say_so() -> None:
    assert read_by_name(split=FoldSplit(folds=5)) == {"train": 32, "dev": 8, "test": 2}
    dataset = open_data(DataConfig(train=("toy",), split=FoldSplit(folds=5)), Ledger())
    assert any("the dev file of 'toy' is not read" in line for line in dataset.messages)
    assert not any("not read" in line for line in open_data(DataConfig(train=("toy",)), Ledger()).messages)
    with pytest.raises(ConfigError, match="--dev is also given"):
        read_by_name(split=FoldSplit(folds=5), dev=("mine.txt",))


@pytest.mark.usefixtures("toy_set")
def test_a_draw_adds_nothing_to_the_parts_of_a_set() -> None:
    assert read_by_name(split=RandomSplit(split_seed=4)) == {"train": 40, "dev": 1, "test": 2}
    said = open_data(DataConfig(train=("toy",), split=RandomSplit(split_seed=4)), Ledger()).messages
    assert "split: the given files" in said


# Resolving


@pytest.mark.parametrize("train", [("data.csv",), ("sst2", "trec"), ("dates",), ("./sst2",)])
def test_paths_and_other_names_are_left_alone(train: tuple[str, ...]) -> None:
    config = DataConfig(train=train, task="classify")
    assert resolve(config, NOTHING) is config


def test_a_path_of_that_name_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sst2").mkdir()
    config = DataConfig(train=("sst2",))
    assert resolve(config, NOTHING) is config


def test_a_name_becomes_the_configuration_of_its_set(tmp_path: Path) -> None:
    place(tmp_path, SOURCES["sst2"])
    folders = DataFolders(None, tmp_path)
    assert resolve(DataConfig(train=("sst2",)), folders) == source_config("sst2", folders)
    assert source_config("sst2", folders).dev == (str(tmp_path / "sst2/dev.txt"),)


def test_the_users_settings_stay_on_top(tmp_path: Path) -> None:
    place(tmp_path, SOURCES["sst2"])
    folders = DataFolders(None, tmp_path)
    mine = RandomSplit(dev_size=0.2, split_seed=3)
    given = DataConfig(train=("sst2",), id="text", reading=ReadingConfig(encoding="cp1252"), split=mine)
    found, plain = resolve(given, folders), source_config("sst2", folders)
    reading = msgspec.structs.replace(plain.reading, encoding="cp1252")
    assert found == msgspec.structs.replace(plain, id="text", reading=reading, split=mine)


def test_a_dev_file_of_the_users_own_ends_the_draw_of_one(tmp_path: Path) -> None:
    place(tmp_path, SOURCES["trec"])
    found = resolve(DataConfig(train=("trec",), dev=("mine.txt",)), DataFolders(None, tmp_path))
    assert found.dev == ("mine.txt",) and found.split is None
