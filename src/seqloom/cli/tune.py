"""`seqloom tune`: many short runs that look for settings with a better score on the dev part."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from seqloom.cli.options import DATA, Data, DeviceName, Given, encoded, option, takes
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
    "done": "done; a larger --trials goes on",
    "seconds": "time is up; the same command goes on",
    "stopped": "stopped; the same command goes on",
    "disk": "ended: checkpoints could not be written",
}
own = partial(option, panel="The search")  # the panel of its options


@takes(settings(TrainingConfig, "epochs", "steps", "symbols", "patience", "validate_every", "seed"), DATA)
def tune(
    data: Data,
    out: Annotated[Path, own("--out", "FOLDER", "Where trials and results go; what is there goes on.")],
    models: Annotated[
        str | None, own("--models", "NAMES", "Recipes to choose from, such as cnn,lstm; else the usual one.")
    ] = None,
    trials: Annotated[int, own("--trials", "COUNT", "Trials in all, over all processes and machines.")] = 20,
    seconds: Annotated[float, own("--seconds", "COUNT", "Stop after so long; 0: when all are done.")] = 0.0,
    storage: Annotated[
        str | None, own("--storage", "URL", "sqlite:///FILE, or postgresql://... for several machines; else in --out.")
    ] = None,
    study: Annotated[
        str | None, own("--study", "NAME", "The name of the study in the storage; else that of --out.")
    ] = None,
    space: Annotated[Path | None, own("--space", "FILE", "What is searched, as a .toml file of kind space.")] = None,
    pruner: Annotated[str, own("--pruner", "NAME", f"How trials are given up: {', '.join(PRUNERS)}.")] = "median",
    jobs: Annotated[int, own("--jobs", "COUNT", "Trials at the same time on this machine.")] = 1,
    search_seed: Annotated[int, own("--search-seed", "NUMBER", "Of the draws of parameters.")] = 0,
    json: Annotated[bool, own("--json", None, "Print the results as JSON.")] = False,
    *,
    given: Given,
    device: DeviceName = "auto",
) -> None:
    """Search settings that score better on the dev part; the test part is never read.

    The same command again goes on with a search that was stopped, on this machine or, with PostgreSQL, on several.
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
    """A report in words; steps of a trial are not told."""
    from seqloom.experiments.tune.plan import TrialBegun, TrialEnded, TrialTold, TuningBegun, WorkerLost
    from seqloom.training.events import Validated

    if isinstance(report, TuningBegun):
        where = f"study '{report.study}' in {report.storage}: {report.finished} of {report.wanted} trials are finished"
        return [*report.said, where]
    if isinstance(report, TrialBegun):
        params = ", ".join(
            f"{name} {value if isinstance(value, str) else number(value)}" for name, value in report.params.items()
        )
        return [f"trial {report.number}: {'the settings that nobody tuned' if report.is_default else params}"]
    if isinstance(report, TrialTold) and isinstance(report.report, Validated):
        seen = report.report
        scores = ", ".join(f"{name} {number(value)}" for name, value in seen.metrics.items())
        return [f"  step {seen.step:,}, {duration(seen.pace.seconds)}: {scores}"]
    if isinstance(report, TrialEnded):
        score = "" if report.value is None else f" {number(report.value)}"
        best, problem = ", the best so far" if report.best else "", f": {report.problem}" if report.problem else ""
        return [f"trial {report.number} {report.state}{score}{best}{problem}"]
    if isinstance(report, WorkerLost):
        return [report.problem]
    return []


def _show(plan: "TuningPlan", ended: "TuningEnded", *, json: bool) -> None:
    screen = Screen()
    if json:
        return screen.say_json(ended.results.to_json() | {"why": ended.why})
    screen.show(ended.results)
    place = escaped(str(plan.folder))
    lines = ["", WHY[ended.why], f"  report  {place}/report.html"]
    if (best := ended.results.best) is not None:
        lines += [f"  best    {place}/best.toml", f"  model   {place}/model"]
        lines += [f"  trials  {place}/trials: settings, curves and pages of each; weights only of trial {best.number}"]
        lines += [
            "next:",
            f"  seqloom train --config {place}/best.toml --out RUN",
            f"  seqloom predict {place}/model FILE",
        ]
    return screen.say(*lines)
