"""The numbers and words that displays of a run show, from its events; terminals and notebooks share them."""

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from seqloom.report.document import DocumentBlock, Paragraph, Quote
from seqloom.report.numbers import duration, number, share, size
from seqloom.training.events import Report, Sample, Started, Stepped, Validated, WrittenText

LEVELS = "▁▂▃▄▅▆▇█"
SPARKS = 12  # points of the sparkline
SAMPLES = 2  # of a validation that is the best so far
GAP = " · "
LOSS = "loss"
PROMPT_END = "|"  # between a prompt and what a model writes
KEPT = "kept"  # the mark of a validation whose weights replace better ones


class ProgressFacts:
    """The latest values that a display shows."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.losses: deque[float] = deque(maxlen=SPARKS)
        self.share = 0.0
        self.begun: Started | None = None
        self.stepped: Stepped | None = None
        self.validated: Validated | None = None
        self.best: Validated | None = None
        self.samples: list[Sample] = []  # shown last

    def take(self, report: Report) -> None:
        match report:
            case Started():
                self.begun = report
                if report.steps:
                    self.share = min(1.0, report.step / report.steps)
            case Stepped():
                self.stepped, self.share = report, report.progress
                self.losses.append(report.loss)
            case Validated():
                self.validated = report
                self.best = report if report.best else self.best

    def news(self, report: Validated) -> list[Sample]:
        """Return samples of a best validation so far, wrong ones first; empty if they were shown last time."""
        if not report.best:
            return []
        before, self.samples = self.samples, sorted(report.samples, key=lambda one: one.correct is True)[:SAMPLES]
        return [] if self.samples == before else self.samples

    def words(self, sparks: str = "") -> list[str]:
        """Return the parts of the display, most important first."""
        if self.stepped is None:
            begun = 0 if self.begun is None else self.begun.step
            return [f"resuming from step {begun:,}" if begun else "starting"]
        now, pace = self.stepped, self.stepped.speed
        left = [] if pace.remaining is None else [f"{duration(pace.remaining)} left"]
        steps = self.begun.steps if self.begun is not None else None
        step = f"step {now.step:,}" if steps is None else f"step {now.step:,} of {max(steps, now.step):,}"
        waiting = [f"waiting for data {share(pace.data_wait)}"] if pace.data_wait >= 0.01 else []
        return [
            step,
            f"epoch {now.epoch}",
            duration(pace.seconds),
            *left,
            f"loss {number(now.loss)}{sparks and ' '}{sparks}",
            *self._scores(),
            f"{pace.tokens_per_second:,.0f} tokens/s",
            f"padding {share(now.padding)}",
            f"memory {size(pace.memory)}",
            *waiting,
        ]

    def _scores(self) -> list[str]:
        if self.validated is None or self.best is None or self.metric not in self.validated.metrics:
            return []
        current = f"dev {score(self.validated.metrics, self.metric)}"
        best = self.best.metrics.get(self.metric, math.nan)
        return [current] if self.validated is self.best else [current, f"best {number(best)} at {self.best.step:,}"]


def score(metrics: dict[str, float], name: str) -> str:
    return f"{name} {number(metrics[name])}"


def brief_names(metrics: Mapping[str, float], metric: str) -> list[str]:
    """Return the metrics of a line: the selection metric and the loss. The report and metrics.jsonl have all.

    >>> brief_names({"loss": 0.2, "accuracy": 0.9, "f1": 0.8}, "accuracy")
    ['accuracy', 'loss']
    """
    return [name for name in dict.fromkeys((metric, LOSS)) if name in metrics]


def sparkline(values: Iterable[float]) -> str:
    """Return a tiny curve of the finite values.

    >>> sparkline([4.0, 2.0, float("nan"), 1.0, 0.5])
    '█▄▂▁'
    """
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    low, high = min(finite), max(finite)
    scale = (len(LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(LEVELS[int((value - low) * scale)] for value in finite)


def written_blocks(texts: Sequence[WrittenText]) -> list[DocumentBlock]:
    """What a language model writes, each text after its prompt; empty without texts.

    >>> [block] = written_blocks([WrittenText("it was", " dark\\nand cold")])[1:]
    >>> block.lines
    ['it was| dark', 'and cold']
    """
    if not texts:
        return []
    continued = f"The model continues the first words of dev texts, from {PROMPT_END} on:"
    shown = (f"{one.prompt}{PROMPT_END if one.prompt else ''}{one.text}" for one in texts)
    lead = Paragraph(continued if texts[0].prompt else "The model writes:")
    return [lead, *(Quote(text.split("\n")) for text in shown)]
