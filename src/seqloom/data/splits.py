"""Which part each row belongs to: the files say it, a column says it, or a seed does.

A drawn split is a pure function of the seed and the rows, decided while they stream by. Every class has a hand of ten
places, shuffled by the seed, and draws a new one when it is used up:

    hand      train train dev train train train test train train train      each place dealt to the part that lacks most
    row ──▶   the first place in the hand of its class whose part is not ahead of its share of all rows

So every class, and the set as a whole, has its share in every part to within a few rows, also where classes have only
a few rows each; and nothing is kept in memory. The first row of a class trains.

Rows of one group (a column, or neighbouring lines of running text) are drawn together. Runs of lines are short at the
beginning of a text and grow with it, so that a short text has all its parts as well.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from seqloom.config.data import PARTS, AnySplit, FoldSplit, Part, RandomSplit
from seqloom.data.schema import Example, Schema

BLOCK = 10  # places of a hand
ALMOST = 0.75  # of the first row that a part is to have: two parts with a tenth of ten rows each must both come to it
RUN = 100  # neighbouring lines of running text that stay together, behind the beginning


class Divided(NamedTuple):
    """A split as it is written down: the rule, and how many rows fell into each part."""

    rule: AnySplit
    counts: dict[Part, int]

    def to_json(self) -> str:
        """The split as JSON text, for the run's folder."""
        return msgspec.json.encode({"rule": self.rule, "counts": self.counts}).decode()


def draw(*parts: object) -> int:
    """A number of 64 bits that depends on all the parts and on nothing else."""
    text = "\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


class _Counts:
    """How many of something each part has."""

    def __init__(self, shares: tuple[float, ...]) -> None:
        self.shares, self.counts, self.total = shares, [0] * len(shares), 0

    def lack(self, part: int) -> float:
        """What a part lacks of its share when there is one more; negative where it is ahead."""
        return self.shares[part] * (self.total + 1) - self.counts[part]

    def add(self, part: int) -> None:
        self.total += 1
        self.counts[part] += 1


class _Hands:
    """The hands of all classes."""

    def __init__(self, split: RandomSplit | FoldSplit, shares: tuple[float, ...]) -> None:
        self.split, self.dealt, self.used = split, _Counts(shares), _Counts(shares)
        self.hands: dict[str, tuple[_Counts, list[int]]] = {}  # what a class was dealt, and what is left of it

    def next(self, name: str) -> int:
        """The number of the part of the next row of a class."""
        if name not in self.hands:
            self.hands[name] = (_Counts(self.dealt.shares), [])
        own, hand = self.hands[name]
        if hand:
            part = self._chosen(hand)
        else:
            hand.extend(self._new(name, own))
            trains = own.total == BLOCK and isinstance(self.split, RandomSplit) and 0 in hand
            part = 0 if trains else self._chosen(hand)  # no class is in dev or test alone
        hand.remove(part)
        self.used.add(part)
        return part

    def _chosen(self, hand: list[int]) -> int:
        """The first place whose part is not ahead of its share of all rows; a part without any row comes before."""
        for part in hand:
            if not self.used.counts[part] and self.used.lack(part) >= ALMOST:
                return part
        for part in hand:
            if self.used.lack(part) >= 0:
                return part
        return max(hand, key=self.used.lack)

    def _new(self, name: str, own: _Counts) -> list[int]:
        """Ten places: each goes to the part that lacks most, in the class and in the set; then they are shuffled."""
        bits, hand = draw(self.split.seed, name, own.total), list[int]()
        for _ in range(BLOCK):
            part = max(range(len(own.shares)), key=lambda part: own.lack(part) + self.dealt.lack(part))
            own.add(part)
            self.dealt.add(part)
            hand.append(part)
        for place in range(BLOCK - 1, 0, -1):  # Fisher and Yates; 64 bits are enough for 10! orders
            bits, other = divmod(bits, place + 1)
            hand[place], hand[other] = hand[other], hand[place]
        return hand


Divider = Callable[[Example, object], Part]


def divider(split: RandomSplit | FoldSplit, schema: Schema) -> Divider:
    """A function from an example and the value of its group's column to its part, to be called row after row."""
    shares, names = _shares(split)
    if split.group is not None:
        return lambda _, group: names[_by_hash(draw("group", split.seed, group) / 2**64, shares)]
    hands, runs, left, part = _Hands(split, shares), 0, 0, names[0]

    def part_of_class(example: Example, _: object) -> Part:
        name = str(example.target) if schema.target.one_label else ""  # numbers, tags and texts make no classes
        return names[hands.next(name)]

    def part_of_run(_: Example, __: object) -> Part:
        """Ten runs of one line, ten of two, of four, ... up to RUN: a run is about a tenth of what stands before it."""
        nonlocal runs, left, part
        if not left:
            left, part = run_length(runs), names[hands.next("")]
            runs += 1
        left -= 1
        return part

    return part_of_run if schema.target.is_running else part_of_class


def run_length(run: int) -> int:
    """How many neighbouring lines the run of this number has.

    >>> [run_length(run) for run in (0, 9, 10, 29, 69, 70, 10**6)]
    [1, 1, 2, 4, 64, 100, 100]
    """
    return int(min(RUN, 2 ** min(run // BLOCK, RUN)))


def _shares(split: RandomSplit | FoldSplit) -> tuple[tuple[float, ...], tuple[Part, ...]]:
    """The shares of the parts that are drawn, and what each is used as."""
    if isinstance(split, RandomSplit):
        return (1 - split.dev - split.test, split.dev, split.test), PARTS
    folds = range(split.folds)
    return (1 / split.folds,) * split.folds, tuple("dev" if fold == split.fold else "train" for fold in folds)


def _by_hash(uniform: float, shares: tuple[float, ...]) -> int:
    """The part whose stretch of [0, 1) a number falls into."""
    for index, share in enumerate(shares):
        uniform -= share
        if uniform < 0:
            return index
    return 0


def cut_document(example: Example, split: RandomSplit | FoldSplit) -> Iterator[tuple[Part, Example]]:
    """One long text cut into its parts, each in one piece, at the next line end: train first, then dev, then test."""
    text, begin, share = str(example.input), 0, 0.0
    for wanted, part in zip(*_shares(split), strict=True):
        share += wanted
        end = text.find("\n", round(share * len(text)) - 1) + 1 if share < 1 - 1e-9 else len(text)
        piece = text[begin : (end or len(text))]
        if piece.strip():
            yield part, example._replace(input=piece, id=f"{example.id}:{begin}")
        begin = end or len(text)
