"""Known data sets: the registry is consistent, files are found in order, and nothing unverified is ever placed."""

import re
from pathlib import Path

import msgspec
import pytest

from seqloom.config.data import DataConfig, GivenSplit, RandomSplit, ReadingConfig
from seqloom.config.reading import from_toml
from seqloom.data.problems import Ledger
from seqloom.data.sources import (
    SOURCES,
    Shelves,
    Source,
    find_source,
    resolve,
    source_config,
    source_named,
    usual_shelves,
)
from seqloom.data.sources.reading import read_source
from seqloom.data.synthetic import NAMES
from seqloom.errors import ConfigError, DataError

NOTHING = Shelves(None, Path("nowhere"))
TRAIN, DEV = b"1 good\n0 bad\n" * 20, b"1 fine\n"


# The registry


def test_names_are_unique_and_none_is_that_of_an_embedded_set() -> None:
    assert all(name == source.name for name, source in SOURCES.items())
    assert not SOURCES.keys() & NAMES.keys()
    assert len(SOURCES) == 19


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_an_entry_says_whose_it_is_and_what_its_files_hold(source: Source) -> None:
    assert all([source.description, source.licence, source.citation, source.origin])
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
def test_an_entry_gives_a_configuration_that_survives_a_file(source: Source) -> None:
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
    with pytest.raises(ConfigError, match="did you mean 'sst2'"):
        source_named("sst-2")


# Finding


def place(folder: Path, source: Source, suffix: str = "") -> None:
    for file in source.every_file():
        path = folder / f"{file.plain}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


@pytest.mark.parametrize("suffix", ["", ".xz", ".gz"])
def test_the_mirror_comes_before_our_own_folder_plain_or_packed(tmp_path: Path, suffix: str) -> None:
    shelves, source = Shelves(tmp_path / "mirror", tmp_path / "own"), SOURCES["sst2"]
    place(shelves.own, source)
    assert find_source("sst2", shelves)["train"] == (shelves.own / "sst2/train.txt",)
    place(tmp_path / "mirror", source, suffix)
    assert find_source("sst2", shelves)["train"] == (tmp_path / f"mirror/sst2/train.txt{suffix}",)


def test_variants_share_their_files(tmp_path: Path) -> None:
    place(tmp_path, SOURCES["trec"])
    shelves = Shelves(None, tmp_path)
    assert find_source("trec-fine", shelves) == find_source("trec", shelves)


def test_a_missing_set_says_what_was_looked_for_where_and_what_to_run(tmp_path: Path) -> None:
    shelves = Shelves(tmp_path / "mirror", tmp_path)
    place(tmp_path, SOURCES["sst2"])
    (tmp_path / "sst2/dev.txt").unlink()
    with pytest.raises(DataError) as caught:
        find_source("sst2", shelves)
    assert str(caught.value) == (
        f"the set 'sst2' is not here: no sst2/dev.txt in {tmp_path}/mirror (no such folder) and {tmp_path}. "
        "Fix: run `seqloom data get sst2`."
    )


def test_a_missing_set_that_nobody_serves_says_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        find_source("trec", Shelves(None, tmp_path))
    assert "SEQLOOM_DATA is not set" in caught.value.problem
    assert f"put trec/train.txt, trec/test.txt, plain or packed as .xz or .gz, below {tmp_path}" in caught.value.fix


def test_a_folder_that_cannot_be_looked_into_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot look for sst2/train.txt in .*: File name too long"):
        find_source("sst2", Shelves(Path("n" * 300), tmp_path))


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
    assert usual_shelves(environment) == Shelves(mirror, own)


def test_a_part_is_read_by_name(tmp_path: Path) -> None:
    (tmp_path / "scifact").mkdir()
    place(tmp_path, SOURCES["scifact"])
    (tmp_path / "scifact/qrels_test.tsv").write_text("query-id\tcorpus-id\tscore\n1\t2\t1\n", encoding="utf-8")
    table = read_source("scifact", "qrels_test", Ledger(), Shelves(None, tmp_path))
    assert [record.values for record in table.records] == [("1", "2", "1")]
    with pytest.raises(ConfigError, match="did you mean 'qrels_test'"):
        read_source("scifact", "qrels_tset", Ledger(), Shelves(None, tmp_path))


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
    shelves = Shelves(None, tmp_path)
    assert resolve(DataConfig(train=("sst2",)), shelves) == source_config("sst2", shelves)
    assert source_config("sst2", shelves).dev == (str(tmp_path / "sst2/dev.txt"),)


def test_the_users_settings_stay_on_top(tmp_path: Path) -> None:
    place(tmp_path, SOURCES["sst2"])
    shelves = Shelves(None, tmp_path)
    mine = RandomSplit(dev=0.2, seed=3)
    given = DataConfig(train=("sst2",), id="text", reading=ReadingConfig(encoding="cp1252"), split=mine)
    found, plain = resolve(given, shelves), source_config("sst2", shelves)
    reading = msgspec.structs.replace(plain.reading, encoding="cp1252")
    assert found == msgspec.structs.replace(plain, id="text", reading=reading, split=mine)


def test_a_dev_file_of_the_users_own_ends_the_draw_of_one(tmp_path: Path) -> None:
    place(tmp_path, SOURCES["trec"])
    found = resolve(DataConfig(train=("trec",), dev=("mine.txt",)), Shelves(None, tmp_path))
    assert found.dev == ("mine.txt",) and found.split is None
