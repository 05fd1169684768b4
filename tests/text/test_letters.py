"""Letters: the bytes of words, so that nothing is unknown, and both ends of a word that is too long."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seqloom.text.characters import MOST, letters_of

WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50), max_size=8)


@given(words=WORDS)
def test_letters_are_the_bytes_of_each_word_and_zeros_behind(words: list[str]) -> None:
    letters = letters_of(words)
    assert letters.shape == (len(words), MOST) and letters.dtype == np.uint8
    for word, row in zip(words, letters, strict=True):
        spelled = word.encode()
        kept = spelled if len(spelled) <= MOST else spelled[: MOST // 2] + spelled[-MOST // 2 :]
        assert row.tobytes().rstrip(b"\0") == kept


def test_a_word_that_is_too_long_keeps_its_beginning_and_its_end() -> None:
    (row,) = letters_of(["un" + "x" * 100 + "able"])
    assert row.tobytes().startswith(b"unxx") and row.tobytes().endswith(b"xable") and len(row) == MOST
