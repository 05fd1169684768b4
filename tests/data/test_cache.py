"""When prepared data is taken from the cache and when it is made anew: whatever decides the result is compared."""

import platform
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import seqloom.data.prepared as preparing
import seqloom.data.survey as survey
from data_settings import BY_NAME, save_picture
from seqloom.config.data import BadRows, DataConfig, EncodingConfig, RandomSplit
from seqloom.config.tokenizers import BytesConfig, CharactersConfig
from seqloom.data.dataset import open_data
from seqloom.data.prepared import Prepared, prepare
from seqloom.data.problems import Ledger
from seqloom.errors import RejectedError
from seqloom.events import Progress

SKIP = BadRows(skip_bad_rows=True, max_bad_rows=0.1)


class Start:
    """Preparing a set again and again, and whether each time it was read or taken from the cache."""

    def __init__(self, config: DataConfig, cache: Path) -> None:
        self.config, self.cache, self.made = config, cache, True

    def __call__(self, bad_rows: BadRows = BadRows(), split: Any = None, **how: Any) -> Prepared:  # noqa: B008
        stages, ledger = list[str](), Ledger(bad_rows)
        config = self.config if split is None else DataConfig(train=self.config.train, split=split)
        dataset = open_data(config, ledger)
        watch = lambda progress: stages.append(progress.stage)  # noqa: E731
        prepared = prepare(dataset, EncodingConfig(**how), ledger, cache=self.cache, show=watch)
        self.made = bool(stages)
        return prepared


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """A small table that was prepared once, and is taken from the cache now."""
    one = Start(BY_NAME["csv"].config(tmp_path), tmp_path / "cache")
    one()
    assert one.made
    one()
    assert not one.made
    return one


def other_version(name: str) -> Callable[[str], str]:
    known = metadata.version
    return lambda package: "0.0.0" if package == name else known(package)


def test_another_format_of_the_cache_is_made_anew(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "FORMAT", preparing.FORMAT + 1)
    start()
    assert start.made


def test_what_another_version_made_is_made_anew(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "__version__", "0.0.0")
    start()
    assert start.made


def test_other_tables_of_unicode_make_it_anew(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unicodedata, "unidata_version", "1.0.0")
    start()
    assert start.made


def test_another_minor_version_of_python_makes_it_anew_and_a_patch_does_not(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    major, minor, _ = platform.python_version_tuple()
    monkeypatch.setattr(platform, "python_version_tuple", lambda: (major, minor, "99"))
    start()
    assert not start.made
    monkeypatch.setattr(platform, "python_version_tuple", lambda: (major, "99", "0"))
    start()
    assert start.made


@pytest.mark.parametrize(
    ("library", "setting", "matters"),
    [
        ("tokenizers", "csv", True),
        ("pyarrow", "parquet", True),
        ("pillow", "pictures", True),
        ("pillow", "pictures of a table", True),
        ("pillow", "csv", False),
        ("pyarrow", "csv", False),
    ],
)
def test_another_version_of_a_library_that_was_used_makes_it_anew(
    library: str, setting: str, matters: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Start(BY_NAME[setting].config(tmp_path), tmp_path / "cache")
    one()
    monkeypatch.setattr(metadata, "version", other_version(library))
    one()
    assert one.made == matters


@pytest.mark.parametrize(
    "how",
    [
        {"bad_rows": SKIP},
        {"bad_rows": BadRows(max_bad_rows=0.5)},
        {"tokenizer": BytesConfig()},
        {"target_tokenizer": CharactersConfig()},
        {"max_length": 5},
        {"split": RandomSplit(split_seed=1)},
    ],
)
def test_another_way_to_read_has_a_folder_of_its_own_and_leaves_the_other_alone(
    how: dict[str, Any], start: Start
) -> None:
    start(**how)
    assert start.made
    start(**how)
    assert not start.made
    start()
    assert not start.made
    assert sum(path.is_dir() for path in start.cache.iterdir()) == 2


def test_bad_rows_that_are_skipped_are_kept_out_of_the_strict_cache(start: Start) -> None:
    with Path(start.config.train[0]).open("a") as file:
        file.writelines(["a row without a label\n"])
    for _ in range(2):
        with pytest.raises(RejectedError, match=r"csv\.ragged"):
            start()
    assert sum(start(SKIP).split_summary.counts.values()) == 40 and start.made
    start(SKIP)
    assert not start.made
    with pytest.raises(RejectedError, match=r"csv\.ragged"):
        start()


def added(folder: Path) -> None:
    (folder / "neg/999.txt").write_text("one more film")


def taken_away(folder: Path) -> None:
    (folder / "neg/001.txt").unlink()


def rewritten(folder: Path) -> None:
    (folder / "neg/001.txt").write_text("something else altogether")


def renamed_class(folder: Path) -> None:
    (folder / "neg").rename(folder / "bad")


FOLDER_CHANGES = [added, taken_away, rewritten, renamed_class]


@pytest.mark.parametrize("change", FOLDER_CHANGES)
def test_a_folder_whose_files_changed_is_read_anew(change: Callable[[Path], None], tmp_path: Path) -> None:
    one = Start(BY_NAME["folder"].config(tmp_path), tmp_path / "cache")
    one()
    one()
    assert not one.made
    change(tmp_path / "films")
    one()
    assert one.made


def changed_picture(folder: Path) -> None:
    save_picture(folder / "shapes/3.png", 50)


def without_picture(folder: Path) -> None:
    (folder / "shapes/3.png").unlink()


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize(
    ("setting", "change"),
    [
        *(("folder", lambda folder, change=change: change(folder / "films")) for change in FOLDER_CHANGES),
        ("pictures of a table", changed_picture),
        ("pictures of a table", without_picture),
        ("csv", lambda folder: shutil.copy(folder / "a.csv", folder / "b.csv").rename(folder / "a.csv")),
    ],
)
def test_files_that_change_between_the_two_readings_are_told(
    setting: str, change: Callable[[Path], None], cached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "MOST_ROWS", 0)  # nothing is kept in memory, so all is read twice
    dataset, changes = open_data(BY_NAME[setting].config(tmp_path), Ledger()), [change]

    def watch(progress: Progress) -> None:
        if progress.stage == "rows read" and changes:
            changes.pop()(tmp_path)

    cache = tmp_path / "cache" if cached else None
    with pytest.raises(RejectedError, match=r"data\.changed: .* before, .* after"):
        prepare(dataset, EncodingConfig(), Ledger(), cache=cache, show=watch)
    assert not changes
    assert not list(tmp_path.glob("cache/*/facts.json"))


@pytest.mark.parametrize("change", FOLDER_CHANGES)
def test_a_set_that_is_kept_in_memory_is_not_cached_under_sums_that_it_does_not_have(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    dataset, changes = open_data(BY_NAME["folder"].config(tmp_path), Ledger()), [change]

    def watch(progress: Progress) -> None:
        if progress.stage == "rows encoded" and changes:
            changes.pop()(tmp_path / "films")

    with pytest.raises(RejectedError, match=r"data\.changed: the file changed while it was read"):
        prepare(dataset, EncodingConfig(), Ledger(), cache=tmp_path / "cache", show=watch)
    assert not list(tmp_path.glob("cache/*/facts.json"))


RACER = """if True:
    import sys
    from pathlib import Path
    from seqloom.config.data import DataConfig, EncodingConfig
    from seqloom.data.dataset import open_data
    from seqloom.data.prepared import prepare
    from seqloom.data.problems import BadRows, Ledger
    folder, rule = Path(sys.argv[1]), BadRows(skip_bad_rows=sys.argv[2] == "skip", max_bad_rows=0.5)
    print("ready", flush=True)
    sys.stdin.readline()
    made = 0
    for _ in range(12):
        ledger, stages = Ledger(rule), []
        dataset = open_data(DataConfig(train=(str(folder / "a.csv"),)), ledger)
        prepare(dataset, EncodingConfig(), ledger, cache=folder / "cache", show=lambda one: stages.append(one))
        made += bool(stages)
    print(made)
"""


@pytest.mark.slow
def test_two_processes_with_different_rules_build_once_each_and_never_disturb_each_other(tmp_path: Path) -> None:
    BY_NAME["csv"].config(tmp_path)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    commands = [[sys.executable, "-c", RACER, str(tmp_path), rule] for rule in ("strict", "skip")]
    racers = [subprocess.Popen(command, text=True, **pipes) for command in commands]
    assert [racer.stdout.readline() for racer in racers if racer.stdout] == ["ready\n"] * 2
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    assert [racer.communicate(timeout=60) for racer in racers] == [("1\n", "")] * 2
