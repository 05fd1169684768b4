"""A run as people see it on the command line: data being read, reports as they come, and how it ended."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from seqloom.cli.progress import display, score
from seqloom.cli.terminal import Screen
from seqloom.data.problems import escaped
from seqloom.files.layouts import RunFile
from seqloom.report.numbers import duration
from seqloom.training.events import Begun, Ended, Report, Stepped

if TYPE_CHECKING:
    from seqloom.tasks.task import Task

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
        facts |= {
            "chosen_step": ended.chosen_step,
            "metrics": ended.metrics,
            "calibrated": calibrated,
            "seconds": ended.pace.seconds,
        }
        record = facts | {name: str(place) for name, place in places.items()}
        Screen().say_json(record)
        return
    lines = [f"{WHY[ended.why]} after {ended.step:,} steps, {duration(ended.pace.seconds)}", *_chosen(ended, task)]
    lines += [f"  calibrated, each half of dev by the other half: {_scores(calibrated)}"] if calibrated else []
    lines += [f"  {name:7} {place}" for name, place in places.items() if place.exists()]
    Screen().say(*lines, "next:", *_next(escaped(str(out)), task))


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


def _next(out: str, task: "Task") -> list[str]:
    """What to type next: how the model is asked, by one text where it reads such, and how it is judged."""
    asked = [task.asking.text] if task.asked.schema.input.in_lines else []
    lines = (*asked, task.asking.file, *task.asking.then, "seqloom evaluate RUN", "seqloom doctor RUN")
    return [f"  {line.replace('RUN', out)}" for line in lines]
