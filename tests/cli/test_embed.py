"""Claims about embedders from a shell: trained from each kind of data, asked, judged, and refused with the reason."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seqloom.cli import app
from seqloom.config.models import RankConfig, TripletConfig
from seqloom.inference.model import load

WORDS = ["dog", "cat", "bird", "fish", "horse", "cow"]
TABLES = {
    "text": ["text", *(f"a {one} and the {other}" for one in WORDS for other in WORDS)],
    "pair": ["question,answer", *(f"a {one} of {number},the {one}" for one in WORDS for number in range(6))],
    "triple": ["anchor,positive,negative", *(f"a {a},the {a},the {b}" for a in WORDS for b in WORDS if a != b)],
    "scored": ["sentence1,sentence2,score", *(f"a {a},the {b},{5.0 * (a == b)}" for a in WORDS for b in WORDS)],
}
SHORT = ["--task", "embed", "--size", "nano", "--steps", "6", "--device", "cpu", "--workers", "0"]


def said(*arguments: Any, input: str | None = None) -> str:
    """What a command that succeeds prints."""
    result = CliRunner().invoke(app, list(map(str, arguments)), input=input)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: Any) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code != 0
    return str(result.exception)


def write(folder: Path, kind: str) -> Path:
    path = folder / f"{kind}.csv"
    path.write_text("\n".join(TABLES[kind]) + "\n")
    return path


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """A file of vectors of words, as GloVe's are."""
    lines = [f"{word} {' '.join(str(1.0 * (at == number)) for at in range(8))}" for number, word in enumerate(WORDS)]
    (tmp_path / "vectors.txt").write_text("\n".join([*lines, "whale" + " 0.5" * 8]) + "\n")
    return tmp_path / "vectors.txt"


@pytest.mark.slow
@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_of_data_makes_a_model_that_answers_and_is_judged(tmp_path: Path, kind: str) -> None:
    run = tmp_path / "run"
    told = said("train", write(tmp_path, kind), *SHORT, "--out", run)
    for verb in ("predict", "embed", "index", "evaluate", "doctor"):
        assert f"seqloom {verb} {run}" in told, verb
    assert "seqloom search INDEX" in told
    (line,) = said("predict", run, "-", input="a dog\n").splitlines()
    assert len(json.loads(line)["vector"]) == 12
    metrics = json.loads(said("evaluate", run, "--json"))["metrics"]
    assert ({"pearson", "spearman"} if kind == "scored" else {"accuracy"}) < set(metrics)


@pytest.mark.slow
def test_vectors_of_words_are_the_start_and_may_stay(tmp_path: Path, vectors: Path) -> None:
    run = tmp_path / "run"
    said("train", write(tmp_path, "scored"), *SHORT, "--word-vectors", vectors, "--freeze-word-vectors", "--out", run)
    model = load(run)
    (token,) = model.spec.tokenizer.encode(["whale"]).values.tolist()
    assert model.model.encoder.input.table[token].tolist() == [0.5] * 8


@pytest.mark.slow
def test_an_embedder_starts_from_another_with_another_objective_and_a_classifier_from_it(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    said("train", write(tmp_path, "text"), *SHORT, "--model", "gru", "--out", first)
    start = ["--init", first, "--objective", "cosine-score", "--micro-batch", "3", "--pooling", "mean"]
    own = [one for one in SHORT if one not in ("--size", "nano")]
    said("train", write(tmp_path, "scored"), *own, *start, "--out", second)
    config = load(second).config
    assert (config.objective.kind(), config.micro_batch, config.pooling) == ("cosine-score", 3, "mean")
    assert config.encoder == load(first).config.encoder
    labels = tmp_path / "labels.csv"
    labels.write_text("text,label\n" + "".join(f"a {word},{word in WORDS[:3]}\n" for word in WORDS * 5))
    said("train", labels, *own[2:], "--init", second, "--out", third)
    assert load(third).embed(["a dog"]).shape == (1, 12)


@pytest.mark.slow
def test_the_objective_and_the_pooling_that_are_asked_for_are_written_down(tmp_path: Path) -> None:
    run = tmp_path / "run"
    said("train", write(tmp_path, "triple"), *SHORT, "--objective", "contrast", "--pooling", "attention", "--out", run)
    written = (run / "config.toml").read_text()
    assert 'kind = "contrast"' in written and 'pooling = "attention"' in written
    told = refused("train", tmp_path / "triple.csv", *SHORT, "--objective", "triplet", "--out", run)
    assert "objective" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--objective", "rnak"], "Did you mean 'rank'"),
        (["--pooling", "cls"], "--pooling: unknown name 'cls'"),
        (["--micro-batch", "0"], "use at least 1"),
        (["--objective", "rank"], "objective 'rank' needs pairs with a score, but the data has single texts"),
    ],
)
def test_what_cannot_be_asked_is_refused(tmp_path: Path, arguments: list[str], words: str) -> None:
    assert words in refused("train", write(tmp_path, "text"), *SHORT, *arguments, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_objective_without_vectors_is_refused(tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("text,label\n" + "".join(f"a {word},{word in WORDS[:3]}\n" for word in WORDS * 5))
    told = refused("train", labels, "--objective", "rank", "--out", tmp_path / "run")
    assert "objective: only for the task embed, but the task is classify" in told


def test_the_usual_objectives_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "embeddings.md").read_text(encoding="utf-8")
    assert f"`scale` {RankConfig().scale:g}" in page and f"`margin` {TripletConfig().margin:g}" in page
