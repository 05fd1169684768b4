"""Claims about passages: nothing of a text is lost, none is too long, and sentences stay whole where they can."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seqloom.config.tokenizers import BpeConfig, BytesConfig, CharactersConfig, FittedTokenizer, UnigramConfig
from seqloom.search.passages import passages_of, sentences_of
from seqloom.text.tokenizer import fit

TEXTS = st.text(alphabet="ab. !?\n猫。Z", max_size=80)


def words(texts: list[str]) -> np.ndarray:
    return np.array([len(text.split()) for text in texts])


def framed(texts: list[str]) -> np.ndarray:
    """Two tokens around every text."""
    return words(texts) + 2


def characters(texts: list[str]) -> np.ndarray:
    return np.array([len(text) for text in texts])


def data_bytes(texts: list[str]) -> np.ndarray:
    """Bytes with one token before each text."""
    return np.array([len(text.encode()) + 1 for text in texts])


@given(TEXTS)
def test_sentences_hold_every_character_that_is_no_space_once_and_in_order(text: str) -> None:
    spans = sentences_of(text)
    assert "".join("".join(text[start:stop].split()) for start, stop in spans) == "".join(text.split())
    assert all(start < stop and text[start:stop] == text[start:stop].strip() for start, stop in spans)


@given(TEXTS.filter(str.strip), st.integers(3, 9))
def test_passages_hold_every_character_and_none_is_longer_than_it_may_be(text: str, most: int) -> None:
    for lengths in (words, framed):
        spans = passages_of(text, lengths, most)
        assert "".join("".join(text[start:stop].split()) for start, stop in spans) == "".join(text.split())
        assert lengths([text[start:stop] for start, stop in spans]).max() <= most


@given(TEXTS.filter(str.strip), st.integers(8, 12))
@example("猫" * 100, 9)
@example("https://a.b/c?d " * 9 + "\n" * 30 + "Z", 8)
def test_spaces_that_are_tokens_count_and_a_word_that_is_too_long_is_divided(text: str, most: int) -> None:
    for lengths in (characters, data_bytes):
        spans = passages_of(text, lengths, most)
        assert "".join("".join(text[start:stop].split()) for start, stop in spans) == "".join(text.split())
        assert lengths([text[start:stop] for start, stop in spans]).max() <= most


@pytest.mark.parametrize(
    "config", [CharactersConfig(), BytesConfig(), BpeConfig(vocab_size=300), UnigramConfig(vocab_size=300)]
)
def test_no_passage_is_longer_than_a_tokenizer_lets_the_model_read(config: FittedTokenizer) -> None:
    text = "The cat sat on a mat. It was, so to say,  a very fat one " * 3 + "x" * 90 + "猫" * 30
    tokenizer = fit(config, [text])
    spans = passages_of(text, lambda texts: tokenizer.encode(texts).lengths, 16)
    assert tokenizer.encode([text[start:stop] for start, stop in spans]).lengths.max() <= 16
    assert "".join("".join(text[start:stop].split()) for start, stop in spans) == "".join(text.split())


@given(TEXTS.filter(str.strip))
def test_a_text_that_fits_is_one_passage(text: str) -> None:
    assert len(passages_of(text, words, 80)) == 1


def test_a_passage_takes_as_many_whole_sentences_as_fit() -> None:
    text = " ".join(f"The {'w ' * (number * 5 % 7)}end." for number in range(30))
    sentences, spans = sentences_of(text), passages_of(text, words, 12)
    assert {start for start, _ in spans} <= {start for start, _ in sentences}
    for (first, _), (begin, _) in itertools.pairwise(spans):
        stop = next(stop for start, stop in sentences if start == begin)
        assert words([text[first:stop]])[0] > 12


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Dr. Smith met J. R. Tolkien.", 1),
        ("It fell by 3.5 percent. Nobody knew.", 2),
        ('"Go!" he said. "Now!"', 2),
        ("First line\nSecond line", 2),
        ("猫だ。犬だ。", 2),
        ("as in Smith et al. 2010 and i.e. here", 1),
        ("", 0),
    ],
)
def test_sentences_end_where_people_end_them(text: str, count: int) -> None:
    assert len(sentences_of(text)) == count
