"""One trial: an ordinary run whose validations are reported to the study, which may prune it; and the files kept.

    every trial          config.toml, logs, report and card: enough to inspect it, or to train it again
    the best trial       also its model and its checkpoints

Weights are large, so those of a trial are removed when another one is better. Only the trials in this folder are
compared: other machines keep their own best.
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
    TrialEnded,
    TrialReport,
    TrialStarted,
    TuningPlan,
    TuningReport,
    default_request,
    drawn,
    request_of,
    used,
)
from seqloom.experiments.tune.results import Results
from seqloom.experiments.tune.study import CONFIG, FOLDER, HEARTBEAT, Claimed, Study
from seqloom.experiments.workers import Interrupted, remove_weights
from seqloom.files.disk import write_file
from seqloom.files.folders import read_file_of, read_manifest, replace_folder
from seqloom.files.jsonl import read_lines
from seqloom.files.layouts import RunFile
from seqloom.files.lock import hold
from seqloom.training.events import Ended, Started, Validated
from seqloom.training.resolve import Resolved, resolve

PATIENCE = 30.0  # seconds to wait for another worker that writes results


def run_trial(
    claimed: Claimed, study: Study, plan: TuningPlan, ground: DataGround, deadline: float
) -> Iterator[TuningReport]:
    """The events of one trial; Interrupted if it is to be resumed later."""
    try:
        if claimed.solved:
            request = default_request(plan, claimed.solved)
        else:
            params = drawn(claimed.trial, plan)
            request = default_request(plan) if claimed.is_default else request_of(params, plan, ground)
        resolved = resolve(plan.data, request, cache=plan.cache)
        params = used(resolved.config, request, plan)  # as in the configuration of the run
        folder = plan.trial_folder(claimed.number)
        for name, value in (("params", params), (CONFIG, resolved.config.to_toml()), (FOLDER, str(folder.resolve()))):
            claimed.trial.set_user_attr(name, value)
        yield TrialStarted(claimed.number, folder, params, claimed.is_default)
        yield from _trained(claimed, study, plan, resolved, deadline)
    except (ConfigError, DataError, KernelError) as error:  # a disk error stops the search
        study.failed(claimed.trial, error.in_brief)
        yield TrialEnded(claimed.number, "failed", None, False, error.in_brief)


def _trained(
    claimed: Claimed, study: Study, plan: TuningPlan, resolved: Resolved, deadline: float
) -> Iterator[TuningReport]:
    folder, trial, moment, beat = plan.trial_folder(claimed.number), claimed.trial, 0, time.monotonic()
    name = study.metric.name
    with closing(plan.trained(folder, resolved)) as reports:  # type: ignore[type-var]
        for report in reports:
            yield TrialReport(claimed.number, report)
            if time.monotonic() - beat > HEARTBEAT:
                study.alive(trial)
                beat = time.monotonic()
            if isinstance(report, Started):  # a resumed run has validated before
                lines = read_lines(folder / RunFile.METRICS).records
                moment = len([one for one in lines if one.get("kind") == "validation"])
            if isinstance(report, Validated) and not claimed.solved:  # its validations are complete solutions
                moment += 1
                if study.should_prune(trial, report.metrics.get(name, float("nan")), moment):
                    study.pruned(trial)
                    break
            if time.monotonic() > deadline and not isinstance(report, Ended):
                raise Interrupted("seconds", 0)
        else:
            assert isinstance(report, Ended), "the last report"
            value = report.metrics.get(name)
            if value is None or report.reason == "not-finite":  # the worst possible result
                study.pruned(trial)
            else:
                study.done(trial, value)
    results = study.results()
    found = next(one for one in results.trials if one.number == claimed.number)
    yield TrialEnded(claimed.number, found.state, found.value, best=results.best == found)


def keep(plan: TuningPlan, results: Results) -> tuple[str, ...]:
    """Write results, report and the best model; returns messages about what could not be copied."""
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
        return (f"the model of trial {best.number} is on {best.host}: {model}",)
    names = read_manifest(model).files
    replace_folder(plan.folder / RunFile.MODEL, {name: read_file_of(model, name) for name in names})
    return ()


def tidy(plan: TuningPlan, results: Results) -> tuple[int, ...]:
    """Remove the weights of all ended trials but the best one in this folder; returns their numbers."""
    here = [one for one in results.trials if one.host == gethostname()]
    mine = tuple(one for one in here if plan.trial_folder(one.number).resolve() == Path(one.folder))
    best = msgspec.structs.replace(results, trials=mine).best
    over = [one for one in mine if one.state in ("done", "pruned", "failed") and one != best]
    with suppress(HeldError), hold(plan.folder):  # the process that holds the lock does the same
        return tuple(one.number for one in over if remove_weights(Path(one.folder)))
    return ()
