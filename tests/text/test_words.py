"""The pattern of words and marks: what belongs together stays together, and only white space is left out."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.config.tokenizers import WordsConfig
from seqloom.text.tokenizer import fit, split_words
from seqloom.text.words import pattern_for, word_pattern

FAMILY = "👨\u200d👩\u200d👧\u200d👦"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("No way!", ["No", "way", "!"]),
        ("don't", ["don", "'", "t"]),
        ("snake_case 3.14", ["snake_case", "3", ".", "14"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        (FAMILY, [FAMILY]),
        (f"a{FAMILY}b", ["a", FAMILY, "b"]),
        ("👍🏽👍", ["👍🏽", "👍"]),
        ("!\u0301?", ["!\u0301", "?"]),
        ("!!", ["!", "!"]),
        ("a\u00a0b\u3000c\u2028d", ["a", "b", "c", "d"]),
        (" \t\n", []),
    ],
)
def test_words_and_marks_are_cut(text: str, words: list[str]) -> None:
    assert [text[start:stop] for start, stop in split_words(text)] == words


@given(text=st.text())
def test_words_are_in_order_and_only_white_space_lies_between(text: str) -> None:
    between, at = [], 0
    for start, stop in split_words(text):
        assert at <= start < stop <= len(text)
        between.append(text[at:start])
        at = stop
    assert re.fullmatch(r"\s*", "".join(between) + text[at:])


@pytest.mark.slow
def test_counting_an_endless_stream_of_new_words_keeps_the_frequent_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.text.words.MOST_COUNTED", 100)
    texts = (f"often sometimes n{number}" if number % 2 else f"often n{number}" for number in range(100_000))
    tokenizer = fit(WordsConfig(vocab_size=16), texts)
    assert {tokenizer.piece(token) for token in range(6, 8)} == {"often", "sometimes"}
    assert tokenizer.vocab_size <= 16 and tokenizer.dropped > 99_000


@given(st.text(st.characters(max_codepoint=127)))
def test_words_of_ascii_are_found_by_less_and_are_the_same(text: str) -> None:
    assert pattern_for(text).findall(text) == word_pattern().findall(text)
