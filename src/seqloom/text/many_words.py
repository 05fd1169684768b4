"""The words of many plain texts at once: those that the patterns of `words` find, in a fifth of the time.

    text     N  o     w  a  y  !
    kind     1  1  0  1  1  1  2       1: of a word    2: a mark    0: white space
    first    ^        ^        ^
    last        ^           ^  ^

A text is plain if it has no characters but ASCII and Latin and Cyrillic letters: then words are runs of bytes in UTF-8.
A word of at most eight bytes is a number of 64 bits. So words are compared, counted and looked up as numbers, and no
object is made for each; longer words are cut out of the text.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np

from seqloom.text.ragged import Ragged, starts_of

FEWEST_BYTES = 2**16  # of all texts, from which this pays
SHORT = 8  # bytes
LETTERS = "\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0400-\u0481\u048a-\u052f"  # beyond ASCII
MASKS = np.array([2 ** (8 * count) - 1 for count in range(SHORT + 1)], np.uint64)  # the first bytes of a number
NONE = -1  # no number
_OTHER = re.compile(rf"[^\x01-\x7f{LETTERS}]")  # NUL would look like the end of a word
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # Knuth's multiplicative hash: 2^64 divided by the golden ratio


class FoundWords(NamedTuple):
    """All words of some texts, in order."""

    text: bytes  # all texts, with a space before each
    firsts: np.ndarray  # [N] the first byte of each word
    lengths: np.ndarray  # [N] its bytes
    keys: np.ndarray  # [N] uint64, the word itself if it is short, else its first bytes
    starts: np.ndarray  # [texts + 1] the first word of each text

    def at(self, places: np.ndarray) -> list[str]:
        """The words at these places, as texts."""
        firsts = self.firsts[places]
        ends = (firsts + self.lengths[places]).tolist()
        return [self.text[first:end].decode() for first, end in zip(firsts.tolist(), ends, strict=True)]


class ShortCounts:
    """Occurrences of short words, counted as numbers until they are wanted as texts."""

    def __init__(self) -> None:
        self._blocks: list[tuple[np.ndarray, np.ndarray]] = []  # the words of each block, and how often each occurs
        self.most = 0  # words, if no two blocks share one

    def add(self, words: FoundWords) -> None:
        """Count the short words among these."""
        block = np.unique(words.keys[words.lengths <= SHORT], return_counts=True)
        self._blocks.append(block)
        self.most += len(block[0])

    def take(self) -> dict[str, int]:
        """Return all counts, and begin again."""
        blocks, any_words, self._blocks, self.most = self._blocks, self.most > 0, [], 0
        if not any_words:
            return {}
        keys, times = (np.concatenate(column) for column in zip(*blocks, strict=True))
        order = np.argsort(keys, kind="stable")
        keys, times = keys[order], times[order]
        firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        texts = keys[firsts].astype("<u8").view(f"S{SHORT}").tolist()
        return {
            text.decode(): count for text, count in zip(texts, np.add.reduceat(times, firsts).tolist(), strict=True)
        }


def plain_texts(texts: Sequence[str]) -> list[bool]:
    """Whether `find_words` can read each of these texts.

    >>> plain_texts(["Straße, 7!", "e\\u0301"]), plain_texts(["a", "b"])
    ([True, False], [True, True])
    """
    return [True] * len(texts) if is_plain("\n".join(texts)) else list(map(is_plain, texts))


def is_plain(text: str) -> bool:
    """Whether `find_words` can read a text.

    >>> is_plain("Straße, 7!"), is_plain("e\\u0301"), is_plain("no\\u00a0break")
    (True, False, False)
    """
    return (text.isascii() and "\0" not in text) or not _OTHER.search(text)


def find_words(texts: Sequence[str], *, marks: bool) -> FoundWords | None:
    """The words of plain texts; with `marks`, words of letters and each mark, else all that is between white space.

    None if the texts are short, for which that is no faster.
    """
    joined = " ".join(("", *texts, " " * SHORT))
    data = joined.encode()
    if len(data) < FEWEST_BYTES:
        return None
    sizes = map(len, texts if len(data) == len(joined) else (text.encode() for text in texts))
    kinds = np.frombuffer(data.translate(_KINDS[marks]), np.uint8)
    letter = kinds == 1
    first, last = letter[1:] > letter[:-1], letter[:-1] > letter[1:]  # the texts are between spaces
    if marks:
        mark = kinds == 2
        first |= mark[1:]
        last |= mark[:-1]
    firsts = np.flatnonzero(first) + 1
    lengths = np.flatnonzero(last) - firsts + 1
    keys = _keys(data, firsts, lengths)
    starts = np.searchsorted(firsts, starts_of([size + 1 for size in sizes]))
    return FoundWords(data, firsts, lengths, keys, starts)


def _keys(data: bytes, firsts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The key of each word, given its first byte and its length; eight bytes follow the last word."""
    numbers = np.ndarray((len(data) - SHORT + 1,), "<u8", data, strides=(1,))  # eight bytes from each one on
    found: np.ndarray = numbers[firsts] & MASKS[np.minimum(lengths, SHORT)]
    return found


def _kinds_of(*, marks: bool) -> bytes:
    """The kind of each byte, for `bytes.translate`; those beyond ASCII are of letters."""
    letters = {code for code in range(256) if not marks or code >= 128 or chr(code).isalnum() or chr(code) == "_"}
    return bytes(0 if code < 128 and chr(code).isspace() else 1 if code in letters else 2 for code in range(256))


_KINDS = {marks: _kinds_of(marks=marks) for marks in (False, True)}


class WordNumbers:
    """The numbers of words, looked up for many words at once: a hash table of the short ones, and a dict."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = numbers
        few = [word for word in numbers if len(word) <= SHORT]
        plain = list(compress(few, plain_texts(few)))
        whole = "".join(plain)
        short = plain if whole.isascii() else [word for word in plain if len(word.encode()) <= SHORT]
        data = "".join(short).encode() + b" " * SHORT
        sizes = np.fromiter(map(len, short if whole.isascii() else map(str.encode, short)), np.int64, len(short))
        keys = _keys(data, np.cumsum(sizes) - sizes, sizes)
        self._shift = np.uint64(64 - max(4, 2 + len(short).bit_length()))  # at most a quarter of the table is used
        self._keys = np.zeros(2 ** (64 - int(self._shift)), np.uint64)
        self._found = np.full(len(self._keys), NONE, np.int32)
        own, places = np.fromiter(map(numbers.__getitem__, short), np.int32, len(short)), self._places(keys)
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
        long = np.flatnonzero(words.lengths > SHORT)
        found[long] = [self._numbers.get(word, NONE) for word in words.at(long)]
        return Ragged(found, words.starts)
