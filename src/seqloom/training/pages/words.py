"""How the page and the card put numbers: scores with intervals, bytes, seconds, shares."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from seqloom.metrics.bootstrap import SHARES, is_extreme
from seqloom.report.figures.axis import brief

if TYPE_CHECKING:
    from seqloom.training.pages.summary import RunSummary

Interval = tuple[float | None, float | None]
THREE = 3  # rows of n further ones that may differ where none of n did
ENDINGS = {
    "done": "Finished",
    "patience": "Finished early, because the score on dev got no better for as long as --patience allows,",
    "stopped": "Stopped by a signal; the same command goes on",
    "not-finite": "Stopped: losses or gradients were not finite three times in a row",
    "disk": "Stopped: checkpoints could not be written",
}


def value(number: float | None) -> str:
    """A metric in four digits.

    >>> value(0.93333333), value(None), value(1234567.0)
    ('0.9333', 'not finite', '1.235e+06')
    """
    return "not finite" if number is None else f"{number:.4g}"


def with_interval(number: float | None, interval: Interval | None) -> str:
    """A metric with its 95 % interval, where there is one.

    >>> with_interval(0.9, (0.8766, 0.92)), with_interval(0.9, None)
    ('0.9 [0.8766, 0.92]', '0.9')
    """
    return value(number) + ("" if interval is None else f" [{value(interval[0])}, {value(interval[1])}]")


def metrics_said(metrics: Mapping[str, float | None], intervals: Mapping[str, Interval]) -> str:
    """All metrics in one line."""
    return ", ".join(f"{name} {with_interval(number, intervals.get(name))}" for name, number in metrics.items())


def choice_said(summary: "RunSummary") -> str:
    """Why the shipped weights are not those with the best score; empty where they are."""
    best, chosen, name = summary.best, summary.chosen, summary.metric.name
    if best is None or chosen is None or best.step == chosen.step:
        return ""
    if best.metrics.get(name) == chosen.metrics.get(name):
        return (
            f"Step {best.step:,} has the same {name} and a lower loss. The {name} decides, so the later weights were "
            "chosen."
        )
    return (
        f"Step {best.step:,} scored best, with {name} {value(best.metrics.get(name))} against "
        f"{value(chosen.metrics.get(name))}: no more than one standard error, so the later weights were chosen."
    )


def alike_said(
    metrics: Mapping[str, float | None], rows: int, shares: Collection[str] = SHARES, one: str = "row"
) -> str:
    """What the intervals of shares of 0 or 1 are; empty where there are none. `rows` is 0 where unknown.

    >>> print(alike_said({"accuracy": 1.0, "loss": 0.1}, 20))
    Not one row differs in accuracy, so drawing rows again shows no spread. The interval is the rule of three: of \
as many further rows up to 3 may differ.
    >>> alike_said({"accuracy": 0.9}, 20)
    ''
    """
    names = [name for name, number in metrics.items() if is_extreme(name, number, shares)]
    same = f"Not one {one} differs in {' or '.join(names)}, so drawing {one}s again shows no spread."
    most = "all" if 0 < rows <= THREE else f"up to {THREE}"
    rule = f"The interval is the rule of three: of as many further {one}s {most} may differ."
    return f"{same} {rule}" if names else ""


def size(count: float) -> str:
    """Bytes for people.

    >>> size(900), size(25_000_000)
    ('900 bytes', '25.0 MB')
    """
    if count < 1_000:
        return f"{count:,.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        count /= 1_000
        if count < 999.95:
            return f"{count:.1f} {unit}"
    return f"{count / 1_000:,.1f} TB"


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(7.25), duration(250), duration(7_500), duration(200_000)
    ('7.2 s', '4 min 10 s', '2 h 5 min', '2 d 7 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def share(part: float) -> str:
    """A share; what is there is never nothing.

    >>> share(0.0), share(0.0001), share(0.25)
    ('0 %', '<0.1 %', '25 %')
    """
    return "<0.1 %" if 0 < part < 0.001 else f"{brief(round(100 * part, 1))} %"
