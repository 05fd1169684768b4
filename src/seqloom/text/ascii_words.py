"""The words of many ASCII texts at once: those that the patterns of `words` find, in a sixth of the time.

    text     N  o     w  a  y  !
    kind     1  1  0  1  1  1  2       1: of a word    2: a mark    0: white space
    first    ^        ^        ^
    last        ^           ^  ^

A word of at most eight characters is a number of 64 bits, with its characters as bytes. So words are compared, counted
and looked up as numbers, and no object is made for each; longer words are cut out of the text.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seqloom.text.ragged import Ragged, starts_of

FEWEST_CHARACTERS = 2**16  # of all texts, from which this pays
SHORT = 8  # characters
MASKS = np.array([2 ** (8 * count) - 1 for count in range(SHORT + 1)], np.uint64)  # the first bytes of a number
NONE = -1  # no number
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # Knuth's multiplicative hash: 2^64 divided by the golden ratio


class FoundWords(NamedTuple):
    """All words of some texts, in order."""

    text: str  # all texts, with a space before each
    firsts: np.ndarray  # [N] the first character of each word
    lengths: np.ndarray  # [N] its characters
    keys: np.ndarray  # [N] uint64, the word itself if it is short, else its first characters
    starts: np.ndarray  # [texts + 1] the first word of each text

    def long(self) -> tuple[np.ndarray, list[str]]:
        """The places of long words, and these words."""
        places = np.flatnonzero(self.lengths > SHORT)
        firsts = self.firsts[places]
        ends = (firsts + self.lengths[places]).tolist()
        return places, [self.text[first:end] for first, end in zip(firsts.tolist(), ends, strict=True)]

    def count(self, counts: Counter[str]) -> None:
        """Add the number of occurrences of each word to the counts."""
        _, long = self.long()
        keys, times = np.unique(self.keys[self.lengths <= SHORT] if long else self.keys, return_counts=True)
        short = keys.astype("<u8").view(f"S{SHORT}").astype(f"U{SHORT}").tolist()
        counts.update(dict(zip(short, times.tolist(), strict=True)))
        counts.update(long)


def find_words(texts: Sequence[str], *, marks: bool) -> FoundWords | None:
    """The words of ASCII texts; with `marks`, words of letters and each mark, else all that is between white space.

    None if the texts are few, or have NUL characters, which would look like the end of a word.
    """
    text = " ".join(("", *texts))
    if len(text) < FEWEST_CHARACTERS or "\0" in text:
        return None
    data = text.encode() + b" " * SHORT
    kinds = np.frombuffer(data.translate(_KINDS[marks]), np.uint8)
    letter = kinds == 1
    first, last = letter[1:] > letter[:-1], letter[:-1] > letter[1:]  # the texts are between spaces
    if marks:
        mark = kinds == 2
        first |= mark[1:]
        last |= mark[:-1]
    firsts = np.flatnonzero(first) + 1
    lengths = np.flatnonzero(last) - firsts + 1
    numbers = np.ndarray((len(text),), "<u8", data, strides=(1,))  # eight bytes from each character on
    keys = numbers[firsts] & MASKS[np.minimum(lengths, SHORT)]
    starts = np.searchsorted(firsts, starts_of([len(one) + 1 for one in texts]))
    return FoundWords(text, firsts, lengths, keys, starts)


def _kinds_of(*, marks: bool) -> bytes:
    """The kind of each byte, for `bytes.translate`."""
    plain = {code for code in range(128) if not marks or chr(code).isalnum() or chr(code) == "_"}
    return bytes(0 if chr(code).isspace() else 1 if code in plain else 2 for code in range(256))


_KINDS = {marks: _kinds_of(marks=marks) for marks in (False, True)}


class WordNumbers:
    """The numbers of words, looked up for many words at once: a hash table of the short ones, and a dict."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = numbers
        short = [word for word in numbers if len(word) <= SHORT and word.isascii() and "\0" not in word]
        keys = np.array(short, f"S{SHORT}").view("<u8").astype(np.uint64)
        self._shift = np.uint64(64 - max(4, 2 + len(short).bit_length()))  # at most a quarter of the table is used
        self._keys = np.zeros(2 ** (64 - int(self._shift)), np.uint64)
        self._found = np.full(len(self._keys), NONE, np.int32)
        own, places = np.array([numbers[word] for word in short], np.int32), self._places(keys)
        left = np.arange(len(keys))  # words without a place
        while len(left):
            at = places[left]
            free = self._found[at] == NONE
            self._keys[at[free]], self._found[at[free]] = keys[left[free]], own[left[free]]
            left = left[self._found[at] != own[left]]  # another word has the place: try the next one
            places[left] = (places[left] + 1) % len(self._keys)

    def _places(self, keys: np.ndarray) -> np.ndarray:
        """The first place of each key in the table."""
        found: np.ndarray = ((keys * _SPREAD) >> self._shift).astype(np.int64)
        return found

    def of(self, words: FoundWords) -> Ragged:
        """The number of each word of each text; NONE if it has none."""
        places = self._places(words.keys)
        found = self._found[places]
        left = np.flatnonzero((self._keys[places] != words.keys) & (found != NONE))
        while len(left):
            places[left] = (places[left] + 1) % len(self._keys)
            at = places[left]
            found[left] = self._found[at]
            left = left[(self._keys[at] != words.keys[left]) & (found[left] != NONE)]
        where, long = words.long()
        found[where] = [self._numbers.get(word, NONE) for word in long]
        return Ragged(found, words.starts)
