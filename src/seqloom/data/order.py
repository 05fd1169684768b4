"""The order of examples: batches of similar length, reproducible on every machine, and different in each epoch.

A batch costs rows x longest, at most `batch_tokens`; so a batch has many short examples or a few long ones. Rows of one
batch should have similar lengths, to save padding; but the same rows should not share a batch in every epoch. An epoch
is made like this:

    all examples ── shuffled ──▶ pools ── each sorted by length ──▶ one line ── cut by cost ──▶ shuffled batches

Lengths are jittered by a few percent before sorting, so that batches differ even with a single pool. Every second pool
is sorted backwards, so that lengths agree at the borders between pools.

All of it is a pure function of (seed, epoch). NumPy guarantees a stable stream only for its bit generators (PCG64: "a
fixed seed will always produce the same random integer stream"), not for `Generator.shuffle`. So raw integers are drawn
and sorted, without floating-point numbers.
"""

import hashlib
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from seqloom.errors import DataError
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import BEGIN, END

STEPS_OF_EPOCH = 100  # at least: small data gets smaller batches
SMALLEST_BATCH, LARGEST_BATCH = 128, 8_192  # tokens
POOL = 24  # minimum batches of a pool, four times that for two sides: larger pools pad less and repeat more
JITTER = 62  # range of the jitter, in thousandths of a length
STRIP = 1125  # thousandths: the ratio up to which lengths of the first side count as equal when sorting the second


class Fill(NamedTuple):
    """How well the batches of an epoch are filled."""

    batches: int
    padding: float  # share of all elements
    fill: float  # mean of rows x longest / batch_tokens; a longer example counts as 1
    rows: float  # mean


class Order:
    """The batches of every epoch as lists of example numbers, by the sizes of the examples.

    `sizes` [N,S] are the elements of each example: S = 1, or 2 for source and target. The cost of a batch is its rows
    times the longest example, summed over the sides, at most `batch_tokens`; a longer example is its own batch.

    >>> order = Order(np.array([[3], [9], [4], [8]]), batch_tokens=18, seed=0)
    >>> [sorted(batch.tolist()) for batch in order.batches(epoch=0)]
    [[0, 2], [1, 3]]
    """

    def __init__(self, sizes: np.ndarray, batch_tokens: int, seed: int, most_rows: int | None = None) -> None:
        if sizes.ndim != 2 or sizes.shape[1] not in (1, 2) or sizes.dtype.kind not in "iu":
            raise DataError(f"expected integer sizes [examples, 1 or 2], found {sizes.dtype} {list(sizes.shape)}")
        if batch_tokens < 1 or (most_rows is not None and most_rows < 1):
            raise DataError(
                f"batches of {batch_tokens} tokens and {most_rows} rows are empty", fix="use at least 1 of each"
            )
        if sizes.size and int(sizes.min()) < 0:
            raise DataError(f"found a size of {int(sizes.min())}", fix="give sizes of 0 or more")
        self.sizes, self.batch_tokens, self.seed, self.most_rows = sizes.astype(np.int64), batch_tokens, seed, most_rows
        self._drawn: tuple[int, list[np.ndarray]] | None = None  # the last epoch
        self._counts: dict[int, int] = {}  # of every epoch that was drawn: the loader is ahead of those who ask

    def batches(self, epoch: int) -> list[np.ndarray]:
        """The example numbers of each batch, int64; every example is in exactly one batch."""
        drawn = self._drawn  # read once: threads may need different epochs
        if drawn is None or drawn[0] != epoch:
            drawn = (epoch, self._draw(epoch))
            self._counts[epoch] = len(drawn[1])  # before it is the last epoch: others may ask for its count at once
            self._drawn = drawn
        return drawn[1]

    def at(self, epoch: int, index: int) -> np.ndarray:
        """One batch of `batches`."""
        return self.batches(epoch)[index]

    def count(self, epoch: int) -> int:
        if epoch not in self._counts:
            self.batches(epoch)
        return self._counts[epoch]

    def share(self, epoch: int, index: int, rank: int, ranks: int) -> np.ndarray | None:
        """The examples of a batch for this rank; None if there are none."""
        mine = shard(self.at(epoch, index), rank, ranks)
        return mine if len(mine) else None

    def carried(self, index: int) -> bool:
        return False

    def fingerprint(self) -> str:
        return fingerprint_of(self.sizes, "order", self.batch_tokens, self.seed, self.most_rows, POOL, JITTER, STRIP)

    def summary(self, epoch: int) -> Fill:
        """How well the batches of an epoch are filled, for the data report."""
        batches = self.batches(epoch)
        costs = np.array([len(batch) * int(self.sizes[batch].max(axis=0).sum()) for batch in batches])
        if not costs.sum():
            return Fill(len(batches), 0.0, 0.0, len(self.sizes) / max(1, len(batches)))
        padding = 1 - float(self.sizes.sum() / costs.sum())
        fill = float(np.minimum(costs / self.batch_tokens, 1).mean())
        return Fill(len(batches), padding, fill, len(self.sizes) / len(batches))

    def together(self, epoch: int) -> float:
        """The share of the example pairs in one batch that are in one batch again in the next epoch."""
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
        batches = int(self.sizes.sum()) // self.batch_tokens
        pool = max(POOL, 3 * math.isqrt(batches)) * (4 if self.sizes.shape[1] == 2 else 1)
        return max(1, round(batches / pool))

    def _sorted(self, pool: np.ndarray, jitters: np.ndarray, draw: int) -> np.ndarray:
        """The examples of a pool, sorted by length on all sides."""
        near = self.sizes[pool] * (1000 - JITTER // 2 + jitters)  # thousandths of an element
        if near.shape[1] == 1:
            return pool[np.argsort(near[:, 0], kind="stable")]
        # Strips of the first side; inside them the second side is sorted up and down in turns.
        edges = _strips(1000 + draw % (STRIP - 1000), int(near[:, 0].max(initial=0)))
        strips = np.searchsorted(edges, near[:, 0], side="right")
        return pool[np.lexsort((np.where(strips % 2 == 0, near[:, 1], -near[:, 1]), strips))]

    def _cut(self, line: np.ndarray) -> Iterator[np.ndarray]:
        """Cut the line of examples into batches of limited cost."""
        sizes, start = self.sizes[line], 0
        while start < len(line):
            # The longest example is at least as long as the first one, which limits the rows.
            most = max(1, self.batch_tokens // max(1, int(sizes[start].sum())))
            window = sizes[start : start + min(most, self.most_rows or most)]
            costs = np.maximum.accumulate(window, axis=0).sum(axis=1) * np.arange(1, len(window) + 1)
            rows = max(1, int(np.searchsorted(costs, self.batch_tokens, side="right")))
            yield line[start : start + rows]
            start += rows


def _strips(first: int, longest: int) -> list[int]:
    """The borders of strips, in thousandths, each wider than the one before by a constant ratio.

    >>> _strips(1100, 1400)
    [1100, 1237, 1391, 1564]
    """
    edges = [first]
    while edges[-1] <= longest:
        edges.append(edges[-1] * STRIP // 1000)
    return edges


def shard(batch: np.ndarray, rank: int, ranks: int) -> np.ndarray:
    """The rows r, r + ranks, ... of a batch, so that a step has the same examples for any number of ranks.

    >>> shard(np.array([5, 6, 7]), rank=1, ranks=2).tolist()
    [6]
    """
    return batch[rank::ranks]


def bits_of(seed: int, epoch: int) -> np.random.PCG64:
    """The bit generator of a seed and an epoch."""
    return np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(epoch,)))


def permutation(bits: np.random.PCG64, count: int) -> np.ndarray:
    """A random permutation of 0..count - 1."""
    return np.argsort(bits.random_raw(count), kind="stable")


def sample_order(id_: str) -> bytes:
    """The sort key of an example for taking samples, which does not depend on the reading order."""
    return hashlib.sha256(id_.encode()).digest()


def fingerprint_of(sizes: np.ndarray, *settings: object) -> str:
    """A hash of the sizes of all examples and of settings, the same on every machine."""
    digest = hashlib.sha256(repr((settings, sizes.shape)).encode())
    digest.update(np.ascontiguousarray(sizes, "<i8").data)
    return digest.hexdigest()[:32]


def default_batch_tokens(tokens: int) -> int:
    """The default batch size in tokens, padding included, for a training set of `tokens` tokens.

    >>> default_batch_tokens(900), default_batch_tokens(50_000), default_batch_tokens(10**9)
    (128, 500, 8192)
    """
    return max(SMALLEST_BATCH, min(LARGEST_BATCH, tokens // STEPS_OF_EPOCH))


# Plans for language modeling: one continuous text in parallel rows, or complete documents packed into rows.
#
# *Streams* (truncated backpropagation, as in Mikolov et al. 2010): the documents, each followed by END, are one long
# sequence, divided into `rows` parts. Step i reads the next `length` tokens of every part, so a model that carries its
# state from step to step has read everything before.
#
#     the sequence    a b c END d e END f g END           rows = 2, length = 3
#     row 0 reads     BEGIN a b │ c END         target    a b c │ END d
#     row 1 reads     d e END   │ f g                     e END f │ g END
#
# The first epoch is cut from the beginning. In later epochs the first step is shorter by a random number, so that
# gradients end at other tokens in each epoch: no token always lacks a past (Merity et al. 2018 vary all lengths).
#
# *Packs* (Krell et al. 2021): documents, each from BEGIN to END, are packed side by side into rows of one length, with
# segment numbers that isolate them. Longer documents are cut into chunks: in the first epoch from their beginning, in
# later epochs at random offsets, so that a model predicts every token with contexts of every length. Evaluation reads a
# first epoch.
#
# Both predict every token exactly once per epoch. Neither copies the text.

FIRSTS = 1  # the random stream of an epoch for the sizes of first chunks


class Cut(NamedTuple):
    """The share of one rank in the streams at one step: the rows, and a range of each."""

    rows: np.ndarray  # [R] row numbers
    starts: np.ndarray  # [R] positions of the first target tokens in the long sequence
    lengths: np.ndarray  # [R] number of tokens; 0 after the end of a row
    width: int  # the longest over all ranks


class Streams:
    """Documents as one sequence in `rows` contiguous parts, read `length` tokens at a time.

    >>> streams = Streams(Ragged.of([[10, 11, 12], [13, 14], [15, 16]], np.int32), rows=2, length=3)
    >>> streams.count(epoch=0), streams.read(streams.share(0, 0, rank=0, ranks=1))[1].tolist()
    (2, [[10, 11, 12], [14, 3, 15]])
    """

    def __init__(self, tokens: Ragged, rows: int, length: int, seed: int = 0) -> None:
        if rows < 1 or length < 1:
            raise DataError(f"{rows} rows of {length} tokens are empty", fix="use at least 1 of each")
        self.tokens, self.rows, self.length, self.seed = tokens, rows, length, seed
        self.begins = np.asarray(tokens.starts, np.int64) + np.arange(tokens.rows + 1)  # with ENDs between
        self.total = int(self.begins[-1] - self.begins[0])
        self.edges = np.arange(rows + 1, dtype=np.int64) * self.total // rows  # parts differ by at most 1

    def count(self, epoch: int) -> int:
        return -(-(int(np.diff(self.edges).max()) + self._missing(epoch)) // self.length)

    def carried(self, index: int) -> bool:
        """Whether the step continues the step before: all but the first of an epoch."""
        return index > 0

    def fingerprint(self) -> str:
        return fingerprint_of(self.tokens.lengths, "streams", self.rows, self.length, self.seed)

    def _missing(self, epoch: int) -> int:
        """How many tokens the first step of an epoch is shorter."""
        longest = min(self.length, int(np.diff(self.edges).max()))
        return int(bits_of(self.seed, epoch).random_raw() % longest) if epoch and longest else 0

    def share(self, epoch: int, index: int, rank: int, ranks: int) -> Cut | None:
        """The rows r, r + ranks, ... of a step: a rank reads the same rows at every step."""
        begin = index * self.length - self._missing(epoch)
        starts, ends = self.edges[:-1] + max(0, begin), self.edges[:-1] + begin + self.length
        lengths = np.clip(np.minimum(ends, self.edges[1:]) - starts, 0, None)
        mine = np.arange(rank, self.rows, ranks)
        return Cut(mine, starts[mine], lengths[mine], int(lengths.max())) if len(mine) else None

    def read(self, cut: Cut) -> tuple[np.ndarray, np.ndarray]:
        """The inputs and the targets, both int64 [R,width] and zero beyond the lengths."""
        places = cut.starts[:, None] + np.arange(cut.width)
        real = np.arange(cut.width) < cut.lengths[:, None]
        targets = np.zeros(places.shape, np.int64)
        read = np.zeros(places.shape, np.int64)
        targets[real], read[real] = self._at(places[real]), self._at(places[real] - 1)
        return read, targets

    def locate(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The documents at positions of the long sequence, and the offsets in each document."""
        inside = places + self.begins[0]
        documents = np.searchsorted(self.begins, inside, side="right") - 1
        return documents, inside - self.begins[documents]

    def _at(self, places: np.ndarray) -> np.ndarray:
        """The tokens at positions of the long sequence; BEGIN before its start."""
        inside = places + self.begins[0]
        document = np.searchsorted(self.begins, inside, side="right") - 1
        ends = inside + 1 == self.begins[np.minimum(document + 1, self.tokens.rows)]
        found = np.where(places < 0, BEGIN, END).astype(np.int64)
        real = ~ends & (places >= 0)
        found[real] = self.tokens.values[(inside - document)[real]]
        return found


class StreamPieces(NamedTuple):
    """Documents, or chunks of those that are longer than a row."""

    documents: np.ndarray  # [P] the document
    starts: np.ndarray  # [P] the start of the chunk in it
    sizes: np.ndarray  # [P]


class Packs:
    """Documents packed into rows of `row_length`, `rows` rows in a batch, in a new random order in every epoch.

    `sizes` are the tokens of each document plus one, for BEGIN in the inputs and END in the targets.
    """

    def __init__(self, sizes: np.ndarray, row_length: int, rows: int, seed: int) -> None:
        if row_length < 1 or rows < 1:
            raise DataError(f"{rows} rows of {row_length} tokens are empty", fix="use at least 1 of each")
        if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes.size and int(sizes.min()) < 1):
            raise DataError("expected integer sizes [N] of 1 or more", fix="count BEGIN or END as well")
        self.sizes, self.row_length, self.rows, self.seed = sizes.astype(np.int64), row_length, rows, seed
        self.cut = int((sizes > row_length).sum())  # documents that did not fit a row
        self._uncut = _Cutting.of(self.sizes, self.sizes, row_length) if not self.cut else None
        self._drawn: tuple[int, Ragged, StreamPieces] | None = None
        self._counts: dict[int, int] = {}  # of every epoch that was drawn: the loader is ahead of those who ask

    def packed(self, epoch: int) -> Ragged:
        """The numbers of the chunks in each row, in reading order."""
        return self._of(epoch)[1]

    def pieces(self, epoch: int) -> StreamPieces:
        """The chunks of an epoch, in the order of the documents."""
        return self._of(epoch)[2]

    def _of(self, epoch: int) -> tuple[int, Ragged, StreamPieces]:
        drawn = self._drawn  # read once: threads may need different epochs
        if drawn is None or drawn[0] != epoch:
            cutting = self._uncut or self._cutting(epoch)
            drawn = (epoch, self._draw(epoch, cutting), cutting.pieces)
            self._counts[epoch] = -(-drawn[1].rows // self.rows)  # first, as in `Order`
            self._drawn = drawn
        return drawn

    def count(self, epoch: int) -> int:
        if epoch not in self._counts:
            self._of(epoch)
        return self._counts[epoch]

    def carried(self, index: int) -> bool:
        return False

    def fingerprint(self) -> str:
        moving = ("moving",) if self.cut else ()  # runs of versions with fixed cuts cannot be resumed
        return fingerprint_of(self.sizes, "packs", self.row_length, self.rows, self.seed, *moving)

    def share(self, epoch: int, index: int, rank: int, ranks: int) -> Ragged | None:
        """[n,3] the chunks (document, start, size) in the rows r, r + ranks, ... of a batch; None if there are none."""
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
        """How documents are cut: the first chunk of a long document has a random size in every later epoch."""
        firsts = np.full(len(self.sizes), self.row_length)
        if epoch:
            bits = np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=(epoch, FIRSTS)))
            firsts = (bits.random_raw(len(self.sizes)) % np.uint64(self.row_length)).astype(np.int64) + 1
        whole = self.sizes <= self.row_length
        return _Cutting.of(self.sizes, np.where(whole, self.sizes, firsts), self.row_length)

    def _draw(self, epoch: int, cutting: "_Cutting") -> Ragged:
        """Fill rows with random chunks of the planned sizes, and shuffle the rows."""
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
    """A number of rows with chunks of the same sizes."""

    rows: int
    sizes: tuple[int, ...]


def rows_of_sizes(sizes: np.ndarray, row_length: int) -> list[Alike]:
    """Pack chunks of these sizes into rows by best fit decreasing.

    Rows of the same sizes are filled together, so the work grows with the number of different sizes, not of chunks
    (Krell et al. 2021, histogram packing).

    >>> rows_of_sizes(np.array([3, 5, 3, 5, 2]), 8)
    [Alike(rows=2, sizes=(5, 3)), Alike(rows=1, sizes=(2,))]
    """
    begun = _OpenRows(row_length)
    found, counts = np.unique(sizes, return_counts=True)
    for size, left in zip(found[::-1].tolist(), counts[::-1].tolist(), strict=True):
        while left:
            alike, free = begun.best_fit(size, left)
            times = min(left, free // size)  # a row takes as many as it can
            filled = min(alike.rows, left // times)
            begun.put(Alike(filled, alike.sizes + (size,) * times), free - times * size)
            begun.put(Alike(alike.rows - filled, alike.sizes), free)
            left -= filled * times
    return begun.full + [alike for group in begun.waiting.values() for alike in group]


class _OpenRows:
    """Open rows by their free space."""

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
        """Rows with the smallest sufficient space, or new rows for all that is left; and their free space."""
        rooms = self.rooms >> size
        if not rooms:
            return Alike(-(-left // (self.row_length // size)), ()), self.row_length
        free = size + (rooms & -rooms).bit_length() - 1  # the lowest bit
        alike = self.waiting[free].pop()
        if not self.waiting[free]:
            self.rooms ^= 1 << free
        return alike, free


class _Cutting(NamedTuple):
    """The chunks of documents, and how chunks of these sizes are packed into rows."""

    pieces: StreamPieces
    rows: list[Alike]

    @classmethod
    def of(cls, sizes: np.ndarray, firsts: np.ndarray, row_length: int) -> "_Cutting":
        pieces = pieces_of(sizes, firsts, row_length)
        return cls(pieces, rows_of_sizes(pieces.sizes, row_length))


def pieces_of(sizes: np.ndarray, firsts: np.ndarray, row_length: int) -> StreamPieces:
    """Cut documents of these sizes after their first chunk and then after every `row_length`.

    >>> pieces_of(np.array([7, 3]), np.array([2, 3]), row_length=4).sizes.tolist()
    [2, 4, 1, 3]
    """
    counts = 1 + -(-(sizes - firsts) // row_length)
    documents = np.repeat(np.arange(len(sizes)), counts)
    number = np.arange(len(documents)) - np.repeat(np.cumsum(counts) - counts, counts)  # of the piece in its document
    starts = np.where(number == 0, 0, firsts[documents] + (number - 1) * row_length)
    stops = np.minimum(firsts[documents] + number * row_length, sizes[documents])
    return StreamPieces(documents, starts, stops - starts)
