"""The progress of a run in a notebook: one output that is updated in place. The choices of the run are below the line,
and what a language model writes at the end is below the validations.

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
from seqloom.report.notebook import LiveOutput
from seqloom.report.numbers import counted, duration
from seqloom.training.events import Ended, Notice, Report, Started, Stepped, Validated, WrittenText, Wrote
from seqloom.training.progress import GAP, KEPT, ProgressFacts, brief_names, score, sparkline, written_blocks

MOST_VALIDATIONS = 12  # the latest ones are shown
MOST_NOTICES = 5


class NotebookProgress(LiveOutput):
    """The progress of a run as one output of a notebook that is updated in place.

    Args:
        metric: the selection metric.
        display: `IPython.display.display`, or a function like it.
        clock: the time in seconds.
        reword: what the messages of the run are in Python, without flags.
    """

    def __init__(
        self,
        metric: str,
        display: Callable[..., Any],
        clock: Callable[[], float] = time.monotonic,
        reword: Callable[[str], str] = str,
    ) -> None:
        self.facts, self.metric, self.reword = ProgressFacts(metric), metric, reword
        self.messages: tuple[str, ...] = ()
        self.written: tuple[WrittenText, ...] = ()
        self.validations: deque[Validated] = deque(maxlen=MOST_VALIDATIONS)
        self.notices: deque[Notice] = deque(maxlen=MOST_NOTICES)
        self.end: Ended | None = None
        super().__init__(display, clock)

    def take(self, report: Report) -> None:
        """Take an event, and update the output unless it was updated just now."""
        self.facts.take(report)
        match report:
            case Started():
                self.messages = tuple(map(self.reword, report.messages))
            case Wrote():
                self.written = report.texts
            case Validated():
                self.validations.append(report)
            case Notice():
                self.notices.append(report)
            case Ended():
                self.end = report
        self.update(rare=not isinstance(report, Stepped))

    @property
    def done(self) -> float:
        """The share of the steps, or all if the run has ended by itself."""
        return 1.0 if self.end is not None and self.end.reason in ("done", "patience") else self.facts.share

    def line(self) -> str:
        """The words of the terminal, or how the run ended."""
        if self.end is None:
            return GAP.join(self.facts.words(sparkline(self.facts.losses)))
        scores = GAP.join(score(self.end.metrics, name) for name in brief_names(self.end.metrics, self.metric))
        took = f"{self.end.reason} after {counted(self.end.step, 'step')}, {duration(self.end.speed.seconds)}"
        return f"{took}{GAP}dev {scores}{GAP}step {self.end.chosen_step:,}" if scores else took

    def blocks(self) -> list[DocumentBlock]:
        """The line, the choices of the run, the latest validations and notices, and texts of a language model."""
        names = brief_names(self.validations[-1].metrics, self.metric) if self.validations else []
        rows: list[list[TableCell]] = [
            [
                f"{one.step:,}",
                one.epoch,
                *(one.metrics.get(name) for name in names),
                "best so far" if one.best else KEPT if one.chosen else "",
            ]
            for one in self.validations
        ]
        notices = [f"step {one.step:,}: {one.text}" + (f" Fix: {one.fix}." if one.fix else "") for one in self.notices]
        table = TableBlock(("step", "epoch", *(f"dev {name}" for name in names), ""), rows)
        shown = (Paragraph(self.line()), Bullets(self.messages), table, Bullets(notices))
        return [*shown, *written_blocks(self.written)]
