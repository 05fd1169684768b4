"""Progress of long work.

Long work is a generator that yields `Progress` and returns its result:

    found = finished(searching(rows))                 without a progress bar
    found = finished(searching(rows), show=bar)       `bar` is called with every event
    found = yield from searching(rows)                as a part of other work
"""

from collections.abc import Callable, Generator
from contextlib import closing
from typing import NamedTuple, TypeVar

Event = TypeVar("Event")
Result = TypeVar("Result")


class Progress(NamedTuple):
    """How much of the work is done.

    >>> Progress("rows read", 20, part=0.25).share, Progress("documents", 3, 4).share, Progress("answers", 3).share
    (0.25, 0.75, None)
    """

    stage: str  # what is counted: "rows read", "documents"
    done: int
    total: int = 0  # 0: unknown
    part: float | None = None  # the share that is done, if `done` and `total` do not give it
    kept: int = 0  # how many are saved if the work stops here

    @property
    def share(self) -> float | None:
        """The share of the work that is done, from 0 to 1; None if unknown."""
        return self.done / self.total if self.part is None and self.total else self.part

    def __str__(self) -> str:
        """The progress as text.

        >>> print(Progress("documents", 1200, 4000)), print(Progress("rows read", 7))
        1,200 of 4,000 documents
        7 rows read
        (None, None)
        """
        return f"{self.done:,} of {self.total:,} {self.stage}" if self.total else f"{self.done:,} {self.stage}"


Show = Callable[[Progress], object]
Work = Generator[Progress, None, Result]


def finished(work: Generator[Event, None, Result], show: Callable[[Event], object] | None = None) -> Result:
    """Run the work to its end and return its result; `show` is called with every event."""
    with closing(work):  # if `show` raises, the work is closed immediately
        while True:
            try:
                event = next(work)
            except StopIteration as end:
                result: Result = end.value
                return result
            if show is not None:
                show(event)
