"""What a run looks like while it goes on: a live display in a terminal, plain lines everywhere else.

    ━━━━━━━━━━━━━━━━━━━━━╸━━━━━━━━━━ 63 %                      validations scroll above, the best with two samples
    step 126 of 200 · epoch 2 · 7.1 s · 4.2 s left             as many lines as the terminal's width asks for
    loss 0.231 ▇▅▃▂▁ · exact 98.1 % · best 98.4 % at 120 · 52,300 symbols/s · padding 3 % · memory 412 MB

`followed` shows a run so, and `summary` tells how it ended; both only read reports. Words of the data are shown with
everything invisible written out: a text may hold escapes.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from seqloom.cli.terminal import Screen
from seqloom.data.problems import escaped
from seqloom.files.layouts import RunFile
from seqloom.report.numbers import counted, duration, number, share, size
from seqloom.training.events import Begun, Ended, Noticed, Report, Sample, Stepped, Validated

if TYPE_CHECKING:
    from seqloom.data.checks.check import DataFinding
    from seqloom.tasks.task import Task

LEVELS = "▁▂▃▄▅▆▇█"
SPARKS = 12  # points of the tiny curve
SAMPLES = 2  # of a validation that is the best so far
BETWEEN_LINES = 10.0  # seconds between plain lines about steps
GAP = " · "


@contextmanager
def display(screen: Screen, metric: str) -> "Iterator[PlainLines | LiveLines]":
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
            case Noticed():
                self._print(notice_line(report))

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
            case Noticed():
                self._above([notice_line(report)])
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
            begun = 0 if self.begun is None else self.begun.step
            return [f"from step {begun:,}" if begun else "the first steps"]
        now, pace = self.stepped, self.stepped.pace
        left = [] if pace.remaining is None else [f"{duration(pace.remaining)} left"]
        steps = self.begun.steps if self.begun is not None else None
        step = f"step {now.step:,}" if steps is None else f"step {now.step:,} of {max(steps, now.step):,}"
        waiting = [f"waiting for data {share(pace.waited)}"] if pace.waited >= 0.01 else []
        return [
            step,
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

    def _scores(self) -> list[str]:
        if self.validated is None or self.best is None or self.metric not in self.validated.metrics:
            return []
        current = f"dev {score(self.validated.metrics, self.metric)}"
        best = self.best.metrics.get(self.metric, math.nan)
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
    """A line for each of the samples, with a mark where there is right and wrong, not only better and worse."""
    marks = {True: ("+ ", "green"), False: ("- ", "red"), None: ("", "")}
    return [Text.assemble("  ", marks[sample.right], sample_line(sample)) for sample in samples]


def sample_line(sample: Sample) -> Text:
    """An input, what the model said, and what is true if neither has told it."""
    line = Text.assemble((brief(sample.input), "dim"), " -> ", brief(sample.said))
    told = sample.true in (sample.said, sample.input)
    return line if told else line.append(f"   true: {brief(sample.true)}", style="dim")


def notice_line(report: Noticed) -> Text:
    """Something that people should know, in colour."""
    cure = f" Fix: {escaped(report.fix)}." if report.fix else ""
    return Text(f"step {report.step:,}: {report.code}: {escaped(report.text)}.{cure}", style="yellow")


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


WHY = {
    "done": "done",
    "patience": "ended early: the dev part saw nothing better",
    "stopped": "stopped; the same command goes on from here",
    "not-finite": "ended: numbers were not finite",
    "disk": "ended: checkpoints could not be written",
}
ALREADY = {
    "done": "this run is done already; a larger --epochs (or --steps, ... as it was begun) goes on with it",
    "patience": "patience ended this run already: the dev part saw nothing better; a larger --patience goes on with it",
}


def last_of(reports: Iterator[Report]) -> Ended:
    """The end of a run that nobody watches."""
    *_, last = reports
    assert isinstance(last, Ended), "a run ends with its end"
    return last


def followed(reports: Iterator[Report], screen: Screen, metric: str, then: tuple[str, ...] = ()) -> Ended:
    """The end of a run, every report of which was shown; `then` are lines that follow the first one."""
    begun, stepped = None, False
    with display(screen, metric) as lines:
        for report in reports:
            lines.take(report)
            if isinstance(report, Begun):
                begun = report
                screen.print(*then, sep="\n", end="\n" if then else "", markup=False, soft_wrap=True)
            stepped = stepped or isinstance(report, Stepped)
    assert isinstance(report, Ended), "a run ends with its end"
    if begun is not None and report.why in ("done", "patience") and report.step == begun.step and not stepped:
        screen.print(ALREADY[report.why], markup=False, soft_wrap=True)
    return report


def summary(out: Path, ended: Ended, task: "Task", *, json: bool) -> None:
    """Tell how a run ended, where everything lies, and what to type next."""
    places = {"model": out / RunFile.MODEL, "report": out / RunFile.REPORT, "card": out / RunFile.CARD}
    calibrated = _calibrated(out, ended)
    if json:
        facts = {"run": str(out), "why": ended.why, "step": ended.step, "best_step": ended.best_step}
        facts |= {"chosen_step": ended.chosen_step, "metrics": ended.metrics, "calibrated": calibrated}
        facts |= {"seconds": ended.pace.seconds} | {name: str(place) for name, place in places.items()}
        return Screen().say_json(facts)
    lines = [f"{WHY[ended.why]} after {ended.step:,} steps, {duration(ended.pace.seconds)}", *_chosen(ended, task)]
    lines += [f"  calibrated, each half of dev by the other half: {_scores(calibrated)}"] if calibrated else []
    lines += [f"  {name:7} {place}" for name, place in places.items() if place.exists()]
    # How the model is asked, by one text where it reads such, and how it is judged.
    asked = [task.asking.text] if task.asked.schema.input.in_lines else []
    then = (*asked, task.asking.file, *task.asking.then, "seqloom evaluate RUN", "seqloom doctor RUN")
    return Screen().say(*lines, "next:", *(f"  {line.replace('RUN', escaped(str(out)))}" for line in then))


def _calibrated(out: Path, ended: Ended) -> dict[str, float]:
    """The dev figures of RUN/model that its calibration changed since the look that chose it."""
    from seqloom.training.run_summary import read_scores  # needs torch, and `seqloom --help` does not

    shipped = read_scores(out / RunFile.MODEL)
    if shipped is None or not shipped.cross_fitted or shipped.step != ended.chosen_step:
        return {}
    known = {name: value for name, value in shipped.dev.items() if value is not None}
    return {name: value for name, value in known.items() if value != ended.metrics.get(name)}


def _chosen(ended: Ended, task: "Task") -> list[str]:
    """The scores of the look at the dev part that chose the weights, the deciding one first; why it is not the best."""
    names = dict.fromkeys((task.metric.name, *ended.metrics))
    found = {name: ended.metrics[name] for name in names if name in ended.metrics}
    if not found:
        return ["nothing was scored on a dev part"]
    if ended.chosen_step == ended.best_step:
        return [f"best on the dev part, at step {ended.best_step:,}: {_scores(found)}"]
    return [
        f"on the dev part, at step {ended.chosen_step:,}: {_scores(found)}",
        f"  step {ended.best_step:,} scored best, by no more than one standard error: the later weights are shipped",
    ]


def _scores(metrics: dict[str, float]) -> str:
    return ", ".join(score(metrics, name) for name in metrics)


def warnings_said(findings: "Iterable[DataFinding]") -> list[str]:
    """A line for each kind of warning: its code, its first case and the cure, and how many rows it concerns.

    >>> from seqloom.data.checks.check import DataFinding, FindingSample
    >>> case = FindingSample("a.csv:3", "a label of one row", "give it more")
    >>> warnings_said([DataFinding("warn", "label.rare", 4, (case,)), DataFinding("note", "text.blank", 1, ())])
    ['warning: label.rare: a.csv:3: a label of one row. Fix: give it more. (4 rows in all)']
    """
    lines = []
    for finding in findings:
        if finding.severity == "warn":
            rows = f" ({counted(finding.rows, 'row')} in all)" if finding.rows > 1 else ""
            case = ""
            for sample in finding.samples[:1]:
                fix = f" Fix: {_sentence(sample.fix)}" if sample.fix else ""
                case = escaped(f": {sample.place}: {_sentence(sample.text)}{fix}")
            lines.append(f"warning: {finding.code}{case}{rows}")
    return lines


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."
