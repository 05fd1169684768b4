"""Which part each row belongs to: the files say it, a column says it, or a seed does.

A drawn split is a pure function of the seed and the rows, decided while they stream by. The rows of one class are taken
in blocks of ten; each place in a block goes to the part that lacks most, and a seeded draw shuffles them. So every
class has its share in every part to within a few rows, and nothing is kept in memory.

Rows of one group (a column, or neighbouring lines of running text) are drawn together.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from seqloom.config.data import AnySplit, FoldSplit, RandomSplit
from seqloom.data.examples import Example
from seqloom.data.schema import PARTS, Part, Schema

BLOCK = 10  # rows of one class that are drawn among together
RUN = 100  # neighbouring lines of running text that stay together


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


class _Blocks:
    """Draws a part for each row of one class, block by block."""

    def __init__(self, name: str, seed: int, shares: tuple[float, ...]) -> None:
        self.name, self.seed, self.shares = name, seed, shares
        self.rows, self.dealt = 0, [0] * len(shares)
        self.block: list[int] = []

    def next(self) -> int:
        """The number of the part of the next row."""
        if not self.block:
            self.block = self._drawn()
        self.rows += 1
        return self.block.pop()

    def _drawn(self) -> list[int]:
        """The parts of the next rows: each place goes to the part that lacks most, then the places are shuffled."""
        parts = []
        for row in range(self.rows + 1, self.rows + BLOCK + 1):
            part = max(range(len(self.shares)), key=lambda part: self.shares[part] * row - self.dealt[part])
            self.dealt[part] += 1
            parts.append(part)
        bits = draw(self.seed, self.name, self.rows)
        for place in range(BLOCK - 1, 0, -1):  # Fisher and Yates; 64 bits are enough for 10! orders
            bits, other = divmod(bits, place + 1)
            parts[place], parts[other] = parts[other], parts[place]
        return parts


Divider = Callable[[Example, object], Part]


def divider(split: RandomSplit | FoldSplit, schema: Schema) -> Divider:
    """A function from an example and the value of its group's column to its part, to be called row after row."""
    shares, names = _shares(split)
    if split.group is not None:
        return lambda _, group: names[_by_hash(draw("group", split.seed, group) / 2**64, shares)]
    strata: dict[str, _Blocks] = {}

    def part_of_class(example: Example, _: object) -> Part:
        name = str(example.target) if schema.target == "label" else ""  # numbers, tags and texts make no classes
        if name not in strata:
            strata[name] = _begun(name, split, shares)
        return names[strata[name].next()]

    return _in_runs(split) if schema.target == "nothing" else part_of_class


def _in_runs(split: RandomSplit | FoldSplit) -> Divider:
    shares, names = _shares(split)
    blocks = _begun("", split, shares)
    rows, part = 0, names[0]

    def part_of_run(_: Example, __: object) -> Part:
        nonlocal rows, part
        if rows % RUN == 0:
            part = names[blocks.next()]
        rows += 1
        return part

    return part_of_run


def _begun(name: str, split: RandomSplit | FoldSplit, shares: tuple[float, ...]) -> _Blocks:
    """The blocks of a class; a random draw gives its first row to training, so it is never in dev or test alone."""
    blocks = _Blocks(name, split.seed, shares)
    if isinstance(split, RandomSplit):
        blocks.block = [0]
    return blocks


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
