"""The events of a search for settings in words."""

from seqloom.experiments.progress import Told
from seqloom.experiments.tune.plan import (
    TrialEnded,
    TrialReport,
    TrialStarted,
    TuningReport,
    TuningStarted,
    TuningWorkerLost,
)
from seqloom.report.numbers import duration, number
from seqloom.training.events import Stepped, Validated


def told(report: TuningReport) -> Told:
    """An event of a search in words; the steps of a trial are only what is going on."""
    match report:
        case TuningStarted():
            where = f"study '{report.study}' in {report.storage}: {report.finished} of {report.wanted} trials are done"
            return Told((*report.messages, where), wanted=report.wanted, finished=report.finished)
        case TrialStarted():
            values = (
                f"{name} {value if isinstance(value, str) else number(value)}" for name, value in report.params.items()
            )
            return Told((f"trial {report.number}: {'default settings' if report.is_default else ', '.join(values)}",))
        case TrialReport(report=Validated() as seen):
            scores = ", ".join(f"{name} {number(value)}" for name, value in seen.metrics.items())
            return Told((f"  step {seen.step:,}, {duration(seen.speed.seconds)}: {scores}",))
        case TrialReport(report=Stepped() as step):
            return Told(now=f"step {step.step:,} of trial {report.number}, loss {number(step.loss)}")
        case TrialEnded():
            score = "" if report.value is None else f" {number(report.value)}"
            best, problem = ", best so far" if report.best else "", f": {report.problem}" if report.problem else ""
            return Told((f"trial {report.number} {report.state}{score}{best}{problem}",), finished=1)
        case TuningWorkerLost():
            return Told((report.problem,))
    return Told()
