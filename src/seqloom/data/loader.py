"""The data loader: rows of columns become batches of tensors, prefetched by worker threads.

    plan (Order, Streams, Packs) ──▶ shares in order ──▶ worker threads make batches ──▶ the same order again

The position of a run is two integers, epoch and index. The batch at a position is a pure function of them, for any
number of workers. A run can be resumed at its position if its plan has the same fingerprint.

Workers are threads, not processes: they copy rows from arrays and memory maps, during which NumPy and torch release the
GIL. Nothing is pickled, no memory is copied per worker, and no process can die unnoticed.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from seqloom.config.data import SplitName
from seqloom.data.kinds.kind import Columns, filled, padded
from seqloom.data.kinds.nothing import BYTES
from seqloom.data.kinds.target_text import REFERENCE, References
from seqloom.data.order import Cut, Order, Packs, Streams
from seqloom.data.prepared import Prepared
from seqloom.data.schema import Schema
from seqloom.errors import DataError, SeqloomError, did_you_mean
from seqloom.nn.types import Batch, Padded
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import BEGIN, END

AnyBatch = Batch[Any, Any]


def collate(schema: Schema, columns: Columns, rows: np.ndarray) -> AnyBatch:
    """Return the batch of these rows; its ids are the row numbers."""
    if not len(rows):
        raise DataError("the batch has no rows", fix="give at least one")
    chosen = {name: column.select(rows) for name, column in columns.items() if name != REFERENCE}
    inputs, targets = schema.target.collate(schema.input.collate(chosen), chosen, len(schema.labels))
    references = References(columns[REFERENCE], rows) if REFERENCE in columns else ()
    worth = None
    if BYTES in chosen:  # [B,T] the bytes of each token and END
        tokens = chosen["input"]
        longest = int(tokens.lengths.max(initial=0))
        offsets = np.minimum(np.arange(longest + 1), tokens.lengths[:, None])
        documents = np.broadcast_to(np.arange(tokens.rows)[:, None], offsets.shape)
        worth = _dealt(chosen[BYTES].values, tokens, documents, offsets)
    return Batch(inputs, targets, tuple(map(str, rows.tolist())), references, worth)


def unseen_labels(columns: Columns, rows: np.ndarray) -> np.ndarray:
    """[B] the number of labels of each row that are not in the training set.

    They have no column in the targets of a batch, so no model can predict them: evaluation of multi-label data counts
    each as a miss.
    """
    target = columns["target"].select(rows)
    of_row = np.repeat(np.arange(target.rows), target.lengths)
    return np.bincount(of_row[target.values < 0], minlength=target.rows)


def stream_batch(streams: Streams, cut: Cut, sizes: np.ndarray | None = None) -> Batch[Padded, Tensor]:
    """Return the batch of one step of contiguous streams; its ids are row numbers, `sizes` [N] are in bytes."""
    read, targets = streams.read(cut)
    places = cut.starts[:, None] + np.minimum(np.arange(cut.width), cut.lengths[:, None] - 1)
    documents, offsets = streams.locate(np.clip(places, 0, streams.total - 1))
    worth = _dealt(sizes, streams.tokens, documents, offsets)
    ids = tuple(map(str, cut.rows.tolist()))
    return Batch(padded(read, cut.lengths), torch.from_numpy(targets), ids, bytes=worth)


def packed_batch(tokens: Ragged, rows: Ragged, sizes: np.ndarray | None = None) -> Batch[Padded, Tensor]:
    """Return the batch of packed documents, isolated by segments; its ids are the documents in reading order.

    `rows` come from `Packs.share`, `sizes` [N] are those of all documents in bytes.
    """
    documents, starts, lengths = rows.values.T
    ends = np.cumsum(lengths)
    piece = np.repeat(np.arange(len(lengths)), lengths)  # of every element
    offset = np.arange(len(piece)) - (ends - lengths)[piece] + starts[piece]  # in the document: 0 reads BEGIN
    place = tokens.starts[documents][piece] + offset  # of the target token
    begins, stops = offset == 0, place == tokens.starts[documents + 1][piece]
    read, targets = np.full(len(piece), BEGIN, np.int64), np.full(len(piece), END, np.int64)
    read[~begins], targets[~stops] = tokens.values[place[~begins] - 1], tokens.values[place[~stops]]
    # Rows of pieces become rows of elements.
    row_starts = np.concatenate([[0], ends])[rows.starts]
    in_row = np.arange(len(lengths)) - np.repeat(rows.starts[:-1], rows.lengths)
    columns = (read, targets, in_row[piece], documents[piece], offset)
    read, targets, segments, owners, offset = (filled(Ragged(flat, row_starts), np.int64) for flat in columns)
    inputs = padded(read, np.diff(row_starts))._replace(segments=torch.from_numpy(segments))
    worth = _dealt(sizes, tokens, owners, offset)
    return Batch(inputs, torch.from_numpy(targets), tuple(map(str, documents.tolist())), bytes=worth)


def dealt(total: np.ndarray, count: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The shares of places 0..count-1 of a total that is distributed evenly, in integers.

    >>> dealt(np.array(7), np.array(3), np.arange(3)).tolist()
    [2, 2, 3]
    """
    return np.asarray((places + 1) * total // count - places * total // count)


def _dealt(sizes: np.ndarray | None, tokens: Ragged, documents: np.ndarray, offsets: np.ndarray) -> Tensor | None:
    """[B,T] the bytes of the tokens at offsets of documents; arbitrary in the padding."""
    if sizes is None:
        return None
    return torch.from_numpy(dealt(sizes[documents], tokens.lengths[documents] + 1, offsets))


Share = TypeVar("Share")
Given = TypeVar("Given", covariant=True)
Made = TypeVar("Made")
WORKERS = 2
TIMEOUT = 60.0  # seconds to wait for a batch


class BatchPlan(Protocol[Given]):
    """The rows of each step of each epoch: a pure function of epoch and index."""

    def count(self, epoch: int) -> int:
        """The number of steps in the epoch."""

    def share(self, epoch: int, index: int, rank: int, ranks: int) -> Given | None:
        """The share of one rank at a step; None if it is empty."""

    def carried(self, index: int) -> bool:
        """Whether the step continues the text of the step before, so that the model's state is carried over."""

    def fingerprint(self) -> str:
        """A hash of everything that determines the steps; positions are only comparable with equal fingerprints."""


@dataclass(frozen=True)
class Position:
    """The position of a run: the next step. A checkpoint stores it with the fingerprint of the plan."""

    epoch: int = 0
    index: int = 0

    def __post_init__(self) -> None:
        if self.epoch < 0 or self.index < 0:
            raise DataError(f"there is no {_place(self)}", fix="count epochs and steps from 0")


@dataclass(frozen=True)
class Step(Generic[Made]):
    """One step: its batch, or None if this rank has no rows."""

    epoch: int
    index: int
    batch: Made | None
    carried: bool = False

    @property
    def next(self) -> Position:
        """The position after this step."""
        return Position(self.epoch, self.index + 1)


class _Task(Generic[Made]):
    """A step whose batch a worker will make."""

    def __init__(self, position: Position, share: Any, carried: bool) -> None:
        self.position, self.share, self.carried = position, share, carried
        self.batch: Made | None = None
        self.error: BaseException | None = None
        self.worker = "no worker"
        self.done = threading.Event()

    def work(self, make_batch: Callable[[Any], Made]) -> None:
        try:
            if self.share is not None:
                self.batch = make_batch(self.share)
        except BaseException as error:  # raised in the thread that waits for the step
            self.error = error
        self.done.set()

    def step(self) -> Step[Made]:
        if self.error is None:
            return Step(self.position.epoch, self.position.index, self.batch, self.carried)
        if not isinstance(self.error, Exception):
            raise self.error
        what = self.error.problem if isinstance(self.error, SeqloomError) else f"{self.error!r}"
        fix = self.error.fix if isinstance(self.error, SeqloomError) else ""
        raise DataError(f"cannot make the batch of {_place(self.position)}: {what}", fix=fix) from self.error


class Loader(Generic[Share, Made]):
    """Yields the steps of a plan with their batches.

    Args:
        plan: the rows of each step.
        make_batch: makes a batch of what the plan gives; it must be thread-safe.
        workers: number of threads; 0 makes batches in the calling thread.
        prefetch: number of batches made ahead.
        rank: this process in distributed training.
        ranks: number of processes.
        timeout: seconds to wait for a batch.
    """

    def __init__(
        self,
        plan: BatchPlan[Share],
        make_batch: Callable[[Share], Made],
        *,
        workers: int = WORKERS,
        prefetch: int = 4,
        rank: int = 0,
        ranks: int = 1,
        timeout: float = TIMEOUT,
    ) -> None:
        if workers < 0 or prefetch < 1 or not 0 <= rank < ranks:
            fix = "use workers >= 0, prefetch >= 1, and a rank below the number of ranks"
            raise DataError(f"{workers} workers, prefetch {prefetch}, rank {rank} of {ranks}", fix=fix)
        self.plan, self.make_batch = plan, make_batch
        self.workers, self.prefetch, self.rank, self.ranks, self.timeout = workers, prefetch, rank, ranks, timeout

    def steps(self, start: Position = Position(), *, until: int | None = None) -> Iterator[Step[Made]]:  # noqa: B008
        """Yield the steps from `start` on, without end or until epoch `until` begins.

        A batch that cannot be made raises DataError when its turn comes, so the steps before it do not depend on the
        number of workers. No thread is left if the caller stops early.
        """
        tasks = self._tasks(start, until)
        if self.workers == 0:
            for task in tasks:
                task.work(self.make_batch)
                yield task.step()
            return
        pool = _Workers(self.workers, self.make_batch, self.timeout)
        try:
            yield from self._in_turn(tasks, pool)
        finally:
            pool.dismiss()

    def _tasks(self, start: Position, until: int | None) -> Iterator[_Task[Made]]:
        first = start.index
        for epoch in count(start.epoch) if until is None else range(start.epoch, until):
            steps = self.plan.count(epoch)
            if steps == 0:
                raise DataError(f"epoch {epoch} has no steps", fix="give at least one example")
            if first > steps:  # the end of an epoch is a valid position
                fix = "resume with the data and settings of the run, or restart the epoch"
                raise DataError(f"there is no {_place(start)}, which has {steps} steps", fix=fix)
            for index in range(first, steps):
                share = self.plan.share(epoch, index, self.rank, self.ranks)
                yield _Task(Position(epoch, index), share, self.plan.carried(index))
            first = 0

    def _in_turn(self, tasks: Iterator[_Task[Made]], pool: "_Workers") -> Iterator[Step[Made]]:
        waiting = deque(pool.give(task) for task in islice(tasks, self.prefetch))
        while waiting:
            task = waiting.popleft()
            if not task.done.wait(self.timeout):
                pool.patience = 0  # do not wait again
                text = f"{task.worker} has not finished {_place(task.position)} in {self.timeout:g} s"
                raise DataError(text, fix="check for a file system or device that hangs, or raise the timeout")
            step = task.step()
            waiting.extend(pool.give(following) for following in islice(tasks, 1))
            yield step


class _Workers:
    """Threads that process tasks in order."""

    def __init__(self, size: int, make_batch: Callable[[Any], Any], patience: float) -> None:
        self.tasks: queue.SimpleQueue[_Task[Any] | None] = queue.SimpleQueue()
        self.dismissed = threading.Event()
        self.make_batch, self.patience = make_batch, patience
        # Daemon threads: one that hangs must not keep the process from exiting.
        names = [f"seqloom-loader-{number}" for number in range(size)]
        self.threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        for thread in self.threads:
            thread.start()

    def give(self, task: _Task[Any]) -> _Task[Any]:
        self.tasks.put(task)
        return task

    def dismiss(self) -> None:
        """Stop the threads; one that hangs is left behind."""
        self.dismissed.set()
        for _ in self.threads:
            self.tasks.put(None)
        for thread in self.threads:
            thread.join(self.patience)

    def _work(self) -> None:
        while (task := self.tasks.get()) is not None and not self.dismissed.is_set():
            task.worker = threading.current_thread().name
            task.work(self.make_batch)


def _place(position: Position) -> str:
    return f"step {position.index} of epoch {position.epoch}"


# Loaders for prepared data. The ids of batches are row numbers of the prepared data.
#
# feed           rows of similar length, up to a number of tokens                every task
# feed_streams   running text in parallel rows that continue from step to step   language models with carried state
# feed_packs     complete documents packed into full rows, isolated              language models without it


def feed(
    prepared: Prepared,
    part: SplitName,
    *,
    batch_tokens: int = 8_192,
    seed: int = 0,
    workers: int = WORKERS,
    rank: int = 0,
    ranks: int = 1,
) -> Loader[Any, Any]:
    """Return a loader of batches of rows of similar length.

    Args:
        prepared: what `load_data` returned.
        part: the split: train, dev or test.
        batch_tokens: size of a batch in tokens, padding included.
        seed: random seed of the order.
        workers: number of threads.
        rank: this process in distributed training.
        ranks: number of processes.
    """
    rows = _rows(prepared, part)
    order = Order(prepared.schema.target.sizes(prepared.columns)[rows], batch_tokens, seed)

    def make_batch(chosen: np.ndarray) -> AnyBatch:
        return collate(prepared.schema, prepared.columns, rows[chosen])

    return Loader(order, make_batch, workers=workers, rank=rank, ranks=ranks)


def feed_streams(prepared: Prepared, part: SplitName, *, rows: int, length: int, seed: int = 0) -> Loader[Any, Any]:
    """Return a loader of running text in `rows` rows of `length` tokens; each step continues the step before.

    The id of each row is its document.
    """
    tokens, sizes, names = _running(prepared, part)
    streams = Streams(tokens, rows, length, seed)

    def make_batch(cut: Cut) -> AnyBatch:
        documents, _ = streams.locate(np.minimum(cut.starts, streams.total - 1))
        return stream_batch(streams, cut, sizes)._replace(ids=tuple(map(str, names[documents].tolist())))

    return Loader(streams, make_batch)


def feed_packs(prepared: Prepared, part: SplitName, *, rows: int, length: int, seed: int = 0) -> Loader[Any, Any]:
    """Return a loader of documents packed into rows of `length` tokens, isolated from each other."""
    tokens, sizes, names = _running(prepared, part)

    def make_batch(packed: Ragged) -> AnyBatch:
        ids = tuple(map(str, names[packed.values[:, 0]].tolist()))
        return packed_batch(tokens, packed, sizes)._replace(ids=ids)

    return Loader(Packs(tokens.lengths + 1, length, rows, seed), make_batch)


def _rows(prepared: Prepared, part: SplitName) -> np.ndarray:
    if part not in prepared.splits:
        raise DataError(f"there is no split '{part}'", fix=did_you_mean(part, prepared.splits))
    rows = prepared.splits[part]
    if not len(rows):
        raise DataError(f"{part} has no rows", fix=f"give a file for {part}, or a random split")
    return rows


def _running(prepared: Prepared, part: SplitName) -> tuple[Ragged, np.ndarray | None, np.ndarray]:
    """The texts of a split in order, [N] their bytes if known, and [N] their rows. Adjacent rows are not copied."""
    if not prepared.schema.target.is_running:
        text = f"streams and packs are for the task lm, but the task is {prepared.schema.task}"
        raise DataError(text, fix="load the data with task='lm'")
    rows, column = _rows(prepared, part), prepared.columns["input"]
    sizes = np.asarray(prepared.columns[BYTES].values[rows]) if BYTES in prepared.columns else None
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 != len(rows):
        return column.select(rows), sizes, rows
    starts = np.asarray(column.starts[first : last + 2])
    return Ragged(column.values[starts[0] : starts[-1]], starts - starts[0]), sizes, rows
