"""Word-level segmenter: the pattern that splits text into words and marks, detokenization, and the word vocabulary.

A word is a run of letters, digits, underscores and their combining marks. Every other character except white space is a
separate mark, together with its accents and skin tones and the next mark after a joiner, so a family emoji is one mark.

A word vocabulary does not keep the spacing, so `detokenized` restores it with rules: "Hello , world !" becomes
"Hello, world!". A rule looks at a mark and its neighbors, never at the language:

    closes    . , ! ? ; : ) ] } % … » ” ’        no space before it
    opens     ( [ { ¿ ¡ « „ ‚ ‘ $ £ € #          no space after it
    joins     - / ' ’ @ between two words        no space on either side: well-known, don't
    pairs     " and “ close if one is open, else they open; ' too, at a word border
    numbers   . , : between digits as in 3.14, 1,000 and 10:30

Splitting the result again always gives the same words. Ambiguous cases are guessed: a dash that had spaces becomes a
hyphen, and the possessive apostrophe of "dogs' bones" joins the two words.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import chain, compress, repeat

import msgspec
import numpy as np

from seqloom.config.tokenizers import WordsConfig
from seqloom.errors import DataError
from seqloom.text.many_words import NONE, SHORT, FoundWords, ShortCounts, WordNumbers, find_words, plain_texts
from seqloom.text.ragged import Ragged
from seqloom.text.segmenter import TokenSpans
from seqloom.text.special_tokens import COUNT, UNKNOWN

CLOSING = frozenset(".,!?;:)]}%…»”°、。，！？；：）」』")
OPENING = frozenset("([{¿¡«„‚‘$£€#（「『")
JOINING = frozenset("-/'’@")
PAIRED = {'"': '"', "“": "„", "'": "'"}  # a mark closes if its value is open, else it opens
QUOTES = frozenset((*PAIRED, *PAIRED.values()))
DIGITS_AFTER = {".": range(1, 9), ",": range(3, 4), ":": range(2, 3)}  # digits that may follow the mark in a number


def detokenized(words: Sequence[str]) -> str:
    """Join words and marks, as split by `word_pattern`, into text.

    >>> detokenized(["He", "said", ":", '"', "It", "'", "s", "3", ".", "50", "(", "well", "-", "known", ")", ".", '"'])
    'He said: "It\\'s 3.50 (well-known)."'
    """
    text, opened, glued = [], set[str](), True  # glued: no space before the next word
    for number, word in enumerate(words):
        before = words[number - 1] if number else ""
        after = words[number + 1] if number + 1 < len(words) else ""
        left, right = _joins(before, word, after, opened)
        text.append(word if glued or left else f" {word}")
        # A word after a mark without a space is split off again, but an accent would belong to the mark
        glued = right and (after[:1].isalnum() or after.isascii())
    return "".join(text)


def _joins(before: str, mark: str, after: str, opened: set[str]) -> tuple[bool, bool]:
    """Return whether a word or mark joins the text before it and after it; updates `opened`."""
    if mark in JOINING and _is_word(before) and _is_word(after):
        return True, True
    if mark in PAIRED:
        closes = PAIRED[mark] in opened or (mark == "'" and _is_word(before))
        opened.discard(PAIRED[mark]) if closes else opened.add(mark)
        return closes, not closes
    if mark == "„":
        opened.add(mark)
    return mark in CLOSING, mark in OPENING or (
        before[-1:].isdigit() and after.isdigit() and len(after) in DIGITS_AFTER.get(mark, ())
    )


UNSEEN = "x"  # stands for an unknown word
NEAR = 4  # words whose spacing later words can change, and those that it depends on


def context_of(words: Sequence[str]) -> list[int]:
    """Return the places of a few words after which others are joined as after all: open quotes and the last words.

    >>> context_of(["He", "said", '"', "no", '"', "and", "“", "then", "it", "was", "over"])
    [6, 7, 8, 9, 10]
    """
    start = max(0, len(words) - NEAR)
    while start and words[start] in QUOTES:  # what it is depends on the word before it
        start -= 1
    opened, places = set[str](), dict[str, int]()
    for number in range(start):
        if words[number] in QUOTES:
            _joins(words[number - 1] if number else "", words[number], words[number + 1], opened)
            places[words[number]] = number
    return sorted(places[mark] for mark in opened) + list(range(start, len(words)))


def _is_word(text: str) -> bool:
    return text[-1:].isalnum() and text[:1].isalnum()


LONGEST = 256  # maximum characters of a word in a vocabulary; longer ones are lines without spaces
MOST_COUNTED = 2**20  # distinct words counted at a time, about 120 MB
JOINERS = "\u200c\u200d"
SKIN_TONES = "\U0001f3fb-\U0001f3ff"
_ASCII, _BETWEEN_SPACES = re.compile(r"\w+|\S"), re.compile(r"\S+")


@cache
def word_pattern() -> re.Pattern[str]:
    """Return a pattern that finds words and marks in linear time: it never backtracks."""
    combining = _combining()
    word = rf"\w{combining}{JOINERS}"
    plain = r"[!-/:-@\[-^`{-~](?![\u0300-\U0010ffff])"  # ASCII marks that no combining mark follows: only for speed
    return re.compile(rf"{plain}|[{word}]+|\S(?:[{combining}{SKIN_TONES}]|\u200d[^\s{word}])*")


def pattern_for(text: str) -> re.Pattern[str]:
    """Return a pattern that finds the same words as `word_pattern` in this text; for ASCII it takes half the time.

    >>> [pattern_for(text).findall(text) for text in ("It's 3 o'clock", "cafe\u0301!")]
    [['It', "'", 's', '3', 'o', "'", 'clock'], ['café', '!']]
    """
    return _ASCII if text.isascii() else word_pattern()


def _pattern_between_spaces(_: str) -> re.Pattern[str]:
    return _BETWEEN_SPACES


def _combining() -> str:
    """Return the combining marks (categories Mn, Mc, Me) as ranges of a character class."""
    planes = chain(range(0x20000), range(0xE0000, 0xE1000))  # the other planes have no combining marks
    marks = [code for code in planes if unicodedata.category(chr(code))[0] == "M"]
    firsts = [code for before, code in zip([-2, *marks], marks, strict=False) if code != before + 1]
    lasts = [code for code, after in zip(marks, [*marks[1:], -2], strict=True) if after != code + 1]
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in zip(firsts, lasts, strict=True))


def _patterns(config: WordsConfig) -> Callable[[str], re.Pattern[str]]:
    return pattern_for if config.word_split == "punctuation" else _pattern_between_spaces


class WordsData(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The stored vocabulary of a word segmenter."""

    words: tuple[str, ...]


class WordSegmenter:
    """Segmenter with one token per word; words outside the vocabulary become UNKNOWN."""

    def __init__(self, config: WordsConfig, data: WordsData) -> None:
        if COUNT + len(data.words) > config.vocab_size:
            raise DataError(
                f"the vocabulary has {len(data.words):,} words and {COUNT} special tokens; the limit is "
                f"{config.vocab_size:,}"
            )
        self._words = data.words
        self._numbers = dict(zip(data.words, range(COUNT, COUNT + len(data.words)), strict=True))
        if len(self._numbers) < len(data.words) or "" in self._numbers:
            raise DataError("a word of the vocabulary is empty or occurs twice")
        self._pattern_for, self._or_lower = _patterns(config), config.lowercase_fallback
        self._marks = config.word_split == "punctuation"
        self._join = detokenized if self._marks else " ".join

    @property
    def vocab_size(self) -> int:
        return COUNT + len(self._words)

    @property
    def numbers(self) -> dict[str, int]:
        """The token of every known word."""
        return dict(self._numbers)

    def encode(self, texts: Sequence[str]) -> Ragged:
        plain = plain_texts(texts)
        words = find_words(list(compress(texts, plain)), marks=self._marks)
        if words is None:
            return self._one_by_one(texts)
        known, others = self._at_once(words), np.flatnonzero(~np.array(plain)).tolist()
        if not others:
            return known
        rows = Ragged.joined([known, self._one_by_one(texts[place] for place in others)])
        return rows.select(np.argsort(np.argsort(~np.array(plain), kind="stable")))

    def _one_by_one(self, texts: Iterable[str]) -> Ragged:
        return Ragged.of([self._tokens(self.split(text)) for text in texts], np.int32)

    def _at_once(self, words: FoundWords) -> Ragged:
        tokens = self._many_numbers.of(words)
        if self._or_lower:
            places = np.flatnonzero(tokens.values == NONE)
            tokens.values[places] = [self._numbers.get(word.lower(), UNKNOWN) for word in words.at(places)]
        tokens.values[tokens.values == NONE] = UNKNOWN
        return tokens

    @cached_property
    def _many_numbers(self) -> WordNumbers:
        return WordNumbers(self._numbers)

    def split(self, text: str) -> list[str]:
        """Return the words and marks of a text, one for each token of `encode`."""
        return self._pattern_for(text).findall(text)

    def _tokens(self, words: Iterable[str]) -> list[int]:
        numbers = self._numbers
        if self._or_lower:
            return [numbers.get(word) or numbers.get(word.lower(), UNKNOWN) for word in words]
        return list(map(numbers.get, words, repeat(UNKNOWN)))

    def whole(self, words: Iterable[str]) -> list[str]:
        """Return the distinct new words that the pattern would not split."""
        new = (word for word in dict.fromkeys(words) if word not in self._numbers and len(word) <= LONGEST)
        return [word for word in new if self._pattern_for(word).findall(word) == [word]]

    def encode_with_offsets(self, text: str) -> TokenSpans:
        ends = chain.from_iterable(found.span() for found in self._pattern_for(text).finditer(text))
        return TokenSpans(self.encode([text]).values, np.fromiter(ends, np.int64).reshape(-1, 2))

    def decode(self, tokens: np.ndarray) -> str:
        """Return the text of the words; spacing is restored by rules."""
        return self.text([self._words[token - COUNT] for token in tokens.tolist()])

    def text(self, words: Sequence[str]) -> str:
        """Join words and marks, which may be outside the vocabulary, into text."""
        return self._join(words)

    def context(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens of open quotes and of the last words."""
        words = [self._words[token - COUNT] if token >= COUNT else UNSEEN for token in tokens]
        return [tokens[place] for place in context_of(words)]

    def spaced(self, tokens: np.ndarray) -> str:
        """Return the words and marks separated by spaces."""
        return " ".join(self._words[token - COUNT] for token in tokens.tolist())

    def piece(self, token: int) -> str:
        return self._words[token - COUNT]

    def data(self) -> WordsData:
        return WordsData(self._words)


def fit_words(config: WordsConfig, texts: Iterator[Sequence[str]]) -> tuple[WordSegmenter, int]:
    """Fit a vocabulary of the most frequent words; return the segmenter and the number of words dropped."""
    pattern_for, most = _patterns(config), max(MOST_COUNTED, 4 * config.vocab_size)
    counts: Counter[str] = Counter()
    short, forgotten = ShortCounts(), 0
    for block in texts:
        plain = plain_texts(block)
        found = find_words(list(compress(block, plain)), marks=config.word_split == "punctuation")
        if found is not None:
            short.add(found)
            counts.update(found.at(np.flatnonzero(found.lengths > SHORT)))
            block = [text for text, is_counted in zip(block, plain, strict=True) if not is_counted]
        counts.update(chain.from_iterable(pattern_for(text).findall(text) for text in block))
        if len(counts) + short.most > most:
            counts.update(short.take())
            if len(counts) > most:
                forgotten += forget_rare(counts, most // 2)
    counts.update(short.take())
    words = most_frequent(counts, config.vocab_size - COUNT, config.min_count or 1)
    return WordSegmenter(config, WordsData(words)), forgotten + len(counts) - len(words)


def forget_rare(counts: Counter[str], most: int) -> int:
    """Drop the rarest words until at most `most` are left, to bound memory; return the number dropped.

    A dropped word that comes again is counted from zero, so only words that are rare throughout lose counts (Manku &
    Motwani 2002).
    """
    before, floor = len(counts), 1
    while len(counts) > most:
        for word in [word for word, count in counts.items() if count <= floor]:
            del counts[word]
        floor += 1
    return before - len(counts)


def most_frequent(counts: Counter[str], limit: int, least: int) -> tuple[str, ...]:
    """Return at most `limit` words with at least `least` occurrences, most frequent first, ties in code point order."""
    kept = sorted(word for word, count in counts.items() if count >= least and len(word) <= LONGEST)
    return tuple(sorted(kept, key=counts.__getitem__, reverse=True)[:limit])  # the order of equal counts stays
