"""Tuning from Python in one call, and the generator behind it that the command line shows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.config.tuning import SpaceConfig
from seqloom.data.check import data_config
from seqloom.errors import ConfigError
from seqloom.experiments.tune.events import TuningEnded, TuningReport
from seqloom.experiments.tune.folder import keep, tidy
from seqloom.experiments.tune.plan import MOST_JOBS, PrunerName, TuningPlan
from seqloom.experiments.tune.results import Results
from seqloom.experiments.tune.trials import OpenTuning, watched, work
from seqloom.files.disk import make_folder


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
    **settings: Any,
) -> Results:
    """The results of many trials on the dev part; `out` has them and the best model. What is there goes on.

    `settings` are those of `DataConfig` (dev, task, input, ...) and of `TrainingConfig` (length, patience, ...), by
    name; the latter are the same in every trial.
    """
    of_data = {name: value for name, value in settings.items() if name in DataConfig.__struct_fields__}
    plan = make_plan(
        data_config(data, of_data),
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
        settings={name: value for name, value in settings.items() if name not in of_data},
    )
    for report in search(plan, jobs):
        if show is not None:
            show(report)
    assert isinstance(report, TuningEnded), "the last report"
    return report.results


def make_plan(
    data: DataConfig, *, out: Path, models: tuple[str, ...], storage: str | None, study: str | None, **rest: Any
) -> TuningPlan:
    """A plan with what was left open: the file of the study in its folder, and the name of the folder as its name."""
    space = rest.pop("space")
    settings = msgspec.to_builtins(rest.pop("settings"))
    return TuningPlan(
        data=data,
        out=str(out),
        storage=storage or f"sqlite:///{out / 'study.db'}",
        study=study or out.resolve().name,
        space=msgspec.structs.replace(space, models=models) if models else space,
        settings={"keep": 1} | settings,
        **rest,
    )
