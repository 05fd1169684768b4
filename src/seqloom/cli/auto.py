"""`seqloom auto`: find the best model for a data file within a few minutes."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from seqloom.cli.options import DATA, Data, DeviceName, Given, option, require_device, takes
from seqloom.cli.terminal import Screen, work_bar
from seqloom.config.data import DataConfig, asked_encoding
from seqloom.config.options import said, settings, with_flags
from seqloom.config.training import TrainingConfig
from seqloom.data.problems import escaped
from seqloom.events import Progress
from seqloom.report.numbers import counted, duration, number

if TYPE_CHECKING:
    from seqloom.experiments.auto.plan import AutoEnded, AutoEvent, AutoPlan

WHY = {
    "done": "done; give more --minutes to try more variants",
    "seconds": "time is up; give more --minutes to continue",
    "stopped": "stopped; run the same command again to resume",
    "disk": "stopped: checkpoints could not be written",
}
own = partial(option, panel="Race")  # the help panel of the options below


@takes(
    settings(TrainingConfig, "metric", "seed"),
    DATA,
    common=("minutes", "out", "models", "init", "task", "input", "target", "dev", "test", "device"),
    examples=(
        "seqloom auto reviews.csv --minutes 5",
        "seqloom auto reviews.csv --minutes 20 --models linear,cnn,transformer --out best",
    ),
)
def auto(
    data: Data,
    minutes: Annotated[float, own("--minutes", "COUNT", "Time limit of the race, in minutes (default: 5).")] = 5.0,
    out: Annotated[
        Path | None,
        own(
            "--out -o",
            "FOLDER",
            "Folder for the best model and all runs; if it has a race, resume it (default: runs/NAME-auto).",
        ),
    ] = None,
    models: Annotated[
        str | None,
        own(
            "--models", "NAMES", "Recipes to try, such as cnn,lstm; a baseline is added (default: depends on the task)."
        ),
    ] = None,
    init: Annotated[
        str | None,
        own("--init", "MODEL", "A trained or imported model to fine-tune as one more candidate (default: none)."),
    ] = None,
    json: Annotated[bool, own("--json", None, "Print the leaderboard as JSON (default: tables).")] = False,
    *,
    given: Given,
    device: DeviceName = "auto",
) -> None:
    """Find the best model for your data within a few minutes; the test set is never read.

    Several recipes compete on the dev set: the better half continues with more steps, until one is left. Run the same
    command again to resume.
    """
    require_device(device)
    config, named = with_flags(DataConfig(train=tuple(data)), given), said(TrainingConfig, given)
    how = asked_encoding(given)
    from seqloom.experiments.auto.plan import AutoEnded, AutoPlan
    from seqloom.experiments.auto.race import default_folder, race

    plan = AutoPlan(
        data=config,
        out=str(out or default_folder(data[0])),
        minutes=minutes,
        models=tuple(name.strip() for name in (models or "").split(",") if name.strip()),
        init=init or "",
        settings=msgspec.to_builtins(named),
        encoding=how,
        device=device,
    )
    screen = Screen(stderr=True)
    with work_bar(screen) as show:
        for event in race(plan):
            screen.say(*(() if json else _lines(event)))
            if (progress := _progress(event, plan.seconds)) is not None:
                show(progress)
    assert isinstance(event, AutoEnded), "the last event"
    _show(plan, event, json=json)
    raise typer.Exit(event.exit_code)


def _lines(event: "AutoEvent") -> list[str]:
    """The lines to print for an event; training steps print nothing."""
    from seqloom.experiments.auto.plan import AutoStarted, CandidateEnded, CandidateStarted, Probed, RungStarted

    match event:
        case AutoStarted():
            spent = f", {duration(event.spent)} already spent" if event.spent >= 1 else ""
            about = f"{duration(event.seconds)}{spent}; the best dev {event.metric} wins"
            return [*map(escaped, event.messages), f"{', '.join(event.candidates)}: {about}"]
        case Probed():
            full = duration(event.whole_seconds)
            return [f"{event.candidate}: {duration(event.step_seconds)} per step, about {full} in full"]
        case RungStarted():
            dropped = f"; dropped: {', '.join(event.dropped)}" if event.dropped else ""
            runs = counted(len(event.entries), "candidate")
            return [f"rung {event.rung}: {runs}{dropped}"]
        case CandidateStarted():
            about = f", about {duration(event.entry.seconds)}" if event.entry.default_steps else ""
            return [f"  {event.entry.candidate.name}: {event.entry.length}{about}; {_left(event.left)}"]
        case CandidateEnded():
            if event.score is None:
                return [f"  {event.entry.candidate.name}: {escaped(event.problem)}"]
            best = ", best so far" if event.best else ""
            took = duration(event.seconds)
            return [f"  {event.entry.candidate.name}: {number(event.score)} after {took}{best}; {_left(event.left)}"]
    return []


def _left(seconds: float) -> str:
    return f"{duration(seconds)} left" if seconds > 0 else "time is up"


def _progress(event: "AutoEvent", seconds: float) -> Progress | None:
    """The share of the time that is spent, and the current run."""
    from seqloom.experiments.auto.plan import CandidateReport
    from seqloom.training.events import Stepped

    if not isinstance(event, CandidateReport) or not isinstance(event.report, Stepped):
        return None
    part = min(1.0, 1 - event.left / seconds)
    return Progress(f"steps of {event.entry.candidate.name}; {_left(event.left)}", event.report.step, part=part)


def _show(plan: "AutoPlan", ended: "AutoEnded", *, json: bool) -> None:
    screen, board = Screen(), ended.leaderboard
    if json and board is not None:
        return screen.say_json(board.to_json() | {"reason": ended.reason})
    if board is not None:
        screen.show(board)
    place = escaped(str(plan.folder))
    lines = ["", WHY[ended.reason]]
    if board is not None and ended.exit_code == 0:
        lines += [f"  model        {place}/model", f"  leaderboard  {place}/leaderboard.html"]
        lines += [
            f"  runs         {place}/runs: settings, curves and reports of all runs; only the winner keeps its weights"
        ]
        lines += ["next:", *(f"  {escaped(command)}" for command in board.commands)]
    return screen.say(*lines)
