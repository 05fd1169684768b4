"""Tokenizers as JSON: read back they are the same, and a document that is not right is refused."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import DataError
from seqloom.text.tokenizer import Tokenizer, fit
from text.samples import KINDS, fitted, sentences

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@pytest.mark.parametrize("form", ["as-is", "nfkc"])
def test_a_tokenizer_read_back_is_the_same(kind: str, form: str) -> None:
    tokenizer = fitted(kind, form)
    stored = tokenizer.to_json()
    again = Tokenizer.from_json(stored)
    assert again.to_json() == stored
    assert (again.config, again.dropped, again.vocab_size) == (
        tokenizer.config,
        tokenizer.dropped,
        tokenizer.vocab_size,
    )
    texts = [*sentences(50), "new İ ﷺ words 北京 <pad>"]
    np.testing.assert_array_equal(again.encode(texts).values, tokenizer.encode(texts).values)


@every_kind
def test_the_same_texts_give_the_same_bytes(kind: str) -> None:
    assert fit(KINDS[kind](), sentences(60)).to_json() == fit(KINDS[kind](), list(sentences(60))).to_json()


def changed(kind: str, **changes: Any) -> str:
    """The document of a tokenizer with some parts replaced."""
    return json.dumps(json.loads(fitted(kind).to_json()) | changes)


LETTERS = json.loads(fitted("unigram").to_json())["data"]["pieces"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "{",
        "\ud800",
        '"\\ud800"',
        "[" * 100_000,
        '{"format": ' + "[" * 100_000,
        changed("words", version=2),
        changed("words", version="1"),
        changed("words", format="tokenizer"),
        changed("words", more=1),
        changed("words", dropped=-1),
        changed("words", dropped=1.5),
        changed("words", config={"kind": "words", "vocab_size": 2**60}),
        changed("words", config={"kind": "word"}),
        changed("words", config={"kind": "words", "vocab_size": 16}),  # the vocabulary is larger
        changed("words", config={"kind": "bpe"}),  # other data
        changed("words", data={}),
        changed("words", data={"words": ["a", "a"]}),
        changed("words", data={"words": [""]}),
        changed("words", data={"words": [1]}),
        changed("words", data={"words": ["a"], "added_tokens": []}),
        changed("characters", data={"characters": "aa"}),
        changed("bytes", data={"merges": []}),
        changed("bpe", data={"merges": [[0, 256]]}),
        changed("bpe", data={"merges": [[-1, 0]]}),
        changed("bpe", data={"merges": [[0]]}),
        changed("bpe", data={"merges": [[0, 1.5]]}),
        changed("bpe", data={"merges": [[0, 0], *([256 + n, 256 + n] for n in range(40))]}),  # 2**41 bytes
        changed("bpe", data={"merges": [[n // 256, n % 256] for n in range(600)]}),
        changed("unigram", data={"accumulate": LETTERS[1:]}),
        changed("unigram", data={"accumulate": [*LETTERS[:256], ["a", -1.0]]}),
        changed("unigram", data={"accumulate": [*LETTERS[:256], ["", -1.0]]}),
        changed("unigram", data={"accumulate": [*LETTERS[:256], ["a b", -1.0]]}),
        changed("unigram", data={"accumulate": [*LETTERS[:256], ["ab", 1.0]]}),
        changed("unigram", data={"accumulate": [*LETTERS[:256], ["ab", -1e300]]}),
        changed("unigram", data={"accumulate": [*LETTERS[:256], ["ab", "x"]]}),
        changed("unigram", data={"accumulate": [*LETTERS[:256], ["ab", -1.0]]}).replace("-1.0]", "NaN]"),
        changed("unigram", data={"accumulate": [*LETTERS[:256], ["a" * 2_000, -1.0]]}),
    ],
)
def test_a_document_that_is_not_right_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="this is not a tokenizer file: ") as caught:
        Tokenizer.from_json(text)
    assert len(str(caught.value)) < 600


@every_kind
@given(data=st.data())
def test_a_damaged_document_is_refused_or_read_never_worse(kind: str, data: st.DataObject) -> None:
    stored = fitted(kind).to_json()
    at = data.draw(st.integers(0, len(stored) - 1))
    damaged = stored[:at] + data.draw(st.text(max_size=3)) + stored[at + data.draw(st.integers(0, 5)) :]
    try:
        tokenizer = Tokenizer.from_json(damaged)
    except DataError:
        return
    assert tokenizer.encode(["ba ke"]).rows == 1
