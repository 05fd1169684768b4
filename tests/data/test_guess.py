"""A .txt file of words and tags, of prose or of lines is recognized; what is not sure is asked about."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.config.data import DataConfig, ReadingConfig
from seqloom.data.dataset import open_data
from seqloom.data.problems import Ledger
from seqloom.data.readers.guess import guess, has_sentences
from seqloom.data.roles import NEEDS
from seqloom.errors import RejectedError
from seqloom.report.labels import shortened

WORDS = ("EU", "rejects", "German", "call", "to", "boycott", "British", "lamb")
TAGS = {
    "entities": ("B-ORG", "O", "B-MISC", "I-MISC"),
    "parts of speech": ("NNP", "VBZ", "JJ", "NN", ".", "PRP$"),
    "universal": ("NOUN", "VERB", "PROPN", "PUNCT"),
}
PROSE = "It was a dark and\nstormy night; the rain\nfell in torrents.\n\nExcept at occasional\nintervals.\n\nThe end.\n"


def guessed(path: Path, content: str, **settings: object) -> tuple[ReadingConfig, tuple[str, ...]]:
    path.write_text(content)
    config = DataConfig(train=(str(path),), **settings)  # type: ignore[arg-type]
    needs = NEEDS[config.task]
    found = guess(config, Ledger(), words=needs.each_step, prose=needs.documents)
    return found.config, found.messages


def sentences(tags: tuple[str, ...], separator: str, columns: int = 2) -> str:
    rows = [separator.join([word, *["x"] * (columns - 2), tags[n % len(tags)]]) for n, word in enumerate(WORDS)]
    return "\n".join(rows[:5]) + "\n\n" + "\n".join(rows[5:]) + "\n\n"


@pytest.mark.parametrize("separator", ["\t", " "])
@pytest.mark.parametrize("tags", TAGS)
@pytest.mark.parametrize("columns", [2, 4])
def test_words_with_tags_are_read_as_conll_and_it_is_said(
    tmp_path: Path, separator: str, tags: str, columns: int
) -> None:
    content = sentences(TAGS[tags], separator, columns)
    reading, (message,) = guessed(tmp_path / "a.txt", content)
    assert reading.format == "conll" and message.startswith("format: conll, because each line of a.txt has a word")
    assert guessed(tmp_path / "b.txt", f"-DOCSTART- O\n\n# id = 7\n{content}")[0].format == "conll"


def test_the_guess_is_part_of_the_configuration_so_that_a_run_remembers_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(sentences(TAGS["entities"], "\t") * 4)
    dataset = open_data(DataConfig(train=(str(tmp_path / "a.txt"),)), Ledger())
    assert (dataset.config.reading.format, dataset.config.task) == ("conll", "tag")
    assert any(message.startswith("format: conll") for message in dataset.messages)


def test_ten_columns_with_numbered_words_are_conllu(tmp_path: Path) -> None:
    rows = [
        "\t".join([str(n), word, word, "NOUN", "NN", "_", "0", "root", "_", "_"]) for n, word in enumerate(WORDS, 1)
    ]
    reading, _ = guessed(tmp_path / "a.txt", "\n".join(rows) + "\n\n" + "\n".join(rows) + "\n")
    assert reading.format == "conllu"


def test_columns_that_may_be_tags_are_asked_about_and_the_format_decides(tmp_path: Path) -> None:
    path, content = tmp_path / "a.txt", sentences(("noun", "verb"), " ") * 3
    with pytest.raises(RejectedError, match=r"a\.txt:1: file\.format: .*--format conll .* or --format text"):
        guessed(path, content)
    for format_ in ("text", "conll"):
        assert guessed(path, content, reading=ReadingConfig(format=format_)) == (ReadingConfig(format=format_), ())
    assert guessed(path, content, task="lm")[0].unit == "paragraph"  # the task has no tags


@pytest.mark.parametrize("odd", ["go O extra", "Lee", "Rome is large", "Rome b_loc"])
@pytest.mark.parametrize("separator", ["\t", " "])
def test_a_line_without_word_and_tag_is_shown_and_the_format_decides(tmp_path: Path, odd: str, separator: str) -> None:
    path, content = tmp_path / "a.txt", sentences(TAGS["entities"], separator) * 10
    odd = odd.replace(" ", separator)
    lines = content.split("\n")
    lines.insert(12, odd)
    message = rf"a\.txt:13: file\.format: .*'{re.escape(shortened(odd))}'.*--format conll .*--format text"
    with pytest.raises(RejectedError, match=message):
        guessed(path, "\n".join(lines))
    for format_ in ("text", "conll"):
        given = ReadingConfig(format=format_)
        assert guessed(path, "\n".join(lines), reading=given) == (given, ())


@pytest.mark.parametrize(
    "content",
    [
        "yeah yeah\noh no\n\nyeah yeah\noh no\n\nyeah yeah\noh no\n\nyeah yeah\noh yeah\n\n" * 3,
        "HELLO WORLD\nGOOD DAY\n\nHI BOB\nYES SIR\n\nTHE END\n",
        "I said\nyou heard\nwe danced\n\nshe cried out\nhe left\n\n",
        "hi\nhello\n\nbye\nbye bye\n\n" * 10,
    ],
)
def test_short_lines_of_words_are_never_columns(tmp_path: Path, content: str) -> None:
    assert guessed(tmp_path / "a.txt", content)[0] == ReadingConfig(unit="paragraph")


def test_words_in_capitals_need_tags_of_entities(tmp_path: Path) -> None:
    few = "HELLO WORLD\nGOOD DAY\n\nHI WORLD\nYES DAY\n\n" * 5
    with pytest.raises(RejectedError, match=r"--format conll .* or --format text"):
        guessed(tmp_path / "a.txt", few)
    tags = "EU B-ORG\nREJECTS O\n\nGERMAN B-MISC\nCALL O\n\n"
    assert guessed(tmp_path / "b.txt", tags)[0].format == "conll"


def test_prose_is_read_in_paragraphs_and_lines_stay_lines(tmp_path: Path) -> None:
    reading, (message,) = guessed(tmp_path / "a.txt", PROSE)
    assert reading.unit == "paragraph" and "--unit line" in message
    dataset = open_data(DataConfig(train=(str(tmp_path / "a.txt"),)), Ledger())
    assert [example.input.count("\n") for _, example in dataset.rows(Ledger())] == [2, 1, 0]
    lines = "".join(f"line {number} of the file\n" for number in range(200))
    assert guessed(tmp_path / "b.txt", lines) == (ReadingConfig(), ())
    assert guessed(tmp_path / "c.txt", f"{lines}\n{lines}") == (ReadingConfig(), ())  # one stray blank line


@pytest.mark.parametrize(
    "settings",
    [
        {"reading": ReadingConfig(unit="line")},
        {"reading": ReadingConfig(unit="file")},
        {"reading": ReadingConfig(template="{label} {text}")},
        {"reading": ReadingConfig(format="text")},
        {"task": "embed"},
        {"task": "masked"},
    ],
)
def test_what_is_given_is_never_guessed_otherwise(tmp_path: Path, settings: dict[str, object]) -> None:
    for content in (PROSE, sentences(TAGS["entities"], "\t")):
        reading, messages = guessed(tmp_path / "a.txt", content, **settings)
        assert (reading, messages) == (settings.get("reading", ReadingConfig()), ())


def test_other_files_and_files_that_cannot_be_read_are_left_alone(tmp_path: Path) -> None:
    assert guessed(tmp_path / "a.csv", sentences(TAGS["entities"], "\t")) == (ReadingConfig(), ())
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00 caf\xe9\n")
    assert guess(DataConfig(train=(str(tmp_path / "b.txt"),)), Ledger()) == (ReadingConfig(), ())
    assert guess(DataConfig(train=(str(tmp_path / "none.txt"),)), Ledger()) == (ReadingConfig(), ())


@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join), min_size=1, max_size=30))
def test_sentences_one_to_a_line_are_never_columns(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    reading, _ = guessed(tmp_path_factory.mktemp("lines") / "a.txt", "\n".join(lines) + "\n")
    assert reading == ReadingConfig()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["Yesterday John Smith, of Acme Corp., visited Paris."], True),
        (["John Smith lives here", "Mary Jones visited Rome"], True),
        (["one sentence", "", "and a longer sentence"], True),
        (["John Smith lives in the USA"], True),
        (["John Smith , visited Paris ."], True),
        (["Hello Anna !", "Bye Anna !"], True),
        (["He sleeps .", "She eats ."], True),
        (["She visited the USA", "He visited the UK"], True),
        (["Go !", "Stop !", "Wait !", "Run !"], True),
        (["John", "sleeps", "", "Mary"], False),
        (["John B-PER", "sleeps O", "", "Mary B-PER"], False),
        (["John NN", "sleeps VBZ", ". ."], False),
        (["John name", "sleeps other"], False),
        (["John NNP B-NP", "sleeps VBZ B-VP", "", "Mary NNP B-NP", "eats VBZ B-VP"], False),
        (["John\tB-EVENT", "sleeps\tI-EVENT"], False),
        (["\t".join([str(n), "John", *"_" * 8]) for n in (1, 2)], False),
        ([], False),
    ],
)
def test_sentences_of_a_file_of_inputs_are_told_from_words_in_columns(
    tmp_path: Path, lines: list[str], expected: bool
) -> None:
    (tmp_path / "new.txt").write_text("\n".join(lines))
    labels = ("B-PER", "O", "NN", "VBZ", ".", "name", "other")
    assert has_sentences(tmp_path / "new.txt", ReadingConfig(), labels) is expected


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9), st.sampled_from([".", "!", "USA", "O", "B-PER"]))
def test_one_sentence_is_never_columns(tmp_path_factory: pytest.TempPathFactory, words: list[str], last: str) -> None:
    path = tmp_path_factory.mktemp("one") / "new.txt"
    path.write_text(" ".join([*words, last]))
    assert has_sentences(path, ReadingConfig(), ("B-PER", "O", "."))
