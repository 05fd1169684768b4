"""The events of a comparison in words."""

from seqloom.experiments.compare.plan import ComparisonReport, ComparisonStarted, Measuring, RunEnded, RunStarted
from seqloom.experiments.progress import Told
from seqloom.report.numbers import duration, number


def told(report: ComparisonReport) -> Told:
    """An event of a comparison in words."""
    match report:
        case ComparisonStarted():
            lines = (*report.messages, f"{report.finished} of {report.wanted} runs are done")
            jobs = str(report.jobs) if report.jobs > 1 else "one"
            training = f"training {jobs} at a time; each run first reads the data and builds its model"
            left = () if report.finished == report.wanted else (training,)
            return Told((*lines, *left), wanted=report.wanted, finished=report.finished)
        case RunStarted():
            return Told((f"{report.entry.name}: {report.message}",))
        case RunEnded():
            score = "" if report.score is None else f"{number(report.score)} after {duration(report.seconds)}"
            return Told((f"{report.entry.name}: {score or report.problem}",), finished=1)
        case Measuring():
            return Told((f"measuring speed and memory of {report.models} models",))
    return Told()
