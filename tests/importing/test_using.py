"""Claims about what is done with an imported model: from the command line, and as the start of a training."""

from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import seqloom
from importing_common import write_checkpoint
from seqloom.bundle import read_bundle
from seqloom.cli import app
from seqloom.config.data import DataConfig
from seqloom.errors import ConfigError
from seqloom.importing import bert
from seqloom.importing.models import import_model
from seqloom.text.special_tokens import END
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve
from training_common import BASE

QUICK = {name: value for name, value in BASE.items() if name != "duration"} | {"steps": 30}  # for `seqloom.train`


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    return import_model(write_checkpoint(folder / "bert"), folder / "model")


def test_the_command_says_what_it_made(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "bert")
    arguments = ["import", str(tmp_path / "bert"), "--out", str(tmp_path / "model"), "--pooling", "max"]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output
    assert "pooling max" in run.output
    assert "texts are truncated after 12 tokens" in run.output
    assert read_bundle(tmp_path / "model").config.pooling == "max"  # type: ignore[union-attr]
    again = CliRunner().invoke(app, arguments)
    assert isinstance(again.exception, ConfigError)


def reviews(folder: Path, rows: int = 60) -> Path:
    """Texts that say what their label is."""
    path = folder / "reviews.csv"
    lines = [f"the {'great' if row % 2 else 'bad'} film {'!' * (row % 4)},{row % 2}" for row in range(rows)]
    path.write_text("\n".join(["text,label", *lines]) + "\n")
    return path


def tagged(folder: Path, rows: int = 60) -> Path:
    """Sentences in which cats are tagged."""
    path = folder / "cats.conll"
    sentences = [
        "".join(
            f"{word} {'B-CAT' if word == 'cat' else 'O'}\n" for word in ("the", "cat" if row % 3 else "film", "sat")
        )
        for row in range(rows)
    ]
    path.write_text("\n".join(sentences) + "\n")
    return path


def start(model: Path) -> dict[str, torch.Tensor]:
    return {name: one for name, one in read_bundle(model).weights.items() if name.startswith("encoder.")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "task", "metric"), [(reviews, "classify", "accuracy"), (tagged, "tag", "f1")], ids=["classify", "tag"]
)
def test_training_starts_from_its_encoder_and_learns(write, task, metric, model: Path, tmp_path: Path) -> None:
    settings = QUICK | {"init": str(model), "lr": 0.002}
    trained = seqloom.train(write(tmp_path), task=task, out=tmp_path / "run", device="cpu", **settings)
    bundle, before = read_bundle(tmp_path / "run" / "model"), start(model)
    assert bundle.notes["lr"] == 0.002  # what starts from this run learns no faster
    assert bundle.spec.tokenizer is not None
    assert bundle.spec.tokenizer.config.kind() == "wordpiece"
    assert set(before) == {name for name in bundle.weights if name.startswith("encoder.")}
    largest = max(float((bundle.weights[name] - one).abs().max()) for name, one in before.items())
    assert 0 < largest < 0.5  # fresh ones would be further away
    assert seqloom.load(tmp_path / "run").evaluate().metrics[metric] > 0.9, trained


def test_it_goes_on_at_a_small_rate_unless_another_is_asked_for(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(bert, "FINE_TUNING", 0.0016)  # as if it were ten times as wide
    model = import_model(write_checkpoint(tmp_path / "bert"), tmp_path / "model")
    data = DataConfig(train=(str(reviews(tmp_path)),))
    for asked, rate in (({}, 0.0001), ({"lr": 0.5}, 0.5)):
        request = RunRequest(training={"init": str(model)} | asked)
        assert resolve(data, request, cache=tmp_path).config.training.lr == pytest.approx(rate)


@pytest.mark.slow
def test_it_goes_on_learning_hidden_tokens_of_texts_of_its_field(model: Path, tmp_path: Path) -> None:
    texts = tmp_path / "field.txt"
    texts.write_text("".join(f"the {'great' if row % 2 else 'bad'} film {row % 5}\n" for row in range(60)))
    how = QUICK | {"init": str(model), "lr": 0.002}
    ended = seqloom.train(texts, task="masked", out=tmp_path / "run", device="cpu", **how).end
    untrained = seqloom.train(texts, task="masked", out=tmp_path / "not", device="cpu", **(how | {"lr": 1e-9})).end
    assert ended.metrics["loss"] < untrained.metrics["loss"] - 1
    assert set(start(model)) <= set(read_bundle(tmp_path / "run" / "model").weights)
    assert seqloom.load(tmp_path / "run").predict(["the [MASK] film"])[0].masks


def test_texts_are_cut_where_its_positions_end(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    lines = [f"the {'great' if row % 2 else 'bad'} film {'cat sat ' * 20},{row % 2}" for row in range(40)]
    path.write_text("\n".join(["text,label", *lines]) + "\n")
    resolved = resolve(DataConfig(train=(str(path),)), RunRequest(training=BASE | {"init": str(model)}), cache=tmp_path)
    tokens = resolved.prepared.columns["input"]
    assert set(tokens.lengths.tolist()) == {20}
    assert set(tokens.values[tokens.starts[1:] - 1].tolist()) == {END}


@pytest.mark.slow
def test_what_a_training_makes_of_it_embeds_too(model: Path, tmp_path: Path) -> None:
    seqloom.train(
        reviews(tmp_path), task="classify", out=tmp_path / "run", device="cpu", **(QUICK | {"init": str(model)})
    )
    vectors = seqloom.load(tmp_path / "run").embed(["the great film", "the bad film", "the great film !"])
    assert vectors.shape == (3, 16)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)
