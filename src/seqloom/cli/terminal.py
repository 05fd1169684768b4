"""Output of the verbs: the screen, exit codes, progress bars, and the display of a run."""

import errno
import math
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from seqloom.data.problems import escaped
from seqloom.errors import DamagedError, RepeatError
from seqloom.events import Event, Progress, Result, Show, finished
from seqloom.files.layouts import RunFile
from seqloom.report.numbers import counted, duration, share, size
from seqloom.report.terminal import block_lines
from seqloom.training.events import Ended, Notice, Report, Sample, Started, Stepped, Validated, Wrote
from seqloom.training.progress import GAP, KEPT, ProgressFacts, brief_names, score, sparkline, written_blocks

if TYPE_CHECKING:
    from seqloom.data.checks.check import DataFinding
    from seqloom.report.document import Document, Shown
    from seqloom.report.figures.figure import Figure
    from seqloom.tasks.task import Task


NARROWEST, WIDEST = 50, 110  # columns of a document
SAMPLE_LENGTH = 60  # characters of an input or a prediction


class Screen(Console):
    """A console that prints text unchanged; a closed pipe is not an error."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(highlight=False, emoji=False, stderr=stderr)

    def on_broken_pipe(self) -> None:
        """End the command like rich, but with exit code 0."""
        try:
            super().on_broken_pipe()
        except SystemExit:
            raise SystemExit(0) from None

    def say(self, *lines: str) -> None:
        """Print lines without wrapping."""
        for line in lines:
            self.print(line, markup=False, soft_wrap=True)

    def say_json(self, value: Any) -> None:
        self.say(msgspec.json.encode(value).decode())

    def room(self, widest: int = WIDEST, narrowest: int = NARROWEST) -> int:
        """The columns of a document."""
        return max(narrowest, min(widest, self.width))

    def show(self, result: "Document | Shown | Figure", widest: int = WIDEST, narrowest: int = NARROWEST) -> None:
        """Print a document or a figure as wide as the terminal allows, in color if it has colors."""
        colored = self.color_system is not None and not self.no_color
        drawn = result.text(self.room(widest, narrowest), colored)
        self.print(Text.from_ansi(drawn.rstrip("\n")), soft_wrap=True)


# Exit codes, for scripts.
#
# 0    done                                  3    a file is damaged
# 1    a bug: please report it               4    the disk is full, broken or read-only
# 2    bad input or usage                    5    the loss or the gradient was not finite
# 6    run the same command again: it resumes
# 7    done, but some rows could not be predicted: each has a line that says why
# 129, 130, 143    stopped by a signal: hang-up, Ctrl-C, terminate

BAD_INPUT, DAMAGED, DISK, NOT_FINITE, REPEAT, SOME_BAD = 2, 3, 4, 5, 6, 7
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}


def exit_code_of(error: BaseException) -> int:
    """Return the exit code for an error that ended a command."""
    if isinstance(error, DamagedError):
        return DAMAGED
    if isinstance(error, RepeatError):
        return REPEAT
    cause = error if isinstance(error, OSError) else error.__cause__
    return DISK if isinstance(cause, OSError) and cause.errno in DISK_ERRORS else BAD_INPUT


# Progress of long work: on a terminal a bar with the remaining time, elsewhere nothing.


@contextmanager
def work_bar(screen: Screen | None = None) -> Iterator[Show]:
    """Yield a function that moves a progress bar; with several processes, only the first shows it.

    Lines that are printed on the same screen appear above the bar.
    """
    screen = screen or Screen(stderr=True)
    quiet = not screen.is_terminal or os.environ.get("RANK", "0") != "0"
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Bar(*columns, console=screen, transient=True, disable=quiet) as bar:
        work = bar.add_task("", total=None)

        def show(progress: Progress) -> None:
            share = progress.share
            if (share or 0.0) < bar.tasks[0].completed:  # the next stage begins
                bar.reset(work)
            bar.update(work, description=str(progress), completed=share, total=None if share is None else 1.0)

        yield show


def followed_work(work: Generator[Event, None, Result], show_event: Callable[[Event], object] | None = None) -> Result:
    """Run long work with a progress bar and return its result; `show_event` is called with each event."""
    with work_bar() as show:

        def seen(event: Event) -> None:
            if show_event is not None:
                show_event(event)
            if isinstance(event, Progress):
                show(event)

        return finished(work, seen)


# The display of a run during training: live in a terminal, plain lines elsewhere.
#
#     ━━━━━━━━━━━━━━━━━━━━━╸━━━━━━━━━━ 63 %                      validations scroll above, the best with two samples
#     step 126 of 200 · epoch 2 · 7.1 s · 4.2 s left             as many lines as the terminal needs
#     loss 0.231 ▇▅▃▂▁ · exact 98.1 % · best 98.4 % at 120 · 52,300 tokens/s · padding 3 % · memory 412 MB
#
# `followed` shows a run, and `summary` its result; both only read events. Control characters in texts are escaped.

BETWEEN_LINES = 10.0  # seconds between plain lines about steps


@contextmanager
def display(screen: Screen, metric: str) -> "Iterator[PlainLines | LiveLines]":
    """Yield a display for the screen; `metric` is the selection metric."""
    if not screen.is_terminal or screen.is_dumb_terminal:
        yield PlainLines(screen, metric)
        return
    with Live(console=screen, refresh_per_second=8, transient=True, redirect_stdout=False) as live:
        yield LiveLines(screen, metric, live)


class PlainLines:
    """One line for each validation and notice, and one every ten seconds; for logs and pipes."""

    def __init__(self, screen: Screen, metric: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.screen, self.metric, self.clock = screen, metric, clock
        self.facts = ProgressFacts(metric)
        self._last = clock()

    def take(self, report: Report) -> None:
        self.facts.take(report)
        match report:
            case Started():
                self._print(*begun_lines(report))
            case Stepped() if self.clock() - self._last >= BETWEEN_LINES:
                self._last = self.clock()
                self._print(Text(GAP.join([share(report.progress), *self.facts.words()])))
            case Validated():
                self._last = self.clock()
                self._print(*validation_lines(report, self.metric, self.facts.news(report)))
            case Notice():
                self._print(notice_line(report))
            case Wrote():
                self._print(*written_lines(report, self.screen.room()))

    def _print(self, *lines: Text) -> None:
        for line in lines:
            self.screen.print(line, soft_wrap=True)


class LiveLines:
    """A progress bar and numbers that are updated in place, below the validations."""

    def __init__(self, screen: Screen, metric: str, live: Live) -> None:
        self.screen, self.metric, self.live = screen, metric, live
        self.facts = ProgressFacts(metric)

    def take(self, report: Report) -> None:
        self.facts.take(report)
        match report:
            case Started():
                self._above(begun_lines(report))
            case Validated():
                self._above(validation_lines(report, self.metric, self.facts.news(report)), cut=True)
            case Notice():
                self._above([notice_line(report)])
            case Wrote():
                self._above(written_lines(report, self.screen.room()))
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


def begun_lines(report: Started) -> list[Text]:
    """The chosen settings, the size of the model, and the run folder."""
    trained = "" if report.trainable == report.parameters else f", {report.trainable:,} of them trained"
    steps = "" if report.steps is None else f"{GAP}{report.steps:,} steps"
    place = f"{GAP}resuming from step {report.step:,}" if report.step else ""
    disk = f"{GAP}{size(report.checkpoint_bytes)} per checkpoint"
    sizes = f"{report.parameters:,} parameters{trained}{steps}{place}{disk}"
    return [
        *(Text(escaped(line)) for line in report.messages),
        Text(sizes),
        Text(f"run folder: {escaped(str(report.folder))}"),
    ]


def validation_lines(report: Validated, metric: str, samples: Sequence[Sample]) -> list[Text]:
    """One line with the selection metric and the loss; two samples below it if the score is the best so far."""
    names = brief_names(report.metrics, metric)
    scores = GAP.join(f"dev {score(report.metrics, name)}" for name in names) or "no dev set"
    head = Text(f"step {report.step:,}{GAP}epoch {report.epoch}{GAP}{scores}")
    if report.chosen and not report.best:
        head.append(f"{GAP}{KEPT}", style="green")
    if not (report.best and names):
        return [head]  # no new samples
    head.append(f"{GAP}best so far", style="green")
    return [head, *sample_lines(samples)]


def sample_lines(samples: Sequence[Sample]) -> list[Text]:
    """A line for each sample, with a mark if predictions are right or wrong."""
    marks = {True: ("correct: ", "green"), False: ("wrong: ", "red"), None: ("", "")}
    return [Text.assemble("  ", marks[sample.correct], sample_line(sample)) for sample in samples]


def sample_line(sample: Sample) -> Text:
    """An input, the prediction, and the label if it differs; the spans of tags are marked in the input."""
    marked = _spans_marked(sample)
    predicted, expected = marked or (brief(sample.predicted), brief(sample.expected))
    line = Text(predicted) if marked else Text.assemble((brief(sample.input), "dim"), " -> ", predicted)
    shown = sample.expected in (sample.predicted, sample.input)
    return line if shown else line.append(f"   expected: {expected}", style="dim")


def _spans_marked(sample: Sample) -> tuple[str, str] | None:
    """The input with the predicted spans, and with the expected ones; None if these are not tags of spans."""
    tags = f"{sample.predicted} {sample.expected}".split()
    types = sorted({tag[2:] for tag in tags if tag[1:2] == "-"})
    if not types:
        return None
    from seqloom.training.run_report import marked_text

    predicted, expected = (marked_text(sample.input, one, types) for one in (sample.predicted, sample.expected))
    if predicted is None or expected is None:
        return None
    return brief(predicted.line(), 2 * SAMPLE_LENGTH), brief(expected.line(), 2 * SAMPLE_LENGTH)


def written_lines(report: Wrote, width: int) -> list[Text]:
    """The texts that the model wrote, complete."""
    return [Text(line) for block in written_blocks(report.texts) for line in block_lines(block, width, color=False)]


def notice_line(report: Notice) -> Text:
    """A notice in color."""
    cure = f" Fix: {escaped(report.fix)}." if report.fix else ""
    return Text(f"step {report.step:,}: {report.code}: {escaped(report.text)}.{cure}", style="yellow")


def packed(words: list[str], width: int) -> list[Text]:
    """Join words to as few lines as the width allows; a word that is too wide is truncated."""
    lines: list[Text] = []
    for word in words:
        longer = lines[-1].plain + GAP + word if lines else word
        if lines and Text(longer).cell_len <= width:
            lines[-1] = Text(longer)
        else:
            lines.append(Text(word))
            lines[-1].truncate(width, overflow="ellipsis")
    return lines


def brief(text: str, longest: int = SAMPLE_LENGTH) -> str:
    """Return the beginning of a text in one line, without invisible characters; it ends after a complete word.

    >>> brief("one two three", 10), brief("x" * 20, 10)
    ('one two…', 'xxxxxxxxx…')
    """
    text = escaped(text[: longest + 1].replace("\n", " "))
    if len(text) <= longest:
        return text
    words = text[:longest].rpartition(" ")[0]  # unless one word is most of it
    return f"{(words if 2 * len(words) >= longest else text[: longest - 1]).rstrip(' .')}…"


WHY = {  # text before and after the number of steps
    "done": ("done", ""),
    "patience": ("stopped early", "; the dev score no longer improved (--patience)"),
    "stopped": ("stopped", "; run the same command again to resume"),
    "not-finite": (
        "stopped",
        ": the loss or the gradient was NaN or infinite; train again in a new folder with a lower --lr",
    ),
    "disk": ("stopped", ": checkpoints could not be saved; free disk space, and run the same command again to resume"),
}
RESUMED = ("stopped", "disk")  # the same command resumes these
UNSAVED = "there is no model yet: one is saved at each validation, and at the end"
PERFECT = "; the dev score is perfect and has stayed so (--patience)"
ALREADY = {
    "done": "this run is already done; give more --epochs (or --steps, --tokens, --seconds) to train it longer",
    "patience": "this run has already stopped early; give a larger --patience to train it longer",
}


def last_of(reports: Iterator[Report]) -> Ended:
    """Return the last event of a run without showing the others."""
    *_, last = reports
    assert isinstance(last, Ended), "a run ends with its end"
    return last


def followed(reports: Iterator[Report], screen: Screen, metric: str, then: tuple[str, ...] = ()) -> Ended:
    """Show the events of a run and return the last; `then` are lines to print after the first event."""
    begun, stepped = None, False
    with display(screen, metric) as lines:
        for report in reports:
            lines.take(report)
            if isinstance(report, Started):
                begun = report
                screen.print(*then, sep="\n", end="\n" if then else "", markup=False, soft_wrap=True)
            stepped = stepped or isinstance(report, Stepped)
    assert isinstance(report, Ended), "a run ends with its end"
    if begun is not None and report.reason in ("done", "patience") and report.step == begun.step and not stepped:
        screen.print(ALREADY[report.reason], markup=False, soft_wrap=True)
    return report


LOSS = "loss"
NOT_LOWER = ", no lower than before, which needs no action"


def summary(out: Path, ended: Ended, task: "Task", *, json: bool, more: Sequence[str] = ()) -> None:
    """Print how a run ended, where its files are, and what to do next: the usual commands, then `more`."""
    places = {"model": out / RunFile.MODEL, "report": out / RunFile.REPORT, "card": out / RunFile.CARD}
    calibrated = _calibrated(out, ended)
    if json:
        facts = {"run": str(out), "reason": ended.reason, "step": ended.step, "best_step": ended.best_step}
        facts |= {"chosen_step": ended.chosen_step, "metrics": ended.metrics, "calibrated": calibrated}
        facts |= {"seconds": ended.speed.seconds} | {name: str(place) for name, place in places.items()}
        return Screen().say_json(facts)
    before, after = WHY[ended.reason]
    if ended.reason == "patience" and task.metric.is_perfect(ended.metrics.get(task.metric.name, math.nan)):
        after = PERFECT
    lines = [f"{before} after {counted(ended.step, 'step')}, {duration(ended.speed.seconds)}{after}"]
    unsaved = not ended.metrics and ended.reason not in ALREADY and not places["model"].exists()
    lines += [UNSAVED] if unsaved else _chosen(out, ended, task)
    if calibrated:
        higher = calibrated.get(LOSS, -math.inf) > ended.metrics.get(LOSS, math.inf)
        after = NOT_LOWER if higher else ""
        lines.append(f"  after calibration of the probabilities (cross-fitted): {_scores(calibrated, task)}{after}")
    named = places | {"model card": places["card"]}
    del named["card"]
    lines += [f"  {name:10} {place}" for name, place in named.items() if place.exists()]
    asked = [task.usage.text] if task.input_spec.schema.input.in_lines else []  # a command with one text
    judged = "seqloom evaluate RUN --split test"
    if not _has_test(out):
        judged = "seqloom evaluate RUN" if ended.metrics else "seqloom evaluate RUN FILE"  # without a dev set
    inside = 'seqloom inspect RUN "some text"' if asked else "seqloom inspect RUN --data FILE"
    then: tuple[str, ...] = ("seqloom doctor RUN", judged, *asked, task.usage.file, *task.usage.then, inside, *more)
    if unsaved:  # no command can read a model
        then = (*(["seqloom train --out RUN"] if ended.reason in RESUMED else []), "seqloom doctor RUN")
    return Screen().say(*lines, "next:", *(f"  {line.replace('RUN', escaped(str(out)))}" for line in then))


def _has_test(out: Path) -> bool:
    """Whether the run has a test set, from a file or drawn from its data."""
    if not (out / RunFile.CONFIG).exists():
        return False
    from seqloom.training.run_folder import RunFolder  # needs torch, and `seqloom --help` does not

    return RunFolder(out).config().data.has_test


def _calibrated(out: Path, ended: Ended) -> dict[str, float]:
    """Return the dev metrics of RUN/model that calibration has changed since the chosen validation."""
    from seqloom.training.run_summary import read_scores  # needs torch, and `seqloom --help` does not

    shipped = read_scores(out / RunFile.MODEL)
    if shipped is None or not shipped.cross_fitted or shipped.step != ended.chosen_step:
        return {}
    known = {name: value for name, value in shipped.dev.items() if value is not None}
    return {name: value for name, value in known.items() if value != ended.metrics.get(name)}


def _chosen(out: Path, ended: Ended, task: "Task") -> list[str]:
    """Return the scores of the chosen validation, and why it was chosen if it is not the best one."""
    if not ended.metrics:
        return ["the model was not evaluated: there is no dev set"]
    if ended.chosen_step == ended.best_step:
        return [
            f"kept the weights of step {ended.best_step:,}, the best on the dev set: {_scores(ended.metrics, task)}"
        ]
    from seqloom.training.run_report import choice_text
    from seqloom.training.run_summary import read_validations

    why = choice_text(read_validations(out), task.metric.name)  # as in the report and the card
    return [
        f"kept the weights of step {ended.chosen_step:,}, chosen by {task.metric.name} on the dev set: "
        f"{_scores(ended.metrics, task)}",
        f"  {why}",
    ]


def _scores(metrics: dict[str, float], task: "Task") -> str:
    names = brief_names(metrics, task.metric.name) or list(metrics)
    return ", ".join(score(metrics, name) for name in names)


def warnings_said(findings: "Iterable[DataFinding]") -> list[str]:
    """Return a line for each kind of warning: code, first case, fix, and number of rows.

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
