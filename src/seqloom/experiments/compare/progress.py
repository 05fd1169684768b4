"""The events of a comparison in words."""

from seqloom.experiments.compare.plan import ComparisonReport, ComparisonStarted, Measuring, RunEnded, RunStarted
from seqloom.experiments.progress import Told
from seqloom.report.numbers import counted, duration, number, rounded_duration


def told(report: ComparisonReport) -> Told:
    """An event of a comparison in words."""
    match report:
        case ComparisonStarted():
            trained = report.finished + report.trained
            done = f"{report.finished} of {report.wanted} runs are done"
            if report.trained:
                done = f"{trained} of {report.wanted} runs are trained; {report.trained} of them are evaluated now"
            lines = (*report.messages, done)
            jobs = str(report.jobs) if report.jobs > 1 else "one"
            training = f"training {jobs} at a time; each run first reads the data and builds its model"
            left = () if trained == report.wanted else (training,)
            return Told((*lines, *left), wanted=report.wanted, finished=report.finished)
        case RunStarted():
            return Told((f"{report.entry.name}: {report.message}",))
        case RunEnded():
            if report.score is None:
                return Told((f"{report.entry.name}: {report.problem}",), finished=1)
            spent = "" if report.seconds is None else f" after {duration(report.seconds)}"
            score = f"{report.metric} {number(report.score)}{spent}"
            time = "" if report.seconds_left is None else f", about {rounded_duration(report.seconds_left)}"
            more = f"; {counted(report.runs_left, 'run')} left{time}" if report.runs_left else ""
            return Told((f"{report.entry.name}: {score}{more}",), finished=1)
        case Measuring():
            return Told((f"measuring speed and memory of {report.models} models",))
    return Told()
