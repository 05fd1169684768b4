"""The split of each row: by file, by a column, or at random with a seed.

A random split is a pure function of the seed and the rows, decided while they are read. Every class has a hand of ten
cards, shuffled by the seed, and gets a new hand when it is used up:

    hand      train train dev train train train test train train train      each card goes to the split that lacks most
    row ──▶   the first card in the hand of its class whose split is not ahead of its share of all rows

So the split is stratified: every class has its share in every split to within a few rows, even if classes are small;
and no rows are kept in memory. The first row of a class is always in train.

Rows of one group (a column, or neighboring lines of running text) stay together. Runs of lines are short at the
beginning of a text and grow with it, so that a short text has all splits as well.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from seqloom.config.data import SPLITS, AnySplit, FoldSplit, RandomSplit, SplitName
from seqloom.data.schema import Example, Schema

BLOCK = 10  # cards of a hand
ALMOST = 0.75  # of its first row: two splits with a tenth of ten rows each must both get one
RUN = 100  # neighboring lines of running text that stay together, after the beginning


class SplitSummary(NamedTuple):
    """The rule of a split, and the number of rows in each set."""

    rule: AnySplit
    counts: dict[SplitName, int]

    def to_json(self) -> str:
        """The split as JSON text, for the run folder."""
        return msgspec.json.encode({"rule": self.rule, "counts": self.counts}).decode()


def draw(*parts: object) -> int:
    """A 64-bit hash of the arguments."""
    text = "\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


class _Counts:
    """Counts for each split, compared with its share."""

    def __init__(self, shares: tuple[float, ...]) -> None:
        self.shares, self.counts, self.total = shares, [0] * len(shares), 0

    def lack(self, part: int) -> float:
        """How many a split lacks after the next one; negative if it is ahead."""
        return self.shares[part] * (self.total + 1) - self.counts[part]

    def add(self, part: int) -> None:
        self.total += 1
        self.counts[part] += 1


class _Hands:
    """The hands of all classes."""

    def __init__(self, split: RandomSplit | FoldSplit, shares: tuple[float, ...]) -> None:
        self.split, self.dealt, self.used = split, _Counts(shares), _Counts(shares)
        self.hands: dict[str, tuple[_Counts, list[int]]] = {}  # by class: all cards so far, and the current hand

    def next(self, name: str) -> int:
        """The number of the split of the next row of a class."""
        if name not in self.hands:
            self.hands[name] = (_Counts(self.dealt.shares), [])
        own, hand = self.hands[name]
        if hand:
            part = self._chosen(hand)
        else:
            hand.extend(self._new(name, own))
            trains = own.total == BLOCK and isinstance(self.split, RandomSplit) and 0 in hand
            part = 0 if trains else self._chosen(hand)  # every class is in train
        hand.remove(part)
        self.used.add(part)
        return part

    def _chosen(self, hand: list[int]) -> int:
        """The first card whose split is not ahead of its share; a split without rows comes first."""
        for part in hand:
            if not self.used.counts[part] and self.used.lack(part) >= ALMOST:
                return part
        for part in hand:
            if self.used.lack(part) >= 0:
                return part
        return max(hand, key=self.used.lack)

    def _new(self, name: str, own: _Counts) -> list[int]:
        """Ten cards: each goes to the split that lacks most, in the class and overall; then they are shuffled."""
        bits, hand = draw(self.split.split_seed, name, own.total), list[int]()
        for _ in range(BLOCK):
            part = max(range(len(own.shares)), key=lambda part: own.lack(part) + self.dealt.lack(part))
            own.add(part)
            self.dealt.add(part)
            hand.append(part)
        for place in range(BLOCK - 1, 0, -1):  # Fisher and Yates; 64 bits are enough for 10! orders
            bits, other = divmod(bits, place + 1)
            hand[place], hand[other] = hand[other], hand[place]
        return hand


Divider = Callable[[Example, object], SplitName]


def divider(split: RandomSplit | FoldSplit, schema: Schema) -> Divider:
    """A function that maps an example and the value of its group column to a split, called row after row."""
    shares, names = _shares(split)
    if split.group is not None:
        return lambda _, group: names[_by_hash(draw("group", split.split_seed, group) / 2**64, shares)]
    hands, runs, left, part = _Hands(split, shares), 0, 0, names[0]

    def part_of_class(example: Example, _: object) -> SplitName:
        name = str(example.target) if schema.target.one_label else ""  # only labels are stratified
        return names[hands.next(name)]

    def part_of_run(_: Example, __: object) -> SplitName:
        """Ten runs of one line, ten of two, ten of four, ... up to RUN: a tenth of the text before."""
        nonlocal runs, left, part
        if not left:
            left, part = run_length(runs), names[hands.next("")]
            runs += 1
        left -= 1
        return part

    return part_of_run if schema.target.is_running else part_of_class


def run_length(run: int) -> int:
    """The number of lines of a run.

    >>> [run_length(run) for run in (0, 9, 10, 29, 69, 70, 10**6)]
    [1, 1, 2, 4, 64, 100, 100]
    """
    return int(min(RUN, 2 ** min(run // BLOCK, RUN)))


def _shares(split: RandomSplit | FoldSplit) -> tuple[tuple[float, ...], tuple[SplitName, ...]]:
    """The shares of the drawn sets, and the split of each."""
    if isinstance(split, RandomSplit):
        return (1 - split.dev_size - split.test_size, split.dev_size, split.test_size), SPLITS
    folds = range(split.folds)
    return (1 / split.folds,) * split.folds, tuple("dev" if fold == split.fold else "train" for fold in folds)


def _by_hash(uniform: float, shares: tuple[float, ...]) -> int:
    """The split whose interval of [0, 1) contains a number."""
    for index, share in enumerate(shares):
        uniform -= share
        if uniform < 0:
            return index
    return 0


def cut_document(example: Example, split: RandomSplit | FoldSplit) -> Iterator[tuple[SplitName, Example]]:
    """Cut one long text at line ends into train, dev and test, in this order."""
    text, begin, share = str(example.input), 0, 0.0
    for wanted, part in zip(*_shares(split), strict=True):
        share += wanted
        end = text.find("\n", round(share * len(text)) - 1) + 1 if share < 1 - 1e-9 else len(text)
        piece = text[begin : (end or len(text))]
        if piece.strip():
            yield part, example._replace(input=piece, id=f"{example.id}:{begin}")
        begin = end or len(text)
