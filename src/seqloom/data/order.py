"""In which order examples are read: batches of about one length each, the same on every machine, other ones each epoch.

A batch costs rows x longest, and the cost has a budget; so short examples come in many rows, long ones in few. Rows
of one batch should have one length, or padding is computed for nothing; but the same rows must not meet again in every
epoch. So an epoch is drawn like this:

    all examples ── shuffled ──▶ pools ── each sorted by length ──▶ one line ── cut by the budget ──▶ shuffled batches

Lengths are jittered by a few per cent before sorting, so that batches differ even where one pool holds everything.
Every second pool is sorted backwards: where two meet, lengths agree, and no batch is left half empty there.

All of it is a pure function of (seed, epoch). NumPy promises one stream of integers per seed only of its bit
generators (PCG64: "a fixed seed will always produce the same random integer stream"), not of `Generator.shuffle` and
its like. So raw integers are drawn and sorted, and no floating-point number takes part.
"""

import hashlib
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from seqloom.errors import DataError

STEPS_OF_EPOCH = 100  # at least, for small data: batches are made smaller
SMALLEST_BATCH, LARGEST_BATCH = 128, 8_192  # symbols
POOL = 24  # batches at least, and four times that for two sides: more of them pad less and repeat more
JITTER = 62  # thousandths of a length, from the shortest reading of it to the longest
STRIP = 1125  # thousandths: the ratio up to which lengths of the first side count as equal, while the second is sorted


class Fill(NamedTuple):
    """How well the batches of an epoch are filled."""

    batches: int
    padding: float  # the share of all elements, padding included
    fill: float  # mean of rows x longest / budget; an example beyond the budget counts as one
    rows: float  # mean


class Order:
    """The batches of every epoch as rows of example numbers, by the sizes of the examples on each side.

    `sizes` [N,S] counts the elements of each example: S = 1, or 2 for source and target. A batch costs its rows times
    the sum over the sides of the longest, at most `budget`; an example beyond the budget is a batch of its own.

    >>> order = Order(np.array([[3], [9], [4], [8]]), budget=18, seed=0)
    >>> [sorted(batch.tolist()) for batch in order.batches(epoch=0)]
    [[0, 2], [1, 3]]
    """

    def __init__(self, sizes: np.ndarray, budget: int, seed: int, most_rows: int | None = None) -> None:
        if sizes.ndim != 2 or sizes.shape[1] not in (1, 2) or sizes.dtype.kind not in "iu":
            raise DataError(f"sizes are whole numbers [examples, 1 or 2], found {sizes.dtype} {list(sizes.shape)}")
        if budget < 1 or (most_rows is not None and most_rows < 1):
            raise DataError(f"a budget of {budget} and {most_rows} rows hold nothing", fix="take at least 1 of each")
        if sizes.size and int(sizes.min()) < 0:
            raise DataError(f"a size of {int(sizes.min())}", fix="sizes count elements")
        self.sizes, self.budget, self.seed, self.most_rows = sizes.astype(np.int64), budget, seed, most_rows
        self._drawn: tuple[int, list[np.ndarray]] | None = None  # the epoch that was asked for last

    def batches(self, epoch: int) -> list[np.ndarray]:
        """The example numbers of each batch, int64; every example is in exactly one."""
        drawn = self._drawn  # one reading, so that threads may ask for different epochs
        if drawn is None or drawn[0] != epoch:
            drawn = self._drawn = (epoch, self._draw(epoch))
        return drawn[1]

    def at(self, epoch: int, index: int) -> np.ndarray:
        """One batch of `batches`."""
        return self.batches(epoch)[index]

    def count(self, epoch: int) -> int:
        """How many batches the epoch has."""
        return len(self.batches(epoch))

    def share(self, epoch: int, index: int, rank: int, ranks: int) -> np.ndarray | None:
        """The examples of a batch that are this rank's; None if there are none."""
        mine = shard(self.at(epoch, index), rank, ranks)
        return mine if len(mine) else None

    def carried(self, index: int) -> bool:
        """Never: examples do not go on in the next batch."""
        return False

    def fingerprint(self) -> str:
        """A sum of everything that decides the batches."""
        return fingerprint_of(self.sizes, "order", self.budget, self.seed, self.most_rows, POOL, JITTER, STRIP)

    def summary(self, epoch: int) -> Fill:
        """How well the batches of an epoch are filled, for the data report."""
        batches = self.batches(epoch)
        costs = np.array([len(batch) * int(self.sizes[batch].max(axis=0).sum()) for batch in batches])
        if not costs.sum():
            return Fill(len(batches), 0.0, 0.0, len(self.sizes) / max(1, len(batches)))
        padding = 1 - float(self.sizes.sum() / costs.sum())
        fill = float(np.minimum(costs / self.budget, 1).mean())
        return Fill(len(batches), padding, fill, len(self.sizes) / len(batches))

    def together(self, epoch: int) -> float:
        """The share of pairs of examples in one batch that are in one batch again in the next epoch."""
        marks = np.empty((2, len(self.sizes)), np.int64)
        for row in (0, 1):
            for number, batch in enumerate(self.batches(epoch + row)):
                marks[row, batch] = number
        alone = np.unique(marks[0], return_counts=True)[1]
        both = np.unique(marks[0] * (marks[1].max() + 1) + marks[1], return_counts=True)[1]
        pairs = int((alone * (alone - 1)).sum())
        return float((both * (both - 1)).sum() / pairs) if pairs else 0.0

    def _draw(self, epoch: int) -> list[np.ndarray]:
        bits = bits_of(self.seed, epoch)
        shuffled = permutation(bits, len(self.sizes))
        jitters = (bits.random_raw(self.sizes.size) % np.uint64(JITTER + 1)).reshape(self.sizes.shape).astype(np.int64)
        pools = self._count_pools()
        parts = zip(
            np.array_split(shuffled, pools), np.array_split(jitters, pools), bits.random_raw(pools), strict=True
        )
        lines = [self._sorted(pool, jitter, int(draw)) for pool, jitter, draw in parts]
        line = np.concatenate([pool[::-1] if number % 2 else pool for number, pool in enumerate(lines)])
        batches = list(self._cut(line))
        return [batches[number] for number in permutation(bits, len(batches))]

    def _count_pools(self) -> int:
        batches = int(self.sizes.sum()) // self.budget
        pool = max(POOL, 3 * math.isqrt(batches)) * (4 if self.sizes.shape[1] == 2 else 1)
        return max(1, round(batches / pool))

    def _sorted(self, pool: np.ndarray, jitters: np.ndarray, draw: int) -> np.ndarray:
        """The examples of a pool, neighbours of nearly one length on every side."""
        near = self.sizes[pool] * (1000 - JITTER // 2 + jitters)  # thousandths of an element
        if near.shape[1] == 1:
            return pool[np.argsort(near[:, 0], kind="stable")]
        # Strips of the first side; inside them the second goes up and down in turns, like a snake.
        edges = _strips(1000 + draw % (STRIP - 1000), int(near[:, 0].max(initial=0)))
        strips = np.searchsorted(edges, near[:, 0], side="right")
        return pool[np.lexsort((np.where(strips % 2 == 0, near[:, 1], -near[:, 1]), strips))]

    def _cut(self, line: np.ndarray) -> Iterator[np.ndarray]:
        """The line of examples cut where one more would break the budget."""
        sizes, start = self.sizes[line], 0
        while start < len(line):
            # The batch is at least as long as its first example, so it cannot have more rows than this.
            most = max(1, self.budget // max(1, int(sizes[start].sum())))
            window = sizes[start : start + min(most, self.most_rows or most)]
            costs = np.maximum.accumulate(window, axis=0).sum(axis=1) * np.arange(1, len(window) + 1)
            rows = max(1, int(np.searchsorted(costs, self.budget, side="right")))
            yield line[start : start + rows]
            start += rows


def _strips(first: int, longest: int) -> list[int]:
    """Where strips begin, in thousandths, each wider than the one before by one ratio.

    >>> _strips(1100, 1400)
    [1100, 1237, 1391, 1564]
    """
    edges = [first]
    while edges[-1] <= longest:
        edges.append(edges[-1] * STRIP // 1000)
    return edges


def shard(batch: np.ndarray, rank: int, ranks: int) -> np.ndarray:
    """The rows r, r + ranks, ... of a batch: the examples of a step are the same for any number of ranks.

    >>> shard(np.array([5, 6, 7]), rank=1, ranks=2).tolist()
    [6]
    """
    return batch[rank::ranks]


def bits_of(seed: int, epoch: int) -> np.random.PCG64:
    """The integers that belong to a seed and an epoch."""
    return np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(epoch,)))


def permutation(bits: np.random.PCG64, count: int) -> np.ndarray:
    """The numbers 0..count - 1 in an order drawn from `bits`."""
    return np.argsort(bits.random_raw(count), kind="stable")


def sample_order(id_: str) -> bytes:
    """Where an example stands in the order in which samples are taken: the same in whatever order it is read."""
    return hashlib.sha256(id_.encode()).digest()


def fingerprint_of(sizes: np.ndarray, *settings: object) -> str:
    """A sum of the sizes of all examples and of settings, the same on every machine."""
    digest = hashlib.sha256(repr((settings, sizes.shape)).encode())
    digest.update(np.ascontiguousarray(sizes, "<i8").data)
    return digest.hexdigest()[:32]


def usual_budget(symbols: int) -> int:
    """The symbols of a batch for a training part of so many, padding included.

    >>> usual_budget(900), usual_budget(50_000), usual_budget(10**9)
    (128, 500, 8192)
    """
    return max(SMALLEST_BATCH, min(LARGEST_BATCH, symbols // STEPS_OF_EPOCH))
