"""BM25 keyword scores (Robertson and Zaragoza 2009), and how text is split into words.

    score(d) = sum over the words w of the query of  idf(w) * f (k1 + 1) / (f + k1 (1 - b + b |d| / mean |d|))
    idf(w)   = log(1 + (N - n + 0.5) / (n + 0.5))

f is the number of times w occurs in d, |d| the number of words in d, N the number of documents, and n the number of
documents that contain w. Rare words count more, repeated words count less each time, and long documents are scaled
down. Only documents that are still in the index count, so an index that was changed gives the same scores as one that
was built from scratch.

A word is a run of letters, digits and combining marks, in NFKC form and lowercase. "é" as one character and "é" as a
letter with a combining mark are the same word, and the vowel signs of Hindi stay with their letters. Invisible
characters, such as a soft hyphen or the joiners of Persian, are dropped. Very long runs, such as URLs or genes, are
split.

In scripts without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese and the Tai scripts) every letter with its marks
is a word of the keyword index. English plural endings are removed with Harman's S stemmer (1991), which changes nothing
else, so names and numbers stay intact.
"""

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, count
from typing import NamedTuple

import numpy as np

LONGEST = 256  # characters of a word; longer ones do not fit in a database index
# letters, without marks and digits, of scripts that use no spaces
UNSPACED = (
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46"  # Thai
    "\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd-\u0ec6\u0edc-\u0edf"  # Lao
    "\u1000-\u102a\u103f\u1050-\u1055\u105a-\u105d\u1061\u1065\u1066\u106e-\u1070\u1075-\u1081\u108e"  # Burmese
    "\ua9e0-\ua9e4\ua9e6-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a\uaa7e\uaa7f"  # and related scripts
    "\u1780-\u17b3\u17d7\u17dc"  # Khmer
    "\u1950-\u19c9\u1a20-\u1a54\u1aa7\uaa80-\uaaaf\uaab1\uaab5\uaab6\uaab9-\uaabd\uaac0\uaac2-\uaadd"  # Tai
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\U0001aff0-\U0001b167"  # kana
    "\u3005-\u3007\u3105-\u312f\u31a0-\u31bf\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
)
# both match text from _spaced(), where everything but letters, digits and spaces is a combining mark
RUN = re.compile(rf"\w[^ ]{{0,{LONGEST - 1}}}")
WORD = re.compile(rf"[{UNSPACED}][^\w ]{{0,{LONGEST - 1}}}|[^\W{UNSPACED}][^ {UNSPACED}]{{0,{LONGEST - 1}}}")
ASCII_WORD = re.compile(rf"\w{{1,{LONGEST}}}", re.ASCII)  # what WORD finds in ASCII text, without a map of characters
SHORTEST = 4  # letters of a word before an ending is removed
ZERO_WIDTH_SPACE = 0x200B  # invisible, but it separates words


class CharacterMap(dict[int, str]):
    """Maps a character to itself, to nothing if it is invisible, or to a space if it is not part of a word."""

    def __missing__(self, number: int) -> str:
        sign = chr(number)
        kind = unicodedata.category(sign)
        unseen = kind == "Cf" or unicodedata.name(sign, "").startswith("VARIATION SELECTOR")
        word = sign == "_" or sign.isalnum() or kind in ("Mn", "Mc")
        self[number] = "" if unseen and number != ZERO_WIDTH_SPACE else sign if word else " "
        return self[number]


CHARACTER_MAP = CharacterMap()  # filled as characters are seen


def runs_of(text: str) -> list[str]:
    """Return the runs of letters and digits of a text in order, normalized and lowercase.

    >>> runs_of("Cafe\u0301s: हिन्दी 猫は co\u00adop")
    ['cafés', 'हिन्दी', '猫は', 'coop']
    """
    return RUN.findall(_spaced(text))


def _spaced(text: str) -> str:
    """Normalize the text and keep only words and spaces; normalized twice because casefold can change the form."""
    small = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFKC", small).translate(CHARACTER_MAP)


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, as the keyword index stores them.

    >>> words_of("Two Studies of mice: 猫は cells' ดี DNA")
    ['two', 'study', 'of', 'mice', '猫', 'は', 'cell', 'ดี', 'dna']
    """
    return list(map(singular, _full_words(text)))


def _full_words(text: str) -> list[str]:
    """Return the words of a text with their plural endings."""
    return ASCII_WORD.findall(text.lower()) if text.isascii() else WORD.findall(_spaced(text))


def singular(word: str) -> str:
    """Return the word without its plural ending.

    >>> [singular(word) for word in ("ponies", "houses", "cats", "glass", "virus", "gas", "fees")]
    ['pony', 'house', 'cat', 'glass', 'virus', 'gas', 'fee']
    """
    if len(word) < SHORTEST or not word.endswith("s") or word.endswith(("us", "ss")):
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return f"{word[:-3]}y"
    return word[:-1]


K1, B = 1.2, 0.75


class Postings(NamedTuple):
    """Which documents contain each word, and how often: word n has the entries `starts[n]` to `starts[n + 1]`."""

    words: tuple[str, ...]  # sorted
    starts: np.ndarray  # [W+1] int64
    documents: np.ndarray  # [N] int32
    counts: np.ndarray  # [N] int32
    lengths: np.ndarray  # [D] int32, words of each document

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Postings":
        """Count the words of texts.

        >>> found = Postings.of(["a cat", "cats and a cat"])
        >>> found.words, found.has("cat")[1].tolist()
        (('a', 'and', 'cat'), [1, 2])
        """
        found = list(map(_full_words, texts))
        lengths = np.fromiter(map(len, found), np.int64, len(found))
        seen: defaultdict[str, int] = defaultdict(count().__next__)  # numbers words as they appear
        written = np.fromiter(map(seen.__getitem__, chain.from_iterable(found)), np.int64, int(lengths.sum()))
        stems = list(map(singular, seen))  # of each word once, which is most of the speed
        names = sorted(set(stems))
        numbers = {word: number for number, word in enumerate(names)}
        words = np.fromiter(map(numbers.__getitem__, stems), np.int64, len(stems))[written]
        # postings are sorted by word and then by document, so one number for both is enough
        size = max(1, len(found))
        pairs, counts = np.unique(words * size + np.repeat(np.arange(len(found)), lengths), return_counts=True)
        starts = np.searchsorted(pairs, np.arange(len(names) + 1) * size)
        narrow = (one.astype(np.int32) for one in (pairs % size, counts, lengths))
        return cls(tuple(names), starts, *narrow)

    @classmethod
    def joined(cls, parts: Sequence[tuple["Postings", np.ndarray]]) -> "Postings":
        """Merge the postings of selected documents of several parts.

        Args:
            parts: Postings, each with the rows to keep, in order. No text is read again.

        >>> first, second = Postings.of(["a cat", "a dog"]), Postings.of(["the cats"])
        >>> both = Postings.joined([(first, np.array([1])), (second, np.array([0]))])
        >>> both.words, both.has("cat")[0].tolist()
        (('a', 'cat', 'dog', 'the'), [1])
        """
        offsets = np.cumsum([0, *(len(rows) for _, rows in parts)]).tolist()
        taken = [part._taken(rows, start) for (part, rows), start in zip(parts, offsets, strict=False)]
        names = sorted(set[str]().union(*(words for words, *_ in taken)))
        numbers = {word: number for number, word in enumerate(names)}
        renamed = [np.array([numbers[word] for word in words], np.int64)[which] for words, which, *_ in taken]
        documents, counts = ([one[place] for one in taken] for place in (2, 3))
        lengths = [part.lengths[rows] for part, rows in parts]
        columns = (renamed, documents, counts, lengths)
        return cls._sorted(names, *(np.concatenate([np.empty(0, np.int64), *arrays]) for arrays in columns))

    def _taken(self, rows: np.ndarray, start: int) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
        """Return the words of the selected documents, and the word, document and count of each of their postings."""
        renumbered = np.full(len(self.lengths), -1, np.int64)
        renumbered[rows] = np.arange(start, start + len(rows))
        documents = renumbered[self.documents]
        here = documents >= 0
        found, which = np.unique(np.repeat(np.arange(len(self.words)), np.diff(self.starts))[here], return_inverse=True)
        return [self.words[number] for number in found.tolist()], which, documents[here], self.counts[here]

    @classmethod
    def _sorted(
        cls, names: Sequence[str], words: np.ndarray, documents: np.ndarray, counts: np.ndarray, lengths: np.ndarray
    ) -> "Postings":
        """Sort postings [N] by word and then by document."""
        order = np.lexsort((documents, words))
        starts = np.concatenate([[0], np.cumsum(np.bincount(words, minlength=len(names)))])
        narrow = (one.astype(np.int32) for one in (documents[order], counts[order], lengths))
        return cls(tuple(names), starts, *narrow)

    def has(self, word: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the documents that contain a word, and its count in each."""
        number = bisect_left(self.words, word)
        if number == len(self.words) or self.words[number] != word:
            return self.documents[:0], self.counts[:0]
        here = slice(self.starts[number], self.starts[number + 1])
        return self.documents[here], self.counts[here]


class Keywords:
    """BM25 scores over the documents of several segments, some of which may be deleted."""

    def __init__(self, segments: Sequence[Postings], there: np.ndarray) -> None:
        self.segments, self.there = segments, there  # [D] documents of all segments, concatenated
        sizes = [len(segment.lengths) for segment in segments]
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.lengths = np.concatenate([np.empty(0, np.int32), *(segment.lengths for segment in segments)])
        self.count = int(there.sum())
        self.mean = float(self.lengths[there].mean()) if self.count else 0.0

    def scores(self, query: str) -> np.ndarray:
        """[D] the score of each document; 0 if it has no word of the query or was deleted."""
        scores = np.zeros(len(self.there))
        for word in sorted(set(words_of(query))):
            documents, counts = self._has(word)
            idf = np.log1p((self.count - len(documents) + 0.5) / (len(documents) + 0.5))
            longer = 1 - B + B * self.lengths[documents] / (self.mean or 1.0)
            scores[documents] += idf * counts * (K1 + 1) / (counts + K1 * longer)
        return scores

    def _has(self, word: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the documents of all segments that contain a word and are not deleted, and its counts."""
        found = [segment.has(word) for segment in self.segments]
        documents = np.concatenate([one + start for (one, _), start in zip(found, self.offsets, strict=False)])
        there = self.there[documents]
        return documents[there], np.concatenate([counts for _, counts in found])[there]
