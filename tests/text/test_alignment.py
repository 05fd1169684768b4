"""Words and their subwords: one text with offsets and many sentences at once agree, and every word has a place."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import DataError
from seqloom.text.ragged import Ragged
from seqloom.text.segmenter import BLOCK
from seqloom.text.special_tokens import UNKNOWN
from seqloom.text.tokenizer import Tokenizer, align, split_words
from text.samples import KINDS, fitted

WORDS = st.lists(st.text(max_size=6) | st.sampled_from(["bake", "ﷺ", "İ", "", " ", "e\u0301", "北"]), max_size=6)
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "form"), list(product(KINDS, ["as-is", "nfkc"])))
@settings(max_examples=40)
@given(sentences=st.lists(WORDS, max_size=4))
def test_a_batch_of_sentences_gives_what_each_text_gives(kind: str, form: str, sentences: list[list[str]]) -> None:
    tokenizer = fitted(kind, form, lowercase=form == "nfkc")
    tokens, firsts = tokenizer.encode_words(sentences)
    assert tokens.rows == firsts.rows == len(sentences)
    assert tokens.values.dtype == firsts.values.dtype == np.int32
    for number, words in enumerate(sentences):
        stops = np.cumsum([len(word) + 1 for word in words]) - 1
        spans = [(int(stop) - len(word), int(stop)) for word, stop in zip(words, stops, strict=True)]
        aligned = align(tokenizer, " ".join(words), spans)
        np.testing.assert_array_equal(tokens.row(number), aligned.tokens)
        np.testing.assert_array_equal(firsts.row(number), aligned.firsts)


@every_kind
@given(text=st.text(max_size=40))
def test_every_word_has_a_first_token_and_its_tokens_lie_in_it(kind: str, text: str) -> None:
    words = split_words(text)
    aligned = align(fitted(kind), text, words)
    assert len(aligned.firsts) == len(words)
    bounds = [*aligned.firsts.tolist(), len(aligned.tokens)]
    for (start, stop), first, after in zip(words, bounds, bounds[1:], strict=False):
        assert first < after
        assert (aligned.spans[first:after] >= start).all() and (aligned.spans[first:after] <= stop).all()


@every_kind
def test_the_tokens_of_a_word_are_those_of_its_text(kind: str) -> None:
    tokenizer = fitted(kind)
    tokens, firsts = tokenizer.encode_words([["bake", "lost!", "enmi"]])
    rows = tokenizer.encode(["bake", "lost!", "enmi"])
    np.testing.assert_array_equal(tokens.values, rows.values)
    np.testing.assert_array_equal(firsts.values, rows.starts[:-1])


@every_kind
def test_a_word_that_gives_no_piece_is_unknown_once(kind: str) -> None:
    tokens, firsts = fitted(kind).encode_words([["", "ba", ""], [], [""]])
    assert [tokens.row(row).tolist()[:1] for row in range(3)] == [[UNKNOWN], [], [UNKNOWN]]
    assert tokens.row(0)[-1] == UNKNOWN and firsts.lengths.tolist() == [3, 0, 1]
    assert align(fitted(kind), "a", [(0, 0), (0, 1)]).spans[0].tolist() == [0, 0]


def test_blocks_of_sentences_do_not_change_tokens() -> None:
    sentences = [["bake", str(number)] for number in range(2 * BLOCK + 3)]
    tokens, firsts = fitted("bpe").encode_words(sentences)
    assert tokens.rows == firsts.rows == len(sentences)
    for number in (0, BLOCK - 1, BLOCK, 2 * BLOCK + 2):
        alone, places = fitted("bpe").encode_words([sentences[number]])
        np.testing.assert_array_equal(tokens.row(number), alone.values)
        np.testing.assert_array_equal(firsts.row(number), places.values)


@every_kind
def test_no_sentences_and_no_words_give_nothing(kind: str) -> None:
    assert [part.rows for part in fitted(kind).encode_words([])] == [0, 0]
    assert [part.lengths.tolist() for part in fitted(kind).encode_words([[]])] == [[0], [0]]
    assert [len(part) for part in align(fitted(kind), "text", [])] == [0, 0, 0]


@pytest.mark.parametrize("spans", [[(0, 5)], [(-1, 2)], [(3, 2)], [(0, 3), (2, 4)], [(2, 4), (0, 1)]])
def test_words_outside_the_text_or_one_upon_the_other_are_refused(spans: list[tuple[int, int]]) -> None:
    with pytest.raises(DataError):
        align(fitted("bytes"), "text", spans)


@every_kind
def test_training_and_serving_are_one_function(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[list[str]]] = []

    def watched(tokenizer: Tokenizer, sentences: list[list[str]]) -> tuple[Ragged, Ragged]:
        asked.append(sentences)
        return encode_words(tokenizer, sentences)

    encode_words = Tokenizer.encode_words
    monkeypatch.setattr(Tokenizer, "encode_words", watched)
    align(fitted(kind), "ba ke", [(0, 2), (3, 5)])
    fitted(kind).encode_words([["ba", "ke"]])
    assert asked == [[["ba", "ke"]]] * 2
