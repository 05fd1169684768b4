"""Which part each row belongs to: the files say it, a column says it, or a seed does.

A drawn split is a pure function of the seed and the rows, decided while they stream by. The rows of one class are taken
in blocks of ten. Each of the ten places goes to the part that lacks most, in the class and in the whole set, and a
seeded draw shuffles the places:

    class 0    t t d t t t e t t t        ten classes share one draw and begin it at ten places, so that classes of
    class 1    t d t t t e t t t t        a few rows, too, have among them what every part is to have
    class 2    d t t t e t t t t t        (the first row of a class trains: d and t at its beginning change places)

So every class, and the set, has its share in every part to within a few rows, and nothing is kept in memory.

Rows of one group (a column, or neighbouring lines of running text) are drawn together. Runs of lines are short at the
beginning of a text and grow with it, so that a short text has all its parts as well.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from seqloom.config.data import AnySplit, FoldSplit, RandomSplit
from seqloom.data.examples import Example
from seqloom.data.schema import PARTS, Part, Schema

BLOCK = 10  # rows of one class that are drawn among together
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


def _shuffled(bits: int) -> list[int]:
    """The places of a block in an order (Fisher and Yates); 64 bits are enough for 10! of them."""
    places = list(range(BLOCK))
    for place in range(BLOCK - 1, 0, -1):
        bits, other = divmod(bits, place + 1)
        places[place], places[other] = places[other], places[place]
    return places


class _Dealt:
    """How many places were dealt to each part."""

    def __init__(self, shares: tuple[float, ...]) -> None:
        self.shares, self.counts, self.places = shares, [0] * len(shares), 0

    def lack(self, part: int) -> float:
        """What a part lacks of its share when the next place is dealt."""
        return self.shares[part] * (self.places + 1) - self.counts[part]

    def deal(self, part: int) -> None:
        self.places += 1
        self.counts[part] += 1


class _Class:
    """Draws a part for each row of one class, block by block."""

    def __init__(self, number: int, split: RandomSplit | FoldSplit, whole: _Dealt) -> None:
        self.number, self.split, self.whole = number, split, whole
        self.own, self.block = _Dealt(whole.shares), list[int]()

    def next(self) -> int:
        """The number of the part of the next row."""
        if not self.block:
            self.block = self._drawn()
        return self.block.pop()

    def _drawn(self) -> list[int]:
        """The parts of the next rows, the last one first."""
        first, group = not self.own.places, self.number // BLOCK
        order = _shuffled(draw(self.split.seed, group, self.own.places))
        parts = sorted(self._lacking() for _ in range(BLOCK))
        rows = [parts[order[(place + self.number) % BLOCK]] for place in range(BLOCK)]
        if first and isinstance(self.split, RandomSplit) and 0 in rows:  # no class is in dev or test alone
            trained = rows.index(0)
            rows[0], rows[trained] = rows[trained], rows[0]
        return rows[::-1]

    def _lacking(self) -> int:
        """The part that lacks most, which has one place more now."""
        part = max(range(len(self.own.shares)), key=lambda part: self.own.lack(part) + self.whole.lack(part))
        self.own.deal(part)
        self.whole.deal(part)
        return part


Divider = Callable[[Example, object], Part]


def divider(split: RandomSplit | FoldSplit, schema: Schema) -> Divider:
    """A function from an example and the value of its group's column to its part, to be called row after row."""
    shares, names = _shares(split)
    if split.group is not None:
        return lambda _, group: names[_by_hash(draw("group", split.seed, group) / 2**64, shares)]
    strata, whole = dict[str, _Class](), _Dealt(shares)

    def part_of_class(example: Example, _: object) -> Part:
        name = str(example.target) if schema.target == "label" else ""  # numbers, tags and texts make no classes
        if name not in strata:
            strata[name] = _Class(len(strata), split, whole)
        return names[strata[name].next()]

    return _in_runs(split) if schema.target == "nothing" else part_of_class


def _in_runs(split: RandomSplit | FoldSplit) -> Divider:
    """Ten runs of one line, ten of two, of four, ... up to RUN: a run is about a tenth of what stands before it."""
    shares, names = _shares(split)
    drawn = _Class(0, split, _Dealt(shares))
    runs, left, part = 0, 0, names[0]

    def part_of_run(_: Example, __: object) -> Part:
        nonlocal runs, left, part
        if not left:
            left, part = run_length(runs), names[drawn.next()]
            runs += 1
        left -= 1
        return part

    return part_of_run


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
    for part, wanted in zip(_shares(split)[1], _shares(split)[0], strict=True):
        share += wanted
        end = text.find("\n", round(share * len(text)) - 1) + 1 if share < 1 - 1e-9 else len(text)
        piece = text[begin : (end or len(text))]
        if piece.strip():
            yield part, example._replace(input=piece, id=f"{example.id}:{begin}")
        begin = end or len(text)
