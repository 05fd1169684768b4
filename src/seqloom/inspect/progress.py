"""How far long work is, for whoever wants to know: the library itself shows nothing.

    with watched(show):                     show(Progress) is called as the work goes on
        inspection.faithfulness()

Work says what it consists of, however deep it lies, and a part may be work of parts itself: half of the third of four
inputs is 2.5 of 4. What was told is never taken back before all of the work is over, also where a part turns out to be
several pieces of work one after the other. Nobody watching costs nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from seqloom.events import Progress, Show

Moved = Callable[[int], None]  # takes how many parts more are done


class _Work:
    """A piece of work and how much of it is done."""

    def __init__(self, parts: str, total: int) -> None:
        self.parts, self.total, self.done = parts, max(1, total), 0


class _ProgressWatch:
    """Somebody who watches, and the work that goes on: each piece of it is a part of the one before."""

    def __init__(self, show: Show) -> None:
        self.show, self.works = show, list[_Work]()
        self.told: Progress | None = None

    def tell(self) -> None:
        share, part = 0.0, 1.0
        for work in self.works:
            share, part = share + part * min(1.0, work.done / work.total), part / work.total
        if (first := next((work for work in self.works if work.total > 1), None)) is not None:
            self.told = Progress(first.parts, first.done, first.total, self.share)
        if self.told is not None:
            self.told = self.told._replace(part=max(self.share, min(1.0, share)))
            self.show(self.told)

    @property
    def share(self) -> float:
        """What was told last, which is never taken back."""
        return 0.0 if self.told is None else self.told.share or 0.0

    def begin(self, own: _Work) -> None:
        self.works.append(own)
        self.tell()

    def end(self, own: _Work) -> None:
        self.works.remove(own)
        if not self.works:
            self.told = None


_WATCH: ContextVar[_ProgressWatch | None] = ContextVar("seqloom_inspection_watch", default=None)


@contextmanager
def watched(show: Show) -> Iterator[None]:
    """Inside the `with`, `show` is told how far the work of this thread is."""
    token = _WATCH.set(_ProgressWatch(show))
    try:
        yield
    finally:
        _WATCH.reset(token)


@contextmanager
def work(parts: str, total: int) -> Iterator[Moved]:
    """A block of work of so many parts, and what says that some more of them are done.

    >>> with watched(lambda progress: print(progress, progress.share)), work("inputs", 2) as moved:
    ...     with work("steps", 4) as stepped:
    ...         stepped(1)
    ...     moved(1)
    0 of 2 inputs 0.0
    0 of 2 inputs 0.0
    0 of 2 inputs 0.125
    1 of 2 inputs 0.5
    """
    watch = _WATCH.get()
    if watch is None:
        yield _unseen
        return
    own = _Work(parts, total)

    def moved(count: int) -> None:
        own.done += count
        watch.tell()

    watch.begin(own)
    try:
        yield moved
    finally:
        watch.end(own)


def _unseen(_count: int) -> None:
    """Nothing: nobody watches."""
