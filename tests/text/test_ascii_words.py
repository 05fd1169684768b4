"""The words of many ASCII texts at once are those that the patterns find one by one."""

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.config.tokenizers import WordsConfig
from seqloom.text import ascii_words
from seqloom.text.ascii_words import WordNumbers, find_words
from seqloom.text.tokenizer import Tokenizer, fit
from seqloom.text.words import WordSegmenter

NEVER = 2**62
ASCII = st.text(st.characters(max_codepoint=127))
SOME = st.lists(st.one_of(ASCII, st.text(st.sampled_from("ab_7.! \t\n"), max_size=40), st.text(max_size=4)), max_size=8)


def tokenizer(texts: list[str], config: WordsConfig, characters: int) -> tuple[Tokenizer, list[list[int]]]:
    """A tokenizer that is fitted and used with this limit for the fast path, and the tokens of each text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ascii_words, "FEWEST_CHARACTERS", characters)
        fitted = fit(config, texts)
        tokens = fitted.encode([*texts, "ein Café", "a new text, Unseen_and_long"])
        return fitted, [tokens.row(row).tolist() for row in range(tokens.rows)]


@given(texts=SOME, split=st.sampled_from(["punctuation", "space"]), lower=st.booleans(), most=st.integers(16, 60))
def test_many_texts_are_fitted_and_encoded_as_one_by_one(texts: list[str], split: str, lower: bool, most: int) -> None:
    config = WordsConfig(word_split=split, lowercase_fallback=lower, vocab_size=most)  # type: ignore[arg-type]
    (fast, tokens), (plain, wanted) = (tokenizer(texts, config, limit) for limit in (0, NEVER))
    assert fast.to_json() == plain.to_json() and fast.dropped == plain.dropped
    assert tokens == wanted


@given(texts=st.lists(ASCII, min_size=1))
def test_words_are_counted_as_the_pattern_finds_them(texts: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ascii_words, "FEWEST_CHARACTERS", 0)
        found = find_words(texts, marks=True)
    if found is None:
        assert any("\0" in text for text in texts)
        return
    counts: Counter[str] = Counter({"a": 2})
    found.count(counts)
    split = WordSegmenter(WordsConfig(), fit(WordsConfig(), []).segmenter.data()).split  # type: ignore[arg-type]
    assert counts == Counter({"a": 2}) + Counter(chain.from_iterable(map(split, texts)))


def test_words_that_share_a_place_in_the_table_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ascii_words, "FEWEST_CHARACTERS", 0)
    monkeypatch.setattr(ascii_words, "_SPREAD", ascii_words.MASKS[0])  # every word has the first place
    words = [f"w{number}" for number in range(40)] + ["longer_than_eight"]
    found = find_words([" ".join(words), "w7 w41 longer_than_nine"], marks=True)
    assert found is not None
    numbers = WordNumbers({word: number for number, word in enumerate(words)}).of(found)
    assert numbers.row(0).tolist() == list(range(41))
    assert numbers.row(1).tolist() == [7, -1, -1]
