"""Claims about wordpiece: tokens are those of the original's library, framed, and no text gives a special one."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers
from typer.testing import CliRunner

from importing_common import PIECES, library
from seqloom.cli import app
from seqloom.config.data import EncodingConfig
from seqloom.config.tokenizers import WordpieceConfig
from seqloom.data.prepared import ExampleEncoder
from seqloom.data.problems import Ledger, Place
from seqloom.data.schema import Example, Examples, Schema
from seqloom.errors import ConfigError, DataError
from seqloom.importing.bert import Vocabulary, read_vocabulary
from seqloom.tasks.masked import GapTokenizer
from seqloom.text.special_tokens import BEGIN, COUNT, END, MASK, SEPARATOR, UNKNOWN
from seqloom.text.subwords import NO_PIECE, WordpieceData, WordpieceSegmenter
from seqloom.text.tokenizer import Tokenizer, align, split_words

WORDS = st.sampled_from(
    [*PIECES, "Unaffable", "cats", "CAFÉ", "caf\u0065\u0301", "İ", "ﬁ", "\u200d", "\x07", "ǅ", "北京"]
)
TEXTS = st.lists(st.one_of(WORDS, st.text(max_size=4), st.just(" ")), max_size=12).map("".join)


def known(folder: Path, *, lowercase: bool) -> Vocabulary:
    library(lower=lowercase).save(str(folder / "tokenizer.json"))
    return read_vocabulary(folder)


@pytest.fixture(scope="module")
def uncased(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return known(tmp_path_factory.mktemp("uncased"), lowercase=True)


@pytest.fixture(scope="module")
def cased(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    return known(tmp_path_factory.mktemp("cased"), lowercase=False)


@pytest.mark.parametrize("case", ["uncased", "cased"])
@given(texts=st.lists(TEXTS, min_size=1, max_size=3))
def test_the_tokens_are_those_of_the_library(
    case: str, texts: list[str], uncased: Vocabulary, cased: Vocabulary
) -> None:
    vocabulary, theirs = {"uncased": (uncased, library()), "cased": (cased, library(lower=False))}[case]
    found = vocabulary.tokenizer.encode(texts)
    for number, text in enumerate(texts):
        assert vocabulary.rows[found.row(number)].tolist() == theirs.encode(text).ids


@pytest.mark.slow
def test_lower_case_before_the_normalizer_is_lower_case_inside_it_for_every_character() -> None:
    inside, after = (normalizers.BertNormalizer(strip_accents=True, lowercase=lower) for lower in (True, False))
    first = normalizers.Lowercase()
    codes = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    for start in range(0, len(codes), 4_096):
        text = " ".join(f"a{chr(code)}b" for code in codes[start : start + 4_096])
        assert inside.normalize_str(text) == after.normalize_str(first.normalize_str(text))


@given(text=TEXTS)
def test_a_text_stands_between_begin_and_end_and_gives_no_other_special_token(text: str, uncased: Vocabulary) -> None:
    first, *inner, last = uncased.tokenizer.encode([text, "[CLS] [MASK] [PAD] [SEP]" + text]).values.tolist()
    assert (first, last) == (BEGIN, END)
    inside = inner[: inner.index(END)] + inner[inner.index(END) + 2 :]
    assert all(token == UNKNOWN or token >= COUNT for token in inside)


@given(text=TEXTS)
def test_every_token_stands_for_the_text_that_gives_it(text: str, uncased: Vocabulary) -> None:
    tokenizer = uncased.tokenizer
    pieces = tokenizer.encode_with_offsets(text)
    assert pieces.tokens.tolist() == tokenizer.encode([text]).values.tolist()
    assert pieces.spans[[0, -1]].tolist() == [[0, 0], [len(text), len(text)]]
    assert (np.diff(pieces.spans, axis=0) >= 0).all()
    for token, (start, stop) in zip(pieces.tokens[1:-1].tolist(), pieces.spans[1:-1].tolist(), strict=True):
        alone = tokenizer.encode_inner([text[start:stop]]).values.tolist()
        piece = tokenizer.piece(token)
        assert token == UNKNOWN or piece.startswith("##") or token in alone


def test_words_are_cut_by_themselves_inside_one_frame(uncased: Vocabulary) -> None:
    tokenizer, text = uncased.tokenizer, "unaffable the cats"
    tokens, firsts = tokenizer.encode_words([["unaffable", "the", "cats"], ["\x07"], []])
    assert [tokenizer.piece(token) for token in tokens.row(0)] == [
        *("<begin>", "un", "##aff", "##able", "the", "cat", "##s", "<end>")
    ]
    assert firsts.row(0).tolist() == [1, 4, 5]
    assert tokens.row(1).tolist() == [BEGIN, UNKNOWN, END]
    assert tokens.row(2).tolist() == [BEGIN, END]
    aligned = align(tokenizer, text, split_words(text))
    assert aligned.tokens.tolist() == tokens.row(0).tolist()
    assert [text[start:stop] for start, stop in aligned.spans.tolist()] == [
        *("", "un", "aff", "able", "the", "cat", "s", "")
    ]


def test_a_gap_is_read_inside_the_frame(uncased: Vocabulary) -> None:
    cat, sat = uncased.tokenizer.encode_inner(["cat sat"]).values.tolist()
    assert GapTokenizer(uncased.tokenizer).encode(["[MASK] cat [MASK] sat"]).values.tolist() == [
        *(BEGIN, MASK, cat, MASK, sat, END)
    ]


def test_what_is_decoded_reads_well(uncased: Vocabulary) -> None:
    assert uncased.tokenizer.decode(uncased.tokenizer.encode(["Unaffable cats, the CAT."]).values) == (
        "unaffable cats, the cat."
    )


def test_the_same_tokenizer_comes_back_from_its_document(uncased: Vocabulary) -> None:
    again = Tokenizer.from_json(uncased.tokenizer.to_json())
    assert again.to_json() == uncased.tokenizer.to_json()
    assert again.encode(["unaffable"]).values.tolist() == uncased.tokenizer.encode(["unaffable"]).values.tolist()


@pytest.mark.parametrize("pieces", [("a", "a"), ("a", ""), (NO_PIECE,)])
def test_a_vocabulary_that_is_none_is_refused(pieces: tuple[str, ...]) -> None:
    with pytest.raises(DataError):
        WordpieceSegmenter(WordpieceConfig(), WordpieceData(pieces))


def encoded(schema: Schema, given: object, longest: int, tokenizer: Tokenizer) -> dict[str, list[int]]:
    """The columns of one example."""
    encoder = ExampleEncoder(schema, EncodingConfig(max_length=longest), tokenizer, None, Ledger())
    columns = encoder.columns(Examples.of([Example(given, "x", "", Place("memory", 1))]))  # type: ignore[arg-type]
    return {name: column.values.tolist() for name, column in columns.items()}


def test_a_text_that_is_cut_keeps_its_end(uncased: Vocabulary) -> None:
    tokenizer = uncased.tokenizer
    schema, text = Schema("text", "label", ("x",)), "the cat sat the cat"
    tokens = tokenizer.encode([text]).values.tolist()
    assert encoded(schema, text, 7, tokenizer)["input"] == tokens
    assert encoded(schema, text, 4, tokenizer)["input"] == [*tokens[:3], END]


def test_both_texts_of_a_pair_that_is_cut_keep_their_ends(uncased: Vocabulary) -> None:
    found = encoded(Schema("pair", "label", ("x",)), ("the cat sat the", "the cat sat"), 9, uncased.tokenizer)["input"]
    middle = found.index(SEPARATOR)
    assert len(found) == 9
    assert [found[0], found[middle - 1], found[middle + 1], found[-1]] == [BEGIN, END, BEGIN, END]


def test_fitting_one_is_refused_with_the_way_to_get_one() -> None:
    with pytest.raises(ConfigError, match="imported model") as caught:
        WordpieceConfig().fit(["the cat"])
    assert "--init" in caught.value.fix
    run = CliRunner().invoke(app, ["data", "check", "questions", "--tokenizer", "wordpiece"])
    assert isinstance(run.exception, ConfigError)
    assert "unknown name 'wordpiece'" in run.exception.problem
