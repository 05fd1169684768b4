"""Trials one after the other, as long as the study wants one and there is time."""

import math
import time
from collections.abc import Iterator

import msgspec

from seqloom.config.training import AdamWConfig, NewtonConfig
from seqloom.errors import ConfigError
from seqloom.training.front import Resolved, resolve
from seqloom.tuning.ground import Ground
from seqloom.tuning.keeping import tidy
from seqloom.tuning.plan import Plan
from seqloom.tuning.reports import TrialEnded, TuningBegun, TuningEnded, TuningReport, Why
from seqloom.tuning.space import default_wishes, near, require_searchable
from seqloom.tuning.storage import open_storage
from seqloom.tuning.study import Study
from seqloom.tuning.trials import Interrupted, cache_of, run_trial

MOST_FAILURES = 3  # in a row: then it is not the parameters


class Opening:
    """A tuning that is ready to begin: data read without its test part, study opened, and everything checked."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.began = plan, time.monotonic()
        require_searchable(plan)
        first = self._resolved()
        self.ground = Ground(first)
        self.plan = plan = msgspec.structs.replace(plan, space=self.ground.filled(plan.space))
        self.study = Study(plan, first.task.metric, open_storage(plan.storage))
        try:
            self.study.require_same(_asked(plan, first))
            self.study.offer_first(near(first.config, default_wishes(plan), plan, self.ground))
        except BaseException:
            self.close()
            raise
        self.said = (*first.said, *self.study.opened.said)

    def _resolved(self) -> Resolved:
        """The run that nobody tuned: it reads the data once for all."""
        plan = self.plan
        wishes = default_wishes(plan)
        resolved = resolve(plan.data, wishes, cache=cache_of(plan))
        if isinstance(resolved.config.training.optimiser, NewtonConfig):  # searched are steps by batches
            wishes = wishes._replace(training={**wishes.training, "optimiser": AdamWConfig()})
            resolved = resolve(plan.data, wishes, cache=cache_of(plan))
        if not len(resolved.prepared.parts["dev"]):
            raise ConfigError("there is no dev part to tune on", fix="give --dev FILE, or --shares 10%,10%")
        return resolved

    def begun(self) -> TuningBegun:
        """The first report."""
        plan, study = self.plan, self.study
        return TuningBegun(plan.folder, plan.study, study.opened.shown, plan.trials, study.finished(), self.said)

    def close(self) -> None:
        """Let go of the storage."""
        self.study.opened.close()

    @property
    def deadline(self) -> float:
        """When time is up."""
        return self.began + self.plan.seconds if self.plan.seconds else math.inf


def _asked(plan: Plan, first: Resolved) -> dict[str, object]:
    """What makes two tunings the same search; where files lie may differ between machines."""
    facts = first.facts
    return {
        "task": first.config.task,
        "data": sorted(str(sum_) for sum_ in facts.fingerprints.values()),
        "split": facts.split,
        "space": plan.space,
        "settings": plan.settings,
        "encoding": first.config.encoding,
    }


def work(opening: Opening) -> Iterator[TuningReport]:
    """The reports of trials until no more is wanted; the last report is `TuningEnded`."""
    study, failures = opening.study, 0
    why: Why = "done"
    code = 0
    try:
        while True:
            if time.monotonic() > opening.deadline:
                raise Interrupted("seconds", 0)
            with study.claim() as claimed:
                if claimed is None:
                    break
                for report in run_trial(claimed, study, opening.plan, opening.ground, opening.deadline):
                    yield report
                    if isinstance(report, TrialEnded):
                        failures = failures + 1 if report.state == "failed" else 0
                        _require_some_success(failures, report)
            tidy(opening.plan, study.results())
    except Interrupted as interruption:
        why, code = interruption.why, interruption.exit_code
    yield TuningEnded(why, study.results(), code)


def _require_some_success(failures: int, last: TrialEnded) -> None:
    if failures >= MOST_FAILURES:
        raise ConfigError(f"{failures} trials in a row failed; the last one: {last.problem}", fix="mend that first")
