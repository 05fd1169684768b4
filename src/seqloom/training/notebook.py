"""The progress of a run in a notebook: one output that is updated in place.

▓▓▓▓▓▓▓▓▓▓▓▓░░░░░░
step 126 of 200 · epoch 2 · 7.1 s · 4.2 s left · loss 0.231 ▇▅▃▂▁ · dev accuracy 0.98 ...
step  epoch  dev accuracy  dev loss
120       2          0.98    0.1034  best so far
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from seqloom.report.document import Bullets, DocumentBlock, Paragraph, TableBlock, TableCell
from seqloom.report.figures.markup import tag, together
from seqloom.report.html import drawn
from seqloom.report.numbers import counted, duration, share
from seqloom.training.events import Ended, Notice, Report, Stepped, Validated
from seqloom.training.progress import GAP, ProgressFacts, brief_names, score, sparkline

BETWEEN_UPDATES = 0.5  # seconds, for events about steps
MOST_VALIDATIONS = 12  # the latest ones are shown
MOST_NOTICES = 5


class NotebookProgress:
    """The progress of a run as one output of a notebook that is updated in place.

    Args:
        metric: the selection metric.
        display: `IPython.display.display`, or a function like it.
        clock: the time in seconds.
    """

    def __init__(self, metric: str, display: Callable[..., Any], clock: Callable[[], float] = time.monotonic) -> None:
        self.facts, self.metric, self.clock = ProgressFacts(metric), metric, clock
        self.validations: deque[Validated] = deque(maxlen=MOST_VALIDATIONS)
        self.notices: deque[Notice] = deque(maxlen=MOST_NOTICES)
        self.end: Ended | None = None
        self._updated = clock()
        self._handle = display(self, display_id=True)

    def take(self, report: Report) -> None:
        """Take an event, and update the output unless it was updated just now."""
        self.facts.take(report)
        match report:
            case Validated():
                self.validations.append(report)
            case Notice():
                self.notices.append(report)
            case Ended():
                self.end = report
        if not isinstance(report, Stepped) or self.clock() - self._updated >= BETWEEN_UPDATES:
            self._updated = self.clock()
            self._handle.update(self)

    def _line(self) -> str:
        if self.end is None:
            return GAP.join(self.facts.words(sparkline(self.facts.losses)))
        scores = GAP.join(score(self.end.metrics, name) for name in brief_names(self.end.metrics, self.metric))
        took = f"{self.end.reason} after {counted(self.end.step, 'step')}, {duration(self.end.speed.seconds)}"
        return f"{took}{GAP}dev {scores}{GAP}step {self.end.chosen_step:,}" if scores else took

    def _blocks(self) -> list[DocumentBlock]:
        names = brief_names(self.validations[-1].metrics, self.metric) if self.validations else []
        rows: list[list[TableCell]] = [
            [
                f"{one.step:,}",
                one.epoch,
                *(one.metrics.get(name) for name in names),
                "best so far" if one.best else "as good as the best" if one.chosen else "",
            ]
            for one in self.validations
        ]
        notices = [f"step {one.step:,}: {one.text}" + (f" Fix: {one.fix}." if one.fix else "") for one in self.notices]
        return [
            block
            for block in (
                Paragraph(self._line()),
                TableBlock(("step", "epoch", *(f"dev {name}" for name in names), ""), rows),
                Bullets(notices),
            )
            if not block.is_empty
        ]

    def __repr__(self) -> str:
        return self._line()

    def _repr_html_(self) -> str:
        done = 1.0 if self.end is not None and self.end.reason in ("done", "patience") else self.facts.share
        bar = tag("progress", share(done), value=done, max=1, style="width:100%")
        return together([bar, *map(drawn, self._blocks())])
