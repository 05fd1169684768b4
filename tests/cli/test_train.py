"""Claims about `seqloom train`: options become typed settings or one clear error, and a display only tells."""

import io
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from rich.console import Console
from rich.text import Text
from typer.main import get_command
from typer.testing import CliRunner

from seqloom import recipes
from seqloom.cli import app, terminal
from seqloom.cli.terminal import LiveLines, PlainLines, display, followed, packed, summary
from seqloom.cli.train import error_in_flags
from seqloom.config.base import with_setting
from seqloom.config.data import ColumnSplit, DataConfig, EncodingConfig, GivenSplit, RandomSplit
from seqloom.config.inputs import TokensConfig
from seqloom.config.options import said
from seqloom.config.tokenizers import WordsConfig
from seqloom.config.training import (
    AdamWConfig,
    ByLengthConfig,
    CosineConfig,
    LinearConfig,
    PacksConfig,
    RunConfig,
    SgdConfig,
    StepsConfig,
    StreamsConfig,
    TrainingConfig,
)
from seqloom.data import order
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError, HeldError, SeqloomError
from seqloom.files.jsonl import write_lines
from seqloom.files.lock import hold
from seqloom.tasks.task import ModelSpec, Task, task_of
from seqloom.text.tokenizer import fit
from seqloom.training import learning_rate
from seqloom.training.events import Ended, Notice, Report, Sample, Saved, Speed, Started, Stepped, Validated
from seqloom.training.request import requested
from seqloom.training.resolve import resolve
from seqloom.training.run_folder import RunFolder
from seqloom.training.run_location import RunMismatchError
from seqloom.training.state import Environment

ROOT = Path(__file__).parents[2]
ENVIRONMENT = Environment(
    seqloom="0", torch="2", python="3", device="cpu", capability="AVX2", threads=1, ranks=1, sharded=False
)


# --- options ---------------------------------------------------------------------------------------------------------


def test_options_that_were_not_given_set_nothing() -> None:
    assert said(TrainingConfig, {}) == {}


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ({"steps": 20}, {"duration": StepsConfig(steps=20)}),
        ({"batch_tokens": 512}, {"batching": ByLengthConfig(batch_tokens=512)}),
        (
            {"batching": "streams", "batch_rows": 8, "row_length": 35},
            {"batching": StreamsConfig(batch_rows=8, row_length=35)},
        ),
        (
            {"batching": "packs", "batch_rows": 4, "row_length": 256},
            {"batching": PacksConfig(batch_rows=4, row_length=256)},
        ),
        ({"optimizer": "sgd", "momentum": 0.5}, {"optimizer": SgdConfig(momentum=0.5)}),
        ({"weight_decay": 0.1}, {"optimizer": AdamWConfig(weight_decay=0.1)}),
        ({"schedule": "cosine", "warmup": 7}, {"schedule": CosineConfig(warmup=7)}),
        ({"warmup": 7}, {"schedule": LinearConfig(warmup=7)}),
        ({"metric": "bleu"}, {"metric": "bleu"}),
        ({"freeze": ["encoder.*"]}, {"freeze": ("encoder.*",)}),
        ({"precision": "bf16"}, {"precision": "bf16"}),
        ({"precision": "auto"}, {}),
        ({"compile": True, "deterministic": True}, {"compile": True, "deterministic": True}),
        ({"lr": 0.5, "clip_norm": 0.0, "seed": 3}, {"lr": 0.5, "clip_norm": 0.0, "seed": 3}),
    ],
)
def test_an_option_becomes_its_setting_and_no_other(given: dict[str, Any], settings: dict[str, Any]) -> None:
    assert said(TrainingConfig, given) == settings


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--epochs", "0"], "--epochs: expected a whole number"),
        (["--epochs", "2", "--steps", "3"], "--epochs and --steps both set how long"),
        (
            ["--batch-tokens", "8", "--batching", "packs", "--batch-rows", "2", "--row-length", "2"],
            "--batch-tokens is a setting of by-length, not of packs",
        ),
        (["--batch-rows", "3"], "--batch-rows is a setting of streams, packs, not of by-length"),
        (["--batching", "stream"], "--batching: unknown name 'stream'. Did you mean 'streams'?"),
        (["--batching", "streams", "--batch-rows", "0", "--row-length", "4"], "--batch-rows: expected a whole number"),
        (["--lr", "-1"], "--lr: expected a number"),
        (["--accumulate", "0"], "--accumulate: expected a whole number"),
        (["--optimizer", "adm"], "Did you mean 'adam'?"),
        (["--momentum", "0.5"], "--momentum is a setting of sgd"),
        (["--optimizer", "sgd", "--momentum", "1.5"], "--momentum: expected a number"),
        (["--schedule", "cosin"], "Did you mean 'cosine'?"),
        (
            ["--ema", "0.9", "--average-checkpoints", "3"],
            "ema and average_checkpoints cannot be combined: both average the weights",
        ),
        (["--class-weights", "1,x"], "--class-weights '1,x'"),
        (["--dropout", "1"], "--dropout: expected a number of at least 0 and below 1"),
        (["--size", "huge"], "--size: unknown name 'huge'"),
        (["--model", "lsmt"], "Did you mean 'lstm'?"),
        (["--model", "nowhere.toml"], "there is no such file"),
        (["--init", "other", "--dropout", "0.1"], "--dropout cannot be combined with the model of --init"),
        (["--device", "tpu"], "--device 'tpu'"),
        (["--precision", "fp8"], "--precision 'fp8'"),
        (["--workers", "-1"], "--workers -1"),
        (["--processes", "0"], "--processes 0"),
        (["--max-restarts", "2"], "--max-restarts needs several processes"),
        (["--config", "run.toml"], "run.toml contains all settings of the run, and the data would change them"),
        (["--max-bad-rows", "maybe"], "--max-bad-rows 'maybe'"),
        (["--tokenizer", "letters"], "--tokenizer: unknown name 'letters'"),
    ],
)
def test_what_cannot_mean_anything_is_refused_before_data_is_read(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(app, ["train", "nowhere.csv", *arguments])
    assert isinstance(run.exception, SeqloomError), run.output
    assert said in str(run.exception)
    assert "nowhere.csv" not in str(run.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "there is no data to train on"),
        (["--out", "none"], "none contains no run to resume"),
        (["--out", "run", "--lr", "3"], "contains all settings of the run, and --lr would change them"),
        (["--config", "run/config.toml", "--tokenizer", "bpe"], "and --tokenizer would change them"),
    ],
)
def test_without_data_a_run_that_is_written_down_is_wanted_and_nothing_beside_it(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "config.toml").touch()
    run = CliRunner().invoke(app, ["train", *arguments])
    assert isinstance(run.exception, SeqloomError)
    assert said in str(run.exception)


def test_a_model_from_a_file_is_refused_the_settings_of_a_recipe(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(recipes.classifier("bag", inputs=TokensConfig(vocab_size=9), num_classes=2, size="nano").to_toml())
    run = CliRunner().invoke(
        app, ["train", "nowhere.csv", "--model", str(own), "--size", "nano", "--label-smoothing", "0.1"]
    )
    assert f"--size, --label-smoothing cannot be combined with {own}" in str(run.exception)


def test_a_folder_in_use_is_refused_before_data_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    with hold(out):
        run = CliRunner().invoke(app, ["train", "nowhere.csv", "--out", str(out)])
        assert isinstance(run.exception, HeldError)
        monkeypatch.setenv("RANK", "1")  # the first of several processes holds it for all
        run = CliRunner().invoke(app, ["train", "nowhere.csv", "--out", str(out)])
        assert "nowhere.csv" in str(run.exception)


def _options(*verbs: str) -> set[str]:
    command: Any = get_command(app)
    for verb in verbs:
        command = command.commands[verb]
    return {flag for one in command.params for flag in one.opts if flag.startswith("--")}


def test_every_verb_that_reads_data_has_the_options_of_the_data_check() -> None:
    own = {"--batch-tokens", "--html"}
    assert len(_options("data", "check")) > 25
    for verb in ("train", "tune"):
        assert _options("data", "check") - own <= _options(verb)
    asked = {"--input", "--format", "--encoding", "--delimiter", "--header", "--template", "--unit"}
    assert asked | {"--batch-tokens", "--device"} <= _options("predict") & _options("evaluate")


def test_the_page_tells_what_to_type_next_as_the_command_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "_has_test", lambda _: True)
    summary(
        Path("runs/reviews-classify-cnn"),
        Ended(48, "done", 48, 48, {"accuracy": 0.9}, pace(), 0),
        task("text", "label"),
        json=False,
    )
    told = capsys.readouterr().out
    page = (ROOT / "docs" / "train.md").read_text(encoding="utf-8")
    assert told[told.index("next:") :] in page
    verbs = re.findall(r"seqloom (\w+) runs", told.partition("next:")[2])
    assert verbs == ["doctor", "evaluate", "predict", "predict", "inspect"], "first whether it is sound, then its use"


def _help(verb: str) -> str:
    return CliRunner().invoke(app, [verb, "--help-all"], env={"COLUMNS": "200"}).output


def test_all_help_stands_in_groups_and_the_page_lists_every_option() -> None:
    assert {"Model", "Duration", "Batches", "Optimizer", "Hardware", "Tokens"} <= set(_groups("train"))
    page = (ROOT / "docs" / "train.md").read_text(encoding="utf-8")
    flags = _options("train") - {"--help", "--help-all"}
    assert len(flags) > 50
    assert sorted(flag for flag in flags if f"`{flag}" not in page) == []


def _groups(verb: str) -> list[str]:
    return re.findall(r"^(\S[^:]*):$", _help(verb), re.MULTILINE)


def test_help_has_the_run_before_the_model_and_the_data_last() -> None:
    own = ["Run", "Model", "Duration", "Batches", "Optimizer", "Hardware"]
    data = ["Training, validation and test sets", "Task and columns", "Reading files", "Tokens", "Help"]
    assert _groups("train") == ["Examples", "Arguments", *own, *data]
    found = _groups("tune")
    assert found[:4] == ["Examples", "Arguments", "Search", "Duration"] and found[-6:-2] == data[:4]


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--epochs", f"default: {learning_rate.FEWEST} to {learning_rate.MOST}, fewer for more data"),
        ("--patience", f"default: {learning_rate.PATIENCE})"),
        ("--batch-tokens", f"default: {order.SMALLEST_BATCH} to {order.LARGEST_BATCH:,},"),
        ("--warmup", f"for linear and cosine a tenth of all steps, at most {learning_rate.WARMUP}"),
        ("--clip-norm", f"default: {TrainingConfig().clip_norm:g})"),
        ("--keep-checkpoints", f"default: {TrainingConfig().keep_checkpoints})"),
        ("--optimizer", f"default: {TrainingConfig().optimizer.kind()};"),
        ("--lr", "default: depends on model and size"),
        ("--dropout", "default: from the recipe"),
    ],
)
def test_the_defaults_in_help_are_those_of_the_program(flag: str, words: str) -> None:
    said = " ".join(_help("train").split()).split(f" {flag} ")[-1]
    assert words in said[:140]


# --- refusals --------------------------------------------------------------------------------------------------------


def _run_config(dropout: float = 0.2, size: str = "nano", **settings: Any) -> RunConfig:
    model = recipes.classifier("gru", inputs=TokensConfig(vocab_size=9), num_classes=2, size=size)  # type: ignore[arg-type]
    return RunConfig(
        task="classify",
        data=DataConfig(train=("a.csv",)),
        encoding=EncodingConfig(),
        model=with_setting(model, "dropout", dropout),
        training=TrainingConfig(**settings),
    )


@pytest.mark.parametrize(
    ("now", "given", "said"),
    [
        (_run_config(dropout=0.3), ["dropout"], ["--dropout was 0.2 and is now 0.3"]),
        (_run_config(lr=0.5), ["lr"], ["--lr was 0.001 and is now 0.5"]),
        (_run_config(validate_every=5), ["validate_every"], ["--validate-every was 0 and is now 5"]),
        (_run_config(duration=StepsConfig(steps=9)), ["steps"], ["it was --epochs 10 and is now --steps 9"]),
        (
            _run_config(batching=StreamsConfig(batch_rows=4, row_length=20)),
            ["batching", "batch_rows", "row_length"],
            [
                "it was --batching by-length --batch-tokens 4096 "
                "and is now --batching streams --batch-rows 4 --row-length 20"
            ],
        ),
        (
            _run_config(schedule=CosineConfig(warmup=7)),
            ["schedule", "warmup"],
            ["it was --schedule linear --warmup 100 and is now --schedule cosine --warmup 7"],
        ),
        (
            _run_config(optimizer=SgdConfig()),
            ["optimizer"],
            ["it was --optimizer adamw --weight-decay 0.01 and is now --optimizer sgd --momentum 0.9 --weight-decay 0"],
        ),
    ],
)
def test_another_run_is_refused_in_the_flags_that_were_typed_and_each_once(
    now: RunConfig, given: list[str], said: list[str]
) -> None:
    text = "runs/a contains a different run: x was 1 and is now 2"
    error = RunMismatchError(text, fix="", before=_run_config(), now=now)
    told = error_in_flags(error, dict.fromkeys(given), ("train", "my data.csv", "--out", "runs/a"))
    assert told.problem == f"runs/a contains a different run: {'; '.join(said)}"
    assert "`seqloom train 'my data.csv' --out runs/a-2`" in told.fix


def test_a_flag_that_sets_layers_with_different_values_is_named_once() -> None:
    now = _run_config(dropout=0.5)
    layers = recipes.classifier("gru", inputs=TokensConfig(vocab_size=9), num_classes=2, size="nano")
    before = msgspec.structs.replace(now, model=layers)
    error = RunMismatchError("runs/a contains a different run: x", fix="", before=before, now=now)
    told = error_in_flags(error, {"dropout": 0.5}, ("train", "a.csv", "--dropout", "0.5")).problem
    assert told == "runs/a contains a different run: --dropout was 0.2 and 0.3 in different layers and is now 0.5"


def test_a_refusal_is_short_and_plain() -> None:
    sums = (
        "file a.csv was 9 bytes, sha256 f1f506c19e1f and is now 8 bytes, sha256 e324061acac9; split: counts was train 1"
    )
    text = f"runs/a contains a different run: {sums} and is now train 2; vocabulary: tokenizer.json was 4 bytes"
    error = RunMismatchError(text, fix="", before=_run_config(), now=_run_config(size="big"))
    told = error_in_flags(error, {"size": "big"}, ("train", "a.csv", "--size", "big")).problem
    assert told == ("runs/a contains a different run: the file a.csv has changed; --size would make a different model")
    layers = error_in_flags(error, {}, ("train", "a.csv")).problem
    assert layers.endswith("; model.encoder.width was 12 and is now 1500")


def test_a_refusal_suggests_no_option_that_the_files_give_anyway(tmp_path: Path) -> None:
    (tmp_path / "tags.txt").write_text("a O\nb B-X\n\n" * 9)
    (tmp_path / "rows.csv").write_text("text;label\n" + "a;yes\nb;no\n" * 9)

    def refused(*arguments: object) -> str:
        given = [*map(str, arguments), "--out", str(tmp_path / "run"), "--epochs", "1"]
        run = CliRunner().invoke(app, ["train", *given])
        assert isinstance(run.exception, ConfigError)
        return run.exception.fix

    def kept(name: str, **options: str) -> None:
        config, wanted = requested((tmp_path / name,), {"epochs": 2, "size": "nano"} | options)
        found = resolve(config, wanted, cache=tmp_path / "cache")
        (tmp_path / "run" / "model").mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / "config.toml").write_text(found.config.to_toml())

    kept("tags.txt")
    assert f"tags.txt --epochs 1 --out {tmp_path}/run-2`" in refused(tmp_path / "tags.txt")
    kept("rows.csv", delimiter=";")
    assert "rows.csv --epochs 1 --delimiter ';' --" in refused(tmp_path / "rows.csv")
    assert f"train --epochs 1 --config {tmp_path}/run/config.toml --out {tmp_path}/run-2`" in refused()


def test_a_run_in_a_named_folder_is_compared_before_data_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(_run_config().to_toml())
    (tmp_path / "model").mkdir()
    run = CliRunner().invoke(app, ["train", "nowhere.csv", "--out", str(tmp_path), "--lr", "0.5", "--patience", "3"])
    assert "--lr was 0.001 and is now 0.5" in str(run.exception) and "patience" not in run.exception.problem
    run = CliRunner().invoke(app, ["train", "nowhere.csv", "--out", str(tmp_path), "--patience", "3"])
    assert isinstance(run.exception, SeqloomError) and "nowhere.csv" in str(run.exception)


@pytest.mark.parametrize("seed", range(3))
def test_a_refused_command_lists_every_setting_that_differs_with_both_values(seed: int, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(_run_config().to_toml())
    (tmp_path / "model").mkdir()
    (tmp_path / "a.csv").write_text("text,label\n" + "red,a\nblue,b\n" * 9)
    changes = {"lr": ("0.001", "0.5"), "seed": ("0", "7"), "clip-norm": ("1.0", "3.0"), "log-every": ("10", "3")}
    changes |= {"dropout": ("0.2", "0.4"), "max-length": ("1048576", "30"), "tokenizer": ("words", "bytes")}
    changes |= {"ema": ("0.0", "0.5"), "validate-every": ("0", "5"), "metric": ("missing", "loss")}
    chosen = random.Random(seed).sample(sorted(changes), 8)
    options = [part for name in chosen for part in (f"--{name}", changes[name][1])]
    run = CliRunner().invoke(app, ["train", str(tmp_path / "a.csv"), "--out", str(tmp_path), *options])
    assert isinstance(run.exception, ConfigError)
    for name in chosen:
        before, now = changes[name]
        assert f"--{name} was {before} and is now {now}" in run.exception.problem
    assert run.exception.problem.count(" is now ") == len(chosen)


def test_beside_a_run_that_is_written_down_patience_pieces_and_keep_may_stand(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(_run_config().to_toml())
    options = ["--patience", "3", "--accumulate", "2", "--keep-checkpoints", "5"]
    run = CliRunner().invoke(app, ["train", "--out", str(tmp_path), *options])
    assert isinstance(run.exception, SeqloomError) and "a.csv" in str(run.exception)  # all else was fine


QUICK = """
import sys
from typer.testing import CliRunner
from seqloom.cli import app
for arguments in (["nowhere.csv"], ["a.csv", "--input", "none"], ["a.csv", "--out", "run", "--lr", "0.5"]):
    assert CliRunner().invoke(app, ["train", *arguments]).exception, arguments
    assert "torch" not in sys.modules, arguments
"""


@pytest.mark.slow
def test_what_can_be_refused_without_torch_does_not_wait_for_it(tmp_path: Path) -> None:
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "config.toml").write_text(_run_config().to_toml())
    (tmp_path / "a.csv").write_text("text,label\na,b\nc,d\n")
    subprocess.run([sys.executable, "-c", QUICK], cwd=tmp_path, check=True)


# --- displays --------------------------------------------------------------------------------------------------------


def task(asks: Any, answers: Any) -> Task:
    """A task that reads the one and says the other."""
    tokenizer = fit(WordsConfig(), ["a film"])
    labels = ("bad", "good") if answers == "label" else ()
    return task_of(ModelSpec(Schema(asks, answers, labels), tokenizer, tokenizer, (2, 2, 1)))


def pace(remaining: float | None = 65.0) -> Speed:
    return Speed(7.5, 52_300.0, 0.02, 412_000_000, remaining)


def run(samples: tuple[Sample, ...] = ()) -> Iterator[Report]:
    yield Started(Path("runs/a"), 0, 1_000, 900, 40, 12_000, ENVIRONMENT, ("computing on cpu",))
    for step in range(1, 41):
        yield Stepped(step, -(-step // 20), step / 40, 2 / step, 1e-3, 1.0, 2.0, 0.5, 0, step * 64, 0.03, pace())
        if step % 20 == 0:
            yield Validated(step, step // 20, {"loss": 0.5, "accuracy": step / 40}, True, True, samples, pace())
            yield Saved(step, Path("checkpoints"))
    yield Notice(40, "memory.halved", "half of the rows at a time", "--accumulate 2")
    yield Ended(40, "done", 40, 40, {"accuracy": 1.0}, pace(), 0)


def console(**settings: Any) -> Any:
    return Console(file=io.StringIO(), highlight=False, emoji=False, **settings)


def plain(reports: Iterator[Report], seconds: float) -> list[tuple[float, str]]:
    """The lines of a log, each with its second, when every report takes so long."""
    hour, screen, found = [0.0], console(width=80), list[tuple[float, str]]()
    lines = PlainLines(screen, "accuracy", clock=lambda: hour[0])
    for report in reports:
        lines.take(report)
        found += [(hour[0], line) for line in screen.file.getvalue().splitlines()[len(found) :]]
        hour[0] += seconds
    return found


def texts(reports: Iterator[Report]) -> list[str]:
    return [line for _, line in plain(reports, seconds=0.0)]


def test_without_a_terminal_there_is_a_line_for_each_validation_and_no_escape() -> None:
    assert texts(run()) == [
        "computing on cpu",
        "1,000 parameters, 900 of them trained · 40 steps · 12 kB per checkpoint",
        "run folder: runs/a",
        "step 20 · epoch 1 · dev accuracy 0.5 · dev loss 0.5 · best so far",
        "step 40 · epoch 2 · dev accuracy 1 · dev loss 0.5 · best so far",
        "step 40: memory.halved: half of the rows at a time. Fix: --accumulate 2.",
    ]


def test_how_long_it_will_take_is_told_behind_the_number_of_steps() -> None:
    screen = console(width=80)
    followed(run(), screen, "accuracy", ("about 0:05 of training here",))
    told = screen.file.getvalue().splitlines()
    assert told[:4] == [*texts(run())[:3], "about 0:05 of training here"]


@pytest.mark.parametrize(("why", "flag"), [("done", "more --epochs"), ("patience", "a larger --patience")])
def test_a_run_that_is_over_says_which_option_goes_on_with_it(why: Any, flag: str) -> None:
    screen, begun = console(width=80), next(iter(run()))
    followed(iter([begun._replace(step=40), Ended(40, why, 40, 40, {}, pace(), 0)]), screen, "accuracy")
    assert f"give {flag} " in screen.file.getvalue()


def test_only_a_model_of_text_is_asked_through_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    for asks in ("text", "words", "picture", "pair"):
        summary(Path("run"), Ended(48, "done", 48, 48, {}, pace(), 0), task(asks, "label"), json=False)
        assert ("seqloom predict run -\n" in capsys.readouterr().out) == (asks in ("text", "words"))


@pytest.mark.parametrize(
    ("asks", "answers", "verb"),
    [("text", "nothing", "generate"), ("text", "text", "translate"), ("picture", "text", "translate")],
)
def test_what_to_type_next_is_the_verb_of_the_task(
    asks: Any, answers: Any, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    summary(Path("run"), Ended(48, "done", 48, 48, {}, pace(), 0), task(asks, answers), json=False)
    told = capsys.readouterr().out
    assert f"seqloom {verb} run" in told and "predict" not in told


@pytest.mark.parametrize("fitted", [True, False])
def test_the_figures_of_a_calibrated_model_are_shown_beside_those_of_its_validation(
    fitted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = {"step": 48, "dev": {"accuracy": 0.75, "loss": 0.25}, "cross_fitted": fitted}
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"notes": notes}))
    ended = Ended(48, "done", 48, 48, {"accuracy": 0.75, "loss": 0.5}, pace(), 0)
    summary(tmp_path, ended, task("text", "label"), json=False)
    assert ("  after calibration of the probabilities (cross-fitted): loss 0.25\n" in capsys.readouterr().out) is fitted
    summary(tmp_path, ended, task("text", "label"), json=True)
    assert json.loads(capsys.readouterr().out)["calibrated"] == ({"loss": 0.25} if fitted else {})


@pytest.mark.parametrize("loss", [0.25, 0.75])
def test_a_calibration_that_does_not_lower_the_loss_is_explained(
    loss: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = {"step": 48, "dev": {"accuracy": 0.75, "loss": loss}, "cross_fitted": True}
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"notes": notes}))
    ended = Ended(48, "done", 48, 48, {"accuracy": 0.75, "loss": 0.5}, pace(), 0)
    summary(tmp_path, ended, task("text", "label"), json=False)
    assert (f"loss {loss}, no lower than before, which needs no action\n" in capsys.readouterr().out) is (loss > 0.5)


@pytest.mark.parametrize(
    ("before", "lead"),
    [
        ({"accuracy": 0.8, "loss": 0.5}, "has the best accuracy, 0.8, and loss 0.5."),
        ({"accuracy": 0.75, "loss": 0.4}, "has the best accuracy, 0.75, and loss 0.4."),
    ],
)
def test_a_run_that_ships_later_weights_than_the_best_says_so(
    before: dict[str, float], lead: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = Ended(48, "done", 24, 36, {"accuracy": 0.75}, pace(), 0)
    looks = [(24, before, True), (36, {"accuracy": 0.75, "loss": 0.5}, False)]
    lines = [
        {"kind": "validation", "step": step, "epoch": 1, "metrics": metrics, "best": best, "chosen": True}
        for step, metrics, best in looks
    ]
    write_lines(tmp_path / "metrics.jsonl", lines)
    summary(tmp_path, ended, task("text", "label"), json=False)
    told = capsys.readouterr().out
    kept = "\nkept the weights of step 36, chosen by accuracy on the dev set: accuracy 0.75\n"
    assert kept in told and "best on" not in told
    rule = "Of later validations within one standard error of it, the last one is chosen"
    assert f"Step 24 {lead} {rule}: step 36, with accuracy 0.75 and loss 0.5.\n" in told
    summary(tmp_path, ended, task("text", "label"), json=True)
    facts = json.loads(capsys.readouterr().out)
    assert (facts["best_step"], facts["chosen_step"]) == (24, 36)


def test_a_run_without_a_dev_set_is_evaluated_on_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    for metrics, command in (({}, "seqloom evaluate run FILE"), ({"accuracy": 1.0}, "seqloom evaluate run")):
        summary(Path("run"), Ended(48, "done", 48, 48, metrics, pace(), 0), task("text", "label"), json=False)
        assert f"\n  {command}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "command"),
    [
        (DataConfig(train=("a.csv",), split=RandomSplit()), "seqloom evaluate {run} --split test"),
        (DataConfig(train=("a.csv",), test=("b.csv",), split=GivenSplit()), "seqloom evaluate {run} --split test"),
        (DataConfig(train=("a.csv",), split=ColumnSplit(split_column="s")), "seqloom evaluate {run} --split test"),
        (DataConfig(train=("questions",)), "seqloom evaluate {run} --split test"),
        (DataConfig(train=("a.csv",), split=RandomSplit(test_size=0.0)), "seqloom evaluate {run}"),
    ],
    ids=["drawn", "file", "column", "built in", "none"],
)
def test_a_run_with_a_test_set_is_to_be_evaluated_on_it(
    data: DataConfig, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").touch()
    monkeypatch.setattr(RunFolder, "config", lambda _: SimpleNamespace(data=data))
    summary(tmp_path, Ended(48, "done", 48, 48, {"accuracy": 1.0}, pace(), 0), task("text", "label"), json=False)
    assert f"\n  {command.format(run=tmp_path)}\n" in capsys.readouterr().out


@pytest.mark.parametrize("reason", ["stopped", "not-finite", "disk"])
def test_a_run_that_stops_before_its_first_validation_is_resumed_and_not_used(
    reason: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary(tmp_path, Ended(3, reason, 0, 0, {}, pace(), 130), task("text", "label"), json=False)
    told = capsys.readouterr().out
    assert "there is no model yet: one is saved at each validation" in told and "dev set" not in told
    resumed = [] if reason == "not-finite" else [f"seqloom train --out {tmp_path}"]
    assert [line.strip() for line in told.partition("next:\n")[2].splitlines()] == [
        *resumed,
        f"seqloom doctor {tmp_path}",
    ]


def test_a_slow_run_says_something_every_ten_seconds() -> None:
    told = plain(run(), seconds=4.0)
    moments = [moment for moment, _ in told]
    assert max(later - moment for moment, later in pairwise(moments)) < 10 + 4
    steps = [(moment, line) for moment, line in told if "tokens/s" in line]
    assert len(steps) > 10 and min(later - moment for (moment, _), (later, _) in pairwise(steps)) >= 10
    assert steps[0][1] == (
        "7.5 % · step 3 of 40 · epoch 1 · 7.5 s · 1 min 5 s left · loss 0.6667 · 52,300 tokens/s · padding 3 %"
        " · memory 412 MB · waiting for data 2 %"
    )


EVIL = Sample("a\x1b[2Jb\nc", "\u202eevil", "good\r", False)


def test_words_of_the_data_cannot_steer_the_terminal() -> None:
    text = "\n".join(texts(run((EVIL,))))
    assert r"a\x1b[2Jb c -> \u202eevil   expected: good\r" in text
    assert not {"\x1b", "\u202e", "\r"} & set(text)


def test_without_the_escapes_written_out_they_would_reach_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "escaped", lambda text: text)
    assert "\u202e" in "\n".join(texts(run((EVIL,))))


@pytest.mark.parametrize("width", [8, 20, 40, 79, 200])
def test_a_live_display_is_never_wider_than_its_terminal(width: int) -> None:
    sample = Sample("a long question " * 20, "狗" * 200, "cat", False)
    screen = console(width=width, force_terminal=True, no_color=True, _environ={})
    with display(screen, "accuracy") as lines:
        for report in run((sample,)):
            lines.take(report)
            assert isinstance(lines, LiveLines)
            drawn = console(width=width)
            drawn.print(lines._picture())
            assert all(Text(line).cell_len <= width for line in drawn.file.getvalue().splitlines())
    shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen.file.getvalue())
    assert "100" in shown and max(Text(line).cell_len for line in re.split(r"[\r\n]+", shown)) <= width


def test_a_live_display_tells_all_and_leaves_only_what_scrolled() -> None:
    screen = console(width=300, force_terminal=True, no_color=True, _environ={})
    with display(screen, "accuracy") as lines:
        for report in run():
            lines.take(report)
        picture = console(width=300)
        assert isinstance(lines, LiveLines)
        picture.print(lines._picture())
    told = picture.file.getvalue()
    for word in ("100 %", "step 40 of 40", "epoch 2", "1 min 5 s left", "loss 0.05", "dev accuracy 1", "padding 3 %"):
        assert word in told
    assert re.search("[▁▂▃▄▅▆▇█]{12}", told)


def test_colors_are_left_out_where_none_are_wanted() -> None:
    def shown(**environment: str) -> str:
        screen = console(force_terminal=True, width=80, _environ=environment)
        with display(screen, "accuracy") as lines:
            for report in run():
                lines.take(report)
        return str(screen.file.getvalue())

    colored = re.compile(r"\x1b\[[\d;]*3\dm")
    assert colored.search(shown(TERM="xterm"))
    assert not colored.search(shown(TERM="xterm", NO_COLOR="1"))
    assert "\x1b" not in shown(TERM="dumb")


def test_words_are_packed_into_as_few_lines_as_fit() -> None:
    assert [line.plain for line in packed(["aaaa", "bb", "cccccccccc", "d"], 9)] == ["aaaa · bb", "cccccccc…", "d"]


# --- whole runs ------------------------------------------------------------------------------------------------------


def _train(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seqloom", "train", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder / "cache")},
    )


@pytest.mark.slow
def test_a_file_is_all_that_is_needed_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["the film was fine", "a lovely plot", "nice cast", "a boring film", "the plot was bad", "poor cast"]
    rows = [f"{word} {number},{'good' if number % 6 < 3 else 'bad'}" for number, word in enumerate(words * 30)]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *rows, ""]))
    first = _train(tmp_path, "reviews.csv", "--size", "nano", "--epochs", "1", "--tensorboard")
    assert first.returncode == 0, first.stderr
    folder = Path("runs", "reviews-classify-cnn")
    for part in ("model", "report.html", "card.md", "config.toml", "metrics.jsonl", "events.jsonl", "tensorboard"):
        assert (tmp_path / folder / part).exists(), part
    assert "task: classify" in first.stderr and "best on the dev set" in first.stdout
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    again = CliRunner().invoke(app, ["train", "reviews.csv", "--size", "nano", "--epochs", "1"])
    assert again.exit_code == 0 and "already done" in again.stderr
    more = CliRunner().invoke(app, ["train", "--out", str(folder), "--epochs", "2", "--json"])
    assert more.exit_code == 0, more.stderr
    assert json.loads(more.stdout)["reason"] == "done" and json.loads(more.stdout)["model"] == str(folder / "model")
    other = _train(tmp_path, "reviews.csv", "--size", "nano", "--epochs", "2", "--lr", "0.5")
    assert other.returncode == 2 and "--lr was" in other.stderr and "reviews-classify-cnn-2" in other.stderr


def test_rows_of_several_labels_without_any_label_are_refused_by_check_and_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.csv").write_text("text,label\n" + "".join(f"text number {row},\n" for row in range(60)))
    for verb in (["data", "check"], ["train"]):
        asked = [*verb, "m.csv", "--label-separator", ";", "--input", "text", "--target", "label"]
        done = CliRunner().invoke(app, asked, env={"COLUMNS": "200"})
        said = done.output + str(done.exception)
        assert done.exit_code != 0 and not isinstance(done.exception, ValueError)
        assert "label.none" in said and "no row of train has a label" in said, said
