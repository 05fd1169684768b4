"""What a tuning leaves in its folder: best.toml, the model of the best trial, and the report."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from seqloom.config.reading import from_toml
from seqloom.config.training import RunConfig
from seqloom.durable import read_file_of, read_manifest, replace_folder, write_file
from seqloom.durable.holding import hold
from seqloom.errors import DurableError
from seqloom.tuning.plan import Plan
from seqloom.tuning.results import Results, TrialResult

PATIENCE = 30.0  # seconds for another worker that writes the same


def keep(plan: Plan, results: Results) -> tuple[str, ...]:
    """What was not kept, and why; everything else is in the folder now."""
    with _alone(plan.folder):
        write_file(plan.folder / "report.html", results.html())
        write_file(plan.folder / "results.json", results.to_json())
        best = results.best
        if best is None:
            return ()
        write_file(plan.folder / "best.toml", best_config(best, plan).to_toml())
        return _model(best, plan.folder)


def best_config(best: TrialResult, plan: Plan) -> RunConfig:
    """The configuration of the best trial, with the test files that no trial was given."""
    config: RunConfig = from_toml(best.config, RunConfig)
    return msgspec.structs.replace(config, data=msgspec.structs.replace(config.data, test=plan.data.test))


def _model(best: TrialResult, folder: Path) -> tuple[str, ...]:
    model = Path(best.folder) / "model"
    if not model.is_dir():
        return (f"the model of trial {best.number} lies on {best.host}: {model}",)
    names = read_manifest(model).files
    replace_folder(folder / "model", {name: read_file_of(model, name) for name in names})
    return ()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """A block in which no other worker writes results here."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            with hold(folder):
                yield
            return
        except DurableError as error:
            if " in use by " not in error.problem or time.monotonic() > until:
                raise
            time.sleep(0.2)
