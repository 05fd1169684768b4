"""Tuning from Python in one call, and the generator behind it that the command line shows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from seqloom.config.data import AnySplit, BadRows, DataConfig, EncodingConfig, ReadingConfig, Task
from seqloom.config.options import stated, strict
from seqloom.config.training import AnyFeed, AnyLength, AnyOptimiser, AnySchedule, Precision, SpaceConfig
from seqloom.data.check import Names
from seqloom.errors import ConfigError
from seqloom.experiments.tune.folder import keep, tidy
from seqloom.experiments.tune.plan import MOST_JOBS, PrunerName, TuningEnded, TuningPlan, TuningReport
from seqloom.experiments.tune.results import Results
from seqloom.experiments.tune.trials import OpenTuning, watched, work
from seqloom.files.disk import make_folder
from seqloom.training.wishes import settings_of


def search(plan: TuningPlan, jobs: int = 1) -> Iterator[TuningReport]:
    """The reports of a tuning that begins or goes on; at the last one, `TuningEnded`, the folder has its results."""
    if not 1 <= jobs <= MOST_JOBS:
        raise ConfigError(f"{jobs} jobs", fix=f"take 1 to {MOST_JOBS}")
    make_folder(plan.folder / "trials")
    with closing(OpenTuning(plan)) as opening:
        yield opening.begun()
        for report in work(opening) if jobs == 1 else watched(opening, jobs):
            if isinstance(report, TuningEnded):
                keep(plan, report.results)
                tidy(plan, report.results)
            yield report


@strict
def tune(
    *data: str | Path,
    out: str | Path,
    models: Sequence[str] = (),
    trials: int = 20,
    seconds: float = 0.0,
    storage: str | None = None,
    study: str | None = None,
    space: SpaceConfig = SpaceConfig(),  # noqa: B008  # frozen
    pruner: PrunerName = "median",
    jobs: int = 1,
    seed: int = 0,
    device: str = "auto",
    encoding: EncodingConfig | None = None,
    show: Callable[[TuningReport], None] | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    symbols: int | None = None,
    length: AnyLength | None = None,
    dev: Names | None = None,
    test: Names | None = None,
    reading: ReadingConfig | None = None,
    task: Task | None = None,
    input: Names | None = None,
    target: Names | None = None,
    id: str | None = None,
    label_separator: str | None = None,
    sequence: str | None = None,
    split: AnySplit | None = None,
    bad_rows: BadRows | None = None,
    feed: AnyFeed | None = None,
    optimiser: AnyOptimiser | None = None,
    rate: float | None = None,
    schedule: AnySchedule | None = None,
    clip: float | None = None,
    pieces: int | None = None,
    validate_every: int | None = None,
    metric: str | None = None,
    patience: int | None = None,
    save_every: int | None = None,
    keep: int | None = None,
    average: float | None = None,
    average_last: int | None = None,
    precision: Precision | None = None,
    compile: bool | None = None,
    init: str | None = None,
    freeze: Sequence[str] | None = None,
    report_every: int | None = None,
    deterministic: bool | None = None,
) -> Results:
    """The results of many trials on the dev part; `out` has them and the best model. What is there goes on.

    `seconds` end the search, and `seed` is that of its draws. From `epochs` on, settings are those of `DataConfig` and
    of `TrainingConfig`, the same in every trial.
    """
    named: dict[str, Any] = {"dev": dev, "test": test, "reading": reading, "task": task, "input": input, "id": id}
    named |= {"target": target, "label_separator": label_separator, "sequence": sequence, "split": split}
    named |= {"bad_rows": bad_rows}
    named |= {"length": length, "feed": feed, "optimiser": optimiser, "rate": rate, "schedule": schedule}
    named |= {"clip": clip, "pieces": pieces, "validate_every": validate_every, "metric": metric, "keep": keep}
    named |= {"patience": patience, "save_every": save_every, "average": average, "average_last": average_last}
    named |= {"precision": precision, "compile": compile, "init": init, "freeze": freeze}
    named |= {"report_every": report_every, "deterministic": deterministic}
    named |= {"epochs": epochs, "steps": steps, "symbols": symbols}
    config, wishes = settings_of(data, stated(named))
    plan = make_plan(
        config,
        out=Path(out),
        models=tuple(models),
        trials=trials,
        seconds=seconds,
        storage=storage,
        study=study,
        space=space,
        pruner=pruner,
        seed=seed,
        device=device,
        encoding=encoding,
        settings=wishes.training,
    )
    for report in search(plan, jobs):
        if show is not None:
            show(report)
    assert isinstance(report, TuningEnded), "the last report"
    return report.results


def make_plan(
    data: DataConfig,
    *,
    out: Path,
    models: tuple[str, ...],
    storage: str | None,
    study: str | None,
    space: SpaceConfig,
    trials: int,
    seconds: float,
    pruner: PrunerName,
    seed: int,
    settings: Mapping[str, Any],
    encoding: EncodingConfig | None,
    device: str,
) -> TuningPlan:
    """A plan with what was left open: the file of the study in its folder, and the name of the folder as its name."""
    return TuningPlan(
        data=data,
        out=str(out),
        storage=storage or f"sqlite:///{out / 'study.db'}",
        study=study or out.resolve().name,
        space=msgspec.structs.replace(space, models=models) if models else space,
        trials=trials,
        seconds=seconds,
        pruner=pruner,
        seed=seed,
        settings={"keep": 1} | msgspec.to_builtins(dict(settings)),
        encoding=encoding,
        device=device,
    )
