"""Batches in their order, made ahead of time by threads.

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

from seqloom.config.data import Part
from seqloom.data.batches import collate, packed_batch, stream_batch
from seqloom.data.kinds.targets.nothing import BYTES
from seqloom.data.order import Order, Packs, Streams
from seqloom.data.prepared import Prepared
from seqloom.errors import DataError, SeqloomError, did_you_mean
from seqloom.text.ragged import Ragged

Share = TypeVar("Share")
Given = TypeVar("Given", covariant=True)
Made = TypeVar("Made")
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
        workers: int = 2,
        prefetch: int = 4,
        rank: int = 0,
        ranks: int = 1,
        timeout: float = TIMEOUT,
    ) -> None:
        if workers < 0 or prefetch < 1 or not 0 <= rank < ranks:
            raise DataError(
                f"{workers} workers, {prefetch} batches ahead, rank {rank} of {ranks}",
                fix="take 0 or more workers, 1 or more batches ahead, and a rank below the number of ranks",
            )
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
                raise DataError(
                    f"{task.worker} has not finished {_place(task.position)} in {self.timeout:g} s",
                    fix="look for a file system or device that hangs, or allow more time",
                )
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


# From prepared data to steps of training: an order, a way to make batches, and a loader over both.
#
# feed           rows of about one length, up to a budget of symbols      every task
# feed_streams   running text in parallel rows that go on from step to step      language models with carried state
# feed_packs     whole documents side by side in full rows, kept apart           language models without it


def feed(prepared: Prepared, part: Part, *, budget: int = 8_192, seed: int = 0, **how: Any) -> Loader[Any, Any]:
    """Batches of a part, each of at most `budget` symbols with its padding; `how` is for the `Loader`."""
    rows = _rows(prepared, part)
    order = Order(prepared.schema.target.sizes(prepared.columns)[rows], budget, seed)
    return Loader(order, lambda chosen: collate(prepared.schema, prepared.columns, rows[chosen]), **how)


def feed_streams(prepared: Prepared, part: Part, *, rows: int, length: int, **how: Any) -> Loader[Any, Any]:
    """Running text in so many rows, so many symbols a step; the next step goes on where the last one stopped."""
    streams, sizes = Streams(_running(prepared, part), rows, length), _sizes(prepared, part)
    return Loader(streams, lambda cut: stream_batch(streams, cut, sizes), **how)


def feed_packs(
    prepared: Prepared, part: Part, *, rows: int, length: int, seed: int = 0, **how: Any
) -> Loader[Any, Any]:
    """Whole documents packed into rows of so many symbols; nothing flows from one document into another."""
    symbols, sizes = _running(prepared, part), _sizes(prepared, part)
    packs = Packs(symbols.lengths + 1, length, rows, seed)
    return Loader(packs, lambda chosen: packed_batch(symbols, chosen, sizes), **how)


def _rows(prepared: Prepared, part: Part) -> np.ndarray:
    if part not in prepared.parts:
        raise DataError(f"there is no part '{part}'", fix=did_you_mean(part, prepared.parts))
    rows = prepared.parts[part]
    if not len(rows):
        raise DataError(f"the part {part} has no rows", fix="give a file for it, or let one be drawn")
    return rows


def _sizes(prepared: Prepared, part: Part) -> np.ndarray | None:
    """[N] the bytes of each text of a part, where they were counted."""
    return np.asarray(prepared.columns[BYTES].values[prepared.parts[part]]) if BYTES in prepared.columns else None


def _running(prepared: Prepared, part: Part) -> Ragged:
    """The texts of a part in their order; neighbouring rows are not copied."""
    if not prepared.schema.target.is_running:
        raise DataError(
            f"the task is {prepared.schema.task}; streams and packs are for lm", fix="load it with task='lm'"
        )
    rows, column = _rows(prepared, part), prepared.columns["input"]
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 != len(rows):
        return column.select(rows)
    starts = np.asarray(column.starts[first : last + 2])
    return Ragged(column.values[starts[0] : starts[-1]], starts - starts[0])
