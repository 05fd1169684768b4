"""The events of a race in words."""

from seqloom.experiments.auto.plan import (
    AutoEvent,
    AutoStarted,
    CandidateEnded,
    CandidateReport,
    CandidateStarted,
    Probed,
    RungStarted,
)
from seqloom.experiments.progress import Told
from seqloom.report.numbers import counted, duration, number
from seqloom.training.events import Stepped


def told(event: AutoEvent, seconds: float) -> Told:
    """An event of a race of so many seconds in words; training steps are only what is going on."""
    match event:
        case AutoStarted():
            spent = f", {duration(event.spent)} already spent" if event.spent >= 1 else ""
            about = f"{duration(event.seconds)}{spent}; the best dev {event.metric} wins"
            return Told((*event.messages, f"{', '.join(event.candidates)}: {about}"))
        case Probed():
            full = duration(event.whole_seconds)
            return Told((f"{event.candidate}: {duration(event.step_seconds)} per step, about {full} in full",))
        case RungStarted():
            dropped = f"; dropped: {', '.join(event.dropped)}" if event.dropped else ""
            return Told((f"rung {event.rung}: {counted(len(event.entries), 'candidate')}{dropped}",))
        case CandidateStarted():
            about = f", about {duration(event.entry.seconds)}" if event.entry.default_steps else ""
            return Told((f"  {event.entry.candidate.name}: {event.entry.length}{about}; {_left(event.left)}",))
        case CandidateReport(report=Stepped()):
            spent_share = min(1.0, max(0.0, 1 - event.left / seconds))
            return Told(share=spent_share, now=f"{event.entry.candidate.name}; {_left(event.left)}")
        case CandidateEnded():
            if event.score is None:
                return Told((f"  {event.entry.candidate.name}: {event.problem}",))
            best, took = ", best so far" if event.best else "", duration(event.seconds)
            line = f"  {event.entry.candidate.name}: {number(event.score)} after {took}{best}; {_left(event.left)}"
            return Told((line,), share=min(1.0, max(0.0, 1 - event.left / seconds)))
    return Told()


def _left(seconds: float) -> str:
    return f"{duration(seconds)} left" if seconds > 0 else "time is up"
