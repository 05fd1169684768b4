"""Claims about files of earlier versions: their settings are read under today's names, and a run says what to do."""

import warnings
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from seqloom.cli import main
from seqloom.config.base import Config, from_data, read
from seqloom.config.data import BadRows, RandomSplit
from seqloom.config.old_names import KEYS, KINDS, renamed, renamed_facts, renamed_line
from seqloom.config.training import (
    AnyDuration,
    ByLengthConfig,
    CosineConfig,
    InverseSqrtConfig,
    RunConfig,
    SgdConfig,
    SpaceConfig,
    StepsConfig,
    TokenCountConfig,
)
from seqloom.errors import ConfigError
from seqloom.experiments.doctor.diagnosis import data_findings
from seqloom.files.jsonl import append_line
from seqloom.training.run_folder import RunFolder
from seqloom.training.run_location import RunLocation

OLD = """
kind = "run"
task = "classify"

[data]
kind = "data"
train = ["reviews.csv"]

[data.split]
kind = "random"
dev = 0.2
test = 0.1
seed = 7

[data.bad_rows]
skip = true
share = 0.01

[encoding]
kind = "encoding"
longest = 99
too_long = "refuse"

[encoding.tokenizer]
kind = "words"
limit = 500
least = 2
split = "space"
lower = true
unicode = "nfc"
or_lower = false
letters = true

[model]
kind = "sequence-model"
pooling = "mean"

[model.encoder]
kind = "encoder"
width = 8

[model.encoder.input]
kind = "spelled"
vocab_size = 500
letters = "cnn"

[[model.encoder.layers]]
kind = "block"

[model.encoder.layers.mixer]
kind = "gru"

[model.head]
kind = "class"
num_classes = 2
smoothing = 0.1

[training]
rate = 0.01
clip = 2.0
pieces = 3
keep = 4
average = 0.9
report_every = 5
patience = 0

[training.length]
kind = "steps"
count = 120

[training.feed]
kind = "by-length"
budget = 512

[training.optimiser]
kind = "sgd"
decay = 0.001

[training.schedule]
kind = "inverse-root"
warm_up = 30
"""


def test_a_configuration_of_an_earlier_version_is_read_under_new_names_with_one_warning(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(OLD)
    with pytest.warns(UserWarning, match=r"config\.toml uses setting names of an earlier version") as warned:
        found: RunConfig = read(tmp_path / "config.toml", RunConfig)
    assert len(warned) == 1
    training = found.training
    assert (training.lr, training.clip_norm, training.accumulate, training.keep_checkpoints) == (0.01, 2.0, 3, 4)
    assert (training.ema, training.log_every) == (0.9, 5)
    assert training.duration == StepsConfig(steps=120) and training.batching == ByLengthConfig(batch_tokens=512)
    assert training.optimizer == SgdConfig(weight_decay=0.001) and training.schedule == InverseSqrtConfig(warmup=30)
    assert found.data.split == RandomSplit(dev_size=0.2, test_size=0.1, split_seed=7)
    assert found.data.bad_rows == BadRows(skip_bad_rows=True, max_bad_rows=0.01)
    assert (found.encoding.max_length, found.encoding.overlong) == (99, "error")
    tokenizer: Any = found.encoding.tokenizer
    assert (tokenizer.vocab_size, tokenizer.min_count, tokenizer.word_split) == (500, 2, "space")
    assert (tokenizer.lowercase, tokenizer.normalize, tokenizer.keep_characters) == (True, "nfc", True)
    model: Any = found.model
    assert model.head.label_smoothing == 0.1 and model.encoder.input.char_encoder == "cnn"
    (tmp_path / "config.toml").write_text(found.to_toml())
    assert read(tmp_path / "config.toml", RunConfig) == found  # and without a warning, which would be an error


def test_a_search_space_of_an_earlier_version_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text('kind = "space"\nbatch = [64]\nrate = {low = 0.1, high = 0.2}\n')
    with pytest.warns(UserWarning, match="earlier version"):
        found: SpaceConfig = read(tmp_path / "space.toml", SpaceConfig)
    assert found.batch_tokens == (64,) and found.lr.high == 0.2


def every_kind(base: type[Config]) -> dict[str, set[str]]:
    """The fields of every kind; of two kinds with one tag, both."""
    found: dict[str, set[str]] = {}
    for one in base.__subclasses__():
        found.setdefault(one.kind(), set()).update(field.name for field in msgspec.structs.fields(one))
        for kind, fields in every_kind(one).items():
            found.setdefault(kind, set()).update(fields)
    return found


def test_every_new_name_is_a_field_and_no_old_one_is() -> None:
    fields = every_kind(Config)
    for kind, names in KEYS.items():
        known = fields[KINDS.get(kind, kind)]
        assert set(names.values()) <= known, kind
        assert not set(names) & known, kind


def test_current_names_stay_as_they_are() -> None:
    for kind in get_args(AnyDuration):
        (name,) = kind.__struct_fields__
        plain = msgspec.to_builtins(kind(**{name: 3}))
        assert renamed(plain) == plain
    assert renamed(msgspec.to_builtins(CosineConfig(warmup=3))) == msgspec.to_builtins(CosineConfig(warmup=3))


def test_the_value_of_a_duration_in_tokens_keeps_its_meaning() -> None:
    assert renamed({"kind": "symbols", "count": 9}) == msgspec.to_builtins(TokenCountConfig(tokens=9))


def test_a_key_under_both_names_is_left_for_the_reader_to_refuse() -> None:
    assert renamed({"kind": "training", "rate": 1.0, "lr": 2.0}) == {"kind": "training", "rate": 1.0, "lr": 2.0}


def test_log_lines_of_an_earlier_version_are_read_under_new_names(tmp_path: Path) -> None:
    step = {"kind": "step", "step": 10, "rate": 0.1, "norm": 1.0, "largest": 2.0, "share": 0.5, "symbols": 70}
    sample = {"input": "a film", "said": "bad", "true": "good", "right": False}
    append_line(tmp_path / "metrics.jsonl", step)
    append_line(tmp_path / "metrics.jsonl", {"kind": "validation", "step": 10, "samples": [sample]})
    first, second = RunFolder(tmp_path).metrics()
    assert first == {
        "kind": "step",
        "step": 10,
        "lr": 0.1,
        "grad_norm": 1.0,
        "max_grad_norm": 2.0,
        "progress": 0.5,
        "tokens": 70,
    }
    assert second["samples"] == [{"input": "a film", "predicted": "bad", "expected": "good", "correct": False}]
    assert renamed_line({"kind": "ended", "why": "done", "pace": {"waited": 0.1}}) == {
        "kind": "end",
        "reason": "done",
        "speed": {"data_wait": 0.1},
    }


OLD_FACTS = """{
  "fingerprints": {"d.tsv": [2213, "d58ceeeb683dec1377ff92ce39e111fc18282522fbd93f76fec7a6095f49071f"]},
  "split": {
    "rule": {"kind": "random", "dev": 0.1, "test": 0.2, "seed": 7, "group": null},
    "counts": {"train": 96, "dev": 12}
  },
  "findings": [["warn", "text.short", 2, [["d.tsv:2", "one word", "check it"]]]],
  "said": ["input: 'text' (by name)", "task: classify (from the target)"]
}"""


def test_the_facts_about_data_of_an_earlier_version_are_read_under_new_names(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text(OLD_FACTS)
    facts = RunFolder(tmp_path).data()
    assert facts.messages == ["input: 'text' (by name)", "task: classify (from the target)"]
    assert facts.split["counts"] == {"train": 96, "dev": 12}
    rule = {"kind": "random", "dev_size": 0.1, "test_size": 0.2, "split_seed": 7, "group": None}
    assert facts.split["rule"] == rule
    assert from_data(rule, RandomSplit) == RandomSplit(dev_size=0.1, test_size=0.2, split_seed=7)
    (found,) = data_findings(RunFolder(tmp_path))
    assert (found.code, found.rows, found.samples[0].fix) == ("text.short", 2, "check it")
    current = msgspec.to_builtins(facts)
    assert renamed_facts(current) == current


def test_test_evaluations_of_an_earlier_version_are_counted(tmp_path: Path) -> None:
    append_line(tmp_path / "looks.jsonl", {"metrics": {"accuracy": 0.6}})
    assert [one["metrics"] for one in RunFolder(tmp_path).test_evaluations()] == [{"accuracy": 0.6}]


def test_a_run_of_an_earlier_version_is_not_resumed_and_says_what_to_do(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints" / "step-00000020").mkdir(parents=True)
    (run / "checkpoints" / "step-00000020" / "standing.json").write_text("{}")
    (run / "config.toml").write_text(OLD)
    with pytest.raises(ConfigError, match=r"earlier version .*Fix: start from its weights: --init .*run --out .*run-2"):
        RunLocation(run).existing_run()


def test_the_command_line_prints_the_warning_as_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text(OLD)
    monkeypatch.setattr("sys.argv", ["seqloom", "train", "--config", str(tmp_path / "config.toml"), "--out", "run"])
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        with pytest.raises(SystemExit):
            main()
    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith("warning: ") and first.endswith("they are read as the new names")
    assert "UserWarning" not in "".join(others) and "warnings.warn" not in "".join(others)
