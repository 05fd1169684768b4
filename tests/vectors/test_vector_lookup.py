"""Neighbors, analogies and scores of word vectors equal their definitions; the verbs print them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from seqloom import vectors
from seqloom.cli import app
from seqloom.data.word_vectors import WordVectors
from seqloom.errors import ConfigError, DataError, RejectedError
from seqloom.metrics.correlation import spearman
from seqloom.vectors.lookup import VectorSpace

FILE = """man 1 0 0.1
king 1 1 0.1
woman 0 0 1
queen 0 1 1
apple -1 -0.2 -1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_text(FILE)
    return path


def space(count: int = 40) -> VectorSpace:
    matrix = np.random.default_rng(0).normal(size=(count, 5)).astype(np.float32)
    return VectorSpace(WordVectors(tuple(f"w{number}" for number in range(count)), matrix))


def test_neighbors_are_the_words_with_the_largest_cosines() -> None:
    found, all_ = space().neighbors("w3", top_k=5), space()
    cosines = {word: float(unit @ all_.units[3]) for word, unit in zip(all_.words, all_.units, strict=True)}
    wanted = sorted((word for word in cosines if word != "w3"), key=lambda word: -cosines[word])[:5]
    assert list(found.words) == wanted
    assert [each.cosine for each in found.nearest] == pytest.approx([cosines[word] for word in wanted], abs=1e-6)


def test_an_analogy_leaves_out_its_own_words() -> None:
    found, all_ = space().analogy("w1", "w2", "w3", top_k=40), space()
    target = all_.units[2] - all_.units[1] + all_.units[3]
    assert len(found.words) == 37 and not {"w1", "w2", "w3"} & set(found.words)
    scores = all_.units @ target
    assert list(found.words) == [f"w{n}" for n in np.argsort(-scores).tolist() if n not in (1, 2, 3)]


def test_a_word_is_found_in_lower_case_and_a_mistyped_one_is_answered_with_a_similar_one(file: Path) -> None:
    assert vectors.neighbors(file, "King").words == vectors.neighbors(file, "king").words
    with pytest.raises(DataError, match=r"'quen' has no vector. Did you mean 'queen'"):
        vectors.neighbors(file, "quen")
    with pytest.raises(DataError, match=r"'zzzzzz' has no vector. Fix: choose a word of the file"):
        vectors.neighbors(file, "zzzzzz")


def test_a_limit_leaves_only_the_first_words(file: Path) -> None:
    assert set(vectors.neighbors(file, "man", limit=3).words) == {"king", "woman"}
    with pytest.raises(DataError, match="'queen' has no vector"):
        vectors.analogy(file, "man", "king", "queen", limit=3)


def test_analogies_are_scored_by_section_and_lines_with_unknown_words_do_not_count(file: Path, tmp_path: Path) -> None:
    questions = tmp_path / "questions-words.txt"
    questions.write_text(
        ": royal\nman king woman queen\nWoman Queen Man King\nman king prince princess\n: wrong\nman king woman apple\n"
    )
    found = vectors.evaluate(file, questions)
    assert found.metric == "accuracy" and found.score == pytest.approx(2 / 3)
    assert [tuple(each) for each in found.scores] == [("royal", 1.0, 2, 3), ("wrong", 0.0, 1, 1), ("all", 2 / 3, 3, 4)]
    assert "Left out, because a word has no vector: 1 line." in found.text()


@pytest.mark.parametrize(
    "text",
    [
        "man\tking\t7\nwoman\tqueen\t8\nman\tapple\t1\n",
        "Word 1,Word 2,Human (mean)\nman,king,7\nwoman,queen,8\nman,apple,1\n",
        "man king 7\nwoman queen 8\nman apple 1\n",
        "word1\tword2\tPOS\tSimLex999\tconc\nman\tking\tN\t7\t1\nwoman\tqueen\tN\t8\t5\nman\tapple\tN\t1\t3\n",
        "# w\tv\tscore\r\nman\tking\t7\r\nwoman\tqueen\t8\r\nman\tapple\t1\r\nman\tunknown\t4\r\n",
    ],
)
def test_similarities_in_every_usual_form_give_one_correlation(text: str, file: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text(text)
    found = vectors.evaluate(file, pairs)
    units = VectorSpace.read(file).units
    cosines = np.array([units[0] @ units[1], units[2] @ units[3], units[0] @ units[4]])
    assert found.metric == "spearman" and found.score == pytest.approx(spearman(cosines, np.array([7.0, 8.0, 1.0])))
    assert found.scores[0].used == 3 and found.scores[0].lines == 3 + ("unknown" in text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        (": section\n", "there are no analogies"),
        (": section\na b c\n", "file:2: vec.evaluation: expected four words, found 3"),
        ("a b 1\nc d\n", "file:2: vec.evaluation: expected two words and a number"),
    ],
)
def test_a_file_that_cannot_be_scored_is_an_error_with_its_line(
    text: str, message: str, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(RejectedError, match=message):
        vectors.evaluate(file, tmp_path / "file")


# --- verbs -----------------------------------------------------------------------------------------------------------


def answer(*words: object) -> str:
    result = CliRunner().invoke(app, ["vectors", *map(str, words)], env={"COLUMNS": "100"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_verbs_print_tables_and_json(file: Path, tmp_path: Path) -> None:
    corpus, out = tmp_path / "corpus.txt", tmp_path / "new.vec"
    corpus.write_text("the cat sat . the dog sat .\n" * 6)
    said = answer("train", corpus, "-o", out, "--dim", 4, "--epochs", 1)
    assert re.search(r"words +5 \(0 rarer", said) and str(out) in said
    made = json.loads(answer("train", corpus, "-o", tmp_path / "sub.vec", "--dim", 4, "--subwords", "--json"))
    assert (made["words"], made["dim"], made["corpus_words"], made["subwords"]) == (5, 4, 48, True)
    assert "cat" in answer("neighbors", out, "dog")
    assert json.loads(answer("analogy", file, "man", "king", "woman", "--json"))["nearest"][0][0] == "queen"
    (tmp_path / "pairs.txt").write_text("man king 7\nwoman queen 8\nman apple 1\n")
    assert "spearman" in answer("evaluate", file, tmp_path / "pairs.txt")


def test_the_british_spelling_is_answered_with_the_american_one() -> None:
    result = CliRunner().invoke(app, ["vectors", "neighbours", "v.txt", "king"])
    assert result.exit_code == 2 and "Did you mean 'neighbors'?" in result.output


def test_a_file_of_three_words_has_no_answer_to_an_analogy_of_them(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("a 1 0\nb 0 1\nc 1 1\n")
    (tmp_path / "q.txt").write_text("a b c b\n")
    assert vectors.evaluate(tmp_path / "v.txt", tmp_path / "q.txt").score == 0
    (tmp_path / "q.txt").write_text("a b c b\na a b c\n")
    assert vectors.evaluate(tmp_path / "v.txt", tmp_path / "q.txt").score == 0.5
    assert vectors.analogy(tmp_path / "v.txt", "a", "b", "c").words == ()


@pytest.mark.parametrize("top_k", [0, -1])
def test_fewer_than_one_word_cannot_be_asked_for(top_k: int, tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("a 1 0\nb 0 1\nc 1 1\n")
    with pytest.raises(ConfigError, match=rf"^top_k={top_k}\. Fix: use at least 1\.$"):
        vectors.neighbors(tmp_path / "v.txt", "a", top_k=top_k)
