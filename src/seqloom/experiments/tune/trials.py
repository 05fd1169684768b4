"""One trial of a tuning: an ordinary run whose validations are told to the study, which may give it up; what is kept.

    of every trial          config.toml, metrics, its own report and card: enough to look at it, or to train it again
    of the best one too     its model and its checkpoints

Weights are large and trials are many, so those of a trial go as soon as another one is better. Which is the best is
asked of the trials in this folder: those of other machines keep theirs.
"""

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from socket import gethostname

import msgspec

from seqloom.errors import ConfigError, DataError, HeldError, KernelError
from seqloom.experiments.tune.plan import (
    DataGround,
    TrialBegun,
    TrialEnded,
    TrialTold,
    TuningPlan,
    TuningReport,
    default_wishes,
    drawn,
    used,
    wishes_of,
)
from seqloom.experiments.tune.results import Results
from seqloom.experiments.tune.study import CONFIG, FOLDER, HEARTBEAT, Claimed, Study
from seqloom.experiments.workers import Interrupted
from seqloom.files.disk import write_file
from seqloom.files.folders import read_file_of, read_manifest, remove_folder, replace_folder
from seqloom.files.jsonl import read_lines
from seqloom.files.layouts import RunFile
from seqloom.files.lock import hold
from seqloom.training.events import Begun, Ended, Validated
from seqloom.training.resolve import Resolved, resolve

PATIENCE = 30.0  # seconds for another worker that writes the same


def run_trial(
    claimed: Claimed, study: Study, plan: TuningPlan, ground: DataGround, deadline: float
) -> Iterator[TuningReport]:
    """The reports of one trial; Interrupted where it is to go on later."""
    try:
        params = drawn(claimed.trial, plan)
        wishes = default_wishes(plan) if claimed.is_default else wishes_of(params, plan, ground)
        resolved = resolve(plan.data, wishes, cache=plan.cache)
        params = used(resolved.config, wishes, plan)  # as they stand in the run
        folder = plan.trial_folder(claimed.number)
        for name, value in (("params", params), (CONFIG, resolved.config.to_toml()), (FOLDER, str(folder.resolve()))):
            claimed.trial.set_user_attr(name, value)
        yield TrialBegun(claimed.number, folder, params, claimed.is_default)
        yield from _trained(claimed, study, plan, resolved, deadline)
    except (ConfigError, DataError, KernelError) as error:  # a disk concerns the whole tuning
        study.failed(claimed.trial, error.in_brief)
        yield TrialEnded(claimed.number, "failed", None, False, error.in_brief)


def _trained(
    claimed: Claimed, study: Study, plan: TuningPlan, resolved: Resolved, deadline: float
) -> Iterator[TuningReport]:
    folder, trial, moment, told = plan.trial_folder(claimed.number), claimed.trial, 0, time.monotonic()
    name = study.metric.name
    with closing(plan.trained(folder, resolved)) as reports:  # type: ignore[type-var]
        for report in reports:
            yield TrialTold(claimed.number, report)
            if time.monotonic() - told > HEARTBEAT:
                study.alive(trial)
                told = time.monotonic()
            if isinstance(report, Begun):  # a run that goes on has validated before
                lines = read_lines(folder / RunFile.METRICS).records
                moment = len([one for one in lines if one.get("kind") == "validation"])
            if isinstance(report, Validated):
                moment += 1
                if study.is_hopeless(trial, report.metrics.get(name, float("nan")), moment):
                    study.pruned(trial)
                    break
            if time.monotonic() > deadline and not isinstance(report, Ended):
                raise Interrupted("seconds", 0)
        else:
            assert isinstance(report, Ended), "the last report"
            value = report.metrics.get(name)
            if value is None or report.why == "not-finite":  # as bad as a trial can be
                study.pruned(trial)
            else:
                study.done(trial, value)
    results = study.results()
    found = next(one for one in results.trials if one.number == claimed.number)
    yield TrialEnded(claimed.number, found.state, found.value, best=results.best == found)


def keep(plan: TuningPlan, results: Results) -> tuple[str, ...]:
    """What was not kept, and why; everything else is in the folder now."""
    until = time.monotonic() + PATIENCE
    while True:  # another worker may be writing results here
        try:
            with hold(plan.folder):
                return _written(plan, results)
        except HeldError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def _written(plan: TuningPlan, results: Results) -> tuple[str, ...]:
    plan.write(results)
    best = results.best
    if best is None:
        return ()
    write_file(plan.folder / "best.toml", best.config)
    model = Path(best.folder) / RunFile.MODEL
    if not model.is_dir():
        return (f"the model of trial {best.number} lies on {best.host}: {model}",)
    names = read_manifest(model).files
    replace_folder(plan.folder / RunFile.MODEL, {name: read_file_of(model, name) for name in names})
    return ()


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
