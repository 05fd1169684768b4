"""One trial: an ordinary run whose validations are told to the study, which may give it up."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from seqloom.errors import ConfigError, DataError, KernelError
from seqloom.experiments.tune.events import Params, TrialBegun, TrialEnded, TrialTold, TuningReport
from seqloom.experiments.tune.plan import DataGround, TuningPlan
from seqloom.experiments.tune.space import default_wishes, drawn, used, wishes_of
from seqloom.experiments.tune.storage import HEARTBEAT
from seqloom.experiments.tune.study import CONFIG, FOLDER, Claimed, Study
from seqloom.files.jsonl import read_lines
from seqloom.files.layouts import RunFile
from seqloom.training.devices import choose_device
from seqloom.training.events import Begun, Ended, Validated
from seqloom.training.resolve import Resolved, resolve
from seqloom.training.run import train_run


class TrialInterrupted(Exception):  # noqa: N818  # no error: the trial goes on another time
    """A trial stopped before its end, for a reason that concerns the whole tuning."""

    def __init__(self, why: Any, exit_code: int) -> None:
        self.why, self.exit_code = why, exit_code


def run_trial(
    claimed: Claimed, study: Study, plan: TuningPlan, ground: DataGround, deadline: float
) -> Iterator[TuningReport]:
    """The reports of one trial; Interrupted where it is to go on later."""
    try:
        params, resolved = _resolved(claimed, plan, ground)
        folder = plan.trial_folder(claimed.number)
        for name, value in (("params", params), (CONFIG, resolved.config.to_toml()), (FOLDER, str(folder.resolve()))):
            claimed.trial.set_user_attr(name, value)
        yield TrialBegun(claimed.number, folder, params, claimed.is_default)
        yield from _trained(claimed, study, plan, resolved, deadline)
    except (ConfigError, DataError, KernelError) as error:  # a disk concerns the whole tuning
        study.failed(claimed.trial, error.in_brief)
        yield TrialEnded(claimed.number, "failed", None, False, error.in_brief)


def _resolved(claimed: Claimed, plan: TuningPlan, ground: DataGround) -> tuple[Params, Resolved]:
    """The run of a trial, and its parameters as they stand in it."""
    params = drawn(claimed.trial, plan)
    wishes = default_wishes(plan) if claimed.is_default else wishes_of(params, plan, ground)
    resolved = resolve(plan.data, wishes, cache=cache_of(plan))
    return used(resolved.config, wishes, plan), resolved


def cache_of(plan: TuningPlan) -> Path:
    """Where prepared data is kept between trials: beside them, so that it is read once."""
    return plan.folder / "prepared"


def _trained(
    claimed: Claimed, study: Study, plan: TuningPlan, resolved: Resolved, deadline: float
) -> Iterator[TuningReport]:
    folder, trial, moment, told = plan.trial_folder(claimed.number), claimed.trial, 0, time.monotonic()
    device = choose_device(plan.device, resolved.config.training.precision)  # type: ignore[arg-type]
    name = study.metric.name
    with closing(train_run(folder, resolved, device=device, workers=plan.workers)) as reports:  # type: ignore[type-var]
        for report in reports:
            yield TrialTold(claimed.number, report)
            if time.monotonic() - told > HEARTBEAT:
                study.alive(trial)
                told = time.monotonic()
            if isinstance(report, Begun):  # a run that goes on has validated before
                moment = len(
                    [one for one in read_lines(folder / RunFile.METRICS).records if one.get("kind") == "validation"]
                )
            if isinstance(report, Validated):
                moment += 1
                if study.is_hopeless(trial, report.metrics.get(name, float("nan")), moment):
                    study.pruned(trial)
                    yield _ended(claimed, study, "pruned")
                    return
            if isinstance(report, Ended):
                yield _told(claimed, study, report)
                return
            if time.monotonic() > deadline:
                raise TrialInterrupted("seconds", 0)


def _told(claimed: Claimed, study: Study, report: Ended) -> TrialEnded:
    """The end of a run, told to the study; numbers that are not finite are as bad as a trial can be."""
    if report.why in ("stopped", "disk"):
        raise TrialInterrupted(report.why, report.exit_code)
    value = report.metrics.get(study.metric.name)
    if value is None or report.why == "not-finite":
        study.pruned(claimed.trial)
        return _ended(claimed, study, "pruned")
    study.done(claimed.trial, value)
    return _ended(claimed, study, "done")


def _ended(claimed: Claimed, study: Study, state: Any) -> TrialEnded:
    results = study.results()
    found = next(one for one in results.trials if one.number == claimed.number)
    return TrialEnded(claimed.number, state, found.value, best=results.best == found)
