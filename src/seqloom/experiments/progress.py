"""The progress of an experiment: its events in words, for terminals and notebooks.

event ──▶ told(event) ──▶ Told: lines, counts ──▶ the terminal prints the lines
(auto, compare, tune: one function each)      ──▶ a notebook updates one output in place
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from seqloom.report.document import Bullets, DocumentBlock, Paragraph
from seqloom.report.notebook import LiveOutput, notebook_display

MOST_LINES = 20  # the latest ones are shown in a notebook

Event = TypeVar("Event")


class Told(NamedTuple):
    """An event in words: lines that stay, and how far the experiment is."""

    lines: tuple[str, ...] = ()
    wanted: int = 0  # runs in all, in the first event
    finished: int = 0  # runs that this event ends; in the first event, those that were there
    share: float | None = None  # of the time that is spent, if that limits the experiment
    now: str = ""  # what is going on; it is replaced by the next one


class ExperimentProgress(LiveOutput):
    """The progress of an experiment as one output of a notebook that is updated in place.

    Args:
        told: describes an event.
        display: `IPython.display.display`, or a function like it.
        clock: the time in seconds.
    """

    def __init__(
        self,
        told: Callable[[Any], Told],
        display: Callable[..., Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.told, self.lines = told, deque[str](maxlen=MOST_LINES)
        self.wanted, self.finished, self.share, self.now = 0, 0, 0.0, "starting"
        super().__init__(display, clock)

    def take(self, event: Any) -> None:
        """Take an event, and update the output unless it was updated just now."""
        told = self.told(event)
        self.lines += told.lines
        self.wanted, self.finished = self.wanted or told.wanted, self.finished + told.finished
        self.share = self.share if told.share is None else told.share
        self.now = told.now or (told.lines[-1].strip() if told.lines else self.now)
        self.update(rare=not told.now)

    @property
    def done(self) -> float:
        """The share of the time, or of the runs."""
        return self.finished / self.wanted if self.wanted else self.share

    def line(self) -> str:
        """What is going on."""
        runs = f"{self.finished:,} of {self.wanted:,} runs · " if self.wanted else ""
        return f"{runs}{self.now}"

    def blocks(self) -> list[DocumentBlock]:
        """The line, and what has happened so far."""
        return [Paragraph(self.line()), Bullets(tuple(line.strip() for line in self.lines))]


def watcher(show: Callable[[Event], None] | None, told: Callable[[Event], Told]) -> Callable[[Event], None] | None:
    """The given function for events; without one, in a notebook, a live output, and None elsewhere."""
    display = notebook_display() if show is None else None
    return show if display is None else ExperimentProgress(told, display).take
