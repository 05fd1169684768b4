"""The split of each row: by file, by a column, or at random with a seed.

A random split is a pure function of the seed and the rows, decided while they are read. Every class has a hand of ten
cards, shuffled by the seed, and gets a new hand when it is used up:

    hand      train train dev train train train test train train train      each card goes to the split that lacks most
    row ──▶   the first card in the hand of its class whose split is not ahead of its share of all rows

So the split is stratified: every class has its share in every split to within a few rows, even if classes are small;
and no rows are kept in memory. The first row of a class is always in train.

Rows of one group (a column) stay together.

Running text is split in runs of neighboring lines, and the shares are those of its characters, because paragraphs have
very different lengths. A run is at most a hundredth of the text before it, so every split has its share to within
about a hundredth of the text, also in a short one. A split that lacks a whole run gets the next one; otherwise the seed
chooses, among those that lack some.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import msgspec

from seqloom.config.data import SPLITS, AnySplit, FoldSplit, RandomSplit, SplitName
from seqloom.data.checks.check import weight
from seqloom.data.schema import Example, Examples, Schema

BLOCK = 10  # cards of a hand
ALMOST = 0.75  # of its first row: two splits with a tenth of ten rows each must both get one
PIECES, LONGEST_RUN = 100, 8_000  # a run is at most this part of the text before it, and so many characters


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

    def deal(self, classes: Iterable[str]) -> Iterator[int]:
        """Yield the number of the split of each of the next rows, given their classes."""
        shares, used, hands = self.used.shares, self.used, self.hands
        counts, every = used.counts, False  # whether each split that has a share has rows
        for name in classes:
            _, hand = hands.get(name, (None, None))
            if hand and every and shares[hand[0]] * (used.total + 1) >= counts[hand[0]]:
                used.total += 1  # the usual case of `_next`, which takes a third of the time here
                counts[hand[0]] += 1
                yield hand.pop(0)
            else:
                yield self._next(name)
                every = every or all(count for share, count in zip(shares, counts, strict=True) if share)

    def _next(self, name: str) -> int:
        """The number of the split of the next row of a class."""
        known = self.hands.get(name)
        own, hand = known or self.hands.setdefault(name, (_Counts(self.dealt.shares), []))
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
        shares, counts, total = self.used.shares, self.used.counts, self.used.total + 1
        if 0 in counts:
            for part in hand:
                if not counts[part] and shares[part] * total >= ALMOST:
                    return part
        for part in hand:
            if shares[part] * total >= counts[part]:
                return part
        return max(hand, key=self.used.lack)

    def _new(self, name: str, own: _Counts) -> list[int]:
        """Ten cards: each goes to the split that lacks most, in the class and overall; then they are shuffled."""
        bits, hand, dealt = draw(self.split.split_seed, name, own.total), list[int](), self.dealt
        shares, mine, every = own.shares, own.counts, dealt.counts
        for _ in range(BLOCK):
            own.total += 1
            dealt.total += 1
            of_class, of_all = own.total, dealt.total
            lacks = [
                (share * of_class - count) + (share * of_all - other)
                for share, count, other in zip(shares, mine, every, strict=True)
            ]
            part = lacks.index(max(lacks))
            mine[part] += 1
            every[part] += 1
            hand.append(part)
        for place in range(BLOCK - 1, 0, -1):  # Fisher and Yates; 64 bits are enough for 10! orders
            bits, other = divmod(bits, place + 1)
            hand[place], hand[other] = hand[other], hand[place]
        return hand


class _Runs:
    """The runs of neighboring lines of a running text."""

    def __init__(self, split: RandomSplit | FoldSplit, shares: tuple[float, ...]) -> None:
        self.split, self.shares, self.sizes = split, shares, [0] * len(shares)  # characters of each split
        self.runs, self.lines, self.part = 0, 0, 0
        self.left, self.lines_left = 0, 0  # of the current run

    def next(self, size: int) -> int:
        """The number of the split of the next line, which has so many characters."""
        if self.left <= 0 or not self.lines_left:
            self.left = max(size, min(LONGEST_RUN, sum(self.sizes) // PIECES))
            self.lines_left = max(1, self.lines // BLOCK)  # few short lines after a long one are several runs
            self.part = self._chosen()
            self.runs += 1
        self.left -= size
        self.lines_left -= 1
        self.lines += 1
        self.sizes[self.part] += size
        return self.part

    def _chosen(self) -> int:
        """The split of a new run: the first trains."""
        if not self.runs and isinstance(self.split, RandomSplit):
            return 0
        total = sum(self.sizes) + self.left
        lacks = [share * total - size for share, size in zip(self.shares, self.sizes, strict=True)]
        most = max(range(len(lacks)), key=lacks.__getitem__)
        empty = [part for part, size in enumerate(self.sizes) if not size and self._is_due(part)]
        if empty or lacks[most] >= self.left:
            return empty[0] if empty else most
        open_to = tuple(share if lack > 0 else 0.0 for share, lack in zip(self.shares, lacks, strict=True))
        uniform = draw("run", self.split.split_seed, self.runs) / 2**64 * sum(open_to)
        return _by_hash(uniform, open_to)

    def _is_due(self, part: int) -> bool:
        """Whether a split should have a run by now, however long the others are."""
        return self.shares[part] * (self.runs + 1) >= ALMOST


Divider = Callable[[Examples, Sequence[object]], list[SplitName]]


def divider(split: RandomSplit | FoldSplit, schema: Schema) -> Divider:
    """A function that maps examples and the values of their group column to splits, called block after block."""
    shares, names = _shares(split)
    if split.group is not None:
        return lambda _, groups: [
            names[_by_hash(draw("group", split.split_seed, group) / 2**64, shares)] for group in groups
        ]
    hands, runs = _Hands(split, shares), _Runs(split, shares)

    def splits_of_classes(examples: Examples, _: Sequence[object]) -> list[SplitName]:
        stratified = schema.target.one_label  # only labels are
        classes = map(str, examples.targets) if stratified else repeat("", len(examples))
        return [names[part] for part in hands.deal(classes)]

    def splits_of_runs(examples: Examples, _: Sequence[object]) -> list[SplitName]:
        return [names[runs.next(max(1, weight(example)))] for example in examples]

    return splits_of_runs if schema.target.is_running else splits_of_classes


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
