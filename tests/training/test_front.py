"""Claims about the door to a run: what is refused before any work, what is never read, and what a run needs again."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom import durable
from seqloom.config.data import ColumnSplit, DataConfig, RandomSplit
from seqloom.config.training import StepsConfig
from seqloom.data import sealing
from seqloom.data.front import load_data
from seqloom.data.schema import PARTS
from seqloom.errors import ConfigError, HeldError, RejectedError
from seqloom.recipes import SIZES
from seqloom.training import front, resolving
from seqloom.training.folder import RunFolder
from seqloom.training.front import Resolved, Wishes, resolve, train
from seqloom.training.places import Home
from seqloom.training.resolving import class_weights
from training_common import BASE, ended, resolved, run, write_data

NO_DATA = b"\xff\xfe not a table \x00"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path)


def opened(data: Path, **settings: Any) -> Resolved:
    wishes = Wishes(model="bag", size="tiny", training=BASE)
    return resolve(DataConfig(train=(str(data),), **settings), wishes, cache=data.parent / "cache")


# The test part


def test_a_test_file_that_is_no_data_is_summed_kept_and_not_read(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = tmp_path / "test.csv"
    test.write_bytes(NO_DATA)
    found = opened(data, test=(str(test),))
    assert found.config.data.test == (str(test),)  # for `evaluate --test`
    assert found.facts.fingerprints[str(test)][0] == len(NO_DATA)
    assert found.config.data.split == RandomSplit(test=0.0)  # nothing is drawn for a part that is given
    monkeypatch.setattr(sealing, "OPEN", PARTS)  # the twin: without the seal it is read
    with pytest.raises(RejectedError, match=r"test\.csv"):
        opened(data, test=(str(test),))


def test_a_test_file_that_is_not_there_is_refused_at_once(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match=r"tset\.csv"):
        opened(data, test=(str(tmp_path / "tset.csv"),))
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("split", [ColumnSplit(column="split"), RandomSplit(dev=0.2, test=0.2)])
def test_rows_of_the_test_part_are_let_go_before_anything_sees_them(
    data: Path, split: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = opened(data, split=split)
    rows = {part: len(numbers) for part, numbers in found.prepared.parts.items()}
    assert rows["test"] == 0 and rows["train"] and rows["dev"]
    assert len(found.prepared.places) == rows["train"] + rows["dev"]  # in no column either
    assert found.facts.split["counts"] == {"train": rows["train"], "dev": rows["dev"]}
    assert not any(finding.code == "split.empty" for finding in found.prepared.findings)
    monkeypatch.setattr(sealing, "OPEN", PARTS)
    assert len(opened(data, split=split).prepared.parts["test"])


def test_what_test_has_in_common_with_train_is_not_told_by_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{word} {number},{word},train" for number in range(20) for word in ("good", "bad")]
    rows += [row.replace("train", "test") for row in rows[:20]] + ["good film,good,dev", "bad film,bad,dev"]
    path = tmp_path / "leaky.csv"
    path.write_text("\n".join(["text,label,split", *rows, ""]))
    told = [finding.code for finding in opened(path).prepared.findings]
    assert not any(code.startswith("leak") for code in told)
    monkeypatch.setattr(sealing, "OPEN", PARTS)
    assert any(finding.code.startswith("leak") for finding in opened(path).prepared.findings)


def test_a_cache_that_holds_the_test_part_is_not_the_one_of_training(data: Path) -> None:
    encoding = opened(data).config.encoding
    whole = load_data(data, encoding=encoding, cache=data.parent / "cache")
    assert len(whole.parts["test"]) and not len(opened(data).prepared.parts["test"])


def test_an_embedded_set_is_written_without_its_test_part() -> None:
    assert [part for part in PARTS if part not in sealing.OPEN] == ["test"]
    dataset = sealing.open_sealed(DataConfig(train=("brackets",)), sealing.Ledger())
    assert {part for part, _ in dataset.rows(sealing.Ledger())} == set(sealing.OPEN)


# What a run starts from


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a run of two steps on it."""
    place = tmp_path_factory.mktemp("taught")
    run(place / "first", write_data(place), length=StepsConfig(count=2), validate_every=2)
    return place


def test_a_run_and_its_model_folder_are_the_same_start(taught: Path) -> None:
    starts = [resolved(taught / "data.csv", init=str(taught / "first" / name)).init for name in ("", "model")]
    assert starts[0] is not None and starts[1] is not None
    assert all(torch.equal(weight, starts[1].weights[name]) for name, weight in starts[0].weights.items())


def test_a_run_without_a_model_yet_is_no_start(taught: Path, tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    with pytest.raises(ConfigError, match="has no model yet"):
        resolved(taught / "data.csv", init=str(tmp_path))


def started(taught: Path, out: Path, first: Path, steps: int) -> list[Any]:
    """A run that starts from another one, or goes on."""
    wishes = Wishes(training=BASE | {"init": str(first), "length": StepsConfig(count=steps), "validate_every": 2})
    data = DataConfig(train=(str(taught / "data.csv"),), split=ColumnSplit(column="split"))
    found = resolve(data, wishes, home=Home(out), cache=taught / "cache")
    return list(front.train_run(out, found, device=front.choose_device("cpu", "float32"), workers=0))


def test_a_run_goes_on_when_the_model_that_it_started_from_is_gone(
    taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shutil.copytree(taught / "first", tmp_path / "first")
    assert ended(started(taught, tmp_path / "second", first, 2)).step == 2
    shutil.rmtree(first)
    assert ended(started(taught, tmp_path / "second", first, 4)).step == 4
    monkeypatch.setattr(RunFolder, "has_begun", lambda _: False)  # the twin
    with pytest.raises(ConfigError, match="there is no model"):
        started(taught, tmp_path / "second", first, 6)


def test_a_run_without_a_checkpoint_still_needs_what_it_starts_from(taught: Path, tmp_path: Path) -> None:
    first = shutil.copytree(taught / "first", tmp_path / "first")
    started(taught, tmp_path / "second", first, 2)
    shutil.rmtree(tmp_path / "second" / "checkpoints")
    shutil.rmtree(first)
    with pytest.raises(ConfigError, match="there is no model"):  # and never begins at random instead
        started(taught, tmp_path / "second", first, 4)


# What is refused before any work


def test_a_folder_in_use_is_refused_before_data_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    with durable.hold(out):
        with pytest.raises(HeldError, match="in use by process"):
            train("nowhere.csv", out=out)
        monkeypatch.setattr(Home, "require_room", lambda _: None)  # the twin
        with pytest.raises(RejectedError, match=r"nowhere\.csv"):
            train("nowhere.csv", out=out)


@pytest.mark.parametrize(
    ("setting", "value"), [("dropout", 0.5), ("smoothing", 0.1), ("class_weights", "balanced"), ("size", "big")]
)
def test_a_setting_of_a_recipe_is_refused_for_a_model_that_is_ready(
    taught: Path, setting: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = RunFolder(taught / "first").config().model
    data = taught / "data.csv"
    starts: list[tuple[dict[str, Any], str]] = [({"model": model}, "the given model")]
    starts += [({"init": str(taught / "first")}, "the model of init")]
    for ready, source in starts:
        with pytest.raises(ConfigError, match=f"^{setting} would change {source}"):
            train("nowhere.csv", out=taught / "none", **ready, **{setting: value})
    monkeypatch.setattr(resolving, "_require_changeable", lambda _: None)  # the twin: nobody would notice
    wishes = Wishes(**({"model": model, "training": BASE} | {setting: value}))
    config = DataConfig(train=(str(data),), split=ColumnSplit(column="split"))
    assert resolve(config, wishes, cache=taught / "cache").config.model == model


def test_the_cure_of_class_weights_is_not_what_was_refused(data: Path) -> None:
    prepared = opened(data).prepared
    with pytest.raises(ConfigError, match=r"class weights 'blanced'.*Fix: 'balanced', or a number for each label"):
        class_weights("blanced", prepared)
    numbers = prepared._replace(schema=prepared.schema._replace(target="numbers"))
    with pytest.raises(ConfigError, match=r"one label each, and its target is numbers\. Fix: leave them out"):
        class_weights("balanced", numbers)


# What is said


def test_labels_are_counted_and_numbers_that_are_names_are_said_aloud(data: Path, tmp_path: Path) -> None:
    assert "labels: 2 (no, yes)" in opened(data).said
    rows = [f"{'very ' * (number % 7)}good {number},{number % 7}" for number in range(60)]
    (tmp_path / "stars.csv").write_text("\n".join(["text,target", *rows, ""]))
    (line,) = [line for line in opened(tmp_path / "stars.csv").said if line.startswith("labels: ")]
    assert line.startswith("labels: 7 (0, 1, 2, 3, 4, ...); each number is a name") and "--task regress" in line


def test_a_size_that_nobody_named_is_the_one_that_help_promises(data: Path) -> None:
    from typer.testing import CliRunner

    from seqloom.cli import app

    shown = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).output
    (line,) = [line for line in shown.splitlines() if "--size" in line]
    (promised,) = [size for size in SIZES if f"else {size}." in line]
    found = resolve(DataConfig(train=(str(data),)), Wishes(model="bag", training=BASE), cache=data.parent / "cache")
    assert any(f"size {promised}," in said for said in found.said)
