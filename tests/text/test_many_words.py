"""The words of many plain texts at once are those that the patterns find one by one."""

import re
import unicodedata
from collections import Counter
from itertools import chain
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.config.tokenizers import WordsConfig
from seqloom.text import many_words
from seqloom.text.many_words import ShortCounts, WordNumbers, find_words, is_plain
from seqloom.text.tokenizer import Tokenizer, fit
from seqloom.text.words import WordSegmenter

NEVER = 2**62
ASCII = st.text(st.characters(max_codepoint=127))
SOME = st.lists(
    st.one_of(ASCII, st.text(st.sampled_from("ab_7.! \t\nßДж\u0301\u00a0×"), max_size=40), st.text(max_size=4)),
    max_size=8,
)


def tokenizer(texts: list[str], config: WordsConfig, characters: int) -> tuple[Tokenizer, list[list[int]]]:
    """A tokenizer that is fitted and used with this limit for the fast path, and the tokens of each text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(many_words, "FEWEST_BYTES", characters)
        fitted = fit(config, texts)
        tokens = fitted.encode([*texts, "ein Café", "a new text, Unseen_and_long"])
        return fitted, [tokens.row(row).tolist() for row in range(tokens.rows)]


@given(texts=SOME, split=st.sampled_from(["punctuation", "space"]), lower=st.booleans(), most=st.integers(16, 60))
def test_many_texts_are_fitted_and_encoded_as_one_by_one(texts: list[str], split: str, lower: bool, most: int) -> None:
    config = WordsConfig(word_split=split, lowercase_fallback=lower, vocab_size=most)  # type: ignore[arg-type]
    (fast, tokens), (plain, wanted) = (tokenizer(texts, config, limit) for limit in (0, NEVER))
    assert fast.to_json() == plain.to_json() and fast.dropped == plain.dropped
    assert tokens == wanted


PLAIN = [chr(code) for code in range(0x600) if is_plain(chr(code))]


def test_plain_letters_are_letters_that_belong_to_nothing_before_them() -> None:
    assert len(PLAIN) > 700 and all(re.fullmatch(r"\w", letter) for letter in PLAIN if not letter.isascii())
    assert not any(unicodedata.combining(letter) or unicodedata.category(letter)[0] == "M" for letter in PLAIN)


@given(blocks=st.lists(st.lists(st.text(st.sampled_from([*"ab _!", *PLAIN])), min_size=1), max_size=4))
def test_short_words_are_counted_as_the_pattern_finds_them(blocks: list[list[str]]) -> None:
    counts, wanted = ShortCounts(), Counter[str]()
    split = WordSegmenter(WordsConfig(), fit(WordsConfig(), []).segmenter.data()).split  # type: ignore[arg-type]
    for texts in blocks:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(many_words, "FEWEST_BYTES", 0)
            found = find_words(texts, marks=True)
        assert found is not None
        counts.add(found)
        words = list(chain.from_iterable(map(split, texts)))
        assert found.at(np.arange(len(found.lengths))) == words
        wanted.update(word for word in words if len(word.encode()) <= many_words.SHORT)
        assert counts.most >= len(wanted)
    assert counts.take() == wanted
    assert counts.take() == {} and counts.most == 0


@pytest.mark.parametrize("most", [3, 40])
def test_words_that_are_forgotten_are_those_of_counting_text_by_text(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Random(most)
    texts = [" ".join(f"w{int(draw.expovariate(0.1))}" for _ in range(9)) for _ in range(60)]
    monkeypatch.setattr("seqloom.text.words.MOST_COUNTED", most)
    monkeypatch.setattr("seqloom.text.segmenter.BLOCK", 5)
    config, found = WordsConfig(vocab_size=16), []
    for fewest in (0, 2**30):
        monkeypatch.setattr(many_words, "FEWEST_BYTES", fewest)
        tokenizer = fit(config, texts)
        found.append((tokenizer.segmenter.data(), tokenizer.dropped))
    assert found[0] == found[1]


def test_words_that_share_a_place_in_the_table_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_words, "FEWEST_BYTES", 0)
    monkeypatch.setattr(many_words, "_SPREAD", many_words.MASKS[0])  # every word has the first place
    words = [f"w{number}" for number in range(40)] + ["longer_than_eight"]
    found = find_words([" ".join(words), "w7 w41 longer_than_nine"], marks=True)
    assert found is not None
    numbers = WordNumbers({word: number for number, word in enumerate(words)}).of(found)
    assert numbers.row(0).tolist() == list(range(41))
    assert numbers.row(1).tolist() == [7, -1, -1]


def test_numbers_of_words_that_no_file_can_hold_are_left_to_the_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_words, "FEWEST_BYTES", 0)
    found = find_words(["a b"], marks=True)
    assert found is not None
    assert WordNumbers({"a": 0, "\ud800": 1, "b": 2, "\0": 3}).of(found).row(0).tolist() == [0, 2]
