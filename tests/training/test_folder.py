"""R11: a run goes on only if it is the same one; whatever changed is refused by name, or said aloud."""

import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from checkpoint_common import ALONE, HERE, checkpoint
from durable_common import QUICK, listing
from seqloom import files, recipes
from seqloom.config.data import BadRows, DataConfig, EncodingConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.tokenizers import CharactersConfig
from seqloom.config.training import ConstantConfig, EpochsConfig, RunConfig, StepsConfig, TrainingConfig
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError, DamagedError, DurableError
from seqloom.tasks.task import ModelSpec
from seqloom.training import checkpoint as checkpoints
from seqloom.training import run_folder
from seqloom.training import run_location as run_changes
from seqloom.training.devices import Device
from seqloom.training.run_folder import DataFacts, RunFolder
from seqloom.training.run_location import changed_environment, require_run_folder
from seqloom.training.state import Environment

CPU = Device(torch.device("cpu"))
FACTS = DataFacts(
    fingerprints={"train.csv": {"size": 120, "sha256": "ab" * 32}},
    split={"rule": {"kind": "random", "dev_size": 0.1}, "counts": {"train": 90, "dev": 10}},
)
MEANING = ModelSpec(Schema("text", "label", ("bad", "good")), CharactersConfig().fit(["abc"]), None)
CONFIG = RunConfig(
    task="classify",
    data=DataConfig(train=("train.csv",)),
    encoding=EncodingConfig(),
    model=recipes.classifier("gru", inputs=TokensConfig(vocab_size=9), num_classes=2, size="nano"),
    training=TrainingConfig(),
)

OTHER_MODEL = recipes.classifier("lstm", inputs=TokensConfig(vocab_size=9), num_classes=2, size="nano")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody pulls the plug here: no sync is waited for."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def start(run: RunFolder, config: RunConfig = CONFIG, facts: DataFacts = FACTS, spec: ModelSpec = MEANING) -> tuple:
    return run.start(config, facts, spec, CPU, ALONE)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that has been begun."""
    begun = RunFolder(tmp_path / "run")
    start(begun)
    return begun


@pytest.fixture
def kept(run: RunFolder) -> RunFolder:
    """A run that has been begun and has kept a model."""
    run.model.mkdir()
    return run


def trained(**settings: Any) -> RunConfig:
    return msgspec.structs.replace(CONFIG, training=msgspec.structs.replace(CONFIG.training, **settings))


def test_a_run_that_begins_says_everything_and_reads_back_as_it_was(run: RunFolder) -> None:
    assert listing(run.path) == ["checkpoints", "config.toml", "data.json", "vocabulary"]
    assert run.config() == CONFIG
    assert run.data() == FACTS
    found = run.spec()
    assert (found.schema, found.sizes, found.numbers) == (MEANING.schema, (), 0)
    assert found.tokenizer.to_json() == MEANING.tokenizer.to_json() and found.target_tokenizer is None
    assert (run.metrics(), run.events(), run.test_evaluations(), run.run_state(), run.machine()) == (
        [],
        [],
        [],
        None,
        None,
    )


def test_the_same_run_goes_on_without_a_word(run: RunFolder) -> None:
    before = (run.path / "config.toml").stat().st_mtime_ns
    assert start(run) == ()
    assert (run.path / "config.toml").stat().st_mtime_ns == before


def other_facts(**changes: Any) -> DataFacts:
    return msgspec.structs.replace(FACTS, **changes)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a changed data file": (
        {"facts": other_facts(fingerprints={"train.csv": {"size": 121, "sha256": "cd" * 32}})},
        r"file train.csv was .*120.*and is now .*121",
    ),
    "a data file too many": (
        {"facts": other_facts(fingerprints={**FACTS.fingerprints, "more.csv": {"size": 1}})},
        r"file more.csv was missing and is now size 1",
    ),
    "other rows in the parts": (
        {"facts": other_facts(split={**FACTS.split, "counts": {"train": 89, "dev": 11}})},
        r"split: counts was train 90, dev 10 and is now train 89, dev 11",
    ),
    "another rate": ({"config": trained(lr=0.5)}, r"training.lr was 0.001 and is now 0.5"),
    "another seed": ({"config": trained(seed=9)}, r"training.seed was 0 and is now 9"),
    "another schedule": (
        {"config": trained(schedule=ConstantConfig())},
        r"training.schedule.kind was linear .* constant",
    ),
    "fewer epochs": (
        {"config": trained(duration=EpochsConfig(epochs=9))},
        r"training.duration.epochs was 10 and is now 9",
    ),
    "another kind of length": (
        {"config": trained(duration=StepsConfig(steps=1000))},
        r"training.duration.kind was epochs and is now steps",
    ),
    "another architecture": (
        {"config": msgspec.structs.replace(CONFIG, model=OTHER_MODEL)},
        r"model\.[a-z0-9.]+ was .* and is now ",
    ),
    "another vocabulary": (
        {"spec": MEANING._replace(tokenizer=CharactersConfig().fit(["abcdef"]))},
        r"vocabulary: tokenizer.json was [0-9,]+ bytes, sha256 [0-9a-f]{12} and is now",
    ),
    "other labels": (
        {"spec": MEANING._replace(schema=Schema("text", "label", ("bad", "fine")))},
        r"vocabulary: labels.json was",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_another_run_is_refused_with_both_values_and_a_free_folder(kept: RunFolder, name: str) -> None:
    run = kept
    run.path.with_name("run-2").mkdir()
    before = (run.path / "config.toml").read_bytes()
    changes, message = REFUSED[name]
    with pytest.raises(ConfigError, match=rf"run contains a different run: .*{message}.*new folder: .*run-3") as raised:
        start(run, **changes)
    assert sum(part.startswith("model.") for part in str(raised.value).split("; ")) <= run_changes.LAYERS
    assert (run.path / "config.toml").read_bytes() == before


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_that_kept_nothing_leaves_its_folder_to_another_one_which_says_what_changed(
    run: RunFolder, name: str
) -> None:
    changes, message = REFUSED[name]
    left = [run.path / name for name in ("metrics.jsonl", "events.jsonl", "memory.json")]
    for path in left:
        path.write_text("of the run before\n")
    (said,) = start(run, **changes)
    assert not any(path.exists() for path in left)
    assert re.search(rf"saved no checkpoint, so this run replaces it: .*{message}", said)
    assert start(run, **changes) == ()
    assert (run.config(), run.data()) == (changes.get("config", CONFIG), changes.get("facts", FACTS))
    assert run.spec().schema == changes.get("spec", MEANING).schema


def test_all_that_changed_is_told_at_once(kept: RunFolder) -> None:
    changes = REFUSED["a changed data file"][0] | REFUSED["another rate"][0] | REFUSED["other labels"][0]
    with pytest.raises(ConfigError, match=r"train.csv was .*training.lr was .*labels.json was "):
        start(kept, **changes)


def test_twin_without_the_comparison_another_rate_goes_on_silently(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "changed", lambda *_: ())
    assert start(run, trained(lr=0.5)) == ()


def test_a_longer_run_goes_on_and_a_later_start_finds_the_new_length(run: RunFolder) -> None:
    longer = trained(duration=EpochsConfig(epochs=25))
    (said,) = start(run, longer)
    assert said.startswith("the run continues to 25 epochs (before: 10); the learning rate schedule is stretched")
    assert run.config() == longer
    assert start(run, longer) == ()


def test_a_longer_run_of_a_constant_rate_has_nothing_to_say_about_it(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    start(run, trained(schedule=ConstantConfig()))
    (said,) = start(run, trained(schedule=ConstantConfig(), duration=EpochsConfig(epochs=11)))
    assert said == "the run continues to 11 epochs (before: 10)"


def test_a_step_may_be_cut_finer_with_a_word_but_not_coarser(kept: RunFolder) -> None:
    run = kept
    (said,) = start(run, trained(accumulate=4))
    assert said.startswith("each step now accumulates 4 micro-batches (before: 1): less memory, the same gradient")
    assert run.config().training.accumulate == 4
    with pytest.raises(ConfigError, match=r"training\.accumulate was 4 and is now 2"):
        start(run, trained(accumulate=2))


@pytest.mark.parametrize(
    ("patience", "said"),
    [
        (9, "this run now has patience 9; before it had no early stopping"),
        (0, ""),
    ],
)
def test_patience_may_change_with_a_word(run: RunFolder, patience: int, said: str) -> None:
    assert "".join(start(run, trained(patience=patience))) == said
    assert run.config().training.patience == patience
    (back,) = start(run, trained(patience=2))
    assert back.startswith("this run now has patience 2")


def test_twin_a_patience_that_counts_as_a_change_is_refused(kept: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_changes, "CHANGEABLE", {"training.keep_checkpoints"})
    with pytest.raises(ConfigError, match=r"training\.patience was 0 and is now 9"):
        start(kept, trained(patience=9))


def test_the_rule_for_bad_rows_may_change_for_it_decides_nothing_about_rows_that_are_read(kept: RunFolder) -> None:
    data = msgspec.structs.replace(CONFIG.data, bad_rows=BadRows(skip_bad_rows=True, max_bad_rows=0.5))
    lenient = msgspec.structs.replace(CONFIG, data=data)
    assert start(kept, lenient) == () and kept.config() == lenient


def test_how_many_checkpoints_are_kept_may_change(run: RunFolder) -> None:
    assert start(run, trained(keep_checkpoints=7)) == ()
    assert run.config().training.keep_checkpoints == 7


# What warns: the environment


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("torch", "2.11"),
        ("python", "3.12"),
        ("threads", 2),
        ("ranks", 2),
        ("sharded", True),
        ("capability", "AVX512"),
        ("device", "cuda: NVIDIA H200"),
        ("seqloom", "0"),
    ],
)
def test_another_machine_or_library_is_said_aloud(field: str, value: Any) -> None:
    (said,) = changed_environment(HERE, msgspec.structs.replace(HERE, **{field: value}))
    assert said.startswith(
        f"{field}: {getattr(HERE, field)} when the checkpoint was saved, {value} now; the run continues"
    )
    assert changed_environment(HERE, HERE) == ()


def test_every_field_of_the_environment_is_compared() -> None:
    other = Environment(**dict.fromkeys(HERE.__struct_fields__, "other"))  # type: ignore[arg-type]
    assert len(changed_environment(HERE, other)) == len(HERE.__struct_fields__)


def test_a_start_compares_with_the_newest_checkpoint_that_can_be_read(run: RunFolder) -> None:
    for step in (10, 20):
        checkpoints.save(run.checkpoints, checkpoint(step), ALONE, files=QUICK)
    assert run.run_state().step == 20
    assert any(said.startswith("torch: 2.13 when") for said in start(run))
    for name in ("state.json", "machine.json"):
        (run.checkpoints / "step-00000020" / name).write_text("{}")
    assert run.run_state().step == 10 and run.machine().seconds == 10


# Where a run may be


def test_a_file_instead_of_a_folder_and_a_folder_of_somebody_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.tex").write_text("mine")
    for name, message in {
        "file": "file is a file; a run needs a folder",
        "file/run": "file is a file; a run needs a folder",
        "thesis": "thesis contains chapter.tex but no config.toml.*thesis-2",
    }.items():
        for act in (start, lambda run: run.held().__enter__()):
            with pytest.raises(ConfigError, match=message):
                act(RunFolder(tmp_path / name))
    assert listing(tmp_path) == ["file", "thesis"] and listing(tmp_path / "thesis") == ["chapter.tex"]


def test_folders_above_a_run_are_made(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "runs" / "first" / "films")
    start(run)
    assert run.exists()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(ConfigError, match=r"is not writable.*choose another folder"):
        require_run_folder(tmp_path / "run")


def test_a_run_that_lost_its_configuration_is_not_begun_anew(run: RunFolder) -> None:
    checkpoints.save(run.checkpoints, checkpoint(10), ALONE, files=QUICK)
    (run.path / "config.toml").unlink()
    with pytest.raises(ConfigError, match=r"contains checkpoints but no config.toml"):
        start(run)
    assert checkpoints.newest(run.checkpoints, ALONE)[0] is not None


def test_a_damaged_vocabulary_or_data_file_is_told(run: RunFolder) -> None:
    whole = (run.path / "data.json").read_bytes()
    (run.path / "data.json").write_bytes(whole[:-9])
    with pytest.raises(DamagedError, match=r"data.json: the facts about the data are not readable"):
        start(run)
    (run.path / "data.json").write_bytes(whole)
    (run.path / "vocabulary/labels.json").write_text('["bad","nice"]')
    with pytest.raises(DamagedError, match=r"labels.json: expected .* sha256"):
        start(run)


def test_leftovers_of_a_crash_are_recovered_at_the_next_start(run: RunFolder) -> None:
    files.replace_folder(run.model, {"a": b"1"}, files=QUICK)
    run.model.rename(run.path / ".model.old-0123456789abcdef")  # killed between the two renames
    (run.path / ".config.toml.tmp-0123456789abcdef").write_text("half")
    checkpoints.save(run.checkpoints, checkpoint(10), ALONE, files=QUICK)
    step = run.checkpoints / "step-00000010"
    step.rename(run.checkpoints / ".step-00000010.old-0123456789abcdef")
    (run.checkpoints / ".step-00000020.partial-0123456789abcdef").mkdir()
    start(run)
    assert files.verify_folder(run.model) and files.verify_folder(step)
    assert not [*run.path.glob(".*"), *run.checkpoints.glob(".*")]


# Starts that are interrupted


def interrupted_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The process ends at its so-manieth rename."""
    count = [0]
    rename = Path.rename

    def counted(old: Path, new: Path) -> Path:
        count[0] += 1
        if count[0] == number:
            raise KeyboardInterrupt
        return rename(old, new)

    monkeypatch.setattr(Path, "rename", counted)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_start_that_was_interrupted_is_taken_up_again_also_with_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    run = RunFolder(tmp_path / "run")
    with monkeypatch.context() as patched:
        interrupted_at(patched, number)
        with pytest.raises(KeyboardInterrupt):
            start(run)
    assert not (run.path / "config.toml").exists()
    other = MEANING._replace(schema=Schema("text", "label", ("one", "two")))
    assert start(run, trained(lr=0.5), spec=other) == ()
    assert run.config().training.lr == 0.5 and run.spec().schema.labels == ("one", "two")


def test_twin_a_configuration_written_first_makes_half_a_run_look_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path / "run")
    begin = RunFolder._begin

    def config_first(self: RunFolder, config: RunConfig, *others: Any) -> None:
        files.write_file(self.path / "config.toml", config.to_toml())
        begin(self, config, *others)

    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "_begin", config_first)
        interrupted_at(patched, 2)
        with pytest.raises(KeyboardInterrupt):
            start(run)
    with pytest.raises(DurableError):
        start(run)
