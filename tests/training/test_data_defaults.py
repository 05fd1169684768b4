"""Defaults that follow the data: dropout of translators, head and case of taggers; what the user names stays."""

from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from seqloom.config.base import dropouts
from seqloom.config.heads import ClassHeadConfig, CrfHeadConfig
from seqloom.config.models import ElementModelConfig
from seqloom.config.tokenizers import WordsConfig
from seqloom.data.kinds.text import LETTERS
from seqloom.text.characters import letters_of
from seqloom.training.data_defaults import FEW_TOKENS, MANY_TOKENS, default_dropout, dropout_follows_text
from seqloom.training.learning_rate import expected_epochs
from seqloom.training.request import requested
from seqloom.training.resolve import Resolved, resolve
from seqloom.training.run import train
from seqloom.training.run_location import RunLocation


def chosen(data: Path, out: Path | None = None, **named: Any) -> Resolved:
    location = None if out is None else RunLocation(out)
    config, request = requested((str(data),), named, *(() if location is None else (location,)))
    return resolve(config, request, location=location, cache=data.parent / "cache")


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    """Sentences and their translations."""
    rows = [f"the dog {at} sees the cat {at + 1},der hund {at} sieht die katze {at + 1}\n" for at in range(30)]
    (tmp_path / "pairs.csv").write_text("source,target\n" + "".join(rows))
    return tmp_path / "pairs.csv"


@pytest.fixture
def names(tmp_path: Path) -> Path:
    """Sentences with tags of spans."""
    (tmp_path / "names.conll").write_text("Ann B-PER\nSmith I-PER\nSleeps O\n\nIN O\nUlm B-LOC\n\n" * 10)
    return tmp_path / "names.conll"


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """Sentences with parts of speech."""
    (tmp_path / "classes.conll").write_text("Ann NOUN\nSleeps VERB\n\nIN ADP\nUlm NOUN\n\n" * 10)
    return tmp_path / "classes.conll"


def test_the_dropout_of_a_translator_falls_with_the_logarithm_of_the_training_text() -> None:
    middle = round(sqrt(FEW_TOKENS * MANY_TOKENS))
    assert [default_dropout(tokens, 57) for tokens in (1, FEW_TOKENS, middle)] == [0.3, 0.3, 0.2]
    assert default_dropout(MANY_TOKENS, 57) is None, "much text"
    assert default_dropout(1_000, 5) is None, "a short run"


def test_small_models_other_families_and_single_forms_keep_their_dropout(sentences: Path, classes: Path) -> None:
    task = chosen(sentences).task
    assert dropout_follows_text("transformer", "small", task) and dropout_follows_text("transformer", "base", task)
    for recipe, size in (("transformer", "tiny"), ("window", "small"), ("seq2seq-dot", "small"), ("", "small")):
        assert not dropout_follows_text(recipe, size, task), (recipe, size)
    assert not dropout_follows_text("transformer", "small", task.with_metric("exact_match"))
    assert not dropout_follows_text("transformer", "small", chosen(classes).task), "no text is written"


def test_a_translator_says_its_dropout_unless_it_was_named(sentences: Path) -> None:
    usual = chosen(sentences, model="transformer", epochs=30)
    assert set(dropouts(usual.config.model)) == {0.3} and any(one.startswith("dropout: 0.3") for one in usual.messages)
    for others in ({"dropout": 0.1, "epochs": 30}, {"epochs": 5}, {"steps": 2}):
        other = chosen(sentences, model="transformer", **others)
        assert set(dropouts(other.config.model)) == {0.1} and not any(one.startswith("drop") for one in other.messages)


def test_a_translator_with_a_duration_in_seconds_keeps_its_dropout_and_says_which_one_to_use(sentences: Path) -> None:
    timed = chosen(sentences, model="transformer", seconds=60)
    (line,) = (one for one in timed.messages if one.startswith("dropout"))
    assert set(dropouts(timed.config.model)) == {0.1} and "dropout: 0.1, as with --seconds" in line
    assert "with 20 epochs or more, --dropout 0.3 is better for few training tokens" in line
    for others in ({"dropout": 0.1}, {"size": "tiny"}, {"model": "seq2seq-dot"}):
        other = chosen(sentences, **{"model": "transformer", "seconds": 60} | others)
        assert not any(one.startswith("drop") for one in other.messages)


def test_epochs_are_expected_by_the_duration_of_a_run(sentences: Path) -> None:
    found = chosen(sentences, tokens=5_000).config.training
    assert expected_epochs(found.duration, 1_000, found.batching) == 5


@pytest.mark.slow
def test_a_translator_that_is_resumed_for_more_epochs_keeps_its_dropout(sentences: Path, tmp_path: Path) -> None:
    small: dict[str, Any] = {"model": "transformer", "size": "small", "width": 8, "layers": 1, "heads": 1}
    train(sentences, out=tmp_path / "run", epochs=1, device="cpu", **small)
    resumed = chosen(sentences, tmp_path / "run", epochs=30, **small)
    assert resumed.before is not None and resumed.config.model == resumed.before.model


def test_words_of_a_tagger_are_lowercase_and_their_characters_keep_their_case(names: Path) -> None:
    found = chosen(names)
    assert found.prepared.tokenizer is not None and isinstance(found.config.encoding.tokenizer, WordsConfig)
    assert found.config.encoding.tokenizer.lowercase
    assert (
        found.prepared.tokenizer.encode(["Ann"]).values.tolist()
        == found.prepared.tokenizer.encode(["ann"]).values.tolist()
    )
    letters = found.prepared.columns[LETTERS].values.tolist()
    written, lowered = letters_of(["Ann", "ann"]).tolist()
    assert written in letters and lowered not in letters
    assert any("lowercased" in one for one in found.messages)


@pytest.mark.parametrize("named", [{"lowercase": False}, {"char_encoder": "none"}, {"tokenizer": "words"}])
def test_a_tagger_keeps_the_case_of_words_if_it_must(names: Path, named: dict[str, Any]) -> None:
    found = chosen(names, **named)
    assert isinstance(found.config.encoding.tokenizer, WordsConfig) and not found.config.encoding.tokenizer.lowercase
    assert not any("lowercased" in one for one in found.messages)


def test_a_tagger_with_vectors_from_a_file_keeps_the_case_of_words(names: Path) -> None:
    (names.parent / "vectors.txt").write_text("Ann 0.1 0.2\nann 0.3 0.4\n")
    found = chosen(names, word_vectors=str(names.parent / "vectors.txt")).config.encoding.tokenizer
    assert isinstance(found, WordsConfig) and not found.lowercase


def test_tags_of_spans_have_a_crf_and_parts_of_speech_a_softmax(names: Path, classes: Path) -> None:
    heads = {path.stem: chosen(path).config.model for path in (names, classes)}
    assert all(isinstance(model, ElementModelConfig) for model in heads.values())
    assert isinstance(heads["names"].head, CrfHeadConfig) and isinstance(heads["classes"].head, ClassHeadConfig)
    assert any(one.startswith("head: crf") for one in chosen(names).messages)
    assert isinstance(chosen(names, model="transformer").config.model.head, ClassHeadConfig)


@pytest.mark.parametrize("named", [{"head": "softmax"}, {"label_smoothing": 0.1}, {"class_weights": (1, 1, 1.0, 1, 1)}])
def test_what_a_crf_cannot_do_gets_a_softmax(names: Path, named: dict[str, Any]) -> None:
    assert isinstance(chosen(names, **named).config.model.head, ClassHeadConfig)
