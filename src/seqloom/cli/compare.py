"""`seqloom compare`: models side by side with the same budget, and which differences are more than chance."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from seqloom.cli.options import DATA, Data, DeviceName, Given, encoded, option, takes
from seqloom.cli.terminal import Screen
from seqloom.config.data import DataConfig
from seqloom.config.options import said, settings, with_flags
from seqloom.config.training import TrainingConfig
from seqloom.data.problems import escaped
from seqloom.errors import ConfigError
from seqloom.report.numbers import duration, number
from seqloom.training.wishes import Wishes

if TYPE_CHECKING:
    from seqloom.experiments.compare.distances import Distances
    from seqloom.experiments.compare.plan import Budget, ComparisonPlan, ComparisonReport
    from seqloom.experiments.compare.results import Comparison

BUDGETS = ("symbols", "parameters", "seconds")
WHY = {
    "done": "done; more --seeds or --models go on from here",
    "stopped": "stopped; the same command goes on",
    "disk": "ended: a checkpoint could not be written; the same command goes on",
}
own = partial(option, panel="The comparison")  # the panel of its options


@takes(settings(Wishes, "size"), settings(TrainingConfig, "epochs", "validate_every", "metric"), DATA)
def compare(
    data: Data,
    out: Annotated[Path, own("--out", "FOLDER", "Where runs and results go; what is there goes on.")],
    models: Annotated[str, own("--models", "NAMES", "Recipes, such as cnn,lstm; a baseline is always added.")],
    budget: Annotated[
        str | None, own("--budget", "KIND", f"What is equal: {', '.join(BUDGETS)}; else symbols.")
    ] = None,
    symbols: Annotated[int | None, own("--symbols", "COUNT", "Each model reads so many symbols.")] = None,
    parameters: Annotated[
        int | None, own("--parameters", "COUNT", "Each recipe is made so wide that it has about so many.")
    ] = None,
    seconds: Annotated[float | None, own("--seconds", "COUNT", "Each model trains so long.")] = None,
    seeds: Annotated[int, own("--seeds", "COUNT", "Runs of each model; one gives no verdict, two tell little.")] = 3,
    jobs: Annotated[int | None, own("--jobs", "COUNT", "Runs at the same time; else as cores allow.")] = None,
    on_test: Annotated[
        bool, own("--on-test", None, "Judge on the test part; each look is written down. Else on dev.")
    ] = False,
    distances: Annotated[
        str | None,
        own("--distances", "NUMBERS", "Of the sets copy and copy_memory: how far the answer lies, such as 10,100."),
    ] = None,
    json: Annotated[bool, own("--json", None, "Print the results as JSON.")] = False,
    *,
    given: Given,
    device: DeviceName = "auto",
) -> None:
    """Compare models that had the same budget, over several seeds, with intervals and tests.

    The same command again goes on with a comparison that was stopped, and trains no finished run again.
    """
    chosen = _budget(budget, {"symbols": symbols, "parameters": parameters, "seconds": seconds}, "epochs" in given)
    from seqloom.experiments.compare.distances import Distances
    from seqloom.experiments.compare.plan import ComparisonEnded, ComparisonPlan

    plan = ComparisonPlan(
        data=with_flags(DataConfig(train=tuple(data)), given),
        out=str(out),
        models=tuple(name.strip() for name in models.split(",") if name.strip()),
        budget=chosen,
        seeds=seeds,
        part="test" if on_test else "dev",
        size=said(Wishes, given).get("size", "small"),
        settings=msgspec.to_builtins(said(TrainingConfig, given)),
        encoding=encoded(given),
        device=device,
    )
    results: Comparison | Distances | None = None
    screen, why, code = Screen(stderr=True), "done", 0
    for report in _reports(plan, distances, jobs or _usual_jobs(plan)):
        screen.say(*(() if json else _lines(report)))
        if isinstance(report, ComparisonEnded):
            results, why, code = report.comparison, report.why, report.exit_code
        if isinstance(report, Distances):
            results = report
    _show(plan, results, why, json=json)
    raise typer.Exit(code)


def _budget(kind: str | None, given: dict[str, float | None], epochs: bool) -> "Budget":
    """The budget that was named, by its kind or by its amount; `epochs`: whether they are said too."""
    amounts = {name: amount for name, amount in given.items() if amount is not None}
    chosen = kind or next(iter(amounts), BUDGETS[0])
    if chosen not in BUDGETS:
        raise ConfigError(f"--budget {chosen!r}", fix=f"choose from {', '.join(BUDGETS)}")
    if others := [name for name in amounts if name != chosen]:
        raise ConfigError(
            f"--{others[0]} with a budget of {chosen}", fix="only one thing can be equal: give one of them"
        )
    if chosen != "parameters" and epochs:
        usual = "" if kind or amounts else " (the usual one)"
        fix = f"leave --epochs out, give --{chosen} COUNT instead, or take --budget parameters"
        raise ConfigError(f"--epochs beside --budget {chosen}{usual}, which says how long already", fix=fix)
    from seqloom.experiments.compare.plan import Budget

    return Budget(kind=chosen, amount=amounts.get(chosen))  # type: ignore[arg-type]  # one of BUDGETS


def _usual_jobs(plan: "ComparisonPlan") -> int:
    """As many runs at the same time as there are cores for; one where runs would take each other's time."""
    import os

    import torch

    alone = plan.budget.kind == "seconds" or (plan.device != "cpu" and torch.cuda.is_available())
    return 1 if alone else max(1, min(plan.seeds, os.cpu_count() or 1))


def _reports(plan: "ComparisonPlan", distances: str | None, jobs: int) -> Iterator[Any]:
    """Of one comparison, or of one at each distance."""
    from seqloom.experiments.compare.comparison import referee
    from seqloom.experiments.compare.distances import referee_distances

    if distances is None:
        return referee(plan, jobs)
    words = [word.strip() for word in distances.split(",") if word.strip()]
    if not words or not all(word.isdecimal() for word in words):
        raise ConfigError(f"--distances {distances!r}", fix="give whole numbers, such as 10,100,1000")
    return referee_distances(plan, [int(word) for word in words], jobs)


def _lines(report: "ComparisonReport") -> list[str]:
    """A report in words."""
    from seqloom.experiments.compare.plan import ComparisonBegun, Measuring, RunBegun, RunEnded

    if isinstance(report, ComparisonBegun):
        lines = [*report.said, f"{report.finished} of {report.wanted} runs are finished"]
        if report.finished == report.wanted:
            return lines
        work = "reads the data and builds its model, then trains: that may take a while"
        processes = f"{report.together} processes start, and each {work}"
        return [*lines, processes if report.together > 1 else f"the first of the others is prepared: it {work}"]
    if isinstance(report, RunBegun):
        return [f"{report.entry.name}: {report.said}"]
    if isinstance(report, RunEnded):
        score = "" if report.score is None else f"{number(report.score)} after {duration(report.seconds)}"
        return [f"{report.entry.name}: {score or report.problem}"]
    if isinstance(report, Measuring):
        return [f"measuring speed and memory of {report.models} models, in turn"]
    return []


def _show(plan: "ComparisonPlan", results: "Comparison | Distances | None", why: str, *, json: bool) -> None:
    screen = Screen()
    if results is not None and json:
        return screen.say(msgspec.json.format(msgspec.json.encode(results), indent=2).decode())
    if results is not None:
        screen.show(results)
    place = escaped(str(plan.folder))
    lines = ["", WHY[why]]
    if results is not None:
        lines += [f"  report   {place}/report.html", f"  results  {place}/results.json"]
    return screen.say(*lines)
