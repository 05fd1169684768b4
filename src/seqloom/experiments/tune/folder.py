"""What a tuning leaves in its folder: best.toml, the model of the best trial, and the report.

    of every trial          config.toml, metrics, its own report and card: enough to look at it, or to train it again
    of the best one too     its model and its checkpoints

Weights are large and trials are many, so those of a trial go as soon as another one is better. Which is the best is
asked of the trials in this folder: those of other machines keep theirs.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname

import msgspec

from seqloom.errors import HeldError
from seqloom.experiments.tune.plan import TuningPlan
from seqloom.experiments.tune.results import Results, TrialResult
from seqloom.files.disk import write_file
from seqloom.files.folders import read_file_of, read_manifest, remove_folder, replace_folder
from seqloom.files.layouts import RunFile
from seqloom.files.lock import hold

PATIENCE = 30.0  # seconds for another worker that writes the same


def keep(plan: TuningPlan, results: Results) -> tuple[str, ...]:
    """What was not kept, and why; everything else is in the folder now."""
    with _alone(plan.folder):
        write_file(plan.folder / "report.html", results.html())
        write_file(plan.folder / "results.json", msgspec.json.format(msgspec.json.encode(results), indent=2))
        best = results.best
        if best is None:
            return ()
        write_file(plan.folder / "best.toml", best.config)
        return _model(best, plan.folder)


def tidy(plan: TuningPlan, results: Results) -> tuple[int, ...]:
    """The numbers of the trials whose weights were removed: they are over, and one of this folder was better."""
    here = [one for one in results.trials if one.host == gethostname()]
    mine = tuple(one for one in here if plan.trial_folder(one.number).resolve() == Path(one.folder))
    best = msgspec.structs.replace(results, trials=mine).best
    over = [one for one in mine if one.state in ("done", "pruned", "failed") and one != best]
    with suppress(HeldError), hold(plan.folder):  # whoever holds it tidies up as well, or copies the model
        return tuple(one.number for one in over if _without_weights(Path(one.folder)))
    return ()


def _without_weights(run: Path) -> bool:
    """Whether there were any, and they are gone."""
    found = [run / name for name in (RunFile.CHECKPOINTS, RunFile.MODEL) if (run / name).is_dir()]
    if not found:
        return False
    with suppress(HeldError), hold(run):  # its worker may not have left yet; the next one finds it
        for folder in found:
            remove_folder(folder)
        return True
    return False


def _model(best: TrialResult, folder: Path) -> tuple[str, ...]:
    model = Path(best.folder) / RunFile.MODEL
    if not model.is_dir():
        return (f"the model of trial {best.number} lies on {best.host}: {model}",)
    names = read_manifest(model).files
    replace_folder(folder / RunFile.MODEL, {name: read_file_of(model, name) for name in names})
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
        except HeldError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
