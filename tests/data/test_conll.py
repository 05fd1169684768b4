"""CoNLL columns: sentences come back word for word, and a bad line spoils its sentence and no other."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reading_common import MANY, PIECES, SOME, any_bytes, read, refused, require_records_or_a_place, write
from seqloom.config.data import BadRows, ReadingConfig
from seqloom.data.problems import Ledger
from seqloom.data.readers import conll


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a O\nb NN O\n", "2: conll.columns: 3 columns, but line 1 has 2."),  # T01
        ("a\tO\nb O\n", "2: conll.separator: line 1 is separated by tabs, this one by spaces."),  # T02
        ("a O\nb\tO\n", "2: conll.separator: line 1 is separated by spaces, this one by tabs."),
        ("a O\nNew York\tO\n", "2: conll.separator: "),
        ("a O\nb\n", "2: conll.columns: 1 column, but line 1 has 2."),  # T08
        ("a\tO\nb\t\n", "2: conll.columns: column 2 is empty."),
        ("a\tNN\tO\nb\t\tO\n", "2: conll.columns: column 2 is empty."),
        (
            "a\tO\n" * 50_000,
            "1: conll.sentence_too_long: a sentence of more than 10,000 words; are blank lines missing?",
        ),
        ("a\tO\n\tO\n", "2: conll.empty_token: "),  # T13
        ("a O\n O\n", "2: conll.empty_token: "),
        ("a O\n# not a comment here\n", "2: conll.columns: "),
        ("a\nb\n", "1: conll.columns: expected a word and its tag, found one column."),
        ("", " data.empty: "),
        ("\n\t\n \n", " data.empty: "),
        ("-DOCSTART- O\n\n", " data.empty: "),
    ],
)
def test_bad_files_are_refused_with_their_place(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path / "a.conll", content)
    assert refused(path).startswith(f"{path}:{message}")


@pytest.mark.parametrize(
    ("content", "sentences"),
    [
        ("-DOCSTART- -X- O\n\na NN O\n\nb NN O\n", ["a", "b"]),  # T09
        ("-DOCSTART-\na O\n-DOCSTART-\nb O\n", ["a", "b"]),
        ("a O\n\n\n \n\t\t\nb O", ["a", "b"]),  # T11
        ("a\tO\n\t\nb\tO\n", ["a", "b"]),  # WNUT-17 has lone tabs
        ("a\u00a0b\tO\nc d\tO\ne\u3000f O\tO\n", ["a\u00a0b|c d|e\u3000f O"]),  # T12
        ("a\u00a0b O\ne\u3000f O\n", ["a\u00a0b|e\u3000f"]),
        ("#\tO\n1\tO\n", ["#|1"]),  # T15
        ("# O\na O\n", ["#|a"]),
        ("a O\n# O\n", ["a|#"]),
        ("# id = 7\n#\tO\na\tO\n", ["#|a"]),
        ("# one file\n\n# id 1\na\tO\n\n# id 2\nb\tO\n", ["a", "b"]),
        ("a   O \nb O\n", ["a|b"]),
        ("-DOCSTART-x O\n", ["-DOCSTART-x"]),
    ],
)
def test_what_is_a_word_and_what_is_not(tmp_path: Path, content: str, sentences: list[str]) -> None:
    found = read(write(tmp_path / "a.conll", content))
    assert ["|".join(values[0]) for values in found.values] == sentences


def test_the_last_column_holds_the_tags_and_those_between_have_numbers(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.conll", "EU NNP B-NP B-ORG\nrejects VBZ B-VP O\n"))
    assert found.table.columns == ("tokens", "2", "3", "tags")
    assert found.values == [(("EU", "rejects"), ("NNP", "VBZ"), ("B-NP", "B-VP"), ("B-ORG", "O"))]


def test_the_declared_separator_is_the_only_one(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.conll", "a b\tc|O\n||\nd|O\n"), delimiter="|")
    assert found.values == [(("a b\tc",), ("O",)), (("d",), ("O",))]


def test_documents_and_comments_are_noted(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.conll", "-DOCSTART- O\n\n# id 1\n# text\na\tO\n"))
    assert (found.ledger.counts["conll.document"], found.ledger.counts["conll.comment"]) == (1, 2)


def test_a_bad_line_spoils_its_sentence_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "a O\n\nb O\nc\nd\n\ne O\n")
    ledger = Ledger(BadRows(skip_bad_rows=True, max_bad_rows=0.5))
    records = list(conll.read_conll((path,), ReadingConfig(), ledger).records)
    assert [(record.line, record.values[0]) for record in records] == [(1, ("a",)), (7, ("e",))]
    assert [problem.place.line for problem in ledger.refused] == [4]
    assert ledger.skipped == 1


cells = st.text(st.characters(exclude_characters="\t\n\r\0 ", exclude_categories=["Cs"]), min_size=1, max_size=4)
words = cells.filter(lambda word: not word.startswith(("#", "\ufeff")) and not word.isspace())
sentences = st.integers(2, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.tuples(words, *[cells] * (width - 1)), min_size=1, max_size=4), min_size=1, max_size=4
    )
)


@settings(max_examples=200)
@given(sentences, st.sampled_from(["\t", " "]), st.sampled_from(["\n", "\r\n"]))
def test_sentences_come_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[tuple[str, ...]]], separator: str, end: str
) -> None:
    text = "".join("".join(separator.join(row) + end for row in sentence) + end for sentence in rows)
    path = write(tmp_path_factory.getbasetemp() / "written.conll", text)
    if path.read_bytes()[257:262] != b"ustar":
        assert read(path).values == [tuple(zip(*sentence, strict=True)) for sentence in rows]


fragments = [b"a\tO\n", b"b B-X\n", b"-DOCSTART-", b"# ", b"#", b"\t\t\n", b"\n\n", b"B-PER", b"a\xc2\xa0b"]
any_columns = any_bytes | st.lists(st.sampled_from(fragments + PIECES), max_size=30).map(b"".join)


@pytest.mark.parametrize("examples", [SOME, MANY])
def test_any_bytes_are_read_or_refused_with_a_place(tmp_path: Path, examples: int) -> None:
    @settings(max_examples=examples)
    @given(any_columns)
    def law(content: bytes) -> None:
        require_records_or_a_place(write(tmp_path / "a.conll", content))

    law()
