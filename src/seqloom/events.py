"""How far long work is: one event for all of it, whoever shows it.

Long work is a generator. It yields `Progress` while it goes on, and what it returns is what came of it:

    found = finished(searching(rows))                 nobody watches
    found = finished(searching(rows), show=bar)       somebody does: a terminal, a test, a page
    found = yield from searching(rows)                it is a part of other work
"""

from collections.abc import Callable, Generator
from contextlib import closing
from typing import NamedTuple, TypeVar

Event = TypeVar("Event")
Result = TypeVar("Result")


class Progress(NamedTuple):
    """How far work is: how many of its parts are done.

    >>> Progress("rows read", 20, part=0.25).share, Progress("documents", 3, 4).share, Progress("answers", 3).share
    (0.25, 0.75, None)
    """

    stage: str  # what is counted, as it stands behind a number: "rows read", "documents"
    done: int
    total: int = 0  # 0: nobody knows
    part: float | None = None  # the share of the work that is done, where the numbers do not say it
    kept: int = 0  # how many of them stay done if the work ends here

    @property
    def share(self) -> float | None:
        """The share of the work that is done, from 0 to 1; None where nobody knows."""
        return self.done / self.total if self.part is None and self.total else self.part

    def __str__(self) -> str:
        """It in words.

        >>> print(Progress("documents", 1200, 4000)), print(Progress("rows read", 7))
        1,200 of 4,000 documents
        7 rows read
        (None, None)
        """
        return f"{self.done:,} of {self.total:,} {self.stage}" if self.total else f"{self.done:,} {self.stage}"


Show = Callable[[Progress], object]
Work = Generator[Progress, None, Result]


def finished(work: Generator[Event, None, Result], show: Callable[[Event], object] | None = None) -> Result:
    """What comes of work that is done now, to its end; every event is shown to whoever wants to see it."""
    with closing(work):  # where showing fails, the work ends at once
        while True:
            try:
                event = next(work)
            except StopIteration as end:
                result: Result = end.value
                return result
            if show is not None:
                show(event)
