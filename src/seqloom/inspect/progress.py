"""How far the work of an inspection is, for whoever wants to know: the library itself shows nothing.

    Inspection(subject, "the cat sat", show=print).faithfulness()        show(Progress) is called as the work goes on

Work says what it consists of, however deep it lies, and a part may be work of parts itself: half of the third of four
inputs is 2.5 of 4. What was told is never taken back before all of the work is over, also where a part turns out to be
several pieces of work one after the other. Nobody watching costs nothing.

A view is no generator of these events, as other long work is: in the midst of it the model is edited or asked for
gradients, and nobody else should run then.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from seqloom.events import Progress, Show

Moved = Callable[[int], None]  # takes how many parts more are done


class _Work:
    """A piece of work and how much of it is done."""

    def __init__(self, parts: str, total: int) -> None:
        self.parts, self.total, self.done = parts, max(1, total), 0


class WorkShown:
    """The work that goes on, each piece of it a part of the one before, and who is shown how far it is."""

    def __init__(self, show: Show | None = None) -> None:
        self._show, self._works = show, list[_Work]()
        self._told: Progress | None = None

    @contextmanager
    def work(self, parts: str, total: int) -> Iterator[Moved]:
        """A block of work of so many parts, and what says that some more of them are done.

        >>> shown = WorkShown(lambda progress: print(progress, progress.share))
        >>> with shown.work("inputs", 2) as moved:
        ...     with shown.work("steps", 4) as stepped:
        ...         stepped(1)
        ...     moved(1)
        0 of 2 inputs 0.0
        0 of 2 inputs 0.0
        0 of 2 inputs 0.125
        1 of 2 inputs 0.5
        """
        if self._show is None:
            yield lambda _count: None
            return
        own = _Work(parts, total)

        def moved(count: int) -> None:
            own.done += count
            self._tell()

        self._works.append(own)
        try:
            self._tell()
            yield moved
        finally:
            self._works.remove(own)
            self._told = self._told if self._works else None

    def _tell(self) -> None:
        share, part = 0.0, 1.0
        for work in self._works:
            share, part = share + part * min(1.0, work.done / work.total), part / work.total
        before = 0.0 if self._told is None else self._told.share or 0.0
        if (first := next((work for work in self._works if work.total > 1), None)) is not None:
            self._told = Progress(first.parts, first.done, first.total)
        if self._told is not None and self._show is not None:
            self._told = self._told._replace(part=max(before, min(1.0, share)))
            self._show(self._told)
