"""Claims about the door to a run: what is refused before any work, what is never read, and what a run needs again."""

import re
import shutil
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import torch

from seqloom import files
from seqloom.config.data import SPLITS, ColumnSplit, DataConfig, RandomSplit
from seqloom.config.training import (
    AnyDuration,
    EpochsConfig,
    LinearConfig,
    StepsConfig,
    StreamsConfig,
    TokenCountConfig,
)
from seqloom.data import dataset as sealing
from seqloom.data.check import load_data
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError, HeldError, RejectedError
from seqloom.recipes.families import SIZES
from seqloom.tasks.task import TASKS, Task, task_class
from seqloom.training import learning_rate
from seqloom.training import resolve as resolving
from seqloom.training import run as front
from seqloom.training.data_defaults import class_weights
from seqloom.training.learning_rate import expected_steps, training_tokens
from seqloom.training.request import RunRequest, requested
from seqloom.training.resolve import Resolved, resolve
from seqloom.training.run import TrainedRun, train
from seqloom.training.run_folder import RunFolder
from seqloom.training.run_location import RunLocation, RunMismatchError, changed
from training_common import BASE, ended, resolved, run, write_data

NO_DATA = b"\xff\xfe not a table \x00"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path)


def opened(data: Path, **settings: Any) -> Resolved:
    request = RunRequest(model="bag", size="nano", training=BASE)
    return resolve(DataConfig(train=(str(data),), **settings), request, cache=data.parent / "cache")


# The test set


def test_a_test_file_that_is_no_data_is_summed_kept_and_not_read(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = tmp_path / "test.csv"
    test.write_bytes(NO_DATA)
    found = opened(data, test=(str(test),))
    assert found.config.data.test == (str(test),)  # for `evaluate --split test`
    assert found.facts.fingerprints[str(test)][0] == len(NO_DATA)
    assert found.config.data.split == RandomSplit(test_size=0.0)  # nothing is drawn for a part that is given
    monkeypatch.setattr(sealing, "OPEN", SPLITS)  # the twin: without the seal it is read
    with pytest.raises(RejectedError, match=r"test\.csv"):
        opened(data, test=(str(test),))


def test_a_test_file_that_is_not_there_is_refused_at_once(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match=r"tset\.csv"):
        opened(data, test=(str(tmp_path / "tset.csv"),))
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("split", [ColumnSplit(split_column="split"), RandomSplit(dev_size=0.2, test_size=0.2)])
def test_rows_of_the_test_part_are_let_go_before_anything_sees_them(
    data: Path, split: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = opened(data, split=split)
    rows = {part: len(numbers) for part, numbers in found.prepared.splits.items()}
    assert rows["test"] == 0 and rows["train"] and rows["dev"]
    assert len(found.prepared.places) == rows["train"] + rows["dev"]  # in no column either
    assert found.facts.split["counts"] == {"train": rows["train"], "dev": rows["dev"]}
    assert not any(finding.code == "split.empty" for finding in found.prepared.findings)
    monkeypatch.setattr(sealing, "OPEN", SPLITS)
    assert len(opened(data, split=split).prepared.splits["test"])


def test_what_test_has_in_common_with_train_is_not_told_by_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{word} {number},{word},train" for number in range(20) for word in ("good", "bad")]
    rows += [row.replace("train", "test") for row in rows[:20]] + ["good film,good,dev", "bad film,bad,dev"]
    path = tmp_path / "leaky.csv"
    path.write_text("\n".join(["text,label,split", *rows, ""]))
    told = [finding.code for finding in opened(path).prepared.findings]
    assert not any(code.startswith("leak") for code in told)
    monkeypatch.setattr(sealing, "OPEN", SPLITS)
    assert any(finding.code.startswith("leak") for finding in opened(path).prepared.findings)


def test_a_cache_that_holds_the_test_part_is_not_the_one_of_training(data: Path) -> None:
    whole = load_data(data, tokenizer=opened(data).config.encoding.tokenizer, cache=data.parent / "cache")
    assert len(whole.splits["test"]) and not len(opened(data).prepared.splits["test"])


@pytest.mark.slow
def test_an_embedded_set_is_written_without_its_test_part() -> None:
    assert [part for part in SPLITS if part not in sealing.OPEN] == ["test"]
    dataset = sealing.open_without_test(DataConfig(train=("brackets",)), sealing.Ledger())
    assert {part for part, _ in dataset.rows(sealing.Ledger())} == set(sealing.OPEN)


# What a run starts from


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a run of two steps on it."""
    place = tmp_path_factory.mktemp("taught")
    run(place / "first", write_data(place), duration=StepsConfig(steps=2), validate_every=2)
    return place


@pytest.mark.slow
def test_a_run_and_its_model_folder_are_the_same_start(taught: Path) -> None:
    starts = [resolved(taught / "data.csv", init=str(taught / "first" / name)).init for name in ("", "model")]
    assert starts[0] is not None and starts[1] is not None
    assert all(torch.equal(weight, starts[1].weights[name]) for name, weight in starts[0].weights.items())


def test_a_run_without_a_model_yet_is_no_start(taught: Path, tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    with pytest.raises(ConfigError, match="has no model yet"):
        resolved(taught / "data.csv", init=str(tmp_path))


def test_a_model_of_init_that_cannot_answer_is_refused_by_the_name_of_the_option(taught: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("red green\nold new\n" * 20)
    request = RunRequest(training=BASE | {"init": str(taught / "first")})
    said = (
        "--init: lm needs a model of kind language-model, found one of kind sequence-model. "
        "Fix: start from a model for the task lm, or leave --init out."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}$"):
        resolve(DataConfig(train=(str(tmp_path / "lines.txt"),), task="lm"), request, cache=tmp_path / "cache")


def started(taught: Path, out: Path, first: Path, steps: int) -> list[Any]:
    """A run that starts from another one, or goes on."""
    request = RunRequest(
        training=BASE | {"init": str(first), "duration": StepsConfig(steps=steps), "validate_every": 2}
    )
    data = DataConfig(train=(str(taught / "data.csv"),), split=ColumnSplit(split_column="split"))
    found = resolve(data, request, location=RunLocation(out), cache=taught / "cache")
    return list(front.train_run(out, found, device=front.choose_device("cpu", "float32"), workers=0))


@pytest.mark.slow
def test_a_run_goes_on_when_the_model_that_it_started_from_is_gone(
    taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = shutil.copytree(taught / "first", tmp_path / "first")
    assert ended(started(taught, tmp_path / "second", first, 2)).step == 2
    shutil.rmtree(first)
    assert ended(started(taught, tmp_path / "second", first, 4)).step == 4
    monkeypatch.setattr(RunLocation, "existing_run", lambda _: None)  # the twin
    with pytest.raises(ConfigError, match="there is no model"):
        started(taught, tmp_path / "second", first, 6)


@pytest.mark.slow
def test_a_run_without_a_checkpoint_still_needs_what_it_starts_from(taught: Path, tmp_path: Path) -> None:
    first = shutil.copytree(taught / "first", tmp_path / "first")
    started(taught, tmp_path / "second", first, 2)
    shutil.rmtree(tmp_path / "second" / "checkpoints")
    shutil.rmtree(first)
    with pytest.raises(ConfigError, match="there is no model"):  # and never begins at random instead
        started(taught, tmp_path / "second", first, 4)


# A run that is there already


def again(taught: Path, out: Path, request: RunRequest) -> tuple[Resolved, list[Any]]:
    """A run in a folder, or what is left of it, with everything that it reported."""
    data = DataConfig(train=(str(taught / "data.csv"),), split=ColumnSplit(split_column="split"))
    found = resolve(data, request, location=RunLocation(out), cache=taught / "cache")
    return found, list(front.train_run(out, found, device=front.choose_device("cpu", "float32"), workers=0))


STUCK = BASE | {"lr": 0.0, "patience": 1, "validate_every": 2, "duration": StepsConfig(steps=12)}  # nothing is learned


@pytest.fixture
def impatient(taught: Path, tmp_path: Path) -> Path:
    """A run that patience ended after its second validation."""
    _, reports = again(taught, tmp_path / "run", RunRequest(model="bag", size="nano", training=STUCK))
    assert (ended(reports).reason, ended(reports).step) == ("patience", 4)
    return tmp_path / "run"


@pytest.mark.slow
def test_a_run_that_patience_ended_goes_on_with_more_of_it(
    taught: Path, impatient: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, reports = again(taught, impatient, RunRequest(training={"patience": 2}))
    assert (ended(reports).reason, ended(reports).step) == ("patience", 6)
    _, reports = again(taught, impatient, RunRequest(training={"patience": 0}))
    assert (ended(reports).reason, ended(reports).step) == ("done", 12)
    monkeypatch.setattr(front, "patience_messages", lambda *_: ())  # the twin
    _, reports = again(taught, impatient, RunRequest(training={"patience": 3}))
    assert ended(reports).step == 12


@pytest.mark.slow
def test_twin_without_a_new_look_at_patience_the_run_stays_ended(
    taught: Path, impatient: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "patience_messages", lambda *_: ())
    _, reports = again(taught, impatient, RunRequest(training={"patience": 2}))
    assert ended(reports).step == 4


@pytest.mark.slow
def test_a_longer_run_without_more_patience_is_told_that_it_will_end_again(taught: Path, impatient: Path) -> None:
    _, reports = again(taught, impatient, RunRequest(training={"duration": StepsConfig(steps=20)}))
    assert any("unless you raise --patience" in line for line in reports[0].messages)
    _, reports = again(taught, impatient, RunRequest(training={"duration": StepsConfig(steps=30), "patience": 9}))
    assert not any("unless you raise --patience" in line for line in reports[0].messages)


@pytest.mark.slow
def test_what_is_not_said_about_a_run_is_as_its_folder_has_it(taught: Path, impatient: Path) -> None:
    before = RunFolder(impatient).config()
    found, _ = again(taught, impatient, RunRequest())
    assert found.config == before and found.before == before
    longer, _ = again(taught, impatient, RunRequest(training={"duration": StepsConfig(steps=14)}))
    assert longer.config.training == msgspec.structs.replace(before.training, duration=StepsConfig(steps=14))
    with pytest.raises(RunMismatchError, match=r"dropout was 0\.\d+ and is now 0\.7") as refused:
        again(taught, impatient, RunRequest(dropout=0.7))
    assert all(change.setting.endswith("dropout") for change in changed(refused.value.before, refused.value.now))


@pytest.mark.slow
def test_twin_without_the_folder_the_usual_settings_are_another_run(
    taught: Path, impatient: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunRequest, "filled", lambda self, _: self)
    with pytest.raises(RunMismatchError, match=r"training\.lr was 0\.0 and is now"):
        again(taught, impatient, RunRequest(model="bag", size="nano"))


@pytest.mark.slow
def test_a_run_in_a_folder_that_nobody_named_is_found_again(
    taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings: dict[str, Any] = {"split_column": "split", "device": "cpu"}
    first = train(taught / "data.csv", model="bag", size="nano", steps=2, lr=0.5, **settings)
    assert first.folder == Path("runs", "data-classify-bag")
    more = train(taught / "data.csv", model="bag", size="nano", steps=4, **settings)
    assert (more.folder, more.end.step) == (first.folder, 4)
    assert RunFolder(more.folder).config().training.lr == 0.5


def test_a_feed_that_is_not_for_the_task_is_refused_before_folders_are_compared_or_made(
    taught: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = RunRequest(model="gru", size="nano", training={"batching": StreamsConfig(batch_rows=4, row_length=20)})
    for out in (taught / "first", tmp_path / "new"):
        with pytest.raises(ConfigError, match="--batching streams is for language models, but the task is classify"):
            again(taught, out, streams)
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(Task, "batchings", (StreamsConfig,))  # the twin
    with pytest.raises(RunMismatchError, match=r"training\.batching\.kind was by-length and is now streams"):
        again(taught, taught / "first", streams)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (RunRequest(training={"metric": "bleu"}), "classify has no metric 'bleu' to choose checkpoints by"),
        (RunRequest(training={"batching": StreamsConfig(batch_rows=4, row_length=20)}), "Fix: leave out --batching"),
        (RunRequest(head="crf"), "classify has no 'crf' head"),
        (RunRequest(class_weights="blanced"), "class weights 'blanced'"),
    ],
)
def test_what_no_data_of_the_task_can_have_is_refused_before_the_data_is_prepared(
    taught: Path, wanted: RunRequest, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolving, "preparing", None)
    with pytest.raises(ConfigError, match=said):
        resolve(DataConfig(train=(str(taught / "data.csv"),), split=ColumnSplit(split_column="split")), wanted)


@pytest.mark.parametrize("kind", [*map(task_class, TASKS)], ids=lambda kind: kind.__name__)
def test_every_metric_that_may_decide_is_known_before_the_data(kind: type[Task]) -> None:
    for metric in kind.metrics:
        kind.check(metric=metric.name)
    with pytest.raises(ConfigError, match=r"'blue' to choose checkpoints by\. (Fix: |Did you mean)"):
        kind.check(metric="blue")


# A call in Python


@pytest.mark.parametrize("name", ["epochs", "steps", "tokens", "seconds"])
def test_a_call_says_how_long_as_the_command_line_does(name: str) -> None:
    _, request = requested(("a.csv",), {name: 3, "seed": 1})
    kinds = {kind.__struct_fields__[0]: kind for kind in get_args(AnyDuration)}
    assert request.training == {"duration": kinds[name](**{name: 3}), "seed": 1}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"modle": "cnn"}, "train has no argument 'modle'. Did you mean 'model'?"),
        ({"epoch": 3}, "Did you mean 'epochs'?"),
        ({"droput": 0.1}, "Did you mean 'dropout'?"),
        ({"rate": 0.1}, "it is called 'lr' here"),
        ({"epochs": 3, "steps": 4}, "epochs and steps both set how long"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused_with_the_nearest_name(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        train("nowhere.csv", **settings)
    assert said in str(refused.value)


def test_a_run_that_has_ended_is_no_tuple() -> None:
    own = {"metrics", "summary", "document", "text", "html", "markdown", "report", "to_json", "to_pandas"}
    assert {name for name in dir(TrainedRun) if not name.startswith("_")} == own


# What is refused before any work


def test_a_folder_in_use_is_refused_before_data_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    with files.hold(out):
        with pytest.raises(HeldError, match="in use by process"):
            train("nowhere.csv", out=out)
        monkeypatch.setattr(RunLocation, "require_usable", lambda _: None)  # the twin
        with pytest.raises(RejectedError, match=r"nowhere\.csv"):
            train("nowhere.csv", out=out)


@pytest.mark.parametrize(
    ("setting", "value"), [("dropout", 0.5), ("label_smoothing", 0.1), ("class_weights", "balanced"), ("size", "big")]
)
def test_a_setting_of_a_recipe_is_refused_for_a_model_that_is_ready(
    taught: Path, setting: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = RunFolder(taught / "first").config().model
    data = taught / "data.csv"
    starts: list[tuple[dict[str, Any], str]] = [({"model": model}, "the given model")]
    starts += [({"init": str(taught / "first")}, "the model of")]
    for ready, source in starts:
        with pytest.raises(ConfigError, match=f"^{setting} cannot be combined with {source}"):
            train("nowhere.csv", out=taught / "none", **ready, **{setting: value})
    monkeypatch.setattr(resolving, "_require_changeable", lambda _: None)  # the twin: nobody would notice
    request = RunRequest(**({"model": model, "training": BASE} | {setting: value}))
    config = DataConfig(train=(str(data),), split=ColumnSplit(split_column="split"))
    assert resolve(config, request, cache=taught / "cache").config.model == model


def test_the_cure_of_class_weights_is_not_what_was_refused(data: Path) -> None:
    prepared = opened(data).prepared
    with pytest.raises(ConfigError, match=r"class weights 'blanced'.*Fix: give 'balanced', or a number for each class"):
        class_weights("blanced", prepared)
    numbers = prepared._replace(schema=Schema(prepared.schema.input, "numbers"))
    with pytest.raises(ConfigError, match=r"one label per example, but the target is numbers\. Fix: leave them out"):
        class_weights("balanced", numbers)


# What is said


def test_labels_are_counted_and_numbers_that_are_names_are_said_aloud(data: Path, tmp_path: Path) -> None:
    assert "labels: 2 (no, yes)" in opened(data).messages
    rows = [f"{'very ' * (number % 7)}good {number},{number % 7}" for number in range(60)]
    (tmp_path / "stars.csv").write_text("\n".join(["text,target", *rows, ""]))
    said = opened(tmp_path / "stars.csv").messages
    assert "labels: 7 (0, 1, 2, 3, 4, ...)" in said
    assert "task: classify ('target' has few different numbers; use --task regress to predict them)" in said


def test_what_was_chosen_for_training_is_told_in_one_line(data: Path) -> None:
    found = resolve(DataConfig(train=(str(data),)), RunRequest(model="bag", size="nano"), cache=data.parent / "cache")
    (line,) = [line for line in found.messages if line.startswith("training: ")]
    settings = found.config.training
    assert settings.patience == learning_rate.PATIENCE and isinstance(settings.schedule, LinearConfig)
    for word in (
        f"{settings.duration.amount} epochs",
        f"{settings.batching.batch_tokens} tokens",
        f"lr {settings.lr:g}",
    ):
        assert word in line
    assert f"linear, warmup {settings.schedule.warmup})" in line and line.endswith("patience 5")


@pytest.mark.parametrize("length", [StepsConfig(steps=20), EpochsConfig(epochs=1), TokenCountConfig(tokens=2_000)])
def test_a_short_run_reaches_its_rate(data: Path, length: AnyDuration, monkeypatch: pytest.MonkeyPatch) -> None:
    def warmup() -> int | None:
        request = RunRequest(model="cnn", size="nano", training={"duration": length})
        found = resolve(DataConfig(train=(str(data),)), request, cache=data.parent / "cache")
        return found.config.training.schedule.warmup

    assert (warmup() or 0) <= 2
    monkeypatch.setattr(learning_rate, "default_warmup", lambda *_: learning_rate.WARMUP)  # the twin
    assert (warmup() or 0) > 20


@pytest.mark.parametrize(
    ("given", "warmup"),
    [
        ({"schedule": "cosine"}, 30),
        ({"schedule": "linear"}, 30),
        ({}, 30),
        ({"schedule": "cosine", "steps": 5_000}, 100),
        ({"schedule": "cosine", "warmup": 7}, 7),
        ({"schedule": "cosine", "warmup": 0}, 0),
        ({"schedule": "constant"}, 0),
        ({"schedule": "plateau"}, 0),
        ({"schedule": "inverse-sqrt"}, 4_000),
    ],
)
def test_a_schedule_that_is_only_named_has_the_warmup_that_help_promises(
    data: Path, given: dict[str, Any], warmup: int
) -> None:
    config, wanted = requested((data,), {"model": "cnn", "size": "nano", "steps": 300} | given)
    assert resolve(config, wanted, cache=data.parent / "cache").config.training.schedule.warmup == warmup


@pytest.mark.parametrize(
    "batching",
    [{"batch_tokens": 4_096}, {"batching": "by-length"}, {"batching": "packs", "batch_rows": 3, "row_length": 128}],
    ids=str,
)
def test_the_warmup_is_a_tenth_of_the_steps_of_the_batching_that_was_named(
    batching: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "prose.txt").write_text("a cat sees the boat in rain\n" * 400)
    named = {"task": "lm", "tokenizer": "characters", "model": "lstm", "size": "nano", "epochs": 10}
    config, wanted = requested((tmp_path / "prose.txt",), named | batching)
    found = resolve(config, wanted, cache=tmp_path / "cache")
    loader = found.task.loader(found.prepared, "train", found.config.training.batching, seed=0, workers=0)
    expected = expected_steps(found.config.training.duration, loader.plan, training_tokens(found.prepared))
    assert expected is not None and expected < 1_000
    assert found.config.training.schedule.warmup == pytest.approx(expected / 10, rel=0.15, abs=1)  # packs have gaps


def test_a_run_whose_schedule_is_named_again_keeps_its_warmup(data: Path) -> None:
    config, wanted = requested((data,), {"model": "cnn", "size": "nano", "steps": 300, "schedule": "cosine"})
    before = resolve(config, wanted, cache=data.parent / "cache").config
    _, longer = requested((data,), {"model": "cnn", "size": "nano", "steps": 600, "schedule": "cosine"})
    assert longer.filled(before).training["schedule"].warmup == 30


def test_a_size_that_nobody_named_is_the_one_that_help_promises(data: Path) -> None:
    from typer.testing import CliRunner

    from seqloom.cli import app

    shown = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).output
    help_text = " ".join(shown.replace("│", " ").split()).partition("--size")[2][:120]
    (promised,) = [size for size in SIZES if f"(default: {size};" in help_text]
    found = resolve(DataConfig(train=(str(data),)), RunRequest(model="bag", training=BASE), cache=data.parent / "cache")
    assert any(f"size {promised}," in said for said in found.messages)
