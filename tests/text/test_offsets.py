"""Offsets point into the original text, whatever was done to it before it was cut."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.config.tokenizers import CharactersConfig
from seqloom.text.segmenter import Normalizer
from text.samples import FORMS, KINDS, fitted

FAMILY = "👨\u200d👩\u200d👧\u200d👦"
HARD = [
    "İSTANBUL",
    "ﷺ",
    "e\u0301a\u0323\u0302",
    "\u1100\u1161\u11a8",
    "½",
    "\u01f0J\u030c",
    "ß",
    "\u212a",
    "\u212b",
    "ﬁ",
]
HARD += ["\u00b4", "ς\u0345", "\u0958\u0344", "\u2126", "\u1e9b\u0323"]
TEXTS = st.lists(st.text(max_size=8) | st.sampled_from([*HARD, FAMILY, " ", "\u0301", "\u0315\u0300"]), max_size=8).map(
    "".join
)
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.sampled(3)
@pytest.mark.slow
@every_kind
@settings(max_examples=300)
@given(form=st.sampled_from(FORMS), lowercase=st.booleans(), text=TEXTS)
def test_spans_are_in_order_inside_the_text_and_miss_nothing_but_white_space(
    kind: str, form: str, lowercase: bool, text: str
) -> None:
    spans = fitted(kind, form, lowercase).encode_with_offsets(text).spans
    starts, stops = spans.T
    assert (starts >= 0).all() and (starts <= stops).all() and (stops <= len(text)).all()
    assert (np.diff(starts) >= 0).all() and (np.diff(stops) >= 0).all()
    covered = {place for start, stop in spans.tolist() for place in range(start, stop)}
    assert all(text[place].isspace() for place in set(range(len(text))) - covered)


@every_kind
@given(text=TEXTS)
def test_without_normalizing_pieces_share_at_most_one_character(kind: str, text: str) -> None:
    spans = fitted(kind).encode_with_offsets(text).spans
    overlaps = spans[:-1, 1] - spans[1:, 0]
    assert (overlaps <= (1 if kind in ("bytes", "bpe", "unigram") else 0)).all()


@pytest.mark.parametrize("kind", ["words", "characters"])
@given(text=TEXTS)
def test_a_known_piece_is_what_its_span_shows(kind: str, text: str) -> None:
    tokenizer = KINDS[kind](min_count=1).fit([text])
    pieces = tokenizer.encode_with_offsets(text)
    for token, (start, stop) in zip(pieces.tokens.tolist(), pieces.spans.tolist(), strict=True):
        assert tokenizer.piece(token) == text[start:stop]


@pytest.mark.parametrize("kind", ["bytes", "bpe", "unigram"])
@given(text=TEXTS)
def test_the_bytes_of_a_piece_are_in_the_characters_of_its_span(kind: str, text: str) -> None:
    tokenizer = fitted(kind)
    pieces = tokenizer.encode_with_offsets(text)
    for token, (start, stop) in zip(pieces.tokens.tolist(), pieces.spans.tolist(), strict=True):
        piece = tokenizer.piece(token)
        if "\\x" not in piece:
            assert piece.removeprefix(" ") == text[start:stop].removeprefix(" ")


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_lower_case_that_grows_keeps_its_offsets(kind: str) -> None:
    tokenizer = KINDS[kind](lowercase=True).fit(["i\u0307stanbul"])
    pieces = tokenizer.encode_with_offsets("İSTANBUL 1")
    found = ["İSTANBUL 1"[start:stop] for start, stop in pieces.spans.tolist()]
    assert found == (["İSTANBUL", "1"] if kind == "words" else ["İ", *"İSTANBUL 1"])
    assert tokenizer.decode(pieces.tokens) == "i\u0307stanbul"


def test_one_character_that_becomes_eighteen_is_the_span_of_them_all() -> None:
    tokenizer = CharactersConfig(normalize="nfkc").fit(["x"])
    spans = tokenizer.encode_with_offsets("aﷺb").spans
    assert spans.tolist() == [[0, 1], *[[1, 2]] * 18, [2, 3]]


def test_letters_and_accents_that_become_one_are_its_span() -> None:
    tokenizer = CharactersConfig(normalize="nfc").fit(["x"])
    assert tokenizer.encode_with_offsets("xe\u0301a\u0323\u0302x").spans.tolist() == [[0, 1], [1, 3], [3, 6], [6, 7]]


def test_a_family_of_emoji_is_one_word_and_seven_characters() -> None:
    assert fitted("words").encode_with_offsets(f"a {FAMILY}").spans.tolist() == [[0, 1], [2, 9]]
    assert fitted("characters").encode_with_offsets(FAMILY).spans.tolist() == [[n, n + 1] for n in range(7)]


OLD = st.characters(codec="utf-8").filter(lambda one: unicodedata.ucd_3_2_0.category(one) != "Cn")


@settings(max_examples=300)
@given(
    form=st.sampled_from(FORMS),
    lowercase=st.booleans(),
    text=st.lists(st.text(OLD, max_size=6) | st.sampled_from(HARD), max_size=6).map("".join),
)
def test_normalizing_is_what_unicode_says(form: str, lowercase: bool, text: str) -> None:
    """Python's own tables are the oracle, for characters that both tables know: normal forms never change later."""
    expected = text if form == "as-is" else unicodedata.normalize(form.upper(), text)
    if lowercase:
        expected = "".join(one.lower() for one in expected)
        expected = expected if form == "as-is" else unicodedata.normalize(form.upper(), expected)
    normalizer = Normalizer(CharactersConfig(normalize=form, lowercase=lowercase))
    assert list(normalizer.apply([text])) == [expected]
    normalized = normalizer.apply_with_offsets(text)
    assert normalized.text == expected
    assert len(normalized.starts) == len(normalized.stops) == len(expected)
