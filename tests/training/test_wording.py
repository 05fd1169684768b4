"""Letters and pretrained vectors in whole runs: what the model starts from, what is refused, what is needed again."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

import seqloom
from seqloom.config.data import DataConfig, EncodingConfig, RandomSplit
from seqloom.config.inputs import SpelledConfig, TokensConfig
from seqloom.config.tokenizers import BpeConfig, WordsConfig
from seqloom.config.training import ByLengthConfig, StepsConfig
from seqloom.data.word_vectors import known_words
from seqloom.errors import ConfigError, RejectedError
from seqloom.nn.types import Spelled
from seqloom.tasks.encoders import with_words_input
from seqloom.text.special_tokens import UNKNOWN
from seqloom.training.data_defaults import first_rare
from seqloom.training.devices import choose_device
from seqloom.training.request import RunRequest
from seqloom.training.resolve import Resolved, resolve
from seqloom.training.run import built_model, train_run
from seqloom.training.run_location import RunLocation
from training_common import BASE, write_data

HERE = choose_device("cpu", "float32")
BPE = EncodingConfig(tokenizer=BpeConfig())
ENDINGS = {"ing": "VERB", "ness": "NOUN", "ly": "ADV"}


def write_tags(folder: Path, rows: int = 60) -> Path:
    """Words that come once each, so that only their ending tells the tag."""
    draw = np.random.default_rng(1)
    sentences = []
    for _ in range(rows):
        stems = ["".join(draw.choice(list("abcdefgmoprt"), size=5)) for _ in range(4)]
        ends = draw.choice(list(ENDINGS), size=4)
        sentences.append("".join(f"{stem}{end} {ENDINGS[end]}\n" for stem, end in zip(stems, ends, strict=True)))
    path = folder / "tags.conll"
    path.write_text("\n".join(sentences), encoding="utf-8")
    return path


def write_vectors(folder: Path, words: dict[str, list[float]]) -> Path:
    path = folder / "vectors.txt"
    path.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in words.items()), encoding="utf-8")
    return path


def wanting(data: Path, home: RunLocation | None = None, **settings: Any) -> Resolved:
    """A run over that data as it is wanted."""
    training = BASE | {"duration": StepsConfig(steps=4)} | settings.pop("training", {})
    request = RunRequest(**({"model": "gru", "size": "nano", "training": training} | settings))
    config = DataConfig(train=(str(data),), split=RandomSplit(dev_size=0.2, test_size=0.0))
    return resolve(config, request, location=home, cache=data.parent / "cache")


def words_input(resolved: Resolved) -> Any:
    return resolved.config.model.encoder.input  # type: ignore[union-attr]


FEW = {"red": [1.0, 2.0, 3.0], "warm": [4.0, 5.0, 6.0], "elephant": [7.0, 8.0, 9.0], "up": [0.5, 0.25, 0.125]}


# Vectors


def test_the_vectors_of_words_are_those_of_the_file_and_the_rest_is_drawn_by_the_seed(tmp_path: Path) -> None:
    data, file = write_data(tmp_path), write_vectors(tmp_path, FEW)
    found = wanting(data, word_vectors=file)
    assert isinstance(words_input(found), TokensConfig) and words_input(found).size == 3
    model, said = built_model(found, HERE)
    table = model.encoder.input.table.detach().numpy()  # type: ignore[union-attr]
    numbers = known_words(found.prepared.tokenizer)
    for word, row in FEW.items():
        np.testing.assert_array_equal(table[numbers[word]], np.float32(row))
    assert table[numbers["green"]].any() and table[UNKNOWN].any()
    again, _ = built_model(wanting(data, word_vectors=file), HERE)
    np.testing.assert_array_equal(table, again.encoder.input.table.detach().numpy())  # type: ignore[union-attr]
    (line,) = (line for line in said if line.startswith("word vectors:"))
    assert line == (
        "word vectors: 3 of 10 words of the training set found, 0 more in lowercase, 7 not found; "
        "1 other words were added to the vocabulary"
    )


def test_words_of_the_file_are_known_when_they_are_read_later_and_no_more_than_are_asked_for(tmp_path: Path) -> None:
    data, file = write_data(tmp_path), write_vectors(tmp_path, FEW)
    without, some, all_ = (
        wanting(data, **settings).prepared.tokenizer
        for settings in ({}, {"word_vectors": file, "word_vectors_limit": 2}, {"word_vectors": file})
    )
    assert without is not None and some is not None and all_ is not None
    assert some.vocab_size == without.vocab_size and all_.vocab_size == without.vocab_size + 1
    assert all_.encode(["elephant"]).values.tolist() == [known_words(all_)["elephant"]]
    assert all_.encode(["Elephant"]).values.tolist() == [known_words(all_)["elephant"]]  # in lower case, if at all
    assert some.encode(["elephant"]).values.tolist() == [UNKNOWN]
    old = {word: known_words(without)[word] for word in known_words(without)}
    assert all(known_words(all_)[word] == token for word, token in old.items())  # the training data comes first


@pytest.mark.slow
def test_frozen_vectors_stay_and_others_move(tmp_path: Path) -> None:
    data, file = write_data(tmp_path), write_vectors(tmp_path, FEW)
    for freeze in (True, False):
        run = seqloom.train(
            data,
            model="gru",
            size="nano",
            out=tmp_path / f"run-{freeze}",
            word_vectors=file,
            freeze_word_vectors=freeze,
            steps=2,
            device="cpu",
            lr=0.1,
            batching=ByLengthConfig(batch_tokens=60),
        )
        loaded = seqloom.load(run.folder)
        token = known_words(loaded.spec.tokenizer)["up"]
        row = loaded.model.encoder.input.table[token].tolist()  # type: ignore[union-attr]
        assert (row == FEW["up"]) is freeze


@pytest.mark.slow
def test_a_run_goes_on_without_the_file_and_ends_as_if_it_had_not_been_stopped(tmp_path: Path) -> None:
    data, file = write_data(tmp_path), write_vectors(tmp_path, FEW)
    settings: Any = {"word_vectors": file, "device": "cpu", "model": "gru", "size": "nano", "validate_every": 3}
    settings |= {
        "batching": ByLengthConfig(batch_tokens=60),
        "schedule": BASE["schedule"],
        "test_size": 0.0,
    }
    whole = seqloom.train(data, out=tmp_path / "whole", steps=6, **settings)
    stopped = seqloom.train(data, out=tmp_path / "stopped", steps=3, **settings)
    file.unlink()
    went_on = seqloom.train(data, out=stopped.folder, steps=6, **settings)
    assert went_on.end.step == 6
    weights = [seqloom.load(run.folder).model.state_dict() for run in (whole, went_on)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert seqloom.load(went_on.folder).evaluate(split="dev").metrics == seqloom.load(whole.folder).evaluate().metrics


# Letters


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("letters", [None, "cnn", "lstm"])
def test_letters_tell_the_tags_of_words_that_were_never_seen(letters: Any, tmp_path: Path) -> None:
    data = write_tags(tmp_path)
    settings: Any = {"size": "nano", "device": "cpu", "epochs": 8, "lr": 0.02, "patience": 0}
    settings |= {
        "batching": ByLengthConfig(batch_tokens=40),
        "dropout": 0.0,
        "dev_size": 0.2,
        "test_size": 0.0,
    }
    spelled = seqloom.train(data, out=tmp_path / "spelled", char_encoder=letters, **settings)
    words = seqloom.train(data, out=tmp_path / "words", char_encoder="none", **settings)
    assert spelled.metrics["accuracy"] > 0.95 and words.metrics["accuracy"] < 0.6
    loaded = seqloom.load(spelled.folder)
    assert loaded.evaluate().metrics["accuracy"] == pytest.approx(spelled.metrics["accuracy"])
    (said,) = loaded.predict([["abcdeing", "moprtly"]])
    assert said.to_json()["tags"] == ["VERB", "ADV"]


def conllu(sentences: list[list[tuple[str, str]]]) -> str:
    """Sentences of words and tags, no word with a space behind it."""
    row = "{}\t{}\t_\t{}\t_\t_\t0\t_\t_\tSpaceAfter=No\n"
    return "\n".join("".join(row.format(n + 1, *word) for n, word in enumerate(some)) for some in sentences) + "\n"


def test_with_letters_a_word_is_one_token_and_the_rare_ones_are_known(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    often, twice = [("do", "X"), ("n't", "Y")], [("10:30", "X"), ("10 000", "X")]
    path.write_text(conllu([*[often] * 20, *[twice] * 3, *[[(f"once{n}", "Y"), ("do", "X")] for n in range(8)]]))
    found = wanting(path, char_encoder="cnn", model="bilstm")
    reading, columns = words_input(found), found.prepared.columns
    assert isinstance(reading, SpelledConfig) and reading.char_encoder == "cnn"
    assert columns["input"].lengths.tolist() == columns["target"].lengths.tolist()  # one token for each tag
    assert {"do", "n't", "10:30"} <= set(known_words(found.prepared.tokenizer))
    read = columns["input"].select(found.prepared.splits["train"]).values
    counts = np.bincount(read, minlength=reading.vocab_size)
    assert reading.rare_from == first_rare(found.prepared)
    assert counts[reading.rare_from - 1] == 2 and (counts[reading.rare_from :] <= 1).all()


@pytest.mark.parametrize("longest", [2, 100])
def test_a_batch_holds_each_word_with_its_letters_also_where_rows_are_cut(longest: int, tmp_path: Path) -> None:
    data = write_tags(tmp_path, 20)
    sentences = [sentence.split()[::2][:longest] for sentence in data.read_text(encoding="utf-8").split("\n\n")]
    encoding = EncodingConfig(tokenizer=WordsConfig(), max_length=longest)
    found = wanting(data, char_encoder="cnn", model="bilstm", encoding=encoding)
    loader = found.task.loader(found.prepared, "train", ByLengthConfig(batch_tokens=30), seed=0, workers=0)
    read = []
    for step in loader.steps(until=1):
        inputs = step.batch.inputs
        assert isinstance(inputs, Spelled) and inputs.letters.shape[2] == int((inputs.letters > 0).sum(-1).max())
        for row, length in zip(inputs.letters, inputs.words.lengths.tolist(), strict=True):
            assert not row[length:].any()
            read.append([bytes(word.tolist()).rstrip(b"\0").decode() for word in row[:length]])
    assert len(read) == 16 and all(words in sentences for words in read)


def test_a_model_of_ones_own_that_reads_letters_gets_them(tmp_path: Path) -> None:
    data = write_tags(tmp_path, 12)
    made = wanting(data, char_encoder="lstm", model="bilstm").config.model
    found = wanting(data, model=made, size=None)
    spelled = WordsConfig(word_split="space", keep_characters=True, min_count=1)
    assert found.config.model == made and found.config.encoding.tokenizer == spelled


@pytest.mark.parametrize("model", ["bilstm", "transformer", "cnn", None])
def test_a_tagger_of_words_reads_their_letters_unless_told_otherwise(model: str | None, tmp_path: Path) -> None:
    data = write_tags(tmp_path, 12)
    usual, asked, without = (wanting(data, model=model, char_encoder=letters) for letters in (None, "cnn", "none"))
    assert usual.config == asked.config and isinstance(words_input(usual), SpelledConfig)
    assert words_input(usual).char_encoder == "cnn" and "keep_characters = true" in usual.config.to_toml()
    told = "character encoder: cnn, beside word vectors (--char-encoder none turns it off)"
    assert told in usual.messages and told not in asked.messages and told not in without.messages
    assert isinstance(words_input(without), TokensConfig)
    assert without.config.encoding.tokenizer == WordsConfig(min_count=1)


def test_letters_are_left_out_where_pieces_or_a_model_of_ones_own_are_read(tmp_path: Path) -> None:
    data = write_tags(tmp_path, 12)
    assert isinstance(words_input(wanting(data, model="bilstm", encoding=BPE)), TokensConfig)
    made = wanting(data, model="bilstm", char_encoder="none").config.model
    found = wanting(data, model=made, size=None)
    assert found.config.model == made and found.config.encoding.tokenizer == WordsConfig(min_count=1)
    text = wanting(write_data(tmp_path))
    assert isinstance(words_input(text), TokensConfig)


@pytest.mark.slow
def test_a_run_that_began_without_letters_goes_on_without_them(tmp_path: Path) -> None:
    data, folder = write_tags(tmp_path, 12), tmp_path / "run"
    began = wanting(data, model="bilstm", char_encoder="none", training={"duration": StepsConfig(steps=1)})
    for _ in train_run(folder, began, device=HERE, workers=0):
        pass
    again = wanting(data, RunLocation(folder), model="bilstm", training={"duration": StepsConfig(steps=1)})
    assert again.config == began.config


def test_letters_and_vectors_go_together(tmp_path: Path) -> None:
    data, file = write_tags(tmp_path, 12), write_vectors(tmp_path, FEW)
    first = data.read_text(encoding="utf-8").split()[0]
    file = write_vectors(tmp_path, FEW | {first: [9.0, 9.0, 9.0]})
    found = wanting(data, char_encoder="cnn", word_vectors=file, model="bilstm")
    model, _ = built_model(found, HERE)
    token = known_words(found.prepared.tokenizer)[first]
    assert model.encoder.input.table[token].tolist() == [9.0, 9.0, 9.0]  # type: ignore[union-attr]


# What makes no sense


@pytest.mark.parametrize(
    ("tags", "settings", "said"),
    [
        (False, {"char_encoder": "cnn"}, "a character encoder needs words, but the input is text"),
        (
            True,
            {"char_encoder": "cnn", "encoding": BPE},
            "a character encoder needs --tokenizer words, but the tokenizer is bpe",
        ),
        (
            False,
            {"word_vectors": True, "encoding": BPE},
            "word vectors need --tokenizer words, but the tokenizer is bpe",
        ),
        (
            False,
            {"word_vectors": True, "model": "linear"},
            "are for models with an embedding table, but the input of this model is tfidf",
        ),
        (
            False,
            {"word_vectors": True, "training": {"init": "elsewhere"}, "model": None, "size": None},
            "both initialize the word vectors",
        ),
        (False, {"word_vectors_limit": 5}, "without --word-vectors"),
        (True, {"char_encoder": "cnn", "model": TokensConfig}, "char_encoder cannot be combined with the given model"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(
    tags: bool, settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    data, file = (write_tags if tags else write_data)(tmp_path), write_vectors(tmp_path, FEW)
    if settings.get("model") is TokensConfig:
        settings = settings | {"model": wanting(data, model="bilstm", char_encoder="none").config.model, "size": None}
    if settings.get("word_vectors"):
        settings = settings | {"word_vectors": file}
    with pytest.raises(Exception, match=said) as caught:
        wanting(data, **settings)
    assert getattr(caught.value, "fix", "")


def test_a_file_of_vectors_that_is_not_there_is_refused_before_the_data_is_read(tmp_path: Path) -> None:
    data = write_data(tmp_path)
    with pytest.raises(RejectedError, match=r"nowhere\.txt"):
        wanting(data, word_vectors=tmp_path / "nowhere.txt")
    assert not (tmp_path / "cache").exists()


def test_vectors_of_another_size_than_those_of_ones_own_model_are_refused(tmp_path: Path) -> None:
    data, file = write_data(tmp_path), write_vectors(tmp_path, FEW)
    made = wanting(data, word_vectors=file).config.model
    other = with_words_input(made, size=4)
    with pytest.raises(
        ConfigError, match=r"vectors in the file have 3 dimensions, those of the model 4\. Fix: set size = 3"
    ):
        wanting(data, word_vectors=file, model=other, size=None)


def test_the_configuration_says_what_was_asked_for(tmp_path: Path) -> None:
    data, file = write_data(tmp_path), write_vectors(tmp_path, FEW)
    config = wanting(data, word_vectors=file, word_vectors_limit=3).config
    assert config.encoding.word_vectors is not None and config.encoding.word_vectors.limit == 3
    assert msgspec.json.decode(config.to_json(), type=type(config)) == config
