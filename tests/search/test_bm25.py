"""Claims about keywords: scores are those of the definition, and the words are those that people mean."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_common import VOCABULARY, some_text
from seqloom.search.bm25 import K1, B, Keywords, Postings, words_of

TEXTS = st.lists(st.lists(st.sampled_from(VOCABULARY[:6]), max_size=8).map(" ".join), min_size=1, max_size=8)


def plain(query: str, texts: Sequence[str]) -> list[float]:
    """The definition, word by word and document by document."""
    documents = [words_of(text) for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    scores = []
    for words in documents:
        score = 0.0
        for word in set(words_of(query)):
            having = sum(word in other for other in documents)
            idf = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
            often = words.count(word)
            longer = 1 - B + B * len(words) / mean if mean else 1.0
            score += idf * often * (K1 + 1) / (often + K1 * longer)
        scores.append(score)
    return scores


@given(TEXTS, TEXTS.map(" ".join))
def test_scores_are_those_of_the_definition(texts: list[str], query: str) -> None:
    found = Keywords([Postings.of(texts)], np.ones(len(texts), bool)).scores(query)
    np.testing.assert_allclose(found, plain(query, texts), rtol=1e-12)


@given(TEXTS, st.data())
def test_segments_with_some_documents_gone_score_as_one_segment_of_the_rest(
    texts: list[str], data: st.DataObject
) -> None:
    there = np.array(data.draw(st.lists(st.booleans(), min_size=len(texts), max_size=len(texts)).filter(any)))
    cut = data.draw(st.integers(0, len(texts)))
    segments = Keywords([Postings.of(texts[:cut]), Postings.of(texts[cut:])], there)
    rest = [text for text, kept in zip(texts, there, strict=True) if kept]
    query = " ".join(VOCABULARY[:4])
    scores = segments.scores(query)
    np.testing.assert_array_equal(scores[there], Keywords([Postings.of(rest)], np.ones(len(rest), bool)).scores(query))
    assert not scores[~there].any()


def test_a_word_that_no_document_has_changes_nothing() -> None:
    texts = [some_text(np.random.default_rng(number)) for number in range(5)]
    keywords = Keywords([Postings.of(texts)], np.ones(5, bool))
    np.testing.assert_array_equal(keywords.scores(texts[0]), keywords.scores(f"{texts[0]} zzz"))


@pytest.mark.parametrize(("one", "other"), [("Cells", "cell"), ("STRASSE", "straße"), ("therapies", "Therapy!")])
def test_forms_of_a_word_are_one_word(one: str, other: str) -> None:
    assert words_of(one) == words_of(other)


@pytest.mark.parametrize("word", ["virus", "class", "was", "p53", "ß", ""])
def test_a_word_that_is_no_plural_is_left_alone(word: str) -> None:
    assert words_of(word) == ([word.casefold()] if word else [])


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_postings_joined_from_parts_are_those_of_the_texts_that_are_kept(seed: int, parts: int) -> None:
    draws = np.random.default_rng(seed)
    texts = [[some_text(draws, 1) for _ in range(draws.integers(0, 5))] for _ in range(parts)]
    rows = [np.flatnonzero(draws.random(len(some)) < 0.6) for some in texts]
    found = Postings.joined([(Postings.of(some), kept) for some, kept in zip(texts, rows, strict=True)])
    wanted = Postings.of(some[row] for some, kept in zip(texts, rows, strict=True) for row in kept.tolist())
    assert found.words == wanted.words
    for mine, others in zip(found[1:], wanted[1:], strict=True):
        np.testing.assert_array_equal(mine, others, strict=True)
