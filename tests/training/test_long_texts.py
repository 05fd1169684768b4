"""The default recipe for few long texts is `linear`, said aloud; `linear` reads words without their case."""

from pathlib import Path

import pytest

from seqloom.config.models import SequenceModelConfig
from seqloom.config.tokenizers import WordsConfig
from seqloom.training import data_defaults
from seqloom.training.request import requested
from seqloom.training.resolve import Resolved, resolve


def resolved(folder: Path, words: int, rows: int = 20, **settings: object) -> Resolved:
    text = " ".join(f"Word{number}" for number in range(words))
    path = folder / "messages.csv"
    path.write_text("text,label\n" + "".join(f"row{row} {text},{'ab'[row % 2]}\n" for row in range(rows)))
    data, request = requested((str(path),), settings)
    return resolve(data, request, cache=folder / "cache")


def recipe_of(found: Resolved) -> str:
    (line,) = (message for message in found.messages if message.startswith("model: "))
    return line.removeprefix("model: ").partition(",")[0]


def lowercase(found: Resolved) -> bool:
    assert isinstance(found.config.encoding.tokenizer, WordsConfig)
    return found.config.encoding.tokenizer.lowercase


def test_few_long_texts_are_classified_by_counts_and_the_line_says_why(tmp_path: Path) -> None:
    found = resolved(tmp_path, words=120)
    assert recipe_of(found) == "linear"
    assert found.config.training.strengths, "solved"
    (line,) = (message for message in found.messages if message.startswith("model: "))
    assert "few long texts (16, of 121 tokens on average); --model cnn trains layers" in line
    assert recipe_of(resolved(tmp_path, words=60)) == "cnn"


def test_many_long_texts_train_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_defaults, "FEW", 16)
    assert recipe_of(resolved(tmp_path, words=120)) == "cnn"


@pytest.mark.parametrize(
    "named", [{"epochs": 2}, {"lr": 0.01}, {"size": "tiny"}, {"dropout": 0.5}, {"label_smoothing": 0.1}], ids=str
)
def test_who_names_a_setting_of_layers_gets_layers(tmp_path: Path, named: dict[str, object]) -> None:
    found = resolved(tmp_path, words=120, **named)
    assert isinstance(found.config.model, SequenceModelConfig)
    assert recipe_of(found) == "cnn"


def test_linear_reads_words_without_their_case_unless_it_is_asked_to_keep_it(tmp_path: Path) -> None:
    found = resolved(tmp_path, words=120)
    assert lowercase(found)
    assert "words are read without their case (--no-lowercase keeps it)" in found.messages
    assert lowercase(resolved(tmp_path, words=5, model="linear"))
    assert not lowercase(resolved(tmp_path, words=5, model="linear", lowercase=False))
    assert not lowercase(resolved(tmp_path, words=5))
