"""`seqloom tune`: many short runs that search for settings with a better score on the dev set."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from seqloom.cli.options import DATA, Data, DeviceName, Given, encoded, option, reworded, takes
from seqloom.cli.terminal import Screen
from seqloom.config.base import read
from seqloom.config.data import DataConfig
from seqloom.config.options import said, settings, with_flags
from seqloom.config.training import SpaceConfig, TrainingConfig
from seqloom.data.problems import escaped
from seqloom.errors import ConfigError
from seqloom.report.numbers import duration, number

if TYPE_CHECKING:
    from seqloom.experiments.tune.plan import TuningEnded, TuningPlan, TuningReport

PRUNERS = ("median", "hyperband", "none")
WHY = {
    "done": "done; give more --trials to continue the search",
    "seconds": "time is up; run the same command again to resume",
    "stopped": "stopped; run the same command again to resume",
    "disk": "stopped: checkpoints could not be saved; free disk space, and run the same command again to resume",
}
own = partial(option, panel="Search")  # the panel of its options


@takes(
    reworded(
        settings(TrainingConfig, "epochs", "steps", "tokens", "patience", "validate_every", "seed"),
        epochs="Train each trial for this many epochs (default: 3 to 60, fewer for more data).",
    ),
    reworded(DATA, test=f"{DATA['test'].help} Tune never reads it; best.toml keeps it for later runs."),
    common=("out", "models", "trials", "seconds", "space", "pruner", "jobs", "epochs", "dev", "device"),
    examples=(
        "seqloom tune reviews.csv --out tuned --trials 30",
        "seqloom tune reviews.csv --models cnn,lstm --seconds 600 --out tuned",
    ),
)
def tune(
    data: Data,
    out: Annotated[Path, own("--out -o", "FOLDER", "Folder of trials and results; an existing search is resumed.")],
    models: Annotated[
        str | None, own("--models", "NAMES", "Recipes to try, such as cnn,lstm (default: depends on the task).")
    ] = None,
    trials: Annotated[
        int, own("--trials", "COUNT", "Total number of trials, over all processes and machines (default: 20).")
    ] = 20,
    seconds: Annotated[
        float, own("--seconds", "COUNT", "Stop after this many seconds (default: when all trials are done).")
    ] = 0.0,
    storage: Annotated[
        str | None,
        own(
            "--storage",
            "URL",
            "Database of the trials: sqlite:///FILE, or postgresql://... for several machines (default: a SQLite file "
            "in --out).",
        ),
    ] = None,
    study: Annotated[
        str | None,
        own("--study", "NAME", "Name of the Optuna study in --storage (default: the name of the --out folder)."),
    ] = None,
    space: Annotated[
        Path | None,
        own(
            "--space",
            "FILE",
            "Search space, a .toml file (default: search lr, dropout, batch_tokens, "
            "warmup, weight_decay, size and schedule).",
        ),
    ] = None,
    pruner: Annotated[
        str, own("--pruner", "NAME", f"Rule that stops bad trials early: {', '.join(PRUNERS)} (default: median).")
    ] = "median",
    jobs: Annotated[int, own("--jobs", "COUNT", "Number of trials at the same time on this machine (default: 1).")] = 1,
    search_seed: Annotated[int, own("--search-seed", "NUMBER", "Random seed for the search (default: 0).")] = 0,
    json: Annotated[bool, own("--json", None, "Print the results as JSON (default: tables).")] = False,
    *,
    given: Given,
    device: DeviceName = "auto",
) -> None:
    """Search for the settings with the best score on the dev set. The test set is never read.

    Run the same command again to resume. With PostgreSQL as --storage, several machines can share one search.
    """
    if pruner not in PRUNERS:
        raise ConfigError(f"--pruner {pruner!r}", fix=f"choose from {', '.join(PRUNERS)}")
    config, how, named = with_flags(DataConfig(train=tuple(data)), given), encoded(given), said(TrainingConfig, given)
    searched = SpaceConfig() if space is None else read(space, SpaceConfig)
    from seqloom.experiments.tune.plan import TuningEnded, TuningPlan
    from seqloom.experiments.tune.tuning import search

    names = tuple(name.strip() for name in (models or "").split(",") if name.strip())
    plan = TuningPlan(
        data=config,
        out=str(out),
        storage=storage or "",
        study=study or "",
        space=msgspec.structs.replace(searched, models=names) if names else searched,
        trials=trials,
        seconds=seconds,
        pruner=pruner,  # type: ignore[arg-type]  # one of PRUNERS
        seed=search_seed,
        settings=msgspec.to_builtins(named),
        encoding=how,
        device=device,
    )
    screen = Screen(stderr=True)
    for report in search(plan, jobs):
        screen.say(*(() if json else _lines(report)))
    assert isinstance(report, TuningEnded), "the last report"
    _show(plan, report, json=json)
    raise typer.Exit(report.exit_code)


def _lines(report: "TuningReport") -> list[str]:
    """Format an event as lines of text; the steps of a trial are left out."""
    from seqloom.experiments.tune.plan import TrialEnded, TrialReport, TrialStarted, TuningStarted, TuningWorkerLost
    from seqloom.training.events import Validated

    if isinstance(report, TuningStarted):
        where = f"study '{report.study}' in {report.storage}: {report.finished} of {report.wanted} trials are done"
        return [*report.messages, where]
    if isinstance(report, TrialStarted):
        params = ", ".join(
            f"{name} {value if isinstance(value, str) else number(value)}" for name, value in report.params.items()
        )
        return [f"trial {report.number}: {'default settings' if report.is_default else params}"]
    if isinstance(report, TrialReport) and isinstance(report.report, Validated):
        seen = report.report
        scores = ", ".join(f"{name} {number(value)}" for name, value in seen.metrics.items())
        return [f"  step {seen.step:,}, {duration(seen.speed.seconds)}: {scores}"]
    if isinstance(report, TrialEnded):
        score = "" if report.value is None else f" {number(report.value)}"
        best, problem = ", best so far" if report.best else "", f": {report.problem}" if report.problem else ""
        return [f"trial {report.number} {report.state}{score}{best}{problem}"]
    if isinstance(report, TuningWorkerLost):
        return [report.problem]
    return []


def _show(plan: "TuningPlan", ended: "TuningEnded", *, json: bool) -> None:
    screen = Screen()
    if json:
        return screen.say_json(ended.results.to_json() | {"reason": ended.reason})
    screen.show(ended.results)
    place = escaped(str(plan.folder))
    lines = ["", WHY[ended.reason], f"  report  {place}/report.html"]
    if (best := ended.results.best) is not None:
        lines += [f"  best    {place}/best.toml", f"  model   {place}/model"]
        lines += [f"  trials  {place}/trials: settings, curves and pages of each; weights only of trial {best.number}"]
        lines += [
            "next:",
            f"  seqloom train --config {place}/best.toml --out RUN",
            f"  seqloom predict {place}/model FILE",
        ]
    return screen.say(*lines)
