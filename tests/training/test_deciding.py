"""Claims about the metric that decides: whoever looks at a run or its model afterwards is told of that one."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seqloom.cli import app
from seqloom.config.data import DataConfig, EncodingConfig, RandomSplit
from seqloom.config.training import ByLengthConfig
from seqloom.data.check import checking
from seqloom.data.order import Order
from seqloom.events import finished
from seqloom.inference.model import load
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve
from training_common import run, write_data


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose best weights macro_f1 decides."""
    folder = tmp_path_factory.mktemp("chosen")
    run(folder / "run", write_data(folder), model="bag", metric="macro_f1")
    return folder


@pytest.mark.slow
def test_a_model_knows_what_decided_in_its_run_and_away_from_it(chosen: Path, tmp_path: Path) -> None:
    alone = shutil.copytree(chosen / "run" / "model", tmp_path / "model")
    for place in (chosen / "run", alone):
        assert load(place).task.metric.name == "macro_f1"


@pytest.mark.slow
def test_slices_tell_the_figure_that_decided(chosen: Path) -> None:
    def evaluate(*more: str) -> str:
        return CliRunner().invoke(app, ["evaluate", str(chosen / "run"), "--by", "length", *more]).stdout

    _, _, below = evaluate().partition("by length\n")
    heads = below.split("\n")[0].split()
    assert "macro_f1" in heads and "accuracy" not in heads
    assert json.loads(evaluate("--json"))["metric"] == "macro_f1"


@pytest.mark.slow
def test_the_report_and_the_card_tell_the_figure_that_decided(chosen: Path) -> None:
    page = (chosen / "run" / "report.html").read_text(encoding="utf-8")
    assert "macro_f1 on the dev set at step" in page and "accuracy on the dev set at step" not in page
    for card in ("card.md", "model/card.md"):
        assert "chosen by `macro_f1`" in (chosen / "run" / card).read_text(encoding="utf-8")


# --- other things that are told alike before, in and after training -------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("rows", [90, 1_500])
def test_the_data_check_speaks_of_the_batches_of_training(rows: int, tmp_path: Path) -> None:
    data = DataConfig(train=(str(write_data(tmp_path, rows)),), split=RandomSplit())
    resolved = resolve(data, RunRequest(), cache=tmp_path / "cache")
    feed, prepared = resolved.config.training.batching, resolved.prepared
    assert isinstance(feed, ByLengthConfig)
    order = Order(prepared.schema.target.sizes(prepared.columns)[prepared.splits["train"]], feed.batch_tokens, seed=0)
    report = finished(checking(data, EncodingConfig()))
    assert report.batching is not None and report.batching.batches == order.summary(0).batches > 1


@pytest.mark.slow
@pytest.mark.parametrize(("words", "told"), [("purple {} {} {}", True), ("red green {} up", False)])
def test_words_that_the_tokenizer_of_init_lacks_are_told(chosen: Path, tmp_path: Path, words: str, told: bool) -> None:
    known = ["old", "new", "tall", "flat"]
    rows = [f"{words.format(*(f'{word}x' if told else word for _ in range(3)))},{word}" for word in known * 10]
    (tmp_path / "other.csv").write_text("\n".join(["text,label", *rows, ""]))
    request = RunRequest(training={"init": str(chosen / "run")})
    resolved: Any = resolve(DataConfig(train=(str(tmp_path / "other.csv"),)), request, cache=tmp_path / "cache")
    said = [line for line in resolved.messages if "unknown to the tokenizer" in line]
    assert [line.partition(" of ")[0] for line in said] == (["100 %"] if told else [])
    assert all("--tokenizer bpe" in line for line in said)
