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
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import BEGIN, END

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
        return len(self.batches(epoch))

    def share(self, epoch: int, index: int, rank: int, ranks: int) -> np.ndarray | None:
        """The examples of a batch that are this rank's; None if there are none."""
        mine = shard(self.at(epoch, index), rank, ranks)
        return mine if len(mine) else None

    def carried(self, index: int) -> bool:
        return False

    def fingerprint(self) -> str:
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


# Plans for language modelling: one endless text in contiguous rows, or whole documents packed into rows.
#
# *Streams* (truncated back-propagation, as in Mikolov et al. 2010): the documents, each followed by END, are one long
# sequence, cut into as many pieces as there are rows. Step i reads the next `length` symbols of every piece, so a model
# that carries its state from step to step has read everything before.
#
#     the sequence    a b c END d e END f g END           rows = 2, length = 3
#     row 0 reads     BEGIN a b │ c END         to say    a b c │ END d
#     row 1 reads     d e END   │ f g                     e END f │ g END
#
# *Packs* (Krell et al. 2021): documents, each read from BEGIN and said to its END, stand side by side in rows of one
# size, numbered by segments so that nothing flows from one into the next. Longer documents are cut into pieces: in the
# first epoch from their beginning on, in each later one from a place of its own, so that a model reads every symbol
# after contexts of every length, as if it were trained on random windows. Evaluation reads a first epoch.
#
# Both say every symbol exactly once in an epoch. Neither copies the text: what is read is computed from its rows.

FIRSTS = 1  # the branch of an epoch's numbers from which the sizes of first pieces are drawn


class Cut(NamedTuple):
    """What one rank reads of the streams at one step: the rows, and from where to where in each."""

    rows: np.ndarray  # [R] numbers of rows
    starts: np.ndarray  # [R] places in the long sequence of the first symbols to be said
    lengths: np.ndarray  # [R] how many; 0 where a row has come to its end
    width: int  # the longest of all ranks


class Streams:
    """Documents as one sequence in `rows` contiguous pieces, read `length` symbols at a time.

    >>> streams = Streams(Ragged.of([[10, 11, 12], [13, 14], [15, 16]], np.int32), rows=2, length=3)
    >>> streams.count(epoch=0), streams.read(streams.share(0, 0, rank=0, ranks=1))[1].tolist()
    (2, [[10, 11, 12], [14, 3, 15]])
    """

    def __init__(self, symbols: Ragged, rows: int, length: int) -> None:
        if rows < 1 or length < 1:
            raise DataError(f"{rows} rows of {length} symbols hold nothing", fix="take at least 1 of each")
        self.symbols, self.rows, self.length = symbols, rows, length
        self.begins = np.asarray(symbols.starts, np.int64) + np.arange(symbols.rows + 1)  # with the ENDs between
        self.total = int(self.begins[-1] - self.begins[0])
        self.edges = np.arange(rows + 1, dtype=np.int64) * self.total // rows  # pieces differ by one at most

    def count(self, epoch: int) -> int:
        return -(-int(np.diff(self.edges).max()) // self.length)

    def carried(self, index: int) -> bool:
        """Whether the step goes on where the one before it stopped: all but the first of an epoch."""
        return index > 0

    def fingerprint(self) -> str:
        return fingerprint_of(self.symbols.lengths, "streams", self.rows, self.length)

    def share(self, epoch: int, index: int, rank: int, ranks: int) -> Cut | None:
        """The rows r, r + ranks, ... of a step: a rank reads the same rows at every step."""
        starts = self.edges[:-1] + index * self.length
        lengths = np.clip(self.edges[1:] - starts, 0, self.length)
        mine = np.arange(rank, self.rows, ranks)
        return Cut(mine, starts[mine], lengths[mine], int(lengths.max())) if len(mine) else None

    def read(self, cut: Cut) -> tuple[np.ndarray, np.ndarray]:
        """What is read and what is to be said, both int64 [R,width] and zero beyond the lengths."""
        places = cut.starts[:, None] + np.arange(cut.width)
        real = np.arange(cut.width) < cut.lengths[:, None]
        said = np.zeros(places.shape, np.int64)
        read = np.zeros(places.shape, np.int64)
        said[real], read[real] = self._at(places[real]), self._at(places[real] - 1)
        return read, said

    def locate(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The documents at places of the long sequence, and how far in each document the places are."""
        inside = places + self.begins[0]
        documents = np.searchsorted(self.begins, inside, side="right") - 1
        return documents, inside - self.begins[documents]

    def _at(self, places: np.ndarray) -> np.ndarray:
        """The symbols at places of the long sequence; before its beginning stands BEGIN."""
        inside = places + self.begins[0]
        document = np.searchsorted(self.begins, inside, side="right") - 1
        ends = inside + 1 == self.begins[np.minimum(document + 1, self.symbols.rows)]
        found = np.where(places < 0, BEGIN, END).astype(np.int64)
        real = ~ends & (places >= 0)
        found[real] = self.symbols.values[(inside - document)[real]]
        return found


class StreamPieces(NamedTuple):
    """Documents, or parts of those that are longer than a row."""

    documents: np.ndarray  # [P] the document
    starts: np.ndarray  # [P] where the piece begins in it
    sizes: np.ndarray  # [P]


class Packs:
    """Documents packed into rows of `row_length`, `rows` rows in a batch; other neighbours in every epoch.

    `sizes` counts what each document takes: its symbols and one more, for BEGIN is read before and END said after.
    """

    def __init__(self, sizes: np.ndarray, row_length: int, rows: int, seed: int) -> None:
        if row_length < 1 or rows < 1:
            raise DataError(f"{rows} rows of {row_length} symbols hold nothing", fix="take at least 1 of each")
        if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes.size and int(sizes.min()) < 1):
            raise DataError("documents take whole numbers [N] of 1 or more", fix="count BEGIN or END as well")
        self.sizes, self.row_length, self.rows, self.seed = sizes.astype(np.int64), row_length, rows, seed
        self.cut = int((sizes > row_length).sum())  # documents that did not fit a row
        self._uncut = _Cutting.of(self.sizes, self.sizes, row_length) if not self.cut else None
        self._drawn: tuple[int, Ragged, StreamPieces] | None = None

    def packed(self, epoch: int) -> Ragged:
        """The numbers of the pieces in each row, rows in the order in which they are read."""
        return self._of(epoch)[1]

    def pieces(self, epoch: int) -> StreamPieces:
        """The pieces of an epoch, in the order of the documents."""
        return self._of(epoch)[2]

    def _of(self, epoch: int) -> tuple[int, Ragged, StreamPieces]:
        drawn = self._drawn  # one reading, so that threads may ask for different epochs
        if drawn is None or drawn[0] != epoch:
            cutting = self._uncut or self._cutting(epoch)
            drawn = self._drawn = (epoch, self._draw(epoch, cutting), cutting.pieces)
        return drawn

    def count(self, epoch: int) -> int:
        return -(-self.packed(epoch).rows // self.rows)

    def carried(self, index: int) -> bool:
        return False

    def fingerprint(self) -> str:
        moving = ("moving",) if self.cut else ()  # runs of versions that cut at the same places cannot go on
        return fingerprint_of(self.sizes, "packs", self.row_length, self.rows, self.seed, *moving)

    def share(self, epoch: int, index: int, rank: int, ranks: int) -> Ragged | None:
        """[n,3] the pieces (document, start, size) in the rows r, r + ranks, ... of a batch; None if there are none."""
        _, packed, pieces = self._of(epoch)
        mine = range(index * self.rows, min((index + 1) * self.rows, packed.rows))[rank::ranks]
        if not len(mine):
            return None
        numbers = packed.select(np.array(mine))
        return Ragged(np.stack([field[numbers.values] for field in pieces], axis=1), numbers.starts)

    def summary(self, epoch: int) -> Fill:
        """How well the rows of an epoch are filled, for the data report."""
        packed, batches = self.packed(epoch), self.count(epoch)
        fill = float(self.sizes.sum() / max(1, packed.rows * self.row_length))
        return Fill(batches, 1 - fill, fill, packed.rows / max(1, batches))

    def _cutting(self, epoch: int) -> "_Cutting":
        """How documents are cut: the first piece of one that is too long has another size in every epoch."""
        firsts = np.full(len(self.sizes), self.row_length)
        if epoch:
            bits = np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=(epoch, FIRSTS)))
            firsts = (bits.random_raw(len(self.sizes)) % np.uint64(self.row_length)).astype(np.int64) + 1
        whole = self.sizes <= self.row_length
        return _Cutting.of(self.sizes, np.where(whole, self.sizes, firsts), self.row_length)

    def _draw(self, epoch: int, cutting: "_Cutting") -> Ragged:
        """Rows of sizes, filled with pieces of these sizes in a drawn order, in a drawn order of rows."""
        bits, sizes = bits_of(self.seed, epoch), cutting.pieces.sizes
        shuffled = permutation(bits, len(sizes))
        alike = cutting.rows
        places = np.concatenate([np.empty(0, np.int64), *(np.tile(one.sizes, one.rows) for one in alike)])
        lengths = np.repeat([len(one.sizes) for one in alike], [one.rows for one in alike]).astype(np.int64)
        pieces = np.empty(len(places), np.int64)
        by_size = np.argsort(sizes[shuffled], kind="stable")
        pieces[np.argsort(places, kind="stable")] = shuffled[by_size]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        return Ragged(pieces, starts).select(permutation(bits, len(lengths)))


class Alike(NamedTuple):
    """So many rows that hold pieces of the same sizes."""

    rows: int
    sizes: tuple[int, ...]


def rows_of_sizes(sizes: np.ndarray, row_length: int) -> list[Alike]:
    """Rows that hold pieces of these sizes: the largest first, each into the open row that it fills best.

    What fits a row depends on sizes alone, so rows of the same sizes are filled together: the work grows with the
    number of different sizes, not of pieces (Krell et al. 2021, histogram packing).

    >>> rows_of_sizes(np.array([3, 5, 3, 5, 2]), 8)
    [Alike(rows=2, sizes=(5, 3)), Alike(rows=1, sizes=(2,))]
    """
    begun = _OpenRows(row_length)
    found, counts = np.unique(sizes, return_counts=True)
    for size, left in zip(found[::-1].tolist(), counts[::-1].tolist(), strict=True):
        while left:
            alike, free = begun.best_fit(size, left)
            times = min(left, free // size)  # a row takes as many as it can before the next row takes one
            filled = min(alike.rows, left // times)
            begun.put(Alike(filled, alike.sizes + (size,) * times), free - times * size)
            begun.put(Alike(alike.rows - filled, alike.sizes), free)
            left -= filled * times
    return begun.full + [alike for group in begun.waiting.values() for alike in group]


class _OpenRows:
    """Rows by what is free in each of them."""

    def __init__(self, row_length: int) -> None:
        self.row_length, self.full = row_length, list[Alike]()
        self.waiting: dict[int, list[Alike]] = {}
        self.rooms = 0  # bit n is set where rows with n free are waiting

    def put(self, alike: Alike, free: int) -> None:
        if alike.rows and not free:
            self.full.append(alike)
        elif alike.rows:
            self.waiting.setdefault(free, []).append(alike)
            self.rooms |= 1 << free

    def best_fit(self, size: int, left: int) -> tuple[Alike, int]:
        """Rows with the least room that is enough, or new ones for all that is left; and what is free in each."""
        rooms = self.rooms >> size
        if not rooms:
            return Alike(-(-left // (self.row_length // size)), ()), self.row_length
        free = size + (rooms & -rooms).bit_length() - 1  # the lowest bit
        alike = self.waiting[free].pop()
        if not self.waiting[free]:
            self.rooms ^= 1 << free
        return alike, free


class _Cutting(NamedTuple):
    """Documents in pieces, and rows that hold pieces of these sizes."""

    pieces: StreamPieces
    rows: list[Alike]

    @classmethod
    def of(cls, sizes: np.ndarray, firsts: np.ndarray, row_length: int) -> "_Cutting":
        pieces = pieces_of(sizes, firsts, row_length)
        return cls(pieces, rows_of_sizes(pieces.sizes, row_length))


def pieces_of(sizes: np.ndarray, firsts: np.ndarray, row_length: int) -> StreamPieces:
    """Documents of these sizes, each cut after its first piece and then after every `row_length`.

    >>> pieces_of(np.array([7, 3]), np.array([2, 3]), row_length=4).sizes.tolist()
    [2, 4, 1, 3]
    """
    counts = 1 + -(-(sizes - firsts) // row_length)
    documents = np.repeat(np.arange(len(sizes)), counts)
    number = np.arange(len(documents)) - np.repeat(np.cumsum(counts) - counts, counts)  # of the piece in its document
    starts = np.where(number == 0, 0, firsts[documents] + (number - 1) * row_length)
    stops = np.minimum(firsts[documents] + number * row_length, sizes[documents])
    return StreamPieces(documents, starts, stops - starts)
