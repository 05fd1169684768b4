"""Batches: the rows of some columns as tensors, in their order, made ahead of time by threads.

    plan (Order, Streams, Packs) ──▶ shares in order ──▶ worker threads make batches ──▶ the same order again

Where a run stands is two integers, epoch and index; what comes there is a pure function of them, whatever the number
of workers and however far ahead they are. A stopped run goes on from its position as if it had not been stopped, if its
plan has the same fingerprint.

Workers are threads, not processes: what they do is copying rows out of arrays and memory maps, during which NumPy and
torch let other threads run. Nothing is pickled, no memory is copied for each worker, and no process can die unseen.
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

from seqloom.config.data import Part
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
    """The batch of the chosen rows, in their order; its ids are their numbers."""
    if not len(rows):
        raise DataError("the batch has no rows", fix="give at least one")
    chosen = {name: column.select(rows) for name, column in columns.items() if name != REFERENCE}
    inputs, targets = schema.target.collate(schema.input.collate(chosen), chosen, len(schema.labels))
    references = References(columns[REFERENCE], rows) if REFERENCE in columns else ()
    worth = None
    if BYTES in chosen:  # [B,T] how many each symbol and END of whole texts stands for
        symbols = chosen["input"]
        longest = int(symbols.lengths.max(initial=0))
        offsets = np.minimum(np.arange(longest + 1), symbols.lengths[:, None])
        documents = np.broadcast_to(np.arange(symbols.rows)[:, None], offsets.shape)
        worth = _dealt(chosen[BYTES].values, symbols, documents, offsets)
    return Batch(inputs, targets, tuple(map(str, rows.tolist())), references, worth)


def unseen_labels(columns: Columns, rows: np.ndarray) -> np.ndarray:
    """[B] how many labels of each row training never saw.

    They have no column in the targets of a batch, so no model can say them: an evaluation of several labels counts
    each as one that was missed.
    """
    target = columns["target"].select(rows)
    of_row = np.repeat(np.arange(target.rows), target.lengths)
    return np.bincount(of_row[target.values < 0], minlength=target.rows)


def stream_batch(streams: Streams, cut: Cut, sizes: np.ndarray | None = None) -> Batch[Padded, Tensor]:
    """The batch of one step of contiguous streams; its ids are the numbers of the rows, `sizes` [N] in bytes."""
    read, said = streams.read(cut)
    places = cut.starts[:, None] + np.minimum(np.arange(cut.width), cut.lengths[:, None] - 1)
    documents, offsets = streams.locate(np.clip(places, 0, streams.total - 1))
    worth = _dealt(sizes, streams.symbols, documents, offsets)
    ids = tuple(map(str, cut.rows.tolist()))
    return Batch(padded(read, cut.lengths), torch.from_numpy(said), ids, bytes=worth)


def packed_batch(symbols: Ragged, rows: Ragged, sizes: np.ndarray | None = None) -> Batch[Padded, Tensor]:
    """The batch of rows of packed pieces, isolated by segments; its ids are the documents in reading order.

    `rows` come from `Packs.share`, `sizes` [N] are those of all documents in bytes.
    """
    documents, starts, lengths = rows.values.T
    ends = np.cumsum(lengths)
    piece = np.repeat(np.arange(len(lengths)), lengths)  # of every element
    offset = np.arange(len(piece)) - (ends - lengths)[piece] + starts[piece]  # in the document: 0 reads BEGIN
    place = symbols.starts[documents][piece] + offset  # of the symbol that is said
    begins, stops = offset == 0, place == symbols.starts[documents + 1][piece]
    read, said = np.full(len(piece), BEGIN, np.int64), np.full(len(piece), END, np.int64)
    read[~begins], said[~stops] = symbols.values[place[~begins] - 1], symbols.values[place[~stops]]
    # Rows of pieces become rows of elements.
    row_starts = np.concatenate([[0], ends])[rows.starts]
    in_row = np.arange(len(lengths)) - np.repeat(rows.starts[:-1], rows.lengths)
    columns = (read, said, in_row[piece], documents[piece], offset)
    read, said, segments, owners, offset = (filled(Ragged(flat, row_starts), np.int64) for flat in columns)
    inputs = padded(read, np.diff(row_starts))._replace(segments=torch.from_numpy(segments))
    worth = _dealt(sizes, symbols, owners, offset)
    return Batch(inputs, torch.from_numpy(said), tuple(map(str, documents.tolist())), bytes=worth)


def dealt(total: np.ndarray, count: np.ndarray, places: np.ndarray) -> np.ndarray:
    """What each of the places 0..count-1 gets of a total that is dealt out evenly, in whole numbers.

    >>> dealt(np.array(7), np.array(3), np.arange(3)).tolist()
    [2, 2, 3]
    """
    return np.asarray((places + 1) * total // count - places * total // count)


def _dealt(sizes: np.ndarray | None, symbols: Ragged, documents: np.ndarray, offsets: np.ndarray) -> Tensor | None:
    """[B,T] the bytes of the symbols at offsets of documents; anything in the padding."""
    if sizes is None:
        return None
    return torch.from_numpy(dealt(sizes[documents], symbols.lengths[documents] + 1, offsets))


Share = TypeVar("Share")
Given = TypeVar("Given", covariant=True)
Made = TypeVar("Made")
WORKERS = 2
TIMEOUT = 60.0  # seconds that a step may be waited for


class BatchPlan(Protocol[Given]):
    """What is read at each step of each epoch: a pure function of the two numbers."""

    def count(self, epoch: int) -> int:
        """How many steps the epoch has."""

    def share(self, epoch: int, index: int, rank: int, ranks: int) -> Given | None:
        """What one of several ranks reads at a step; None if nothing is left for it."""

    def carried(self, index: int) -> bool:
        """Whether the step goes on where the one before it stopped, so that a model's state goes on too."""

    def fingerprint(self) -> str:
        """A sum of everything that decides the steps: a position means the same under the same fingerprint only."""


@dataclass(frozen=True)
class Position:
    """Where a run stands: the next step it will take. A checkpoint keeps it beside the fingerprint of the plan."""

    epoch: int = 0
    index: int = 0

    def __post_init__(self) -> None:
        if self.epoch < 0 or self.index < 0:
            raise DataError(f"there is no {_place(self)}", fix="epochs and steps are counted from 0")


@dataclass(frozen=True)
class Step(Generic[Made]):
    """One step: the batch, or None if this rank has no part in it."""

    epoch: int
    index: int
    batch: Made | None
    carried: bool = False

    @property
    def next(self) -> Position:
        """Where the run stands after this step."""
        return Position(self.epoch, self.index + 1)


class _Task(Generic[Made]):
    """A step that some worker will fill in."""

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
        except BaseException as error:  # handed to whoever waits for the step
            self.error = error
        self.done.set()

    def step(self) -> Step[Made]:
        if self.error is None:
            return Step(self.position.epoch, self.position.index, self.batch, self.carried)
        if not isinstance(self.error, Exception):
            raise self.error
        what = self.error.problem if isinstance(self.error, SeqloomError) else f"{self.error!r}"
        fix = self.error.fix if isinstance(self.error, SeqloomError) else ""
        raise DataError(f"{_place(self.position)} cannot be made: {what}", fix=fix) from self.error


class Loader(Generic[Share, Made]):
    """The steps of a plan, each with its batch.

    `make_batch` must be safe to call from several threads; reading arrays is. With no workers the batches are made
    where they are asked for, and everything else is the same.
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
            fix = "take 0 or more workers, 1 or more batches ahead, and a rank below the number of ranks"
            raise DataError(f"{workers} workers, {prefetch} batches ahead, rank {rank} of {ranks}", fix=fix)
        self.plan, self.make_batch = plan, make_batch
        self.workers, self.prefetch, self.rank, self.ranks, self.timeout = workers, prefetch, rank, ranks, timeout

    def steps(self, start: Position = Position(), *, until: int | None = None) -> Iterator[Step[Made]]:  # noqa: B008
        """The steps from `start` on, for ever or up to the beginning of epoch `until`.

        A batch that cannot be made raises DataError in its turn, so the steps before it are the same for any number of
        workers. Whoever leaves early leaves no thread behind.
        """
        tasks = self._tasks(start, until)
        if self.workers == 0:
            for task in tasks:
                task.work(self.make_batch)
                yield task.step()
            return
        crew = _Crew(self.workers, self.make_batch, self.timeout)
        try:
            yield from self._in_turn(tasks, crew)
        finally:
            crew.dismiss()

    def _tasks(self, start: Position, until: int | None) -> Iterator[_Task[Made]]:
        first = start.index
        for epoch in count(start.epoch) if until is None else range(start.epoch, until):
            steps = self.plan.count(epoch)
            if steps == 0:
                raise DataError(f"epoch {epoch} has no steps", fix="give at least one example")
            if first > steps:  # its end is a position too: the next epoch follows
                fix = "go on with the data and settings of the run, or begin the epoch anew"
                raise DataError(f"there is no {_place(start)}, which has {steps} steps", fix=fix)
            for index in range(first, steps):
                share = self.plan.share(epoch, index, self.rank, self.ranks)
                yield _Task(Position(epoch, index), share, self.plan.carried(index))
            first = 0

    def _in_turn(self, tasks: Iterator[_Task[Made]], crew: "_Crew") -> Iterator[Step[Made]]:
        waiting = deque(crew.give(task) for task in islice(tasks, self.prefetch))
        while waiting:
            task = waiting.popleft()
            if not task.done.wait(self.timeout):
                crew.patience = 0  # it was waited for long enough
                text = f"{task.worker} has not finished {_place(task.position)} in {self.timeout:g} s"
                raise DataError(text, fix="look for a file system or device that hangs, or allow more time")
            step = task.step()
            waiting.extend(crew.give(following) for following in islice(tasks, 1))
            yield step


class _Crew:
    """Threads that work off tasks in the order in which they are given."""

    def __init__(self, size: int, make_batch: Callable[[Any], Any], patience: float) -> None:
        self.tasks: queue.SimpleQueue[_Task[Any] | None] = queue.SimpleQueue()
        self.dismissed = threading.Event()
        self.make_batch, self.patience = make_batch, patience
        # Daemons: one that hangs must not keep the process from ending.
        names = [f"seqloom-loader-{number}" for number in range(size)]
        self.threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        for thread in self.threads:
            thread.start()

    def give(self, task: _Task[Any]) -> _Task[Any]:
        self.tasks.put(task)
        return task

    def dismiss(self) -> None:
        """End the threads, but for one that hangs."""
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


# From prepared data to steps of training: an order, a way to make batches, and a loader over both. The ids of batches
# are always rows of the prepared data.
#
# feed           rows of about one length, up to a budget of symbols      every task
# feed_streams   running text in parallel rows that go on from step to step      language models with carried state
# feed_packs     whole documents side by side in full rows, kept apart           language models without it


def feed(
    prepared: Prepared,
    part: Part,
    *,
    budget: int = 8_192,
    seed: int = 0,
    workers: int = WORKERS,
    rank: int = 0,
    ranks: int = 1,
) -> Loader[Any, Any]:
    """Batches of a part, each of at most `budget` symbols with its padding."""
    rows = _rows(prepared, part)
    order = Order(prepared.schema.target.sizes(prepared.columns)[rows], budget, seed)

    def make_batch(chosen: np.ndarray) -> AnyBatch:
        return collate(prepared.schema, prepared.columns, rows[chosen])

    return Loader(order, make_batch, workers=workers, rank=rank, ranks=ranks)


def feed_streams(prepared: Prepared, part: Part, *, rows: int, length: int) -> Loader[Any, Any]:
    """Running text in so many rows, so many symbols a step; the next step goes on where the last one stopped.

    Each row of a batch has the id of the document in which it stands.
    """
    symbols, sizes, names = _running(prepared, part)
    streams = Streams(symbols, rows, length)

    def make_batch(cut: Cut) -> AnyBatch:
        documents, _ = streams.locate(np.minimum(cut.starts, streams.total - 1))
        return stream_batch(streams, cut, sizes)._replace(ids=tuple(map(str, names[documents].tolist())))

    return Loader(streams, make_batch)


def feed_packs(prepared: Prepared, part: Part, *, rows: int, length: int, seed: int = 0) -> Loader[Any, Any]:
    """Whole documents packed into rows of so many symbols; nothing flows from one document into another."""
    symbols, sizes, names = _running(prepared, part)

    def make_batch(packed: Ragged) -> AnyBatch:
        ids = tuple(map(str, names[packed.values[:, 0]].tolist()))
        return packed_batch(symbols, packed, sizes)._replace(ids=ids)

    return Loader(Packs(symbols.lengths + 1, length, rows, seed), make_batch)


def _rows(prepared: Prepared, part: Part) -> np.ndarray:
    if part not in prepared.parts:
        raise DataError(f"there is no part '{part}'", fix=did_you_mean(part, prepared.parts))
    rows = prepared.parts[part]
    if not len(rows):
        raise DataError(f"the part {part} has no rows", fix="give a file for it, or let one be drawn")
    return rows


def _running(prepared: Prepared, part: Part) -> tuple[Ragged, np.ndarray | None, np.ndarray]:
    """The texts of a part in their order, [N] the bytes of each, where they were counted, and [N] their rows.

    Neighbouring rows are not copied.
    """
    if not prepared.schema.target.is_running:
        text = f"the task is {prepared.schema.task}; streams and packs are for lm"
        raise DataError(text, fix="load it with task='lm'")
    rows, column = _rows(prepared, part), prepared.columns["input"]
    sizes = np.asarray(prepared.columns[BYTES].values[rows]) if BYTES in prepared.columns else None
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 != len(rows):
        return column.select(rows), sizes, rows
    starts = np.asarray(column.starts[first : last + 2])
    return Ragged(column.values[starts[0] : starts[-1]], starts - starts[0]), sizes, rows
