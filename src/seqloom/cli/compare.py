"""`seqloom compare`: train models with the same budget, and test which differences are significant."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from seqloom.cli.options import DATA, Data, DeviceName, Given, option, reworded, takes, with_defaults
from seqloom.cli.terminal import Screen
from seqloom.config.data import DataConfig, asked_encoding
from seqloom.config.options import said, settings, stated, with_flags
from seqloom.config.training import TrainingConfig
from seqloom.data.problems import escaped
from seqloom.errors import ConfigError
from seqloom.training.request import RunRequest

if TYPE_CHECKING:
    from seqloom.experiments.compare.distances import Distances
    from seqloom.experiments.compare.plan import ComparisonPlan
    from seqloom.experiments.compare.results import Comparison

WHY = {
    "done": "done; add --seeds or --models to extend the comparison",
    "stopped": "stopped; run the same command again to resume",
    "disk": "stopped: a checkpoint could not be saved; free disk space, and run the same command again to resume",
}
own = partial(option, panel="Comparison")  # the panel of its options


@takes(
    with_defaults(settings(RunRequest, "size"), size="small for every model"),
    reworded(
        settings(TrainingConfig, "epochs", "validate_every", "metric"),
        epochs="Train each model for this many epochs; only with --budget parameters (default: 3 to 60, fewer for more "
        "data).",
    ),
    DATA,
    common=("out", "models", "budget", "tokens", "seconds", "seeds", "size", "jobs", "split", "device"),
    examples=(
        "seqloom compare reviews.csv --models cnn,lstm --out compared",
        "seqloom compare reviews.csv --models cnn,transformer --seconds 120 --seeds 5 --out compared",
    ),
)
def compare(
    data: Data,
    out: Annotated[Path, own("--out -o", "FOLDER", "Folder of runs and results; an existing comparison is resumed.")],
    models: Annotated[
        str,
        own(
            "--models",
            "NAMES",
            "Recipes to compare, such as cnn,lstm; a baseline is always added: linear, or bag, mlp or the "
            "smallest recipe if the task has no linear recipe.",
        ),
    ],
    budget: Annotated[
        str | None,
        own(
            "--budget",
            "NAME",
            "What is equal for all models: tokens (that they train on), parameters or seconds (default: tokens).",
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        own(
            "--tokens",
            "COUNT",
            "Train each model on this many tokens (default: 3 to 60 epochs of the training set, fewer for more data).",
        ),
    ] = None,
    parameters: Annotated[
        int | None,
        own(
            "--parameters",
            "COUNT",
            "Change the widths so that each model has about this many parameters (default: off).",
        ),
    ] = None,
    seconds: Annotated[
        float | None, own("--seconds", "COUNT", "Train each model for this many seconds (default: off).")
    ] = None,
    seeds: Annotated[
        int,
        own(
            "--seeds",
            "COUNT",
            "Number of runs of each model; significance tests need at least 2, better 3 or more (default: 3).",
        ),
    ] = 3,
    jobs: Annotated[
        int | None,
        own(
            "--jobs",
            "COUNT",
            "Number of runs at the same time (default: one per CPU core, at most --seeds; 1 on a GPU or with "
            "--seconds).",
        ),
    ] = None,
    split: Annotated[
        Literal["dev", "test"],
        own("--split", "NAME", "Split to evaluate on: dev or test; each evaluation on test is logged (default: dev)."),
    ] = "dev",
    margin: Annotated[
        float | None,
        own(
            "--margin",
            "NUMBER",
            "Treat a smaller difference in score as a tie (default: 0.01; 1 for BLEU and chrF; 1 % of the best score "
            "for losses, errors and other metrics without a fixed range).",
        ),
    ] = None,
    distances: Annotated[
        str | None,
        own(
            "--distances",
            "NUMBERS",
            "For the copy and copy_memory datasets: compare at each of these distances between a token and its copy, "
            "such as 10,100 (default: none).",
        ),
    ] = None,
    ship: Annotated[
        Path | None,
        own(
            "--ship",
            "FOLDER",
            "Write the model of the winner to this folder: the one with the best score, or a cheaper one that is equal "
            "to it within the margin; the run with the best dev score (default: none).",
        ),
    ] = None,
    json: Annotated[bool, own("--json", None, "Print the results as JSON (default: tables).")] = False,
    *,
    given: Given,
    device: DeviceName = "auto",
) -> None:
    """Train several models with the same budget and several seeds, and compare their scores.

    The results have confidence intervals and significance tests.

    Run the same command again to resume; finished runs are not trained again.
    """
    from seqloom.experiments.compare.distances import Distances
    from seqloom.experiments.compare.plan import Budget, ComparisonEnded, ComparisonPlan
    from seqloom.experiments.compare.progress import told
    from seqloom.experiments.compare.results import Comparison
    from seqloom.experiments.compare.winner import require_shippable, ship_winner

    if ship is not None:
        if distances is not None:
            raise ConfigError("--ship with --distances, where each distance has its own winner", fix="leave one out")
        require_shippable(ship, split)
    amounts = {"tokens": tokens, "parameters": parameters, "seconds": seconds}
    plan = ComparisonPlan(
        data=with_flags(DataConfig(train=tuple(data)), given),
        out=str(out),
        models=tuple(name.strip() for name in models.split(",") if name.strip()),
        budget=Budget.of(budget, stated(amounts), epochs="epochs" in given),
        seeds=seeds,
        split=split,
        margin=margin,
        size=said(RunRequest, given).get("size", "small"),
        settings=msgspec.to_builtins(said(TrainingConfig, given)),
        encoding=asked_encoding(given),
        device=device,
    )
    results: Comparison | Distances | None = None
    screen, why, code = Screen(stderr=True), "done", 0
    for report in _reports(plan, distances, jobs or _default_jobs(plan), ship):
        screen.say(*(() if json or isinstance(report, Distances) else told(report).lines))
        if isinstance(report, ComparisonEnded):
            results, why, code = report.comparison, report.reason, report.exit_code
        if isinstance(report, Distances):
            results = report
    if results is not None and not json:
        Screen().show(results)
    compared = results if isinstance(results, Comparison) else None
    if ship is not None and compared is not None and compared.winner is not None:
        shipped = ship_winner(plan, compared, ship)
        run = f"its run, with the data, is {plan.run_folder(shipped)}"
        screen.say(*([] if json else [""]), escaped(f"shipped the model of {shipped.name} to {ship}; {run}"))
    _close(plan, results, why, json=json)
    if ship is not None and compared is not None and compared.winner is None:
        ship_winner(plan, compared, ship)  # raises with the reason
    raise typer.Exit(code)


def _default_jobs(plan: "ComparisonPlan") -> int:
    """Return one job per core, or one in all if runs would slow each other down."""
    import os

    import torch

    alone = plan.budget.kind == "seconds" or (plan.device != "cpu" and torch.cuda.is_available())
    return 1 if alone else max(1, min(plan.seeds, os.cpu_count() or 1))


def _reports(plan: "ComparisonPlan", distances: str | None, jobs: int, ship: Path | None) -> Iterator[Any]:
    """Yield the events of one comparison, or of one per distance."""
    from seqloom.experiments.compare.comparison import run_comparison
    from seqloom.experiments.compare.distances import run_distances

    if distances is None:
        return run_comparison(plan, jobs, ship=ship)
    words = [word.strip() for word in distances.split(",") if word.strip()]
    if not words or not all(word.isdecimal() for word in words):
        raise ConfigError(f"--distances {distances!r}", fix="give whole numbers, such as 10,100,1000")
    return run_distances(plan, [int(word) for word in words], jobs)


def _close(plan: "ComparisonPlan", results: "Comparison | Distances | None", why: str, *, json: bool) -> None:
    """Print the results as JSON, or where they are and what to do next."""
    from seqloom.experiments.compare.results import Comparison

    screen = Screen()
    if results is not None and json:
        return screen.say(msgspec.json.format(msgspec.json.encode(results), indent=2).decode())
    place = escaped(str(plan.results_folder))
    lines = ["", WHY[why]]
    if results is not None:
        lines += [f"  report   {place}/report.html", f"  results  {place}/results.json"]
    if isinstance(results, Comparison):
        lines += _next(plan, results)
    return screen.say(*lines)


def _next(plan: "ComparisonPlan", results: "Comparison") -> Iterator[str]:
    """The winner, and commands for the next steps."""
    from seqloom.experiments.compare.winner import best_run

    if (winner := results.winner) is not None:
        run = best_run(plan, results, winner.name)
        yield f"  winner   {run.name}: {winner.name} {results.why_winner()}; the seed with the best dev score"
    yield "next:"
    yield from (f"  {escaped(command)}" for command in results.commands)
