"""The letters of words: the bytes of UTF-8, so that no letter is unknown and no alphabet has to be fitted.

cat       99  97 116   0   0 ...
naïve    110  97 195 175 118 101   0 ...

A word beyond `MOST` keeps its beginning and its end, where its meaning and its form are; an address of the web has its
name in front and its kind behind.
"""

from collections.abc import Sequence

import numpy as np

MOST = 32  # bytes of a word


def letters_of(words: Sequence[str]) -> np.ndarray:
    """[words, MOST] uint8, zeros behind the shorter words.

    >>> letters_of(["cat", "a"])[:, :4].tolist()
    [[99, 97, 116, 0], [97, 0, 0, 0]]
    """
    numbers: dict[str, int] = {}  # different words once: text repeats itself
    of_word = [numbers.setdefault(word, len(numbers)) for word in words]
    spelled = b"".join(_spelled(word).ljust(MOST, b"\0") for word in numbers)
    table: np.ndarray = np.frombuffer(spelled, np.uint8).reshape(-1, MOST)[np.array(of_word, np.int64)]
    return table


def _spelled(word: str) -> bytes:
    letters = word.encode("utf-8", "replace")
    return letters if len(letters) <= MOST else letters[: MOST // 2] + letters[-MOST // 2 :]
