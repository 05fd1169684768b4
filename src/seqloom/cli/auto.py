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

if TYPE_CHECKING:
    from seqloom.experiments.auto.plan import AutoEnded, AutoPlan

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
    from seqloom.experiments.auto.plan import AutoEnded, AutoPlan, CandidateReport
    from seqloom.experiments.auto.progress import told
    from seqloom.experiments.auto.race import default_folder, race
    from seqloom.training.events import Stepped

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
            found = told(event, plan.seconds)
            screen.say(*(() if json else map(escaped, found.lines)))
            if isinstance(event, CandidateReport) and isinstance(event.report, Stepped):
                show(Progress(f"steps of {found.now}", event.report.step, part=found.share))
    assert isinstance(event, AutoEnded), "the last event"
    _show(plan, event, json=json)
    raise typer.Exit(event.exit_code)


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
