"""Splits raw text into words as the training words of a tagger are split. It learns from these words alone.

    training words    John Smith , of Acme Corp. , did n't visit Paris .
    raw text          John Smith, of Acme Corp., didn't visit Paris.        gives the same words

A mark is a character other than a letter, a digit or a space. Two numbers decide whether a mark is split off: how many
different training words have it attached, and next to how many different words it is a word of its own.

    end        Paris.         attached in `Corp.` and `Inc.`; a word of its own after `Paris`, `it`, ...: split
    start      #tag           attached in `#tag`, `#win`, ...; hardly ever a word of its own: not split
    inside     well-known     attached in `long-term`, ...; a word of its own in `Paris - Nice`: the more frequent case
    clitics    didn't         `n't` is a word of its own after `do`, `is`, ...; fewer words end in it: split

Words are counted by their shape, so `J.` can be kept and `Paris.` split. These rules are for new words. A training word
that they would split is kept, unless the training data has it split more often. A mark that never occurs follows the
majority of the others. Different marks in a row, as in `Paris."`, are one word only if they often are in training; the
dot of `Corp.,` and `Corp.'s` belongs to its word if training words end in dots, because no sentence ends before a comma
or a clitic. Without marks in the training data, or if they are all attached, text is split at spaces only. Addresses
(URLs, e-mail) are one word.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import msgspec

from seqloom.errors import DataError

CHUNK = re.compile(r"\S+")
ADDRESS = re.compile(r"(?:https?://|ftp://|www\.)\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+", re.IGNORECASE)
APOSTROPHE = "'"
CURLY = str.maketrans("’", APOSTROPHE)
LONGEST_CLITIC = 4  # characters
FEWEST_HOSTS = 2  # different words next to a clitic
OFTEN = 3  # occurrences next to a single word, if no word has the clitic attached: I 'm, did n't
LEADING = 0.05  # share of a clitic's occurrences that may start a sentence: i'm often does, n't does not
LONGEST_CHUNK = 400  # characters; a longer chunk is no text
LONGEST_RUN = 8  # marks of a known word
MOST_WORDS = 2_000_000  # that it learns from
PLAIN, MIXED, MARKS = 0, 1, 2  # kinds of words
ANY = "any"  # shape; alone: any mark
AFTER_ADDRESS = ".,;:!?)]}>'\"…”’»"  # other marks at the end of an address belong to it
CLITIC = re.compile(r"[^\W\d_]?'[^\W\d_]+")  # n't, 's
PROCLITIC = re.compile(r"[^\W\d_]+'")  # l', qu'
INITIALS = re.compile(r"[^\W\d_](?:\.[^\W\d_])+")

Rules = dict[str, bool]  # a mark and the shape of its word, such as ".w": whether it is split off


class WordSplitter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was learned: rules for marks, clitics, and exceptions.

    The shape in a rule is `a` for one letter, `d` for digits, `i` for initials (U.S), `m` for other words with marks
    inside, `w` for the rest, and `any`. Rules for `inside` have the marks and their two neighbors, such as `-ww`.
    """

    start: Rules = {}
    end: Rules = {}
    inside: Rules = {}
    suffixes: frozenset[str] = frozenset()  # clitics at the end of a word, in lower case: n't, 's
    prefixes: frozenset[str] = frozenset()  # at its start: l', d'
    runs: frozenset[str] = frozenset()  # usual words of several marks: ... -- :)
    repeated: frozenset[str] = frozenset()  # marks that are repeated in such words: . -
    kept: frozenset[str] = frozenset()  # training words that the rules would split
    abbreviates: bool = False  # whether a dot before a comma or clitic belongs to its word: Corp.,

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where each word starts and stops. Together the words have all characters of the text but spaces, in order.

        >>> learned = WordSplitter(end={".w": True, ".a": False})
        >>> [(start, stop) for start, stop in learned.spans("J. Smith left.")]
        [(0, 2), (3, 8), (9, 13), (13, 14)]
        """
        found = []
        for chunk in CHUNK.finditer(text):
            at = chunk.start()
            for word in self.words(chunk.group()):
                found.append((at, at + len(word)))
                at += len(word)
        return found

    def words(self, chunk: str) -> list[str]:
        """The words of a chunk without spaces; a very long one stays whole."""
        found, waiting = list[str](), [chunk]
        while waiting:
            parts = self._split(waiting.pop()) if len(chunk) <= LONGEST_CHUNK else [waiting.pop()]
            if len(parts) == 1:
                found += parts
            waiting += parts[::-1] if len(parts) > 1 else []
        for at in range(len(found) - 2, 0, -1) if self.abbreviates else ():
            ends_word = found[at + 1] == "," or _plain(found[at + 1]) in self.suffixes
            if found[at] == "." and ends_word and _kind(found[at - 1]) == PLAIN:
                found[at - 1 : at + 1] = [found[at - 1] + "."]
        return found

    def _split(self, chunk: str) -> list[str]:
        """The chunk, or its parts, which may have to be split again."""
        kind = _kind(chunk)
        if kind == PLAIN or chunk in self.kept:
            return [chunk]
        if kind == MARKS:
            return self._marks(chunk) if self.end.get(ANY) else [chunk]
        if _plain(chunk) in self.suffixes or _plain(chunk) in self.prefixes:
            return [chunk]
        for head, tail in (self._end(chunk), self._suffix(chunk), self._start(chunk), self._prefix(chunk)):
            if head and tail:
                return [head, tail]
        for at, after in [] if ADDRESS.fullmatch(chunk) else _inner_runs(chunk):
            run = chunk[at:after]
            if _plain(run) != APOSTROPHE and _decided(self.inside, run, _near(chunk[at - 1], chunk[after])):
                return [chunk[:at], run, chunk[after:]]
        return [chunk]

    def _marks(self, chunk: str) -> list[str]:
        """The words of a chunk of marks only, the longest known one each time."""
        words = list[str]()
        while chunk:
            size = self._run(chunk)
            words.append(chunk[:size])
            chunk = chunk[size:]
        return words

    def _run(self, marks: str) -> int:
        """How many marks at the start form a word: a known one, or equal ones if training words repeat the mark."""
        known = (size for size in range(LONGEST_RUN, 1, -1) if marks[:size] in self.runs)
        repeated = len(marks) - len(marks.lstrip(marks[0]))
        return max(next(known, 1), repeated if marks[0] in self.repeated else 1)

    def _end(self, chunk: str) -> tuple[str, str]:
        """The chunk before the mark at its end, and this mark, if it is split off."""
        if not is_mark(chunk[-1]) or (chunk[-1] not in AFTER_ADDRESS and ADDRESS.fullmatch(chunk)):
            return chunk, ""
        if not _decided(self.end, chunk[-1], shape(_core(chunk))):
            return chunk, ""
        marks = chunk[chunk.index(_core(chunk)) + len(_core(chunk)) :]
        size = len(self._marks(marks)[-1])
        return chunk[:-size], chunk[-size:]

    def _start(self, chunk: str) -> tuple[str, str]:
        if not is_mark(chunk[0]) or not _decided(self.start, chunk[0], shape(_core(chunk))):
            return "", chunk
        size = self._run(chunk[: chunk.index(_core(chunk))])
        return chunk[:size], chunk[size:]

    def _suffix(self, chunk: str) -> tuple[str, str]:
        """The chunk before its clitic, and the clitic."""
        plain = _plain(chunk)
        for size in range(min(LONGEST_CLITIC, len(chunk) - 1), 0, -1):
            follows = not is_mark(chunk[-size - 1]) or (plain[-size - 1 : 1 - size or None] == ".'")  # Corp.'s
            if plain[-size:] in self.suffixes and follows:
                return chunk[:-size], chunk[-size:]
        return chunk, ""

    def _prefix(self, chunk: str) -> tuple[str, str]:
        plain = _plain(chunk)
        for size in range(min(LONGEST_CLITIC, len(chunk) - 1), 0, -1):
            if plain[:size] in self.prefixes and not is_mark(chunk[size]):
                return chunk[:size], chunk[size:]
        return "", chunk

    def to_json(self) -> bytes:
        """What was learned as JSON, sorted: equal splitters are equal bytes."""
        return msgspec.json.format(msgspec.json.encode(self, order="deterministic"), indent=1) + b"\n"

    @classmethod
    def from_json(cls, data: bytes) -> "WordSplitter":
        """The splitter in a file; raise DataError if there is none."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (ValueError, RecursionError) as error:
            raise DataError(f"expected rules for splitting words ({error})") from None


@lru_cache(maxsize=4_096)
def is_mark(character: str) -> bool:
    """Whether a character is visible, and neither a letter nor a digit; accents belong to their letters."""
    return not character.isalnum() and unicodedata.category(character)[0] not in "MZC"


@lru_cache(maxsize=65_536)
def _kind(word: str) -> int:
    """Whether a word has no marks, some, or nothing else."""
    marks = sum(map(is_mark, word))
    return PLAIN if not marks else MARKS if marks == len(word) else MIXED


def _plain(word: str) -> str:
    """The word in lower case with straight apostrophes."""
    return word.translate(CURLY).lower()


def shape(core: str) -> str:
    """The shape of a word without the marks at its ends."""
    if core.isdigit():
        return "d"
    if any(map(is_mark, core)):
        return "i" if INITIALS.fullmatch(core) else "m"
    return "a" if len(core) == 1 else "w"


def _near(before: str, after: str) -> str:
    """The shapes of the characters around a mark inside a word."""
    return "".join("d" if one.isdigit() else "m" if is_mark(one) else "w" for one in (before, after))


def _core(word: str) -> str:
    """The word without the marks at its ends."""
    inner = [at for at, character in enumerate(word) if not is_mark(character)]
    return word[inner[0] : inner[-1] + 1] if inner else ""


def _inner_runs(word: str) -> Iterator[tuple[int, int]]:
    """Where runs of marks inside a word start and stop."""
    start = None
    for at, character in enumerate(word):
        if not is_mark(character):
            if start:
                yield start, at
            start = None
        elif start is None:
            start = at


def _decided(rules: Rules, mark: str, shaped: str) -> bool:
    """The rule for a mark and a shape; else for this mark with any shape; else for any mark."""
    for key in (mark + shaped, mark + ANY, ANY):
        if key in rules:
            return rules[key]
    return False


class _Evidence:
    """Different words with a mark attached, and different words next to the mark as a word, by mark and shape."""

    def __init__(self) -> None:
        self.attached: defaultdict[str, set[str]] = defaultdict(set)
        self.alone: defaultdict[str, set[str]] = defaultdict(set)

    def rules(self) -> Rules:
        found: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for side, sets in enumerate((self.attached, self.alone)):
            for key, words in sets.items():
                mark = key.rstrip("adimw")
                for name in (key, mark + ANY, ANY):
                    found[name][side] += len(words)
        return {key: alone >= attached for key, (attached, alone) in found.items()}  # known words are kept anyway


class SplitterFit:
    """Learns a splitter from the words of sentences.

    >>> fitting = SplitterFit()
    >>> for sentence in ("Mr. Smith left .", "Ann did n't see it .", "Bob is n't here ."):
    ...     fitting.add(sentence.split())
    >>> fitting.splitter().words("wasn't."), fitting.splitter().words("Mr.")
    (['was', "n't", '.'], ['Mr.'])
    """

    def __init__(self) -> None:
        self.words: Counter[str] = Counter()
        self.pairs: Counter[tuple[str, str]] = Counter()  # neighbors, one of them with a mark
        self.between: set[tuple[str, str, str]] = set()  # a word of marks, and the words around it
        self.first: Counter[str] = Counter()  # of sentences
        self.total = 0

    def add(self, sentence: Sequence[str]) -> None:
        """Count the words of a sentence; after MOST_WORDS words nothing is counted any more."""
        if self.total > MOST_WORDS:
            return
        self.total += len(sentence)
        self.words.update(sentence)
        self.first.update(map(_plain, sentence[:1]))
        kinds = [_kind(word) for word in sentence]
        for at, kind in enumerate(kinds):
            if kind == MARKS and 0 < at < len(kinds) - 1 and kinds[at - 1] != MARKS != kinds[at + 1]:
                self.between.add((sentence[at - 1], sentence[at], sentence[at + 1]))
            if at and (kind or kinds[at - 1]):
                self.pairs[sentence[at - 1], sentence[at]] += 1

    def splitter(self) -> WordSplitter:
        """The rules and exceptions of all sentences."""
        marked = {word for word in self.words if _kind(word) == MIXED and not ADDRESS.fullmatch(word)}
        suffixes, prefixes = self._clitics(marked, at_end=True), self._clitics(marked, at_end=False)
        start, end, inside = _Evidence(), _Evidence(), _Evidence()
        for word in marked:
            plain, shaped = _plain(word), shape(_core(word))
            if is_mark(word[0]) and plain not in suffixes:
                start.attached[word[0] + shaped].add(word)
            if is_mark(word[-1]) and plain not in prefixes:
                end.attached[word[-1] + shaped].add(word)
            if plain not in suffixes | prefixes:
                for at, after in _inner_runs(word):
                    inside.attached[word[at:after] + _near(word[at - 1], word[after])].add(word)
        for left, right in self.pairs:
            kinds = _kind(left) == MARKS, _kind(right) == MARKS
            if kinds == (False, True) and len(set(right)) == 1:  # :) is no evidence for )
                end.alone[right[-1] + shape(_core(left))].add(left)
            if kinds == (True, False) and len(set(left)) == 1:
                start.alone[left[0] + shape(_core(right))].add(right)
        for left, mark, right in self.between:
            inside.alone[mark + _near(left[-1], right[0])].add(f"{left} {right}")
        runs = {word for word in self.words if len(word) > 1 and _kind(word) == MARKS}
        repeated = frozenset(run[0] for run in runs if len(set(run)) == 1)
        usual = frozenset(run for run in runs if len(set(run)) == 1 or self._is_usual(run))
        abbreviations = {word for word in marked if word.endswith(".") and shape(_core(word)) != "m"}
        rules = WordSplitter(
            start.rules(),
            end.rules(),
            inside.rules(),
            suffixes,
            prefixes,
            runs=usual,
            repeated=repeated,
            abbreviates=len(abbreviations) > self.pairs[".", ","],
        )
        kept = (word for word in self.words if _kind(word) and self._is_kept(word, rules.words(word)))
        return msgspec.structs.replace(rules, kept=frozenset(kept))

    def _clitics(self, marked: set[str], *, at_end: bool) -> frozenset[str]:
        """The words with an apostrophe that occur next to more words than they are attached to.

        One word beside them is enough if they occur often, and never attached.
        """
        hosts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for (left, right), count in self.pairs.items():
            word, host = (right, left) if at_end else (left, right)
            plain = _plain(word)
            if len(word) <= LONGEST_CLITIC and (CLITIC if at_end else PROCLITIC).fullmatch(plain):
                hosts[plain][host] += count
        attached: Counter[str] = Counter()
        for word in marked:
            plain = _plain(word)
            sizes = range(1, min(LONGEST_CLITIC, len(word) - 1) + 1)
            attached.update({plain[-size:] if at_end else plain[:size] for size in sizes} & hosts.keys())
        return frozenset(
            one
            for one, near in hosts.items()
            if len(near) > attached[one]
            and (len(near) >= FEWEST_HOSTS or sum(near.values()) >= OFTEN)
            and (not at_end or self.first[one] <= LEADING * sum(near.values()))
        )

    def _is_usual(self, run: str) -> bool:
        """Whether different marks are often one word, and not more often separate words."""
        return self.words[run] >= OFTEN and self._is_kept(run, list(run))

    def _is_kept(self, word: str, pieces: list[str]) -> bool:
        """Whether the rules split a word that the training data does not have split more often."""
        return len(pieces) > 1 and self.words[word] >= min(self.pairs[pair] for pair in pairwise(pieces))
