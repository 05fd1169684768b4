"""What a run looks like while it goes on: a live display in a terminal, plain lines everywhere else.

    ━━━━━━━━━━━━━━━━━━━━━╸━━━━━━━━━━ 63 %                      validations scroll above, the best with two samples
    step 126 of 200 · epoch 2 · 7.1 s · 4.2 s left             as many lines as the terminal's width asks for
    loss 0.231 ▇▅▃▂▁ · exact 98.1 % · best 98.4 % at 120 · 52,300 symbols/s · padding 3 % · memory 412 MB

It only reads reports. Words of the data are shown with everything invisible written out: a text may hold escapes.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from seqloom.cli.terminal import Screen
from seqloom.data.problems import escaped
from seqloom.report.numbers import duration, number, share, size
from seqloom.training.events import Begun, Noticed, Report, Sample, Saved, Stepped, Validated

LEVELS = "▁▂▃▄▅▆▇█"
SPARKS = 12  # points of the tiny curve
SAMPLES = 2  # of a validation that is the best so far
BETWEEN_LINES = 10.0  # seconds between plain lines about steps
GAP = " · "


class Display(Protocol):
    """Something that shows reports."""

    def take(self, report: Report) -> None:
        """Show one report."""


@contextmanager
def display(screen: Screen, metric: str) -> Iterator[Display]:
    """The display that the screen allows, for as long as the block lasts; `metric` is the one that decides."""
    if not screen.is_terminal or screen.is_dumb_terminal:
        yield PlainLines(screen, metric)
        return
    with Live(console=screen, refresh_per_second=8, transient=True, redirect_stdout=False) as live:
        yield LiveLines(screen, metric, live)


class PlainLines:
    """One line for each validation and notice, and one every ten seconds; for logs and pipes."""

    def __init__(self, screen: Screen, metric: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.screen, self.metric, self.clock = screen, metric, clock
        self.facts = RunFacts(metric)
        self._last = clock()

    def take(self, report: Report) -> None:
        """Show one report."""
        self.facts.take(report)
        match report:
            case Begun():
                self._print(*begun_lines(report))
            case Stepped() if self.clock() - self._last >= BETWEEN_LINES:
                self._last = self.clock()
                self._print(Text(GAP.join([share(report.share), *self.facts.words()])))
            case Validated():
                self._last = self.clock()
                self._print(*validation_lines(report, self.metric, self.facts.news(report)))
            case Noticed() | Saved():
                self._print(*notice_lines(report))

    def _print(self, *lines: Text) -> None:
        for line in lines:
            self.screen.print(line, soft_wrap=True)


class LiveLines:
    """A bar and its numbers that change in place, under the validations."""

    def __init__(self, screen: Screen, metric: str, live: Live) -> None:
        self.screen, self.metric, self.live = screen, metric, live
        self.facts = RunFacts(metric)

    def take(self, report: Report) -> None:
        """Show one report."""
        self.facts.take(report)
        match report:
            case Begun():
                self._above(begun_lines(report))
            case Validated():
                self._above(validation_lines(report, self.metric, self.facts.news(report)), cut=True)
            case Noticed() | Saved():
                self._above(notice_lines(report))
        self.live.update(self._picture())

    def _above(self, lines: list[Text], *, cut: bool = False) -> None:
        for line in lines:
            self.screen.print(line, no_wrap=cut, overflow="ellipsis" if cut else "fold")

    def _picture(self) -> Group:
        width = max(8, self.screen.width)
        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(ratio=1)
        bar.add_column(justify="right")
        bar.add_row(ProgressBar(total=1.0, completed=self.facts.share), share(self.facts.share))
        sparks = "" if self.screen.options.ascii_only else sparkline(self.facts.losses)
        return Group(bar, *packed(self.facts.words(sparks), width))


class RunFacts:
    """The newest of everything that a display tells."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.losses: deque[float] = deque(maxlen=SPARKS)
        self.share = 0.0
        self.begun: Begun | None = None
        self.stepped: Stepped | None = None
        self.validated: Validated | None = None
        self.best: Validated | None = None
        self.samples: list[Sample] = []  # that were shown last

    def take(self, report: Report) -> None:
        """Remember one report."""
        match report:
            case Begun():
                self.begun = report
                if report.steps:
                    self.share = min(1.0, report.step / report.steps)
            case Stepped():
                self.stepped, self.share = report, report.share
                self.losses.append(report.loss)
            case Validated():
                self.validated = report
                self.best = report if report.best else self.best

    def news(self, report: Validated) -> list[Sample]:
        """Samples of a validation that is the best so far, wrong ones first; none where all were shown just so."""
        if not report.best:
            return []
        before, self.samples = self.samples, sorted(report.samples, key=lambda one: one.right is True)[:SAMPLES]
        return [] if self.samples == before else self.samples

    def words(self, sparks: str = "") -> list[str]:
        """Everything worth telling, the most wanted first."""
        if self.stepped is None:
            return (
                ["the first steps"] if self.begun is None or not self.begun.step else [f"from step {self.begun.step:,}"]
            )
        now, pace = self.stepped, self.stepped.pace
        left = [] if pace.remaining is None else [f"{duration(pace.remaining)} left"]
        waiting = [f"waiting for data {share(pace.waited)}"] if pace.waited >= 0.01 else []
        return [
            self._step(now),
            f"epoch {now.epoch + (now.share < 1)}",
            duration(pace.seconds),
            *left,
            f"loss {number(now.loss)}{sparks and ' '}{sparks}",
            *self._scores(),
            f"{pace.symbols_per_second:,.0f} symbols/s",
            f"padding {share(now.padding)}",
            f"memory {size(pace.memory)}",
            *waiting,
        ]

    def _step(self, now: Stepped) -> str:
        steps = self.begun.steps if self.begun is not None else None
        return f"step {now.step:,}" if steps is None else f"step {now.step:,} of {max(steps, now.step):,}"

    def _scores(self) -> list[str]:
        if self.validated is None or self.best is None or self.metric not in self.validated.metrics:
            return []
        current, best = (
            f"dev {score(self.validated.metrics, self.metric)}",
            self.best.metrics.get(self.metric, math.nan),
        )
        return [current] if self.validated is self.best else [current, f"best {number(best)} at {self.best.step:,}"]


def begun_lines(report: Begun) -> list[Text]:
    """What was chosen, how big it is, and what it will take."""
    trained = "" if report.trained == report.parameters else f", {report.trained:,} of them trained"
    steps = "" if report.steps is None else f"{GAP}{report.steps:,} steps"
    place = f"{GAP}from step {report.step:,}" if report.step else ""
    disk = f"{GAP}a checkpoint takes {size(report.checkpoint_bytes)}"
    sizes = f"{report.parameters:,} parameters{trained}{steps}{place}{disk}"
    return [
        *(Text(escaped(line)) for line in report.said),
        Text(sizes),
        Text(f"run folder: {escaped(str(report.folder))}"),
    ]


def validation_lines(report: Validated, metric: str, samples: Sequence[Sample]) -> list[Text]:
    """A line of scores, the deciding one first, and what it means; where they are the best so far, the samples too."""
    names = [name for name in (metric, *report.metrics) if name in report.metrics]
    scores = GAP.join(score(report.metrics, name) for name in dict.fromkeys(names)) or "no dev part"
    head = Text(f"step {report.step:,}{GAP}epoch {report.epoch}{GAP}dev {scores}")
    if report.chosen and not report.best:
        head.append(f"{GAP}as good as the best, and later", style="green")
    if not (report.best and names):
        return [head]  # the same examples again would be no news
    head.append(f"{GAP}best so far", style="green")
    return [head, *sample_lines(samples)]


def sample_lines(samples: Sequence[Sample]) -> list[Text]:
    """A line for each of the samples, with a mark where there is right and wrong."""
    return [Text.assemble("  ", *_marks(sample), sample_line(sample)) for sample in samples]


def _marks(sample: Sample) -> list[Text]:
    """A mark for what is right or wrong; none for what is only better or worse."""
    if sample.right is None:
        return []
    return [Text("+ ", style="green") if sample.right else Text("- ", style="red")]


def sample_line(sample: Sample) -> Text:
    """An input, what the model said, and what is true if neither has told it."""
    line = Text.assemble((brief(sample.input), "dim"), " -> ", brief(sample.said))
    told = sample.true in (sample.said, sample.input)
    return line if told else line.append(f"   true: {brief(sample.true)}", style="dim")


def notice_lines(report: Noticed | Saved) -> list[Text]:
    """Something that people should know, in colour; a checkpoint that was written is no news."""
    if isinstance(report, Saved):
        return []
    cure = f" Fix: {escaped(report.fix)}." if report.fix else ""
    return [Text(f"step {report.step:,}: {report.code}: {escaped(report.text)}.{cure}", style="yellow")]


def packed(words: list[str], width: int) -> list[Text]:
    """The words in as few lines as the width allows; a word that is wider than all is cut."""
    lines: list[Text] = []
    for word in words:
        longer = lines[-1].plain + GAP + word if lines else word
        if lines and Text(longer).cell_len <= width:
            lines[-1] = Text(longer)
        else:
            lines.append(Text(word))
            lines[-1].truncate(width, overflow="ellipsis")
    return lines


def sparkline(values: Iterable[float]) -> str:
    """A tiny curve of the finite values.

    >>> sparkline([4.0, 2.0, float("nan"), 1.0, 0.5])
    '█▄▂▁'
    """
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    low, high = min(finite), max(finite)
    scale = (len(LEVELS) - 1) / (high - low) if high > low else 0.0
    return "".join(LEVELS[int((value - low) * scale)] for value in finite)


def brief(text: str, longest: int = 60) -> str:
    """The beginning of a text, in one line, with nothing invisible in it."""
    text = escaped(text[: longest + 1].replace("\n", " "))
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip(' .')}…"


def score(metrics: dict[str, float], name: str) -> str:
    """A metric by its name."""
    return f"{name} {number(metrics[name])}"
