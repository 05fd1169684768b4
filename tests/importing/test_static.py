"""Claims about imported vectors of words: the mean and the SIF of the papers, written plainly beside them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqloom
from seqloom.errors import SeqloomError
from seqloom.importing.models import import_model

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", ".", "Paris"]
TEXTS = ["The cat sat on the mat.", "a dog ran", "the the the", "Paris .", "a zzz cat", "cat"]
CORPUS = ["the cat sat", "the dog ran on the mat .", "a cat", "", "zzz the"] * 3
SMOOTHING = 1e-3


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    rows = np.random.default_rng(0).normal(size=(len(WORDS), 6))
    lines = [" ".join([word, *(f"{number:.5f}" for number in row)]) for word, row in zip(WORDS, rows, strict=True)]
    (tmp_path / "vectors.txt").write_text("\n".join([*lines, "two words 1 2 3 4 5 6"]) + "\n")
    (tmp_path / "corpus.txt").write_text("\n".join(CORPUS) + "\n")
    return tmp_path / "vectors.txt"


def table(path: Path) -> dict[str, np.ndarray]:
    lines = [line.rsplit(" ", 6) for line in path.read_text().splitlines()]
    return {word: np.array([float(number) for number in numbers]) for word, *numbers in lines}


def words_of(text: str) -> list[str]:
    return [word if word in WORDS else word.lower() for word in text.replace(".", " .").split()]


def mean(text: str, given: dict[str, np.ndarray]) -> np.ndarray:
    return np.mean([given.get(word, np.zeros(6)) for word in words_of(text)], axis=0)


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


def test_the_mean_is_the_mean_of_the_vectors_of_the_words(vectors: Path, tmp_path: Path) -> None:
    model = seqloom.load(import_model(vectors, tmp_path / "model"))
    expected = np.stack([unit(mean(text, table(vectors))) for text in TEXTS])
    assert np.abs(model.embed(TEXTS) - expected).max() < 1e-5


def test_sif_weighs_words_by_how_rare_they_are_and_takes_out_what_texts_have_in_common(
    vectors: Path, tmp_path: Path
) -> None:
    corpus = [text for text in CORPUS if text]
    words = [word for text in corpus for word in words_of(text)]
    shares = {word: words.count(word) / len(words) for word in WORDS}
    weighed = {word: row * SMOOTHING / (SMOOTHING + shares.get(word, 0)) for word, row in table(vectors).items()}
    common = np.linalg.svd(np.stack([mean(text, weighed) for text in corpus]))[2][0]
    pooled = [mean(text, weighed) for text in TEXTS]
    expected = np.stack([unit(one - common * (common @ one)) for one in pooled])
    model = seqloom.load(import_model(vectors, tmp_path / "model", weighting="sif", counts=tmp_path / "corpus.txt"))
    assert np.abs(model.embed(TEXTS) - expected).max() < 1e-4
    assert model.notes["imported"]["weighting"] == "sif"


def test_a_text_without_a_known_word_has_the_vector_zero(vectors: Path, tmp_path: Path) -> None:
    assert not seqloom.load(import_model(vectors, tmp_path / "model")).embed(["zzz qqq"]).any()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"weighting": "sif"}, "needs word counts"),
        ({"weighting": "mean", "counts": "corpus.txt"}, "does not use counts"),
        ({"counts": "corpsu.txt"}, "there is no file"),
        ({"counts": "latin.txt"}, "latin.txt:1"),
        ({"counts": "blank.txt"}, "no text"),
        ({"counts": "foreign.txt"}, "no word of"),
        ({"pooling": "max"}, "by their mean"),
    ],
)
def test_what_cannot_be_meant_is_refused(how: dict[str, Any], message: str, vectors: Path, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("caf\u00e9".encode("latin-1"))
    (tmp_path / "blank.txt").write_text("\n\n")
    (tmp_path / "foreign.txt").write_text("zzz qqq\n")
    given = {name: tmp_path / value if name == "counts" else value for name, value in how.items()}
    with pytest.raises(SeqloomError) as caught:
        import_model(vectors, tmp_path / "model", **given)
    assert message in caught.value.problem
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("vectors.txt", "cat 1 2\ndog 1\n", "vectors.txt:2"),
        ("vectors.txt", "cat 1 nan\n", "not finite"),
        ("vectors.txt", "don't 1 2\nco-op 3 4\n", "no vector of a single word"),
        ("vectors.csv", "cat,1,2\n", "does not have the extension of a word vector file"),
        ("lines.txt", "a fish jumps in the house\n", "has no word vectors: line 1 has no numbers"),
    ],
)
def test_a_file_that_is_none_of_vectors_is_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SeqloomError) as caught:
        import_model(tmp_path / name, tmp_path / "model")
    assert message in caught.value.problem
    assert not (tmp_path / "model").exists()
