"""Taggers that are trained: every family with every head, on words, subwords and characters, and on long documents."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seqeval.metrics import f1_score

import seqloom
from seqloom.config.tokenizers import BpeConfig, CharactersConfig
from seqloom.data.tags import convert, spans
from seqloom.errors import ConfigError
from seqloom.inference.model import LoadedModel

LEAST = 0.95  # F1 of the set `movies`, as docs/data-sets.md requires it
PLAN: dict[str, Any] = {"size": "nano", "steps": 300, "lr": 0.01, "seed": 0, "device": "cpu", "char_encoder": "none"}
MORE = [
    ("transformer", "crf"),
    ("bilstm", "softmax"),
    ("cnn", "crf"),
    ("transformer", "softmax"),
    ("lstm", "softmax"),
    ("gru", "crf"),
    ("rnn", "crf"),
]


def trained(folder: Path, *data: str, **settings: Any) -> LoadedModel:
    return seqloom.load(seqloom.train(*data, out=folder, **(PLAN | settings)).folder)


@pytest.mark.slow
def test_titles_and_people_are_found(tmp_path: Path) -> None:
    assert trained(tmp_path / "run", "movies", model="cnn", head="softmax").evaluate().metrics["f1"] >= LEAST


@pytest.mark.soak
@pytest.mark.parametrize(("model", "head"), MORE)
def test_titles_and_people_are_found_by_the_others_too(model: str, head: str, tmp_path: Path) -> None:
    least = LEAST if model in ("bilstm", "cnn", "transformer") else 0.8  # what lies ahead is not seen in one direction
    assert trained(tmp_path / "run", "movies", model=model, head=head).evaluate().metrics["f1"] >= least


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A tagger of `movies` with a chain of tags."""
    return trained(tmp_path_factory.mktemp("tagger") / "run", "movies", model="bilstm", head="crf")


@pytest.mark.slow
def test_titles_and_people_are_found_with_a_chain_of_tags(tagger: LoadedModel) -> None:
    assert tagger.evaluate().metrics["f1"] >= LEAST


@pytest.mark.soak
def test_titles_and_people_are_found_by_the_usual_tagger(tmp_path: Path) -> None:
    """It reads characters as well, and they take more steps."""
    model = trained(tmp_path / "run", "movies", model="bilstm", head="crf", char_encoder=None, steps=600)
    assert model.evaluate().metrics["f1"] >= LEAST


def document(sentences: int) -> tuple[list[str], list[str]]:
    """The words and tags of that many sentences of the dev set in one."""
    from seqloom.data.synthetic.phrases import MOVIES

    examples = list(MOVIES.examples("dev", count=sentences))
    words = [word for example in examples for word in example.input.words()]  # type: ignore[union-attr]
    return words, [tag for example in examples for tag in example.target]  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_long_document_has_one_lawful_answer(tagger: LoadedModel) -> None:
    words, true = document(150)
    assert len(words) > 20 * tagger.spec.max_length
    (said,) = tagger.predict([words])
    tags = said.to_json()["tags"]
    assert list(convert(tags, "bio")) == tags
    assert f1_score([true], [tags]) >= 0.85  # no mark tells it where a sentence ends


@pytest.mark.slow
def test_a_long_document_is_judged_whole_even_if_training_cut(tagger: LoadedModel, tmp_path: Path) -> None:
    words, true = document(60)
    path = tmp_path / "long.conll"
    path.write_text("".join(f"{word}\t{tag}\n" for word, tag in zip(words, true, strict=True)) + "\n")
    evaluation = tagger.evaluate(path)
    assert evaluation.statistics[0, 0] == len(words)
    (said,) = tagger.predict([words])
    assert evaluation.metrics["f1"] == pytest.approx(f1_score([true], [said.to_json()["tags"]]))


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", [BpeConfig(vocab_size=300), CharactersConfig()])
def test_spans_of_words_in_pieces_are_places_in_the_text(tokenizer: Any, tmp_path: Path) -> None:
    settings = {"tokenizer": tokenizer, "max_length": 40, "head": "crf", "steps": 80}
    model = trained(tmp_path / "run", "movies", model="cnn", **settings)
    text = "who  directed the silent river with anna kovac ? " * 3
    (said,) = model.predict([text])
    answer = said.to_json()
    assert len(answer["tags"]) == len(text.split())
    assert answer["entities"]
    for span, marked in zip(answer["entities"], spans(answer["tags"]), strict=True):
        assert text[span["start"] : span["end"]] == span["text"]
        assert span["text"] == " ".join(text.split()[marked.start : marked.stop])


@pytest.mark.slow
def test_one_tag_for_each_step_of_a_sequence_of_vectors_is_learned(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    rows = [draws.normal(size=(length, 2)).round(3) for length in draws.integers(4, 12, 300)]
    lines = [
        f'{np.asarray(row).tolist()}, "tags": {["up" if one[0] > 0 else "down" for one in row]}'.replace("'", '"')
        for row in rows
    ]
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(f'{{"vectors": {line}}}\n' for line in lines))
    model = trained(tmp_path / "run", str(path), model="cnn", head="crf", steps=150)
    assert model.task.metric.name == "accuracy"
    assert model.evaluate().metrics["accuracy"] >= LEAST
    assert len(model.predict([np.zeros((5_000, 2), np.float32)])[0].to_json()["tags"]) == 5_000


def test_a_head_that_the_task_has_not_is_refused_before_the_run_begins(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="classify has no 'crf' head"):
        seqloom.train("questions", out=tmp_path / "run", head="crf")
    assert not (tmp_path / "run").exists()
