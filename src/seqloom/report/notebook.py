"""Notebooks: whether the code runs in one, its function to display a result, and an output that is updated in place."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from seqloom.report.document import DocumentBlock
from seqloom.report.figures.markup import tag, together
from seqloom.report.html import drawn
from seqloom.report.numbers import share

BETWEEN_UPDATES = 0.5  # seconds, for events of which there are many
KERNEL = "ZMQInteractiveShell"  # the shell of Jupyter kernels, and a base class of Colab's


def notebook_display() -> Callable[..., Any] | None:
    """Return `IPython.display.display` in a notebook, and None elsewhere. IPython is never imported by this.

    >>> notebook_display() is None
    True
    """
    loaded = sys.modules.get("IPython")
    shell = None if loaded is None else loaded.get_ipython()
    if not any(one.__name__ == KERNEL for one in type(shell).__mro__):
        return None
    from IPython.display import display  # type: ignore[import-not-found,unused-ignore]

    found: Callable[..., Any] = display
    return found


class LiveOutput(ABC):
    """The progress of long work as one output of a notebook that is updated in place: a bar, and blocks below it.

    Args:
        display: `IPython.display.display`, or a function like it.
        clock: the time in seconds.
    """

    def __init__(self, display: Callable[..., Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._updated = clock()
        self._handle = display(self, display_id=True)

    def update(self, *, rare: bool) -> None:
        """Show the current state; for events that are not rare, only if it was not shown just now."""
        if rare or self.clock() - self._updated >= BETWEEN_UPDATES:
            self._updated = self.clock()
            self._handle.update(self)

    @property
    @abstractmethod
    def done(self) -> float:
        """The share of the work that is done, from 0 to 1."""

    @abstractmethod
    def line(self) -> str:
        """The current state in one line."""

    @abstractmethod
    def blocks(self) -> Sequence[DocumentBlock]:
        """What is shown below the bar; empty blocks are left out."""

    def __repr__(self) -> str:
        return self.line()

    def _repr_html_(self) -> str:
        bar = tag("progress", share(self.done), value=self.done, max=1, style="width:100%")
        return together([bar, *(drawn(block) for block in self.blocks() if not block.is_empty)])
