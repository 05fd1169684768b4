"""CoNLL-U: words, parts of speech and spaces as the format defines them."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reading_common import MANY, PIECES, SOME, any_bytes, read, refused, require_records_or_a_place, write
from seqloom.data.kinds.words import Words


def row(number: str, form: str, upos: str = "X", misc: str = "_") -> str:
    return f"{number}\t{form}\t{form.lower()}\t{upos}\tXX\t_\t0\troot\t_\t{misc}\n"


NO = "SpaceAfter=No"
SENTENCE = "".join(
    [
        "# sent_id = 1\n# text = I don't know (yet).\n",
        row("1", "I", "PRON"),
        row("2-3", "don't", "_"),
        row("2", "do", "AUX"),
        row("3", "n't", "PART"),
        row("3.1", "really", "ADV"),
        row("4", "know", "VERB"),
        row("5", "(", "PUNCT", f"A=b|{NO}"),
        row("6", "yet", "ADV", NO),
        row("7", ")", "PUNCT", NO),
        row("8", ".", "PUNCT"),
    ]
)


def test_words_come_with_their_columns(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.conllu", SENTENCE))
    assert found.table.columns == ("tokens", "upos", "xpos", "lemma", "feats", "deprel", "spaces", "text")
    tokens, upos, xpos, lemma, feats, deprel, _, text = found.values[0]
    assert tokens == ("I", "do", "n't", "know", "(", "yet", ")", ".")
    assert upos == ("PRON", "AUX", "PART", "VERB", "PUNCT", "ADV", "PUNCT", "PUNCT")
    assert (lemma[0], xpos[0], feats[0], deprel[0], text) == ("i", "XX", "_", "root", "I don't know (yet).")
    assert found.records[0].line == 3


def test_ranges_and_empty_nodes_are_skipped_and_counted(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.conllu", f"{SENTENCE}\n{SENTENCE}\n"))
    assert found.only("conllu.skipped").severity == "note"
    assert found.ledger.counts["conllu.skipped"] == 4


def test_the_spaces_make_the_original_text(tmp_path: Path) -> None:
    tokens, *_, spaces, text = read(write(tmp_path / "a.conllu", SENTENCE)).values[0]
    assert Words.join(tokens, list(spaces)).text == text


def test_the_space_after_a_range_is_the_ranges_own(tmp_path: Path) -> None:
    content = row("1-2", "can't", misc=NO) + row("1", "ca") + row("2", "n't") + row("3", "!")
    assert read(write(tmp_path / "a.conllu", content)).values[0][6] == (False, False, True)


def test_a_sentence_without_its_text_has_an_empty_one(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.conllu", f"# alone\n\n{row('1', '#')}"))
    assert [(values[0], values[7]) for values in found.values] == [(("#",), "")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1\ta\ta\tX\n", "1: conll.columns: 4 columns; CoNLL-U has 10, separated by tabs."),
        (row("1", "a").replace("\t", " "), "1: conll.columns: 1 column; CoNLL-U has 10"),
        (row("1", ""), "1: conll.empty_token: "),
        (row("1", "a", upos=""), "1: conll.columns: UPOS is empty."),
        (row("1", "a") + row("3", "b"), "2: conllu.id: expected the id 2, found '3'."),
        (row("1", "a") + row("1", "b"), "2: conllu.id: "),
        (row("0", "a"), "1: conllu.id: "),
        (row("01", "a"), "1: conllu.id: "),
        (row("٣", "a"), "1: conllu.id: "),
        (row("2-3", "ab") + row("1", "a"), "1: conllu.id: "),
        (row("1", "a") + row("2-1", "ab") + row("2", "b"), "2: conllu.id: "),
        (row("1-3", "ab") + row("1", "a") + row("2", "b"), "3: conllu.id: a range ends at word 3"),
        (row("1-3", "abc") + row("1", "a") + row("2-3", "bc"), "3: conllu.id: "),
        (row("1", "a") + row("3.1", "b"), "2: conllu.id: "),
        (row("1", "a") + "# too late\n", "2: conll.columns: "),
        ("# nothing\n", " data.empty: "),
        ("", " data.empty: "),
    ],
)
def test_bad_files_are_refused_with_their_place(tmp_path: Path, content: str, message: str) -> None:
    path = write(tmp_path / "a.conllu", content)
    assert refused(path).startswith(f"{path}:{message}")


fragments = [row("1", "a"), row("2", "b"), row("1-2", "c"), row("0.1", "d"), "# text = a\n", "1\t", "\t_" * 9, "\n"]
any_rows = any_bytes | st.lists(st.sampled_from([one.encode() for one in fragments] + PIECES), max_size=20).map(
    b"".join
)


@pytest.mark.parametrize("examples", [SOME, MANY])
def test_any_bytes_are_read_or_refused_with_a_place(tmp_path: Path, examples: int) -> None:
    @settings(max_examples=examples)
    @given(any_rows)
    def law(content: bytes) -> None:
        require_records_or_a_place(write(tmp_path / "a.conllu", content))

    law()
