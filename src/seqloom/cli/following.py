"""A run as people see it on the command line: data being read, reports as they come, and how it ended."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from seqloom.cli.progress import display, duration, score
from seqloom.cli.screen import Screen
from seqloom.data.problems import counted, escaped
from seqloom.data.schema import InputKind
from seqloom.training.reports import Begun, Ended, Report, Stepped

if TYPE_CHECKING:
    from seqloom.data.survey import Progress as Stage
    from seqloom.data.survey import Watch

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
ASKING, ASKED = 'echo "some text" | ', ("text", "words")  # one text from the shell, and the models that read such


@contextmanager
def reading_bar(screen: Screen) -> Iterator["Watch"]:
    """Something that shows how far the reading of data is; of several processes the first one shows it."""
    quiet = not screen.is_terminal or os.environ.get("RANK", "0") != "0"
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rows]}"))
    with Progress(*columns, console=screen, transient=True, disable=quiet) as bar:
        work = bar.add_task("reading", total=None, rows="")

        def show(stage: "Stage") -> None:
            total = None if stage.share is None else 1.0
            rows = counted(stage.rows, "row")
            bar.update(work, description=stage.stage, rows=rows, total=total, completed=stage.share)

        yield show


def drawn(reports: Iterator[Report], out: Path) -> Iterator[Report]:
    """The reports, which TensorBoard also gets."""
    from seqloom.training.tensorboard import Events

    events = Events(out / "tensorboard")
    for report in reports:
        events.take(report)
        yield report


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


def summary(out: Path, ended: Ended, metric: str, *, json: bool, asks: InputKind = "text") -> None:
    """Tell how a run ended, where everything lies, and what to type next; `asks` is what the model reads."""
    places = {"model": out / "model", "report": out / "report.html", "card": out / "card.md"}
    if json:
        facts = {"run": str(out), "why": ended.why, "step": ended.step, "best_step": ended.best_step}
        facts |= {"metrics": ended.metrics, "seconds": ended.pace.seconds}
        record = facts | {name: str(place) for name, place in places.items()}
        Screen().print(msgspec.json.encode(record).decode(), markup=False, soft_wrap=True)
        return
    scores = [score(ended.metrics, name) for name in dict.fromkeys((metric, *ended.metrics)) if name in ended.metrics]
    best = (
        f"best on the dev part, at step {ended.best_step:,}: {', '.join(scores)}" if scores else "no dev part to score"
    )
    lines = [f"{WHY[ended.why]} after {ended.step:,} steps, {duration(ended.pace.seconds)}", best]
    lines += [f"  {name:7} {place}" for name, place in places.items() if place.exists()]
    shown = escaped(str(out))
    lines += ["next:", *([f"  {ASKING}seqloom predict {shown} -"] if asks in ASKED else [])]
    lines += [f"  seqloom {rest}" for rest in (f"predict {shown} FILE", f"evaluate {shown}", f"doctor {shown}")]
    for line in lines:
        Screen().print(line, markup=False, soft_wrap=True)
